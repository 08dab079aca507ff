"""One JVM with Java Hudi and one ZooKeeper for all tests of a module, and tables of their own for each test."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest

pytest.importorskip("hudi")

from tests.interop.shared import HIVE_STYLE, LOCKS, Layout, Shared
from tests.interop.witness import Witness, witness
from tests.servers.fetched.java_hudi import JavaHudi, java_hudi
from tests.servers.locks.dynamodb import REGION, TABLE, dynamodb_server
from tests.servers.locks.hive_metastore import hive_metastore_server
from tests.servers.locks.zookeeper import zookeeper_server

from lakelock.testing.service import Service

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
def dynamodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with dynamodb_server(tmp_path_factory.mktemp("dynamodb")) as service:
        # Java would make the table, too, and sleep for 20 s.
        boto3.client("dynamodb", endpoint_url=service.options["lock.options.endpoint_url"], region_name=REGION).create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        yield service


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Witness]:
    hudi, folder = java_hudi(), tmp_path_factory.mktemp("java")
    if shutil.which("javac"):
        request.getfixturevalue("dynamodb")  # its keys are in the environment of the JVM
        hudi = replace(hudi, jars=(*hudi.jars, older_lock(hudi, folder)))
    with witness(hudi, folder) as found:
        yield found


def older_lock(hudi: JavaHudi, folder: Path) -> Path:
    """The jar with what lets a lock provider of an older Hudi release work in this one."""
    source = Path(__file__).with_name("OlderLock.java")
    subprocess.run(["javac", "-cp", str(hudi.jars[0]), "-d", str(folder), str(source)], check=True, timeout=120)
    jar = folder / "older-lock.jar"
    with zipfile.ZipFile(jar, "w") as made:
        made.write(folder / "OlderLock.class", "OlderLock.class")
    return jar


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
