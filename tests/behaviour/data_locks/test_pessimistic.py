"""Writes with data locks: who waits for whom, what is kept across a retry, and that safety does not rest on any of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import (
    ArrowEngine,
    ConflictRule,
    Coordinator,
    LocalStorage,
    MemoryStorage,
    Resource,
    Storage,
    WriteRequest,
    with_retries,
)
from tests.behaviour.tables import QUICK, SCHEMA, Recorder, groups, leftovers, memory_table, new_table, put_file, writer
from tests.faulty_storage import Wrapped
from tests.waiting import eventually

from lakelock.conflict import Conflict
from lakelock.errors import ConflictError, InputError, LockTimeout, ProviderMismatch, StorageError
from lakelock.settings import ConcurrencySettings, Settings
from lakelock.settings.sections import DataLockSettings
from lakelock.table import layout

T = TypeVar("T")

LOCKED = replace(
    QUICK,
    concurrency=ConcurrencySettings(mode="PESSIMISTIC"),
    data_locks=DataLockSettings(attempts=600, sleep_s=0.05, lease_s=30, renew_s=10),
)
AT_ONCE = replace(LOCKED, data_locks=DataLockSettings(attempts=1))
OFF = replace(QUICK, concurrency=ConcurrencySettings(mode="SINGLE_WRITER"))


def rows(*values: tuple[str, int, str]) -> pa.Table:
    return pa.table([list(column) for column in zip(*values, strict=True)], schema=SCHEMA)


def held(coordinator: Coordinator) -> list[str]:
    return [str(seen.request) for seen in coordinator.data.locks.inspect()]


@pytest.fixture
def storage() -> MemoryStorage:
    return memory_table()


def engine(storage: Storage, settings: Settings = LOCKED, name: str = "w", listener: Recorder | None = None) -> ArrowEngine:
    return ArrowEngine(writer(storage, settings, name, listener))


def test_a_write_holds_its_locks_from_before_its_beginning_to_after_its_commit(storage: MemoryStorage) -> None:
    mine, other, seen = writer(storage, LOCKED), writer(storage, LOCKED), []

    def work(tx: Any) -> Any:
        seen.append(held(other))
        done = tx.commit([put_file(tx, storage, "month=1", "a")])
        seen.append(held(other))
        return done

    with_retries(mine, WriteRequest("INSERT", "month=1"), work)
    with_retries(mine, "INSERT", lambda tx: tx.commit([put_file(tx, storage, "month=1", "b")]))
    assert seen == [["S on the table, X on month=1"]] * 2
    assert held(other) == [] and groups(storage) == ["month=1/a", "month=1/b"]


def test_a_committed_write_whose_locks_cannot_be_given_back_is_no_error(storage: MemoryStorage) -> None:
    """The right to write to the table was taken away in between: an answer, but not the one that the locks need."""

    class Refusing(Wrapped):
        is_refusing = False

        def carry(self, op: str, key: str, request: Callable[[], T], *, weight: int = 1) -> T:
            if self.is_refusing and key == layout.DATA_LOCKS:
                raise StorageError("access denied", hint="")
            return request()

    refusing, seen = Refusing(storage), Recorder()
    mine = writer(refusing, LOCKED, "w", seen)

    def work(tx: Any) -> Any:
        done = tx.commit([put_file(tx, storage, "month=1", "a")])
        refusing.is_refusing = True
        return done

    assert with_retries(mine, WriteRequest("INSERT", "month=1"), work).instant
    assert groups(storage) == ["month=1/a"]
    assert any("data locks were not given back" in str(event.facts.get("problem")) for event in seen.events)


@pytest.mark.parametrize(
    ("write", "locks"),
    [
        (lambda e: e.insert(rows(("x", 1, "1"))), "X on the table"),
        (lambda e: e.insert(rows(("x", 1, "1")), partition={"month": 1}), "S on the table, X on month=1"),
        (lambda e: e.upsert(rows(("a", 1, "1")), partition="month=1"), "S on the table, X on month=1"),
        (lambda e: e.delete(pc.field("id") == "a"), "X on the table"),
        (lambda e: e.delete((pc.field("month") == "1") & (pc.field("v") > 0)), "S on the table, X on month=1"),
        (lambda e: e.delete(rows(("a", 1, "1")), partition="month=1"), "S on the table, X on month=1"),
        (lambda e: e.overwrite_partitions(rows(("z", 1, "1")), partition=["month=1", "month=2"]),
         "S on the table, X on month=1, X on month=2"),
    ],
)  # fmt: skip
def test_every_write_takes_what_hives_tables_say(storage: MemoryStorage, write: Any, locks: str) -> None:
    recorder = Recorder()
    engine(storage).insert(rows(("a", 1, "1")))
    write(engine(storage, listener=recorder))
    (taken,) = [event for event in recorder.events if event.kind.value == "data-locked"]
    assert taken.facts["locks"] == locks
    assert recorder.kinds().index("data-locked") < recorder.kinds().index("began")


def test_a_write_to_more_partitions_than_escalate_above_takes_the_single_lock(storage: MemoryStorage) -> None:
    """Two partitions are locked as they are. For three the write takes the table, also from a writer of a fourth."""
    few = replace(LOCKED, data_locks=replace(LOCKED.data_locks, escalate_above=2))
    recorder, seen, months = Recorder(), [], ["month=1", "month=2", "month=3"]
    mine, other = writer(storage, few, listener=recorder), writer(storage, AT_ONCE, "other")

    def work(tx: Any) -> Any:
        seen.append(held(other))
        with ThreadPoolExecutor(1) as pool:
            fourth = pool.submit(ArrowEngine(other).insert, rows(("d", 1, "4")), partition="month=4")
            if len(seen) == 1:
                fourth.result(timeout=60)
            else:
                with pytest.raises(LockTimeout):
                    fourth.result(timeout=60)
        return tx.commit([put_file(tx, storage, "month=1", f"a{len(seen)}")])

    with_retries(mine, WriteRequest("INSERT", months[:2]), work)
    with_retries(mine, WriteRequest("INSERT", months), work)
    assert seen == [["S on the table, X on month=1, X on month=2"], ["X on the table"]]
    assert [event.facts["locks"] for event in recorder.events if event.kind.value == "data-locked"] == [
        each[0] for each in seen
    ]
    assert held(other) == []


def test_writers_of_one_partition_wait_for_each_other_and_those_of_others_do_not(storage: MemoryStorage) -> None:
    first, second, elsewhere = (engine(storage, name=name) for name in ("first", "second", "elsewhere"))
    holder = writer(storage, LOCKED, "holder")
    with ThreadPoolExecutor(1) as pool:
        with holder.data.writing("INSERT", (Resource.of("month=1"),)):
            waiting = pool.submit(first.insert, rows(("a", 1, "1")), partition="month=1")
            eventually(lambda: len(held(holder)) == 2)
            elsewhere.insert(rows(("b", 1, "2")), partition="month=2")
            assert not waiting.done()
            with pytest.raises(LockTimeout, match="holder"):
                engine(storage, AT_ONCE).upsert(rows(("c", 1, "1")))
        assert waiting.result(timeout=60).rows_inserted == 1
    second.upsert(rows(("a", 2, "1")))
    assert second.read().num_rows == 2 and held(holder) == []


def test_a_reader_that_asks_for_it_keeps_writers_of_what_it_reads_away_and_no_others(storage: MemoryStorage) -> None:
    mine = engine(storage)
    mine.insert(rows(("a", 1, "1"), ("b", 1, "2")))
    with mine.reading("month=1") as found:
        assert found.column("id").to_pylist() == ["a"]
        with pytest.raises(LockTimeout):
            engine(storage, AT_ONCE).insert(rows(("c", 1, "1")), partition="month=1")
        with mine.reading() as everything:
            assert everything.num_rows == 2
            with pytest.raises(LockTimeout):
                engine(storage, AT_ONCE).insert(rows(("c", 1, "2")), partition="month=2")
        engine(storage, AT_ONCE).insert(rows(("c", 1, "2")), partition="month=2")
    assert held(writer(storage, LOCKED)) == []


def test_rows_outside_of_the_partition_that_was_named_are_refused_before_anything_is_visible(storage: MemoryStorage) -> None:
    mine = engine(storage)
    mine.insert(rows(("a", 1, "1"), ("b", 1, "2")))
    for write in (mine.insert, mine.upsert, mine.overwrite_partitions):
        with pytest.raises(InputError, match="is for month=1, but has rows for month=2"):
            write(rows(("c", 1, "1"), ("b", 2, "2")), partition="month=1")
    with pytest.raises(InputError, match="is for month=1, but has rows for month=2"):
        mine.delete(pc.field("v") == 1, partition="month=1")
    assert sorted(mine.read().column("id").to_pylist()) == ["a", "b"]
    assert leftovers(storage) == [] and held(writer(storage, LOCKED)) == []


def test_a_partition_is_also_kept_to_where_no_lock_is_taken(storage: MemoryStorage) -> None:
    with pytest.raises(InputError, match="has rows for month=2"):
        engine(storage, QUICK).insert(rows(("b", 2, "2")), partition="month=1")


def test_the_locks_are_kept_when_a_conflict_makes_the_write_run_again(storage: MemoryStorage) -> None:
    recorder = Recorder()
    mine, other, tokens = writer(storage, LOCKED, listener=recorder), writer(storage, LOCKED), []

    def work(tx: Any) -> Any:
        tokens.append([seen.token for seen in other.data.locks.inspect()])
        if len(tokens) == 1:
            raise ConflictError(Conflict.over(ConflictRule.FILE_GROUP, tx.party, tx.party, ["month=1/a"]))
        return tx.commit([put_file(tx, storage, "month=1", "a")])

    assert with_retries(mine, WriteRequest("INSERT", "month=1"), work).attempts == 2
    assert len(tokens) == 2 and len(tokens[0]) == 1 and tokens[0] == tokens[1]
    assert recorder.kinds().count("data-locked") == 1


def test_a_lost_data_lease_is_an_alert_and_the_commit_goes_on_under_validation(storage: MemoryStorage) -> None:
    recorder = Recorder()
    brief = replace(LOCKED, data_locks=DataLockSettings(attempts=1, lease_s=1, renew_s=0.1))
    mine, operator = writer(storage, brief, listener=recorder), writer(storage, LOCKED)

    def work(tx: Any) -> Any:
        (seen,) = operator.data.locks.inspect()
        operator.data.locks.break_lock(seen.token, force=True)
        eventually(lambda: "lease-lost" in recorder.kinds() and "alert" in recorder.kinds())
        return tx.commit([put_file(tx, storage, "month=1", "a")])

    with_retries(mine, "INSERT", work)
    assert groups(storage) == ["month=1/a"]
    (alert,) = [event for event in recorder.events if event.kind.value == "alert"]
    assert "validated at its commit" in str(alert.facts["problem"])


def test_two_writers_whose_locks_are_broken_still_never_both_commit_what_collides(storage: MemoryStorage) -> None:
    engine(storage).insert(rows(("a", 1, "1")))
    once = replace(LOCKED, retry=replace(LOCKED.retry, attempts=1))
    operator = writer(storage, LOCKED)
    mine, theirs = writer(storage, once), writer(storage, once, "theirs")
    began = Event()

    def slow(tx: Any) -> Any:
        began.set()
        (seen,) = [each for each in operator.data.locks.inspect() if each.held]
        operator.data.locks.break_lock(seen.token, force=True)
        ArrowEngine(theirs).upsert(rows(("a", 7, "1")))
        return ArrowEngine(mine).upsert_in(tx, rows(("a", 8, "1")))

    with pytest.raises(ConflictError):
        with_retries(mine, "UPSERT", slow)
    assert ArrowEngine(operator).read().column("v").to_pylist() == [7]


def test_within_a_block_that_holds_locks_nobody_waits_for_himself_or_for_others(storage: MemoryStorage) -> None:
    mine, other = engine(storage), engine(storage, AT_ONCE)
    mine.insert(rows(("a", 1, "1"), ("b", 1, "2")))
    coordinator = writer(storage, LOCKED)
    with coordinator.data.writing("UPSERT", (Resource.of("month=1"),)):
        mine.upsert(rows(("a", 2, "1")), partition="month=1")
        with mine.reading("month=1") as found:
            assert found.column("v").to_pylist() == [2]
        with ThreadPoolExecutor(1) as pool, pytest.raises(LockTimeout):
            pool.submit(other.upsert, rows(("a", 3, "1")), partition="month=1").result(timeout=60)
    with mine.reading("month=1"):
        with pytest.raises(LockTimeout, match="w "):
            mine.upsert(rows(("a", 4, "1")), partition="month=1")
        mine.upsert(rows(("b", 4, "2")), partition="month=2")
    mine.upsert(rows(("a", 5, "1")), partition="month=1")
    assert held(coordinator) == []


def test_a_read_with_locks_is_refused_where_writers_rely_on_other_locks(storage: MemoryStorage) -> None:
    engine(storage).insert(rows(("a", 1, "1")))
    elsewhere = replace(LOCKED, lock=replace(LOCKED.lock, provider="memory:"))
    with pytest.raises(ProviderMismatch), engine(storage, elsewhere).reading():
        pytest.fail("the locks were taken where nobody looks")


def test_a_transaction_with_a_name_of_its_own_locks_what_it_writes(storage: MemoryStorage) -> None:
    mine = writer(storage, LOCKED)
    with mine.data.writing("NIGHTLY_FIX", (Resource.of("month=1"),)):
        assert held(mine) == ["S on the table, X on month=1"]


def test_single_writer_mode_takes_no_data_locks(storage: MemoryStorage) -> None:
    mine = writer(storage, OFF)
    ArrowEngine(mine).insert(rows(("a", 1, "1")))
    with ArrowEngine(mine).reading() as found:
        assert found.num_rows == 1 and held(mine) == []


HOLDER = """
import sys
from lakelock.occ.coordinator import Coordinator
from lakelock.data_locks import Resource
from lakelock.settings import Settings
from lakelock.storage.location import StorageLocation
settings = Settings.resolve({"concurrency.mode": "PESSIMISTIC", "data_locks.lease_s": 2, "data_locks.renew_s": 0.5}).settings
coordinator = Coordinator.open(StorageLocation.of(sys.argv[1], {}), settings, application="killed")
with coordinator.data.writing("INSERT", (Resource.of("month=1"),)):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_locks_of_a_killed_writer_end_with_its_lease(tmp_path: Path) -> None:
    new_table(LocalStorage(tmp_path / "t"))
    killed = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "t")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert killed.stdout is not None and killed.stdout.readline() == "held\n"
        with pytest.raises(LockTimeout, match="killed"):
            engine(LocalStorage(tmp_path / "t"), AT_ONCE).insert(rows(("a", 1, "1")), partition="month=1")
        killed.send_signal(signal.SIGKILL)
        assert engine(LocalStorage(tmp_path / "t")).insert(rows(("a", 1, "1")), partition="month=1").rows_inserted == 1
    finally:
        killed.kill()
        killed.communicate()
