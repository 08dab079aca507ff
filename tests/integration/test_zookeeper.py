"""The ZooKeeper lock on a real server: what every provider promises, and what a queue and a session add."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lakelock.clock import SystemRuntime
from lakelock.errors import LeaseLost, LockError, LockTimeout, ProviderUnavailable, SettingsError
from lakelock.events import EventKind, Events
from lakelock.identity import WriterIdentity
from lakelock.providers import Lease, LockProvider, open_provider, renewing
from lakelock.providers.zookeeper_lease import ZooKeeperLease
from lakelock.providers.zookeeper_place import parse_place
from lakelock.settings import Settings
from lakelock.storage_memory import MemoryStorage
from lakelock.testing.servers.proxy import Proxy
from lakelock.testing.servers.service import Service
from lakelock.testing.servers.zookeeper import zookeeper_ensemble, zookeeper_server
from tests.integration.zookeeper_world import LEASE_S, World, expire, until, workers


@pytest.fixture
def world(zookeeper: Service) -> Iterator[World]:
    world = World(zookeeper)
    yield world
    world.close()


@pytest.fixture
def proxy(zookeeper: Service) -> Iterator[Proxy]:
    with Proxy(zookeeper.port) as proxy:
        yield proxy


def take(provider: LockProvider, wait_s: float = 0.0) -> Lease:
    return provider.acquire(wait_s=wait_s)


def nodes(provider: LockProvider) -> list[str]:
    """The owners in the queue, the holder first."""
    state = provider.inspect()
    return [one.owner for one in (state.holder, *state.queue) if one]


def test_one_holds_the_lock_and_the_other_is_told_who_within_its_wait(world: World) -> None:
    first, second = world.writer("stream"), world.writer("backfill")
    lease = take(first)
    lease.ensure_active()
    began_s = time.monotonic()
    with pytest.raises(LockTimeout, match="stream") as refused:
        take(second, wait_s=1.3)
    assert 1.3 <= time.monotonic() - began_s < 1.3 + 1.0
    holder = refused.value.details["holder"]
    assert isinstance(holder, dict) and holder["writer"]["application"] == "stream"
    waits = [event for event in world.seen if event.kind is EventKind.WAITING_FOR_LOCK]
    assert 1 <= len(waits) <= 2
    first.release(lease)
    take(second).ensure_active()


def test_tokens_are_transaction_numbers_and_grow_across_release_and_lost_sessions(world: World) -> None:
    tokens = []
    for name in ("a", "b", "a"):
        provider = world.writer(name)
        lease = take(provider)
        tokens.append(lease.token)
        assert provider.inspect().token == lease.token
        provider.release(lease)
    crashed = world.writer("crashes")
    tokens.append(take(crashed).token)
    expire(crashed)
    tokens.append(take(world.writer("after"), wait_s=5).token)
    assert tokens == sorted(set(tokens)) and len(tokens) == 5


def test_a_holder_that_renews_is_never_replaced_and_one_that_does_not_loses_its_lease(world: World) -> None:
    holder, rival = world.writer("holder"), world.writer("rival")
    lease = take(holder)
    with renewing(holder, lease, world.runtime, LEASE_S / 3), pytest.raises(LockTimeout):
        take(rival, wait_s=2 * LEASE_S)
    lease.ensure_active()
    until(lambda: lease.lost)
    assert lease.lost is not None and lease.lost.reason == "expired"
    with pytest.raises(LeaseLost):
        holder.renew(lease)
    assert lease.remaining_s() == 0
    holder.release(lease)
    assert take(rival).token > lease.token


def test_release_may_be_called_twice_and_frees_nobody_elses_lock(world: World) -> None:
    first, second, third = world.writer("first"), world.writer("second"), world.writer("third")
    old = take(first)
    expire(first)
    new = take(second, wait_s=5)
    first.release(old)
    first.release(old)
    with pytest.raises(LockTimeout):
        take(third)
    second.renew(new)
    second.release(new)
    second.release(new)
    with pytest.raises(LeaseLost):
        second.renew(new)
    take(third).ensure_active()


def test_a_session_that_ended_is_a_loss_that_is_told_once_and_the_writer_can_go_on(world: World) -> None:
    holder = world.writer("holder", lease_s=6.0)
    lease = take(holder)
    with renewing(holder, lease, world.runtime, 0.1, Events((world.seen.append,))):
        expire(holder)
        until(lambda: lease.lost)
        assert lease.lost is not None and lease.lost.reason == "session-lost"
        with pytest.raises(LeaseLost, match="session"):
            lease.ensure_active()
    holder.release(lease)
    assert [event.kind for event in world.seen].count(EventKind.LEASE_LOST) == 1
    again = take(holder, wait_s=5)
    assert again.token > lease.token and lease.lost.reason == "session-lost"


def test_breaking_needs_the_current_token_and_force_while_the_session_lives(world: World) -> None:
    holder, operator = world.writer("holder"), world.writer("operator")
    operator.break_lock(0)
    lease = take(holder)
    with pytest.raises(LockError, match="token"):
        operator.break_lock(lease.token + 1, force=True)
    with pytest.raises(LockError, match="holder"):
        operator.break_lock(lease.token)
    holder.renew(lease)
    operator.break_lock(lease.token, force=True)
    with pytest.raises(LeaseLost):
        holder.renew(lease)
    assert lease.lost is not None and lease.lost.reason == "taken-over"
    after = take(world.writer("next"))
    assert after.token > lease.token
    with pytest.raises(LockError):
        operator.break_lock(lease.token, force=True)
    after.ensure_active()


def test_inspect_shows_the_holder_and_the_queue_in_order(world: World) -> None:
    looking = world.writer("looks")
    assert looking.inspect().holder is None
    lease = take(world.writer("one"))
    with ThreadPoolExecutor(2) as pool:
        waiting = []
        for number, name in enumerate(("two", "three"), start=1):
            waiting.append(pool.submit(take, world.writer(name), 10))
            until(lambda number=number: len(nodes(looking)) == 1 + number)  # type: ignore[misc]
        state = looking.inspect()
        assert state.holder is not None and state.holder.writer is not None
        assert state.holder.writer.application == "one" and state.holder.lease_s == LEASE_S
        assert state.token == state.holder.token == lease.token
        assert [one.writer and one.writer.application for one in state.queue] == ["two", "three"]
        assert lease.token < state.queue[0].token < state.queue[1].token
        world.opened[1].release(lease)
        until(waiting[0].done)
        world.opened[2].release(waiting[0].result())
        world.opened[3].release(waiting[1].result(10))
    state = looking.inspect()
    assert state.holder is None and state.queue == () and state.token >= lease.token


def test_waiters_are_served_in_order_of_arrival_and_a_release_wakes_the_next_at_once(world: World) -> None:
    looking, served, delays = world.writer("looks"), [], []
    released_s = 0.0
    holder = world.writer("holder", lease_s=30.0)
    lease = take(holder)

    def work(number: int) -> None:
        nonlocal released_s
        provider = world.writer(str(number), lease_s=30.0)
        mine = take(provider, 30)
        delays.append(time.monotonic() - released_s)
        served.append(number)
        released_s = time.monotonic()
        provider.release(mine)

    with ThreadPoolExecutor(6) as pool:
        working = []
        for number in range(6):
            working.append(pool.submit(work, number))
            until(lambda number=number: len(nodes(looking)) == number + 2)  # type: ignore[misc]
        released_s = time.monotonic()
        holder.release(lease)
        for one in working:
            one.result(20)
    assert served == list(range(6))
    assert sorted(delays)[3] < 0.25, delays


def received(port: int) -> int:
    """Packets that the server has received so far."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as talking:
        talking.sendall(b"mntr")
        told = b"".join(iter(lambda: talking.recv(65_536), b"")).decode()
    return int(next(line.split("\t")[1] for line in told.splitlines() if line.startswith("zk_packets_received")))


def test_a_lone_writer_sends_three_requests_for_a_lock_and_its_release(world: World) -> None:
    provider = world.writer("alone", lease_s=30.0)
    provider.release(take(provider, 5))
    before = received(world.service.port)
    for _ in range(20):
        provider.release(take(provider))
    assert received(world.service.port) - before <= 3 * 20 + 10


def test_the_requests_of_waiters_grow_linearly_and_not_with_time(world: World) -> None:
    def requests(waiters: int) -> int:
        looking, holder = world.writer("looks", lease_s=30.0), world.writer("holder", lease_s=30.0)
        lease = take(holder, 5)
        providers = [world.writer(f"{waiters}-{number}", lease_s=30.0) for number in range(waiters)]
        for provider in providers:
            provider.probe()
        with ThreadPoolExecutor(waiters) as pool:
            work = [pool.submit(lambda one=provider: one.release(take(one, 60))) for provider in providers]  # type: ignore[misc]
            end_s = time.monotonic() + 20
            while len(nodes(looking)) < waiters + 1:
                assert time.monotonic() < end_s
                time.sleep(0.2)
            between = received(world.service.port)
            assert work and not any(one.done() for one in work)
            holder.release(lease)
            for one in work:
                one.result(30)
        after = received(world.service.port)
        for provider in (*providers, looking, holder):
            provider.close()
        return after - between

    few, many = requests(5), requests(25)
    # To be woken and to leave is sync, list and delete, and whatever pings fell into the time. A herd would cost 25 * 25 / 2.
    assert few <= 3 * 5 + 30 and many <= 3 * 25 + 60


# --- processes


def test_four_processes_never_hold_the_lock_at_once(world: World, tmp_path: Path) -> None:
    with workers(world, tmp_path) as (python, _):
        hammering = [python(lease_s=15.0) for _ in range(4)]
        assert all(worker("ready") for worker in hammering)
        for worker in hammering:
            worker.ask("hammer 40")
        assert [worker.answer() for worker in hammering] == [{"overlaps": 0}] * 4
    assert (tmp_path / "count").read_text() == str(4 * 40)
    grants = [line.split() for line in (tmp_path / "tokens").read_text().splitlines()]
    tokens = [int(token) for token, _ in grants]
    assert tokens == sorted(set(tokens)) and len(tokens) == 4 * 40
    assert sum(before[1] != after[1] for before, after in pairwise(grants)) > len(tokens) / 2, "they did not take turns"


def test_a_killed_holder_is_replaced_after_its_session_and_not_before(world: World, tmp_path: Path) -> None:
    with workers(world, tmp_path) as (python, _):
        first, second = python(), python()
        assert second("ready")
        token = first("take 5")["token"]
        assert first("renew") and "held by worker-" in second("take 0.2")["timeout"]
        first.signal(signal.SIGKILL)
        took = second("take 20")
        assert took["token"] > token
        assert LEASE_S / 3 < took["took_s"] < 2 * LEASE_S + 5


def test_a_holder_that_was_paused_beyond_its_lease_finds_out_that_it_lost_it(world: World, tmp_path: Path) -> None:
    with workers(world, tmp_path) as (python, _):
        sleeper, other = python(), python()
        sleeper("take 5")
        sleeper("renew")
        sleeper.signal(signal.SIGSTOP)
        assert "token" in other("take 20")
        other("renew")
        sleeper.signal(signal.SIGCONT)
        assert sleeper("check")["active"] is False
        sleeper("release")
        assert other("check") == {"active": True}, "the sleeper's release must not free the lock of its successor"
        assert "timeout" in sleeper("take 0.2")


def test_a_forked_child_does_not_hold_the_lock_and_leaves_the_parents_session_alone(world: World) -> None:
    provider = world.writer("parent")
    lease = take(provider, 5)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # only plain calls here: a failure must end this process, not run the rest of the suite
        answers = []
        try:
            answers.append("holds" if lease.lost is None else lease.lost.reason)
            provider.release(lease)
            provider.close()
            try:
                provider.acquire(wait_s=0.1)
                answers.append("took it")
            except LockTimeout as error:
                answers.append(type(error).__name__)
            provider.close()
        finally:
            os.write(writing, ",".join(answers).encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    assert told == "session-lost,LockTimeout"
    provider.renew(lease)
    lease.ensure_active()
    assert nodes(provider) == [lease.grant]
    provider.release(lease)


# --- connections and servers that fail


def test_an_unreachable_server_costs_no_more_than_the_wait(world: World) -> None:
    provider = world.writer("one", uri="zookeeper://127.0.0.1:1/lock")
    began_s = time.monotonic()
    with pytest.raises(ProviderUnavailable, match=r"127\.0\.0\.1:1"):
        take(provider, wait_s=1.5)
    assert time.monotonic() - began_s < 1.5 + 1.0
    provider.close()
    assert time.monotonic() - began_s < 1.5 + 2.5


def test_a_server_that_does_not_answer_is_passed_over_for_the_next_one(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=8) as silent:
        uri = world.uri.replace("zookeeper://", f"zookeeper://127.0.0.1:{silent.getsockname()[1]},")
        provider = world.writer("one", lease_s=3.0, uri=uri)
        take(provider, wait_s=10).ensure_active()
        provider.close()


def test_a_connection_that_kazoo_has_given_up_is_replaced(world: World) -> None:
    provider = world.writer("one", lease_s=6.0)
    lease = take(provider, 5)
    assert provider._session is not None
    provider._session._client.stop()
    assert lease.lost is not None and lease.lost.reason == "session-lost"
    provider.release(lease)
    again = take(provider, 5)
    assert again.token > lease.token
    again.ensure_active()


def test_a_server_that_is_frozen_costs_no_more_than_the_wait_and_nothing_is_left_behind(tmp_path: Path) -> None:
    with zookeeper_server(tmp_path, own=True) as server:
        world = World(server)
        provider, looking = world.writer("one"), world.writer("looks")
        provider.probe()
        assert nodes(looking) == []
        server.pause()
        began_s = time.monotonic()
        with pytest.raises(ProviderUnavailable):
            take(provider, wait_s=0.3)
        assert time.monotonic() - began_s < 0.3 + 2 * 1.0 + 0.5
        server.resume()
        until(lambda: nodes(looking) == [])
        take(world.writer("two"), wait_s=3 * LEASE_S).ensure_active()
        world.close()


def test_a_grant_whose_reply_was_lost_is_found_again_and_not_taken_twice(world: World, proxy: Proxy) -> None:
    provider, looking = world.writer("one", lease_s=6.0, port=proxy.port), world.writer("looks")
    provider.probe()
    proxy.drop_replies()
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(take, provider, 10)
        until(lambda: len(nodes(looking)) == 1)
        (node,) = nodes(looking)
        proxy.heal(reconnect=True)
        lease = taking.result(10)
    assert lease.grant == node and nodes(looking) == [node]
    lease.ensure_active()
    provider.renew(lease)
    provider.release(lease)
    assert nodes(looking) == []


def test_giving_up_after_a_lost_reply_leaves_no_node_behind(world: World, proxy: Proxy) -> None:
    provider, looking = world.writer("one", lease_s=20.0, port=proxy.port), world.writer("looks")
    provider.probe()
    proxy.drop_replies()
    with pytest.raises(ProviderUnavailable):
        take(provider, wait_s=0.5)
    assert len(nodes(looking)) == 1
    proxy.heal(reconnect=True)
    # Long before the session would time out.
    until(lambda: nodes(looking) == [], within_s=8)
    proxy.heal(reconnect=True)
    take(provider, wait_s=5).ensure_active()


def test_a_waiter_that_gives_up_leaves_no_node_behind(world: World) -> None:
    holder, waiter = world.writer("holder"), world.writer("waiter")
    lease = take(holder)
    with pytest.raises(LockTimeout):
        take(waiter, wait_s=0.1)
    assert nodes(holder) == [lease.grant]


def test_a_waiter_whose_connection_breaks_waits_on_with_the_same_node(world: World, proxy: Proxy) -> None:
    holder, waiter = world.writer("holder", lease_s=6.0), world.writer("waiter", lease_s=6.0, port=proxy.port)
    lease = take(holder)
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(take, waiter, 10)
        until(lambda: len(nodes(holder)) == 2)
        place = nodes(holder)[1]
        proxy.interrupt()
        assert nodes(holder) == [lease.grant, place]
        holder.release(lease)
        assert taking.result(10).grant == place


def test_a_node_that_was_made_in_the_next_session_is_not_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session may end while a request waits for a connection; its node belongs to the next session then."""
    provider = world.writer("one", lease_s=20.0)
    provider.release(take(provider, 5))
    session = provider._session
    assert session is not None
    ask = session.ask

    def after_a_change_of_sessions(within_s: float, *requests: Any) -> list[Any]:
        monkeypatch.setattr(session, "ask", ask)
        session.epoch += 1
        return ask(within_s, *requests)

    monkeypatch.setattr(session, "ask", after_a_change_of_sessions)
    lease = take(provider, 10)
    assert nodes(provider) == [lease.grant]
    provider.release(lease)


def test_a_waiter_whose_session_ends_or_whose_node_is_removed_enters_the_queue_again(world: World) -> None:
    holder, waiter = world.writer("holder", lease_s=6.0), world.writer("waiter", lease_s=6.0)
    lease = take(holder)
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(take, waiter, 10)
        until(lambda: len(nodes(holder)) == 2)
        first_place = nodes(holder)[1]
        expire(waiter)
        until(lambda: len(nodes(holder)) == 2 and nodes(holder)[1] != first_place)
        assert not taking.done()
        holder.release(lease)
        taken = taking.result(10)
    assert taken.grant != first_place and nodes(holder) == [taken.grant]
    taken.ensure_active()


def test_publishing_pauses_while_the_connection_is_interrupted_and_goes_on_once_verified(world: World, proxy: Proxy) -> None:
    holder = world.writer("holder", lease_s=9.0, port=proxy.port)
    lease = take(holder, 5)
    assert isinstance(lease, ZooKeeperLease)
    proxy.cut()
    until(lambda: lease.is_doubtful)
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
    lease = take(holder, 5)
    assert isinstance(lease, ZooKeeperLease)
    with renewing(holder, lease, world.runtime, LEASE_S / 3, Events((world.seen.append,))):
        proxy.cut()
        with ThreadPoolExecutor(1) as pool:
            taking = pool.submit(lambda: (take(other, wait_s=10), time.monotonic()))
            until(lambda: lease.is_doubtful)
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
    lease = take(holder, 5)
    proxy.drop_replies()
    holder.release(lease)
    new = take(other, 5)
    assert new.token > lease.token
    other.release(new)
    proxy.heal(reconnect=True)
    lease = take(holder, 10)
    proxy.cut()
    began_s = time.monotonic()
    holder.release(lease)
    assert time.monotonic() - began_s < 2.0 + 1.5
    assert [event.kind for event in world.seen].count(EventKind.ALERT) == 2
    proxy.heal(reconnect=True)
    take(other, 8).ensure_active()


def test_a_server_that_restarts_with_its_data_keeps_the_lock_for_its_holder(tmp_path: Path) -> None:
    with zookeeper_server(tmp_path, own=True) as server:
        world = World(server)
        holder, other = world.writer("holder", lease_s=20.0), world.writer("other", lease_s=20.0)
        lease = take(holder, 5)
        assert isinstance(lease, ZooKeeperLease)
        with ThreadPoolExecutor(1) as pool:
            taking = pool.submit(take, other, 30)
            until(lambda: len(nodes(holder)) == 2)
            server.stop()
            until(lambda: lease.is_doubtful)
            server.start()
            lease.ensure_active()
            assert not taking.done()
            holder.release(lease)
            assert taking.result(20).token > lease.token
        world.close()


def test_a_held_lock_survives_the_loss_of_the_leader(tmp_path: Path) -> None:
    with zookeeper_ensemble(tmp_path) as ensemble:
        world = World(ensemble.service)
        holder, other = world.writer("holder", lease_s=30.0), world.writer("other", lease_s=30.0)
        lease = take(holder, 10)
        with ThreadPoolExecutor(1) as pool:
            taking = pool.submit(take, other, 60)
            until(lambda: len(nodes(holder)) == 2)
            ensemble.stop_leader()
            until(lambda: lease.is_doubtful)  # type: ignore[attr-defined]
            lease.ensure_active()
            assert not taking.done() and lease.lost is None
            assert nodes(holder)[0] == lease.grant and len(nodes(holder)) == 2
            holder.release(lease)
            assert taking.result(30).token > lease.token
        world.close()


def test_leases_are_never_longer_than_the_session_that_the_server_grants(world: World, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="40 s"):
        take(world.writer("long", lease_s=900.0), 5)
    assert nodes(world.writer("looks")) == []
    provider = world.writer("one", lease_s=60.0)
    lease = take(provider, 5)
    assert lease.lease_s == 40.0 and lease.remaining_s() <= 40.0
    with pytest.raises(SettingsError, match=r"maxSessionTimeout"):
        world.writer("probes", lease_s=900.0).probe()


def test_the_example_configuration_runs_on_a_real_server(zookeeper: Service, tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "configs" / "zookeeper.toml"
    uri = next(line.split('"')[1] for line in example.read_text().splitlines() if line.startswith("provider = "))
    path = tmp_path / "lakelock.toml"
    path.write_text(example.read_text().replace(uri, zookeeper.url("example")))
    settings = Settings.resolve(file=path).settings
    assert parse_place(uri, MemoryStorage(lambda: 0, name="t")).path == "/hudi/locks/flights"
    runtime = SystemRuntime()
    storage = MemoryStorage(runtime.now_ms, name="example")
    provider = open_provider(settings, storage, runtime, WriterIdentity.of_this_process(runtime))
    lease = provider.acquire(wait_s=5)
    assert lease.lease_s == settings.lock.lease_s
    provider.close()
    assert lease.lost is not None and lease.lost.reason == "released"
