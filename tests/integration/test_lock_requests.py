"""How often lakelock asks each lock service: alone at the least that is possible, and in a crowd no more for each waiter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from time import monotonic, sleep

import pytest
from tests.api import LocalStorage, LockProvider, MemoryStorage, Storage, SystemRuntime, WriterIdentity, open_provider
from tests.faulty_storage import CountingStorage
from tests.integration.matrix import Services
from tests.servers import Service
from tests.sizes import in_ci
from tests.waiting import Stopwatch

from lakelock.settings import Settings
from lakelock.testing.proxy import Proxy

LEASE_S = 60.0
"""Long, so that nothing but the lock itself is a reason to ask."""

ROUNDS, FEW = 40, 4
NETWORK_S = 0.03
"""What an answer takes in a network: a busy machine sends the requests of one round trip within this time."""
CROWD = 40
MOST_EACH = 9
"""Four, and up to five for a connection that listens: beside busy cores two requests of one trip part, and no writer has
already made that connection while it met another."""
TURN_S = 0.15
FEW_LOOK, MANY_LOOK = 5, 30

tables = count()


@pytest.fixture(scope="module", params=["redis", *in_ci("zookeeper", "dynamodb", "hive_metastore")])
def service(request: pytest.FixtureRequest, services: Services) -> Service:
    return services(request.param)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def proxy(service: Service, opened: ExitStack) -> Proxy:
    return opened.enter_context(Proxy(service.port, host=service.host))


def open_writer(opened: ExitStack, values: dict[str, object], storage: Storage) -> LockProvider:
    runtime = SystemRuntime()
    settings = Settings.resolve({"lock.lease_s": LEASE_S, "lock.renew_s": 20.0, **values}).settings
    provider = open_provider(settings, storage, runtime, WriterIdentity.of_this_process(runtime, "requests"))
    opened.callback(provider.close)
    return provider


@pytest.fixture
def writer(service: Service, opened: ExitStack) -> Callable[[Proxy | None], LockProvider]:
    """A writer of one table, behind a proxy that counts or not."""
    table = f"requests{next(tables)}"

    def make(proxy: Proxy | None = None) -> LockProvider:
        values: dict[str, object] = {"lock.provider": service.url(table), **service.options}
        if proxy is not None:
            values = service.through(proxy.port, values)
        return open_writer(opened, values, MemoryStorage(name=table))

    return make


def take_and_give_back(provider: LockProvider) -> None:
    provider.release(provider.acquire(wait_s=60.0))


def test_a_lone_writer_needs_one_round_trip_to_take_the_lock_and_one_to_give_it_back(
    writer: Callable[[Proxy | None], LockProvider], proxy: Proxy, service: Service
) -> None:
    provider = writer(proxy)
    for _ in range(3):  # connections, tables and first tokens are made
        take_and_give_back(provider)
    proxy.delay(NETWORK_S)
    asked = []
    for _ in range(ROUNDS // FEW):
        before = proxy.round_trips
        for _ in range(FEW):
            take_and_give_back(provider)
        asked.append(proxy.round_trips - before)
    # ZooKeeper's sessions also ping, and its two requests of one trip part if a thread stands still for long: the best counts.
    assert min(asked) == 2 * FEW
    if not service.sessions:
        assert set(asked) == {2 * FEW}


def asked_by_a_crowd(
    writer: Callable[[Proxy | None], LockProvider], proxy: Proxy, opened: ExitStack, waiters: int
) -> tuple[int, float]:
    """Round trips of so many writers that all wait, take the lock in turn and give it back, and how long their turns took."""
    holder, crowd = writer(None), [writer(proxy) for _ in range(waiters)]
    pool = opened.enter_context(ThreadPoolExecutor(waiters))
    for each in pool.map(take_and_give_back, crowd):  # everybody is connected
        assert each is None
    lease, before = holder.acquire(wait_s=30.0), proxy.round_trips
    working = [pool.submit(take_and_give_back, provider) for provider in crowd]
    end_s = monotonic() + 30
    while len(holder.inspect().queue) < waiters:
        assert monotonic() < end_s, "they did not all queue up"
        sleep(0.02)
    with Stopwatch() as watch:
        holder.release(lease)
        for each in working:
            each.result(60)
    return proxy.round_trips - before, watch.took_s


@pytest.mark.parametrize("service", ["redis", *in_ci("zookeeper")], indirect=True)
def test_a_crowd_asks_no_more_for_each_waiter_than_a_few_do_and_each_release_wakes_the_next_at_once(
    writer: Callable[[Proxy | None], LockProvider], proxy: Proxy, opened: ExitStack
) -> None:
    for waiters in (FEW, CROWD):
        asked, took_s = asked_by_a_crowd(writer, proxy, opened, waiters)
        # Ask, queue up, see that it is one's turn, give back; and a connection that listens.
        # Were all of them woken by each release, it would be half of the crowd for each.
        assert asked <= MOST_EACH * waiters
        assert took_s <= TURN_S * waiters, "they were not woken but looked again"


def requests_of_polling_waiters(opened: ExitStack, folder: Path, waiters: int) -> int:
    """Storage requests of so many writers that all wait, take the lock in turn and give it back."""
    storage, uri = CountingStorage(LocalStorage(folder)), {"lock.provider": "storage:"}
    holder, crowd = open_writer(opened, uri, LocalStorage(folder)), [open_writer(opened, uri, storage) for _ in range(waiters)]
    pool = opened.enter_context(ThreadPoolExecutor(waiters))
    lease = holder.acquire(wait_s=30.0)
    working = [pool.submit(take_and_give_back, provider) for provider in crowd]
    end_s = monotonic() + 30
    while storage.total < 5 * waiters:
        assert monotonic() < end_s, "they did not all look"
        sleep(0.02)
    holder.release(lease)
    for each in working:
        each.result(60)
    return storage.total


def test_where_waiters_poll_a_crowd_asks_little_more_for_each_than_a_few_do(opened: ExitStack, tmp_path: Path) -> None:
    few = requests_of_polling_waiters(opened, tmp_path / "few", FEW_LOOK)
    many = requests_of_polling_waiters(opened, tmp_path / "many", MANY_LOOK)
    # Pauses that stayed as short as at the beginning would ask six times as often.
    assert many / MANY_LOOK <= 2.5 * few / FEW_LOOK, (few, many)
