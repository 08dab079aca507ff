"""What data locks cost, counted where the requests arrive: the numbers that the documents name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.api import DataLocks, Resource
from tests.behaviour.data_locks.data_lock_suite import P1, P2, Later, own
from tests.integration.data_locks.test_data_locks import open_one, tables
from tests.servers import Service
from tests.servers.locks.dynamodb_proxy import proxy_to
from tests.servers.locks.redis import RedisServer

from lakelock.data_locks.zookeeper import ZooKeeperDataLocks
from lakelock.providers.zookeeper.session import ZooKeeperSession

MANY = [Resource.of(f"day={day}") for day in range(200)]


@pytest.fixture
def opened() -> Iterator[list[DataLocks]]:
    """Writers that are closed at the end."""
    made: list[DataLocks] = []
    yield made
    for locks in made:
        locks.close()


def used(count: Callable[[], int], action: Callable[[], Any]) -> tuple[int, Any]:
    before = count()
    result = action()
    return count() - before, result


def check_costs(locks: DataLocks, count: Callable[[], int], *, acquire: int, renew: int, release: int) -> None:
    """The same for one partition and for many; the connection and the queues are there already."""
    for request in (own(P1), own(*MANY)):
        locks.release(locks.acquire(request, wait_s=10))
        spent, lease = used(count, partial(locks.acquire, request, wait_s=10))
        assert spent == acquire
        assert used(count, partial(locks.renew, lease))[0] == renew
        assert used(count, partial(locks.release, lease))[0] == release


def test_a_request_to_redis_is_one_read_and_one_write(tmp_path: Path, opened: list[DataLocks]) -> None:
    with RedisServer(tmp_path) as server, server.client() as client:
        service = Service("redis", lambda table: f"redis://127.0.0.1:{server.port}/0?key={table}", server.port)
        opened.append(open_one(service, "t", "one", 30.0))

        def scripts() -> int:
            return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])

        check_costs(opened[0], scripts, acquire=2, renew=2, release=2)


def test_a_request_to_dynamodb_is_one_read_and_one_write(dynamodb: Service, opened: list[DataLocks]) -> None:
    with proxy_to(dynamodb.port, dynamodb.host) as proxy:
        opened.append(open_one(dynamodb, f"data{next(tables)}", "one", 30.0, **{"lock.options.endpoint_url": proxy.url}))
        check_costs(opened[0], lambda: len(proxy.requests), acquire=2, renew=2, release=2)


def round_trips(locks: ZooKeeperDataLocks, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of requests in each round trip of its session from now on."""
    seen: dict[ZooKeeperSession, list[int]] = {}
    ask = ZooKeeperSession.ask

    def counting(session: ZooKeeperSession, within_s: float, *requests: Any) -> list[Any]:
        seen.setdefault(session, []).append(len(requests))
        return ask(session, within_s, *requests)

    monkeypatch.setattr(ZooKeeperSession, "ask", counting)
    locks.inspect()
    (mine,) = seen.values()
    mine.clear()
    return mine


def test_a_request_to_zookeeper_is_one_transaction_and_one_look(
    zookeeper: Service, opened: list[DataLocks], monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = open_one(zookeeper, f"data{next(tables)}", "one", 30.0)
    assert isinstance(locks, ZooKeeperDataLocks)
    opened.append(locks)
    seen = round_trips(locks, monkeypatch)
    locks.release(locks.acquire(own(P2), wait_s=10))
    spent, lease = used(lambda: len(seen), partial(locks.acquire, own(P1), wait_s=10))
    assert spent == 5, "three more for a partition that was never locked before"
    locks.release(lease)
    check_costs(locks, lambda: len(seen), acquire=2, renew=1, release=1)
    assert max(seen) == 3


def test_fifty_waiters_ask_zookeeper_fifty_times_as_much_as_one(
    zookeeper: Service, opened: list[DataLocks], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of one writer, so that they share a session, and their requests are counted in one place."""
    table, waiters = f"data{next(tables)}", 50
    locks, watcher = (open_one(zookeeper, table, name, 30.0) for name in ("one", "watcher"))
    assert isinstance(locks, ZooKeeperDataLocks)
    opened += [locks, watcher]
    lease = locks.acquire(own(P1), wait_s=10)
    seen = round_trips(locks, monkeypatch)
    waiting = [Later(Beside(locks, watcher), own(P1), wait_s=60) for _ in range(waiters)]
    locks.release(lease)
    for each in waiting:
        locks.release(each.lease())
    assert len(seen) <= 8 * waiters
    assert sum(seen) <= 16 * waiters


class Beside:
    """Asks by one writer and looks by another, so that looking does not count."""

    def __init__(self, locks: DataLocks, watcher: DataLocks) -> None:
        self.acquire, self.inspect = locks.acquire, watcher.inspect
