"""A lock whose renewal cannot start is given back, and nothing beats on for a transaction that never began."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.api import Coordinator, Lease, MemoryStorage, StorageLocation, WriterIdentity, layout, open_provider, renewing
from tests.behaviour.tables import QUICK, groups, insert, memory_table, new_table
from tests.faulty_storage import Wrapped

from lakelock.clock import Repeating
from lakelock.errors import StorageError
from lakelock.settings import ConcurrencySettings, Settings
from lakelock.testing import ManualRuntime

NO_THREAD = "can't start new thread"
PESSIMISTIC = Settings(
    concurrency=ConcurrencySettings(mode="PESSIMISTIC"), lock=QUICK.lock, heartbeat=QUICK.heartbeat, retry=QUICK.retry
)


class WithoutThreads(ManualRuntime):
    """A machine that has no thread left for background actions whose name begins with one of `refused`."""

    refused: tuple[str, ...] = ()

    def every(self, interval_s: float, action: Callable[[], None], *, name: str) -> Repeating:
        if name.startswith(self.refused or ("no such name",)):
            raise RuntimeError(NO_THREAD)
        return super().every(interval_s, action, name=name)


class Refuses(Wrapped):
    """Storage that forbids to create the requested file of an instant."""

    def carry(self, op, key, request, *, weight=1):
        if key.startswith(layout.TIMELINE) and key.endswith(".requested"):
            raise StorageError("you may not write here", hint="ask for the permission")
        return request()


def writer(storage, runtime, settings=QUICK) -> Coordinator:
    return Coordinator.open(StorageLocation(storage.uri), settings, runtime=runtime, storage=storage)


def test_a_lock_whose_renewal_cannot_start_is_given_back_and_the_same_open_table_takes_it_again():
    storage, runtime = memory_table(), WithoutThreads()
    coordinator = writer(storage, runtime)
    runtime.refused = ("lease",)
    with pytest.raises(RuntimeError, match=NO_THREAD):
        insert(coordinator, storage, "month=1", "one")
    assert coordinator.table.provider.inspect().holder is None
    runtime.refused = ()
    insert(coordinator, storage, "month=1", "two")
    assert groups(storage) == ["month=1/two"]


def test_data_locks_whose_renewal_cannot_start_are_given_back():
    storage, runtime = memory_table(), WithoutThreads()
    coordinator = writer(storage, runtime, PESSIMISTIC)
    runtime.refused = ("lease",)
    with pytest.raises(RuntimeError, match=NO_THREAD), coordinator.data.writing("INSERT", ()):
        pass
    assert coordinator.data.locks.inspect() == ()


def test_a_lock_is_renewed_again_after_an_error_that_no_driver_should_raise(monkeypatch: pytest.MonkeyPatch):
    runtime = ManualRuntime()
    provider = open_provider(QUICK, memory_table(), runtime, WriterIdentity.of_this_process(runtime))
    lease, extend, tries = provider.acquire(wait_s=0), provider.extend, []

    def extend_at_the_third_time(lease: Lease) -> None:
        tries.append(lease.trouble)
        if len(tries) < 3:
            raise ZeroDivisionError("a driver's bug")
        extend(lease)

    monkeypatch.setattr(provider, "extend", extend_at_the_third_time)
    with renewing(provider, lease, runtime, lease.lease_s / 4):
        runtime.advance(lease.lease_s)
        lease.ensure_active()
    assert tries[:3] == ["", "ZeroDivisionError: a driver's bug", "ZeroDivisionError: a driver's bug"] and not lease.trouble


def test_a_heartbeat_that_cannot_beat_leaves_no_file():
    storage, runtime = memory_table(), WithoutThreads()
    runtime.refused = ("heartbeat",)
    with pytest.raises(RuntimeError, match=NO_THREAD):
        writer(storage, runtime).begin("INSERT")
    assert [item.key for item in storage.list(layout.HEARTBEATS)] == []


def test_nothing_beats_on_for_an_instant_that_storage_refused_to_create():
    inner, runtime = MemoryStorage(), ManualRuntime()
    new_table(inner)
    with pytest.raises(StorageError, match="you may not"):
        writer(Refuses(inner), runtime).begin("INSERT")
    assert runtime.repeating == []


def test_a_table_that_was_closed_takes_its_lock_no_more():
    storage = memory_table()
    coordinator = writer(storage, ManualRuntime())
    coordinator.close()
    with pytest.raises(Exception, match="closed in this process") as refused:
        insert(coordinator, storage, "month=1", "one")
    assert "open the table again" in refused.value.hint
    insert(writer(storage, ManualRuntime()), storage, "month=1", "two")
    assert groups(storage) == ["month=1/two"]
