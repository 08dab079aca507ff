"""Reapers and sweepers that stand still, live writers, and instants that a second writer takes after a first."""

from __future__ import annotations

import threading
from contextlib import suppress

from tests.api import Action, FileGroupId, layout
from tests.behaviour.foreign import Peer
from tests.behaviour.simulated_time.writers import AnswersInAnyOrder, commit, writer
from tests.behaviour.tables import put_file
from tests.faulty_storage import Fault, FaultyStorage, Rule

from lakelock.errors import StorageUnavailable
from lakelock.occ.begin import begin, give_up, inflight_key, requested_key
from lakelock.occ.claims import end_dead, is_over, reserve
from lakelock.occ.recovery import sweep
from lakelock.testing import ManualRuntime


def intact(storage, runtime, instant):
    """The instant has one fate, and every file that readers are shown is there."""
    shown = writer(storage, runtime).snapshot().files
    kinds = [d.kind.value for d in writer(storage, runtime).table.log.peek(after=0) if d.instant == instant]
    lost = [file.key for file in shown if storage.get(file.key) is None]
    return kinds, lost


def test_a_reaper_that_stands_still_between_listing_and_clock_takes_no_live_writer_for_dead(storage, runtime):
    """The writer beats all the time; only its listing of the log takes long."""
    commit(storage, runtime, "first")
    mine, slow, begun = AnswersInAnyOrder(), FaultyStorage(storage), list[str]()
    coordinator = writer(slow, mine)
    coordinator.begin("INSERT").abort("it has met the log now")
    mine.advance(60)
    tick = 0.25

    def time_goes_on() -> None:
        for _ in range(int(30 / tick)):
            runtime.advance(tick)
            mine.advance(tick)  # its heartbeat beats

    def others() -> None:
        (heartbeat,) = storage.list(layout.HEARTBEATS)
        begun.append(heartbeat.key.rpartition("/")[2])
        stands_still = FaultyStorage(
            storage,
            [
                Rule(op="put", key=f"{layout.PROBES}*", fault=None, meanwhile=time_goes_on),
                Rule(op="put_if_absent", key="*.rollback.requested"),
            ],
        )
        with suppress(StorageUnavailable):
            writer(stands_still, runtime).reap()

    slow.plan = [Rule(op="list", key=f"{layout.DECISIONS}*", fault=None, meanwhile=others)]
    with coordinator.begin("INSERT") as tx:
        slow.plan = []
        tx.commit([put_file(tx, storage, "month=1", "mine")])
    assert len(begun) == 1 and len(intact(storage, runtime, begun[0])[0]) == 1
    assert intact(storage, runtime, tx.instant) == (["commit"], [])


def test_a_reaper_that_goes_on_later_deletes_nothing_that_the_live_writer_has_committed(storage, runtime):
    """As before, but the reaper only stands still after its decision, and goes on when the writer has committed."""
    commit(storage, runtime, "first")
    mine, slow, begun, threads = AnswersInAnyOrder(), FaultyStorage(storage), list[str](), list[threading.Thread]()
    decided, committed = threading.Event(), threading.Event()
    coordinator = writer(slow, mine)
    coordinator.begin("INSERT").abort("it has met the log now")
    mine.advance(60)

    def time_goes_on() -> None:
        for _ in range(120):
            runtime.advance(0.25)
            mine.advance(0.25)

    def stand_still() -> None:
        decided.set()
        committed.wait(60)

    def others() -> None:
        (heartbeat,) = storage.list(layout.HEARTBEATS)
        begun.append(heartbeat.key.rpartition("/")[2])
        plan = [
            Rule(op="put", key=f"{layout.PROBES}*", fault=None, meanwhile=time_goes_on),
            Rule(op="list", key=f"*{begun[0]}", fault=None, meanwhile=stand_still),
        ]
        reaper = writer(FaultyStorage(storage, plan), runtime)
        threads.append(threading.Thread(target=lambda: (reaper.reap(), decided.set())))
        threads[0].start()
        assert decided.wait(60)

    slow.plan = [Rule(op="list", key=f"{layout.DECISIONS}*", fault=None, meanwhile=others)]
    with coordinator.begin("INSERT") as tx:
        slow.plan = []
        done = tx.commit([put_file(tx, storage, "month=1", "mine")])
    committed.set()
    threads[0].join(60)
    assert intact(storage, runtime, done.instant) == (["commit"], [])


def ahead_of_all(storage):
    """A commit of a fast clock: the next instant of every other writer follows from it, whatever its own clock says."""
    fast = ManualRuntime(seed=9)
    fast.skew_ms = 3_600_000
    return commit(storage, fast, "fast")


class Begun:
    """A writer whose instant is the one after the newest commit, and which may give it up as every writer may that begins."""

    def __init__(self, storage, runtime, group=None) -> None:
        self.table, self.group = writer(storage, runtime).table, group
        baseline, self.heartbeat, _ = begin(self.table, "INSERT", Action.COMMIT, group)
        self.instant = baseline.instant

    def gives_up(self) -> None:
        give_up(self.table, self.heartbeat, self.instant, Action.COMMIT, self.group)


def committed_by_another(storage):
    """The instant of another writer's commit."""
    with writer(storage, ManualRuntime(seed=5)).begin("INSERT") as tx:
        return tx.commit([put_file(tx, storage, "month=1", "mine")]).instant


def test_a_sweep_deletes_nothing_of_the_second_writer_of_an_instant_that_the_first_gave_up(storage, runtime):
    """Nobody is dead: the first gives its instant up, as every writer does that finds an unpublished head."""
    ahead_of_all(storage)
    group = FileGroupId("month=1", "announced")
    first, used = Begun(storage, runtime, group), list[str]()

    def commits() -> None:
        used.append(committed_by_another(storage))

    plan = [
        Rule(op="list", key=layout.CLAIMS, fault=None, meanwhile=first.gives_up),
        Rule(op="list", key=f"*{first.instant}", fault=None, meanwhile=commits),
    ]
    sweep(writer(FaultyStorage(storage, plan), runtime).table)
    assert used == [first.instant]
    kinds, lost = intact(storage, runtime, first.instant)
    assert (kinds, lost) == (["commit"], [])


def test_an_instant_whose_rollback_is_decided_is_not_taken_again_though_its_writer_gives_it_up(storage, runtime):
    """A writer stands still as it begins; a reaper decides and stands still; the writer gives up; another takes the instant."""
    ahead_of_all(storage)
    slow = ManualRuntime(seed=4)
    first, used = Begun(storage, slow), list[str]()
    slow.stop_repeating()
    for clock in (runtime, slow):
        clock.advance(30)

    def goes_on() -> None:
        if used:
            return
        first.gives_up()
        used.append(committed_by_another(storage))

    plan = [Rule(op="list", key=f"*{first.instant}", fault=None, meanwhile=goes_on)]
    writer(FaultyStorage(storage, plan), runtime).reap()
    assert len(used) == 1
    kinds, lost = intact(storage, runtime, used[0])
    assert (kinds, lost) == (["commit"], [])


def after_a_late_removal(storage, runtime):
    """A live writer gives up; the last removal, of its heartbeat, gets no answer, and arrives after a rollback was decided."""
    ahead_of_all(storage)
    slow, used = FaultyStorage(storage), list[str]()
    first = Begun(slow, ManualRuntime(seed=4))
    slow.plan = [Rule(op="delete", key=f"{layout.HEARTBEATS}*", fault=Fault.LATE, late_by=10**9)]
    first.gives_up()
    runtime.advance(30)

    def goes_on() -> None:
        if not used:
            assert slow.deliver() == 1
            used.append(committed_by_another(storage))

    plan = [Rule(op="list", key=f"*{first.instant}", fault=None, meanwhile=goes_on)]
    with suppress(StorageUnavailable):
        writer(FaultyStorage(storage, plan), runtime).reap()
    assert len(used) == 1
    return intact(storage, runtime, used[0])


def test_no_file_goes_of_a_commit_whose_instant_was_rolled_back_before_it_was_taken_again(storage, runtime):
    assert after_a_late_removal(storage, runtime)[1] == []


def test_an_instant_that_was_rolled_back_before_it_was_taken_again_has_one_fate(storage, runtime):
    assert after_a_late_removal(storage, runtime)[0] == ["commit"]


def test_a_reaper_that_finds_a_heartbeat_gone_removes_nothing_of_who_takes_the_instant_then(storage, runtime):
    """Its writer stood still, and gives up between the reaper's listing and its look at the record."""
    ahead_of_all(storage)
    slow = ManualRuntime(seed=4)
    first, used = Begun(storage, slow), list[str]()
    slow.stop_repeating()
    for clock in (runtime, slow):
        clock.advance(30)
    reaper_storage = FaultyStorage(storage)
    reaper = writer(reaper_storage, runtime)

    def commits() -> None:
        used.append(committed_by_another(storage))

    storage.delete([requested_key(first.instant, Action.COMMIT), inflight_key(first.instant, Action.COMMIT)])  # it gives up
    reaper_storage.plan = [
        Rule(op="get", key=layout.heartbeat(first.instant), fault=None, meanwhile=first.gives_up),
        Rule(op="list", key=f"*{first.instant}", fault=None, meanwhile=commits),
    ]
    reaper.reap()
    assert len(used) == 1
    assert intact(storage, runtime, used[0]) == (["commit"], [])


def test_a_live_reservation_is_not_ended_by_one_that_stands_still(storage, runtime):
    """For fairness only."""
    holder = writer(storage, runtime)
    turn = reserve(holder.table, "UPSERT", frozenset({"month=1"}))
    plan = [Rule(op="put", key=f"{layout.PROBES}*", fault=None, meanwhile=lambda: runtime.advance(30))]
    end_dead(writer(FaultyStorage(storage, plan), runtime).table)
    assert [each.id for each in holder.table.log.reservations()] == [turn.reservation.id]


def test_a_live_reservation_is_not_over_for_one_that_stands_still(storage, runtime):
    """For fairness only."""
    holder, waiting = reserve(writer(storage, runtime).table, "UPSERT", None), Begun(storage, runtime)
    own, theirs = layout.heartbeat(waiting.instant), layout.reservation(holder.reservation.id)
    plan = [Rule(op="get", key=own, fault=None, meanwhile=lambda: runtime.advance(30))]
    assert not is_over(writer(FaultyStorage(storage, plan), runtime).table, theirs, own)


def test_a_live_java_writer_is_not_rolled_back_by_a_reaper_that_stands_still(storage, runtime):
    """Java knows no decision: it commits what it believes to be pending, and its files are gone."""
    commit(storage, runtime, "first")
    java = Peer(storage)
    instant = java.begin()
    storage.put(layout.heartbeat(instant), b"")
    stats = [java.write(instant, "month=1", "java")]

    def java_beats_on() -> None:
        runtime.advance(600)
        storage.put(layout.heartbeat(instant), b"")

    plan = [Rule(op="put", key=f"{layout.PROBES}*", fault=None, meanwhile=java_beats_on)]
    reaping = writer(FaultyStorage(storage, plan), runtime)
    reaping.reap()
    assert [key for stat in stats if storage.get(key := stat.path) is None] == []
