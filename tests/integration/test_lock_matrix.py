"""The same promises of every lock provider, each on its real service: one cell of the matrix per test and provider."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from lakelock.clock import SystemRuntime
from lakelock.errors import LeaseLost, LockTimeout, ProviderUnavailable
from lakelock.identity import WriterIdentity
from lakelock.providers import Lease, LockProvider, open_provider
from lakelock.settings import Settings
from lakelock.storage_open import open_storage
from lakelock.testing.servers import SERVICES, Service
from lakelock.testing.servers.proxy import Proxy
from tests.behaviour.lock_processes import Worker
from tests.integration.matrix import MARK

LEASE_S = 1.5
LONG_S = 20.0
SLACK_S = 5.0
"""What a slow machine and a service that counts in ticks may add to a lease."""

tables = count()


@dataclass
class Arena:
    """One table, guarded by one service, and everybody who wants its lock."""

    service: Service
    folder: Path
    table: str = field(default_factory=lambda: f"table{next(tables)}")
    workers: list[Worker] = field(default_factory=list)
    opened: list[LockProvider] = field(default_factory=list)

    def settings(self, lease_s: float, proxy: Proxy | None = None) -> dict[str, Any]:
        """What a writer is configured with; `proxy` stands between it and the service."""
        values = {"lock.provider": self.service.url(self.table), **self.service.options}
        if proxy is not None:
            values = {key: value.replace(str(self.service.port), str(proxy.port)) for key, value in values.items()}
        return values | {"lock.lease_s": lease_s, "lock.renew_s": lease_s / 3}

    def worker(self, lease_s: float = LEASE_S) -> Worker:
        """A writer process, which may be killed and stopped."""
        arena = {"uri": str(self.folder / self.table), "options": {}, "folder": str(self.folder)}
        arena |= {"lease_s": lease_s, "renew_s": lease_s / 3, "settings": self.settings(lease_s)}
        self.workers.append(Worker(arena))
        return self.workers[-1]

    def writer(self, name: str, lease_s: float = LEASE_S, proxy: Proxy | None = None) -> LockProvider:
        """A writer in this process."""
        runtime = SystemRuntime()
        settings = Settings.resolve(self.settings(lease_s, proxy)).settings
        identity = WriterIdentity.of_this_process(runtime, name)
        self.opened.append(open_provider(settings, open_storage(str(self.folder / self.table)), runtime, identity))
        return self.opened[-1]


@pytest.fixture(scope="module", params=list(SERVICES))
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with SERVICES[request.param](tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture
def arena(service: Service, tmp_path: Path) -> Iterator[Arena]:
    (tmp_path / "count").write_text("0")
    made = Arena(service, tmp_path)
    yield made
    for worker in made.workers:
        worker.end()
    for provider in made.opened:
        provider.close()


@pytest.fixture
def proxy(service: Service) -> Iterator[Proxy]:
    if not service.port:
        pytest.skip(f"{service.name} has no server")
    with Proxy(service.port, severs=service.sessions) as between:
        yield between


@pytest.fixture(autouse=True)
def cell(request: pytest.FixtureRequest) -> None:
    """Says in the reports which cell of the matrix this is: named by what follows `test_` and ends at `__`."""
    name = request.node.originalname.removeprefix("test_").partition("__")[0].replace("_", " ")
    request.node.user_properties.append((MARK, [request.node.callspec.params["service"], name]))


def eventually(what: Callable[[], Any], within_s: float = 10.0) -> Any:
    until_s = monotonic() + within_s
    while not (found := what()):
        assert monotonic() < until_s, "it did not happen in time"
        sleep(0.01)
    return found


def taken(provider: LockProvider, wait_s: float = 0.0) -> Lease | None:
    """The lease, or None if somebody else holds the lock."""
    try:
        return provider.acquire(wait_s=wait_s)
    except LockTimeout:
        return None


def grants(arena: Arena) -> list[tuple[int, str]]:
    lines = [line.split() for line in (arena.folder / "tokens").read_text().splitlines()]
    return [(int(token), pid) for token, pid in lines]


def hammer_together(arena: Arena, workers: list[Worker], rounds: int) -> None:
    """Let them take the lock so often each; where there is a queue, none begins (and is soon through) before all are in it."""
    gate = arena.writer("gate", LONG_S)
    lease = gate.acquire(wait_s=LONG_S)
    for worker in workers:
        worker.ask(f"hammer {rounds}")
    if arena.service.queues:
        eventually(lambda: len(gate.inspect().queue) == len(workers), within_s=LONG_S / 2)
    gate.release(lease)


def test_exclusion__processes_never_hold_the_lock_at_once_and_tokens_grow(arena: Arena) -> None:
    workers, rounds = [arena.worker(15.0) for _ in range(2)], 40
    hammer_together(arena, workers, rounds)
    assert [worker.answer() for worker in workers] == [{"overlaps": 0}] * 2
    assert (arena.folder / "count").read_text() == str(2 * rounds)
    tokens = [token for token, _ in grants(arena)]
    assert tokens == sorted(set(tokens)) and len(tokens) == 2 * rounds
    assert sum(before[1] != after[1] for before, after in pairwise(grants(arena))) >= 4, "they ran one after the other"


def test_crash__a_killed_holder_is_replaced_after_its_lease(arena: Arena) -> None:
    first, second = arena.worker(), arena.worker()
    assert second("ready")
    token = first("take 5")["token"]
    assert first("renew") and "held by worker-" in second("take 0.1")["timeout"]
    first.signal(signal.SIGKILL)
    took = second("take 20")
    assert took["token"] > token
    assert LEASE_S / 3 < took["took_s"] < LEASE_S + SLACK_S


def test_pause__a_frozen_holder_is_replaced_finds_out_and_disturbs_nobody(arena: Arena) -> None:
    sleeper, other = arena.worker(), arena.worker()
    assert other("ready")
    token = sleeper("take 5")["token"]
    sleeper("renew")
    sleeper.signal(signal.SIGSTOP)
    assert other("take 20")["token"] > token
    other("renew")
    sleeper.signal(signal.SIGCONT)
    assert sleeper("check")["active"] is False
    sleeper("release")
    assert other("check") == {"active": True}
    assert "timeout" in sleeper("take 0.1")


def test_expiry__a_silent_holder_keeps_the_lock_for_its_lease_and_never_gets_it_back(arena: Arena) -> None:
    if arena.service.sessions:
        pytest.skip("has no server that ends a lease: its session ends with the holder, see pause")
    silent, next_one = arena.writer("silent"), arena.writer("next")
    began_s = monotonic()
    lease = silent.acquire(wait_s=5)
    after = next_one.acquire(wait_s=LEASE_S + SLACK_S)
    assert monotonic() - began_s > 0.9 * LEASE_S
    assert lease.lost is not None and after.lost is None and after.token > lease.token
    with pytest.raises(LeaseLost):
        silent.renew(lease)
    silent.release(lease)
    assert taken(silent) is None
    next_one.release(after)


def test_restart__the_lock_is_kept_or_its_loss_is_told_and_the_next_proceeds(arena: Arena, proxy: Proxy) -> None:
    holder, rival = arena.writer("holder", LONG_S), arena.writer("rival", LONG_S)
    lease = holder.acquire(wait_s=5)
    arena.service.stop()
    arena.service.start()
    kept = eventually(lambda: _renewed(holder, lease), within_s=15)
    if kept == "kept":
        # A server that has just started answers slowly, and the release may get no answer: then it is over with the lease.
        assert taken(rival, wait_s=3) is None, "two hold the lock"
        lease.ensure_active()
        holder.release(lease)
    else:
        with pytest.raises(LeaseLost):
            lease.ensure_active()
    after = rival.acquire(wait_s=LONG_S + SLACK_S)
    assert after.token > lease.token
    rival.release(after)


def _renewed(provider: LockProvider, lease: Lease) -> str:
    try:
        provider.renew(lease)
    except LeaseLost:
        return "lost"
    except ProviderUnavailable:
        return ""
    return "kept"


def test_unreachable__waiting_is_bounded_and_the_lease_ends_when_it_says(arena: Arena, proxy: Proxy) -> None:
    holder, direct = arena.writer("holder", proxy=proxy), arena.writer("direct")
    lease = holder.acquire(wait_s=5)
    proxy.cut()
    with pytest.raises((ProviderUnavailable, LeaseLost)):
        holder.renew(lease)
    eventually(lambda: lease.lost, within_s=LEASE_S + 0.5)
    holder.release(lease)
    began_s = monotonic()
    with pytest.raises(ProviderUnavailable):
        holder.acquire(wait_s=0.5)
    assert monotonic() - began_s < 0.5 + 2.5
    after = direct.acquire(wait_s=LEASE_S + SLACK_S)
    assert after.token > lease.token
    proxy.heal()
    assert taken(holder) is None
    direct.release(after)
    holder.release(holder.acquire(wait_s=5))


def test_lost_reply__grants_and_releases_whose_answer_is_lost_happen_once(arena: Arena, proxy: Proxy) -> None:
    one, two = arena.writer("one", 3.0, proxy), arena.writer("two", 3.0)
    one.release(one.acquire(wait_s=5))
    proxy.drop_replies(1)
    lease = one.acquire(wait_s=10)
    assert proxy.dropped == 1
    assert taken(two) is None
    lease.ensure_active()
    one.renew(lease)
    proxy.drop_replies(1)
    one.release(lease)
    assert proxy.dropped == 2
    after = two.acquire(wait_s=3.0 + SLACK_S)
    assert after.token > lease.token
    two.release(after)


def test_fairness__none_of_three_processes_starves(arena: Arena) -> None:
    workers, rounds = [arena.worker(15.0) for _ in range(3)], 30
    hammer_together(arena, workers, rounds)
    assert all(worker.answer() == {"overlaps": 0} for worker in workers)
    # Until the first is through with its rounds all three want the lock; from then on fewer do.
    served: Counter[str] = Counter()
    for _, pid in grants(arena):
        served[pid] += 1
        if served[pid] == rounds:
            break
    if arena.service.queues:
        assert len(served) == 3 and min(served.values()) >= rounds / 6, served
