"""What a transaction asks of storage: few requests, and as many however long the history is and however many others write."""

from __future__ import annotations

import pytest
from tests.api import AppTransaction, Coordinator, EventKind, FileGroupId, MemoryStorage, WriterIdentity, layout, with_retries
from tests.behaviour.tables import Recorder, insert, memory_table, new_file, new_table, put_file, writer
from tests.behaviour.upkeep.upkeep_tables import AgingTable
from tests.faulty_storage import CountingStorage, Fault, FaultyStorage, PagedStorage, Rule
from tests.tuning import settings_of

from lakelock.errors import ConflictError, EarlyConflictError, StorageUnavailable
from lakelock.markers.claims import Claim
from lakelock.occ.change_feed import TableStream
from lakelock.occ.log import Decision, DecisionKind, DecisionLog
from lakelock.occ.retry import wait_for
from lakelock.settings import Settings
from lakelock.settings.sections import ListingSettings
from lakelock.testing.runtime import ManualRuntime

IN_2030_MS = 1_900_000_000_000
LIMIT = 24
OF_A_TASK = 2  # marker, metadata of the partition


def counted_insert(storage: CountingStorage, coordinator, file_id: str) -> int:
    # Without this pause the memory is so quick that the timeline's times run ahead of the clock, and begin has to catch up.
    coordinator.table.runtime.sleep(1)
    storage.reset()
    with coordinator.begin("INSERT") as tx:
        before = storage.total
        stat = put_file(tx, storage, "month=1", file_id)
        written = storage.total - before
        tx.commit([stat])
    # `put_file` asks for a snapshot, which an insert never does. A task marks the file and writes the partition's metadata.
    return storage.total - written + OF_A_TASK


def test_a_transaction_that_writes_one_file_needs_the_same_few_requests_at_10_and_at_200_earlier_commits():
    inner = MemoryStorage()
    new_table(inner)
    storage, runtime = CountingStorage(inner), ManualRuntime()
    # As on an object store, whose answers hold a thousand keys: this timeline is listed in one.
    settings = Settings(listing=ListingSettings(at_once=1000))
    filler, counts = writer(inner, settings, runtime=runtime), {"fresh": [], "warm": []}
    for earlier in (10, 200):
        for number in range(len(filler.table.timeline().commits), earlier):
            insert(filler, inner, "month=1", f"f{number}")
        mine = writer(storage, settings, runtime=runtime)
        counts["fresh"].append(counted_insert(storage, mine, f"fresh{earlier}"))
        counts["warm"].append(counted_insert(storage, mine, f"warm{earlier}"))
    for of_one_kind in counts.values():
        assert of_one_kind[0] == of_one_kind[1] <= LIMIT, storage.calls


def test_claiming_a_file_group_takes_the_same_requests_with_1_and_with_100_live_writers():
    inner = MemoryStorage()
    new_table(inner)
    insert(writer(inner, Settings()), inner, "month=1", "a")
    storage, counts, live = CountingStorage(inner), [], []
    for writers in (1, 10, 100):
        while len(live) < writers:
            live.append(writer(inner, Settings()).begin("INSERT"))
        tx = writer(storage, Settings()).begin("UPSERT")
        group = tx.snapshot().files[0].group
        storage.reset()
        tx.claim([group])
        counts.append(storage.total)
        tx.abort()
    for tx in live:
        tx.abort()
    assert counts == [2, 2, 2]


def committed_files(inner: MemoryStorage, *file_ids: str) -> None:
    for file_id in file_ids:
        insert(writer(inner, Settings()), inner, "month=1", file_id)


def claimed_by_others(inner: MemoryStorage, count: int) -> None:
    """So many claims of writers that are at work."""
    for number in range(count):
        instant = f"2026112109351{number:04}"
        inner.put(layout.heartbeat(instant), b"")
        claim = Claim(instant, WriterIdentity(instant, "other", "host", 1, "me"), "UPSERT")
        inner.put(layout.claim(FileGroupId("month=2", f"other{number}")), claim.to_bytes())


@pytest.mark.parametrize("others", [0, 300])
def test_an_abort_reads_no_claim_and_removes_its_own_whatever_others_have_claimed(others):
    inner = MemoryStorage()
    new_table(inner)
    committed_files(inner, "a", "b")
    storage = CountingStorage(inner)
    tx = writer(storage, Settings()).begin("UPSERT")
    tx.claim(file.group for file in tx.snapshot().files)
    claimed_by_others(inner, others)
    storage.reset()
    tx.abort()
    assert [call for call in storage.calls if call[1].startswith(layout.CLAIMS) and call[0] != "delete"] == []
    assert storage.total <= 10, storage.calls
    assert sum(item.key.startswith(f"{layout.CLAIMS}/month=1") for item in inner.list(layout.CLAIMS)) == 0
    assert sum(1 for _ in inner.list(layout.CLAIMS)) == others


def test_an_abort_looks_whose_the_claim_is_that_got_no_answer():
    inner = MemoryStorage()
    new_table(inner)
    committed_files(inner, "a", "b")
    lost = [Rule("put_if_absent", f"{layout.CLAIMS}/*", None, Fault.LOST_REPLY), Rule("get", f"{layout.CLAIMS}/*", None)]
    faulty = FaultyStorage(inner)
    storage = CountingStorage(faulty)
    tx = writer(storage, Settings()).begin("UPSERT")
    snapshot = tx.snapshot()
    faulty.plan = lost
    with pytest.raises(StorageUnavailable):
        tx.claim(file.group for file in snapshot.files)
    faulty.plan = ()
    theirs = Claim("20261121093510000", WriterIdentity("w", "other", "host", 1, "me"), "UPSERT").to_bytes()
    inner.put(layout.claim(FileGroupId("month=1", "b")), theirs)
    claimed_by_others(inner, 50)
    storage.reset()
    tx.abort()
    assert storage.requests["get"] <= 2 + 1, storage.calls
    left = [item.key for item in inner.list(f"{layout.CLAIMS}/month=1")]
    assert left == [layout.claim(FileGroupId("month=1", "b"))]


def test_an_abort_after_the_heartbeat_was_lost_leaves_claims_that_others_have_taken_over():
    inner, runtime = MemoryStorage(), ManualRuntime()
    new_table(inner)
    committed_files(inner, "a")
    tx = writer(inner, Settings(), runtime=runtime).begin("UPSERT")
    group = tx.snapshot().files[0].group
    tx.claim([group])
    runtime.freeze(1_000)
    theirs = Claim("20261121093510000", WriterIdentity("w", "other", "host", 1, "me"), "UPSERT").to_bytes()
    inner.put(layout.claim(group), theirs)
    tx.abort()
    assert inner.get(layout.claim(group)).data == theirs


@pytest.mark.parametrize("others", [0, 300])
def test_a_look_at_the_writer_that_is_waited_for_is_one_request_whatever_others_do(others):
    runtime = ManualRuntime()
    inner = MemoryStorage(runtime.now_ms)
    new_table(inner)
    committed_files(inner, "a")
    holder = writer(inner, Settings(), runtime=runtime).begin("UPSERT")
    group = holder.snapshot().files[0].group
    holder.claim([group])
    claimed_by_others(inner, others)
    storage = CountingStorage(inner)
    waiting = writer(storage, Settings(), runtime=runtime)
    with pytest.raises(EarlyConflictError) as caught, waiting.begin("UPSERT") as tx:
        tx.claim([group])
    storage.reset()
    looks = len(runtime.slept_s)
    runtime.every(25, lambda: holder.state.value == "open" and runtime.monotonic_s() > 200 and holder.abort(), name="ends")
    wait_for(waiting.table, caught.value.conflict.other)
    looks = len(runtime.slept_s) - looks + 1
    assert runtime.monotonic_s() >= 200 and looks > 15
    assert storage.calls == [("get", layout.heartbeat(holder.instant))] * looks


def test_a_writer_that_dies_while_it_is_waited_for_is_reaped():
    clock = ManualRuntime()
    inner = MemoryStorage(clock.now_ms)
    new_table(inner)
    committed_files(inner, "a")
    dead = ManualRuntime()
    holder = writer(inner, Settings(), runtime=dead).begin("UPSERT")
    group = holder.snapshot().files[0].group
    holder.claim([group])
    waiting = writer(inner, Settings(), runtime=clock)
    with pytest.raises(EarlyConflictError) as caught, waiting.begin("UPSERT") as tx:
        tx.claim([group])
    wait_for(waiting.table, caught.value.conflict.other)
    assert 120 <= clock.monotonic_s() < 150
    assert list(inner.list(layout.CLAIMS)) == []
    with waiting.begin("UPSERT") as tx:
        tx.claim([group])


class Lanes(ManualRuntime):
    """Counts which requests went through `gather`: all of these may be under way at once."""

    def __init__(self, storage: CountingStorage) -> None:
        super().__init__()
        self.storage, self.gathered, self.rounds = storage, [], []

    def gather(self, calls, *, limit):
        before, gathered = len(self.storage.calls), len(self.gathered)
        found = super().gather(calls, limit=limit)
        # A call may gather, too: its requests count once.
        self.gathered[gathered:] = self.storage.calls[before:]
        self.rounds.append(len(calls))
        return found


LISTS_FILES = settings_of({"checkpoint.every_commits": 0})
"""Without the file index."""


def test_a_first_look_at_the_table_reads_replacecommits_in_parallel():
    storage = CountingStorage(memory_table())
    runtime = Lanes(storage)
    coordinator = writer(storage, LISTS_FILES, runtime=runtime)
    for number in range(5):
        with coordinator.begin("INSERT_OVERWRITE") as tx:
            tx.commit([put_file(tx, storage, "month=1", f"f{number}")], replaced={})
    storage.reset()
    runtime.gathered.clear()
    coordinator.snapshot()
    assert [call for call in storage.calls if call[0] == "get"] == [call for call in runtime.gathered if call[0] == "get"]
    assert storage.requests["get"] == 5


def test_the_first_batch_of_a_new_stream_reads_what_was_applied_in_rounds_that_double():
    storage = CountingStorage(memory_table())
    runtime = Lanes(storage)
    coordinator = writer(storage, LISTS_FILES, runtime=runtime)
    for number in range(40):
        insert(coordinator, storage, "month=1", f"f{number}", application=AppTransaction("old" if number == 3 else "s", number))
    fresh = writer(storage, LISTS_FILES, runtime=runtime)
    runtime.rounds.clear()
    assert fresh.applied_by(AppTransaction("new", 0)) is None
    assert runtime.rounds == [1, 2, 4, 8, 16, 9]
    runtime.rounds.clear()
    fresh = writer(storage, LISTS_FILES, runtime=runtime)
    assert fresh.applied_by(AppTransaction("s", 39)) is not None and runtime.rounds == [1]
    storage.reset()
    assert fresh.applied_by(AppTransaction("old", 3)) is not None and fresh.applied_by(AppTransaction("old", 3)) is not None
    assert storage.requests["get"] == 39


def light_commits(inner: MemoryStorage, count: int) -> None:
    """A history of so many commits of which only the timeline is left, as after the collection of their decisions."""
    done = insert(writer(inner, Settings()), inner, "month=1", "first")
    data = inner.get(layout.timeline(f"{done.instant}_{done.completion}.commit")).data
    for number in range(count - 1):
        instant = f"2025010100{number:07}"
        for name in (f"{instant}.commit.requested", f"{instant}.inflight", f"{instant}_{instant}.commit"):
            inner.put(layout.timeline(name), data)


def old_table(earlier: int) -> tuple[PagedStorage, Coordinator, Recorder]:
    """A writer on a table with so many earlier commits, which has written to it before."""
    runtime, told = ManualRuntime(start_ms=IN_2030_MS), Recorder()
    inner = MemoryStorage(runtime.now_ms)
    new_table(inner)
    light_commits(inner, earlier)
    storage = PagedStorage(inner)
    mine = writer(storage, Settings(), runtime=runtime, listener=told)
    mine.table.log.raise_boundary(earlier)
    insert(mine, storage, "month=1", "warm")
    runtime.sleep(1)
    return storage, mine, told


def listing(storage: PagedStorage) -> int:
    """How many answers a listing of the timeline takes."""
    return -(-sum(1 for _ in storage.inner.list(layout.TIMELINE)) // 1000)


@pytest.mark.parametrize("earlier", [10, 1_000])
def test_a_commit_of_one_file_asks_three_requests_under_the_lock_if_nobody_else_takes_it_and_says_so(earlier):
    storage, mine, told = old_table(earlier)
    with mine.begin("INSERT") as tx:
        stat = new_file(tx, storage, "a")
        done = tx.commit([stat])
    # The decision, the boundary and the publication.
    assert done.lock_requests == 3
    committed = next(event for event in reversed(told.events) if event.kind is EventKind.COMMITTED)
    assert committed.facts["lock_requests"] == done.lock_requests
    assert committed.facts["lock_held_s"] == done.lock_held_s
    entry = mine.history(1)[0]
    assert (entry.instant, entry.lock_requests) == (done.instant, done.lock_requests - 3)


@pytest.mark.parametrize("earlier", [10, 1_000])
def test_the_first_commit_of_a_process_asks_six_requests_under_the_lock_and_one_more_for_each_further_page(earlier):
    storage, _, _ = old_table(earlier)
    mine = writer(storage, Settings(), runtime=ManualRuntime(start_ms=IN_2030_MS + 10_000))
    with mine.begin("INSERT") as tx:
        done = tx.commit([new_file(tx, storage, "a")])
    # The timeline, the boundary and the properties; then the decision, the boundary and the publication.
    assert done.lock_requests == 5 + listing(storage)


@pytest.mark.parametrize("earlier", [10, 1_000])
def test_an_insert_of_one_file_lists_the_pages_of_the_timeline_twice_and_asks_the_same_otherwise(earlier):
    storage, mine, _ = old_table(earlier)
    storage.reset()
    with mine.begin("INSERT") as tx:
        tx.commit([new_file(tx, storage, "a")])
    # All pages at the same time: each listing is asked for one page.
    assert storage.calls.count(("list", layout.TIMELINE)) == 2 * listing(storage)
    assert storage.total == 17 + 2 * listing(storage), storage.calls


@pytest.mark.parametrize("earlier", [10, 1_000])
@pytest.mark.parametrize("early", [True, False])
def test_a_writer_that_loses_asks_at_most_thirteen_requests_before_it_tries_again(earlier, early):
    storage, other, _ = old_table(earlier)
    runtime, group, begun = other.table.runtime, FileGroupId("month=1", "warm"), []
    conflicts = (EventKind.CONFLICT, EventKind.EARLY_CONFLICT)
    mine = writer(storage, Settings(), runtime=runtime, listener=lambda event: event.kind in conflicts and storage.reset())
    holder = writer(storage.inner, Settings(), runtime=runtime).begin("UPSERT")
    if early:
        holder.claim([group])
    theirs = put_file(holder, storage.inner, "month=1", "warm")

    def work(tx):
        begun.append(tx.instant)
        if len(begun) == 2:
            return tx.commit([new_file(tx, storage, "b")])
        if early:
            runtime.every(0.05, lambda: holder.state.value == "open" and holder.commit([theirs]), name="holder")
            tx.claim([group])
        stat = put_file(tx, storage, "month=1", "warm", token="1-1-1")
        holder.commit([theirs])
        return tx.commit([stat])

    with_retries(mine, "UPSERT", work)
    asked = storage.calls[: storage.calls.index(("get", layout.PROPERTIES))]
    looks = sum(op == "get" and key.startswith(layout.TIMELINE) for op, key in asked)
    assert looks <= 2 * (listing(storage) > 1), "a long timeline is listed twice, each time with one look more"
    listed = asked.count(("list", layout.TIMELINE))
    more = listed - listed // listing(storage)  # pages, all at the same time
    assert len(begun) == 2 and 11 <= len(asked) - looks - more <= 13, asked


@pytest.mark.parametrize("waiting", [0, 40])
def test_the_window_is_read_in_parallel_before_the_lock_is_taken(waiting):
    storage = CountingStorage(memory_table())
    runtime = Lanes(storage)
    slow, others = writer(storage, Settings(), runtime=runtime), writer(storage.inner, Settings())
    with slow.begin("INSERT") as tx:
        stat = put_file(tx, storage, "month=1", "slow")
        for number in range(waiting):
            insert(others, storage.inner, "month=1", f"f{number}")
        runtime.gathered.clear()
        done = tx.commit([stat])
    assert sum(key.startswith(f"{layout.DECISIONS}/") for _, key in runtime.gathered) == waiting
    # All of the window was seen before, so nothing is read again.
    assert done.lock_requests == 6, storage.calls[-20:]


def test_a_commit_between_the_look_ahead_and_the_lock_is_judged():
    inner, settings = memory_table(), Settings()
    insert(writer(inner, settings), inner, "month=1", "a")
    quick, storage = writer(inner, settings).begin("UPSERT"), FaultyStorage(inner)
    theirs = put_file(quick, inner, "month=1", "a")
    tx = writer(storage, settings).begin("UPSERT")
    stat = put_file(tx, storage, "month=1", "a", token="1-1-1")
    storage.plan = [Rule("*", layout.LOCK, 1, None, meanwhile=lambda: quick.commit([theirs]))]
    with pytest.raises(ConflictError) as caught:
        tx.commit([stat])
    assert caught.value.conflict.other.instant == quick.instant


def test_a_decision_that_the_look_ahead_missed_costs_one_more_round():
    inner, settings = memory_table(), Settings()
    storage = FaultyStorage(inner)
    tx = writer(storage, settings).begin("INSERT")
    stat = put_file(tx, storage, "month=1", "a")
    log, other = DecisionLog(inner), WriterIdentity("other", "reaper", "host", 1, "me")
    rollback = Decision(1, DecisionKind.ROLLBACK, "20261121093510000", "commit", "id", other, "ROLLBACK")
    storage.plan = [Rule("get", layout.PROPERTIES, 1, None, meanwhile=lambda: log.decide(rollback))]
    done = tx.commit([stat])
    assert done.decision == 2 and done.lock_requests > 6
    assert [decision.kind for decision in DecisionLog(inner).look(newest=None).decisions] == [
        DecisionKind.ROLLBACK, DecisionKind.COMMIT,
    ]  # fmt: skip


def test_a_stream_that_is_behind_asks_for_each_archived_commit_a_few_times_however_small_its_batches():
    counts = []
    for commits in (20, 40):
        table = AgingTable()
        table.write("first")
        stream = TableStream(table.coordinator().table)
        offset = stream.next(stream.first(None))
        written = [table.write(f"f{number}") for number in range(commits)]
        assert table.coordinator().archive().instants > commits - 5
        storage = CountingStorage(table.storage)
        stream, read = TableStream(table.coordinator(storage).table), []
        while (end := stream.next(offset, 2)) != offset:
            read += [part.file.instant for part in stream.appended(offset, end)]
            offset = end
        assert read == written
        counts.append(sum(storage.requests.values()) / commits)
    assert counts[1] < 1.1 * counts[0] < 10, counts
