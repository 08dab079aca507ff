"""Requests that do not depend on each other are made at the same time, so a storage far away is waited for less often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Barrier, get_ident
from typing import TypeVar

import pyarrow as pa
import pytest
from tests.api import ArrowEngine, Coordinator, Storage, StorageLocation, SystemRuntime, layout
from tests.behaviour.tables import SCHEMA, insert, leftovers, memory_table, new_file, new_table, put_file, writer
from tests.faulty_storage import CountingStorage, FaultyStorage, Rule, Wrapped
from tests.round_trips import RoundTrips, SideBySide
from tests.servers import S3_OPTIONS

from lakelock.errors import ConflictError, StorageUnavailable
from lakelock.settings import Settings
from lakelock.storage.objects import ObjectStorage
from lakelock.testing.proxy import Proxy

T = TypeVar("T")


def rows(*numbers: int, month: str) -> pa.Table:
    return pa.table([[f"k{n}" for n in numbers], list(numbers), [month] * len(numbers)], schema=SCHEMA)


def test_an_insert_of_one_row_waits_for_8_requests_one_after_the_other_and_an_upsert_for_14():
    storage = RoundTrips(memory_table())
    runtime = SideBySide(storage)
    with Coordinator.open(StorageLocation(storage.uri), Settings(), runtime=runtime, storage=storage) as coordinator:
        engine = ArrowEngine(coordinator)
        waited_for = []
        for write, month in ((engine.insert, "1"), (engine.upsert, "1"), (engine.insert, "2"), (engine.upsert, "1")):
            # Instants are taken once per millisecond.
            runtime.sleep(1)
            before = storage.waited_for
            assert write(rows(1, month=month)).files == 1
            waited_for.append(storage.waited_for - before)
    assert waited_for[2:] == [8, 14]


@pytest.mark.in_ci
def test_each_storage_request_of_an_insert_is_one_request_to_s3(s3_endpoint):
    with Proxy(int(s3_endpoint.rpartition(":")[2])) as proxy:
        options = {**S3_OPTIONS, "endpoint": f"http://127.0.0.1:{proxy.port}"}
        storage = CountingStorage(ObjectStorage("s3://lake/round-trips", options))
        new_table(storage)
        with writer(storage, Settings()) as coordinator:
            for month in ("1", "2", "3"):
                storage.reset()
                before = proxy.round_trips
                ArrowEngine(coordinator).insert(rows(1, month=month))
                assert proxy.round_trips - before == len(storage.calls) > 8


class Meeting(Wrapped):
    """Answers the requests that are to meet only when all of them are under way, once."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.missing: list[tuple[str, str]] = []

    def meet(self, *requests: tuple[str, str]) -> None:
        self.missing = list(requests)
        self._all_here = Barrier(len(requests))

    def carry(self, op: str, key: str, request: Callable[[], T], *, weight: int = 1) -> T:
        if (op, key) in self.missing:
            self.missing.remove((op, key))
            self._all_here.wait(timeout=30)
        return request()


def test_requests_that_do_not_depend_on_each_other_are_under_way_at_the_same_time():
    storage = Meeting(memory_table())
    with writer(storage, Settings()) as coordinator:
        for asked_of_the_lock in ("put_if_absent", "put_if_match"):
            storage.meet(("get", layout.PROPERTIES), ("list", layout.DECISIONS))
            tx = coordinator.begin("INSERT")
            assert not storage.missing
            stat = new_file(tx, storage, "a")
            storage.meet(("list", layout.TIMELINE), ("get", layout.PROPERTIES), ("get", layout.DECISIONS_BOUNDARY))
            if asked_of_the_lock == "put_if_match":  # the second time nobody else is expected at the lock
                storage.meet(*storage.missing, (asked_of_the_lock, layout.LOCK), ("list", layout.DECISIONS))
            tx.commit([stat])
            assert not storage.missing


class OneByOne(SystemRuntime):
    """Makes calls one after the other that could be made at the same time."""

    def gather(self, calls: Sequence[Callable[[], T]], *, limit: int) -> list[T]:
        return [call() for call in calls]


@pytest.mark.parametrize("same_process", [False, True])
def test_a_look_that_was_made_beside_the_lock_is_made_again_if_somebody_else_has_held_it(same_process):
    inner = memory_table()
    storage = FaultyStorage(inner)
    mine = writer(storage, Settings(), runtime=OneByOne())
    other = mine if same_process else writer(inner, Settings())
    insert(mine, storage, "month=1", "a")
    tx, theirs = mine.begin("UPSERT"), other.begin("UPSERT")
    stat, first = put_file(tx, storage, "month=1", "a", token="0-1-0"), put_file(theirs, inner, "month=1", "a", token="0-2-0")
    # The lock is asked for last: the look is over by then, and nearly over when it lists the log.
    asked = ("list", layout.DECISIONS) if same_process else ("put_if_match", layout.LOCK)
    storage.plan = [Rule(*asked, 1, None, meanwhile=lambda: theirs.commit([first]))]
    with pytest.raises(ConflictError) as caught:
        tx.commit([stat])
    assert caught.value.conflict.other.instant == theirs.instant


def test_a_transaction_that_cannot_look_at_the_log_leaves_no_heartbeat():
    faulty = FaultyStorage(memory_table())
    storage = CountingStorage(faulty)
    with writer(storage, Settings()) as coordinator:
        faulty.plan = [Rule("get", layout.DECISIONS_BOUNDARY)]
        with pytest.raises(StorageUnavailable):
            coordinator.begin("INSERT")
    assert any(op == "put_if_absent" and key.startswith(layout.HEARTBEATS) for op, key in storage.calls)
    assert leftovers(faulty.inner) == []


class Threads(Wrapped):
    """Keeps which threads ask."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.seen: set[int] = set()

    def carry(self, op: str, key: str, request: Callable[[], T], *, weight: int = 1) -> T:
        self.seen.add(get_ident())
        return request()


def test_on_a_local_disk_no_thread_is_started_for_a_request(tmp_path):
    storage = Threads(StorageLocation.of(str(tmp_path)).open())
    new_table(storage)
    with writer(storage, Settings()) as coordinator:
        ArrowEngine(coordinator).insert(rows(1, month="1"))
    assert storage.seen == {get_ident()}
