"""A service that is there and says nothing: connections are taken, requests are read by nobody. Waiting stays bounded.

The drivers' own time-outs are set to much more than the bound, so that only lakelock can keep it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count
from time import sleep

import pytest
from tests.api import LockProvider, MemoryStorage, SystemRuntime, WriterIdentity, open_provider
from tests.integration.matrix import Services
from tests.servers import Service
from tests.sizes import but_in_ci
from tests.waiting import Stopwatch

from lakelock.errors import LakelockError, LockTimeout, ProviderUnavailable
from lakelock.settings import Settings

LEASE_S = 6.0
LATE_S = 0.75
SLACK_S = 1.25
"""What a slow machine may add."""

PATIENT = {
    "redis": {"lock.options.socket_timeout": 30.0, "lock.options.socket_connect_timeout": 30.0},
    "zookeeper": {"lock.options.request_timeout_s": 30.0, "lock.options.connect_timeout_s": 30.0},
    "dynamodb": {"lock.options.read_timeout": 30.0, "lock.options.connect_timeout": 30.0},
    "hive_metastore": {"hive_metastore.socket_timeout_s": 30.0},
}

tables = count()


@pytest.fixture(scope="module", params=but_in_ci(PATIENT, {"zookeeper", "redis"}))
def service(request: pytest.FixtureRequest, services: Services) -> Service:
    return services(request.param)


@pytest.fixture
def writer(service: Service, request: pytest.FixtureRequest) -> Iterator[Callable[[str], LockProvider]]:
    table, opened = f"frozen{next(tables)}", []
    patient = PATIENT[request.node.callspec.params["service"]]

    def make(name: str) -> LockProvider:
        runtime = SystemRuntime()
        values = {"lock.provider": service.url(table), "lock.lease_s": LEASE_S, "lock.renew_s": LEASE_S / 3}
        settings = Settings.resolve({**values, **service.options, **patient}).settings
        identity = WriterIdentity.of_this_process(runtime, name)
        opened.append(open_provider(settings, MemoryStorage(name=table), runtime, identity))
        return opened[-1]

    yield make
    service.resume()
    for provider in opened:
        provider.close()


def refused(provider: LockProvider, wait_s: float) -> Stopwatch:
    """How long it took to be told that the service does not answer."""
    with Stopwatch() as watch, pytest.raises(ProviderUnavailable):
        provider.acquire(wait_s=wait_s)
    return watch


def check_in_time(watch: Stopwatch, wait_s: float) -> None:
    assert wait_s <= watch.wall_s
    assert watch.took_s < wait_s + LATE_S + SLACK_S


def works(provider: LockProvider) -> None:
    """Whatever was asked of the frozen service may still arrive: it keeps others out for a lease at most."""
    provider.release(provider.acquire(wait_s=LEASE_S + 20))


def test_a_connected_writer_is_told_in_time(service: Service, writer: Callable[[str], LockProvider]) -> None:
    provider, other = writer("one"), writer("other")
    works(provider)
    service.pause()
    watch = refused(provider, 0.5)
    service.resume()
    check_in_time(watch, 0.5)
    works(other)
    works(provider)


def test_a_writer_that_must_connect_first_is_told_in_time(service: Service, writer: Callable[[str], LockProvider]) -> None:
    works(writer("earlier"))
    provider = writer("one")
    service.pause()
    watch = refused(provider, 0.5)
    service.resume()
    check_in_time(watch, 0.5)
    works(provider)


def test_a_waiter_is_told_in_time_when_the_service_freezes_under_it(
    service: Service, writer: Callable[[str], LockProvider]
) -> None:
    holder, waiter = writer("holder"), writer("waiter")
    works(waiter)
    lease = holder.acquire(wait_s=10)
    watch = Stopwatch()

    def wait() -> None:
        with watch, pytest.raises((LockTimeout, ProviderUnavailable)):
            waiter.acquire(wait_s=2.0)

    waiting = threading.Thread(target=wait)
    waiting.start()
    sleep(0.5)  # whether it has asked already or is just about to: both must end in time
    service.pause()
    waiting.join(LEASE_S + 20)
    service.resume()
    check_in_time(watch, 2.0)
    try:
        holder.release(lease)
    except LakelockError:
        pytest.fail("a release never raises")
    works(waiter)
