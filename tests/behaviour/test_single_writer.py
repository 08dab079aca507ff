"""SINGLE_WRITER mode: the second writer that must not be there is noticed and named, before and at the commit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.api import MemoryStorage
from tests.behaviour.tables import QUICK, Recorder, groups, insert, leftovers, memory_table, new_table, put_file, writer

from lakelock.errors import ConflictError, SecondWriter
from lakelock.settings import ConcurrencySettings, Settings
from lakelock.testing import ManualRuntime

SINGLE = replace(QUICK, concurrency=ConcurrencySettings(mode="SINGLE_WRITER"))


@pytest.fixture
def storage() -> MemoryStorage:
    return memory_table()


@pytest.mark.parametrize("theirs", [SINGLE, QUICK], ids=["single", "optimistic"])
def test_a_live_writer_that_began_before_is_an_error_that_names_it_and_nothing_was_done(
    storage: MemoryStorage, theirs: Settings
) -> None:
    other = writer(storage, theirs, "backfill").begin("UPSERT")
    with pytest.raises(SecondWriter, match=f"UPSERT {other.instant} by backfill"):
        writer(storage, SINGLE).begin("INSERT")
    other.commit([put_file(other, storage, "month=1", "a")])
    assert leftovers(storage) == [] and groups(storage) == ["month=1/a"]
    insert(writer(storage, SINGLE), storage, "month=1", "b")


def test_a_writer_that_began_after_and_is_still_at_it_is_an_alert_at_the_commit(storage: MemoryStorage) -> None:
    recorder = Recorder()
    mine = writer(storage, SINGLE, listener=recorder).begin("INSERT")
    other = writer(storage, QUICK, "stream").begin("INSERT")
    mine.commit([put_file(mine, storage, "month=1", "a")])
    (alert,) = [event for event in recorder.events if event.kind.value == "alert"]
    assert f"INSERT {other.instant} by stream" in str(alert.facts["problem"])
    other.abort()


def test_a_writer_that_began_and_committed_meanwhile_is_an_alert_and_a_collision_is_still_rejected(
    storage: MemoryStorage,
) -> None:
    recorder = Recorder()
    insert(writer(storage), storage, "month=1", "a")
    mine = writer(storage, SINGLE, listener=recorder).begin("UPSERT")
    stat = put_file(mine, storage, "month=1", "a")
    with writer(storage, QUICK, "stream").begin("UPSERT") as other:
        done = other.commit([put_file(other, storage, "month=1", "a", token="1-1-1")])
    with pytest.raises(ConflictError):
        mine.commit([stat])
    (alert,) = [event for event in recorder.events if event.kind.value == "alert"]
    assert "by stream" in str(alert.facts["problem"]) and done.instant in str(alert.facts["problem"])


def test_transactions_of_one_writer_and_dead_ones_are_no_second_writer(storage: MemoryStorage) -> None:
    recorder = Recorder()
    mine = writer(storage, SINGLE, listener=recorder)
    insert(mine, storage, "month=1", "a")
    with mine.begin("INSERT") as one, mine.begin("INSERT") as two:
        one.commit([put_file(one, storage, "month=1", "b")])
        two.commit([put_file(two, storage, "month=1", "c")])
    assert "alert" not in recorder.kinds()


def test_a_writer_that_was_killed_is_no_second_writer_once_it_is_dead() -> None:
    time_of_storage = ManualRuntime()
    new_table(storage := MemoryStorage(time_of_storage.now_ms))
    dead = writer(storage, SINGLE, "killed").begin("INSERT")
    dead.detach()
    with pytest.raises(SecondWriter, match="killed"):
        writer(storage, SINGLE).begin("INSERT")
    time_of_storage.advance(600)
    insert(writer(storage, SINGLE), storage, "month=1", "a")
    assert leftovers(storage) == []
