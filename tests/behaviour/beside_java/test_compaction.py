"""Compaction of log files that nobody touches any more: by optimize and by upkeep, beside writers and plans of Java."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from tests.api import Action, ArrowEngine, MemoryStorage, Storage, TableSchema
from tests.behaviour.beside_java.test_writes_merge_on_read import SWEEP, content, group_of, logs_of, many, rows
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import QUICK, SCHEMA, leftovers, new_table, writer

from lakelock.engine.batch import write_copies
from lakelock.occ.footprint import COMPACT
from lakelock.occ.live_logs import logged_files
from lakelock.occ.optimize import Optimized, compact
from lakelock.settings import OptimizeSettings, UpkeepSettings
from lakelock.table.index import parsed_index
from lakelock.table.properties import MERGE_ON_READ
from lakelock.table.rewriting import ARROW

COLUMNS = TableSchema(SCHEMA)


def appended(engine: ArrowEngine, times: int, month: str = "1") -> dict[str, int]:
    """A file group of 200 rows with so many log files, and its content."""
    base = many(200).set_column(2, "month", pa.array([month] * 200))
    engine.insert(base)
    for number in range(times):
        engine.upsert(pa.table([[f"k{number:04}"], [number + 1], [month]], schema=SCHEMA))
    return {f"k{number:04}": number + 1 if number < times else 0 for number in range(200)}


def test_optimize_compacts_what_it_does_not_join(engine: ArrowEngine, storage: Storage) -> None:
    expected = appended(engine, 3)
    done = engine.optimize()
    assert (done.compacted, done.files_before, logs_of(engine)) == (1, 0, 0)
    assert content(engine.read()) == content(engine.read(query_type="read_optimized")) == expected
    assert "1 file group compacted" in repr(done)
    (commit,) = engine.coordinator.history(1)
    assert (commit.operation, commit.rows_updated, commit.rows_inserted) == (COMPACT, 0, 0)
    assert engine.optimize().compacted == 0 and leftovers(storage) == []


def test_rows_keep_the_commits_that_wrote_them(engine: ArrowEngine, storage: Storage) -> None:
    appended(engine, 2)
    before = _stamps(engine, storage)
    engine.optimize()
    assert _stamps(engine, storage) == before and len(set(before.values())) == 3


def _stamps(engine: ArrowEngine, storage: Storage) -> dict[str, str]:
    with engine.coordinator.begin("UPSERT") as tx:
        (file,) = tx.snapshot().files
        batch = pa.concat_tables(ARROW.stored([file], COLUMNS, storage), promote_options="permissive")
    return dict(zip(batch.column("id").to_pylist(), batch.column("_hoodie_commit_time").to_pylist(), strict=True))


def test_a_group_of_log_files_only_gets_a_base_file(engine: ArrowEngine, storage: Storage) -> None:
    engine.insert(rows(("a", 0)))
    Peer(storage).append(group_of(engine)._replace(file_id="only-logs-0"), rows(("b", 1)), columns=COLUMNS)
    assert content(engine.read()) == {"a": 0, "b": 1}
    engine.optimize(sizes=OptimizeSettings(small_file_bytes=1))
    assert logs_of(engine) == 0 and len(engine.coordinator.snapshot().files) == 2
    assert content(engine.read()) == {"a": 0, "b": 1}


def test_buckets_are_compacted_each_by_itself() -> None:
    storage = MemoryStorage()
    new_table(storage, table_type=MERGE_ON_READ, index=parsed_index("bucket:2"))
    engine = ArrowEngine(writer(storage))
    expected = appended(engine, 4)
    files = {file.group for file in engine.coordinator.snapshot().files}
    assert engine.optimize().compacted == len({each.group for each in logged_files(engine.coordinator.table)} or files)
    assert {file.group for file in engine.coordinator.snapshot().files} == files and content(engine.read()) == expected


def test_upkeep_compacts_what_is_due_and_stops_when_its_time_is_over(storage: Storage) -> None:
    settings = replace(QUICK, upkeep=UpkeepSettings(auto=False, compact_logs=3), optimize=OptimizeSettings(1, 1, 1))
    engine = ArrowEngine(writer(storage, settings))
    expected = {month: appended(engine, count, month) for month, count in (("1", 2), ("2", 3), ("3", 4))}
    would, done = engine.coordinator.upkeep(dry_run=True), engine.coordinator.upkeep()
    assert would.compacted == done.compacted == 2 and not done.problems
    assert "2 file groups compacted" in repr(done)
    (left,) = logged_files(engine.coordinator.table)
    assert (left.partition, len(left.logs)) == ("month=1", 2)
    table = engine.read()
    assert table.num_rows == 600
    for month, rows_of in expected.items():
        mine = table.filter(pa.array([each == month for each in table.column("month").to_pylist()]))
        assert content(mine) == rows_of

    appended(engine, 3, "4")
    result = Optimized()
    compact(engine.coordinator, lambda *_: pytest.fail("begun"), result, most_bytes=1, is_spent=lambda: True)
    assert result.commits == []


def test_no_upkeep_compacts_where_the_setting_is_none(storage: Storage) -> None:
    engine = ArrowEngine(writer(storage, replace(QUICK, upkeep=UpkeepSettings(auto=False, compact_logs=0))))
    appended(engine, 9)
    assert engine.coordinator.upkeep().compacted == 0 and logs_of(engine) == 9


def test_upkeep_after_a_commit_compacts_and_begins_no_other(storage: Storage) -> None:
    engine = ArrowEngine(writer(storage, replace(QUICK, upkeep=UpkeepSettings(every_commits=1, compact_logs=2))))
    expected = appended(engine, 5)
    counts = [entry.operation for entry in engine.coordinator.history(20)]
    assert counts.count(COMPACT) == 2 and logs_of(engine) == 1
    assert content(engine.read()) == expected


def test_the_upkeep_of_a_write_in_a_function_leaves_compaction_to_others(storage: Storage) -> None:
    engine = ArrowEngine(writer(storage, replace(QUICK, upkeep=UpkeepSettings(every_commits=1, compact_logs=1))))
    engine.insert(many(100))
    engine.run(lambda tx: engine.upsert_in(tx, many(1, 7)))
    assert logs_of(engine) == 1 and engine.coordinator.upkeep().problems == ()
    assert logs_of(engine) == 0


def test_a_write_of_a_new_base_file_makes_a_compaction_yield(engine: ArrowEngine, storage: Storage) -> None:
    expected, other, result = appended(engine, 3), ArrowEngine(writer(storage, name="other")), Optimized()

    def meanwhile(tx, copies, check):
        other.upsert(many(100, 9))
        check()
        return pytest.fail("not stopped")

    compact(engine.coordinator, meanwhile, result, most_bytes=1 << 30)
    assert (result.compacted, result.yielded) == (0, 1) and "rolled back" in result.reasons[0]
    assert content(engine.read()) == {**expected, **dict.fromkeys(content(many(100)), 9)}
    assert leftovers(storage) == []


@pytest.mark.parametrize("by", ["lakelock", "Java"])
def test_a_log_file_that_appears_meanwhile_lies_on_the_compacted_file(engine: ArrowEngine, storage: Storage, by: str) -> None:
    expected, result, copy = appended(engine, 2), Optimized(), _copy(engine)

    def meanwhile(tx, copies, check):
        if by == "Java":
            Peer(storage).append(group_of(engine), rows(("k0100", 9)))
        else:
            ArrowEngine(writer(storage, name="other")).upsert(rows(("k0100", 9)))
        check()
        return copy(tx, copies, check)

    compact(engine.coordinator, meanwhile, result, most_bytes=1 << 30)
    assert (result.compacted, result.yielded, logs_of(engine)) == (1, 0, 1)
    assert content(engine.read()) == {**expected, "k0100": 9}
    assert engine.optimize().compacted == 1 and content(engine.read()) == {**expected, "k0100": 9}


def _copy(engine: ArrowEngine):
    return partial(write_copies, engine.coordinator, ARROW)


def test_a_compaction_disturbs_no_read_of_a_transaction(engine: ArrowEngine, storage: Storage) -> None:
    expected, other = appended(engine, 3), ArrowEngine(writer(storage, name="other"))
    with engine.coordinator.begin("UPSERT") as tx:
        assert content(engine.read_in(tx)) == expected
        assert other.optimize().compacted == 1
        engine.upsert_in(tx, rows(("new", 1)))
    assert content(engine.read()) == {**expected, "new": 1}


@pytest.mark.parametrize("action", [Action.COMPACTION, Action.CLUSTERING])
def test_what_java_has_planned_is_left_to_it(engine: ArrowEngine, storage: Storage, action: Action) -> None:
    appended(engine, 3)
    Peer(storage).plan_compaction(group_of(engine), action=action)
    done = engine.optimize()
    assert (done.compacted, done.yielded, logs_of(engine)) == (0, 1, 3)


def test_a_plan_of_java_that_appears_meanwhile_wins(engine: ArrowEngine, storage: Storage) -> None:
    appended(engine, 3)
    copy, result = _copy(engine), Optimized()

    def meanwhile(tx, copies, check):
        Peer(storage).plan_compaction(group_of(engine))
        return copy(tx, copies, check)

    compact(engine.coordinator, meanwhile, result, most_bytes=1 << 30)
    assert (result.compacted, result.yielded, logs_of(engine)) == (0, 1, 3)
    engine.coordinator.reap()
    assert leftovers(storage) == []


def test_two_compactors_compact_each_group_once(engine: ArrowEngine, storage: Storage) -> None:
    expected, other = appended(engine, 3), ArrowEngine(writer(storage, name="other"))
    copy, result = _copy(engine), Optimized()

    def meanwhile(tx, copies, check):
        assert other.optimize().compacted == 0
        return copy(tx, copies, check)

    compact(engine.coordinator, meanwhile, result, most_bytes=1 << 30)
    assert result.compacted == 1 and content(engine.read()) == expected
    assert leftovers(storage) == []


def test_what_was_compacted_is_cleaned_and_archived(storage: Storage) -> None:
    engine = ArrowEngine(writer(storage, SWEEP))
    expected = appended(engine, 3)
    engine.optimize()
    engine.insert(rows(("z", 1)))
    engine.coordinator.clean()
    engine.coordinator.archive()
    assert content(engine.read()) == content(ArrowEngine(writer(storage)).read()) == {**expected, "z": 1}
    assert not [item.key for item in storage.list("") if ".log." in item.key and not item.key.startswith(".hoodie")]


def test_errors_of_the_copying_are_told(engine: ArrowEngine, storage: Storage) -> None:
    appended(engine, 1)
    with pytest.raises(ZeroDivisionError):
        compact(engine.coordinator, lambda *_: 1 / 0, Optimized(), most_bytes=1)
    engine.coordinator.reap()
    assert leftovers(storage) == [] and logs_of(engine) == 1
