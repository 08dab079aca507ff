"""A rollback that meets a commit at any of its requests, and many writers at once: progress and no lost update."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import Action, ArrowEngine, EventKind, MemoryStorage, with_retries
from tests.behaviour.tables import QUICK, SCHEMA, Recorder, groups, insert, leftovers, memory_table, new_table, put_file, writer
from tests.behaviour.test_every_fault import World
from tests.faulty_storage import Call, FaultyStorage, Rule

from lakelock.errors import RolledBackError, WriteFailed
from lakelock.occ.rollback import RollbackOutcome, RollbackTarget, roll_back

LAST_REQUEST = 40
NO_LOCK = replace(QUICK, concurrency=replace(QUICK.concurrency, mode="SINGLE_WRITER"))


@pytest.mark.parametrize("number", range(1, LAST_REQUEST))
def test_a_rollback_that_meets_a_commit_at_any_request_wins_or_loses_as_a_whole(number):
    """The lock keeps nobody out here, so the log alone decides."""
    world = World()
    rolled_back: list[RollbackOutcome] = []
    of_the_commit: Iterator[int] = iter(())

    def meets(call: Call) -> Rule | None:
        if next(of_the_commit, 0) == number:
            other = world.coordinator(settings=NO_LOCK)
            rolled_back.append(roll_back(other.table, RollbackTarget(tx.instant, Action.COMMIT)))
        return None

    tx = world.coordinator(FaultyStorage(world.storage, meets), NO_LOCK).begin("UPSERT")
    stats = [put_file(tx, world.storage, "month=1", "a"), put_file(tx, world.storage, "month=1", "c")]
    of_the_commit = count(1)
    try:
        tx.commit(stats)
        told = "committed"
    except (RolledBackError, WriteFailed):  # the latter when its markers are gone before it looks at them
        told = "rolled back"
    shown = world.shown()
    assert ("c" in shown) == (shown["a"] == tx.instant) == (told == "committed")
    if RollbackOutcome.ROLLED_BACK in rolled_back:
        assert told == "rolled back"
    world.settle()
    world.check_tidy()
    assert ("c" in world.shown()) == (told == "committed")


def test_fifty_writers_of_partitions_of_their_own_all_commit_at_the_first_attempt():
    storage = memory_table()
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda n: insert(writer(storage, name=f"w{n}"), storage, f"month={n}", f"f{n}"), range(50)))
    assert len(groups(storage)) == 50 and leftovers(storage) == []
    assert sorted(entry.decision for entry in writer(storage).history()) == list(range(1, 51))


def test_ten_writers_of_one_file_group_all_get_through_and_no_update_is_lost():
    storage = MemoryStorage()
    new_table(storage)
    patient = replace(QUICK, retry=replace(QUICK.retry, attempts=200), lock=replace(QUICK.lock, wait_s=120))
    ArrowEngine(writer(storage)).insert(pa.table([["hits"], [0], ["1"]], schema=SCHEMA))

    def add_one(number: int) -> int:
        coordinator = writer(storage, patient, name=f"w{number}")
        engine = ArrowEngine(coordinator)

        def work(tx):
            seen = engine.read_in(tx, pc.field("id") == "hits")
            return engine.upsert_in(tx, pa.table([["hits"], [seen["v"][0].as_py() + 1], ["1"]], schema=SCHEMA))

        return with_retries(coordinator, "UPSERT", work).attempts

    with ThreadPoolExecutor(10) as pool:
        attempts = list(pool.map(add_one, range(20)))
    assert ArrowEngine(writer(storage)).read()["v"].to_pylist() == [20]
    assert len(attempts) == 20 and leftovers(storage) == []


def test_how_long_a_commit_waited_for_the_lock_is_told():
    storage, events = memory_table(), Recorder()
    done = insert(writer(storage, listener=events), storage, "month=1", "a")
    (locked,) = [event for event in events.events if event.kind is EventKind.LOCKED]
    assert done.lock_wait_s >= 0 and locked.facts["waited_s"] >= 0 and locked.facts["token"] > 0
