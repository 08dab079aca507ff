"""Lock services that the tests of this folder share, each started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from lakelock.testing.servers.dynamodb import dynamodb_server
from lakelock.testing.servers.hive_metastore import hive_metastore_server
from lakelock.testing.servers.service import Service
from lakelock.testing.servers.zookeeper import zookeeper_server
from tests.integration.metastore_data_world import TIMEOUT_S

collect_ignore = ["third_party"]
"""Run by `test_third_party` as their authors would, with their own pytest."""


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with zookeeper_server(tmp_path_factory.mktemp("zookeeper")) as service:
        # Whoever makes a node first says who may use it, and the first one may be a test of closed locks.
        hosts, _, path = service.url("").partition("://")[2].partition("/")
        client = KazooClient(hosts)
        client.start(30)
        client.ensure_path(f"/{path}".rstrip("/"))
        client.stop()
        client.close()
        yield service


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with hive_metastore_server(tmp_path_factory.mktemp("metastore")) as service:
        yield service


@pytest.fixture(scope="module")
def patient_metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A metastore that keeps a silent lock for longer than any lease of the tests of data locks."""
    with hive_metastore_server(tmp_path_factory.mktemp("metastore"), extra={"hive.txn.timeout": f"{TIMEOUT_S}s"}) as service:
        yield service


@pytest.fixture(scope="module")
def dynamodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with dynamodb_server(tmp_path_factory.mktemp("dynamodb")) as service:
        yield service
