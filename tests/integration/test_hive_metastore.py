"""The lock in a real Hive metastore: what every provider promises, and what is special to this one."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from lakelock.errors import LakelockError, LeaseLost, LockError, LockTimeout, ProviderUnavailable, SettingsError
from lakelock.events import EventKind, Events
from lakelock.identity import WriterIdentity
from lakelock.providers import open_provider, renewing
from lakelock.providers.metastore_thrift import WAITING
from lakelock.settings import Settings
from lakelock.storage_memory import MemoryStorage
from lakelock.testing.lock_processes import Worker
from lakelock.testing.servers.hive_metastore import LOCK_TIMEOUT_S
from lakelock.testing.servers.metastore_proxy import MetastoreProxy
from lakelock.testing.servers.service import Service
from tests.integration.metastore_world import LEASE_S, World, new_world, proxied, take, until


@pytest.fixture
def world(metastore: Service) -> Iterator[World]:
    with new_world(metastore) as world:
        yield world


@pytest.fixture
def proxy(metastore: Service, world: World) -> Iterator[MetastoreProxy]:
    with proxied(metastore, world) as proxy:
        yield proxy


@pytest.fixture
def start(world: World, tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []
    (tmp_path / "count").write_text("0")

    def start_one(lease_s: float = LEASE_S) -> Worker:
        arena = {"uri": str(tmp_path / "table"), "options": {}, "lease_s": lease_s, "renew_s": lease_s / 3}
        workers.append(Worker(arena | {"folder": str(tmp_path), "settings": {"lock.provider": world.uri}}))
        return workers[-1]

    yield start_one
    for worker in workers:
        worker.process.kill()
        worker.process.communicate()


def test_one_holds_the_lock_and_the_other_is_told_who(world: World) -> None:
    first, second = world.writer("stream"), world.writer("backfill")
    lease = take(first)
    began_s = time.monotonic()
    with pytest.raises(LockTimeout, match="stream") as refused:
        take(second, wait_s=0.5)
    assert time.monotonic() - began_s < 3
    holder = refused.value.details["holder"]
    assert isinstance(holder, dict) and holder["writer"]["application"] == "stream" and holder["writer"]["pid"] == os.getpid()
    first.release(lease)
    take(second).ensure_active()


def test_processes_never_hold_the_lock_at_once(start: Callable[..., Worker], tmp_path: Path) -> None:
    workers = [start(lease_s=4.0) for _ in range(3)]
    assert all(worker("ready") for worker in workers)
    for worker in workers:
        worker.ask("hammer 25")
    assert [worker.answer() for worker in workers] == [{"overlaps": 0}] * 3
    assert (tmp_path / "count").read_text() == "75"
    grants = [line.split() for line in (tmp_path / "tokens").read_text().splitlines()]
    tokens = [int(token) for token, _ in grants]
    assert tokens == sorted(set(tokens)) and len(tokens) == 75
    assert sum(before[1] != after[1] for before, after in pairwise(grants)) > 35, "the metastore's queue gives turns"


def test_threads_of_one_process_take_turns(world: World) -> None:
    provider, served = world.writer("one"), []
    lease = take(provider)

    def work(number: int) -> None:
        mine = take(provider, wait_s=20)
        served.append(number)
        provider.release(mine)

    threads = []
    for number in range(4):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
        until(lambda: len(provider._turnstile._waiting) == len(threads))  # type: ignore[attr-defined]
    provider.release(lease)
    for thread in threads:
        thread.join(20)
    assert served == [0, 1, 2, 3]


def test_taking_and_giving_back_costs_two_calls(world: World, proxy: MetastoreProxy) -> None:
    provider = world.writer("one")
    provider.release(take(provider))
    proxy.calls.clear()
    for _ in range(3):
        provider.release(take(provider))
    assert proxy.calls == {"lock": 3, "unlock": 3}


def test_tokens_grow_over_release_crash_and_restart(world: World, metastore: Service) -> None:
    provider, tokens = world.writer("one"), []
    for _ in range(2):
        lease = take(provider)
        tokens.append(lease.token)
        provider.release(lease)
    tokens.append(take(world.writer("crashes")).token)
    metastore.stop()
    metastore.start()
    tokens.append(take(world.writer("after"), wait_s=15).token)
    assert tokens == sorted(set(tokens)) and len(tokens) == 4


def test_a_killed_holder_is_replaced_after_its_lease_and_not_before(start: Callable[..., Worker]) -> None:
    first, second = start(), start()
    token = first("take 5")["token"]
    assert first("renew") and "held by worker-" in second("take 0.2")["timeout"]
    first.process.send_signal(signal.SIGKILL)
    took = second("take 20")
    assert took["token"] > token
    assert LEASE_S * 2 / 3 <= took["took_s"] < LOCK_TIMEOUT_S, "sooner than the metastore itself would drop the lock"


def test_a_killed_waiter_does_not_hold_up_those_behind_it(
    start: Callable[..., Worker], world: World, metastore: Service
) -> None:
    holder, dead = world.writer("holder", lease_s=4.0), start()
    lease = take(holder)
    dead.ask("take 60")
    until(lambda: len(world.rows(metastore.port)) == 2)
    dead.process.send_signal(signal.SIGKILL)
    holder.release(lease)
    began_s = time.monotonic()
    take(world.writer("next"), wait_s=20)
    assert time.monotonic() - began_s < LOCK_TIMEOUT_S


def test_a_holder_that_renews_keeps_the_lock_beyond_its_lease_and_the_timeout_of_the_metastore(world: World) -> None:
    holder, rival = world.writer("holder"), world.writer("rival")
    lease = take(holder)
    with renewing(holder, lease, world.runtime, LEASE_S / 3), pytest.raises(LockTimeout):
        take(rival, wait_s=LOCK_TIMEOUT_S + 1.5)
    lease.ensure_active()


def test_a_paused_holder_finds_out_that_it_lost_the_lock_and_frees_nobody_elses(start: Callable[..., Worker]) -> None:
    sleeper, other = start(), start()
    sleeper("take 5")
    sleeper("renew")
    sleeper.process.send_signal(signal.SIGSTOP)
    assert "token" in other("take 20") and other("renew")
    sleeper.process.send_signal(signal.SIGCONT)
    assert sleeper("check")["active"] is False
    sleeper("release")
    assert other("check") == {"active": True}
    assert "timeout" in sleeper("take 0.2")


def test_an_expired_lease_is_never_renewed_even_if_nobody_took_the_lock(world: World, metastore: Service) -> None:
    holder = world.writer("holder", lease_s=1.0)
    lease = take(holder)
    until(lambda: lease.lost is not None)
    assert [row.lock_id for row in world.rows(metastore.port)] == [lease.token], "the metastore still has it"
    with pytest.raises(LeaseLost) as lost:
        holder.renew(lease)
    assert lost.value.details["reason"] == "expired"
    holder.release(lease)
    assert take(holder).token > lease.token


def test_a_lock_that_the_metastore_dropped_is_noticed_by_the_heartbeat_and_told_once(world: World, metastore: Service) -> None:
    holder = world.writer("holder", lease_s=4.0)
    lease = take(holder)
    world.calls(metastore.port).unlock(lease.token)
    with renewing(holder, lease, world.runtime, 0.1, Events((world.seen.append,))):
        until(lambda: lease.lost is not None, within_s=3)
    assert lease.lost is not None and lease.lost.reason == "taken-over"
    holder.release(lease)
    assert [event.kind for event in world.seen].count(EventKind.LEASE_LOST) == 1
    with pytest.raises(LeaseLost):
        lease.ensure_active()


def test_release_may_be_called_twice_and_frees_nobody_elses_lock(world: World) -> None:
    first, second = world.writer("first"), world.writer("second")
    old = take(first)
    first.release(old)
    new = take(second)
    first.release(old)
    second.renew(new)
    with pytest.raises(LockTimeout):
        take(first)
    with pytest.raises(LockError, match="another provider"):
        first.renew(new)


def test_a_lease_longer_than_the_metastore_keeps_locks_is_refused(world: World) -> None:
    provider = world.writer("one", lease_s=LOCK_TIMEOUT_S + 1)
    for check in (lambda: take(provider), provider.probe):
        with pytest.raises(SettingsError, match=f"after {LOCK_TIMEOUT_S} s") as refused:
            check()
        assert "lock.lease_s" in refused.value.hint


def test_the_example_file_runs(world: World) -> None:
    options = {"lock.provider": world.uri, "lock.lease_s": 3.0, "lock.renew_s": 1.0}
    settings = Settings.resolve(options, file=Path(__file__).parents[2] / "configs" / "hive_metastore.toml").settings
    identity = WriterIdentity.of_this_process(world.runtime, "example")
    provider = open_provider(settings, MemoryStorage(world.runtime.now_ms), world.runtime, identity)
    provider.probe()
    provider.release(take(provider))
    provider.close()


def test_closing_gives_the_lock_back_and_may_be_done_twice(world: World) -> None:
    provider = world.writer("one")
    take(provider)
    provider.close()
    provider.close()
    take(world.writer("two"))


def test_inspect_shows_the_holder_and_the_queue(world: World, metastore: Service) -> None:
    holder, waiter, looker = world.writer("holder", lease_s=4.0), world.writer("waiter", lease_s=4.0), world.writer("looker")
    assert looker.inspect().holder is None
    lease = take(holder)
    waiting = threading.Thread(target=lambda: waiter.release(take(waiter, wait_s=20)))
    waiting.start()
    until(lambda: len(world.rows(metastore.port)) == 2)
    state = looker.inspect()
    assert state.holder is not None and state.holder.writer is not None and state.holder.writer.application == "holder"
    assert state.token == state.holder.token == lease.token and state.holder.lease_s == 4.0 and state.holder.renewed_ms
    (queued,) = state.queue
    assert queued.writer is not None and queued.writer.application == "waiter" and queued.token > lease.token
    holder.release(lease)
    waiting.join(20)
    assert looker.inspect().holder is None and looker.inspect().token == lease.token


def test_breaking_needs_the_current_token_and_force_while_the_lease_runs(world: World) -> None:
    holder, operator = world.writer("holder", lease_s=4.0), world.writer("operator")
    operator.break_lock(1)
    lease = take(holder)
    with pytest.raises(LockError, match="token"):
        operator.break_lock(lease.token + 1, force=True)
    with pytest.raises(LockError, match="holder"):
        operator.break_lock(lease.token)
    holder.renew(lease)
    operator.break_lock(lease.token, force=True)
    with pytest.raises(LeaseLost):
        holder.renew(lease)
    after = take(world.writer("next"))
    assert after.token > lease.token
    with pytest.raises(LockError):
        operator.break_lock(lease.token, force=True)
    after.ensure_active()


def test_a_dead_holder_is_broken_without_force(world: World) -> None:
    lease = take(world.writer("dead", lease_s=1.0))
    until(lambda: lease.lost is not None)
    operator = world.writer("operator")
    operator.break_lock(lease.token)
    take(world.writer("next"))


def test_the_probe_passes_and_leaves_nothing_behind(world: World, metastore: Service) -> None:
    provider = world.writer("one")
    provider.probe()
    every = world.calls(metastore.port)._call("show_locks", ((1, 12, ()),))
    assert not [row for row in every[1] if row[2] == world.database and str(row[3]).startswith(world.table)]  # type: ignore[index]
    assert "@" not in provider.identity and provider.identity == world.uri
    assert all(vars(provider.strength).values())


def test_a_java_writer_excludes_us_and_is_left_alone_until_the_metastore_drops_it(world: World, metastore: Service) -> None:
    java = world.calls(metastore.port)
    held = java.lock(world.database, world.table, user="etl", host="node-7", agent="Unknown")
    provider = world.writer("one")
    began_s = time.monotonic()
    with pytest.raises(LockTimeout, match="etl@node-7"):
        take(provider, wait_s=LEASE_S + 1)
    java.heartbeat(held.lock_id)
    take(provider, wait_s=20)
    assert time.monotonic() - began_s > LOCK_TIMEOUT_S + LEASE_S


def test_a_java_writer_is_excluded(world: World, metastore: Service) -> None:
    lease = take(world.writer("one"))
    answer = world.calls(metastore.port).lock(world.database, world.table, user="etl", host="node-7", agent="Unknown")
    assert answer.state == WAITING and answer.lock_id > lease.token


def test_names_are_sent_letter_by_letter(world: World, metastore: Service) -> None:
    lower, upper = world.writer("one"), world.writer("two", uri=world.uri.replace("table_", "TABLE%20"))
    take(lower)
    lease = take(upper)
    (row,) = world.calls(metastore.port).show_locks(world.database, world.table.replace("table_", "TABLE "))
    assert row.lock_id == lease.token and "TABLE%20" in upper.identity


def test_an_unusual_name_of_an_application_harms_nobody(world: World) -> None:
    provider = world.writer("it's a \\ 'job'; drop table x -- é" * 9)
    lease = take(provider)
    holder = world.writer("looker").inspect().holder
    assert holder is not None and holder.writer is not None and holder.writer.application.startswith("it-s a - -job-")
    provider.release(lease)


def test_a_forked_child_holds_nothing_and_opens_its_own_connection(world: World) -> None:
    provider = world.writer("parent", lease_s=4.0)
    lease = take(provider)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # only plain calls here: a failure must end this process, not run the rest of the suite
        answers: list[str] = []
        try:
            answers.append("holds" if lease.lost is None else lease.lost.reason)
            provider.release(lease)
            try:
                take(provider, wait_s=0.2)
                answers.append("took it")
            except LakelockError as error:
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


def test_a_missing_driver_is_named_with_its_installation(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "thrift"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "thrift", None)
    with pytest.raises(ProviderUnavailable) as refused:
        world.writer("one")
    assert refused.value.hint == "pip install 'lakelock[hive_metastore]'"
