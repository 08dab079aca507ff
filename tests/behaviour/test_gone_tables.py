"""A table that is deleted, moved away or made anew under those who have it open: they are told, and make nothing there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.api import (
    ArrowEngine,
    Coordinator,
    LocalStorage,
    MemoryStorage,
    Storage,
    StorageLocation,
    SystemRuntime,
    TableProperties,
    TableSchema,
    create_table,
    layout,
)
from tests.behaviour.tables import QUICK
from tests.behaviour.upkeep.upkeep_tables import AgingTable
from tests.faulty_storage import FaultyStorage, Rule
from tests.over_engines import transaction

from lakelock.errors import CommitOutcomeUnknown, InputError, LakelockError, TableError
from lakelock.occ.change_feed import TableStream
from lakelock.settings import Settings
from lakelock.table.change_feed import StreamOffset

KV = pa.schema([("k", pa.string()), ("v", pa.int64())])
OTHER = pa.schema([("name", pa.string()), ("v", pa.int64())])


def made(storage: Storage, schema: pa.Schema = KV, **properties: object) -> Storage:
    text = TableSchema.from_arrow(schema).to_avro_json("t")
    key = (schema.names[0],)
    create_table(storage, TableProperties.new("t", record_keys=key, create_schema=text, **properties), SystemRuntime())
    return storage


def opened(storage: Storage, settings: Settings = QUICK) -> ArrowEngine:
    return ArrowEngine(Coordinator.open(StorageLocation(storage.uri), settings, storage=storage))


def rows(v: int, k: str = "k", schema: pa.Schema = KV) -> pa.Table:
    return pa.table([[k], [v]], schema=schema)


def left(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*")) if folder.exists() else []


def reading(engine: ArrowEngine) -> pa.Table:
    with engine.reading() as found:
        return found


CALLS: dict[str, Callable[[ArrowEngine], object]] = {
    "read": lambda engine: engine.read(),
    "as of": lambda engine: engine.read(as_of="20200101000000000"),
    "changes": lambda engine: engine.changes(),
    "reading": reading,
    "history": lambda engine: engine.coordinator.history(),
    "schema": lambda engine: engine.coordinator.schema(),
    "optimize": lambda engine: engine.optimize(),
    "upkeep": lambda engine: engine.coordinator.upkeep(),
    "insert": lambda engine: engine.insert(rows(3, "n")),
    "upsert": lambda engine: engine.upsert(rows(3)),
    "delete": lambda engine: engine.delete_keys(rows(3).select(["k"])),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("has_read", [False, True], ids=["fresh", "used"])
def test_each_call_says_that_the_table_is_gone_and_makes_nothing(tmp_path: Path, call, has_read: bool) -> None:
    opened(made(LocalStorage(tmp_path / "t"))).insert(rows(1))
    engine = opened(LocalStorage(tmp_path / "t"))
    if has_read:
        assert engine.read().num_rows == 1
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(TableError, match="is gone") as caught:
        call(engine)
    assert "open it where it is now" in caught.value.hint
    assert left(tmp_path) == []


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_same_in_a_store_without_folders(call) -> None:
    storage = made(MemoryStorage())
    engine = opened(storage)
    engine.insert(rows(1))
    storage.delete_folder(layout.HOODIE)
    with pytest.raises(TableError, match="is gone"):
        call(engine)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_lost_timeline_is_not_an_empty_table(tmp_path: Path, call) -> None:
    opened(made(LocalStorage(tmp_path / "t"))).insert(rows(1))
    engine = opened(LocalStorage(tmp_path / "t"))
    shutil.rmtree(tmp_path / "t" / layout.TIMELINE)
    with pytest.raises(TableError, match="has lost its timeline") as caught:
        call(engine)
    assert "restore .hoodie/timeline from a backup" in caught.value.hint
    assert not list((tmp_path / "t").glob(f"{layout.TIMELINE}/*")), "what began was taken back"


def test_a_new_table_without_a_commit_reads_as_empty(tmp_path: Path) -> None:
    engine = opened(made(LocalStorage(tmp_path / "t")))
    assert engine.read().num_rows == 0
    opened(LocalStorage(tmp_path / "t")).insert(rows(1))
    assert engine.read().num_rows == 1


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("schema", [KV, OTHER], ids=["same", "other"])
def test_a_table_that_was_made_anew_is_not_taken_for_the_one_that_was_opened(tmp_path: Path, call, schema) -> None:
    engine = opened(made(LocalStorage(tmp_path / "t")))
    engine.insert(rows(1))
    shutil.rmtree(tmp_path / "t")
    anew = opened(made(LocalStorage(tmp_path / "t"), schema))
    for number in range(3):
        anew.insert(rows(number, f"n{number}", schema))
    before = anew.read().to_pylist()
    with pytest.raises(TableError, match="made anew") as caught:
        call(engine)
    assert caught.value.hint.startswith("open it again")
    assert anew.read().to_pylist() == before
    assert anew.coordinator.table.timeline().pending == ()


def test_a_handle_that_had_seen_no_commit_knows_the_table_by_its_columns(tmp_path: Path) -> None:
    engine = opened(made(LocalStorage(tmp_path / "t")))
    assert engine.read().num_rows == 0
    shutil.rmtree(tmp_path / "t")
    opened(made(LocalStorage(tmp_path / "t"), OTHER)).insert(rows(1, schema=OTHER))
    with pytest.raises(TableError, match="made anew"):
        engine.read()


def test_a_commit_that_was_archived_is_no_sign_of_another_table() -> None:
    table = AgingTable()
    table.write("still")
    reader = table.coordinator()
    known = reader.table.timeline().commits[-1].requested
    table.write_many(9)
    assert table.coordinator().archive().instants
    assert reader.table.timeline().state_of(known) is None
    assert "still" in {file.file_id.removesuffix("-0") for file in reader.snapshot().files}


def test_a_stream_does_not_go_on_in_a_table_that_was_made_anew(tmp_path: Path) -> None:
    engine = opened(made(LocalStorage(tmp_path / "t")))
    engine.insert(rows(1))
    running = TableStream(engine.coordinator.table)
    offset = running.latest()
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(TableError, match="is gone"):
        running.next(offset)
    anew = opened(made(LocalStorage(tmp_path / "t")))
    anew.insert(rows(2))
    with pytest.raises(TableError, match="made anew"):
        running.next(offset)
    started_again = TableStream(anew.coordinator.table)
    with pytest.raises(InputError, match="commits that it has read are gone"):
        started_again.next(StreamOffset.from_json(offset.to_json()))


def moves(storage: Storage, op: str, key: str, old: Path, new: Path) -> FaultyStorage:
    """Somebody moves a table just before a request is sent."""
    return FaultyStorage(storage, [Rule(op, key, fault=None, meanwhile=lambda: os.rename(old, new))])


@pytest.mark.parametrize(
    ("op", "key"),
    [
        ("put_if_absent", f"{layout.TEMP}/*"),
        ("open_output", "*"),
        ("list", f"{layout.TEMP}/*"),
        ("put_if_match", f"{layout.LOCK}*"),
        ("put_if_absent", f"{layout.DECISIONS}/*"),
        ("put_if_absent", f"{layout.TIMELINE}/*.commit"),
        ("delete", "*"),
    ],
)
def test_a_table_that_is_moved_under_a_writer_has_all_of_the_write_or_nothing(tmp_path: Path, op: str, key: str) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    opened(made(LocalStorage(old))).insert(rows(1))
    engine = opened(moves(LocalStorage(old), op, key, old, new))
    told: object = None
    try:
        told = engine.upsert(rows(2))
    except LakelockError as error:
        told = error
    engine.coordinator.close()
    assert left(old) == [], told
    shown = opened(LocalStorage(new), replace(QUICK, heartbeat=replace(QUICK.heartbeat, interval_s=1.0, tolerable_misses=1)))
    shown.insert(rows(7, "z"))
    found = {row["k"]: row["v"] for row in shown.read().to_pylist()}
    assert found["z"] == 7
    if isinstance(told, CommitOutcomeUnknown):
        assert "is gone" in told.message
    else:
        assert found["k"] == (1 if isinstance(told, TableError) else 2), told
        assert not isinstance(told, LakelockError) or isinstance(told, TableError), told


def write_both(a: ArrowEngine, b: ArrowEngine) -> object:
    with transaction(a, b) as tx:
        tx[a].upsert(rows(5))
        tx[b].upsert(rows(5))
    return tx.committed


@pytest.mark.parametrize(
    ("moved", "op", "key"),
    [
        ("b", "put_if_absent", f"{layout.OUTCOMES}/*"),
        ("b", "delete", "*"),
        ("b", "put_if_absent", f"{layout.TIMELINE}/*.commit"),
        ("a", "put_if_absent", f"{layout.TIMELINE}/*.commit"),
        ("a", "put_if_absent", f"{layout.OUTCOMES}/*"),
    ],
)
def test_a_transaction_is_in_all_tables_or_none_when_one_is_moved(tmp_path: Path, moved: str, op: str, key: str) -> None:
    for name in "ab":
        opened(made(LocalStorage(tmp_path / name))).insert(rows(0))
    first = moves(LocalStorage(tmp_path / "a"), op, key, tmp_path / moved, tmp_path / "c")
    quick = replace(QUICK, heartbeat=replace(QUICK.heartbeat, interval_s=1.0, tolerable_misses=1))
    a, b = opened(first), opened(LocalStorage(tmp_path / "b"))
    told: object = None
    try:
        told = write_both(a, b)
    except LakelockError as error:
        told = error
    for engine in (a, b):
        engine.coordinator.close()
    assert left(tmp_path / moved) == [], told
    found = []
    if moved == "a":
        os.rename(tmp_path / "c", tmp_path / "a")
    for name in "ab" if moved == "a" else "ac":
        engine = opened(LocalStorage(tmp_path / name), quick)
        engine.insert(rows(9, "z"))
        found.append({row["k"]: row["v"] for row in engine.read().to_pylist()}["k"])
    assert found in ([0, 0], [5, 5]), told
    if not isinstance(told, CommitOutcomeUnknown):
        assert found == ([0, 0] if isinstance(told, LakelockError) else [5, 5]), told


def test_the_outcome_of_a_transaction_is_kept_where_storage_makes_folders_by_itself() -> None:
    """As on HDFS: the publication succeeds in the empty place, and the table that was moved still finds the outcome."""
    tables = {name: MemoryStorage(name=name) for name in "ab"}
    for storage in tables.values():
        opened(made(storage)).insert(rows(0))
    taken: dict[str, bytes] = {}

    def move() -> None:
        for listed in [*tables["b"].list(layout.HOODIE), *tables["b"].list("")]:
            found = tables["b"].get(listed.key)
            assert found is not None
            taken[listed.key] = found.data
        tables["b"].delete(taken)

    first = FaultyStorage(tables["a"], [Rule("put_if_absent", f"{layout.TIMELINE}/*.commit", fault=None, meanwhile=move)])
    a, b = opened(first), opened(tables["b"])
    with pytest.raises(CommitOutcomeUnknown, match="is gone"):
        write_both(a, b)
    assert list(tables["a"].list(layout.OUTCOMES)), "the outcome is still there"
    for key, data in taken.items():
        tables["b"].put(key, data)
    for storage in tables.values():
        engine = opened(storage)
        engine.insert(rows(9, "z"))
        assert {row["k"]: row["v"] for row in engine.read().to_pylist()} == {"k": 5, "z": 9}


def test_folders_of_a_table_are_made_only_where_the_table_is(tmp_path: Path) -> None:
    storage = made(LocalStorage(tmp_path / "t"))
    assert storage.get(layout.PROPERTIES) is not None
    storage.put_if_absent("p=1/q=2/file", b"1")
    storage.put("p=2/file", b"1")
    storage.put_if_absent(f"{layout.TEMP}/1/p=1/m", b"")
    (tmp_path / "t" / layout.PROPERTIES).rename(tmp_path / "t" / layout.PROPERTIES_BACKUP)
    storage.put("p=3/file", b"1")
    (tmp_path / "t" / layout.PROPERTIES_BACKUP).unlink()
    before = left(tmp_path)
    for write in (
        lambda: storage.put("p=4/file", b"1"),
        lambda: storage.put_if_absent(f"{layout.CLAIMS}/c", b"1"),
        lambda: storage.open_output("p=5/q/file").close(),
    ):
        with pytest.raises(TableError, match="is gone"):
            write()
    assert left(tmp_path) == before
    os.rename(tmp_path / "t", tmp_path / "away")
    with pytest.raises(TableError, match="is gone"):
        storage.put("p=1/q=2/other", b"1")
    assert not (tmp_path / "t").exists()
