"""Data locks: a document next to the table, on disk and in memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from tests.api import (
    DataLocks,
    LocalStorage,
    MemoryStorage,
    Resource,
    Storage,
    SystemRuntime,
    WriterIdentity,
    layout,
    renewing,
)
from tests.behaviour.data_locks.data_lock_suite import LEASE_S, P1, SLACK_S, DataLockSuite, Writers, granted, own, share
from tests.faulty_storage import CountingStorage, Wrapped
from tests.waiting import Stopwatch, eventually

from lakelock.data_locks import open_data_locks
from lakelock.data_locks.locks import Wanted, holding_several
from lakelock.errors import CorruptTableError, LakelockError, LockTimeout, ProviderUnavailable, StorageUnavailable
from lakelock.settings import Settings
from lakelock.settings.sections import DataLockSettings
from lakelock.testing import ManualRuntime
from lakelock.testing.lock_processes import Worker

T = TypeVar("T")
RUNTIME = SystemRuntime()


def settings(lease_s: float) -> Settings:
    options = {"data_locks.lease_s": lease_s, "data_locks.renew_s": lease_s / 3, "data_locks.sleep_s": 0.05}
    return Settings.resolve(options).settings


def opener(storage: Storage) -> Callable[[str, float], DataLocks]:
    def open_one(name: str, lease_s: float) -> DataLocks:
        return open_data_locks(settings(lease_s), storage, RUNTIME, WriterIdentity.of_this_process(RUNTIME, name))

    return open_one


@pytest.mark.parametrize("kind", ["local", "memory"])
class TestDataLocks(DataLockSuite):
    @pytest.fixture
    def writers(self, kind: str, tmp_path: Path) -> Iterator[Writers]:
        made = Writers(opener(LocalStorage(tmp_path / "table") if kind == "local" else MemoryStorage(RUNTIME.now_ms)))
        yield made
        for locks in made.opened:
            locks.close()


class Unreliable(Wrapped):
    """Storage whose next replies get lost after the write was done, or before; what is `late` is carried out when asked."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.lose_reply = self.lose_request = self.be_late = 0
        self.late: list[Callable[[], object]] = []

    def carry(self, op: str, key: str, request: Callable[[], T], *, weight: int = 1) -> T:
        if op not in ("put_if_absent", "put_if_match"):
            return request()
        if self.lose_request:
            self.lose_request -= 1
            raise StorageUnavailable("no answer")
        if self.be_late:
            self.be_late -= 1
            self.late.append(request)
            raise StorageUnavailable("no answer")
        done = request()
        if self.lose_reply:
            self.lose_reply -= 1
            raise StorageUnavailable("no answer")
        return done


def unreliable() -> tuple[DataLocks, Unreliable, DataLocks]:
    storage = MemoryStorage(RUNTIME.now_ms)
    failing = Unreliable(storage)
    return opener(failing)("one", 30.0), failing, opener(storage)("two", 30.0)


def test_a_grant_whose_reply_got_lost_is_found_again() -> None:
    one, storage, two = unreliable()
    storage.lose_reply = 1
    lease = one.acquire(own(P1), wait_s=5)
    assert [locked.token for locked in two.inspect()] == [lease.token]
    assert granted(two, own(P1)) is None
    storage.lose_reply = 1
    one.release(lease)
    assert two.inspect() == ()


def test_a_request_that_is_carried_out_after_its_writer_gave_up_is_taken_back() -> None:
    one, storage, two = unreliable()
    storage.be_late = 1
    with pytest.raises(ProviderUnavailable):
        one.acquire(own(P1), wait_s=0)
    (carry_out,) = storage.late
    assert carry_out() is not None and len(two.inspect()) == 1
    lease = two.acquire(own(P1), wait_s=10)
    two.release(lease)
    assert two.inspect() == ()
    one.close()


def test_a_writer_without_an_answer_gives_up_at_its_bound_and_leaves_nothing_behind() -> None:
    one, storage, two = unreliable()
    storage.lose_reply = 2
    with pytest.raises(ProviderUnavailable):
        one.acquire(own(P1), wait_s=0)
    assert two.inspect() == ()
    storage.lose_request = 10**6
    with pytest.raises(ProviderUnavailable, match=r"within 0\.2 s"):
        one.acquire(own(P1), wait_s=0.2)


@pytest.mark.parametrize("partitions", [1, 200])
def test_a_request_is_one_read_and_one_write_however_many_partitions_it_names(partitions: int) -> None:
    storage = CountingStorage(MemoryStorage(RUNTIME.now_ms))
    locks = opener(storage)("one", 30.0)
    request = own(*(Resource.of(f"day={day}") for day in range(partitions)))
    locks.release(locks.acquire(request))
    storage.reset()
    lease = locks.acquire(request)
    locks.renew(lease)
    locks.release(lease)
    assert storage.requests == {"get": 3, "put_if_match": 3}


def test_a_killed_waiter_keeps_the_others_waiting_for_no_longer_than_its_lease(tmp_path: Path) -> None:
    open_one = opener(LocalStorage(tmp_path / "table"))
    holder, behind = open_one("holder", LEASE_S), open_one("behind", LEASE_S)
    arena = {"table": str(tmp_path / "table"), "settings": {"data_locks.lease_s": LEASE_S, "data_locks.renew_s": LEASE_S / 3}}
    dead = Worker(arena, Path(__file__).with_name("data_lock_worker.py"))
    lease = holder.acquire(share(P1), wait_s=12)
    with renewing(holder, lease, RUNTIME, LEASE_S / 3):
        dead.ask("take X month=1 60")
        eventually(lambda: len(holder.inspect()) == 2)
        assert granted(behind, share(P1)) is None
        dead.signal(signal.SIGKILL)
        with Stopwatch() as watch:
            after = behind.acquire(share(P1), wait_s=LEASE_S + 2 * SLACK_S)
        assert watch.took_s < LEASE_S + SLACK_S
        lease.ensure_active()
        behind.release(after)
    dead.end()
    holder.release(lease)
    assert holder.inspect() == ()


def test_a_forked_child_holds_nothing_and_disturbs_no_other_writer(tmp_path: Path) -> None:
    one = opener(LocalStorage(tmp_path / "table"))("one", 30.0)
    lease = one.acquire(own(P1), wait_s=12)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # only plain calls here: a failure must end this process, not run the rest of the suite
        told = []
        try:
            told.append("holds" if lease.lost is None else lease.lost.reason)
            one.release(lease)
            try:
                one.acquire(own(P1), wait_s=0)
                told.append("took it")
            except LakelockError as error:
                told.append(type(error).__name__)
            one.close()
        finally:
            os.write(writing, ",".join(told).encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told_by_child = pipe.read()
    os.waitpid(child, 0)
    assert told_by_child == "session-lost,LockTimeout"
    one.renew(lease)
    lease.ensure_active()
    one.release(lease)
    assert one.inspect() == ()
    one.close()


def test_an_unreadable_document_is_not_taken_for_free_and_is_cleared_by_force_only(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "table")
    locks = opener(storage)("one", 30.0)
    before = locks.acquire(own(P1), wait_s=5)
    storage.put(layout.DATA_LOCKS, b"{")
    with pytest.raises(CorruptTableError):
        locks.acquire(own(P1), wait_s=0)
    locks.break_all()
    after = locks.acquire(own(P1), wait_s=5)
    assert after.token > before.token


def by_hand(runtime: ManualRuntime, storage: MemoryStorage, name: str, attempts: int = 4, sleep_s: float = 10) -> DataLocks:
    options = {"data_locks.attempts": attempts, "data_locks.sleep_s": sleep_s, "data_locks.lease_s": 60}
    chosen = Settings.resolve(options).settings
    return open_data_locks(chosen, storage, runtime, WriterIdentity.of_this_process(runtime, name))


@pytest.mark.parametrize(("attempts", "sleep_s", "wait_s"), [(1, 10, 0), (2, 10, 10), (4, 10, 30), (4, 0.5, 1.5)])
def test_a_request_waits_for_one_pause_less_than_its_attempts(attempts: int, sleep_s: float, wait_s: float) -> None:
    runtime, storage = ManualRuntime(), MemoryStorage()
    holder, waiter = by_hand(runtime, storage, "holder"), by_hand(runtime, storage, "waiter", attempts, sleep_s)
    holder.acquire(own(P1))
    began_s = runtime.monotonic_s()
    with pytest.raises(LockTimeout, match=f"blocked by holder .* gave up after {wait_s:g} s"):
        waiter.acquire(own(P1))
    assert runtime.monotonic_s() - began_s == pytest.approx(wait_s)
    assert max(runtime.slept_s, default=0) <= sleep_s, "no pause is longer than data_locks.sleep_s"
    assert len(holder.inspect()) == 1


def test_a_request_is_granted_at_an_attempt_after_the_first() -> None:
    runtime, storage = ManualRuntime(), MemoryStorage()
    holder, waiter = by_hand(runtime, storage, "holder"), by_hand(runtime, storage, "waiter")
    lease = holder.acquire(own(P1))
    runtime.every(15, lambda: holder.release(lease), name="the holder ends")
    began_s = runtime.monotonic_s()
    waiter.release(waiter.acquire(own(P1)))
    assert 15 <= runtime.monotonic_s() - began_s <= 25


def test_a_writer_that_retries_without_waiting_gets_past_a_dead_holder_after_its_lease() -> None:
    runtime, storage = ManualRuntime(), MemoryStorage()
    killed, one, other = (by_hand(runtime, storage, name, attempts=1) for name in ("killed", "one", "other"))
    lease = killed.acquire(own(P1))
    assert granted(one, own(P1)) is None
    runtime.advance(40)
    killed.renew(lease)
    assert granted(one, own(P1)) is None
    runtime.advance(60)
    assert granted(one, own(P1)) is None, "a whole lease and a margin since it was seen to live"
    assert granted(other, own(P1)) is None, "a writer that looks for the first time has not watched anybody"
    runtime.advance(0.5)
    assert granted(one, own(P1)) is not None


def test_a_statement_over_several_tables_gets_past_a_writer_that_was_killed() -> None:
    runtime = ManualRuntime()
    storages = [MemoryStorage(name=name) for name in ("t1", "t2")]
    by_hand(runtime, storages[1], "killed").acquire(own(P1))
    wanted = [Wanted(by_hand(runtime, storage, "mine"), own(P1)) for storage in storages]
    with holding_several(wanted, DataLockSettings(attempts=600, sleep_s=1), runtime) as leases:
        assert [lease.lost for lease in leases] == [None, None]
    assert 60 <= runtime.monotonic_s() <= 63


def test_a_request_that_waits_too_short_to_recognise_a_killed_holder_says_so_and_the_named_wait_is_long_enough() -> None:
    runtime, storage = ManualRuntime(), MemoryStorage()
    by_hand(runtime, storage, "killed").acquire(own(P1))
    runtime.advance(600)
    with pytest.raises(LockTimeout) as refused:
        by_hand(runtime, storage, "hasty", attempts=6).acquire(own(P1))
    assert "recognised by a wait of 62 s" in refused.value.hint
    assert "give data_locks.attempts x data_locks.sleep_s at least that" in refused.value.hint
    by_hand(runtime, storage, "patient").acquire(own(P1), wait_s=62)
