"""Data locks in a real Hive metastore when requests and replies get lost on the way: each happens once, or is taken back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.api import EventKind, Resource, SystemRuntime, renewing
from tests.behaviour.data_locks.data_lock_suite import P1, P2, SLACK_S, Later, granted, own
from tests.integration.data_locks.metastore_data_world import DataWorld, data_world
from tests.integration.matrix import mark
from tests.servers.locks.metastore_proxy import MetastoreProxy, metastore_proxy
from tests.waiting import Stopwatch, eventually

from lakelock.errors import ProviderUnavailable
from lakelock.testing.service import Service

pytestmark = pytest.mark.in_ci

RUNTIME = SystemRuntime()


@pytest.fixture
def world(patient_metastore: Service) -> Iterator[DataWorld]:
    with data_world(patient_metastore) as world:
        yield world


@pytest.fixture
def proxy(patient_metastore: Service) -> Iterator[MetastoreProxy]:
    with metastore_proxy(patient_metastore.port, patient_metastore.host) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def cell(request: pytest.FixtureRequest) -> None:
    """Says in the reports which cell of the lock matrix this is."""
    mark(request.node, "hive_metastore", "S/X suite")


def test_a_request_costs_two_calls_and_its_release_one_however_many_partitions_it_names(
    world: DataWorld, proxy: MetastoreProxy
) -> None:
    one = world.writer("one", port=proxy.port)
    one.release(one.acquire(own(P1), wait_s=12))
    proxy.calls.clear()
    for size in (1, 30, 300):
        one.release(one.acquire(own(*(Resource.of(f"day={day}") for day in range(size))), wait_s=10))
    assert proxy.calls == {"lock": 3, "show_locks": 3, "unlock": 3}


@pytest.mark.parametrize("lost", ["reply", "request"])
def test_a_request_that_got_lost_or_its_reply_is_made_once(world: DataWorld, proxy: MetastoreProxy, lost: str) -> None:
    one, two = world.writer("one", port=proxy.port), world.writer("two")
    one.release(one.acquire(own(P1), wait_s=12))
    setattr(proxy, f"lose_{lost}", ["lock"])
    lease = one.acquire(own(P1, P2), wait_s=15)
    assert getattr(proxy, f"lose_{lost}") == [] and proxy.calls["lock"] == (2 if lost == "reply" else 3)
    assert [shown.token for shown in two.inspect()] == [lease.token]
    assert granted(two, own(P1)) is None
    one.renew(lease)
    setattr(proxy, f"lose_{lost}", ["unlock"])
    one.release(lease)
    assert getattr(proxy, f"lose_{lost}") == [] and world.rows() == []


def test_a_request_that_arrives_late_leaves_no_ghost(world: DataWorld, proxy: MetastoreProxy) -> None:
    one = world.writer("one", port=proxy.port)
    proxy.hold_request = ["lock"]
    lease = one.acquire(own(P1), wait_s=12)
    proxy.deliver()
    assert len({row.lock_id for row in world.rows()}) == 2
    one.renew(lease)
    one.release(lease)
    assert world.rows() == []


def test_a_request_that_arrives_after_its_writer_gave_up_is_taken_back(world: DataWorld, proxy: MetastoreProxy) -> None:
    one = world.writer("one", port=proxy.port)
    one.release(one.acquire(own(P1), wait_s=12))
    proxy.hold_request = ["lock"]
    with pytest.raises(ProviderUnavailable):
        one.acquire(own(P1), wait_s=0)
    assert world.rows() == []
    proxy.deliver()
    eventually(lambda: world.rows() == [], within_s=12)


def test_a_request_that_arrives_late_does_not_block_its_own_writer(world: DataWorld, proxy: MetastoreProxy) -> None:
    holder, one = world.writer("holder"), world.writer("one", port=proxy.port)
    held = holder.acquire(own(P1), wait_s=12)
    proxy.hold_request = ["lock"]
    waiting = Later(one, own(P1))
    proxy.deliver()
    eventually(lambda: len({row.lock_id for row in world.rows()}) == 2)
    holder.release(held)
    one.release(waiting.lease())
    assert world.rows() == []


@pytest.mark.parametrize("lost", ["reply", "request"])
def test_a_lost_look_sign_of_life_or_heartbeat_is_made_up_for(world: DataWorld, proxy: MetastoreProxy, lost: str) -> None:
    holder, waiter = world.writer("holder"), world.writer("waiter", lease_s=2.0, port=proxy.port)
    held = holder.acquire(own(P1), wait_s=12)
    setattr(proxy, f"lose_{lost}", ["show_locks", "check_lock", "heartbeat"])
    waiting = Later(waiter, own(P1))
    eventually(lambda: proxy.calls["check_lock"] > 1)
    holder.release(held)
    lease = waiting.lease()
    waiter.renew(lease)
    waiter.release(lease)
    assert getattr(proxy, f"lose_{lost}") == [] and world.rows() == []


def test_without_a_metastore_waiting_is_bounded_the_lease_ends_and_a_failed_release_is_told(
    world: DataWorld, proxy: MetastoreProxy
) -> None:
    one = world.writer("one", lease_s=3.0, port=proxy.port, connect_delay_s=0.05)
    lease = one.acquire(own(P1), wait_s=12)
    proxy.refuse, proxy.lose_request = True, ["heartbeat"]
    with renewing(one, lease, RUNTIME, 0.1):
        eventually(lambda: lease.lost is not None, within_s=3.0 + SLACK_S)
    assert lease.lost is not None and lease.lost.reason == "unreachable"
    one.release(lease)
    assert EventKind.ALERT in [event.kind for event in world.seen]
    with Stopwatch() as watch, pytest.raises(ProviderUnavailable, match=r"within 0\.5 s"):
        one.acquire(own(P1), wait_s=0.5)
    assert watch.took_s < 0.5 + SLACK_S
    proxy.refuse = False
    one.acquire(own(P1), wait_s=3.0 + 2 * SLACK_S)
