"""A small insert is announced while it begins, and written while its lock is taken if nobody else is likely there (ADR 38)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import TypeVar

import pyarrow as pa
import pytest
from tests.api import ArrowEngine, Storage, SystemRuntime, layout
from tests.behaviour.tables import QUICK, SCHEMA, leftovers, memory_table, writer
from tests.faulty_storage import CountingStorage, Fault, FaultyStorage, Rule

from lakelock.engine.arrow import SMALL_BYTES
from lakelock.errors import LakelockError, StorageUnavailable
from lakelock.settings import LockSettings, WriteSettings

T = TypeVar("T")
numbers = count()
WRITTEN, TAKEN = ("open_output", "month=*"), ("put_if_match", layout.LOCK)


def rows(month: str = "1", amount: int = 1, text: str = "") -> pa.Table:
    keys = [f"k{next(numbers)}{text}" for _ in range(amount)]
    return pa.table([keys, list(range(amount)), [month] * amount], schema=SCHEMA)


def engines(storage: Storage, *names: str) -> list[ArrowEngine]:
    return [ArrowEngine(writer(storage, name=name)) for name in names]


class OneByOne(SystemRuntime):
    """Makes calls one after the other, in the order in which they are given, that could be made at the same time."""

    def gather(self, calls: Sequence[Callable[[], T]], *, limit: int) -> list[T]:
        return [call() for call in calls]


SIGNS = {
    ("put_if_absent", layout.TEMP): "m", ("list", layout.TIMELINE): "t", ("open_output", "month="): "f",
    ("put_if_match", layout.LOCK): "l", ("put_if_absent", layout.DECISIONS): "d",
}  # fmt: skip


def steps(storage: CountingStorage) -> str:
    """What an insert did: `m`arker, listing of the `t`imeline, data `f`ile, taking or giving back the `l`ock, `d`ecision."""
    calls, signs = storage.calls, SIGNS.items()
    return "".join(sign for op, key in calls for (asked, at), sign in signs if op == asked and key.startswith(at))


def test_a_writer_that_is_alone_writes_its_file_beside_the_look_at_the_table_and_the_lock():
    storage = CountingStorage(memory_table())
    engine = ArrowEngine(writer(storage, runtime=OneByOne()))
    for _ in range(2):
        storage.reset()
        engine.insert(rows())
    assert steps(storage) == "tm" + "ftl" + "dl"
    assert engine.read().num_rows == 2 and leftovers(storage.inner) == []


def test_beside_others_at_the_lock_the_look_is_made_once_and_under_it():
    storage = CountingStorage(memory_table())
    mine, theirs = (ArrowEngine(writer(storage, runtime=OneByOne())) for _ in range(2))
    done = []
    for _ in range(4):
        theirs.insert(rows())
        storage.reset()
        mine.insert(rows())
        done.append(steps(storage))
    # It could not foresee its first meeting with the others at the lock: it asked twice for the lock, and looked twice.
    assert done == ["tmf" + "lt" + "dl", "tm" + "ftll" + "t" + "dl", "tmf" + "lt" + "dl", "tmf" + "lt" + "dl"]
    assert mine.read().num_rows == 8 and leftovers(storage.inner) == []


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOST_REPLY])
@pytest.mark.parametrize("request_", [WRITTEN, TAKEN, ("list", layout.TEMP + "/*"), ("put_if_absent", layout.TEMP + "/*")])
def test_whatever_fails_beside_the_lock_leaves_nothing_behind_and_the_lock_free(request_, fault, nth):
    faulty = FaultyStorage(memory_table())
    (engine,) = engines(faulty, "first")
    engine.insert(rows("0"))
    faulty.plan = [Rule(*request_, nth, fault)]
    try:
        engine.insert(rows("1"))
        told = 2
    except StorageUnavailable:
        told = 1
    faulty.plan = []
    (other,) = engines(faulty.inner, "other")
    assert other.read().num_rows == told
    other.insert(rows("2"))
    assert other.read().num_rows == told + 1
    assert leftovers(faulty.inner) == []


def test_a_beginning_that_starts_over_takes_its_marker_with_it():
    storage = FaultyStorage(memory_table())
    (engine,) = engines(storage, "first")
    (other,) = engines(storage.inner, "other")
    engine.insert(rows("0"))
    # Others commit with a later instant between the requested file and the listing of the timeline.
    storage.plan = [Rule("list", layout.TIMELINE, 1, None, meanwhile=lambda: other.insert(rows("3")))]
    engine.insert(rows("1"))
    assert engine.read().num_rows == 3 and leftovers(storage.inner) == []


@pytest.mark.parametrize(
    "wrong",
    [
        rows().drop_columns(["id"]),
        rows().append_column("extra", pa.array([1])),
        rows().set_column(1, "v", pa.array(["no number"])),
        rows().set_column(0, "id", pa.array([None], pa.string())),
    ],
    ids=["no key", "a column more", "another type", "a null key"],
)
def test_rows_that_do_not_fit_are_told_as_by_a_large_insert_and_leave_nothing(wrong, monkeypatch):
    storage = memory_table()
    (engine,) = engines(storage, "w")
    engine.insert(rows())
    told = []
    for limit in (SMALL_BYTES, -1):
        monkeypatch.setattr("lakelock.engine.arrow.SMALL_BYTES", limit)
        with pytest.raises(LakelockError) as caught:
            engine.insert(wrong)
        told.append((type(caught.value), caught.value.message))
    assert told[0] == told[1]
    assert engine.read().num_rows == 1 and leftovers(storage) == []


def test_a_small_insert_of_several_files_is_complete():
    storage = memory_table()
    settings = replace(QUICK, write=WriteSettings(target_file_rows=2, row_group_rows=2))
    engine = ArrowEngine(writer(storage, settings))
    engine.insert(rows())
    assert engine.insert(rows(amount=5)).files == 3
    assert engine.read().num_rows == 6 and leftovers(storage) == []


def test_an_insert_of_no_rows_or_of_several_partitions_needs_no_announcement():
    storage = CountingStorage(memory_table())
    (engine,) = engines(storage, "w")
    engine.insert(rows())
    assert engine.insert(rows(amount=0)).files == 0
    assert engine.insert(pa.concat_tables([rows("1"), rows("2")])).files == 2
    assert engine.read().num_rows == 3 and leftovers(storage.inner) == []


def test_a_lock_that_cannot_be_had_is_told_and_the_file_that_was_written_meanwhile_is_removed():
    storage = memory_table()
    waits = replace(QUICK, lock=LockSettings(wait_s=0.2, lease_s=3, renew_s=0.5, poll_s=0.02))
    mine, other = ArrowEngine(writer(storage, waits)), writer(storage)
    mine.insert(rows("0"))
    with other.table.locked(), pytest.raises(LakelockError) as caught:
        mine.insert(rows("1"))
    assert type(caught.value).__name__ == "LockTimeout"
    assert mine.read().num_rows == 1 and leftovers(storage) == []
