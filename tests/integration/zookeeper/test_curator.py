"""Curator's InterProcessMutex, which Java Hudi uses, and lakelock on one lock: each keeps the other out."""

from __future__ import annotations

import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from tests.integration.zookeeper.zookeeper_world import World, workers
from tests.servers.locks.zookeeper import jars
from tests.waiting import eventually

from lakelock.errors import LockTimeout

pytestmark = pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK: apt-get install -y openjdk-17-jdk-headless")

ROUNDS = 40
MEETINGS = 5
"""How often all begin at once, until they meet: beside busy cores some may be done before others have begun."""


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("curator")
    source = Path(__file__).with_name("CuratorLock.java")
    subprocess.run(["javac", "-cp", f"{jars()}/*", "-d", str(folder), str(source)], check=True)
    (folder / "log4j2.properties").write_text("rootLogger.level=off\n")
    return folder


def test_java_and_python_never_hold_the_lock_at_once(world: World, tmp_path: Path, classes: Path) -> None:
    with workers(world, tmp_path) as (python, java):
        hammering = [java(classes), java(classes), python(15.0), python(15.0)]
        assert all(worker("ready") for worker in hammering)
        for attempt in range(1, MEETINGS + 1):
            for worker in hammering[:2]:
                worker.ask(f"hammer {ROUNDS} {tmp_path}")
            for worker in hammering[2:]:
                worker.ask(f"hammer {ROUNDS}")
            assert [worker.answer() for worker in hammering] == [{"overlaps": 0}] * 4
            assert (tmp_path / "count").read_text() == str(4 * ROUNDS * attempt)
            who = [line.split()[1] == "java" for line in (tmp_path / "tokens").read_text().splitlines()][-4 * ROUNDS :]
            assert len(who) == 4 * ROUNDS
            if sum(before != after for before, after in pairwise(who)) > len(who) / 4:
                return
    pytest.fail("they never took turns")


def test_each_waits_for_the_other_and_is_woken_by_its_release(world: World, tmp_path: Path, classes: Path) -> None:
    provider = world.writer("python")
    with workers(world, tmp_path) as (_, java):
        curator = java(classes)
        assert curator("take 10") == {"took": True}
        with pytest.raises(LockTimeout, match="another Hudi writer"):
            provider.acquire(wait_s=0.3)
        holder = provider.inspect().holder
        assert holder is not None and holder.writer is None and "-lock-" in holder.owner
        curator("release")
        lease = provider.acquire(wait_s=10)
        assert lease.token > holder.token
        assert curator("take 0.3") == {"took": False}
        curator.ask("take 10")
        eventually(lambda: len(provider.inspect().queue) == 1)
        provider.release(lease)
        assert curator.answer() == {"took": True}


def test_breaking_the_lock_of_a_java_holder_needs_its_token(world: World, tmp_path: Path, classes: Path) -> None:
    provider = world.writer("operator")
    with workers(world, tmp_path) as (_, java):
        assert java(classes)("take 10") == {"took": True}
        provider.break_lock(provider.inspect().token, force=True)
        provider.acquire(wait_s=12).ensure_active()
