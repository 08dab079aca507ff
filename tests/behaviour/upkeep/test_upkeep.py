"""Upkeep as a whole: all steps in one run, bounded, by hand or after a commit; what it says and what it leaves."""

from __future__ import annotations

import errno
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.api import ArrowEngine, MemoryStorage, Outcome, layout
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import QUICK, SCHEMA, Recorder, new_table, put_file, writer
from tests.behaviour.upkeep.upkeep_tables import KEEPING_TWO, PARTITION, AgingTable
from tests.faulty_storage import CountingStorage, Fault, FaultyStorage, Rule

from lakelock.settings import ListingSettings, UpkeepSettings
from lakelock.table.rewriting import Kernels

AUTOMATIC = replace(KEEPING_TWO, upkeep=UpkeepSettings(auto=True, every_commits=5, budget_s=60))


def lose_a_writer(table: AgingTable) -> str:
    tx = table.coordinator().begin("INSERT")
    put_file(tx, table.storage, PARTITION, "lost")
    table.runtime.stop_repeating()
    table.runtime.advance(30)
    return tx.instant


def test_one_run_does_all_of_it() -> None:
    table = AgingTable()
    written = table.write_many(9)
    lost = lose_a_writer(table)
    coordinator = table.coordinator()
    done = coordinator.upkeep()
    assert done.reaped == (lost,) and done.cleaned.files == 6 and done.archived.instants >= 6 and done.collected >= 8
    assert done.problems == () and not done.spent
    assert table.shown() == {"a": written[-1]} and len(table.slices("lost")) == 0
    assert coordinator.outcome(written[0]) is Outcome.COMMITTED and coordinator.outcome(lost) is Outcome.REJECTED
    again = coordinator.upkeep()
    assert (again.reaped, again.cleaned.files, again.archived.instants, again.collected) == ((), 0, 0, 0)
    assert "nothing to do" in repr(again) and "6 files deleted" in repr(done)


def test_a_dry_run_says_what_a_run_does_and_changes_nothing() -> None:
    table = AgingTable()
    table.write_many(9)
    lose_a_writer(table)
    before = {item.key: table.storage.get(item.key) for item in table.storage.list("")}
    would = table.coordinator().upkeep(dry_run=True)
    assert {item.key: table.storage.get(item.key) for item in table.storage.list("")} == before
    done = table.coordinator().upkeep()
    assert would.reaped == done.reaped and would.cleaned.files == done.cleaned.files
    assert "upkeep would do: 1 dead writers finished, 6 files deleted" in repr(would)


def test_a_step_that_fails_does_not_keep_the_others_from_running() -> None:
    table = AgingTable()
    table.write_many(9)
    faulty = FaultyStorage(table.storage, [Rule("put_if_absent", "*.clean.requested", nth=None, fault=Fault.FAIL)])
    done = table.coordinator(faulty).upkeep()
    assert done.cleaned.files == 0 and done.archived.instants == 6 and done.collected
    assert len(done.problems) == 1 and done.problems[0].startswith("clean: ") and "problem: clean" in repr(done)


def test_a_dead_writer_that_cannot_be_finished_is_a_problem_and_no_alert() -> None:
    table, recorder = AgingTable(), Recorder()
    table.write("a")
    lost = lose_a_writer(table)
    faulty = FaultyStorage(table.storage, [Rule("delete", f"{PARTITION}/lost*", nth=None, fault=Fault.FAIL)])
    done = table.coordinator(faulty, listener=recorder).upkeep()
    (problem,) = done.problems
    assert problem.startswith(f"finish the dead: {lost}: could not reap a dead writer: ") and done.reaped == ()
    assert "alert" not in recorder.kinds(), "whoever asked for the upkeep is told, and nobody twice"


def test_no_new_work_is_begun_once_the_budget_is_spent() -> None:
    table = AgingTable(replace(KEEPING_TWO, upkeep=UpkeepSettings(auto=False, budget_s=1)))
    table.write_many(9)
    done = table.coordinator().upkeep(progress=lambda what, done, total: table.runtime.advance(2))
    assert done.spent and done.archived.instants == 0 and "the next run goes on" in repr(done)
    for _ in range(3):
        table.coordinator().upkeep()
    assert len(table.timeline().commits) == 3 and len(table.slices()) == 3


def test_a_clean_with_much_to_do_leaves_time_for_archiving_and_collecting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakelock.occ.clean.DELETED_AT_ONCE", 1)
    settings = replace(
        KEEPING_TWO, upkeep=UpkeepSettings(auto=False, budget_s=60), listing=ListingSettings(parallel_requests=2)
    )
    table = AgingTable(settings)
    table.write_many(30)
    slow = FaultyStorage(
        table.storage, [Rule("delete", f"{PARTITION}/*", nth=None, fault=None, meanwhile=lambda: table.runtime.advance(10))]
    )
    done = table.coordinator(slow).upkeep()
    assert done.cleaned.left > 0 and done.spent
    assert done.archived.instants > 0 and done.collected > 0


def test_upkeep_runs_after_the_commits_whose_turn_it_is_and_costs_the_others_nothing() -> None:
    table, off = AgingTable(AUTOMATIC), AgingTable()
    for number in range(1, 21):
        counted = []
        for each in (table, off):
            storage = CountingStorage(each.storage)
            each.runtime.advance(5)
            with each.coordinator(storage).begin("UPSERT") as tx:
                tx.claim([f.group for f in tx.snapshot().files])
                storage.reset()
                tx.commit([put_file(tx, storage, PARTITION, "a")])
            counted.append(storage.total)
        assert (counted[0] > counted[1]) == (number % 5 == 0) and (number % 5 == 0 or counted[0] == counted[1])
    assert len(table.timeline().commits) <= 8 and len(table.slices()) <= 8 and len(off.slices()) == 20
    assert len([key for key in table.names(layout.DECISIONS) if key]) <= 6


def test_a_commit_stands_when_the_upkeep_after_it_fails() -> None:
    table, recorder = AgingTable(AUTOMATIC), Recorder()
    table.write_many(4)
    table.runtime.advance(5)
    faulty = FaultyStorage(table.storage)
    with table.coordinator(faulty, listener=recorder).begin("UPSERT") as tx:
        stats = [put_file(tx, faulty, PARTITION, "x")]
        faulty.plan = [Rule("list", layout.TEMP, nth=None)]
        done = tx.commit(stats)
    assert done.instant and "x" in table.shown() and "alert" in recorder.kinds()


class FullDisk(Kernels):
    """Files are put together on a disk of this machine, which has no room left."""

    def rewrite(self, *args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_commit_stands_and_the_other_steps_run_when_this_machine_has_no_room_to_compact() -> None:
    storage, recorder = MemoryStorage(), Recorder()
    new_table(storage, table_type="MERGE_ON_READ")
    settings = replace(QUICK, upkeep=UpkeepSettings(auto=True, every_commits=2, compact_logs=1))
    engine = ArrowEngine(writer(storage, settings, listener=recorder), FullDisk())
    engine.insert(pa.table([[f"k{number}" for number in range(20)], range(20), ["1"] * 20], schema=SCHEMA))
    assert engine.upsert(pa.table([["k0"], [100], ["1"]], schema=SCHEMA)).rows_updated == 1
    assert 100 in engine.read()["v"].to_pylist()
    done = engine.coordinator.upkeep()
    assert len(done.problems) == 1 and done.problems[0].startswith("compact: OSError: [Errno 28]")
    assert any("No space left" in str(each.facts) for each in recorder.events if each.kind.value == "alert")


def test_upkeep_never_touches_what_is_live_or_foreign() -> None:
    table = AgingTable()
    table.write_many(3)
    live = table.coordinator().begin("UPSERT")
    live.claim([f.group for f in live.snapshot().files])
    stat = put_file(live, table.storage, PARTITION, "a")
    for _ in range(6):
        table.runtime.advance(1)
        table.write("b")
    theirs = Peer(table.storage).begin()
    table.coordinator().upkeep()
    live.commit([stat])
    assert theirs in [i.requested for i in table.timeline().pending] and table.shown()["a"] == live.instant


@pytest.mark.parametrize("age_s", [0, 600])
def test_a_savepoint_that_somebody_could_not_complete_holds_cleans_only_for_a_while(age_s: float) -> None:
    table = AgingTable()
    written = table.write_many(6)
    table.storage.put(layout.timeline(f"{written[0]}.savepoint.inflight"), b"")
    table.runtime.advance(age_s)
    table.coordinator().upkeep()
    assert (len(table.slices()) == 3) == (age_s > 0) and bool(table.timeline().savepoints) == (age_s == 0)
