"""Lock services that the tests of this folder share, each started once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from kazoo.client import KazooClient

from lakelock.testing.servers.hive_metastore import hive_metastore_server
from lakelock.testing.servers.service import Service
from tests.integration.matrix import SERVICES_OF_ROWS, Services

collect_ignore = ["third_party"]
"""Run by `test_third_party` as their authors would, with their own pytest."""


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
