"""The lock in Redis, on a real server: what every provider promises, and what Redis can do to it."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from lakelock.clock import SystemRuntime
from lakelock.errors import LeaseLost, LockError, LockTimeout, ProviderUnavailable
from lakelock.events import Event, EventKind, Events
from lakelock.identity import WriterIdentity
from lakelock.providers import Lease, LockProvider, open_provider, renewing
from lakelock.settings import Settings
from lakelock.storage_memory import MemoryStorage
from lakelock.testing.lock_processes import Worker
from lakelock.testing.servers.proxy import Proxy
from lakelock.testing.servers.redis import RedisServer

LEASE_S = 1.0
OPTIONS = {"redis.socket_timeout_s": "0.3", "redis.connect_timeout_s": "0.3", "lock.lease_s": LEASE_S, "lock.renew_s": 0.2}
numbers = count()


def eventually(what: Callable[[], Any], within_s: float = 5.0) -> Any:
    """What `what` returns as soon as it is true."""
    until_s = monotonic() + within_s
    while not (found := what()):
        assert monotonic() < until_s, "it did not happen in time"
        sleep(0.005)
    return found


@dataclass
class World:
    """One lock and any number of writers."""

    port: int
    server: RedisServer | None = None
    key: str = field(default_factory=lambda: f"lock-{next(numbers)}")
    seen: list[Event] = field(default_factory=list)
    opened: list[LockProvider] = field(default_factory=list)
    uri: str = "redis://127.0.0.1:{port}/0?key={key}"

    def writer(self, name: str = "w", port: int | None = None, **options: Any) -> LockProvider:
        runtime = SystemRuntime()
        uri = self.uri.format(port=port or self.port, key=self.key)
        values = OPTIONS | {"lock.provider": uri} | {key.replace("__", "."): value for key, value in options.items()}
        settings = Settings.resolve(values).settings
        identity = WriterIdentity.of_this_process(runtime, name)
        storage = MemoryStorage(name="table")
        self.opened.append(open_provider(settings, storage, runtime, identity, Events((self.seen.append,))))
        return self.opened[-1]

    def look(self):  # type: ignore[no-untyped-def]
        assert self.server is not None
        return self.server.client()

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.seen]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def world(server: RedisServer) -> Iterator[World]:
    made = World(server.port, server)
    yield made
    for provider in made.opened:
        provider.close()


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    with Proxy(server.port) as between:
        yield between


def take(provider: LockProvider, wait_s: float = 0.0) -> Lease:
    return provider.acquire(wait_s=wait_s)


def waiting(provider: LockProvider, number: int) -> bool:
    return len(provider.inspect().queue) == number


# --- what every provider promises


def test_one_holds_the_lock_and_the_other_is_told_who(world: World) -> None:
    first, second = world.writer("stream"), world.writer("backfill")
    lease = take(first)
    with pytest.raises(LockTimeout, match="stream") as refused:
        take(second, wait_s=0.2)
    holder = refused.value.details["holder"]
    assert isinstance(holder, dict) and holder["writer"]["application"] == "stream"
    assert EventKind.WAITING_FOR_LOCK in world.kinds()
    first.release(lease)
    take(second).ensure_active()


def test_tokens_grow_over_release_crash_and_a_lost_counter(world: World) -> None:
    tokens = []
    for provider in (world.writer("a"), world.writer("b"), world.writer("a")):
        lease = take(provider)
        tokens.append(lease.token)
        provider.release(lease)
    take(world.writer("crashes"))
    tokens.append(world.writer().inspect().token)
    tokens.append(take(world.writer("after"), wait_s=3 * LEASE_S).token)
    world.look().delete(f"{{{world.key}}}", f"{{{world.key}}}:token")
    tokens.append(take(world.writer("after the loss")).token)
    assert tokens == sorted(set(tokens)) and len(tokens) == 6


def test_a_dead_holder_is_replaced_after_its_lease_and_not_before(world: World) -> None:
    dead = take(world.writer("dead"))
    began_s = monotonic()
    lease = take(world.writer("next"), wait_s=3 * LEASE_S)
    assert LEASE_S - 0.1 < monotonic() - began_s < LEASE_S + 0.5
    assert dead.lost is not None and dead.lost.reason == "expired" and lease.lost is None


def test_a_holder_that_renews_is_not_replaced(world: World) -> None:
    holder, rival = world.writer("holder"), world.writer("rival")
    lease = take(holder)
    with renewing(holder, lease, SystemRuntime(), 0.2), pytest.raises(LockTimeout):
        take(rival, wait_s=2 * LEASE_S)
    lease.ensure_active()


def test_an_expired_lease_is_never_renewed_even_if_nobody_took_the_lock(world: World) -> None:
    holder = world.writer()
    lease = take(holder)
    eventually(lambda: lease.lost)
    with pytest.raises(LeaseLost) as lost:
        holder.renew(lease)
    assert lost.value.details["reason"] == "expired"
    holder.release(lease)
    assert take(holder).token > lease.token


def test_release_may_be_called_twice_and_frees_nobody_elses_lock(world: World) -> None:
    first, second, third = world.writer("first"), world.writer("second"), world.writer("third")
    old = take(first)
    new = take(second, wait_s=3 * LEASE_S)
    first.release(old)
    first.release(old)
    with pytest.raises(LockTimeout):
        take(third)
    second.renew(new)
    second.release(new)
    second.release(new)
    take(third)


def test_inspect_shows_the_holder_its_time_left_and_who_waits(world: World) -> None:
    holder, looks = world.writer("holder"), world.writer("looks")
    assert looks.inspect().holder is None and looks.inspect().token == 0
    lease = take(holder)
    waiters = [threading.Thread(target=take, args=(world.writer(f"waiter {n}"), 5)) for n in range(2)]
    for number, thread in enumerate(waiters, start=1):
        thread.start()
        eventually(lambda number=number: waiting(looks, number))  # type: ignore[misc]
    state = looks.inspect()
    assert state.holder is not None and state.holder.writer is not None and state.holder.writer.application == "holder"
    assert state.holder.owner == lease.grant and state.token == state.holder.token == lease.token
    assert state.holder.lease_s == LEASE_S and abs((state.holder.renewed_ms or 0) - SystemRuntime().now_ms()) < 2000
    assert [each.writer.application for each in state.queue if each.writer] == ["waiter 0", "waiter 1"]
    holder.release(lease)
    for thread in waiters:
        thread.join(10)


def test_breaking_needs_the_current_token_and_force_while_the_lease_runs(world: World) -> None:
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


def test_loss_is_an_event_told_once(world: World) -> None:
    holder = world.writer()
    lease = take(holder)
    with renewing(holder, lease, SystemRuntime(), 0.05, Events((world.seen.append,))):
        world.writer().break_lock(lease.token, force=True)
        eventually(lambda: lease.lost)
        eventually(lambda: EventKind.LEASE_LOST in world.kinds())
    assert world.kinds().count(EventKind.LEASE_LOST) == 1


def test_closing_gives_the_lock_back_and_never_raises(world: World) -> None:
    provider = world.writer()
    lease = take(provider)
    provider.close()
    provider.close()
    assert lease.lost is not None
    take(world.writer())


def test_a_forked_child_neither_holds_the_lock_nor_disturbs_its_parent(world: World) -> None:
    provider = world.writer()
    lease = take(provider)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        answers = []
        try:
            answers.append(lease.lost.reason if lease.lost else "holds")
            provider.release(lease)
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
    provider.release(lease)
    take(world.writer())


# --- answers that get lost, servers that go away


@pytest.mark.parametrize("lost", [1, 2])
def test_a_grant_whose_reply_was_lost_is_adopted(world: World, proxy: Proxy, lost: int) -> None:
    provider = world.writer(port=proxy.port)
    provider.inspect()
    proxy.drop_replies(lost, to=b"EVALSHA")
    lease = take(provider, wait_s=5.0)
    assert proxy.dropped == lost
    with pytest.raises(LockTimeout):
        take(world.writer("two"))
    left_ms = world.look().pttl(f"{{{world.key}}}")
    assert lease.remaining_s() * 1000 <= left_ms
    provider.renew(lease)
    provider.release(lease)
    take(world.writer("two"))


def test_giving_up_takes_back_a_grant_that_nobody_heard_of(world: World, proxy: Proxy) -> None:
    provider = world.writer(port=proxy.port)
    provider.release(take(provider))
    proxy.drop_replies(1, to=b"EVALSHA")
    with pytest.raises(ProviderUnavailable):
        take(provider)
    assert proxy.dropped == 1
    take(world.writer("two"))


def test_a_renewal_whose_reply_was_lost_does_not_lose_the_lock(world: World, proxy: Proxy) -> None:
    provider = world.writer(port=proxy.port, lock__lease_s=3, lock__renew_s=0.2)
    lease = take(provider)
    provider.renew(lease)
    proxy.drop_replies(1, to=b"EVALSHA")
    with pytest.raises(ProviderUnavailable):
        provider.renew(lease)
    lease.ensure_active()
    provider.renew(lease)


def test_a_release_whose_reply_was_lost_frees_the_lock_and_raises_nothing(world: World, proxy: Proxy) -> None:
    provider = world.writer(port=proxy.port)
    provider.release(take(provider))
    lease = take(provider)
    proxy.drop_replies(1, to=b"EVALSHA")
    provider.release(lease)
    assert proxy.dropped == 1 and world.kinds() == []
    take(world.writer("two"))


def test_a_server_that_cannot_be_reached_is_named_within_the_wait(world: World, proxy: Proxy) -> None:
    provider = world.writer(port=proxy.port)
    lease = take(provider)
    proxy.cut()
    with renewing(provider, lease, SystemRuntime(), 0.1, Events((world.seen.append,))):
        eventually(lambda: EventKind.LEASE_LOST in world.kinds())
        assert lease.lost is not None and lease.lost.reason == "unreachable"
    provider.release(lease)
    assert EventKind.ALERT in world.kinds()
    began_s = monotonic()
    with pytest.raises(ProviderUnavailable, match=str(proxy.port)):
        take(provider, wait_s=0.5)
    assert monotonic() - began_s < 0.5 + 1.0
    proxy.heal()
    take(provider, wait_s=2 * LEASE_S)


def test_a_server_that_hangs_is_given_up_within_the_wait_and_two_timeouts(world: World, proxy: Proxy) -> None:
    provider = world.writer(port=proxy.port)
    proxy.drop_replies()
    began_s = monotonic()
    with pytest.raises(ProviderUnavailable):
        take(provider, wait_s=0.5)
    assert monotonic() - began_s < 0.5 + 3 * 0.3 + 0.3


def test_a_restart_that_forgets_everything_is_a_lost_lease_and_no_blocked_writer(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        world = World(server.port, server)
        holder, rival = world.writer(lock__lease_s=10, lock__renew_s=1), world.writer(lock__lease_s=10, lock__renew_s=1)
        lease = take(holder)
        server.stop()
        with pytest.raises(ProviderUnavailable):
            holder.renew(lease)
        server.start()
        with pytest.raises(LeaseLost):
            holder.renew(lease)
        assert take(rival).token > lease.token
        holder.release(lease)
        with pytest.raises(LockTimeout):
            take(holder)


def test_a_restart_with_its_data_keeps_the_lock_and_those_who_wait(tmp_path: Path) -> None:
    with RedisServer(tmp_path, ("--appendonly", "yes", "--appendfsync", "always")) as server:
        world = World(server.port, server)
        holder, waiter = (world.writer(name, lock__lease_s=10, lock__renew_s=1) for name in ("holder", "waiter"))
        lease = take(holder)
        got: list[Lease] = []
        thread = threading.Thread(target=lambda: got.append(take(waiter, 10)))
        thread.start()
        eventually(lambda: waiting(holder, 1))
        server.stop()
        server.start()
        eventually(lambda: renewed(holder, lease))
        holder.release(lease)
        thread.join(8)
        assert got and got[0].token > lease.token


def renewed(provider: LockProvider, lease: Lease) -> bool:
    try:
        provider.renew(lease)
    except ProviderUnavailable:
        return False
    return True


def test_scripts_that_redis_forgot_are_sent_again(world: World) -> None:
    provider = world.writer()
    lease = take(provider)
    world.look().script_flush()
    provider.renew(lease)
    world.look().script_flush()
    provider.release(lease)
    world.look().script_flush()
    take(provider)


# --- waiting


def test_waiters_are_served_in_order_of_arrival_and_woken_at_once(world: World) -> None:
    holder = world.writer("holder", lock__lease_s=30, lock__renew_s=5)
    lease = take(holder)
    served: list[int] = []
    times_s: list[float] = []

    def wait(number: int, provider: LockProvider) -> None:
        mine = take(provider, 20)
        times_s.append(monotonic())
        served.append(number)
        provider.release(mine)

    threads = []
    for number in range(8):
        threads.append(threading.Thread(target=wait, args=(number, world.writer(f"w{number}", lock__lease_s=30))))
        threads[-1].start()
        eventually(lambda number=number: waiting(holder, number + 1))  # type: ignore[misc]
    released_s = monotonic()
    holder.release(lease)
    for thread in threads:
        thread.join(20)
    assert served == list(range(8))
    assert times_s[-1] - released_s < 1.0, "they were not woken but looked again"


def test_taking_and_giving_back_costs_one_request_each(world: World) -> None:
    provider, look = world.writer(), world.look()
    provider.release(take(provider))

    def calls() -> int:
        told = look.info("commandstats")
        return sum(int(told.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in ("eval", "evalsha"))

    before = calls()
    for _ in range(10):
        provider.release(take(provider))
    assert calls() - before == 20


def test_the_requests_of_many_waiters_grow_with_their_number_and_not_its_square(world: World) -> None:
    looks = world.look()

    def requests(waiters: int) -> int:
        # A long lease, so that the only reason to ask again is having been woken.
        opened = [world.writer(f"w{n}", lock__lease_s=60, lock__renew_s=5, redis__socket_timeout_s=5) for n in range(waiters)]
        holder = world.writer("holder", lock__lease_s=60)
        lease = take(holder)
        before = looks.info("commandstats")["cmdstat_evalsha"]["calls"]

        def work(provider: LockProvider) -> None:
            provider.release(take(provider, 30))

        threads = [threading.Thread(target=work, args=(provider,)) for provider in opened]
        for thread in threads:
            thread.start()
        eventually(lambda: looks.zcard(f"{{{world.key}}}:queue") == waiters)
        holder.release(lease)
        for thread in threads:
            thread.join(30)
        return int(looks.info("commandstats")["cmdstat_evalsha"]["calls"]) - before

    few, many = requests(5), requests(50)
    assert few <= 5 * 5 and many <= 50 * 5, (few, many)


def test_a_waiter_that_gives_up_leaves_the_queue(world: World) -> None:
    holder, impatient, patient = world.writer("holder"), world.writer("impatient"), world.writer("patient")
    lease = take(holder)
    with renewing(holder, lease, SystemRuntime(), 0.2):
        with pytest.raises(LockTimeout):
            take(impatient, 0.2)
        assert holder.inspect().queue == ()
    holder.release(lease)
    began_s = monotonic()
    take(patient, 5)
    assert monotonic() - began_s < 0.2


def test_a_waiter_that_died_or_froze_does_not_stop_the_others(world: World, workers: Callable[..., Worker]) -> None:
    holder, last = world.writer("holder", lock__lease_s=20), world.writer("last", lock__lease_s=20)
    lease = take(holder)
    dead, frozen = workers(world), workers(world)
    for number, worker in enumerate((dead, frozen), start=1):
        worker.ask("take 20")
        eventually(lambda number=number: waiting(holder, number))  # type: ignore[misc]
    got: list[float] = []
    thread = threading.Thread(target=lambda: (take(last, 10), got.append(monotonic())))
    thread.start()
    eventually(lambda: waiting(holder, 3))
    dead.signal(signal.SIGKILL)
    frozen.signal(signal.SIGSTOP)
    dead.process.wait(5)
    released_s = monotonic()
    holder.release(lease)
    thread.join(10)
    assert got and got[0] - released_s < 2.0 + 0.5 + 0.5
    last.close()
    frozen.signal(signal.SIGCONT)
    assert "token" in frozen.answer()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    started: list[Worker] = []

    def start(world: World, **settings: Any) -> Worker:
        uri = world.uri.format(port=world.port, key=world.key)
        arena = {"uri": str(tmp_path / "table"), "options": {}, "lease_s": LEASE_S, "renew_s": 0.2, "folder": str(tmp_path)}
        started.append(Worker(arena | {"settings": {"lock.provider": uri} | settings}))
        assert started[-1]("ready")
        return started[-1]

    yield start
    for worker in started:
        worker.end()


def test_a_lock_that_something_else_put_there_is_respected_and_can_be_broken(world: World) -> None:
    world.look().set(f"{{{world.key}}}", "made by hand")
    with pytest.raises(LockTimeout, match="made by hand"):
        take(world.writer(), 0.1)
    with pytest.raises(LockError, match="for ever"):
        world.writer().break_lock(0)
    world.writer().break_lock(0, force=True)
    take(world.writer())


def test_what_redis_keeps_says_who_it_is(world: World) -> None:
    lease = take(world.writer("stream"))
    kept = json.loads(world.look().get(f"{{{world.key}}}"))
    assert kept["grant"] == lease.grant and kept["writer"] == lease.owner.as_dict()
