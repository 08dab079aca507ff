"""Earlier instants that become visible after a savepoint, and cleans that were left half done: reads and restores."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from tests.api import Action, ArrowEngine, DataFile, Instant, MemoryStorage, State, TableIO, layout
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import QUICK, SCHEMA, new_table, writer
from tests.behaviour.upkeep.upkeep_tables import AgingTable
from tests.faulty_storage import FaultyStorage, Rule

from lakelock.errors import InputError, StorageError
from lakelock.events import Step, at_each_step
from lakelock.occ import clean as cleaning
from lakelock.settings import ArchiveSettings, CleanSettings, UpkeepSettings, WriteSettings
from lakelock.table.properties import MERGE_ON_READ

KEEPS_LITTLE = replace(
    QUICK,
    clean=CleanSettings(policy="KEEP_LATEST_COMMITS", keep_commits=1, readers_s=0),
    archive=ArchiveSettings(min_commits=2, max_commits=3, min_age_s=0),
    upkeep=UpkeepSettings(auto=False, budget_s=60, compact_logs=0),
    write=WriteSettings(append_below=0.9),
)


@pytest.fixture(autouse=True)
def nobody_acts():
    yield
    at_each_step(lambda step: None)


@pytest.fixture
def mor():
    made = MemoryStorage()
    new_table(made, table_type=MERGE_ON_READ)
    return made


def rows(*values):
    return pa.table([[k for k, _ in values], [v for _, v in values], ["1"] * len(values)], schema=SCHEMA)


def content(table):
    return dict(zip(table.column("id").to_pylist(), table.column("v").to_pylist(), strict=True))


def names(storage):
    return [i.key for i in storage.list("") if not i.key.startswith(".hoodie") and ("parquet" in i.key or ".log." in i.key)]


def saved_meanwhile(storage, work):
    """What `work` of one writer returns, and the commit of another, with a savepoint, which begins later and ends first."""
    second = []

    def others(step):
        if step is Step.DATA_WRITTEN:
            at_each_step(lambda step: None)
            other = ArrowEngine(writer(storage, KEEPS_LITTLE))
            second.append(other.insert(rows(("z", 5))).instant)
            other.coordinator.savepoint("s")

    at_each_step(others)
    done = work()
    return done, second[0]


def engine_on(storage, settings=KEEPS_LITTLE):
    return ArrowEngine(writer(storage, settings))


def test_a_savepoint_reads_as_it_was_though_a_log_file_of_an_earlier_instant_became_visible_after_it(mor):
    engine = engine_on(mor)
    engine.insert(rows(*((k, 0) for k in "abcdef")))
    early, saved = saved_meanwhile(mor, lambda: engine.upsert(rows(("a", 1))).instant)
    assert early < saved and any(".log." in name for name in names(mor))
    engine.optimize()
    for value in (7, 8):
        engine.upsert(rows(("b", value)))
        engine.optimize()
    assert engine.coordinator.clean().files
    assert content(engine.read(as_of=saved)) == dict.fromkeys("abcdef", 0) | {"z": 5}


@pytest.mark.parametrize("how", ["read", "restore"])
def test_a_savepoint_keeps_its_log_files_though_they_were_compacted_under_an_earlier_instant(mor, how):
    engine = engine_on(mor)
    engine.insert(rows(*((k, 0) for k in "abcdef")))
    engine.insert(rows(("q", 0)))
    engine.upsert(rows(("a", 1)))
    done, saved = saved_meanwhile(mor, engine.optimize)
    assert done.commits[0].instant < saved
    good = dict.fromkeys("bcdefq", 0) | {"a": 1, "z": 5}
    for value in (7, 8, 9):
        engine.upsert(rows(("b", value)))
        engine.optimize()
    assert engine.coordinator.clean().files
    if how == "restore":
        engine.restore(saved)
    assert content(engine.read(as_of=saved) if how == "read" else engine.read()) == good


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", MERGE_ON_READ])
def test_a_savepoint_can_be_restored_though_an_earlier_instant_became_visible_after_it(kind):
    storage = MemoryStorage()
    new_table(storage, table_type=kind)
    engine = engine_on(storage)
    engine.insert(rows(*((k, 0) for k in "abcdef")))
    early, saved = saved_meanwhile(storage, lambda: engine.upsert(rows(("a", 1))).instant)
    assert early < saved
    for value in (7, 8, 9):
        engine.upsert(rows(("b", value)))
        engine.optimize()
    assert engine.coordinator.clean().files
    engine.restore(saved)
    assert content(engine.read()) == dict.fromkeys("abcdef", 0) | {"z": 5}


def restored_by_java(table, instants):
    """To the first commit: the files and instants of all later ones go, under the lock, and the restore is completed."""
    peer = Peer(table.storage)
    restore = peer.begin(Action.RESTORE, plan=b"plan")
    for instant in reversed(instants[1:]):
        table.storage.delete([i.key for i in table.storage.list("month=1") if instant in i.key])
        table.storage.delete([i.key for i in table.storage.list(layout.TIMELINE) if f"/{instant}" in i.key])
    done = Instant(restore, Action.RESTORE.value, State.COMPLETED, peer.later())
    table.storage.put_if_absent(layout.timeline(done.file_name), b"done")
    assert table.shown() == {"a": instants[0]}


@pytest.mark.parametrize("when", ["before the plan", "while the plan of a killed cleaner is pending"])
def test_a_clean_deletes_nothing_that_a_restore_of_another_engine_shows_again(when):
    table = AgingTable()
    instants = table.write_many(4)
    if when == "before the plan":
        rule = Rule(op="put*", key="*table_lock*", fault=None, meanwhile=lambda: restored_by_java(table, instants))
        table.coordinator(FaultyStorage(table.storage, [rule])).clean()
    else:
        killed = table.coordinator(FaultyStorage(table.storage, [Rule(op="delete", key="month=1*", nth=None)]))
        with pytest.raises(StorageError):
            killed.clean()
        restored_by_java(table, instants)
        table.runtime.advance(600)
        table.coordinator().clean()
    assert table.shown() == {"a": instants[0]}


def test_nothing_is_restored_from_what_half_a_clean_has_left(mor, monkeypatch):
    """The oldest file of a group is left, the next one, below the log file of that time, is gone."""
    settings = replace(KEEPS_LITTLE, clean=replace(KEEPS_LITTLE.clean, policy="KEEP_LATEST_BY_HOURS", keep_hours=24))
    engine = engine_on(mor, settings)
    engine.insert(rows(*((k, 0) for k in "abcdef")))
    engine.upsert(rows(*((k, 1) for k in "abcdef")))
    for number in range(3):
        engine.insert(rows((f"z{number}", 5)))
    engine.coordinator.archive()
    as_of = engine.upsert(rows(("a", 2))).instant
    engine.upsert(rows(*((k, 3) for k in "abcdef")))
    files = sorted((file for file in map(DataFile.parse, names(mor)) if file), key=lambda file: file.instant)
    first, second = [file for file in files if file.group == files[0].group][:2]
    monkeypatch.setattr(cleaning, "DELETED_AT_ONCE", 1)
    engine.insert(rows(("y", 1)))

    def plan(call):
        return Rule() if call.op == "delete" and "month=1" in call.key and call.key != second.key else None

    def last_first(self, calls):
        return [call() for call in reversed(calls)][::-1]

    cleaner = writer(FaultyStorage(mor, plan), KEEPS_LITTLE)
    with monkeypatch.context() as patch:
        patch.setattr(TableIO, "gather", last_first)
        with pytest.raises(StorageError):
            cleaner.clean()
    assert first.key in names(mor) and second.key not in names(mor)
    now = content(engine.read())
    with pytest.raises((InputError, StorageError)):
        engine.restore(as_of)
    assert content(engine.read()) == now
