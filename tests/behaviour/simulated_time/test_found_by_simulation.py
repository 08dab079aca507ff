"""Bugs that the simulator found, each as small as it can be shown. What it runs is in `tests/simulation`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from tests.api import (
    Action,
    AppTransaction,
    Coordinator,
    FileGroupId,
    Outcome,
    StorageLocation,
    TableProperties,
    WriteRequest,
    format_instant,
    layout,
    read_timeline,
)
from tests.behaviour.simulated_time.writers import AnswersInAnyOrder, commit, writer
from tests.behaviour.tables import QUICK, Recorder, put_file
from tests.faulty_storage import FaultyStorage, Rule, Wrapped

from lakelock.errors import (
    CommitOutcomeUnknown,
    InputError,
    ProviderUnavailable,
    RolledBackError,
    StorageUnavailable,
)
from lakelock.markers.claims import Claim
from lakelock.markers.heartbeat import HeartbeatRecord
from lakelock.occ import retry
from lakelock.occ.begin import requested_key
from lakelock.occ.metadata_table import KeptMetadata
from lakelock.occ.recovery import STALE_PROBE_S, reap
from lakelock.occ.request import resources_of
from lakelock.occ.transaction import TransactionState
from lakelock.table.metadata_table import GoneMeanwhile
from lakelock.table.properties import read_properties
from lakelock.testing import ManualRuntime


def test_two_actions_never_share_an_instant(storage, runtime):
    """The requested files of two actions do not collide, and the heartbeat of a finished writer reserves nothing."""
    with writer(storage, runtime).begin("INSERT_OVERWRITE") as tx:
        tx.overwrites(["month=1"])
        done = tx.commit([put_file(tx, storage, "month=1", "a")])
    slower = ManualRuntime(seed=1)
    slower.skew_ms = runtime.now_ms() - slower.now_ms()
    assert slower.now_ms() == runtime.now_ms()
    with writer(storage, slower).begin("INSERT") as tx:
        assert tx.instant > done.instant


def test_an_instant_that_was_rolled_back_is_not_taken_again(storage, runtime):
    """A writer with an old clock comes to the same millisecond, from which everything has been removed."""
    tx = writer(storage, runtime).begin("INSERT")
    slower = ManualRuntime(seed=1)
    slower.skew_ms = runtime.now_ms() - slower.now_ms()
    runtime.stop_repeating()
    runtime.advance(30)
    writer(storage, runtime).reap()
    assert [i for i in read_timeline(storage).instants if i.requested == tx.instant] == []
    with writer(storage, slower).begin("INSERT") as again:
        assert again.instant > tx.instant


def test_a_slow_clock_does_not_make_a_rollback_older_than_what_it_rolled_back(storage, runtime):
    """The next one whose clock comes to that time takes another: a later rollback is in its timeline."""
    ahead = ManualRuntime(seed=1)
    ahead.skew_ms = 3_600_000
    tx = writer(storage, ahead).begin("INSERT")
    ahead.stop_repeating()
    runtime.advance(30)
    writer(storage, runtime).reap()
    (rollback,) = read_timeline(storage).rollbacks
    assert rollback.requested > tx.instant
    again = ManualRuntime(seed=2)
    again.skew_ms = int(ahead.now_ms() - again.now_ms())
    with writer(storage, again).begin("INSERT") as other:
        assert other.instant > tx.instant


def test_a_rollback_whose_writer_died_before_it_was_recorded_is_recorded_by_the_next(storage, runtime):
    tx = writer(storage, runtime).begin("INSERT")
    runtime.stop_repeating()
    storage.delete([requested_key(tx.instant, Action.COMMIT)])
    assert storage.get(layout.heartbeat(tx.instant)) is not None, "it goes last"
    runtime.advance(30)
    writer(storage, runtime).reap()
    (rollback,) = read_timeline(storage).rollbacks
    assert rollback.is_completed and rollback.requested > tx.instant
    assert storage.get(layout.heartbeat(tx.instant)) is None
    assert writer(storage, runtime).reap() == [] and len(read_timeline(storage).rollbacks) == 1


def test_an_instant_whose_pending_file_goes_while_it_is_reaped_is_not_taken_again(storage, runtime):
    """Its writer heard nothing of that deletion, and gave up; it was carried out after the reaper had listed the timeline."""
    tx, reaper = writer(storage, runtime).begin("INSERT"), writer(storage, runtime)
    slower = ManualRuntime(seed=1)
    slower.skew_ms = runtime.now_ms() - slower.now_ms()
    runtime.stop_repeating()
    runtime.advance(30)
    before = reaper.table.timeline()
    storage.delete([requested_key(tx.instant, Action.COMMIT)])
    reap(reaper.table, before)
    reaper.reap()
    (rollback,) = read_timeline(storage).rollbacks
    assert rollback.is_completed and storage.get(layout.heartbeat(tx.instant)) is None
    with writer(storage, slower).begin("INSERT") as again:
        assert again.instant > tx.instant


def test_a_lock_that_cannot_be_had_is_waited_for_once_however_many_writers_died(storage, runtime, monkeypatch):
    """Each begin reaps first: with a silent lock service it would take a whole wait for each of the dead."""
    for _ in range(3):
        writer(storage, runtime).begin("INSERT")
    runtime.stop_repeating()
    runtime.advance(30)
    reaper, asked = writer(storage, runtime), []

    def silent(*, wait_s):
        asked.append(wait_s)
        raise ProviderUnavailable("no answer", hint="run again")

    with monkeypatch.context() as patched:
        patched.setattr(reaper.table.provider, "acquire", silent)
        assert reaper.reap() == [] and len(asked) == 1
    assert len(reaper.reap()) == 3


def test_a_writer_that_loses_its_heartbeat_while_it_reaps_leaves_the_rest_of_the_dead(storage, runtime, monkeypatch):
    """Its attempt is lost, and it would reap for minutes before it finds that out."""
    for _ in range(3):
        writer(storage, runtime).begin("INSERT")
    runtime.stop_repeating()
    runtime.advance(30)
    late = writer(storage, runtime)
    acquire = late.table.provider.acquire

    def slow(*, wait_s):
        runtime.stop_repeating()
        runtime.advance(30)
        return acquire(wait_s=wait_s)

    with monkeypatch.context() as patched:
        patched.setattr(late.table.provider, "acquire", slow)
        tx = late.begin("INSERT")
    assert len(read_timeline(storage).rollbacks) == 1
    with pytest.raises(RolledBackError, match="no heartbeat"):
        tx.commit([])
    assert len(writer(storage, runtime).reap()) == 2


@pytest.mark.parametrize("stood_still_s", [0, 30])
def test_a_file_that_others_have_removed_from_the_metadata_table_since_it_was_listed_is_no_damage(
    storage, runtime, monkeypatch, stood_still_s
):
    """The writer stood still, or its lock excludes no one: the attempt is lost, and the table is healthy."""
    tx = writer(storage, runtime).begin("INSERT")
    files = [put_file(tx, storage, "month=1", "a")]

    def overtaken(*_):
        runtime.stop_repeating()
        runtime.advance(stood_still_s)
        raise GoneMeanwhile("others have removed a file since it was listed", file="a")

    monkeypatch.setattr(KeptMetadata, "look", overtaken)
    with pytest.raises(RolledBackError, match="no heartbeat" if stood_still_s else "removed a file since"):
        tx.commit(files)


def test_a_batch_that_a_twin_committed_before_the_baseline_is_not_applied_again(storage, runtime):
    batch = AppTransaction("query", 1)
    one, other = writer(storage, runtime), writer(storage, runtime)
    begin, applied = one.begin, []

    def work(tx):
        applied.append(tx.instant)
        return tx.commit([put_file(tx, storage, "month=1", f"f{len(applied)}")])

    def begin_late(*args, **options):
        one.begin = begin
        retry.with_retries(other, WriteRequest("INSERT", application=batch), work)
        return begin(*args, **options)

    one.begin = begin_late
    result = retry.with_retries(one, WriteRequest("INSERT", application=batch), work)
    assert result.already_applied and result.instant == applied[0]
    assert len(applied) == 1


def test_a_pending_instant_of_a_fast_clock_shows_no_files_of_a_beginner(storage, runtime):
    ahead = ManualRuntime(seed=1)
    ahead.skew_ms = 3_600_000
    fast = writer(storage, ahead).begin("INSERT")
    reader = read_timeline(storage)
    with writer(storage, runtime).begin("INSERT") as tx:
        put_file(tx, storage, "month=1", "a")
        assert tx.instant < fast.instant
        assert not reader.is_visible(tx.instant)


def test_a_reaper_with_an_old_timeline_withdraws_nobody_without_a_decision(storage, runtime):
    reaper, old = writer(storage, runtime), read_timeline(storage)
    tx = writer(storage, runtime).begin("INSERT")
    put_file(tx, storage, "month=1", "a")
    runtime.stop_repeating()
    runtime.advance(30)
    (reaped,) = reap(reaper.table, old)
    assert reaped.outcome.value == "rolled back"
    assert [d.instant for d in reaper.table.log.peek(after=0)] == [tx.instant]
    assert tx.instant not in [i.requested for i in read_timeline(storage).pending]


def test_what_a_writer_commits_that_stood_still_as_it_began_is_not_removed_by_a_reaper_that_stood_still_then(storage, runtime):
    """Both go on after the reaper has looked at the timeline, which does not show the instant yet."""
    instant, ran = format_instant(runtime.now_ms() + 30_000), []
    other = writer(storage, runtime).table.writer
    record = HeartbeatRecord(instant, other, "INSERT", first=0, interval_s=1.0, tolerable_misses=2)
    storage.put(layout.heartbeat(instant), record.to_bytes())
    runtime.advance(30)

    def goes_on() -> None:
        if not ran:
            storage.delete([layout.heartbeat(instant)])
            with writer(storage, runtime).begin("INSERT") as tx:
                ran.append(tx.instant)
                tx.commit([put_file(tx, storage, "month=1", "a")])

    between = [Rule(op="put_if_absent", fault=None, meanwhile=goes_on)]
    between += [Rule(op="list", key=f"*{instant}", fault=None, meanwhile=goes_on)]
    writer(FaultyStorage(storage, between), runtime).reap()
    assert ran == [instant]
    assert [file.file_id for file in writer(storage, runtime).snapshot().files] == ["a"]
    assert [key for file in writer(storage, runtime).snapshot().files if storage.get(key := file.key) is None] == []


def test_an_instant_that_was_rolled_back_as_its_writer_stood_still_is_not_used_with_a_heartbeat_begun_anew(storage, runtime):
    """Its heartbeat is out, and it looks at the log only after others have committed much, and taken it for dead."""
    few = replace(QUICK, decisions=replace(QUICK.decisions, collect_above=2))
    commit(storage, runtime, "first")
    mine, slow, begun = AnswersInAnyOrder(), FaultyStorage(storage), list[str]()
    coordinator = writer(slow, mine, few)
    coordinator.begin("INSERT").abort("it has met the log now")
    mine.advance(60)  # or it would begin again anyway, as others commit instants that are later than its own

    def others() -> None:
        (heartbeat,) = storage.list(layout.HEARTBEATS)
        begun.append(heartbeat.key.rpartition("/")[2])
        for name in "abc":
            commit(storage, runtime, name)
        mine.stop_repeating()
        for clock in (mine, runtime):
            clock.advance(30)
        stands_still = FaultyStorage(storage, [Rule(op="put_if_absent", key="*.rollback.requested")])
        with suppress(StorageUnavailable):
            writer(stands_still, runtime).reap()
        assert writer(storage, runtime).table.log.peek(after=0)[-1].instant == begun[0]

    slow.plan = [Rule(op="list", key=f"{layout.DECISIONS}*", fault=None, meanwhile=others)]
    with coordinator.begin("INSERT") as tx:
        tx.commit([put_file(tx, storage, "month=1", "mine")])
    assert tx.instant != begun[0]
    assert [d.kind.value for d in coordinator.table.log.peek(after=0) if d.instant == begun[0]] == ["rollback"]


def test_what_is_written_after_a_rollback_is_removed_by_its_writer(storage, runtime):
    """A paused writer is rolled back, its markers with it; the file that it then writes has none."""
    tx = writer(storage, runtime).begin("INSERT")
    tx.write_context()
    runtime.stop_repeating()
    runtime.advance(30)
    writer(storage, runtime).reap()
    key = f"month=1/late_0-0-0_{tx.instant}.parquet"
    with storage.open_output(key) as output:
        output.write(b"rows")
    put_file(tx, storage, "month=2", "marked")
    tx.abort("woke up")
    assert storage.get(key) is None


def test_late_claims_and_probes_are_swept(storage, runtime):
    coordinator = writer(storage, runtime)
    with coordinator.begin("INSERT") as tx:
        done = tx.commit([put_file(tx, storage, "month=1", "a")])
    claim = layout.claim(FileGroupId("month=1", "a"))
    storage.put(claim, Claim(done.instant, coordinator.table.writer, "INSERT").to_bytes())
    storage.put(layout.probe("left"), b"")
    coordinator.reap()
    assert storage.get(claim) is None
    assert storage.get(layout.probe("left")) is not None, "somebody may be using it"
    runtime.advance(STALE_PROBE_S + 1)
    coordinator.reap()
    assert storage.get(layout.probe("left")) is None


class Swallowing(Wrapped):
    """The first decision arrives, is published and collected by others, and neither reply nor read-back comes through."""

    def __init__(self, inner, meanwhile) -> None:
        super().__init__(inner)
        self.meanwhile, self.lost = meanwhile, 4

    def carry(self, op, key, request, *, weight=1):
        if key.startswith(layout.DECISIONS + "/") and self.lost:
            self.lost -= 1
            if op == "put_if_absent":
                request()
            if not self.lost:
                self.meanwhile()
            raise StorageUnavailable("no answer", hint="")
        return request()


def test_a_withdrawal_after_a_collection_means_nothing(storage, runtime):
    """Found by the exhaustive model: told rejected, although others had published and collected the commit."""
    settings = replace(QUICK, concurrency=replace(QUICK.concurrency, mode="SINGLE_WRITER"))

    swallowing = Swallowing(storage, lambda: published_and_collected(storage, runtime, settings))
    tx = writer(swallowing, runtime, settings).begin("INSERT")
    done = tx.commit([put_file(tx, swallowing, "month=1", "a")])
    assert done.instant == tx.instant
    assert tx.instant in read_timeline(storage).completed_instants


def published_and_collected(storage, runtime, settings) -> None:
    """What others do while a writer waits for an answer to its decision."""
    other = writer(storage, runtime, settings)
    with other.begin("INSERT") as tx:
        tx.commit([put_file(tx, storage, "month=2", "b")])
    runtime.stop_repeating()
    runtime.advance(30)
    other.collect()
    assert other.table.log.boundary() == 1


def test_a_commit_without_an_answer_stands_although_the_properties_changed_since(storage, runtime):
    """Told as a conflict over the properties, although others had published and collected the commit."""
    settings = replace(QUICK, concurrency=replace(QUICK.concurrency, mode="SINGLE_WRITER"))

    def meanwhile() -> None:
        published_and_collected(storage, runtime, settings)
        properties = storage.get(layout.PROPERTIES)
        found = TableProperties.parse(properties.data)
        changed = replace(found, values={**found.values, "hoodie.table.precombine.field": "v"})
        storage.put(layout.PROPERTIES, changed.serialize(runtime.now_ms()))
        assert found.differences(read_properties(storage))

    swallowing = Swallowing(storage, meanwhile)
    tx = writer(swallowing, runtime, settings).begin("INSERT")
    done = tx.commit([put_file(tx, swallowing, "month=1", "a")])
    assert done.instant == tx.instant


def test_giving_up_what_another_process_of_the_job_has_committed_is_not_called_rejected(storage, runtime):
    """As Spark does when the answer to a commit was lost: it lets another process abort."""
    heard = Recorder()
    begun = writer(storage, runtime).begin("INSERT")
    stats = [put_file(begun, storage, "month=1", "a")]
    moved = begun.detach()
    swallowing = Swallowing(storage, lambda: None)
    swallowing.lost = 12
    with pytest.raises(CommitOutcomeUnknown):
        writer(swallowing, runtime).adopt(moved).commit(stats)
    last = Coordinator.open(StorageLocation(storage.uri), QUICK, runtime=runtime, storage=storage, listeners=[heard])
    tx = last.adopt(moved)
    tx.abort("the job failed")
    assert tx.state is TransactionState.COMMITTED and heard.kinds()[-1] == "committed" and "rejected" not in heard.kinds()
    assert [file.instant for file in last.snapshot().files] == [tx.instant]


def test_an_adopted_transaction_that_never_came_to_decide_is_rejected_and_not_unknown(storage, runtime):
    begun = writer(storage, runtime).begin("INSERT")
    stats = [put_file(begun, storage, "month=1", "a")]
    coordinator = writer(storage, runtime)
    tx = coordinator.adopt(begun.detach())
    tx.keep_within(resources_of("month=2", coordinator.properties))
    with pytest.raises(InputError, match="month=1"):
        tx.commit(stats)
    assert coordinator.outcome(tx.instant) is Outcome.REJECTED and storage.get(stats[0].path) is None


@pytest.mark.parametrize(("before", "dies"), [("marker", False), ("heartbeat", False), ("marker", True)])
def test_a_job_whose_heartbeat_was_lost_removes_what_its_tasks_wrote_while_others_rolled_it_back(
    storage, runtime, before, dies
):
    """A task's file comes after others have looked for it, and `before` they remove what is named: its marker is no help."""
    begun = writer(storage, runtime).begin("INSERT")
    late = put_file(begun, storage, "month=1", "a").path
    content = storage.get(late).data
    detached = begun.detach()
    goes_on = layout.TEMP if before == "marker" else layout.heartbeat(detached.baseline.instant)

    class Reaping(Wrapped):
        """The storage of whoever rolls it back, and may die over it."""

        dead = False

        def carry(self, op, key, request, *, weight=1):
            if self.dead:
                raise StorageUnavailable("the process was killed")
            if op == "delete" and key.startswith(goes_on):
                storage.put(late, content)
                with pytest.raises(RolledBackError):
                    writer(storage, runtime).adopt(detached)
                self.dead = dies
            return super().carry(op, key, request, weight=weight)

    runtime.advance(30)
    with suppress(StorageUnavailable):
        writer(Reaping(storage), runtime).reap()
    assert storage.get(late) is not None
    assert writer(storage, runtime).abandon(detached, "the job failed") is TransactionState.REJECTED
    assert storage.get(late) is None and list(storage.list(layout.TEMP)) == []
    assert list(storage.list(layout.HEARTBEATS)) == []


def test_a_file_that_a_rolled_back_writer_wrote_on_is_not_taken_for_archived(storage, runtime):
    """Its instant is older than every commit, as that of an archived one would be; but nothing was archived here."""
    tx = writer(storage, runtime).begin("INSERT")
    tx.write_context()
    runtime.stop_repeating()
    runtime.advance(30)
    with writer(storage, runtime).begin("INSERT") as other:
        done = other.commit([put_file(other, storage, "month=1", "a")])
    assert tx.instant < done.instant
    with storage.open_output(f"month=1/late_0-0-0_{tx.instant}.parquet") as output:
        output.write(b"rows")
    assert [file.instant for file in writer(storage, runtime).snapshot().files] == [done.instant]


class Interrupted(Wrapped):
    """Once, just before the first request of this kind for this key, something else happens."""

    def __init__(self, inner, op, key, happens) -> None:
        super().__init__(inner)
        self.op, self.key, self.happens = op, key, happens

    def carry(self, op, key, request, *, weight=1):
        if (op, key) == (self.op, self.key) and self.happens is not None:
            happens, self.happens, self.resume = self.happens, None, request
            happens()
        return request()


def test_a_record_that_arrived_under_a_collected_number_is_not_taken_for_the_one_that_was_listed(storage, runtime):
    """A reaper lists the log and stands still; the number is collected, and a commit that was under way for long gets it."""
    first = layout.decision(1)
    others = [writer(storage, runtime).begin("INSERT") for _ in range(2)]

    def others_go_on() -> None:
        lock = writer(storage, runtime).table.provider
        lock.break_lock(lock.inspect().token, force=True)
        for number, other in enumerate(others):
            other.commit([put_file(other, storage, "month=2", f"f{number}")])
        runtime.stop_repeating()
        runtime.advance(30)
        writer(reading, runtime).reap()

    def collected_and_used_again() -> None:
        assert writer(storage, runtime).collect() == 1
        slow.resume()
        assert tx.instant.encode() in storage.get(first).data

    slow = Interrupted(storage, "put_if_absent", first, others_go_on)
    reading = Interrupted(storage, "get", first, collected_and_used_again)
    tx = writer(slow, runtime).begin("INSERT")
    with pytest.raises(RolledBackError):
        tx.commit([put_file(tx, slow, "month=1", "a")])
    assert reading.happens is None
    assert tx.instant not in read_timeline(storage).completed_instants


class SentTwice(Wrapped):
    """A client that, once armed, sends the next heartbeat twice and reports the second answer: there is one already."""

    armed = False

    def carry(self, op, key, request, *, weight=1):
        if self.armed and op == "put_if_absent" and key.startswith(layout.HEARTBEATS):
            self.armed = False
            request()
        return request()


def test_a_rollback_is_recorded_although_its_time_seems_to_be_taken(storage, runtime):
    """Otherwise nothing would keep a writer with an old clock from the instant that was given up."""
    retrying_client = SentTwice(storage)
    coordinator = writer(retrying_client, runtime)
    tx = coordinator.begin("INSERT")
    coordinator.table.observed.met_foreign()
    retrying_client.armed = True
    tx.abort()
    assert not retrying_client.armed
    (rollback,) = read_timeline(storage).rollbacks
    assert rollback.is_completed and rollback.requested > tx.instant
