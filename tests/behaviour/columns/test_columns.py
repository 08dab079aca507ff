"""A table's columns grow: files stay as they are, and every read and write sees the columns as they are now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hudi import HudiTableBuilder
from tests.api import (
    Action,
    ArrowEngine,
    ConflictRule,
    LocalStorage,
    Storage,
    SystemRuntime,
    TableProperties,
    TableSchema,
    create_table,
    layout,
)
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import QUICK, writer

from lakelock.errors import ConflictError, InputError, LockTimeout, SchemaError
from lakelock.occ.change_feed import TableStream, ensure_columns_fit
from lakelock.settings import ArchiveSettings, CleanSettings, Settings
from lakelock.storage import Listed
from lakelock.table.schema import Alteration

ADDRESS = pa.struct([("street", pa.string()), ("floor", pa.int32())])
OLD = pa.schema(
    [
        ("id", pa.int32()), ("n", pa.int32()), ("ratio", pa.float32()), ("price", pa.decimal128(5, 2)), ("address", ADDRESS),
        ("stops", pa.list_(pa.field("element", ADDRESS))), ("by_day", pa.map_(pa.string(), ADDRESS)), ("region", pa.string()),
    ]
)  # fmt: skip
WIDE = Alteration(
    add={"note": pa.string(), "address.zip": pa.string(), "stops.element.zip": pa.string(), "by_day.value.zip": pa.string()},
    widen={"n": pa.int64(), "ratio": pa.float64(), "price": pa.decimal128(12, 4), "address.floor": pa.int64(),
           "stops.element.floor": pa.int64(), "by_day.value.floor": pa.int64()},
)  # fmt: skip
ARCHIVING = ArchiveSettings(min_commits=2, max_commits=2, min_age_s=0)
MERGING = Settings.resolve({"write.merge_schema": True}).settings
Row = dict[str, Any]


def old_row(key: int, n: int) -> Row:
    place = {"street": "s", "floor": n}
    return {"id": key, "n": n, "ratio": 1.5, "price": Decimal("1.25"), "address": place, "stops": [place, None],
            "by_day": [("mon", place)], "region": "eu"}  # fmt: skip


def as_now(row: Row) -> Row:
    """A row of before, as the columns of `WIDE` show it."""
    place = {**row["address"], "zip": None}
    return {
        **row,
        "price": Decimal("1.2500"),
        "address": place,
        "stops": [place, None],
        "by_day": [("mon", place)],
        "note": None,
    }


def new_row(key: int) -> Row:
    place = {"street": "t", "floor": 2**40, "zip": "z"}
    return {"id": key, "n": 2**40, "ratio": 0.1, "price": Decimal("12345678.1234"), "address": place, "stops": [place],
            "by_day": [("tue", place)], "region": "eu", "note": "new"}  # fmt: skip


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    made = LocalStorage(tmp_path / "t")
    text = TableSchema.from_arrow(OLD).to_avro_json("t", null_first=False)
    create_table(made, TableProperties.new("t", ("id",), ("region",), create_schema=text), SystemRuntime())
    engine(made).insert(pa.Table.from_pylist([old_row(1, 1), old_row(2, 2)], OLD))
    return made


def engine(storage: Storage, settings: Settings = QUICK) -> ArrowEngine:
    return ArrowEngine(writer(storage, settings))


def stored(storage: Storage) -> dict[int, Row]:
    return {row["id"]: row for row in engine(storage).read().to_pylist()}


def files(storage: LocalStorage) -> list[pa.Schema]:
    return [pq.read_schema(Path(storage.root) / file.key) for file in writer(storage).snapshot().files]


def replace_columns(storage: Storage, peer: Peer) -> str:
    """Another engine replaces all rows by none, and the columns by others; the instant."""
    gone = {"region=eu": tuple(file.file_id for file in writer(storage).snapshot().files)}
    replacing = peer.begin(Action.REPLACE_COMMIT)
    other = TableSchema(pa.schema([("id", pa.int32()), ("n", pa.string()), ("region", pa.string())]))
    said = {"schema": other.to_avro_json("t")}
    peer.complete(replacing, [], action=Action.REPLACE_COMMIT, operation="INSERT_OVERWRITE_TABLE", replaced=gone, extra=said)
    return replacing


def test_no_file_is_written_and_every_reader_sees_the_new_columns(storage: LocalStorage) -> None:
    before = writer(storage).snapshot().files
    done = engine(storage).alter(WIDE)
    assert (done.operation, done.files, done.rows_written) == ("ALTER_SCHEMA", 0, 0)
    assert writer(storage).snapshot().files == before
    assert stored(storage) == {1: as_now(old_row(1, 1)), 2: as_now(old_row(2, 2))}
    assert engine(storage).read(where=pc.field("n") > 1).column("id").to_pylist() == [2]
    batches = HudiTableBuilder.from_base_uri(storage.uri).build().read()
    theirs = pa.Table.from_batches([pa.record_batch(batch) for batch in batches])
    assert theirs.select(["id", "n", "note"]).sort_by("id").to_pylist() == [
        {"id": 1, "n": 1, "note": None},
        {"id": 2, "n": 2, "note": None},
    ]


@pytest.mark.parametrize("write", ["upsert", "delete", "insert", "optimize"])
def test_writes_join_old_rows_and_new_ones(storage: LocalStorage, write: str) -> None:
    now = engine(storage)
    now.alter(WIDE)
    schema = writer(storage).schema().arrow
    rows = pa.Table.from_pylist([new_row(2), new_row(3)], schema)
    expected = {1: as_now(old_row(1, 1)), 2: new_row(2), 3: new_row(3)}
    if write == "delete":
        now.delete(pc.field("n") == 2)
        expected = {1: as_now(old_row(1, 1))}
    elif write == "upsert":
        now.upsert(rows)
    else:
        now.delete(pa.Table.from_pylist([{"id": 2, "region": "eu"}], pa.schema([schema.field("id"), schema.field("region")])))
        now.insert(rows)
        if write == "optimize":
            now.optimize()
            assert len(files(storage)) == 1
    assert stored(storage) == expected
    assert any(each.field("n").type == pa.int64() for each in files(storage))


def test_rows_of_before_may_still_be_written(storage: LocalStorage) -> None:
    now = engine(storage)
    now.alter(WIDE)
    now.insert(pa.Table.from_pylist([old_row(5, 5)], OLD))
    now.upsert(pa.Table.from_pylist([old_row(1, 10)], OLD), missing_columns="null")
    assert stored(storage) == {1: as_now(old_row(1, 10)), 2: as_now(old_row(2, 2)), 5: as_now(old_row(5, 5))}


def test_merge_schema_adds_and_widens_on_its_own(storage: LocalStorage) -> None:
    schema = WIDE.applied(TableSchema.from_arrow(OLD), writer(storage).properties).arrow
    rows = pa.Table.from_pylist([new_row(2)], schema)
    with pytest.raises(SchemaError, match="n: int64 does not fit int32") as refused:
        engine(storage).upsert(rows)
    assert "write.merge_schema=true" in refused.value.hint
    engine(storage, MERGING).upsert(rows)
    assert writer(storage).schema().arrow.equals(schema)
    assert stored(storage) == {1: as_now(old_row(1, 1)), 2: new_row(2)}


def test_names_mean_columns_in_any_case(storage: LocalStorage) -> None:
    place = pa.struct([("STREET", pa.string()), ("Floor", pa.int32())])
    shouted = pa.schema([("ID", pa.int32()), ("N", pa.int32()), ("Address", place), ("REGION", pa.string())])
    rows = pa.Table.from_pylist([{"ID": 2, "N": 20, "Address": {"STREET": "u", "Floor": 7}, "REGION": "eu"}], shouted)
    engine(storage).upsert(rows, missing_columns="keep")
    assert stored(storage)[2] == {**old_row(2, 2), "n": 20, "address": {"street": "u", "floor": 7}}
    engine(storage, MERGING).insert(rows.rename_columns(["ID", "N", "ADDRESS", "Region"]).slice(0, 0))
    assert writer(storage).schema().arrow.equals(OLD)
    engine(storage).alter(Alteration(add={"address.zip": pa.string()}))
    with pytest.raises(SchemaError, match="ADDRESS.ZIP is there already"):
        engine(storage).alter(Alteration(add={"ADDRESS.ZIP": pa.string()}))


def test_what_must_not_be_null_may_become_null(storage: LocalStorage) -> None:
    strict = pa.schema([*list(OLD), pa.field("must", pa.int64(), nullable=False)])
    Peer(storage).insert(pa.Table.from_pylist([{**old_row(9, 9), "must": 1}], strict), "region=eu")
    with pytest.raises(SchemaError, match="must"):
        engine(storage).insert(pa.Table.from_pylist([old_row(10, 1)], OLD))
    engine(storage).alter(Alteration(relax=["MUST"]))
    engine(storage).upsert(pa.Table.from_pylist([old_row(9, 90), old_row(10, 1)], OLD), missing_columns="keep")
    assert {key: row["must"] for key, row in stored(storage).items() if key > 2} == {9: 1, 10: None}


@pytest.mark.parametrize(
    ("alteration", "says"),
    [
        (Alteration(), "no column was named"),
        (Alteration(add={"n": pa.int32()}), "n is there already"),
        (Alteration(add={"no.where": pa.int32()}), "there is no 'no'"),
        (Alteration(add={"a b": pa.int32()}), "cannot be a column name"),
        (Alteration(add={"stops.zip": pa.int32()}), "stops is list"),
        (Alteration(widen={"n": pa.int32()}), "n is int32 already"),
        (Alteration(widen={"n": pa.string()}), "n: int32 cannot become string"),
        (Alteration(widen={"price": pa.decimal128(6, 4)}), "cannot become decimal"),
        (Alteration(widen={"nothing": pa.int64()}), "the table has no 'nothing'"),
        (Alteration(widen={"id": pa.float64()}), "id is a record key column"),
        (Alteration(relax=["id"]), "never null"),
        (Alteration(relax=["n"]), "n may be null already"),
    ],
)
def test_what_files_could_not_follow_is_refused_before_any_work(
    storage: LocalStorage, alteration: Alteration, says: str
) -> None:
    before = writer(storage).table.timeline().instants
    with pytest.raises(SchemaError, match=says):
        engine(storage).alter(alteration)
    assert writer(storage).table.timeline().instants == before


def test_a_key_may_become_long_and_is_still_found(storage: LocalStorage) -> None:
    with pytest.raises(SchemaError, match="id is a record key column"):
        engine(storage, MERGING).insert(pa.table({"id": pa.array([1.5]), "region": ["eu"]}))
    engine(storage).alter(Alteration(widen={"id": pa.int64()}))
    engine(storage).upsert(pa.Table.from_pylist([old_row(2, 20)], OLD))
    assert {key: row["n"] for key, row in stored(storage).items()} == {1: 1, 2: 20}


@pytest.mark.parametrize("widened_by", ["alter", "rows"])
def test_writers_that_began_before_a_column_was_widened_go_on(storage: LocalStorage, widened_by: str) -> None:
    mine = writer(storage)
    with mine.begin("INSERT") as tx:
        if widened_by == "alter":
            engine(storage).alter(WIDE)
        else:
            schema = WIDE.applied(TableSchema.from_arrow(OLD), mine.properties).arrow
            engine(storage, MERGING).insert(pa.Table.from_pylist([new_row(7)], schema))
        ArrowEngine(mine).insert_in(tx, pa.Table.from_pylist([old_row(5, 5)], OLD))
    assert stored(storage)[5] == as_now(old_row(5, 5))
    assert "note" in writer(storage).schema().names


def test_two_who_widen_one_column_both_get_it_or_the_second_begins_again(storage: LocalStorage) -> None:
    mine = writer(storage)
    cents = TableSchema(OLD.set(3, pa.field("price", pa.decimal128(8, 5))))
    with mine.begin("ALTER_SCHEMA") as tx:
        early = tx.instant
        engine(storage).alter(Alteration(widen={"price": pa.decimal128(12, 2)}))
        with pytest.raises(ConflictError) as caught:
            tx.commit([], schema=cents)
    assert early < writer(storage).history(1)[0].instant
    conflict = caught.value.conflict
    assert (conflict.rule, conflict.overlap, conflict.retry_helps) == (ConflictRule.METADATA, ("price",), True)
    engine(storage).alter(Alteration(widen={"price": pa.decimal128(15, 5)}))
    assert writer(storage).schema().field("price").type == pa.decimal128(15, 5)


def test_a_type_that_another_changed_otherwise_rejects_mine(storage: LocalStorage) -> None:
    mine = writer(storage)
    with mine.begin("ALTER_SCHEMA") as tx:
        engine(storage).alter(Alteration(widen={"n": pa.int64()}))
        with pytest.raises(ConflictError) as caught:
            tx.commit([], schema=TableSchema(OLD.set(1, pa.field("n", pa.float64()))))
    assert caught.value.conflict.overlap == ("n: int64 there, double here",)


def test_the_past_is_shown_in_its_own_columns_once_others_have_replaced_them(storage: LocalStorage) -> None:
    first, peer = writer(storage).history(1)[0].instant, Peer(storage)
    engine(storage).alter(WIDE)
    assert engine(storage).read(first).to_pylist()[0] == as_now(old_row(1, 1))
    replace_columns(storage, peer)
    assert engine(storage).read().column_names == ["id", "n", "region"]
    assert [row["n"] for row in engine(storage).read(first).to_pylist()] == [1, 2]
    with pytest.raises(InputError, match="its columns have been replaced since"):
        engine(storage).restore(first)


def test_a_moment_whose_commits_are_archived_is_shown_in_its_own_columns_too(storage: LocalStorage) -> None:
    first = writer(storage).history(1)[0].instant
    for key in (3, 4, 5):
        engine(storage).insert(pa.Table.from_pylist([old_row(key, key)], OLD))
    replace_columns(storage, Peer(storage))
    upkeep = engine(storage, replace(QUICK, archive=ARCHIVING, clean=CleanSettings(readers_s=0)))
    assert upkeep.coordinator.archive().last > first
    for reader in (upkeep, engine(storage)):
        assert reader.read().column_names == ["id", "n", "region"]
        assert sorted(reader.read(first).to_pylist(), key=lambda row: row["id"]) == [old_row(1, 1), old_row(2, 2)]


def test_with_data_locks_a_change_of_columns_waits_for_those_who_hold_the_table(storage: LocalStorage) -> None:
    locking = Settings.resolve({"concurrency.mode": "PESSIMISTIC", "data_locks.attempts": 1}).settings
    mine, other = engine(storage, locking), engine(storage, locking)
    with mine.reading(), pytest.raises(LockTimeout):
        other.alter(WIDE)
    other.alter(WIDE)
    assert "note" in writer(storage).schema().names


def test_files_and_columns_of_a_read_are_of_one_moment(storage: LocalStorage) -> None:
    """Another replaces the columns while the files are being looked for: the old ones are not read in the new columns."""
    peer, replaced = Peer(storage), list[str]()

    class Replacing(LocalStorage):
        def list(self, prefix: str, *, start_after: str = "") -> Iterator[Listed]:
            found = [*super().list(prefix, start_after=start_after)]
            if found and not replaced and found[0].key.startswith(layout.TIMELINE):
                replaced.append(replace_columns(storage, peer))
            return iter(found)

    seen = writer(Replacing(storage.root)).shown()
    assert replaced and seen.schema.arrow.equals(OLD)
    assert seen.snapshot.files != writer(storage).snapshot().files


def test_the_change_feed_tells_old_rows_in_the_columns_of_now(storage: LocalStorage) -> None:
    now = engine(storage)
    first = writer(storage).history(1)[0]
    now.alter(WIDE)
    now.upsert(pa.Table.from_pylist([new_row(2)], writer(storage).schema().arrow))
    told = [{name: row[name] for name in ("_change_type", "n", "note")} for row in now.changes(first.completion).to_pylist()]
    assert told == [{"_change_type": "update_preimage", "n": 2, "note": None},
                    {"_change_type": "update_postimage", "n": 2**40, "note": "new"}]  # fmt: skip
    replaced = replace_columns(storage, Peer(storage))
    for since in (0, first.completion):
        with pytest.raises(InputError, match=f"do not fit the rows of {replaced}") as refused:
            now.changes(since)
    assert now.changes(str(refused.value.details["since"])).num_rows == 0


def test_a_stream_tells_no_more_of_its_first_state_once_other_columns_have_replaced_those_of_then(
    storage: LocalStorage,
) -> None:
    engine(storage).insert(pa.Table.from_pylist([old_row(3, 3)], OLD))
    engine(storage).insert(pa.Table.from_pylist([old_row(4, 4)], OLD))
    reader = writer(storage)
    stream = TableStream(
        reader.table, ensure_fits=lambda *found: ensure_columns_fit(reader.table, reader.properties, reader.schema(), *found)
    )
    at = stream.first(None)
    for change in (lambda: None, lambda: engine(storage).alter(WIDE)):
        change()
        start, at = at, stream.next(at, most_files=1)
        assert len(stream.appended(start, at)) == 1
    replaced, end = replace_columns(storage, Peer(storage)), stream.next(at, most_files=1)
    for read in (stream.appended, stream.units):
        with pytest.raises(InputError, match=f"do not fit the rows of {replaced}"):
            read(at, end)
