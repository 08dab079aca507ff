"""The ZooKeeper lock on a real server: what a queue and a session add to the promises of every provider."""

from __future__ import annotations

import gc
import socket
from pathlib import Path

import pytest
from tests.api import EventKind, Events, renewing
from tests.behaviour.tables import memory_table, writer
from tests.integration.zookeeper.zookeeper_world import World, expire, take
from tests.servers.locks.zookeeper import zookeeper_server
from tests.waiting import eventually

from lakelock.errors import LeaseLost
from lakelock.providers.zookeeper.queue import Waiter
from lakelock.providers.zookeeper.session import ZooKeeperSession
from lakelock.settings import Settings
from lakelock.testing.service import Service


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


def test_a_table_that_was_forgotten_without_being_closed_leaves_no_session_and_one_in_use_keeps_its(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with zookeeper_server(tmp_path, own=True) as service:
        settings = Settings.resolve({"lock.provider": service.url("t"), **service.options}).settings
        with writer(memory_table(), settings, "in use") as table:
            assert table.table.provider is not None
            lease = take(table.table.provider, 12)
            for _ in range(3):
                forgotten = writer(memory_table(), settings, "forgotten")
                assert forgotten.table.provider is not None and forgotten.table.provider.inspect().holder is not None
                del forgotten

            def only_one_is_left() -> bool:
                caplog.clear()  # an error in a captured record holds the frames that it passed
                gc.collect()
                return told(service, "zk_num_alive_connections") == 1 + 1  # the other one asks this question

            eventually(only_one_is_left, 60)
            table.table.provider.renew(lease)


def received(service: Service) -> int:
    """Packets that the server has received so far."""
    return told(service, "zk_packets_received")


def told(service: Service, name: str) -> int:
    """One number of what the server counts."""
    with socket.create_connection((service.host, service.port), timeout=5) as talking:
        talking.sendall(b"mntr")
        counted = b"".join(iter(lambda: talking.recv(65_536), b"")).decode()
    return int(next(line.split("\t")[1] for line in counted.splitlines() if line.split("\t")[0] == name))


def test_a_lone_writer_sends_three_requests_for_a_lock_and_its_release(world: World) -> None:
    provider = world.writer("alone", lease_s=30.0)
    provider.release(take(provider, 12))
    before = received(world.service)
    for _ in range(20):
        provider.release(take(provider))
    assert received(world.service) - before <= 3 * 20 + 10


def test_a_release_that_is_interrupted_frees_the_lock(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Ctrl-C in a notebook, whose process and session live on."""
    holder, other = world.writer("holder"), world.writer("other")
    lease = holder.acquire(wait_s=12)

    def interrupted(*_: object) -> list[object]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ZooKeeperSession, "ask", interrupted)
        with pytest.raises(KeyboardInterrupt):
            holder.release(lease)
    other.release(other.acquire(wait_s=12))
    holder.release(holder.acquire(wait_s=12))


def test_a_waiter_that_is_interrupted_twice_leaves_the_queue(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second Ctrl-C comes while it takes its node out."""
    holder, waiter, other = world.writer("holder"), world.writer("waiter"), world.writer("other")
    lease = holder.acquire(wait_s=12)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    leave = Waiter.leave

    def interrupted_once(*_: object) -> None:
        monkeypatch.setattr(Waiter, "leave", leave)
        raise KeyboardInterrupt

    monkeypatch.setattr(waiter, "pause", interrupted)
    monkeypatch.setattr(Waiter, "leave", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        waiter.acquire(wait_s=12)
    holder.release(lease)
    other.release(other.acquire(wait_s=12))
