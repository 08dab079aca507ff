"""The keeper process holds a write's data locks exactly as long as the write lives, whoever dies first."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api import DataLocks, Resource, StorageLocation, SystemRuntime, WriterIdentity, lock_request
from tests.behaviour.tables import new_table
from tests.waiting import eventually

from lakelock.data_locks import open_data_locks
from lakelock.data_locks.keeper import GONE, KeeperOrder, KeptLocks, SignOfLife, keeping
from lakelock.errors import LockTimeout
from lakelock.settings import Settings
from lakelock.spark_plugin.source_sink import given_back

# A lease of ten minutes: what is free after seconds was given back.
SLOW_LEASE = {"data_locks.lease_s": 600, "data_locks.renew_s": 0.2, "data_locks.sleep_s": 0.05}
AT_ONCE = {**SLOW_LEASE, "data_locks.attempts": 1}
REQUEST = lock_request(exclusive=[Resource.of("month=1")], about="INSERT")
HEARTBEAT, LIMIT_S = ".hoodie/.heartbeat/20260101000000000", 2.0
BOUND_S = 60.0


@pytest.fixture
def location(tmp_path: Path) -> StorageLocation:
    place = StorageLocation.of(tmp_path / "t")
    new_table(place.open())
    return place


@pytest.fixture
def locks(location: StorageLocation) -> Iterator[DataLocks]:
    runtime, settings = SystemRuntime(), Settings.resolve(AT_ONCE).settings
    opened = open_data_locks(settings, location.open(), runtime, WriterIdentity.of_this_process(runtime, "other"))
    yield opened
    opened.close()


@pytest.fixture
def above() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for Spark."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def order(location: StorageLocation, above: subprocess.Popen[bytes], settings: dict = SLOW_LEASE) -> KeeperOrder:
    writer = WriterIdentity.of_this_process(SystemRuntime(), "kept")
    return KeeperOrder(location, Settings.resolve(settings).settings, REQUEST, writer, above.pid)


def holders(locks: DataLocks) -> list[str]:
    return [each.writer.application for each in locks.inspect() if each.writer is not None]


def test_the_locks_are_kept_while_the_write_beats_and_go_when_its_heartbeat_does(location, locks, above):
    storage = location.open()
    storage.put(HEARTBEAT, b"beat")
    with keeping(order(location, above)) as kept:
        kept.handed_over(SignOfLife(HEARTBEAT, LIMIT_S))
    beats = SystemRuntime().every(0.2, lambda: storage.put(HEARTBEAT, b"beat"), name="test")
    began_s = SystemRuntime().monotonic_s()
    eventually(lambda: SystemRuntime().monotonic_s() - began_s > 2 * LIMIT_S, BOUND_S)
    assert holders(locks) == ["kept"]
    with pytest.raises(LockTimeout, match="blocked by kept"):
        locks.acquire(REQUEST)
    beats.stop()
    storage.delete([HEARTBEAT])
    eventually(lambda: holders(locks) == [], BOUND_S)


def test_the_locks_of_a_write_that_beats_no_more_are_given_back(location, locks, above):
    location.open().put(HEARTBEAT, b"beat")
    with keeping(order(location, above)) as kept:
        kept.handed_over(SignOfLife(HEARTBEAT, LIMIT_S))
    began_s = SystemRuntime().monotonic_s()
    eventually(lambda: holders(locks) == [], BOUND_S)
    assert SystemRuntime().monotonic_s() - began_s > LIMIT_S / 2


def test_the_locks_are_given_back_when_spark_is_killed(location, locks, above):
    location.open().put(HEARTBEAT, b"beat")
    with keeping(order(location, above)) as kept:
        kept.handed_over(SignOfLife(HEARTBEAT, 600))
    assert holders(locks) == ["kept"]
    above.kill()
    eventually(lambda: holders(locks) == [], BOUND_S)


def test_ending_the_write_gives_the_locks_back_at_once_and_says_whether_they_were_lost(location, locks, above):
    location.open().put(HEARTBEAT, b"beat")
    for broken in (False, True):
        with keeping(order(location, above)) as kept:
            given = kept.handed_over(SignOfLife(HEARTBEAT, 600))
        if broken:
            locks.break_lock(given.token, force=True)
        lost = given.release()
        assert lost.startswith("taken-over") if broken else lost == ""
        assert holders(locks) == []
        eventually(lambda given=given: not Path(given.address).exists(), BOUND_S)
        assert given.release() == GONE


PLANNER = """
import pickle, sys
from lakelock.data_locks.keeper import keeping
with keeping(pickle.load(sys.stdin.buffer)):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("waiting", [True, False])
def test_the_planner_is_killed_before_the_write_began(location, locks, above, waiting):
    lease = locks.acquire(REQUEST) if waiting else None
    planner = subprocess.Popen([sys.executable, "-c", PLANNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert planner.stdin is not None and planner.stdout is not None
    try:
        pickle.dump(order(location, above), planner.stdin)
        planner.stdin.flush()
        if not waiting:
            assert planner.stdout.readline() == b"held\n"
        eventually(lambda: "kept" in holders(locks), BOUND_S)
        planner.kill()
        eventually(lambda: "kept" not in holders(locks), BOUND_S)
    finally:
        planner.kill()
        planner.communicate()
    assert lease is None or lease.lost is None


def test_a_planner_that_fails_gives_the_locks_back_before_it_goes_on(location, locks, above):
    seen: list[str] = []

    def fail() -> None:
        seen.extend(holders(locks))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), keeping(order(location, above)):
        fail()
    assert seen == ["kept"] and holders(locks) == []


def test_an_alert_says_that_the_locks_of_a_write_had_been_lost(caplog):
    nobody = KeptLocks("/nowhere/keeper", token=1, waited_s=0, answer_within_s=1)
    with given_back(nobody, "file:///t", "20260101000000000", "INSERT"):
        assert caplog.messages == []
    assert "data locks were lost (the process that kept them is gone)" in caplog.text
    caplog.clear()
    with given_back(None, "file:///t", "20260101000000000", "INSERT"):
        pass
    assert caplog.messages == []


def test_the_planner_gets_the_error_that_the_keeper_got(location, locks, above):
    lease = locks.acquire(REQUEST)
    with pytest.raises(LockTimeout, match="are blocked by other"), keeping(order(location, above, AT_ONCE)):
        pytest.fail("somebody else has the locks")
    locks.release(lease)
