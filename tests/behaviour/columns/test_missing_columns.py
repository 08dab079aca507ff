"""Upserts whose rows lack columns of the table, by the Arrow engine: refused, kept or null, as `write.missing_columns` says."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from tests.api import ArrowEngine, MemoryStorage, SystemRuntime, TableProperties, TableSchema, create_table
from tests.behaviour.tables import QUICK, leftovers, writer

from lakelock.errors import SchemaError
from lakelock.settings import MissingColumns, WriteSettings
from lakelock.table.rewriting import ARROW
from lakelock.table.schema import Alteration

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("ts", pa.int64()), ("v", pa.int64()), ("w", pa.int64())])
STORED = [{"id": "a", "p": "1", "ts": 5, "v": 1, "w": 10}, {"id": "b", "p": "1", "ts": 5, "v": 2, "w": 20}]


@pytest.fixture
def storage() -> MemoryStorage:
    """A table with two rows, ordered by `ts`."""
    made = MemoryStorage()
    properties = TableProperties.new("t", ["id"], ["p"], "ts", create_schema=TableSchema.from_arrow(SCHEMA).to_avro_json("t"))
    create_table(made, properties, SystemRuntime())
    ArrowEngine(writer(made)).insert(pa.Table.from_pylist(STORED, SCHEMA))
    return made


def engine_with(storage: MemoryStorage, **settings: object) -> ArrowEngine:
    return ArrowEngine(writer(storage, replace(QUICK, write=WriteSettings(**settings))))  # type: ignore[arg-type]


def given(*rows: dict[str, object]) -> pa.Table:
    names = list(rows[0])
    return pa.Table.from_pylist(list(rows), pa.schema([field for field in SCHEMA if field.name in names]))


def content(storage: MemoryStorage) -> dict[str, tuple[object, object]]:
    found = ArrowEngine(writer(storage)).read().to_pylist()
    return {row["id"]: (row["v"], row["w"]) for row in found}


PARTIAL = [{"id": "a", "p": "1", "ts": 6, "v": 7}, {"id": "c", "p": "1", "ts": 6, "v": 8}]


def test_an_upsert_that_lacks_a_column_is_refused_before_any_work_and_stores_nothing(storage) -> None:
    with pytest.raises(SchemaError, match="the rows lack a column of the table: w"):
        engine_with(storage).upsert(given(*PARTIAL))
    assert content(storage) == {"a": (1, 10), "b": (2, 20)}
    assert leftovers(storage) == []


@pytest.mark.parametrize(("missing", "stored"), [("keep", 10), ("null", None)])
@pytest.mark.parametrize("by_call", [False, True])
def test_a_setting_or_the_call_says_what_becomes_of_it(storage, missing: MissingColumns, stored, by_call: bool) -> None:
    if by_call:
        done = engine_with(storage).upsert(given(*PARTIAL), missing_columns=missing)
    else:
        done = engine_with(storage, missing_columns=missing).upsert(given(*PARTIAL))
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    assert content(storage) == {"a": (7, stored), "b": (2, 20), "c": (8, None)}


@pytest.mark.parametrize("missing", ["error", "keep", "null"])
def test_an_insert_and_an_overwrite_may_always_lack_a_column(storage, missing: MissingColumns) -> None:
    engine = engine_with(storage, missing_columns=missing)
    engine.insert(given({"id": "c", "p": "1", "ts": 1, "v": 3}))
    engine.overwrite_partitions(given({"id": "d", "p": "2", "ts": 1, "v": 4}))
    assert content(storage) == {"a": (1, 10), "b": (2, 20), "c": (3, None), "d": (4, None)}


def test_a_row_in_another_partition_with_no_stored_one_has_null(storage) -> None:
    engine_with(storage, missing_columns="keep").upsert(given({"id": "a", "p": "2", "ts": 6, "v": 7}))
    found = ArrowEngine(writer(storage)).read().to_pylist()
    assert sorted((row["p"], row["v"], row["w"]) for row in found) == [("1", 1, 10), ("1", 2, 20), ("2", 7, None)]


def test_the_newest_of_the_given_rows_updates_and_an_older_one_leaves_the_stored_row_whole(storage) -> None:
    rows = given(
        {"id": "a", "p": "1", "ts": 6, "v": 60}, {"id": "a", "p": "1", "ts": 7, "v": 70},
        {"id": "b", "p": "1", "ts": 4, "v": 40},
        {"id": "n", "p": "1", "ts": 1, "v": 11}, {"id": "n", "p": "1", "ts": 2, "v": 22},
    )  # fmt: skip
    engine_with(storage, missing_columns="keep").upsert(rows)
    assert content(storage) == {"a": (70, 10), "b": (2, 20), "n": (22, None)}


@pytest.mark.parametrize("missing", ["error", "keep", "null"])
@pytest.mark.parametrize(("name", "role"), [("id", "key"), ("p", "partition"), ("ts", "ordering")])
def test_key_partition_and_ordering_columns_are_always_needed(storage, missing: MissingColumns, name: str, role: str) -> None:
    rows = pa.Table.from_pylist(STORED, SCHEMA).drop_columns([name])
    with pytest.raises(SchemaError, match=f"the {role} column '{name}' is missing"):
        engine_with(storage, missing_columns=missing).upsert(rows)


@pytest.mark.parametrize("missing", ["error", "keep"])
def test_a_column_that_another_adds_meanwhile_is_not_lost_either(storage, missing: MissingColumns) -> None:
    """The first attempt knows nothing of the column. It is rejected, and the next one sees the new schema."""
    wider = pa.table({**{name: [value] for name, value in STORED[0].items()}, "extra": ["kept"]})
    done: list[object] = []

    class Meanwhile(type(ARROW)):  # type: ignore[misc]
        def tag(self, *args: object) -> object:
            found = super().tag(*args)
            if not done:
                done.append(engine_with(storage, merge_schema=True).upsert(wider))
            return found

    settings = replace(QUICK, write=WriteSettings(missing_columns=missing))
    mine = ArrowEngine(writer(storage, settings), Meanwhile())
    rows = given({"id": "a", "p": "1", "ts": 9, "v": 70, "w": 100})
    assert mine.upsert(rows).attempts == 2
    (row,) = (row for row in ArrowEngine(writer(storage)).read().to_pylist() if row["id"] == "a")
    assert (row["v"], row["extra"]) == (70, "kept")


def test_two_writers_of_one_column_each_lose_nothing_of_the_other(storage) -> None:
    left, right = (engine_with(storage, missing_columns="keep") for _ in range(2))
    for number in range(3):
        left.upsert(given({"id": "a", "p": "1", "ts": 9, "v": 100 + number}))
        right.upsert(given({"id": "a", "p": "1", "ts": 9, "w": 200 + number}))
        assert content(storage)["a"] == (100 + number, 200 + number)


def test_a_writer_that_cannot_know_a_new_column_goes_on_and_keeps_its_values(storage) -> None:
    running, opened_before = engine_with(storage), engine_with(storage)
    without_w = [field for field in SCHEMA if field.name != "w"]
    running.upsert(pa.Table.from_pylist(STORED[:1], SCHEMA))
    owner = engine_with(storage)
    owner.alter(Alteration(add={"channel": pa.string()}))
    owner.upsert(pa.Table.from_pylist([STORED[0] | {"ts": 6, "channel": "web"}], owner.coordinator.schema().arrow))
    new = {"id": "c", "p": "1", "ts": 7, "v": 5, "w": 50}
    for engine, v in ((running, 3), (running, 4), (opened_before, 5)):
        engine.upsert(pa.Table.from_pylist([STORED[0] | {"ts": v + 5, "v": v}, new], SCHEMA))
        found = {row["id"]: (row["v"], row["channel"]) for row in owner.read().to_pylist()}
        assert found == {"a": (v, "web"), "b": (2, None), "c": (5, None)}
    # A column that it has known all along is missed as ever, and so is the new one by those who know it.
    with pytest.raises(SchemaError, match="the rows lack 2 columns of the table: w, channel"):
        running.upsert(pa.Table.from_pylist(STORED, pa.schema(without_w)))
    for knowing in (owner, engine_with(storage)):
        with pytest.raises(SchemaError, match="the rows lack a column of the table: channel"):
            knowing.upsert(pa.Table.from_pylist(STORED, SCHEMA))


NOTED = SCHEMA.append(pa.field("place", pa.struct([("zip", pa.string())])))


def test_a_writer_that_adds_a_column_itself_knows_it_and_not_those_of_others(storage) -> None:
    """Rows without it are a mistake of its own, not of a schema that it cannot know."""
    adding = engine_with(storage, merge_schema=True)
    engine_with(storage).alter(Alteration(add={"channel": pa.string()}))
    adding.upsert(pa.Table.from_pylist([STORED[0] | {"ts": 6, "place": {"zip": "1"}}], NOTED))
    with pytest.raises(SchemaError, match="the rows lack 2 columns of the table: channel, place"):
        adding.upsert(pa.Table.from_pylist([STORED[0] | {"ts": 7, "v": 3}], SCHEMA))
    adding.upsert(pa.Table.from_pylist([STORED[0] | {"ts": 7, "v": 3, "place": {"zip": "2"}}], NOTED))
    assert content(storage)["a"] == (3, 10)


def test_a_writer_that_adds_a_field_itself_knows_it_and_not_those_of_others(storage) -> None:
    engine_with(storage).alter(Alteration(add={"place": NOTED.field("place").type}))
    adding = engine_with(storage, merge_schema=True)
    wider = NOTED.set(5, pa.field("place", pa.struct([("zip", pa.string()), ("floor", pa.int64())])))
    adding.upsert(pa.Table.from_pylist([STORED[0] | {"ts": 6, "place": {"zip": "1", "floor": 2}}], wider))
    with pytest.raises(SchemaError, match=r"the rows lack a column of the table: place\.floor"):
        adding.upsert(pa.Table.from_pylist([STORED[0] | {"ts": 7, "place": {"zip": "2"}}], NOTED))


def test_a_column_that_a_rejected_attempt_added_is_known_to_its_writer(storage) -> None:
    """Another adds the same column meanwhile, so the attempt that commits finds it there."""
    wider = SCHEMA.append(pa.field("extra", pa.string()))
    row = {**STORED[0], "ts": 8, "extra": "x"}
    done: list[object] = []

    class Meanwhile(type(ARROW)):  # type: ignore[misc]
        def tag(self, *args: object) -> object:
            found = super().tag(*args)
            if not done:
                done.append(engine_with(storage, merge_schema=True).upsert(pa.Table.from_pylist([row], wider)))
            return found

    adding = ArrowEngine(writer(storage, replace(QUICK, write=WriteSettings(merge_schema=True))), Meanwhile())
    assert adding.upsert(pa.Table.from_pylist([row | {"ts": 9}], wider)).attempts == 2
    with pytest.raises(SchemaError, match="the rows lack a column of the table: extra"):
        adding.upsert(pa.Table.from_pylist([STORED[0] | {"ts": 10}], SCHEMA))
