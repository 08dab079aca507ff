"""The ZooKeeper lock on a real server: what a queue and a session add to the promises of every provider."""

from __future__ import annotations

import socket

import pytest

from lakelock.errors import LeaseLost
from lakelock.events import EventKind, Events
from lakelock.providers import renewing
from lakelock.testing.servers.service import Service
from tests.integration.zookeeper.zookeeper_world import World, expire, take
from tests.waiting import eventually


def test_a_session_that_ended_is_a_loss_that_is_told_once_and_the_writer_can_go_on(world: World) -> None:
    holder = world.writer("holder", lease_s=6.0)
    lease = take(holder)
    with renewing(holder, lease, world.runtime, 0.1, Events((world.seen.append,))):
        expire(holder)
        eventually(lambda: lease.lost)
        assert lease.lost is not None and lease.lost.reason == "session-lost"
        with pytest.raises(LeaseLost, match="session"):
            lease.ensure_active()
    holder.release(lease)
    assert [event.kind for event in world.seen].count(EventKind.LEASE_LOST) == 1
    again = take(holder, wait_s=12)
    assert again.token > lease.token and lease.lost.reason == "session-lost"


def received(service: Service) -> int:
    """Packets that the server has received so far."""
    with socket.create_connection((service.host, service.port), timeout=5) as talking:
        talking.sendall(b"mntr")
        told = b"".join(iter(lambda: talking.recv(65_536), b"")).decode()
    return int(next(line.split("\t")[1] for line in told.splitlines() if line.startswith("zk_packets_received")))


def test_a_lone_writer_sends_three_requests_for_a_lock_and_its_release(world: World) -> None:
    provider = world.writer("alone", lease_s=30.0)
    provider.release(take(provider, 12))
    before = received(world.service)
    for _ in range(20):
        provider.release(take(provider))
    assert received(world.service) - before <= 3 * 20 + 10
