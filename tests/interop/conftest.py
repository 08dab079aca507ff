"""One JVM with Java Hudi and one ZooKeeper for all tests of a module, and tables of their own for each test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("hudi")

from lakelock.testing.servers.hive_metastore import hive_metastore_server
from lakelock.testing.servers.java_hudi import java_hudi
from lakelock.testing.servers.service import Service
from lakelock.testing.servers.zookeeper import zookeeper_server
from tests.interop.shared import HIVE_STYLE, LOCKS, Layout, Shared
from tests.interop.witness import Witness, witness

FULL = bool(os.environ.get("FULL"))
"""Whether the long variants run, too: `make interop FULL=1`."""


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with zookeeper_server(tmp_path_factory.mktemp("zookeeper")) as service:
        yield service


@pytest.fixture(scope="session")
def hive_metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with hive_metastore_server(tmp_path_factory.mktemp("metastore"), extra={"hive.txn.timeout": "60s"}) as service:
        yield service


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Witness]:
    with witness(java_hudi(), tmp_path_factory.mktemp("java")) as found:
        yield found


@pytest.fixture
def share(java: Witness, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Shared]]:
    """Makes tables that Java and lakelock share; `create=False` leaves the making to Java. `lock` names the lock service."""
    made: list[Shared] = []

    def table(layout: Layout = HIVE_STYLE, *, create: bool = True, lock: str = "zookeeper") -> Shared:
        found = Shared(java, tmp_path, {}, layout)
        found.lock = LOCKS[lock](request.getfixturevalue(lock), found.name)
        made.append(found)
        return found.create() if create else found

    yield table
    for each in made:
        each.close()
