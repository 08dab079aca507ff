"""How data locks use a real ZooKeeper: one transaction per request, one watch per waiter, sessions that come and go."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from tests.api import Event, EventKind, Resource
from tests.behaviour.data_locks.data_lock_suite import P1, P2, TABLE, Later, granted, own, share
from tests.integration.data_locks.zookeeper_data_world import Queues, queues_in
from tests.waiting import Stopwatch, eventually

from lakelock.data_locks import zookeeper as waiter_module
from lakelock.errors import LeaseLost, LockError, LockTimeout
from lakelock.testing.service import Service

pytestmark = pytest.mark.in_ci

SECRET = "hunter2"


@pytest.fixture
def queues(zookeeper: Service) -> Iterator[Queues]:
    with queues_in(zookeeper) as made:
        yield made


def watches(service: Service) -> int:
    with socket.create_connection((service.host, service.port), timeout=5) as talking:
        talking.sendall(b"wchs")
        told = b"".join(iter(lambda: talking.recv(4096), b"")).decode()
    return int(told.rpartition("Total watches:")[2])


def test_all_nodes_of_a_request_are_made_in_one_transaction_and_go_with_the_session(queues: Queues) -> None:
    one = queues.writer("one")
    lease = one.acquire(own(P1, Resource.of("year=1/month=1")), wait_s=12)
    nodes = queues.nodes()
    assert sorted(nodes) == ["@table", "month=1", "year=1", "year=1%2Fmonth=1"]
    assert [name.partition("-")[0] for queue in sorted(nodes) for name in nodes[queue]] == ["read", "write", "read", "write"]
    assert {stat.czxid for stat in queues.stats()} == {lease.token}
    assert {stat.ephemeralOwner for stat in queues.stats()} == {lease.session.id}  # type: ignore[attr-defined]
    one.close()
    assert list(queues.nodes().values()) == [[]] * 4


def test_a_waiter_watches_one_node_and_a_release_wakes_one_writer(queues: Queues) -> None:
    holder, waiters = queues.writer("holder"), [queues.writer(f"waiter-{number}") for number in range(4)]
    before = watches(queues.service)
    lease = holder.acquire(own(P1, P2), wait_s=12)
    waiting = [Later(waiter, own(P1, P2)) for waiter in waiters]
    eventually(lambda: watches(queues.service) == before + len(waiters))
    for waiter, each in zip(waiters, waiting, strict=True):
        assert not each.done
        holder.release(lease)
        holder, lease = waiter, each.lease()
        eventually(lambda: watches(queues.service) == before + sum(not later.done for later in waiting))
    holder.release(lease)


def test_a_request_behind_many_holders_is_granted_when_the_last_of_them_has_left(queues: Queues) -> None:
    holders = [queues.writer(f"holder-{number}") for number in range(3)]
    months = [Resource.of(f"month={number}") for number in range(3)]
    leases = [holder.acquire(own(month), wait_s=12) for holder, month in zip(holders, months, strict=True)]
    everything = queues.writer("everything")
    waiting = Later(everything, own(*months))
    for holder, lease in reversed(list(zip(holders, leases, strict=True))):
        assert not waiting.done
        holder.release(lease)
    everything.release(waiting.lease())
    assert everything.inspect() == ()


def test_a_thousand_new_partitions_take_a_moment_and_leave_nothing_but_their_queues(queues: Queues) -> None:
    one = queues.writer("one")
    one.inspect()
    many = [Resource.of(f"day={day}/country=se") for day in range(1000)]
    with Stopwatch() as watch:
        one.release(one.acquire(own(*many), wait_s=20))
    assert watch.took_s < 10
    assert len(queues.nodes()) == 2001 and not any(queues.nodes().values())


def test_a_request_that_no_transaction_holds_is_refused_with_the_way_out(queues: Queues) -> None:
    one = queues.writer("one")
    huge = [Resource.of(f"{'x' * 900}={number}") for number in range(1000)]
    with pytest.raises(LockError, match="1000 partitions|1001 data locks") as refused:
        one.acquire(own(*huge), wait_s=5)
    assert "data_locks.escalate_above" in refused.value.hint and not isinstance(refused.value, LockTimeout)
    one.release(one.acquire(own(P1), wait_s=12))


def test_a_waiter_that_was_removed_from_the_queue_queues_up_again(queues: Queues) -> None:
    holder, waiter, operator = queues.writer("holder"), queues.writer("waiter"), queues.writer("operator")
    lease = holder.acquire(own(P1), wait_s=12)
    waiting = Later(waiter, own(P1, P2))
    token = holder.inspect()[1].token
    operator.break_lock(token, force=True)
    holder.release(lease)
    after = waiting.lease()
    assert after.token >= token
    waiter.release(after)
    assert not any(queues.nodes().values())


def test_a_foreign_node_keeps_out_whom_it_should_until_all_is_cleared_by_force(queues: Queues) -> None:
    one = queues.writer("one")
    one.release(one.acquire(own(P1), wait_s=12))
    foreign = queues.plain.create(f"{queues.path}/@table/read-", b"not ours", ephemeral=True, sequence=True)
    assert granted(one, own(TABLE)) is None
    lease = one.acquire(own(P1), wait_s=12)
    assert [shown.writer is None for shown in one.inspect()] == [True, False]
    one.break_all()
    assert queues.plain.exists(foreign) is None and not any(queues.nodes().values())
    with pytest.raises(LeaseLost):
        one.renew(lease)


def test_queues_that_nobody_uses_are_removed_when_there_are_too_many(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiter_module, "MANY_QUEUES", 20)
    one, two = queues.writer("one"), queues.writer("two")
    kept = one.acquire(own(P1), wait_s=12)
    for day in range(60):
        two.release(two.acquire(own(Resource.of(f"day={day}")), wait_s=12))
    nodes = queues.nodes()
    assert len(nodes) <= 25
    assert len(nodes["month=1"]) == len(nodes["@table"]) == 1
    kept.ensure_active()
    one.renew(kept)
    assert granted(two, own(P1)) is None
    one.release(kept)


def test_a_waiter_reports_once_for_whom_it_waits(queues: Queues) -> None:
    seen: list[Event] = []
    holder, waiter = queues.writer("holder"), queues.writer("waiter", listener=seen.append)
    lease = holder.acquire(own(P1), wait_s=12)
    with pytest.raises(LockTimeout):
        waiter.acquire(share(P1), wait_s=1.5)
    assert [event.kind for event in seen] == [EventKind.WAITING_FOR_LOCK]
    assert str(seen[0].facts["holder"]).startswith("holder")
    holder.release(lease)


def test_the_nodes_of_a_digest_user_are_closed_to_everybody_else(queues: Queues) -> None:
    owner = queues.writer("owner", **{"lock.options.auth_data": f"digest:spark:{SECRET}", "lock.options.acl": "creator"})
    lease = owner.acquire(own(P1), wait_s=12)
    stranger = queues.writer("stranger")
    with pytest.raises(LockError, match="may not use") as refused:
        stranger.acquire(own(P2), wait_s=5)
    assert SECRET not in str(refused.value) + owner.identity + repr(owner)
    owner.renew(lease)
    owner.release(lease)
