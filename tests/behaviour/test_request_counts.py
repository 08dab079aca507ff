"""What a transaction asks of storage: few requests, and as many however long the history is and however many others write."""

from __future__ import annotations

from lakelock.settings import Settings
from lakelock.storage.memory import MemoryStorage
from lakelock.testing.runtime import ManualRuntime
from tests.behaviour.tables import insert, new_table, put_file, writer
from tests.faulty_storage import CountingStorage

LIMIT = 24
OF_A_TASK = 3  # inflight, marker, metadata of the partition


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
    filler, counts = writer(inner, Settings(), runtime=runtime), {"fresh": [], "warm": []}
    for earlier in (10, 200):
        for number in range(len(filler.table.timeline().commits), earlier):
            insert(filler, inner, "month=1", f"f{number}")
        mine = writer(storage, Settings(), runtime=runtime)
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
