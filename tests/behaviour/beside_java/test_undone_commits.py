"""Another engine without the lock rolls back what lakelock is completing: rejected in time, or told, and mended."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.api import (
    Action,
    AppTransaction,
    ArrowEngine,
    CommitMetadata,
    DataFile,
    EventKind,
    Instant,
    LocalStorage,
    MemoryStorage,
    Outcome,
    RollbackPlan,
    State,
    Storage,
    SystemRuntime,
    TableIO,
    format_instant,
    layout,
    parse_instant,
    read_snapshot,
    read_timeline,
)
from tests.behaviour.cli.command_line import run
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import QUICK, Recorder, leftovers, memory_table, new_table, writer
from tests.behaviour.upkeep.test_optimize import content, rows
from tests.faulty_storage import Wrapped

from lakelock.errors import CommitUndone, CorruptTableError, RolledBackError, StorageError
from lakelock.occ.foreign import audit
from lakelock.occ.recovery import collect
from lakelock.occ.rollback import RollbackOutcome, RollbackTarget
from lakelock.occ.rollback import roll_back as roll_back_now
from lakelock.settings import ArchiveSettings, CheckpointSettings, CleanSettings
from lakelock.table.instants import later_than
from lakelock.testing import ManualRuntime

LOCK = ".hoodie/.locks/"
OLD = [("a", 1, "1"), ("b", 2, "1")]
NEW = ("c", 3, "1")
WHICH_COMMITS_ARE_ANOTHERS = [
    "by a log that has every decision",
    "by the order of completions",
    "by what the process saw before",
]


class Meddled(Wrapped):
    """A storage on which somebody else does something right before a request, once."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self._before: Callable[[str, str], bool] = lambda op, key: False
        self._do: Callable[[], object] = lambda: None

    def before(self, request: Callable[[str, str], bool], do: Callable[[], object]) -> None:
        self._before, self._do = request, do

    def carry(self, op, key, request, *, weight=1):
        if self._before(op, key):
            self._before = lambda op, key: False
            self._do()
        return request()


def decides(op: str, key: str) -> bool:
    return op == "put_if_absent" and key.startswith(layout.DECISIONS + "/")


def reads_boundary(op: str, key: str) -> bool:
    return op == "get" and key == layout.DECISIONS_BOUNDARY


def takes_the_lock(op: str, key: str) -> bool:
    return op.startswith("put") and key.startswith(LOCK)


def earlier(instant: str) -> str:
    return format_instant(parse_instant(instant) - 1)


class Noted(Wrapped):
    """A storage that notes its requests."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.noted: list[tuple[str, str]] = []

    def carry(self, op, key, request, *, weight=1):
        self.noted.append((op, key))
        return request()


def publishes(op: str, key: str) -> bool:
    return op == "put_if_absent" and key.startswith(layout.TIMELINE) and "_" in key and key.endswith("commit")


def shared(made: Storage) -> Meddled:
    """A table that another engine has written to, too."""
    new_table(made)
    ArrowEngine(writer(made)).insert(rows(OLD[0]))
    Peer(made).insert(rows(OLD[1]), "month=1")
    return Meddled(made)


@pytest.fixture
def storage() -> Meddled:
    return shared(MemoryStorage())


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "t")


@pytest.fixture
def on_disk(path) -> Meddled:
    return shared(LocalStorage(path))


@pytest.fixture
def peer(storage) -> Peer:
    return Peer(storage.inner)


def opened(storage, told: Recorder | None = None, **settings) -> ArrowEngine:
    return ArrowEngine(writer(storage, listener=told, **settings))


def pending(storage) -> str:
    (instant,) = (i.requested for i in read_timeline(storage).pending)
    return instant


def alerts(told: Recorder) -> list[str]:
    return [f"{e.facts['problem']} {e.facts.get('hint', '')}" for e in told.events if e.kind is EventKind.ALERT]


def after_decision(storage: Meddled, do: Callable[[], object]) -> None:
    """Do it right before the look that follows the decision."""
    storage.before(decides, lambda: storage.before(reads_boundary, do))


@pytest.mark.parametrize("when", ["before the decision", "after the decision"])
@pytest.mark.parametrize("how_far", ["planned", "over"])
def test_what_is_rolled_back_before_it_is_published_is_void_and_written_again(storage, peer, when, how_far) -> None:
    def roll_back() -> None:
        victim = pending(storage.inner)
        begun.append(victim)
        rollback, plan = peer.plan_rollback(victim)
        if how_far == "over":
            peer.carry_out_rollback(rollback, plan)

    begun: list[str] = []
    if when == "before the decision":
        storage.before(decides, roll_back)
    else:
        after_decision(storage, roll_back)
    told = Recorder()
    done = opened(storage, told).insert(rows(NEW))
    assert (done.attempts, done.instant > begun[0]) == (2, True)
    assert content(opened(storage).read()) == [*OLD, NEW]
    assert begun[0] not in {i.requested for i in read_timeline(storage.inner).commits}
    assert told.kinds().count("committed") == 1 and told.kinds().count("rejected") == 1
    assert audit(writer(storage).table, 100).undone == []
    assert [key for key in leftovers(storage.inner) if key.endswith(".parquet")] == []


@pytest.mark.parametrize("known", WHICH_COMMITS_ARE_ANOTHERS)
def test_the_first_meeting_is_noticed_although_the_newest_commit_is_one_of_lakelock(known) -> None:
    """The other engine's first commit completes while lakelock's next one, which does not know of it, is the newest."""
    storage = Meddled(memory_table())
    mine = opened(storage)
    mine.insert(rows(OLD[0]))
    theirs = later_than(SystemRuntime().now_ms(), read_timeline(storage).newest_time)
    time.sleep(0.005)
    second = opened(storage).insert(rows(OLD[1]))
    done = Instant(theirs, Action.COMMIT.value, State.COMPLETED, earlier(second.completion))
    assert theirs < second.instant
    storage.put(layout.timeline(done.file_name), CommitMetadata({}, "UPSERT").to_bytes())
    if known == "by what the process saw before":
        assert collect(writer(storage).table) > 0
    else:
        mine = opened(storage)
    after_decision(storage, lambda: Peer(storage.inner).roll_back(pending(storage.inner)))
    assert mine.insert(rows(NEW)).attempts == 2
    assert mine.coordinator.table.observed.newest_foreign == theirs
    assert content(opened(storage).read()) == [*OLD, NEW]
    assert audit(writer(storage).table, 100).undone == []


def test_whose_transaction_was_rolled_back_without_a_decision_has_met_another_engine() -> None:
    storage = Meddled(memory_table())

    def roll_back() -> None:
        Peer(storage.inner).roll_back(pending(storage.inner))

    def roll_back_twice() -> None:
        roll_back()
        after_decision(storage, roll_back)

    storage.before(takes_the_lock, roll_back_twice)
    assert opened(storage).insert(rows(NEW)).attempts == 3
    assert content(opened(storage).read()) == [NEW]


def test_whose_transaction_was_rolled_back_by_a_writer_of_lakelock_has_met_no_other_engine() -> None:
    storage = Meddled(memory_table())
    engine = opened(storage)

    def roll_back() -> None:
        target = RollbackTarget(pending(storage.inner), Action.COMMIT, "INSERT", "its heartbeat has stopped")
        other = writer(storage.inner)
        assert roll_back_now(other.table, target) is RollbackOutcome.ROLLED_BACK

    storage.before(takes_the_lock, roll_back)
    with pytest.raises(RolledBackError, match="was rolled back by .* in decision 1"), \
            engine.coordinator.begin("INSERT") as tx:  # fmt: skip
        engine.insert_in(tx, rows(NEW))
    assert not engine.coordinator.table.observed.foreign_writers


def test_where_only_lakelock_writes_no_commit_is_read_to_look_for_another_engine() -> None:
    storage = Noted(memory_table())
    first, second = opened(storage), opened(storage)
    for number in range(4):
        first.insert(rows((f"a{number}", 1, "1")))
        for name in "bc":
            second.insert(rows((f"{name}{number}", 1, "1")))
        second.coordinator.begin("INSERT").abort()
    collect(writer(storage.inner).table)
    second.coordinator.begin("INSERT").abort()
    newest = read_timeline(storage).commits[-1]
    storage.noted.clear()
    for engine in (first, second, opened(storage)):
        engine.insert(rows(NEW))
        assert not engine.coordinator.table.observed.foreign_writers
    commits = [key for op, key in storage.noted if op == "get" and key.startswith(layout.TIMELINE) and key.endswith("commit")]
    assert set(commits) <= {layout.timeline(newest.file_name)}


def test_a_write_that_runs_no_more_says_which_settings_the_other_engine_lacks(storage, peer) -> None:
    after_decision(storage, lambda: peer.roll_back(pending(storage.inner)))
    with pytest.raises(RolledBackError, match="was decided, but another Hudi writer rolled it back") as caught, \
            opened(storage).coordinator.begin("INSERT") as tx:  # fmt: skip
        opened(storage).insert_in(tx, rows(NEW))
    assert "hoodie.write.concurrency.mode=OPTIMISTIC_CONCURRENCY_CONTROL" in caught.value.hint
    assert "hoodie.clean.failed.writes.policy=LAZY" in caught.value.hint and "hoodie.write.lock.provider" in caught.value.hint
    assert tx.state.value == "rejected"


def test_a_plan_that_is_being_written_is_waited_for(storage, peer) -> None:
    class Written(ManualRuntime):
        def sleep(self, seconds: float) -> None:
            if planned:
                rollback, plan = planned.pop()
                peer.storage.put(layout.timeline(f"{rollback}.rollback.requested"), plan.to_bytes())
            super().sleep(seconds)

    planned: list[tuple[str, RollbackPlan]] = []
    after_decision(storage, lambda: planned.append(peer.plan_rollback(pending(storage.inner), written=False)))
    assert opened(storage, runtime=Written()).insert(rows(NEW)).attempts == 2
    assert content(opened(storage).read()) == [*OLD, NEW]


def test_a_commit_whose_files_are_gone_is_void_whoever_would_publish_it(storage, peer) -> None:
    def remove() -> None:
        victim = pending(storage.inner)
        peer.storage.delete([item.key for item in peer.storage.list("") if victim in item.key])

    after_decision(storage, remove)
    assert opened(storage).insert(rows(NEW)).attempts == 2
    assert content(opened(storage).read()) == [*OLD, NEW]

    def die() -> None:
        remove()
        raise KeyboardInterrupt

    after_decision(storage, die)
    with pytest.raises(KeyboardInterrupt):
        opened(storage).insert(rows(("d", 4, "1")))
    opened(storage).insert(rows(("e", 5, "1")))  # it finds the decision of the one that died
    assert content(opened(storage).read()) == [*OLD, NEW, ("e", 5, "1")]


def test_a_rollback_that_comes_last_is_told_to_the_writer_and_named_by_everything_that_looks(on_disk, path) -> None:
    told, rollbacks = Recorder(), list[str]()
    on_disk.before(publishes, lambda: rollbacks.append(Peer(on_disk.inner).roll_back(pending(on_disk.inner))))
    with pytest.raises(CommitUndone) as caught:
        opened(on_disk, told).insert(rows(NEW))
    victim = caught.value.details["instant"]
    assert caught.value.details["rollback"] == rollbacks[0] and len(caught.value.details["gone"]) == 1
    assert "lakelock repair" in caught.value.hint and "hoodie.clean.failed.writes.policy=LAZY" in caught.value.hint
    (alert,) = alerts(told)
    assert victim in alert and rollbacks[0] in alert and "lakelock repair" in alert

    with pytest.raises(CorruptTableError, match=f"{victim}.*was undone by rollback {rollbacks[0]}") as unreadable:
        opened(on_disk).read()
    assert "lakelock repair" in unreadable.value.hint
    with pytest.raises(CorruptTableError, match="was undone"):
        opened(on_disk).coordinator.shown()

    audited = run("audit", path)
    assert audited.code == 4 and victim in audited.out and rollbacks[0] in audited.out
    assert f"next: lakelock repair {path}" in audited.out and "hoodie.write.lock.provider" in audited.out
    (named,) = run("audit", path, "--json").json["undone"]
    assert (named["instant"], named["rollback"], len(named["gone"])) == (victim, rollbacks[0], 1)
    examined = run("doctor", path)
    assert examined.code == 1 and victim in examined.out and f"lakelock repair {path}" in examined.out
    assert "from a backup" not in examined.out


def test_a_repair_takes_the_undone_commit_out_and_the_write_can_run_again(on_disk, path) -> None:
    on_disk.before(publishes, lambda: Peer(on_disk.inner).roll_back(pending(on_disk.inner)))
    with pytest.raises(CommitUndone):
        opened(on_disk).insert(rows(NEW))
    would = run("repair", path, "--dry-run")
    assert "would take out 1 commit: 0 file groups with the older rows again, 1 dropped; nothing was changed" in would.out
    mended = run("repair", path)
    assert (mended.code, "REPAIR" in mended.out, "1 commit taken out" in mended.out) == (0, True, True)
    assert content(opened(on_disk).read()) == OLD
    assert run("audit", path).code == 0 and run("doctor", path).code == 0
    assert "nothing was to be done" in run("repair", path).out
    told = Recorder()
    opened(on_disk, told).insert(rows(NEW))
    assert content(opened(on_disk).read()) == [*OLD, NEW] and alerts(told) == []
    (entry,) = [each for each in opened(on_disk).coordinator.history() if each.operation == "REPAIR"]
    assert entry.action == "replacecommit"


def test_what_comes_after_the_writer_has_returned_is_found_by_the_next_beginning_once(storage, peer) -> None:
    first = opened(storage)
    plans: list[tuple[str, RollbackPlan]] = []
    done = first.insert(rows(NEW))
    peer.begin(instant="")  # of the rollback's writer, whose own write follows
    rollback, plan = peer.plan_rollback(done.instant)
    plans.append((rollback, plan))
    peer.carry_out_rollback(rollback, plan)
    told = Recorder()
    second = opened(storage, told)
    for name in "de":
        second.insert(rows((name, 0, "2")))
    (alert,) = alerts(told)
    assert done.instant in alert and rollback in alert and "1 of its 1 files are gone" in alert
    second.repair()
    told = Recorder()
    opened(storage, told).insert(rows(("f", 0, "2")))
    assert alerts(told) == []
    assert content(opened(storage).read()) == [*OLD, ("d", 0, "2"), ("e", 0, "2"), ("f", 0, "2")]


def test_a_rollback_that_removed_nothing_is_no_reason_to_alarm_anybody(storage, peer) -> None:
    planned: list[tuple[str, RollbackPlan]] = []

    def publish_beside() -> None:
        victim = pending(storage.inner)
        rollback, _ = peer.plan_rollback(victim)
        planned.append((rollback, RollbackPlan(victim, "commit", {})))
        peer.carry_out_rollback(*planned[0])

    storage.before(publishes, publish_beside)
    told = Recorder()
    opened(storage, told).insert(rows(NEW))
    opened(storage, told).insert(rows(("d", 4, "1")))
    assert content(opened(storage).read()) == [*OLD, NEW, ("d", 4, "1")]
    assert alerts(told) == [] and audit(writer(storage).table, 100).undone == []


def test_of_two_rollbacks_the_one_that_removed_files_counts(storage, peer) -> None:
    def roll_back_twice() -> None:
        victim = pending(storage.inner)
        peer.roll_back(victim)
        peer.carry_out_rollback(*peer.plan_rollback(victim))  # it finds nothing any more

    storage.before(publishes, roll_back_twice)
    with pytest.raises(CommitUndone, match="1 of its 1 files are gone"):
        opened(storage).insert(rows(NEW))
    assert len(audit(writer(storage).table, 100).undone) == 1


@pytest.mark.parametrize(
    "write", ["upsert", "delete", "overwrite"], ids=["an upsert", "a delete of a whole file", "an overwrite of a partition"]
)
def test_a_repair_shows_the_rows_from_before_the_undone_write_and_keeps_later_ones(storage, peer, write) -> None:
    does = {
        "upsert": lambda engine: engine.upsert(rows(("a", 10, "1"))),
        "delete": lambda engine: engine.delete(rows(("a", 0, "1"))),
        "overwrite": lambda engine: engine.overwrite_partitions(rows(("x", 9, "1"))),
    }
    storage.before(publishes, lambda: peer.roll_back(pending(storage.inner)))
    engine = opened(storage)
    with pytest.raises(CommitUndone):
        does[write](engine)
    engine.insert(rows(("z", 1, "2")))
    assert engine.repair().dropped == () or write == "overwrite"
    assert content(opened(storage).read()) == [*OLD, ("z", 1, "2")]
    listed = read_snapshot(TableIO(storage.inner), read_timeline(storage.inner))
    assert {f.key for f in listed.files} == {f.key for f in writer(storage).snapshot().files}
    does[write](engine)
    assert content(opened(storage).read()) != [*OLD, ("z", 1, "2")]


@pytest.mark.parametrize("write", ["insert", "upsert"])
def test_a_repair_by_a_process_that_lists_the_files_is_one_for_processes_that_go_by_the_commits(storage, peer, write) -> None:
    """A listing does not show the files that are gone, so a repair that goes by it alone would leave them to a checkpoint."""
    storage.before(publishes, lambda: peer.roll_back(pending(storage.inner)))
    lists = opened(storage, settings=replace(QUICK, checkpoint=CheckpointSettings(every_commits=0)))
    with pytest.raises(CommitUndone):
        getattr(lists, write)(rows(NEW) if write == "insert" else rows(("a", 10, "1"), NEW))
    lists.repair()
    goes_by_commits = opened(storage)
    goes_by_commits.coordinator.table.checkpoint(at_once=True)
    for engine in (lists, goes_by_commits, opened(storage)):
        assert content(engine.read()) == OLD


def test_a_commit_of_two_files_of_which_one_is_left_is_taken_out_as_a_whole(storage, peer) -> None:
    def roll_back_half() -> None:
        rollback, plan = peer.plan_rollback(pending(storage.inner))
        half = {part: names for part, names in plan.files.items() if part == "month=1"}
        peer.carry_out_rollback(rollback, RollbackPlan(plan.target_instant, "commit", half))

    storage.before(publishes, roll_back_half)
    engine = opened(storage)
    with pytest.raises(CommitUndone, match="1 of its 2 files"):
        engine.insert(rows(NEW, ("n", 1, "7")))
    engine.repair()
    assert content(opened(storage).read()) == OLD


def test_a_batch_of_a_stream_that_was_undone_is_applied_again_after_the_repair_and_never_taken_for_applied(
    storage, peer
) -> None:
    batch = AppTransaction("stream", 7)
    storage.before(publishes, lambda: peer.roll_back(pending(storage.inner)))
    with pytest.raises(CommitUndone):
        opened(storage).insert(rows(NEW), application=batch)
    with pytest.raises(CommitUndone, match="was undone"):
        opened(storage).insert(rows(NEW), application=batch)
    opened(storage).repair()
    assert not opened(storage).insert(rows(NEW), application=batch).already_applied
    assert opened(storage).insert(rows(NEW), application=batch).already_applied
    assert content(opened(storage).read()) == [*OLD, NEW]


def test_the_other_half_of_an_overlap_that_comes_after_my_look_is_found_by_the_next_beginning_once(storage, peer) -> None:
    old = next(f for f in opened(storage).coordinator.snapshot().files if not f.file_id.startswith("peer"))
    theirs = peer.begin()
    stat = peer.write(theirs, old.partition, old.file_id)
    mine = opened(storage).upsert(rows(("a", 10, "1")))
    peer.complete(theirs, [stat])
    for told, expected in ((Recorder(), 1), (Recorder(), 0)):
        engine = opened(storage, told)
        for name in "xy":
            engine.insert(rows((name, 0, "2")))
        found = alerts(told)
        assert len(found) == expected and all(theirs in each and mine.instant in each for each in found)


def test_a_missing_file_that_no_rollback_explains_says_what_to_ask_next(storage) -> None:
    engine = opened(storage)
    file = engine.coordinator.snapshot().files[0]
    storage.inner.delete([file.key])
    with pytest.raises(StorageError, match="no such file") as caught:
        engine.read()
    assert "lakelock doctor" in caught.value.hint


def test_a_rollback_of_a_commit_that_is_left_half_done_is_named_and_removed_once_nobody_is_at_work_on_it() -> None:
    """As Java 1.2 leaves it where its rollback fails: then each of its later writes carries it out, or fails, too."""
    runtime = ManualRuntime()
    storage = shared(MemoryStorage(runtime.now_ms))
    peer = Peer(storage.inner)
    told, plans = Recorder(), list[tuple[str, RollbackPlan]]()
    storage.before(publishes, lambda: plans.append(peer.plan_rollback(pending(storage.inner))))
    patient = replace(QUICK, heartbeat=replace(QUICK.heartbeat, tolerable_misses=60))
    engine = opened(storage, told, runtime=runtime, settings=patient)
    engine.insert(rows(NEW))  # its files are there, so it is committed
    assert len(alerts(told)) == 1 and "its files may be removed at any moment" in alerts(told)[0]
    ((rollback, plan),) = plans
    assert [each.instant for each in audit(engine.coordinator.table, 100).undone] == [plan.target_instant]
    assert content(opened(storage).read()) == [*OLD, NEW]

    young = engine.repair()
    assert (young.plans, young.committed) == ((), None)
    runtime.advance(2 * patient.heartbeat.limit_s)
    assert engine.repair().plans == (rollback,)
    assert content(opened(storage).read()) == [*OLD, NEW] and audit(engine.coordinator.table, 100).undone == []


def test_the_next_beginning_finds_an_unfinished_rollback_of_a_commit_although_no_other_engine_was_ever_met() -> None:
    new_table(storage := MemoryStorage())
    done = ArrowEngine(writer(storage)).insert(rows(NEW))
    Peer(storage).plan_rollback(done.instant)
    told = Recorder()
    opened(storage, told).insert(rows(("d", 4, "1")))
    assert [done.instant in each for each in alerts(told)] == [True]


def test_upkeep_names_what_was_undone_and_archives_nothing_of_it_before_the_repair(storage, peer) -> None:
    storage.before(publishes, lambda: peer.roll_back(pending(storage.inner)))
    engine = opened(storage)
    with pytest.raises(CommitUndone) as caught:
        engine.insert(rows(NEW))
    for number in range(6):
        engine.insert(rows((f"k{number}", 0, "2")))
    eager = replace(
        QUICK,
        archive=ArchiveSettings(min_commits=2, max_commits=3, min_age_s=0.0),
        clean=CleanSettings(keep_commits=1, readers_s=0.0),
        checkpoint=CheckpointSettings(every_commits=0),
    )
    keeper = writer(storage, eager)
    done = keeper.upkeep()
    victim = caught.value.details["instant"]
    assert any(victim in problem and "lakelock repair" in problem for problem in done.problems)
    assert victim in done.archived.held_by and "undone" in done.archived.held_by
    engine.repair()
    after = keeper.upkeep()
    assert not any("undone" in problem for problem in after.problems) and "undone" not in after.archived.held_by


def undone_insert(storage: Meddled, peer: Peer) -> str:
    """The instant of an insert that was undone while it was published."""
    storage.before(publishes, lambda: peer.roll_back(pending(storage.inner)))
    with pytest.raises(CommitUndone) as caught:
        opened(storage).insert(rows(NEW))
    return str(caught.value.details["instant"])


def test_upkeep_removes_files_of_late_tasks_whose_markers_the_rollback_took_away_and_no_others(storage, peer) -> None:
    victim = undone_insert(storage, peer)
    kept = {file.key for file in writer(storage).snapshot().files}
    late = [DataFile(partition, "f-0", "0-9-9", victim).key for partition in ("month=1", "month=2")]
    elsewhere = DataFile("month=1", "f-0", "0-9-9", earlier(victim)).key
    for key in (*late, elsewhere):
        storage.inner.put(key, b"rows")
    told = Recorder()
    keeper = writer(storage, listener=told)
    keeper.upkeep(dry_run=True)
    assert storage.inner.get(late[0]) is not None
    keeper.upkeep()
    assert storage.inner.get(late[0]) is None, "the commit wrote into month 1 only"
    assert storage.inner.get(elsewhere) is not None
    assert any(victim == e.instant and "killed late" in str(e.facts.get("problem")) for e in told.events)
    assert kept - {key for key in kept if victim in key} <= {item.key for item in storage.inner.list("")}


def test_upkeep_looks_for_late_files_of_an_undone_commit_only_as_long_as_a_task_may_write_them(storage, peer) -> None:
    victim = undone_insert(storage, peer)
    noted, runtime = Noted(storage.inner), ManualRuntime(start_ms=parse_instant(victim) + 60_000)
    keeper = writer(noted, runtime=runtime)
    looks = []
    for _ in range(3):
        noted.noted.clear()
        keeper.upkeep()
        looks.append(noted.noted.count(("list", "month=1")))
        runtime.advance(keeper.table.settings.heartbeat.limit_s)
    assert looks[0] == looks[1] == looks[2] + 1


def test_an_undone_commit_is_still_committed_once_it_is_archived(storage, peer) -> None:
    victim = undone_insert(storage, peer)
    engine = opened(storage)
    engine.repair()
    for number in range(6):
        engine.insert(rows((f"k{number}", 0, "2")))
    eager = replace(
        QUICK,
        archive=ArchiveSettings(min_commits=7, max_commits=8, min_age_s=0.0),
        clean=CleanSettings(keep_commits=1, readers_s=0.0),
        checkpoint=CheckpointSettings(every_commits=0),
    )
    keeper = writer(storage, eager)
    timeline = keeper.table.timeline()
    assert timeline.state_of(victim) is not None and keeper.outcome(victim) is Outcome.COMMITTED
    keeper.upkeep()
    after = keeper.table.timeline()
    assert after.state_of(victim) is None and after.rollbacks, "the rollback of it is still there"
    assert keeper.outcome(victim) is Outcome.COMMITTED
