"""The ZooKeeper lock when connections break, sessions end, replies get lost, and servers hang, restart or fail."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.api import EventKind, Events, renewing
from tests.integration.zookeeper.zookeeper_world import (
    LEASE_S,
    World,
    after_a_change_of_sessions,
    before_a_watch,
    expire,
    nodes,
    take,
)
from tests.servers.locks.zookeeper import zookeeper_ensemble, zookeeper_server
from tests.waiting import Stopwatch, eventually

from lakelock.errors import LeaseLost, ProviderUnavailable, SettingsError
from lakelock.providers.zookeeper.queue import ZooKeeperLease
from lakelock.testing.proxy import Proxy
from lakelock.testing.service import Service


@pytest.fixture
def proxy(zookeeper: Service) -> Iterator[Proxy]:
    with Proxy(zookeeper.port, host=zookeeper.host) as proxy:
        yield proxy


def test_an_unreachable_server_costs_no_more_than_the_wait(world: World) -> None:
    provider = world.writer("one", uri="zookeeper://127.0.0.1:1/lock")
    with Stopwatch() as waiting, pytest.raises(ProviderUnavailable, match=r"127\.0\.0\.1:1"):
        take(provider, wait_s=1.5)
    assert waiting.took_s < 1.5 + 1.0
    with Stopwatch() as closing:
        provider.close()
    assert closing.took_s < 1.5


def test_a_server_that_does_not_answer_is_passed_over_for_the_next_one(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=8) as silent:
        uri = world.uri.replace("zookeeper://", f"zookeeper://127.0.0.1:{silent.getsockname()[1]},")
        provider = world.writer("one", lease_s=3.0, uri=uri)
        take(provider, wait_s=10).ensure_active()
        provider.close()


def test_a_connection_that_kazoo_has_given_up_is_replaced(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[KazooClient] = []
    start = KazooClient.start_async
    monkeypatch.setattr(KazooClient, "start_async", lambda client: (started.append(client), start(client))[1])
    provider = world.writer("one", lease_s=6.0)
    lease = take(provider, 12)
    (client,) = started
    client.stop()
    assert lease.lost is not None and lease.lost.reason == "session-lost"
    provider.release(lease)
    again = take(provider, 12)
    assert again.token > lease.token
    again.ensure_active()


def test_a_grant_whose_reply_was_lost_is_found_again_and_not_taken_twice(world: World, proxy: Proxy) -> None:
    provider, looking = world.writer("one", lease_s=6.0, port=proxy.port), world.writer("looks", lease_s=30.0)
    provider.probe()
    proxy.drop_replies()
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(take, provider, 10)
        eventually(lambda: len(nodes(looking)) == 1)
        (node,) = nodes(looking)
        proxy.heal(reconnect=True)
        lease = taking.result(10)
    assert lease.grant == node and nodes(looking) == [node]
    lease.ensure_active()
    provider.renew(lease)
    provider.release(lease)
    assert nodes(looking) == []


def test_giving_up_after_a_lost_reply_leaves_no_node_behind(world: World, proxy: Proxy) -> None:
    provider, looking = world.writer("one", lease_s=20.0, port=proxy.port), world.writer("looks", lease_s=30.0)
    provider.probe()
    proxy.drop_replies()
    with pytest.raises(ProviderUnavailable):
        take(provider, wait_s=0.5)
    assert len(nodes(looking)) == 1
    proxy.heal(reconnect=True)
    # Long before the session would time out.
    eventually(lambda: nodes(looking) == [], within_s=8)
    proxy.heal(reconnect=True)
    take(provider, wait_s=12).ensure_active()


def test_a_waiter_whose_connection_breaks_waits_on_with_the_same_node(world: World, proxy: Proxy) -> None:
    holder, waiter = world.writer("holder", lease_s=6.0), world.writer("waiter", lease_s=6.0, port=proxy.port)
    lease = take(holder)
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(take, waiter, 10)
        eventually(lambda: len(nodes(holder)) == 2)
        place = nodes(holder)[1]
        proxy.interrupt()
        assert nodes(holder) == [lease.grant, place]
        holder.release(lease)
        assert taking.result(10).grant == place


def test_a_node_that_was_made_in_the_next_session_is_not_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = world.writer("one", lease_s=20.0)
    provider.release(take(provider, 12))
    after_a_change_of_sessions(monkeypatch)
    lease = take(provider, 10)
    assert nodes(provider) == [lease.grant]
    provider.release(lease)


def test_a_waiter_whose_session_ends_or_whose_node_is_removed_enters_the_queue_again(world: World) -> None:
    holder, waiter = world.writer("holder", lease_s=6.0), world.writer("waiter", lease_s=6.0)
    lease = take(holder)
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(take, waiter, 10)
        eventually(lambda: len(nodes(holder)) == 2)
        first_place = nodes(holder)[1]
        expire(waiter)
        eventually(lambda: len(nodes(holder)) == 2 and nodes(holder)[1] != first_place)
        assert not taking.done()
        holder.release(lease)
        taken = taking.result(10)
    assert taken.grant != first_place and nodes(holder) == [taken.grant]
    taken.ensure_active()


def test_a_waiter_whose_session_ends_while_it_sets_its_watch_enters_the_queue_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, waiter = world.writer("holder", lease_s=30.0), world.writer("waiter", lease_s=30.0)
    lease = take(holder)
    changed = before_a_watch(monkeypatch, lambda: expire(waiter))
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(take, waiter, 60)
        try:
            assert changed.wait(60)
            eventually(lambda: len(nodes(holder)) == 2, 20, saying="it waits in the queue, and not only for the holder to go")
        finally:
            holder.release(lease)
        taking.result(60).ensure_active()


def test_publishing_pauses_while_the_connection_is_interrupted_and_goes_on_once_verified(world: World, proxy: Proxy) -> None:
    holder = world.writer("holder", lease_s=9.0, port=proxy.port)
    lease = take(holder, 12)
    assert isinstance(lease, ZooKeeperLease)
    proxy.cut()
    eventually(lambda: lease.is_doubtful)
    assert lease.lost is None, "suspended is not lost"
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(lease.ensure_active)
        with pytest.raises(NotYet):
            asking.result(timeout=0.3)
        with pytest.raises(LeaseLost, match="left"):
            lease.ensure_active(margin_s=lease.remaining_s() - 0.1)
        assert lease.lost is None
        proxy.heal(reconnect=True)
        asking.result(timeout=5)
    assert not lease.is_doubtful and lease.lost is None
    holder.release(lease)


def test_a_holder_that_is_cut_off_stops_before_the_next_one_starts(world: World, proxy: Proxy) -> None:
    holder, other = world.writer("holder", port=proxy.port), world.writer("other")
    lease = take(holder, 12)
    assert isinstance(lease, ZooKeeperLease)
    with renewing(holder, lease, world.runtime, LEASE_S / 3, Events((world.seen.append,))):
        proxy.cut()
        with ThreadPoolExecutor(1) as pool:
            taking = pool.submit(lambda: (take(other, wait_s=10), time.monotonic()))
            eventually(lambda: lease.is_doubtful)
            with pytest.raises(LeaseLost) as lost:
                lease.ensure_active()
            stopped_s = time.monotonic()
            new, taken_s = taking.result(15)
        assert lost.value.details["reason"] == "unreachable"
    assert stopped_s < taken_s and new.token > lease.token
    proxy.heal(reconnect=True)
    holder.release(lease)
    other.renew(new)
    assert [event.kind for event in world.seen].count(EventKind.LEASE_LOST) == 1


def test_a_release_whose_reply_was_lost_or_that_cannot_be_sent_frees_the_lock_all_the_same(world: World, proxy: Proxy) -> None:
    holder, other = world.writer("holder", lease_s=20.0, port=proxy.port), world.writer("other", lease_s=20.0)
    lease = take(holder, 12)
    proxy.drop_replies()
    holder.release(lease)
    new = take(other, 12)
    assert new.token > lease.token
    other.release(new)
    proxy.heal(reconnect=True)
    lease = take(holder, 10)
    proxy.cut()
    with Stopwatch() as watch:
        holder.release(lease)
    assert watch.took_s < 2.0 + 1.5
    assert [event.kind for event in world.seen].count(EventKind.ALERT) == 2
    proxy.heal(reconnect=True)
    take(other, 8).ensure_active()


def test_a_greeting_that_nobody_answers_costs_a_part_of_the_session_and_not_the_lock(world: World, proxy: Proxy) -> None:
    holder = world.writer("holder", lease_s=12.0, port=proxy.port)
    lease = take(holder, 12)
    proxy.drop_replies(1)
    proxy.interrupt()
    eventually(lambda: proxy.dropped == 1)
    lease.ensure_active()
    assert lease.lost is None
    holder.release(lease)


def test_a_server_that_restarts_with_its_data_keeps_the_lock_for_its_holder(tmp_path: Path) -> None:
    with zookeeper_server(tmp_path, own=True) as server:
        world = World(server)
        holder, other = world.writer("holder", lease_s=38.0), world.writer("other", lease_s=38.0)
        lease = take(holder, 12)
        assert isinstance(lease, ZooKeeperLease)
        with ThreadPoolExecutor(1) as pool:
            taking = pool.submit(take, other, 60)
            eventually(lambda: len(nodes(holder)) == 2)
            server.stop()
            eventually(lambda: lease.is_doubtful)
            server.start()
            # A server that is just starting may lose the greeting of a client, which costs a third of its session.
            lease.ensure_active()
            assert not taking.done()
            holder.release(lease)
            assert taking.result(60).token > lease.token
        world.close()


def test_a_held_lock_survives_the_loss_of_the_leader(tmp_path: Path) -> None:
    with zookeeper_ensemble(tmp_path) as ensemble:
        world = World(ensemble.service)
        holder, other = world.writer("holder", lease_s=30.0), world.writer("other", lease_s=30.0)
        lease = take(holder, 10)
        with ThreadPoolExecutor(1) as pool:
            taking = pool.submit(take, other, 60)
            eventually(lambda: len(nodes(holder)) == 2)
            ensemble.stop_leader()
            eventually(lambda: lease.is_doubtful)  # type: ignore[attr-defined]
            lease.ensure_active()
            assert not taking.done() and lease.lost is None
            assert nodes(holder)[0] == lease.grant and len(nodes(holder)) == 2
            holder.release(lease)
            assert taking.result(30).token > lease.token
        world.close()


def test_leases_are_never_longer_than_the_session_that_the_server_grants(world: World, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="40 s"):
        take(world.writer("long", lease_s=900.0), 5)
    assert nodes(world.writer("looks", lease_s=30.0)) == []
    provider = world.writer("one", lease_s=60.0)
    lease = take(provider, 12)
    assert lease.lease_s == 40.0 and lease.remaining_s() <= 40.0
    with pytest.raises(SettingsError, match=r"maxSessionTimeout"):
        world.writer("probes", lease_s=900.0).probe()


def test_where_a_server_lets_in_no_more_connections_from_an_address_the_hint_names_its_limit(tmp_path: Path) -> None:
    with zookeeper_server(tmp_path, {"maxClientCnxns": "1"}, own=True) as server:
        world = World(server)
        take(world.writer("in", lease_s=30.0), wait_s=20)
        with pytest.raises(ProviderUnavailable) as refused:
            take(world.writer("out", lease_s=30.0), wait_s=0.5)
        assert "maxClientCnxns" in refused.value.hint
        world.close()
