"""Data locks of one statement over several tables: all or none, and whoever holds one table never waits for another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pyarrow as pa
import pytest
from tests.api import ArrowEngine, Coordinator, MemoryStorage, Resource
from tests.behaviour.tables import QUICK, SCHEMA, Recorder, new_table, writer
from tests.waiting import eventually

from lakelock.errors import InputError, LockTimeout
from lakelock.occ.data_locking import holding_together
from lakelock.settings import ConcurrencySettings
from lakelock.settings.sections import DataLockSettings

LOCKED = replace(
    QUICK,
    concurrency=ConcurrencySettings(mode="PESSIMISTIC"),
    data_locks=DataLockSettings(attempts=600, sleep_s=0.05, lease_s=30, renew_s=10),
)
OFF = replace(LOCKED, concurrency=ConcurrencySettings(mode="SINGLE_WRITER"))
ROW = pa.table([["a"], [1], ["1"]], schema=SCHEMA)
MONTH = (Resource.of("month=1"),)


@pytest.fixture
def tables() -> tuple[MemoryStorage, MemoryStorage]:
    made = MemoryStorage(name="t1"), MemoryStorage(name="t2")
    for storage in made:
        new_table(storage)
    return made


def held(coordinator: Coordinator) -> list[str]:
    return [str(seen.request) for seen in coordinator.data.locks.inspect()]


def test_crossed_statements_are_refused_at_once_with_both_sides_named(tables: tuple[MemoryStorage, MemoryStorage]) -> None:
    """Each reads one table with locks and inserts into the other's: whoever waited would hold the other up."""
    both_read = Barrier(2)

    def statement(name: str, source: MemoryStorage, target: MemoryStorage) -> LockTimeout:
        with ArrowEngine(writer(source, LOCKED, name)).reading("month=1"):
            both_read.wait(timeout=60)
            with pytest.raises(LockTimeout) as refused:
                ArrowEngine(writer(target, LOCKED, name)).insert(ROW, partition="month=1")
            both_read.wait(timeout=60)
            return refused.value

    one, two = tables
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(statement, "first", one, two)
        second = pool.submit(statement, "second", two, one)
        mine, theirs = first.result(timeout=120), second.result(timeout=120)
    for error, wanted, kept, by in ((mine, two, one, "second"), (theirs, one, two, "first")):
        assert f"data locks of {wanted.uri} (" in error.message and f"are blocked by {by}" in error.message
        assert f"this thread holds data locks of {kept.uri} (SELECT, token " in error.message
        assert error.retryable and error.details["waited_s"] == 0 and "locked_together" in error.hint
    for storage in tables:
        assert held(writer(storage)) == []


def test_crossed_statements_that_take_all_at_once_both_get_through(tables: tuple[MemoryStorage, MemoryStorage]) -> None:
    rounds, begin = 4, Barrier(2)

    def statements(name: str, source: MemoryStorage, target: MemoryStorage) -> int:
        read, write = writer(source, LOCKED, name), writer(target, LOCKED, name)
        for _ in range(rounds):
            begin.wait(timeout=60)
            insert, select = write.data.request("INSERT", MONTH), read.data.request("SELECT", MONTH)
            with holding_together([(write.data, insert), (read.data, select)]):
                with ArrowEngine(read).reading("month=1") as found:
                    ArrowEngine(write).insert(ROW, partition="month=1")
                assert ArrowEngine(read).read().num_rows == found.num_rows, "nobody wrote what was read"
        return rounds

    one, two = tables
    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(statements, "first", one, two), pool.submit(statements, "second", two, one)]
        assert [each.result(timeout=120) for each in done] == [rounds] * 2
    for storage in tables:
        assert held(writer(storage)) == [] and ArrowEngine(writer(storage)).read().num_rows == rounds


def test_a_statement_over_two_tables_says_what_it_holds_and_for_whom_it_waits(
    tables: tuple[MemoryStorage, MemoryStorage],
) -> None:
    one, two = tables
    recorder = Recorder()
    read, write = writer(one, LOCKED, "mine", recorder), writer(two, LOCKED, "mine", recorder)
    asked = [(write.data, write.data.request("INSERT", MONTH)), (read.data, read.data.request("SELECT", MONTH))]

    def statement() -> list[str]:
        with holding_together(asked):
            return held(read) + held(write)

    holder = writer(two, LOCKED, "holder")
    with ThreadPoolExecutor(1) as pool:
        with holder.data.writing("UPSERT", MONTH):
            waiting = pool.submit(statement)
            eventually(lambda: "waiting-for-lock" in recorder.kinds())
            ArrowEngine(writer(one, LOCKED, "free")).insert(ROW, partition="month=1")
            assert not waiting.done(), "it waits, and holds nothing of the first table meanwhile"
        assert waiting.result(timeout=60) == ["S on the table, S on month=1", "S on the table, X on month=1"]
    told = [(event.kind.value, event.table, str(event.facts["locks"])) for event in recorder.events]
    assert told == [
        ("waiting-for-lock", two.uri, "S on the table, X on month=1"),
        ("data-locked", one.uri, "S on the table, S on month=1"),
        ("data-locked", two.uri, "S on the table, X on month=1"),
    ]
    assert "holder" in str(recorder.events[0].facts["holder"]) and held(read) == held(write) == []


def test_within_a_block_several_tables_are_granted_or_refused_at_once(tables: tuple[MemoryStorage, MemoryStorage]) -> None:
    one, two = tables
    read, write, other = writer(one, LOCKED), writer(two, LOCKED), writer(two, LOCKED, "other")
    asked = [(read.data, read.data.request("SELECT", MONTH)), (write.data, write.data.request("INSERT", MONTH))]

    third = MemoryStorage(name="t3")
    new_table(third)
    with ThreadPoolExecutor(1) as pool, writer(third, LOCKED).data.writing("INSERT", MONTH):
        with holding_together(asked), holding_together(asked[::-1]):
            assert len(held(read)) == len(held(write)) == 1, "what a block around holds is not taken again"
        entered, done = Barrier(2), Barrier(2)

        def holding() -> None:
            with other.data.writing("INSERT", MONTH):
                entered.wait(timeout=60)
                done.wait(timeout=60)

        elsewhere = pool.submit(holding)
        entered.wait(timeout=60)
        with pytest.raises(LockTimeout, match="not all of 2 tables .* in 1 attempts"), holding_together(asked):
            pytest.fail("it was granted")
        assert held(read) == []
        done.wait(timeout=60)
        elsewhere.result(timeout=60)


def test_tables_that_are_not_locked_are_left_out_and_at_least_one_is_named(tables: tuple[MemoryStorage, MemoryStorage]) -> None:
    one, two = tables
    off, on = writer(one, OFF), writer(two, LOCKED)
    with holding_together([(off.data, off.data.request("SELECT", MONTH)), (on.data, on.data.request("INSERT", MONTH))]):
        assert held(off) == [] and held(on) == ["S on the table, X on month=1"]
    with pytest.raises(InputError, match="no table to lock"), holding_together([]):
        pytest.fail("there was nothing to hold")


def test_a_partition_that_appeared_while_a_reader_waited_for_its_locks_is_locked_too(
    tables: tuple[MemoryStorage, MemoryStorage],
) -> None:
    storage = tables[0]
    first, other = writer(storage, LOCKED, "first"), writer(storage, LOCKED, "other")
    asked = Recorder()
    reader = ArrowEngine(writer(storage, LOCKED, "reader", asked))
    ArrowEngine(first).insert(ROW)

    def read() -> list[str]:
        with reader.reading() as rows:
            assert sorted(rows.column("month").to_pylist()) == ["1", "9"]
            return [lock for each in held(other) for lock in each.split(", ")]

    with ThreadPoolExecutor(1) as pool:
        with first.data.holding(first.data.request("INSERT OVERWRITE")):
            reading = pool.submit(read)
            eventually(lambda: len(first.data.locks.inspect()) > 1, saying="the reader waits for its locks")
            ArrowEngine(writer(storage, QUICK)).insert(ROW.set_column(2, "month", pa.array(["9"])))
        assert "S on month=9" in reading.result(timeout=60)
