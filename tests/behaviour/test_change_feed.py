"""The change feed without Spark: over archives and cleans, beside other engines, and with little memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.api import (
    Action,
    ArrowEngine,
    Instant,
    LocalStorage,
    MemoryStorage,
    RollbackPlan,
    State,
    TableSchema,
    layout,
    read_timeline,
)
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import SCHEMA, memory_table, writer
from tests.golden_tables import unpack

import lakelock
from lakelock.errors import InputError, SnapshotTooOld, TableError
from lakelock.occ.live_logs import slices_at
from lakelock.settings import CleanSettings, Settings, WriteSettings
from lakelock.table.change_feed import Unit
from lakelock.table.service_metadata import RollbackMetadata
from lakelock.table.slice_differences import CHANGE_TYPE, COMMIT_VERSION, changes_in

pytestmark = pytest.mark.usefixtures("both_types")

Told = tuple[str, str, int, str]


def rows(*values: tuple[str, int, str]) -> pa.Table:
    return pa.table([list(column) for column in zip(*values, strict=True)], schema=SCHEMA)


def told(feed: pa.Table) -> list[Told]:
    return sorted((row[CHANGE_TYPE], row["id"], row["v"], row["month"]) for row in feed.to_pylist())


@pytest.fixture
def storage() -> MemoryStorage:
    return memory_table()


@pytest.fixture
def engine(storage: MemoryStorage) -> ArrowEngine:
    return ArrowEngine(writer(storage))


def test_the_instant_of_a_write_is_the_position_at_which_it_was_completed(tmp_path: Path) -> None:
    with lakelock.create(tmp_path / "t", schema=SCHEMA, key="id", partition_by="month") as table:
        first, second = (table.upsert(rows(("a", number, "1"))) for number in (1, 2))
        after_first = [("update_postimage", "a", 2, "1"), ("update_preimage", "a", 1, "1")]
        versions = sorted(set(table.changes().column(COMMIT_VERSION).to_pylist()))
        for since in (first.instant, versions[0]):
            for mode in ("commits", "net"):
                assert told(table.changes(since, feed=mode)) == after_first
        for until in (first.instant, versions[0]):
            assert told(table.changes(until=until)) == [("insert", "a", 1, "1")]
        assert told(table.changes(second.instant)) == []


def test_services_change_no_row(engine: ArrowEngine) -> None:
    engine.insert(rows(("a", 1, "1")))
    before = engine.insert(rows(("b", 2, "1")))
    assert engine.optimize().files_before == 2
    assert told(engine.changes(before.completion)) == []
    assert told(engine.changes(before.completion, mode="net")) == []
    engine.upsert(rows(("a", 5, "1")))
    changed = [("update_postimage", "a", 5, "1"), ("update_preimage", "a", 1, "1")]
    assert told(engine.changes(before.completion)) == told(engine.changes(before.completion, mode="net")) == changed


def test_a_restore_tells_what_it_undid(engine: ArrowEngine) -> None:
    first = engine.insert(rows(("a", 1, "1"), ("b", 2, "1"), ("c", 3, "2")))
    engine.delete(rows(("b", 0, "1")))
    last = engine.upsert(rows(("a", 9, "1"), ("d", 4, "3")))
    engine.restore(first.instant)
    assert told(engine.changes(last.completion)) == [
        ("delete", "d", 4, "3"), ("insert", "b", 2, "1"), ("update_postimage", "a", 1, "1"), ("update_preimage", "a", 9, "1"),
    ]  # fmt: skip
    assert told(engine.changes(first.completion, mode="net")) == []


def test_where_old_files_were_cleaned_an_error_says_from_when_on_the_feed_is_whole(storage: MemoryStorage) -> None:
    clean, write = CleanSettings(policy="KEEP_LATEST_COMMITS", keep_commits=2, readers_s=0), WriteSettings(append_below=0)
    settings = Settings(clean=clean, write=write)
    engine = ArrowEngine(writer(storage, settings))
    written = [engine.upsert(rows(("a", number, "1"))) for number in range(6)]
    engine.coordinator.clean()
    with pytest.raises(InputError, match="cleaned") as refused:
        engine.changes(written[0].completion)
    since = str(refused.value.details["since"])
    assert f"changes(since={since})" in refused.value.hint
    feed = engine.changes(since)
    assert told(feed)[-1] == ("update_preimage", "a", 4, "1")
    assert 2 <= feed.num_rows < 10
    earlier = max(each.completion for each in written if each.completion < since)
    with pytest.raises(InputError, match="cleaned"):
        engine.changes(earlier)
    assert engine.changes(written[-1].completion).num_rows == 0


def test_a_commit_that_completes_late_is_told_when_it_completes(storage: MemoryStorage, engine: ArrowEngine) -> None:
    peer = Peer(storage)
    engine.insert(rows(("a", 1, "1")))
    early = peer.begin()
    between = engine.insert(rows(("b", 2, "1")))
    peer.insert(rows(("c", 3, "1")), "month=1", instant=early)
    feed = engine.changes(between.completion)
    assert told(feed) == [("insert", "c", 3, "1")]
    assert early < between.completion < str(feed.column(COMMIT_VERSION)[0])


def test_what_hudis_restore_removed_cannot_be_told(storage: MemoryStorage, engine: ArrowEngine) -> None:
    first = engine.insert(rows(("a", 1, "1")))
    later = Peer(storage).later()
    done = Instant(later, Action.RESTORE.value, State.COMPLETED, later)
    storage.put_if_absent(layout.timeline(done.file_name), b"restore")
    with pytest.raises(InputError, match="restore of .* removed commits") as refused:
        engine.changes(first.completion)
    assert f"since={later}" in refused.value.hint
    assert engine.changes(later).num_rows == 0


def test_what_hudis_rollback_of_a_commit_removed_cannot_be_told(storage: MemoryStorage, engine: ArrowEngine) -> None:
    good = engine.insert(rows(("a", 1, "1")))
    bad = engine.upsert(rows(("a", 2, "1")))
    dead = engine.coordinator.begin("INSERT").instant
    roll_back(storage, dead)
    assert engine.changes(bad.completion).num_rows == 0, "nobody had seen what was rolled back"
    undone = roll_back(storage, bad.instant)
    with pytest.raises(InputError, match="rollback of .* removed commits") as refused:
        engine.changes(bad.completion)
    assert f"since={undone}" in refused.value.hint
    assert engine.changes(good.completion).num_rows == engine.changes(undone).num_rows == 0


def roll_back(storage: MemoryStorage, instant: str) -> str:
    """Remove a write from the timeline, as Java does; when that was completed."""
    peer = Peer(storage)
    for item in list(storage.list(layout.TIMELINE)):
        if layout.split_path(item.key)[1].startswith(instant):
            storage.delete([item.key])
    begun = peer.begin(Action.ROLLBACK, plan=RollbackPlan(instant, "commit", {}).to_bytes())
    done = Instant(begun, Action.ROLLBACK.value, State.COMPLETED, peer.later())
    storage.put_if_absent(layout.timeline(done.file_name), RollbackMetadata(begun, 1, instant, "commit", {}).to_bytes())
    return str(done.completion)


def test_a_table_without_record_keys_has_no_feed(storage: MemoryStorage) -> None:
    stored = storage.get(layout.PROPERTIES)
    assert stored is not None
    storage.put(layout.PROPERTIES, stored.data + b"\nhoodie.populate.meta.fields=false\n")
    with pytest.raises(TableError, match="no change feed|a change feed is not available"):
        ArrowEngine(writer(storage)).changes()


def test_a_file_that_was_cleaned_since_is_an_error_that_names_it(storage: MemoryStorage, engine: ArrowEngine) -> None:
    engine.insert(rows(("a", 1, "1")))
    file = engine.coordinator.snapshot().files[0]
    storage.delete([file.key])
    with pytest.raises(SnapshotTooOld, match=file.name):
        engine.changes()


@pytest.mark.parametrize("compared_rows", [7, 50, 10_000])
def test_the_changes_are_the_same_however_few_rows_are_compared_at_a_time(
    storage: MemoryStorage, engine: ArrowEngine, compared_rows: int
) -> None:
    engine.insert(rows(*((f"k{number}", number, "1") for number in range(100))))
    table = engine.coordinator.table
    before = slices_at(table, table.timeline()).files[0]
    engine.upsert(rows(*((f"k{number}", -1, "1") for number in range(0, 120, 3))))
    engine.delete(rows(*((f"k{number}", 0, "1") for number in range(0, 100, 10))))
    after = slices_at(table, table.timeline()).group(before.group)
    unit, schema = Unit(before, after, "20260101000000000"), TableSchema(SCHEMA)
    found = pa.concat_tables(changes_in(unit, schema, storage, compared_rows=compared_rows))
    kinds = Counter(found.column(CHANGE_TYPE).to_pylist())
    updated = len([number for number in range(0, 100, 3) if number % 10])
    assert kinds == {"delete": 10, "update_preimage": updated, "update_postimage": updated}
    assert {row["id"] for row in found.to_pylist() if row[CHANGE_TYPE] == "delete"} == {f"k{n}" for n in range(0, 100, 10)}


def states(engine: ArrowEngine, instants: list[str]) -> Iterator[Counter[tuple[object, ...]]]:
    for instant in instants:
        found = engine.read(as_of=instant)
        yield Counter(zip(*(column.to_pylist() for column in found.columns), strict=True))


@pytest.mark.parametrize("name", ["java12_ops", "mixed_archived", "mixed_java_then_python"])
def test_the_feed_of_a_table_of_java_hudi_leads_from_each_of_its_states_to_the_next(name: str, tmp_path: Path) -> None:
    engine = ArrowEngine(writer(LocalStorage(str(unpack(name, tmp_path)))))
    timeline = read_timeline(engine.coordinator.table.storage)
    commits = sorted(timeline.commits, key=lambda commit: commit.completion or "")
    kept = []
    for commit in commits:
        try:
            engine.coordinator.snapshot(commit.requested)
        except InputError:
            continue
        kept.append(commit)
    assert kept
    told_of = 0
    shown = list(states(engine, [commit.requested for commit in kept]))
    for place, commit in enumerate(kept[1:], 1):
        since = int(kept[place - 1].completion or "")  # in one of the tables it is the instant of another write, too
        try:
            feed = engine.changes(since, int(commit.completion or ""))
        except InputError:
            continue  # what it was made from is cleaned
        state = shown[place - 1].copy()
        for row in feed.to_pylist():
            values = tuple(row[column] for column in engine.coordinator.schema().names)
            state[values] += -1 if row[CHANGE_TYPE] in ("delete", "update_preimage") else 1
        assert +state == shown[place], f"from {since} to {commit.completion}"
        told_of += 1
    assert told_of
