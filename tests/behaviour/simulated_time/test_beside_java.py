"""lakelock keeps out of the way of Java's own rollbacks and cleanings, each of which goes on without the lock."""

from __future__ import annotations

import pytest
from tests.api import Action, ConflictRule, EventKind, MemoryStorage, RollbackPlan, format_instant, layout, read_timeline
from tests.behaviour.foreign import Peer
from tests.behaviour.simulated_time.writers import writer
from tests.behaviour.tables import QUICK, new_table, put_file
from tests.faulty_storage import Wrapped

from lakelock.errors import ConflictError, CorruptTableError
from lakelock.occ.begin import inflight_key
from lakelock.occ.recovery import reap
from lakelock.occ.rollback import RollbackOutcome

LIMIT_S = QUICK.heartbeat.interval_s * QUICK.heartbeat.tolerable_misses


@pytest.fixture
def peer(storage, runtime):
    made = Peer(storage)
    made.commit("month=1", "a")
    runtime.advance(1)
    return made


def states(storage, instant):
    return read_timeline(storage).state_of(instant)


def test_a_dead_java_writer_is_left_to_java_for_a_while_unless_somebody_asks(storage, runtime, peer):
    dead = peer.begin()
    storage.put(layout.heartbeat(dead), b"")
    coordinator = writer(storage, runtime)
    runtime.advance(LIMIT_S + 3)
    assert reap(coordinator.table) == []
    with coordinator.begin("INSERT") as tx:
        tx.commit([put_file(tx, storage, "month=1", "b")])
    assert states(storage, dead) is not None
    runtime.advance(QUICK.heartbeat.foreign_patience * LIMIT_S)
    (reaped,) = reap(coordinator.table)
    assert (reaped.instant, reaped.outcome) == (dead, RollbackOutcome.ROLLED_BACK)
    another = peer.begin()
    runtime.advance(LIMIT_S + 3)
    assert [r.instant for r in coordinator.reap()] == [another]


def test_a_rollback_that_java_is_at_is_left_to_java_until_it_has_died_over_it(storage, runtime, peer):
    dead = peer.begin()
    runtime.advance(100 * LIMIT_S)
    rollback = peer.begin(Action.ROLLBACK, plan=RollbackPlan(dead, "commit", {}).to_bytes())
    storage.put(layout.heartbeat(rollback), b"")
    coordinator = writer(storage, runtime)
    assert coordinator.reap() == []
    assert states(storage, dead) is not None
    runtime.advance((QUICK.heartbeat.foreign_patience + 1) * LIMIT_S)
    coordinator.reap()
    assert states(storage, dead) is None
    coordinator.reap()
    assert all(r.is_completed for r in read_timeline(storage).rollbacks)
    assert list(storage.list(layout.HEARTBEATS)) == []


def test_a_rollback_whose_target_is_gone_is_not_completed_while_java_is_at_it(storage, runtime, peer):
    rollback = peer.begin(Action.ROLLBACK, plan=RollbackPlan("20200101000000000", "commit", {}).to_bytes())
    runtime.advance(2 * LIMIT_S)
    storage.put(layout.heartbeat(rollback), b"")
    coordinator = writer(storage, runtime)
    coordinator.reap()
    assert not read_timeline(storage).rollbacks[0].is_completed
    storage.delete([layout.heartbeat(rollback)])
    coordinator.reap()
    assert read_timeline(storage).rollbacks[0].is_completed


class Watched(Wrapped):
    """Notes whether each record of a rollback that is not complete has a heartbeat."""

    def __init__(self, inner):
        super().__init__(inner)
        self.seen = []

    def put_if_absent(self, key, data, *, durable=True):
        if ".rollback." in key:
            instant = layout.split_path(key)[1].partition(".")[0]
            self.seen.append(self.inner.get(layout.heartbeat(instant)) is not None)
        return super().put_if_absent(key, data, durable=durable)


def test_beside_another_engine_a_rollback_has_a_heartbeat_until_it_is_recorded(storage, runtime, peer):
    watched = Watched(storage)
    coordinator = writer(watched, runtime)
    coordinator.begin("INSERT").abort()
    assert watched.seen == [True, True]
    assert list(storage.list(layout.HEARTBEATS)) == []


@pytest.mark.parametrize("ends", [True, False], ids=["of lakelock, which ends", "of Java, which goes on"])
def test_only_a_writer_that_is_still_pending_without_a_heartbeat_is_another_engines(storage, runtime, ends):
    """Heartbeats are listed after the timeline, and one that is missing may have ended in between."""
    other = writer(storage, runtime).begin("INSERT") if ends else None
    if other is None:
        Peer(storage).begin(Action.COMMIT)

    def end(event):
        if event.kind is EventKind.BEGAN and other is not None:
            other.commit([put_file(other, storage, "month=1", "b")])

    mine = writer(storage, runtime, QUICK, end)
    mine.begin("INSERT").abort()
    assert mine.table.observed.foreign_writers is not ends


def test_alone_a_rollback_has_no_heartbeat(storage, runtime):
    watched = Watched(storage)
    writer(watched, runtime).begin("INSERT").abort()
    assert watched.seen == [False, False]


@pytest.mark.parametrize("planned", ["before", "after"])
@pytest.mark.parametrize("done", [False, True])
def test_a_cleaner_that_removes_the_folder_i_write_into_rejects_me(storage, runtime, peer, planned, done):
    instant = peer.plan_cleaning("month=2") if planned == "before" else ""
    tx = writer(storage, runtime).begin("INSERT")
    stats = [put_file(tx, storage, "month=2", "b")]
    instant = instant or peer.plan_cleaning("month=2")
    if done:
        peer.clean(instant)
    with pytest.raises(ConflictError, match="removes the folder of this partition") as caught:
        tx.commit(stats)
    assert (caught.value.conflict.rule, caught.value.conflict.retry_helps) == (ConflictRule.PENDING_TABLE_SERVICE, True)
    assert caught.value.conflict.other.instant == instant


def test_cleaning_of_other_partitions_and_cleaning_that_is_over_reject_nobody(storage, runtime, peer):
    peer.clean(peer.plan_cleaning("month=2"))
    coordinator = writer(storage, runtime)
    with coordinator.begin("INSERT") as tx:
        stats = [put_file(tx, storage, "month=2", "b")]
        peer.plan_cleaning("month=3", "")
        tx.commit(stats)


class FilledLater(Wrapped):
    """A storage in which the first looks at the timeline find a commit that its writer has created and not written yet."""

    def __init__(self, inner, key, data, looks):
        super().__init__(inner)
        self.key, self.data, self.left = key, data, looks
        inner.put(key, b"")

    def list(self, prefix, *, start_after=""):
        if prefix == layout.TIMELINE:
            self.left -= 1
            if self.left == 0:
                self.inner.put(self.key, self.data)
        return super().list(prefix, start_after=start_after)


def test_a_commit_that_java_is_just_writing_is_not_taken_for_a_torn_one(storage, runtime, peer):
    (commit,) = read_timeline(storage).commits
    key = layout.timeline(commit.file_name)
    stored = storage.get(key)
    assert stored is not None
    slow = FilledLater(storage, key, stored.data, looks=3)
    assert writer(slow, runtime).table.timeline().commits == (commit,)
    storage.put(key, b"")
    with pytest.raises(CorruptTableError, match="torn"):
        writer(storage, runtime).table.timeline()


def rewrite(storage, runtime, coordinator=None):
    """Begin to rewrite a file group on a table where another engine was met."""
    coordinator = coordinator or writer(storage, runtime)
    coordinator.table.observed.met_foreign()
    tx = coordinator.begin("UPSERT")
    return tx, [put_file(tx, storage, "month=1", "a")]


def started(storage, runtime, peer):
    """A live Java writer that has its instant and has not looked at the table yet."""
    instant = peer.begin(instant=format_instant(runtime.now_ms()))
    storage.put(layout.heartbeat(instant), b"")
    runtime.advance(0.2)
    return instant


def took_s(runtime, commit):
    began_s = runtime.monotonic_s()
    commit()
    return runtime.monotonic_s() - began_s


def test_a_rewrite_lets_java_look_at_the_table_when_it_has_an_earlier_instant(storage, runtime, peer):
    started(storage, runtime, peer)
    tx, stats = rewrite(storage, runtime)
    waited_s = took_s(runtime, lambda: tx.commit(stats))
    assert QUICK.heartbeat.foreign_start_s - 0.3 <= waited_s < QUICK.heartbeat.foreign_start_s + 1


def test_new_rows_let_java_look_too_on_a_table_where_it_was_never_met(storage, runtime):
    """Java would update them in their new file group, by a slice that is older than theirs."""
    new_table(alone := MemoryStorage(runtime.now_ms))
    started(alone, runtime, Peer(alone))
    with writer(alone, runtime).begin("INSERT") as tx:
        stats = [put_file(tx, alone, "month=1", "new")]
        waited_s = took_s(runtime, lambda: tx.commit(stats))
    assert QUICK.heartbeat.foreign_start_s - 0.3 <= waited_s < QUICK.heartbeat.foreign_start_s + 1


def test_a_look_under_the_lock_sees_the_java_writer_that_had_it_before(storage, runtime, peer, monkeypatch):
    """Java takes its time and shows it while it holds the lock: any look before I have the lock may be too early."""
    instant = format_instant(runtime.now_ms())
    runtime.advance(0.2)
    mine = writer(storage, runtime)
    tx, stats = rewrite(storage, runtime, mine)
    lock, held = mine.table.provider, []
    acquire, release = lock.acquire, lock.release

    def acquire_after_java(**how):
        if not held:
            peer.begin(instant=instant)
            storage.put(layout.heartbeat(instant), b"")
        held.append(acquire(**how))
        return held[-1]

    def release_before_java_looks(lease):
        release(lease)
        storage.put(inflight_key(instant, Action.COMMIT), b"")

    monkeypatch.setattr(lock, "acquire", acquire_after_java)
    monkeypatch.setattr(lock, "release", release_before_java_looks)
    assert took_s(runtime, lambda: tx.commit(stats)) < 1
    assert len(held) == 2


def test_a_rewrite_does_not_wait_for_java_that_is_inflight(storage, runtime, peer):
    instant = started(storage, runtime, peer)
    tx, stats = rewrite(storage, runtime)
    storage.put(inflight_key(instant, Action.COMMIT), b"")
    assert took_s(runtime, lambda: tx.commit(stats)) < 1


def test_a_rewrite_does_not_wait_for_java_that_has_been_at_it_for_long(storage, runtime, peer):
    started(storage, runtime, peer)
    runtime.advance(QUICK.heartbeat.foreign_start_s)
    tx, stats = rewrite(storage, runtime)
    assert took_s(runtime, lambda: tx.commit(stats)) < 1
