"""Lock services that the tests of this folder share, each started once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from kazoo.client import KazooClient
from tests.integration.matrix import SERVICES_OF_ROWS, Services
from tests.servers.locks.hive_metastore import hive_metastore_server

from lakelock.testing.service import Service

collect_ignore = ["third_party"]
"""Run by `test_third_party` as their authors would, with their own pytest."""


_IN_CI = {
    ("hive_metastore", "test_over_a_restart_the_lock_is_kept_or_its_loss_is_told_and_the_next_proceeds"),
    ("hive_metastore", "test_processes_never_hold_the_lock_at_once_and_tokens_grow"),
    ("hive_metastore", "test_none_of_three_processes_starves"),
}
"""What takes more than ten seconds in the lock matrix, by service."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each promise of the lock suite is tried on some service in each run, and on every service, with wrong clocks, in CI."""
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            service, wrong_s = item.callspec.params.get("service"), item.callspec.params.get("wrong_s")
            if (service, item.originalname) in _IN_CI or (wrong_s and service not in (None, "storage")):
                item.add_marker(pytest.mark.in_ci)


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """A service by its row of the lock matrix, started when it is first asked for. Whoever stops one starts it again."""
    running: dict[str, Service] = {}
    with ExitStack() as stack:

        def named(row: str) -> Service:
            if row not in running:
                running[row] = stack.enter_context(SERVICES_OF_ROWS[row](tmp_path_factory.mktemp("service")))
            return running[row]

        yield named


@pytest.fixture(scope="session")
def zookeeper(services: Services) -> Service:
    running = services("zookeeper")
    # Whoever makes a node first says who may use it, and the first one may be a test of closed locks.
    hosts, _, path = running.url("").partition("://")[2].partition("/")
    client = KazooClient(hosts)
    client.start(30)
    client.ensure_path(f"/{path}".rstrip("/"))
    client.stop()
    client.close()
    return running


@pytest.fixture(scope="session")
def patient_metastore(services: Services) -> Service:
    """A metastore that keeps a silent lock for longer than any lease of the tests of data locks."""
    return services("hive_metastore")


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A metastore that drops silent locks after a few seconds."""
    with hive_metastore_server(tmp_path_factory.mktemp("metastore")) as running:
        yield running


@pytest.fixture(scope="session")
def dynamodb(services: Services) -> Service:
    return services("dynamodb")
