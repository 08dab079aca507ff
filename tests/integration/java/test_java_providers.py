"""Hudi's own Java lock providers and lakelock on one lock, from one properties file: each keeps the other out."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.api import open_storage
from tests.integration.java.hudi_world import LEASE_S, World, compiled, new_world
from tests.servers.fetched.hudi_jars import HUDI, HUDI_DYNAMODB
from tests.servers.jvm import jars

from lakelock.errors import LockTimeout

pytestmark = [
    pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK: apt-get install -y openjdk-17-jdk-headless"),
    pytest.mark.sampled,
]

ROUNDS = 20
MEETINGS = 5
"""How often both begin at once, until they meet: beside busy cores one may be done before the other has begun."""
CHROOT = "/lake/one"
PAUSE_S = {"zookeeper": 0.0, "metastore": 0.05, "dynamodb": 0.15}
"""After each release, as Java does not queue for DynamoDB and the metastore: it looks again, once a second for DynamoDB."""


@pytest.fixture(scope="module")
def hudi(tmp_path_factory: pytest.TempPathFactory) -> str:
    class_path = f"{HUDI.fetch()}/*:{jars()}/*"
    return compiled(Path(__file__).with_name("HudiLock.java"), class_path, tmp_path_factory.mktemp("hudi"))


@pytest.fixture(scope="module")
def hudi_dynamodb(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(
        Path(__file__).with_name("HudiLock.java"), f"{HUDI_DYNAMODB.fetch()}/*", tmp_path_factory.mktemp("hudi-dynamodb")
    )


@pytest.fixture(params=["zookeeper", "metastore", "dynamodb"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    class_path = request.getfixturevalue("hudi_dynamodb" if request.param == "dynamodb" else "hudi")
    with new_world(request.getfixturevalue(request.param), tmp_path, class_path) as world:
        # Where the lock's own table is missing, Java would make it and sleep for 20 s.
        world.writer("first").probe()
        yield world


def test_java_and_python_never_hold_the_lock_at_once(world: World, request: pytest.FixtureRequest) -> None:
    pause_s = PAUSE_S[request.node.callspec.params["world"]]
    java, python = world.java(), world.python()
    assert java("ready") and python("ready")
    for attempt in range(1, MEETINGS + 1):
        java.ask(f"hammer {ROUNDS} {round(pause_s * 1000)} {world.folder}")
        python.ask(f"hammer {ROUNDS} {pause_s}")
        assert [java.answer(), python.answer()] == [{"overlaps": 0}] * 2
        assert (world.folder / "count").read_text() == str(2 * ROUNDS * attempt)
        who = [line.split()[1] == "java" for line in (world.folder / "tokens").read_text().splitlines()][-2 * ROUNDS :]
        assert len(who) == 2 * ROUNDS
        if sum(before != after for before, after in pairwise(who)) >= 2:
            return
    pytest.fail("they never took turns")


def test_a_released_lock_is_taken_by_the_other_at_once(world: World) -> None:
    provider, java = world.writer("python"), world.java()
    assert java("take 10") == {"took": True}
    with pytest.raises(LockTimeout, match="another Hudi writer"):
        provider.acquire(wait_s=0.5)
    assert java("release")
    lease = provider.acquire(wait_s=2)
    java.ask("take 20")
    provider.renew(lease)
    provider.release(lease)
    assert java.answer() == {"took": True}
    assert java("release")
    again = provider.acquire(wait_s=2)
    assert again.token > lease.token
    provider.release(again)


def test_a_killed_java_holder_is_replaced_after_its_lease(world: World) -> None:
    provider, java = world.writer("python"), world.java()
    assert java("take 10") == {"took": True}
    java.signal(signal.SIGKILL)
    with pytest.raises(LockTimeout):
        provider.acquire(wait_s=LEASE_S / 3)
    provider.acquire(wait_s=15).ensure_active()


def test_a_killed_python_holder_is_replaced_by_java_after_its_lease(world: World) -> None:
    python, java = world.python(), world.java()
    assert java("ready")
    assert "token" in python("take 10")
    killed_s = time.monotonic()
    python.signal(signal.SIGKILL)
    assert java("take 20") == {"took": True}
    assert time.monotonic() - killed_s > LEASE_S / 3


def under(world: World, chroot: str) -> None:
    """Put the lock of Java's file below a chroot of ZooKeeper, which is there: Java does not make it."""
    world.file.write_text(re.sub("(zookeeper.url=.*)", rf"\1{chroot}", world.file.read_text()))
    world.writer("first").probe()


@pytest.mark.parametrize("world", ["zookeeper"], indirect=True)
def test_java_and_python_exclude_each_other_below_a_chroot_and_nobody_outside_it(world: World) -> None:
    outside = world.writer("outside")
    under(world, CHROOT)
    inside, java = world.writer("inside"), world.java()
    assert java("take 10") == {"took": True}
    with pytest.raises(LockTimeout, match="another Hudi writer"):
        inside.acquire(wait_s=0.5)
    outside.release(outside.acquire(wait_s=2))
    assert java("release")
    inside.acquire(wait_s=2).ensure_active()
    assert java("take 0.3") == {"took": False}


@pytest.mark.parametrize("chroot", ["", CHROOT])
@pytest.mark.parametrize("world", ["zookeeper"], indirect=True)
def test_the_lock_that_java_derives_from_the_path_of_the_table_is_ours(world: World, chroot: str) -> None:
    under(world, chroot)
    text = world.file.read_text().replace("ZookeeperBasedLockProvider", "ZookeeperBasedImplicitBasePathLockProvider")
    world.file.write_text(text + "hoodie.base.path=s3a://bucket/warehouse/flights\n")
    keys = {"access_key_id": "id", "secret_access_key": "key", "region": "us-east-1"}
    provider = world.writer("python", open_storage("s3://bucket/warehouse/x/../flights/", keys))
    java = world.java()
    assert java("take 10") == {"took": True}
    with pytest.raises(LockTimeout, match="another Hudi writer"):
        provider.acquire(wait_s=0.5)
    assert java("release")
    provider.acquire(wait_s=2).ensure_active()
    assert java("take 0.3") == {"took": False}
