"""Others change the table's columns while a transaction runs: no column is lost, and what does not go together is rejected."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import ArrowEngine, ConflictRule, Coordinator, MemoryStorage, TableSchema, Transaction
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import HUDI, QUICK, SCHEMA, leftovers, new_table, writer

from lakelock.errors import ConflictError
from lakelock.settings import Settings
from lakelock.table.schema import Alteration

NOTED = SCHEMA.append(pa.field("note", pa.string()))
COUNTED = SCHEMA.append(pa.field("count", pa.int64()))
MERGING = Settings.resolve({"write.merge_schema": True}).settings
Row = tuple[Any, ...]


@pytest.fixture
def storage() -> MemoryStorage:
    made = MemoryStorage()
    new_table(made)
    ArrowEngine(writer(made)).insert(rows(("a", 1, "1"), ("b", 2, "2")))
    return made


def rows(*values: Row, schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = list(zip(*values, strict=True))
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def insert_in(coordinator: Coordinator, tx: Transaction, values: pa.Table) -> None:
    """A blind insert in a transaction that began earlier."""
    ArrowEngine(coordinator).insert_in(tx, values)


def stored(storage: MemoryStorage, *columns: str) -> dict[str, Row]:
    """The chosen columns by id."""
    found = ArrowEngine(writer(storage)).read().to_pylist()
    return {row["id"]: tuple(row[name] for name in columns) for row in found}


def names(storage: MemoryStorage) -> list[str]:
    return writer(storage).schema().names


@pytest.mark.parametrize("settings", [QUICK, HUDI], ids=["strict", "hudi"])
@pytest.mark.parametrize("by", ["another engine", "lakelock"])
def test_a_column_that_was_added_meanwhile_keeps_its_values(storage: MemoryStorage, settings: Settings, by: str) -> None:
    mine = writer(storage, settings)
    tx = mine.begin("INSERT")
    if by == "lakelock":
        ArrowEngine(writer(storage, MERGING)).insert(rows(("n", 3, "3", "noted"), schema=NOTED))
    else:
        Peer(storage).insert(rows(("n", 3, "3", "noted"), schema=NOTED), "month=3")
    insert_in(mine, tx, rows(("c", 4, "1")))
    assert names(storage) == NOTED.names
    ArrowEngine(writer(storage)).upsert(rows(("m", 5, "3", None), schema=NOTED))
    ArrowEngine(writer(storage)).delete(pc.field("id") == "m")
    assert stored(storage, "v", "note") == {"a": (1, None), "b": (2, None), "c": (4, None), "n": (3, "noted")}


@pytest.mark.parametrize("settings", [QUICK, HUDI], ids=["strict", "hudi"])
@pytest.mark.parametrize("work", ["upsert", "delete"])
def test_a_rewrite_that_began_before_a_column_was_added_is_right(storage: MemoryStorage, settings: Settings, work: str) -> None:
    """Its files lack the column, and nobody gave their rows a value: they were not touched by whoever added it."""
    mine = writer(storage, settings)
    tx = mine.begin("UPSERT")
    Peer(storage).insert(rows(("n", 3, "3", "noted"), schema=NOTED), "month=3")
    engine = ArrowEngine(mine)
    if work == "upsert":
        engine.upsert_in(tx, rows(("a", 10, "1")))
        left: dict[str, Row] = {"a": (10, None), "b": (2, None)}
    else:
        engine.delete_where_in(tx, pc.field("id") == "a")
        left = {"b": (2, None)}
    assert stored(storage, "v", "note") == {**left, "n": (3, "noted")}
    engine.upsert(rows(("b", 20, "2", "late"), ("n", 30, "3", "later"), schema=NOTED))
    assert stored(storage, "v", "note") == {**left, "b": (20, "late"), "n": (30, "later")}


@pytest.mark.parametrize("profile", ["strict", "hudi"])
@pytest.mark.parametrize("theirs", ["earlier", "later"])
def test_columns_that_two_add_at_the_same_time_are_both_kept(storage: MemoryStorage, profile: str, theirs: str) -> None:
    """Hudi's readers take the columns from the commit of the latest instant: if that is the other's, mine begins again."""
    mine = writer(storage, Settings.resolve({"write.merge_schema": True, "concurrency.profile": profile}).settings)
    peer, counted = Peer(storage), rows(("c", 4, "1", 40), schema=COUNTED)
    began = peer.begin() if theirs == "earlier" else ""
    tx = mine.begin("INSERT")
    peer.insert(rows(("n", 3, "3", "noted"), schema=NOTED), "month=3", instant=began)
    if theirs == "earlier":
        insert_in(mine, tx, counted)
    else:
        with pytest.raises(ConflictError, match="readers take the columns") as caught:
            insert_in(mine, tx, counted)
        conflict = caught.value.conflict
        assert (conflict.rule, conflict.overlap, conflict.retry_helps) == (ConflictRule.METADATA, ("count",), True)
        ArrowEngine(mine).insert(rows(("c", 4, "1", None, 40), schema=NOTED.append(COUNTED.field("count"))))
    latest = max(writer(storage).table.timeline().commits, key=lambda i: i.requested)
    assert latest.requested == writer(storage).history(1)[0].instant
    assert names(storage) == [*SCHEMA.names, "note", "count"]
    found = stored(storage, "v", "note", "count")
    assert found == {"a": (1, None, None), "b": (2, None, None), "c": (4, None, 40), "n": (3, "noted", None)}


@pytest.mark.parametrize("by", ["another engine", "lakelock"])
def test_the_same_column_may_be_added_twice(storage: MemoryStorage, by: str) -> None:
    mine = writer(storage, MERGING)
    tx = mine.begin("INSERT")
    if by == "lakelock":
        ArrowEngine(writer(storage, MERGING)).insert(rows(("n", 3, "3", "noted"), schema=NOTED))
    else:
        Peer(storage).insert(rows(("n", 3, "3", "noted"), schema=NOTED), "month=3")
    insert_in(mine, tx, rows(("c", 4, "1", "mine"), schema=NOTED))
    assert names(storage) == NOTED.names
    assert stored(storage, "note") == {"a": (None,), "b": (None,), "c": ("mine",), "n": ("noted",)}


@pytest.mark.parametrize("profile", ["strict", "hudi"])
@pytest.mark.parametrize(
    ("theirs", "mine", "column"),
    [
        (SCHEMA.append(pa.field("note", pa.int32())), NOTED, "note: int32 there, string here"),
        (SCHEMA.append(pa.field("NOTE", pa.string())), NOTED, "note: Spark cannot tell it from NOTE"),
        (SCHEMA.set(1, pa.field("v", pa.float64())), SCHEMA, "v: double there, int64 here"),
        (SCHEMA.append(pa.field("must", pa.string(), nullable=False)), SCHEMA, "must: added by the other as not null"),
        (SCHEMA.remove(1), SCHEMA, "v: removed by the other"),
    ],
    ids=["other type", "other case", "changed type", "not null", "removed"],
)
def test_changes_that_do_not_go_together_reject_the_second(
    storage: MemoryStorage, theirs: pa.Schema, mine: pa.Schema, column: str, profile: str
) -> None:
    coordinator = writer(storage, Settings.resolve({"write.merge_schema": True, "concurrency.profile": profile}).settings)
    tx = coordinator.begin("INSERT")
    other = Peer(storage).alter(TableSchema(theirs).to_avro_json("t"))
    with pytest.raises(ConflictError) as caught:
        insert_in(coordinator, tx, rows(("c", 4, "1", "x")[: len(mine)], schema=mine))
    conflict = caught.value.conflict
    assert (conflict.rule, conflict.overlap, conflict.retry_helps) == (ConflictRule.METADATA, (column,), True)
    assert conflict.other.instant == other
    assert [name for name in leftovers(storage) if tx.instant in name] == []


def test_a_change_without_rows_counts(storage: MemoryStorage) -> None:
    mine = writer(storage)
    tx = mine.begin("INSERT")
    Peer(storage).alter(TableSchema(NOTED).to_avro_json("t"))
    insert_in(mine, tx, rows(("c", 4, "1")))
    assert names(storage) == NOTED.names


def test_a_newer_commit_that_had_not_seen_the_change_does_not_undo_it(storage: MemoryStorage) -> None:
    """Another engine may publish the old columns blindly: neither readers lose the column, nor whoever commits next."""
    mine, peer = writer(storage), Peer(storage)
    tx, blind = mine.begin("INSERT"), peer.begin()
    peer.insert(rows(("n", 3, "3", "noted"), schema=NOTED), "month=3")
    peer.insert(rows(("o", 4, "4")), "month=4", instant=blind)
    assert names(storage) == NOTED.names
    insert_in(mine, tx, rows(("c", 5, "1")))
    assert names(storage) == NOTED.names
    assert stored(storage, "note")["n"] == ("noted",)


def test_a_column_of_a_commit_that_began_before_the_newest_is_seen(storage: MemoryStorage) -> None:
    """Its instant is earlier than that of a commit without the column, its completion later."""
    peer = Peer(storage)
    slow = peer.begin()
    peer.insert(rows(("o", 4, "4")), "month=4")
    peer.insert(rows(("n", 3, "3", "noted"), schema=NOTED), "month=3", instant=slow)
    assert names(storage) == NOTED.names
    ArrowEngine(writer(storage)).upsert(rows(("m", 5, "3", None), schema=NOTED))
    assert stored(storage, "note")["n"] == ("noted",)


def test_the_text_of_a_schema_that_does_not_change_is_said_again_character_by_character(storage: MemoryStorage) -> None:
    """Avro says more than columns and types: names, docs, defaults, properties of other tools."""
    said = TableSchema(NOTED).to_avro_json("t").replace('"name":"note"', '"doc":"of the clerk", "pii":true, "name":"note"')
    Peer(storage).alter(said)
    engine = ArrowEngine(writer(storage, MERGING))
    engine.upsert(rows(("a", 10, "1", "x"), schema=NOTED))
    assert newest_schema(storage) == said
    engine.upsert(rows(("b", 20, "2", "y", 7), schema=NOTED.append(pa.field("more", pa.int64()))))
    assert newest_schema(storage) != said and names(storage) == [*NOTED.names, "more"]


def newest_schema(storage: MemoryStorage) -> str:
    return writer(storage).schema().as_found


@pytest.mark.parametrize("profile", ["strict", "hudi"])
def test_a_column_is_not_added_behind_a_later_instant_that_repeats_the_old_ones(storage: MemoryStorage, profile: str) -> None:
    """Hudi's readers would take the columns from it, and not see mine."""
    mine = writer(storage, Settings.resolve({"write.merge_schema": True, "concurrency.profile": profile}).settings)
    tx = mine.begin("INSERT")
    ArrowEngine(writer(storage)).insert(rows(("n", 3, "3")))
    with pytest.raises(ConflictError, match="readers take the columns"):
        insert_in(mine, tx, rows(("c", 4, "1", 40), schema=COUNTED))
    ArrowEngine(mine).insert(rows(("c", 4, "1", 40), schema=COUNTED))
    latest = max(writer(storage).table.timeline().commits, key=lambda i: i.requested)
    assert latest.requested == writer(storage).history(1)[0].instant
    assert stored(storage, "count") == {"a": (None,), "b": (None,), "n": (None,), "c": (40,)}


def test_rows_of_a_column_that_was_widened_meanwhile_are_read_anew() -> None:
    storage, schema = MemoryStorage(), pa.schema([("id", pa.string()), ("v", pa.float32()), ("month", pa.string())])
    new_table(storage, schema)
    mine, other = ArrowEngine(writer(storage)), ArrowEngine(writer(storage))
    mine.insert(pa.table([["a"], [1.0], ["1"]], schema=schema))
    tx = mine.coordinator.begin("DELETE")
    other.alter(Alteration(widen={"v": pa.float64()}))
    other.insert(pa.table([["b"], [1.00000000001], ["1"]], names=schema.names))
    with pytest.raises(ConflictError, match="types") as caught:
        mine.delete_where_in(tx, pc.field("v") > 1.0)
    assert (caught.value.conflict.rule, caught.value.conflict.retry_helps) == (ConflictRule.METADATA, True)
    mine.delete(pc.field("v") > 1.0)
    assert list(stored(storage, "v")) == ["a"]
