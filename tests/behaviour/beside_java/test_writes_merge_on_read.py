"""Writes of merge-on-read tables, beside a writer that appends log files as Java does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import Action, ArrowEngine, FileGroupId, MemoryStorage, Storage, TableSchema, layout
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import QUICK, SCHEMA, leftovers, new_table, writer

import lakelock
from lakelock.errors import ConflictError, InputError, TableError
from lakelock.markers.leftovers import is_data_file_of
from lakelock.settings import ArchiveSettings, CleanSettings, Settings, WriteSettings
from lakelock.table.index import parsed_index
from lakelock.table.log_files import LogFile
from lakelock.table.properties import MERGE_ON_READ, read_properties
from lakelock.table.rewriting import ARROW

MONTH = "month=1"
COLUMNS = TableSchema(SCHEMA)


def rows(*values: tuple[str, int]) -> pa.Table:
    return pa.table([[key for key, _ in values], [v for _, v in values], ["1"] * len(values)], schema=SCHEMA)


def content(table: pa.Table) -> dict[str, int]:
    found = list(zip(table.column("id").to_pylist(), table.column("v").to_pylist(), strict=True))
    assert len(dict(found)) == len(found), found
    return dict(found)


def group_of(engine: ArrowEngine, partition: str = MONTH) -> FileGroupId:
    (file,) = engine.coordinator.snapshot().in_partition(partition)
    return file.group


def logs_in(storage: Storage) -> list[str]:
    return [item.key for item in storage.list("") if LogFile.parse(item.key) is not None]


def test_writes_are_deltacommits_of_base_files(engine: ArrowEngine, storage: Storage) -> None:
    engine.insert(rows(("a", 1), ("b", 2)))
    engine.upsert(rows(("a", 10), ("c", 3)))
    engine.update({"v": pc.add(pc.field("v"), 1)}, pc.field("id") == "c")
    engine.delete(pc.field("id") == "b")
    assert content(engine.read()) == {"a": 10, "c": 4}
    actions = [instant.action for instant in engine.coordinator.table.timeline().commits]
    assert actions == [Action.DELTA_COMMIT] * 4
    assert engine.overwrite_partitions(rows(("z", 1))).rows_inserted == 1
    assert engine.coordinator.table.timeline().commits[-1].action == Action.REPLACE_COMMIT
    assert content(engine.read()) == {"z": 1}
    assert leftovers(storage) == []


def test_a_write_changes_what_log_files_say_and_not_what_they_have_replaced(engine: ArrowEngine, storage: Storage) -> None:
    engine.insert(rows(*((key, 0) for key in "abcdef")))
    peer, group = Peer(storage), group_of(engine)
    peer.append(group, rows(("a", 1), ("b", 1)), ["c"])
    peer.append(group, rows(("b", 2), ("n", 2)), ["d"], columns=COLUMNS)
    assert content(engine.read()) == {"a": 1, "b": 2, "e": 0, "f": 0, "n": 2}

    done = engine.upsert(rows(("a", 10), ("c", 10), ("n", 10)))
    assert (done.rows_updated, done.rows_inserted) == (2, 1)
    assert content(engine.read()) == {"a": 10, "b": 2, "c": 10, "e": 0, "f": 0, "n": 10}
    assert content(engine.read(query_type="read_optimized")) == content(engine.read())
    assert leftovers(storage) == []


@pytest.mark.parametrize(
    ("write", "left"),
    [
        (lambda e: e.delete(pc.field("v") == 2), {"a": 0, "c": 0}),
        (lambda e: e.delete(rows(("b", 0), ("x", 0))), {"a": 0, "c": 0}),
        (lambda e: e.update({"v": pc.add(pc.field("v"), 1)}, pc.field("v") == 2), {"a": 0, "b": 3, "c": 0}),
        (lambda e: e.insert(rows(("d", 5))), {"a": 0, "b": 2, "c": 0, "d": 5}),
    ],
)
def test_conditions_and_keys_see_rows_of_log_files(engine: ArrowEngine, storage: Storage, write, left) -> None:
    engine.insert(rows(("a", 0), ("b", 0), ("c", 0)))
    Peer(storage).append(group_of(engine), rows(("b", 2)))
    write(engine)
    assert content(engine.read()) == left


def test_a_group_that_no_row_of_is_touched_keeps_its_log_files(engine: ArrowEngine, storage: Storage) -> None:
    engine.insert(rows(("a", 0)))
    Peer(storage).append(group_of(engine), rows(("a", 1)))
    engine.upsert(rows(("n", 0)))
    (slice_,) = engine.coordinator.shown().logged
    assert len(slice_.logs) == 1
    assert content(engine.read()) == {"a": 1, "n": 0}


def test_rows_that_stay_keep_the_commit_that_wrote_them(engine: ArrowEngine, storage: Storage) -> None:
    first = engine.insert(rows(("a", 0), ("b", 0)))
    appended = Peer(storage).append(group_of(engine), rows(("b", 1)))
    mine = engine.upsert(rows(("a", 2)))
    (file,) = engine.coordinator.snapshot().files
    (batch,) = ARROW.stored([file], COLUMNS, storage)
    times = dict(zip(batch.column("id").to_pylist(), batch.column("_hoodie_commit_time").to_pylist(), strict=True))
    assert times == {"a": mine.instant, "b": appended} and first.instant not in times.values()


def test_an_instant_is_later_than_every_completion_that_it_has_seen(engine: ArrowEngine, storage: Storage) -> None:
    """Else readers would lay the log file over the base file that has its rows."""
    engine.insert(rows(("a", 0)))
    appended = Peer(storage).append(group_of(engine), rows(("a", 1)))
    (name,) = [item.key for item in storage.list(layout.TIMELINE) if f"{appended}_" in item.key]
    stored = storage.get(name)
    assert stored is not None
    # Its completion is that of a clock far ahead.
    storage.put_if_absent(layout.timeline(f"{appended}_20990101000000000.deltacommit"), stored.data)
    storage.delete([name])
    done = engine.upsert(rows(("a", 2)))
    assert done.instant > "20990101000000000"
    assert content(engine.read()) == {"a": 2}


def test_a_log_file_that_appears_meanwhile_is_a_conflict_over_its_rows(engine: ArrowEngine, storage: Storage) -> None:
    engine.insert(rows(("a", 0), ("b", 0)))
    group = group_of(engine)
    tx = engine.coordinator.begin("UPSERT")
    Peer(storage).append(group, rows(("b", 1)))
    with pytest.raises(ConflictError) as caught:
        engine.upsert_in(tx, rows(("a", 2), ("b", 2)))
    assert "keys of the upsert" in str(caught.value)
    assert content(engine.read()) == {"a": 0, "b": 1}
    engine.upsert(rows(("a", 2)))
    assert content(engine.read()) == {"a": 2, "b": 1}


def test_a_key_that_a_log_file_brings_meanwhile_is_a_conflict(engine: ArrowEngine, storage: Storage) -> None:
    engine.insert(rows(("a", 0)))
    group = group_of(engine)
    tx = engine.coordinator.begin("UPSERT")
    peer = Peer(storage)
    peer.append(group, rows(("other", 1)))
    engine.upsert_in(tx, rows(("n", 2)))  # it looks into the log file, and finds another key
    tx = engine.coordinator.begin("UPSERT")
    peer.append(group, rows(("m", 1)))
    with pytest.raises(ConflictError, match="keys of the upsert"):
        engine.upsert_in(tx, rows(("m", 2)))


def test_a_group_whose_compaction_is_planned_is_appended_to_however_many_rows_change(
    engine: ArrowEngine, storage: Storage
) -> None:
    engine.insert(rows(("a", 0), ("b", 0), ("c", 0)))
    peer, group = Peer(storage), group_of(engine)
    peer.append(group, rows(("a", 1)))
    plan = peer.plan_compaction(group)
    engine.upsert(rows(("a", 2), ("b", 2), ("c", 2), ("n", 2)))
    engine.update({"v": pc.add(pc.field("v"), 1)})
    engine.update({"v": pc.add(pc.field("v"), 1)}, pc.field("v") > 0)
    engine.delete(pc.field("id") == "b")
    expected = {"a": 4, "c": 4, "n": 4}
    assert content(engine.read()) == expected
    assert len(engine.coordinator.shown().logged[0].logs) == 5
    peer.complete(plan, [peer.write(plan, *group)], operation="COMPACT")
    assert len(engine.coordinator.shown().logged[0].logs) == 4
    peer.plan_compaction(group)
    with pytest.raises(ConflictError, match="planned compaction") as caught:
        engine.overwrite_partitions(rows(("z", 0)))
    assert not caught.value.conflict.retry_helps


def test_a_group_in_a_plan_to_compact_only_its_log_files_is_not_written(engine: ArrowEngine, storage: Storage) -> None:
    engine.insert(rows(("a", 0)))
    peer, group = Peer(storage), group_of(engine)
    peer.append(group, rows(("a", 1)))
    peer.plan_compaction(group, action=Action.LOG_COMPACTION)
    with pytest.raises(ConflictError, match="planned logcompaction") as caught:
        engine.upsert(rows(("a", 2)))
    assert not caught.value.conflict.retry_helps
    engine.insert(rows(("n", 0)))
    assert content(engine.read()) == {"a": 1, "n": 0}


def test_a_write_whose_group_is_planned_to_be_compacted_meanwhile_is_run_again_and_appends(
    engine: ArrowEngine, storage: Storage
) -> None:
    engine.insert(rows(("a", 0)))
    tx = engine.coordinator.begin("UPSERT")
    Peer(storage).plan_compaction(group_of(engine))
    with pytest.raises(ConflictError, match="planned compaction") as caught:
        engine.upsert_in(tx, rows(("a", 2)))
    assert caught.value.conflict.retry_helps
    engine.upsert(rows(("a", 2)))
    assert content(engine.read()) == {"a": 2} and logs_of(engine) == 1


def test_a_compaction_that_was_executed_meanwhile_is_a_conflict_over_its_file_group(
    engine: ArrowEngine, storage: Storage
) -> None:
    engine.insert(rows(("a", 0)))
    peer, group = Peer(storage), group_of(engine)
    peer.append(group, rows(("a", 1)))
    tx = engine.coordinator.begin("UPSERT")
    plan = peer.plan_compaction(group)
    peer.complete(plan, [peer.write(plan, *group)], operation="COMPACT")
    with pytest.raises(ConflictError) as caught:
        engine.upsert_in(tx, rows(("a", 2)))
    assert caught.value.conflict.retry_helps


def test_buckets_take_rows_that_are_in_log_files_only(storage: Storage) -> None:
    storage = MemoryStorage()
    new_table(storage, table_type=MERGE_ON_READ, index=parsed_index("bucket:1"))
    engine = ArrowEngine(writer(storage))
    engine.insert(rows(("a", 0)))
    Peer(storage).append(group_of(engine), rows(("a", 1), ("n", 1)))
    engine.upsert(rows(("n", 2), ("m", 2)))
    engine.insert(rows(("i", 3)))
    assert content(engine.read()) == {"a": 1, "n": 2, "m": 2, "i": 3}


def test_optimize_joins_what_log_files_say(engine: ArrowEngine, storage: Storage) -> None:
    engine.insert(rows(("a", 0)))
    Peer(storage).append(group_of(engine), rows(("a", 1)))
    engine.insert(rows(("b", 0)))
    engine.optimize()
    assert content(engine.read()) == {"a": 1, "b": 0}
    assert engine.coordinator.shown().logged == ()


def many(count: int, value: int = 0) -> pa.Table:
    return rows(*((f"k{number:04}", value) for number in range(count)))


def logs_of(engine: ArrowEngine) -> int:
    return sum(len(slice_.logs) for slice_ in engine.coordinator.shown().logged)


@pytest.mark.parametrize(
    ("write", "changed"),
    [
        (lambda e: e.upsert(many(3, 7)), {"k0000": 7, "k0001": 7, "k0002": 7}),
        (lambda e: e.update({"v": pc.add(pc.field("v"), 7)}, pc.field("id") < "k0002"), {"k0000": 7, "k0001": 7}),
        (lambda e: e.delete(pc.field("id") == "k0001"), {"k0001": None}),
        (lambda e: e.delete(many(2)), {"k0000": None, "k0001": None}),
    ],
)
def test_a_small_change_is_appended_to_its_file_group(engine: ArrowEngine, storage: Storage, write, changed) -> None:
    engine.insert(many(100))
    done = write(engine)
    assert (done.rows_updated + done.rows_deleted, logs_of(engine)) == (len(changed), 1)
    expected = {f"k{number:04}": changed.get(f"k{number:04}", 0) for number in range(100)}
    assert content(engine.read()) == {key: value for key, value in expected.items() if value is not None}
    assert leftovers(storage) == []


@pytest.mark.parametrize(
    ("settings", "write"),
    [
        ({}, lambda e: e.upsert(many(31, 7))),
        ({"append_below": 0.0}, lambda e: e.upsert(many(1, 7))),
        ({}, lambda e: e.update({"v": pc.add(pc.field("v"), 1)})),
    ],
)
def test_a_great_change_makes_a_new_base_file(storage: Storage, settings, write) -> None:
    engine = ArrowEngine(writer(storage, replace(QUICK, write=WriteSettings(**settings))))
    engine.insert(many(100))
    write(engine)
    assert logs_of(engine) == 0 and len(logs_in(storage)) == 0


def test_a_group_whose_key_stands_twice_is_rewritten(engine: ArrowEngine, storage: Storage) -> None:
    """Readers would apply a log file to one of the rows."""
    engine.insert(pa.concat_tables([many(100), many(1)]))
    engine.delete(many(1))
    assert logs_of(engine) == 0 and len(content(engine.read())) == 99


def test_a_key_that_a_log_file_has_deleted_once_of_twice_is_rewritten(engine: ArrowEngine, storage: Storage) -> None:
    """The next log file would bring the deleted row back."""
    engine.insert(pa.concat_tables([many(100), many(1, 5)]))
    Peer(storage).append(group_of(engine), rows(), ["k0000"])
    assert content(engine.read())["k0000"] == 5
    engine.upsert(many(1, 7))
    assert logs_of(engine) == 0 and content(engine.read())["k0000"] == 7


def test_many_log_files_are_taken_up_by_a_new_base_file(engine: ArrowEngine) -> None:
    engine.insert(many(1000))
    counts = []
    for number in range(12):
        engine.upsert(rows((f"k{number:04}", 1)))
        counts.append(logs_of(engine))
    assert counts == [*range(1, 11), 0, 1]
    assert sum(content(engine.read()).values()) == 12


def test_rows_of_a_file_group_may_be_changed_again_in_one_transaction(engine: ArrowEngine, storage: Storage) -> None:
    engine.insert(many(100))

    def twice(tx):
        engine.upsert_in(tx, rows(("k0001", 1)), end=lambda stats, schema=None: tx.wrote(stats))
        assert content(engine.read_files(tx.current().files, COLUMNS))["k0001"] == 1
        return engine.upsert_in(tx, rows(("k0002", 2)))

    engine.run(twice)
    found = content(engine.read())
    assert (found["k0001"], found["k0002"], len(found)) == (1, 2, 100)
    assert leftovers(storage) == [] and len(logs_in(storage)) == logs_of(engine)


def test_a_hundred_rows_of_twenty_groups_write_kilobytes(tmp_path) -> None:
    storage = MemoryStorage()
    new_table(storage, table_type=MERGE_ON_READ)
    engine = ArrowEngine(writer(storage))
    months = [f"{number:02}" for number in range(20)]
    ids = [f"k{number}" for number in range(1000)]
    engine.insert(pa.table([ids * 20, [0] * 20_000, [month for month in months for _ in ids]], schema=SCHEMA))
    done = engine.upsert(pa.table([ids[:5] * 20, [1] * 100, [month for month in months for _ in range(5)]], schema=SCHEMA))
    (entry,) = engine.coordinator.history(1)
    assert done.rows_updated == 100 and entry.files == 20 and entry.size_bytes < 250_000


SWEEP = Settings(
    lock=QUICK.lock, heartbeat=QUICK.heartbeat, retry=QUICK.retry,
    clean=CleanSettings(policy="KEEP_LATEST_COMMITS", keep_commits=1, readers_s=0),
    archive=ArchiveSettings(min_commits=3, max_commits=4, min_age_s=0),
)  # fmt: skip


def test_a_clean_removes_log_files_with_the_base_file_below_them(storage: Storage) -> None:
    engine = ArrowEngine(writer(storage, SWEEP))
    engine.insert(rows(("a", 0), ("b", 0)))
    peer, group = Peer(storage), group_of(engine)
    peer.append(group, rows(("a", 1)))
    engine.upsert(rows(("a", 2)))
    live = LogFile(*group, peer.append(group, rows(("b", 3))), 1, "0-0-0").key
    assert len(logs_in(storage)) == 2
    engine.coordinator.clean()
    assert logs_in(storage) == [live]
    assert content(engine.read()) == {"a": 2, "b": 3}


def test_a_clean_removes_log_files_of_replaced_groups(storage: Storage) -> None:
    engine = ArrowEngine(writer(storage, SWEEP))
    engine.insert(rows(("a", 0)))
    Peer(storage).append(group_of(engine), rows(("a", 1)))
    engine.overwrite_partitions(rows(("z", 0)))
    engine.insert(rows(("y", 0)))
    engine.coordinator.clean()
    assert logs_in(storage) == []
    assert content(engine.read()) == {"z": 0, "y": 0}


def test_log_files_of_a_replaced_group_stay_as_long_as_the_table_can_be_read_as_of_them(storage: Storage) -> None:
    engine = ArrowEngine(writer(storage, replace(SWEEP, clean=replace(SWEEP.clean, keep_commits=3))))
    engine.insert(rows(("a", 0), ("b", 0)))
    Peer(storage).append(group_of(engine), rows(("a", 1)))
    for number in range(4):
        last = engine.insert(rows((f"c{number}", 0)))
    kept = content(engine.read())
    engine.overwrite_partitions(rows(("z", 0)))
    assert engine.coordinator.archive().instants == 3
    engine.coordinator.clean()
    assert content(engine.read(last.instant)) == kept
    for number in range(3):
        engine.insert(rows((f"y{number}", 0)))
    engine.coordinator.clean()
    assert logs_in(storage) == []
    with pytest.raises(InputError, match="files of that time were cleaned"):
        engine.read(last.instant)


def test_what_was_cleaned_and_archived_is_read_by_every_way(storage: Storage) -> None:
    engine, peer = ArrowEngine(writer(storage, SWEEP)), Peer(storage)
    engine.insert(rows(("a", 0), ("b", 0)))
    group, expected = group_of(engine), {"a": 0, "b": 0}
    for number in range(8):
        peer.append(group, rows(("b", number)))
        if number % 3 == 2:
            engine.upsert(rows(("a", number)))
            expected["a"] = number
        expected["b"] = number
        engine.coordinator.clean()
        engine.coordinator.archive()
        assert content(engine.read()) == expected
    assert len(engine.coordinator.table.timeline().commits) < 6
    assert content(ArrowEngine(writer(storage)).read()) == expected
    ArrowEngine(writer(storage)).upsert(rows(("a", 100)))
    assert content(engine.read()) == {**expected, "a": 100}


def test_a_log_file_is_a_data_file_of_the_instant_in_its_name() -> None:
    log = LogFile(MONTH, "f-0", "20260101000000000", 1, "0-0-0")
    assert is_data_file_of(log.key, log.instant)
    assert not is_data_file_of(log.key, "20260101000000001")


BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2", "hoodie.bucket.index.hash.field": "id"}
REFUSED = [
    ({"hoodie.record.merge.mode": "EVENT_TIME_ORDERING", "hoodie.table.ordering.fields": "v"}, "event time"),
    ({"hoodie.record.merge.mode": "EVENT_TIME_ORDERING", "hoodie.table.ordering.fields": "v,month"}, "by several columns"),
    ({"hoodie.table.cdc.enabled": "true"}, "change logs"),
    ({"hoodie.populate.meta.fields": "false"}, "record keys"),
    ({"hoodie.table.storage.layout": "lsm_tree"}, "storage.layout"),
    ({"hoodie.record.merge.mode": "CUSTOM"}, "in its own way"),
    ({"hoodie.record.merge.property.hoodie.payload.delete.field": "op"}, "in a way of its own"),
    ({**BUCKETS, "hoodie.index.bucket.engine": "CONSISTENT_HASHING"}, "CONSISTENT_HASHING"),
    ({"hoodie.index.type": "GLOBAL_SIMPLE"}, "from one partition to another"),
]


@pytest.mark.parametrize(("changes", "word"), REFUSED)
def test_what_is_not_written_is_refused_by_name(storage: Storage, changes: dict[str, str], word: str) -> None:
    now = read_properties(storage).changed(changes)
    storage.put(layout.PROPERTIES, now.serialize(0))
    with pytest.raises(TableError, match=word):
        ArrowEngine(writer(storage)).insert(rows(("a", 1)))
    assert leftovers(storage) == []


def test_what_needs_slices_is_refused_where_rows_are_ordered_by_event_time(storage: Storage) -> None:
    ordered = {"hoodie.record.merge.mode": "EVENT_TIME_ORDERING", "hoodie.table.ordering.fields": "v"}
    storage.put(layout.PROPERTIES, read_properties(storage).changed(ordered).serialize(0))
    engine = ArrowEngine(writer(storage))
    for call in (lambda: engine.restore("20200101000000000"), engine.repair, engine.changes):
        with pytest.raises(TableError, match="event time"):
            call()


def test_a_table_with_an_ordering_column_is_not_made(tmp_path) -> None:
    for wrong in ({"order_by": "v"}, {"index": "global"}, {"table_type": "LSM"}):
        with pytest.raises(InputError, match="merge-on-read|table_type"):
            lakelock.create(tmp_path / "t", schema=SCHEMA, key="id", **{"table_type": MERGE_ON_READ, **wrong})
    with lakelock.create(tmp_path / "t", schema=SCHEMA, key="id", table_type="mor") as table:
        table.insert(rows(("a", 1)))
    with pytest.raises(TableError, match="table_type"):
        lakelock.create(tmp_path / "t", schema=SCHEMA, key="id", if_not_exists=True)


@pytest.mark.parametrize("seed", range(12))
def test_histories_of_writes_and_log_files_are_as_if_one_by_one(seed: int) -> None:
    chance, storage = random.Random(seed), MemoryStorage()
    new_table(storage, table_type=MERGE_ON_READ)
    engine, peer, model = ArrowEngine(writer(storage, SWEEP)), Peer(storage), {}
    for step in range(30):
        keys: Sequence[str] = chance.sample("abcdefgh", chance.randint(1, 3))
        kind = chance.choice(["upsert", "delete", "condition", "update", "append", "append", "append", "clean", "optimize"])
        if kind == "upsert":
            engine.upsert(rows(*((key, step) for key in keys)))
            model.update(dict.fromkeys(keys, step))
        elif kind == "delete":
            engine.delete(rows(*((key, 0) for key in keys)))
            model = {key: v for key, v in model.items() if key not in keys}
        elif kind == "condition":
            engine.delete(pc.field("v") == step - 3)
            model = {key: v for key, v in model.items() if v != step - 3}
        elif kind == "update":
            engine.update({"v": pc.add(pc.field("v"), 100)}, pc.field("v") < step - 5)
            model = {key: v + 100 if v < step - 5 else v for key, v in model.items()}
        elif kind == "append":
            files = engine.coordinator.begin("UPSERT")
            snapshot = files.snapshot()
            there = {
                key: file.group
                for file in snapshot.files
                for key in ARROW.read([file], COLUMNS, None, storage).column("id").to_pylist()
            }
            files.abort("only looked")
            mine = [key for key in keys if key in there and there[key] == there.get(keys[0])]
            if mine:
                gone, kept = mine[: len(mine) // 2], mine[len(mine) // 2 :]
                peer.append(there[mine[0]], rows(*((key, step) for key in kept)), gone)
                model.update(dict.fromkeys(kept, step))
                model = {key: v for key, v in model.items() if key not in gone}
        elif kind == "clean":
            engine.coordinator.clean()
            engine.coordinator.archive()
        else:
            engine.optimize()
        assert content(engine.read()) == model, (step, kind)
    assert leftovers(storage) == []
