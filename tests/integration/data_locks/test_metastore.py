"""Data locks in a real Hive metastore: the suite of all data locks, and what is special to this service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.api import EventKind, Resource, SystemRuntime, lock_request
from tests.behaviour.data_locks.data_lock_suite import (
    P1,
    P2,
    DataLockSuite,
    Later,
    Writers,
    eventually,
    granted,
    own,
    share,
)
from tests.integration.data_locks.metastore_data_world import TIMEOUT_S, DataWorld, data_world
from tests.integration.matrix import mark

from lakelock.errors import LeaseLost, LockError, SettingsError
from lakelock.providers.hive_metastore.client import ACQUIRED, EXCLUSIVE, SHARED_READ, WAITING, Calls
from lakelock.testing.service import Service

pytestmark = pytest.mark.in_ci

RUNTIME = SystemRuntime()


@pytest.fixture
def world(patient_metastore: Service) -> Iterator[DataWorld]:
    with data_world(patient_metastore) as world:
        yield world


@pytest.fixture(autouse=True)
def cell(request: pytest.FixtureRequest) -> None:
    """Says in the reports which cell of the lock matrix this is."""
    mark(request.node, "hive_metastore", "S/X suite")


@pytest.mark.sampled
class TestMetastore(DataLockSuite):
    @pytest.fixture
    def writers(self, world: DataWorld) -> Writers:
        return Writers(world.writer)


# --- what the server does by itself


def bare_lock(calls: Calls, world: DataWorld, *parts: tuple[int, str]) -> tuple[int, int]:
    answer = calls.lock("lakelock", world.name, user="etl", host="node-7", agent="Unknown", parts=parts)
    return answer.lock_id, answer.state


def test_the_server_alone_lets_a_reader_overtake_and_then_grants_both_at_once(world: DataWorld) -> None:
    """Why its own answer is not trusted. Seen in Hive 2.3, which compares a request with lower numbers only."""
    calls, name = world.bare(), "path=@month$1"
    first, _ = bare_lock(calls, world, (SHARED_READ, name))
    writer, state = bare_lock(calls, world, (EXCLUSIVE, name))
    assert state == WAITING
    late, state = bare_lock(calls, world, (SHARED_READ, name))
    assert state == ACQUIRED, "it overtook the writer"
    calls.unlock(first)
    assert calls.check_lock(writer).state == ACQUIRED and calls.check_lock(late).state == ACQUIRED
    held = world.writer("looker").inspect()
    assert [(shown.token, shown.held, shown.blocked_by) for shown in held] == [(writer, True, ()), (late, False, (writer,))]
    for lock_id in (writer, late):
        calls.unlock(lock_id)


def test_a_reader_that_the_server_let_overtake_waits_all_the_same(world: DataWorld) -> None:
    reader, writer, late = world.writer("reader"), world.writer("writer"), world.writer("late")
    reading = reader.acquire(share(P1), wait_s=12)
    writing, behind = Later(writer, own(P1)), Later(late, share(P1))
    assert {row.state for row in world.rows() if row.lock_id == max(row.lock_id for row in world.rows())} == {ACQUIRED}
    assert [shown.held for shown in reader.inspect()] == [True, False, False] and not behind.done
    reader.release(reading)
    lease = writing.lease()
    assert [shown.held for shown in reader.inspect()] == [True, False] and not behind.done
    writer.release(lease)
    late.release(behind.lease())


def test_a_table_lock_of_hive_overlaps_its_partitions_which_is_why_the_table_is_a_partition_here(world: DataWorld) -> None:
    calls = world.bare()
    table = calls.lock("lakelock", world.name, user="etl", host="node-7", agent="Unknown", parts=[(SHARED_READ, None)])
    partition, state = bare_lock(calls, world, (EXCLUSIVE, "path=@month$1"))
    assert (table.state, state) == (ACQUIRED, WAITING)
    for lock_id in (table.lock_id, partition):
        calls.unlock(lock_id)
    one, two = world.writer("one"), world.writer("two")
    one.acquire(own(P1), wait_s=12)
    two.acquire(own(P2), wait_s=12)
    assert all(row.partition for row in world.rows())


def test_the_commit_lock_and_locks_of_hive_on_the_same_table_disturb_nobody(world: DataWorld) -> None:
    calls = world.bare()
    java = calls.lock("lakelock_test", world.table, user="etl", host="node-7", agent="Unknown")
    drop = calls.lock("lakelock_test", world.table, user="hive", host="node-7", agent="q1", parts=[(EXCLUSIVE, "month=1")])
    one = world.writer("one")
    lease = one.acquire(own(Resource()), wait_s=12)
    assert calls.check_lock(java.lock_id).state == ACQUIRED
    one.release(lease)
    for lock_id in (java.lock_id, drop.lock_id):
        calls.unlock(lock_id)


# --- what an operator sees


def test_an_operator_sees_in_hive_itself_what_is_locked_and_by_whom(world: DataWorld) -> None:
    one = world.writer("nightly")
    lease = one.acquire(lock_request([P1], [Resource.of("month=2/day=Mon")], about="INSERT"), wait_s=12)
    assert [(row.partition, row.kind) for row in world.rows()] == [
        ("path=@", SHARED_READ),
        ("path=@month$1", SHARED_READ),
        ("path=@month$2", SHARED_READ),
        ("path=@month$2@day$+mon", EXCLUSIVE),
    ]
    (shown,) = world.writer("looker").inspect()
    # What the metastore keeps with a lock has no room for the version.
    assert shown.request == lease.request and shown.writer == replace(lease.owner, version="") and shown.lease_s == 30.0
    now_ms = RUNTIME.now_ms()
    assert shown.acquired_ms and shown.renewed_ms and abs(now_ms - shown.acquired_ms) < 60_000
    assert "INSERT" in str(shown)


def test_everybody_in_the_way_is_named_and_a_waiter_reports_once_that_it_waits(world: DataWorld) -> None:
    readers = [world.writer("one"), world.writer("two")]
    leases = [reader.acquire(share(P1), wait_s=12) for reader in readers]
    waiting = Later(world.writer("writer"), own(P1))
    shown = {each.token: each for each in readers[0].inspect()}
    assert shown.pop(leases[0].token).acquired_ms and shown.pop(leases[1].token).held
    (waits,) = shown.values()
    assert waits.blocked_by == tuple(lease.token for lease in leases) and waits.acquired_ms is None
    eventually(lambda: [event.kind for event in world.seen] == [EventKind.WAITING_FOR_LOCK])
    assert "one (" in str(world.seen[0].facts["holder"]) and "two (" in str(world.seen[0].facts["holder"])
    for reader, lease in zip(readers, leases, strict=True):
        reader.release(lease)
    waiting.lease()


def test_locks_of_somebody_else_are_broken_by_force_only(world: DataWorld) -> None:
    calls, operator = world.bare(), world.writer("operator")
    token, _ = bare_lock(calls, world, (EXCLUSIVE, "path=@month$1"))
    with pytest.raises(LockError, match="etl@node-7"):
        operator.break_lock(token)
    assert granted(operator, own(P1)) is None
    operator.break_lock(token, force=True)
    assert granted(operator, own(P1)) is not None


# --- leases


def test_a_lease_longer_than_the_metastore_keeps_locks_is_refused(world: DataWorld) -> None:
    with pytest.raises(SettingsError, match=f"after {TIMEOUT_S} s") as refused:
        world.writer("one", lease_s=TIMEOUT_S + 1).acquire(own(P1), wait_s=0)
    assert "data_locks.lease_s" in refused.value.hint


def test_locks_that_the_metastore_dropped_are_noticed_by_the_heartbeat(world: DataWorld) -> None:
    one = world.writer("one")
    lease = one.acquire(own(P1), wait_s=12)
    world.bare().unlock(lease.token)
    with pytest.raises(LeaseLost) as lost:
        one.renew(lease)
    assert lost.value.details["reason"] == "taken-over"
    one.release(lease)
    assert granted(one, own(P1)) is not None


def test_a_waiter_that_was_dropped_queues_up_again(world: DataWorld) -> None:
    holder, waiter = world.writer("holder"), world.writer("waiter")
    lease = holder.acquire(own(P1), wait_s=12)
    waiting = Later(waiter, own(P1))
    lost = holder.inspect()[1].token
    world.bare().unlock(lost)
    eventually(lambda: len(holder.inspect()) == 2)
    holder.release(lease)
    assert waiting.lease().token > lost
