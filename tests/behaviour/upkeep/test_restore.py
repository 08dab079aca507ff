"""Restoring: the table is what it was, by a new commit that can itself be undone, and that collides like any other."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import ArrowEngine, MemoryStorage, layout
from tests.behaviour.tables import QUICK, leftovers, new_table, writer
from tests.behaviour.upkeep.test_optimize import content, rows, stored
from tests.behaviour.upkeep.upkeep_tables import KEEPING_TWO

from lakelock.errors import InputError, StorageError
from lakelock.occ.restore import moment_of
from lakelock.settings import WriteSettings
from lakelock.table.rewriting import Kernels
from lakelock.testing import ManualRuntime

pytestmark = pytest.mark.usefixtures("both_types")


@pytest.fixture
def storage():
    made = MemoryStorage()
    new_table(made)
    return made


@pytest.fixture
def engine(storage):
    """Three partitions, and a little history."""
    made = ArrowEngine(writer(storage))
    made.insert(rows(("a", 1, "1"), ("b", 2, "2"), ("c", 3, "3")))
    made.insert(rows(("d", 4, "1")))
    return made


def test_what_came_after_is_undone_whatever_it_was_and_rows_keep_their_meta_columns(engine, storage):
    good = engine.upsert(rows(("a", 10, "1"), ("e", 5, "2")))
    before = stored(engine)
    untouched = engine.coordinator.snapshot().in_partition("month=3")
    engine.upsert(rows(("a", 100, "1"), ("new", 1, "9")))
    engine.delete(pc.field("id") == "b")
    engine.overwrite_partitions(rows(("x", 0, "1")))
    engine.insert(rows(("y", 0, "2")))
    bad = content(engine.read())
    done = engine.restore(good.instant, tag="oops")
    assert stored(engine) == before
    assert engine.coordinator.snapshot().in_partition("month=3") == untouched
    (entry,) = engine.coordinator.history(1)
    assert (entry.operation, entry.action, entry.tag, done.operation) == ("RESTORE", "replacecommit", "oops", "RESTORE")
    assert leftovers(storage) == []
    assert bad == content(engine.read(as_of=engine.coordinator.history(2)[1].instant))


def test_restoring_to_before_a_restore_works_too(engine):
    good = engine.upsert(rows(("a", 10, "1")))
    newest = engine.overwrite_partitions(rows(("x", 0, "1")))
    bad = stored(engine)
    engine.restore(good.instant)
    assert engine.restore(newest.instant).operation == "RESTORE"
    assert stored(engine) == bad
    engine.upsert(rows(("x", 1, "1"), ("b", 20, "2")))
    assert content(engine.read()) == [("b", 20, "2"), ("c", 3, "3"), ("x", 1, "1")]


def test_what_an_optimize_joined_is_there_as_before(engine):
    before, as_of = stored(engine), engine.coordinator.history(1)[0].instant
    engine.optimize()
    engine.insert(rows(("x", 0, "1")))
    engine.restore(as_of)
    assert stored(engine) == before


def test_a_moment_that_has_not_come_is_refused(engine):
    newest = engine.coordinator.history(1)[0].instant
    with pytest.raises(InputError, match="restored to 20620101000000000: that is later than now, which is 20") as late:
        engine.restore("20620101000000000")
    assert f"its newest instant is {newest}" in late.value.hint
    assert len(engine.coordinator.history()) == 2


def test_an_unknown_or_early_moment_is_refused(engine):
    with pytest.raises(InputError, match="it had no commit then"):
        engine.restore("20200101000000000")
    assert len(engine.coordinator.history()) == 2


def test_a_name_that_no_savepoint_has_is_told_with_those_that_are_there(engine):
    for taken, shown in ((None, "savepoints: none"), ("before the migration", "savepoints: 'before the migration'")):
        if taken is not None:
            engine.coordinator.savepoint(taken)
        with pytest.raises(InputError, match="nor the name of a savepoint") as caught:
            moment_of(engine.coordinator, "befor the migration")
        assert shown in caught.value.hint


def test_it_is_refused_where_an_old_slice_is_gone(engine, storage):
    good = engine.coordinator.history(1)[0].instant
    (old,) = (file for file in engine.coordinator.snapshot().files if file.partition == "month=2")
    engine.overwrite_partitions(rows(("b", 20, "2")))
    storage.delete([old.key])
    with pytest.raises(StorageError, match="are cleaned") as refused:
        engine.restore(good)
    assert refused.value.details["gone"] == [f"{old.group}@{old.instant}"]
    assert ("b", 20, "2") in content(engine.read())
    assert leftovers(storage) == []


def test_it_is_refused_where_an_older_slice_would_stand_for_the_one_that_is_gone(engine, storage):
    good = engine.upsert(rows(("b", 20, "2")))
    (old,) = (file for file in engine.coordinator.snapshot().files if file.partition == "month=2")
    engine.overwrite_partitions(rows(("x", 0, "2")))
    storage.delete([old.key])
    with pytest.raises(StorageError, match="are cleaned"):
        engine.restore(good.instant)


def test_columns_that_came_since_stay_and_are_null_in_the_old_rows(engine):
    good = engine.coordinator.history(1)[0].instant
    with_more = rows(("a", 10, "1")).append_column("more", pa.array(["m"]))
    merging = replace(QUICK, write=WriteSettings(merge_schema=True))
    ArrowEngine(writer(engine.coordinator.table.storage, merging)).upsert(with_more)
    engine.restore(good)
    table = engine.read()
    assert table.column("more").null_count == table.num_rows == 4
    assert content(table) == [("a", 1, "1"), ("b", 2, "2"), ("c", 3, "3"), ("d", 4, "1")]


def test_whoever_writes_meanwhile_makes_it_start_over_and_is_undone_too(engine, storage):
    good = engine.coordinator.history(1)[0].instant
    engine.upsert(rows(("a", 10, "1")))
    others = [rows(("new", 1, "7"))]

    class Meanwhile(Kernels):
        def new_file(self, *args):
            if others:
                ArrowEngine(writer(storage)).insert(others.pop())
            return super().new_file(*args)

    done = ArrowEngine(writer(storage), Meanwhile()).restore(good)
    assert (done.attempts, [str(conflict.rule) for conflict in done.conflicts]) == (2, ["append"])
    assert content(engine.read()) == [("a", 1, "1"), ("b", 2, "2"), ("c", 3, "3"), ("d", 4, "1")]


def test_an_upsert_that_began_before_a_restore_is_run_again_on_what_was_restored(engine, storage):
    good = engine.coordinator.history(1)[0].instant
    engine.upsert(rows(("a", 10, "1"), ("z", 1, "1")))
    restored = []

    class Slow(Kernels):
        def tag(self, *args):
            found = super().tag(*args)
            if not restored:
                restored.append(ArrowEngine(writer(storage)).restore(good))
            return found

    done = ArrowEngine(writer(storage), Slow()).upsert(rows(("a", 11, "1")))
    assert done.attempts == 2
    assert content(engine.read()) == [("a", 11, "1"), ("b", 2, "2"), ("c", 3, "3"), ("d", 4, "1")]


@pytest.mark.parametrize("archiver", ["stops at savepoints", "goes past them, as Java's does"])
def test_a_savepoint_is_restored_by_its_name_also_when_it_is_older_than_the_rest_of_the_timeline(archiver):
    runtime = ManualRuntime()
    storage = MemoryStorage(runtime.now_ms)
    new_table(storage)
    coordinator = writer(storage, KEEPING_TWO, runtime=runtime)
    engine = ArrowEngine(coordinator)
    engine.insert(rows(("a", 1, "1"), ("b", 2, "2")))
    engine.upsert(rows(("a", 10, "1")))
    before = stored(engine)
    coordinator.savepoint("good")
    good = moment_of(coordinator, "good")
    for number in range(12):
        runtime.advance(5)
        engine.upsert(rows(("a", 100 + number, "1"), (f"new{number}", 1, "9")))
    engine.overwrite_partitions(rows(("x", 0, "2")))
    coordinator.clean()
    pinned = {item.key: storage.get(item.key).data for item in storage.list(layout.TIMELINE) if f"/{good}" in item.key}
    if archiver != "stops at savepoints":
        storage.delete(key for key in pinned if ".savepoint" in key)
    assert coordinator.archive().instants > 0
    for key, data in pinned.items():
        storage.put(key, data)
    assert (coordinator.table.timeline().first_active > good) == (archiver != "stops at savepoints")
    runtime.advance(5)
    engine.restore(good)
    assert stored(engine) == before
