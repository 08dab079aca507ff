"""Data locks when processes are killed and replies get lost, on each real service."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.api import DataLocks, renewing
from tests.behaviour.data_locks.data_lock_suite import LEASE_S, P1, P2, SLACK_S, granted, own, share
from tests.integration.data_locks.test_data_locks import RUNTIME, open_one, options, tables
from tests.integration.matrix import Services, mark
from tests.servers import Service
from tests.sizes import but_in_ci
from tests.waiting import Stopwatch, eventually

from lakelock.data_locks import DataLease
from lakelock.data_locks.document import SWAP
from lakelock.errors import LeaseLost, LockError, ProviderUnavailable
from lakelock.testing.lock_processes import Worker
from lakelock.testing.proxy import Proxy

PROGRAM = Path(__file__).parents[2] / "behaviour" / "data_locks" / "data_lock_worker.py"
RESTART_S = 60.0
"""A lease that outlasts the start of any server, beside busy cores, too."""
WRITES = {
    "redis": (SWAP.sha.encode(), SWAP.sha.encode()),
    "dynamodb": (b"Update", b"Update"),
    "zookeeper": (b"write-", b"write-"),
    "hive_metastore": (b"\x04lock", b"\x06unlock"),
}
"""What a request for locks has in it, and a request that gives them back."""


@dataclass
class Arena:
    """One table, and everybody who wants its data locks."""

    name: str
    service: Service
    table: str = field(default_factory=lambda: f"data{next(tables)}")
    workers: list[Worker] = field(default_factory=list)
    opened: list[DataLocks] = field(default_factory=list)

    def worker(self, lease_s: float = LEASE_S) -> Worker:
        arena = {"table": self.table, "settings": options(self.service, self.table, lease_s)}
        self.workers.append(Worker(arena, PROGRAM))
        return self.workers[-1]

    def writer(self, name: str, lease_s: float = LEASE_S, port: int = 0) -> DataLocks:
        self.opened.append(open_one(self.service, self.table, name, lease_s, port))
        return self.opened[-1]


@pytest.fixture(scope="module", params=but_in_ci(WRITES, {"zookeeper"}))
def service(request: pytest.FixtureRequest, services: Services) -> tuple[str, Service]:
    return request.param, services(request.param)


@pytest.fixture
def arena(service: tuple[str, Service], request: pytest.FixtureRequest) -> Iterator[Arena]:
    mark(request.node, service[0], "S/X suite")
    made = Arena(*service)
    yield made
    for worker in made.workers:
        worker.end()
    for locks in made.opened:
        locks.close()


@pytest.fixture
def proxy(arena: Arena) -> Iterator[Proxy]:
    with Proxy(arena.service.port, host=arena.service.host, severs=arena.service.sessions) as between:
        yield between


def test_a_killed_waiter_keeps_nobody_waiting_for_longer_than_its_lease(arena: Arena) -> None:
    holder, behind, dead = arena.writer("holder"), arena.writer("behind"), arena.worker()
    lease = holder.acquire(share(P1), wait_s=12)
    with renewing(holder, lease, RUNTIME, LEASE_S / 3):
        dead.ask("take X month=1 60")
        eventually(lambda: len(holder.inspect()) == 2)
        assert granted(behind, share(P1)) is None
        dead.signal(signal.SIGKILL)
        with Stopwatch() as watch:
            after = behind.acquire(share(P1), wait_s=LEASE_S + 2 * SLACK_S)
        assert watch.took_s < LEASE_S + SLACK_S
        lease.ensure_active()
        behind.release(after)
    holder.release(lease)
    assert holder.inspect() == ()


def test_a_grant_and_a_release_whose_replies_got_lost_happen_once(arena: Arena, proxy: Proxy) -> None:
    one, two = arena.writer("one", 30.0, proxy.port), arena.writer("two", 30.0)
    one.release(one.acquire(own(P1, P2), wait_s=12))
    proxy.drop_replies(1, to=WRITES[arena.name][0])
    lease = one.acquire(own(P1, P2), wait_s=15)
    assert proxy.dropped == 1
    assert [shown.token for shown in two.inspect()] == [lease.token]
    assert granted(two, own(P1)) is None
    lease.ensure_active()
    one.renew(lease)
    proxy.drop_replies(1, to=WRITES[arena.name][1])
    one.release(lease)
    assert proxy.dropped == 2
    after = two.acquire(own(P1), wait_s=12)
    assert after.token > lease.token
    assert [shown.token for shown in two.inspect()] == [after.token]
    two.release(after)


def test_a_writer_that_gives_up_after_a_lost_reply_leaves_nothing_behind(arena: Arena, proxy: Proxy) -> None:
    one, two = arena.writer("one", 30.0, proxy.port), arena.writer("two", 30.0)
    one.release(one.acquire(own(P1, P2), wait_s=12))
    lease = two.acquire(own(P1), wait_s=12)
    proxy.drop_replies(1, to=WRITES[arena.name][0])
    with pytest.raises(LockError):
        one.acquire(own(P1, P2), wait_s=0)
    assert proxy.dropped == 1
    eventually(lambda: [shown.token for shown in two.inspect()] == [lease.token])
    two.release(lease)


def test_a_holder_that_is_cut_off_learns_so_in_time_and_its_locks_end_with_its_lease(arena: Arena, proxy: Proxy) -> None:
    one, two = arena.writer("one", LEASE_S, proxy.port), arena.writer("two", LEASE_S)
    lease = one.acquire(own(P1), wait_s=12)
    proxy.cut()
    with Stopwatch() as watch:
        eventually(lambda: lease.lost is not None)
    assert watch.took_s < LEASE_S + 0.5
    one.release(lease)
    with Stopwatch() as watch, pytest.raises(LockError):
        one.acquire(own(P1), wait_s=0.5)
    assert watch.took_s < 0.5 + SLACK_S
    after = two.acquire(own(P1), wait_s=LEASE_S + SLACK_S)
    assert after.token > lease.token
    proxy.heal()
    two.release(after)
    one.release(one.acquire(own(P1), wait_s=10))


def test_a_restarted_server_keeps_the_locks_or_their_loss_is_told(arena: Arena, proxy: Proxy) -> None:
    holder, rival = arena.writer("holder", RESTART_S), arena.writer("rival", RESTART_S)
    lease = holder.acquire(own(P1), wait_s=12)
    arena.service.stop()
    arena.service.start()
    eventually(lambda: renewed(holder, lease))
    assert lease.lost is None or arena.name in ("redis", "zookeeper"), "these may forget, or end a session, while they start"
    if lease.lost is None:
        assert granted(rival, own(P1)) is None, "two hold the locks"
        lease.ensure_active()
    holder.release(lease)
    after = rival.acquire(own(P1), wait_s=RESTART_S + SLACK_S)
    assert after.token > lease.token
    rival.release(after)


def renewed(locks: DataLocks, lease: DataLease) -> bool:
    """Whether the service has answered; the lease says what."""
    try:
        locks.renew(lease)
    except LeaseLost:
        return True
    except ProviderUnavailable:
        return False
    return True
