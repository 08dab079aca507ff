"""The upkeep of Hudi's metadata table where only lakelock writes: it stays short and true, whoever is killed in between.

`tests/interop/existing/test_metadata_upkeep.py` asks Java about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.api import CommitMetadata, SystemRuntime, read_timeline
from tests.behaviour.beside_java.test_metadata_table import SEVERAL, changed, engine, is_true, killed_at, values
from tests.behaviour.cli.command_line import run
from tests.behaviour.foreign import Peer
from tests.faulty_storage import FaultyStorage, Rule
from tests.golden_tables import unpack
from tests.sizes import in_ci

from lakelock.events import Step, at_each_step
from lakelock.occ.metadata_table import KeptMetadata
from lakelock.occ.metadata_upkeep import keep_metadata
from lakelock.occ.retention import Budget
from lakelock.storage.base import Folder
from lakelock.table import layout
from lakelock.table.instants import Action
from lakelock.table.metadata_table import MetadataTable, own_time

READY = {"clean.readers_s": "0", "archive.min_age_s": "0", "archive.min_commits": "5", "archive.max_commits": "6"}
BY_ITSELF = {**SEVERAL, **READY, "upkeep.auto": "true"}


@pytest.fixture(params=["java12_metadata", *in_ci("java10_metadata")])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A table of Java Hudi 1.2 in version 9, and of 1.0.2 in version 8."""
    return unpack(request.param, tmp_path)


@pytest.fixture(autouse=True)
def nobody_is_killed() -> Iterator[None]:
    yield
    at_each_step(lambda step: None)


class HoursLater(SystemRuntime):
    """By whose clock everything that there is has been there for a day."""

    def now_ms(self) -> int:
        return super().now_ms() + 86_400_000


def metadata(table: Path) -> MetadataTable:
    at = engine(table).coordinator.table
    return MetadataTable.look(at.io, at.timeline())


def commit(table: Path, count: int) -> None:
    at, rows = engine(table), changed(table, "k2", "new")
    for _ in range(count):
        at.upsert(rows)


def compactions(table: Path) -> list[str]:
    return [i.requested for i in metadata(table).timeline.commits if i.action == Action.COMMIT]


def upkeep(table: Path) -> None:
    done = engine(table, options={**SEVERAL, **READY}).coordinator.upkeep()
    assert done.problems == ()


def test_the_metadata_table_stays_short_while_only_lakelock_writes(table: Path) -> None:
    at, rows = engine(table, options=BY_ITSELF), changed(table, "k2", "new")
    longest = most = 0
    for _ in range(45):
        at.upsert(rows)
        found = metadata(table)
        longest, most = max(longest, found.uncompacted), max(most, len(found.timeline.instants))
    assert longest <= 20 and most <= 50
    assert found.timeline.archive and not found.timeline.pending_services
    assert len(list((table / ".hoodie/metadata/files").glob("*.hfile"))) <= 3
    assert len(list((table / ".hoodie/metadata/files").glob(".files*"))) <= 40
    is_true(table)


@pytest.mark.parametrize("step", [Step.METADATA_PLANNED, Step.METADATA_COMPACTED])
def test_a_compaction_that_was_killed_is_planned_anew_once_it_is_as_old_as_a_dead_heartbeat(table: Path, step: Step) -> None:
    commit(table, 12)
    before = compactions(table)
    killed_at(step, lambda: upkeep(table))
    assert compactions(table) == before
    (pending,) = metadata(table).timeline.pending_services
    is_true(table)
    commit(table, 2)
    is_true(table)
    at = engine(table, options={**SEVERAL, **READY}).coordinator.table
    assert keep_metadata(at, Budget.of(at.runtime, 10)).held_by == f"{pending} in the metadata table"
    later = replace(at, runtime=HoursLater())
    assert keep_metadata(later, Budget.of(at.runtime, 10)).compacted > pending.requested
    assert metadata(table).uncompacted == 0
    assert not list((table / ".hoodie/metadata").rglob(f"*{pending.requested}*"))
    is_true(table)


@pytest.mark.parametrize("table", ["java12_metadata"], indirect=True)
@pytest.mark.parametrize("step", [Step.HISTORY_WRITTEN, Step.HISTORY_SHOWN])
def test_an_archiver_that_was_killed_loses_nothing(table: Path, step: Step) -> None:
    commit(table, 25)
    folder = Folder(engine(table).coordinator.table.storage, layout.METADATA_TABLE)
    assert engine(table, options={**SEVERAL, **READY}).coordinator.archive().instants
    killed_at(step, lambda: upkeep(table))
    is_true(table)
    upkeep(table)
    assert len(read_timeline(folder).archive) == 1 and len(read_timeline(folder).instants) < 10
    commit(table, 1)
    is_true(table)


def test_what_a_killed_writer_left_of_bounds_that_it_wrote_once_more_does_not_end_the_archive(table: Path) -> None:
    commit(table, 3)
    own = own_time(metadata(table).timeline)
    left = table / ".hoodie/metadata/.hoodie/timeline" / f"{own}.deltacommit.requested"
    left.touch()
    commit(table, 25)
    assert left.exists() and engine(table, options={**SEVERAL, **READY}).coordinator.archive().instants
    for _ in range(2):
        upkeep(table)
        commit(table, 12)
    assert not left.exists() and own < metadata(table).timeline.instants[0].requested
    is_true(table)


def test_a_compaction_that_java_left_is_planned_anew_and_what_is_torn_of_it_removed(table: Path) -> None:
    (instant,) = compactions(table)
    timeline = table / ".hoodie/metadata/.hoodie/timeline"
    for path in timeline.glob(f"{instant}_*"):
        path.unlink()
    torn = list((table / ".hoodie/metadata").glob(f"*/*_{instant}.hfile"))
    assert len(torn) >= 4
    for path in torn:
        path.write_bytes(path.read_bytes()[:1000])
    is_true(table)
    upkeep(table)
    (anew,) = compactions(table)
    assert anew > instant and not list((table / ".hoodie/metadata").rglob(f"[!.]*{instant}*"))
    is_true(table)


def test_nothing_is_compacted_while_a_commit_is_listed_that_may_still_be_rolled_back(table: Path) -> None:
    commit(table, 12)
    before = compactions(table)
    coordinator = engine(table, options=SEVERAL).coordinator
    peer = Peer(coordinator.table.storage)
    instant = peer.begin()
    found = KeptMetadata.look(coordinator.table, coordinator.properties)
    assert found is not None
    said = CommitMetadata({"region=eu": (peer.write(instant, "region=eu", "pending-0"),)}, "UPSERT", {})
    found.commit(instant, said, coordinator.table.timeline())
    done = keep_metadata(coordinator.table, Budget.of(coordinator.table.runtime, 10))
    assert done.held_by == f"{instant}, which is not visible yet" and compactions(table) == before


@pytest.mark.parametrize("table", ["java12_metadata"], indirect=True)
def test_a_plan_to_compact_is_taken_back_if_a_commit_was_decided_meanwhile(table: Path) -> None:
    """A writer that wrongly believes that it has the lock has not seen the plan, and lists its commit as if it were older."""
    commit(table, 12)
    before, rows, without_lock = compactions(table), changed(table, "k2", v=700), engine(table)
    at = engine(table, options={**SEVERAL, **READY}).coordinator.table
    decides = Rule("put_if_absent", "*.compaction.requested", fault=None, meanwhile=lambda: without_lock.upsert(rows))
    keep_metadata(replace(at, storage=FaultyStorage(at.storage, [decides])), Budget.of(at.runtime, 10))
    assert values(table)["k2"] == 700
    assert compactions(table) == before and not metadata(table).timeline.pending_services
    upkeep(table)
    assert len(compactions(table)) == len(before) + 1
    is_true(table)


def test_what_a_killed_writer_has_decided_is_finished_before_a_compaction(table: Path) -> None:
    commit(table, 12)
    before = compactions(table)
    killed_at(Step.METADATA_KEPT, lambda: engine(table, options=SEVERAL).upsert(changed(table, "k2", v=700)))
    upkeep(table)
    assert values(table)["k2"] == 700
    assert len(compactions(table)) == len(before) + 1
    is_true(table)


def test_a_dry_run_says_that_the_metadata_table_would_be_compacted(table: Path) -> None:
    commit(table, 12)
    before = compactions(table)
    assert (
        "would compact Hudi's metadata table" in run("upkeep", str(table), "--dry-run", "--set", "lock.provider=storage:").out
    )
    assert compactions(table) == before


def test_old_files_of_the_metadata_table_stay_while_readers_may_use_them(table: Path) -> None:
    commit(table, 12)
    upkeep(table)  # what is older than the test
    for _ in range(2):
        commit(table, 12)
        done = engine(table, options={**SEVERAL, **READY, "clean.readers_s": "3600"}).coordinator.upkeep()
        assert done.metadata.compacted and not done.metadata.cleaned
    assert engine(table, options={**SEVERAL, **READY}).coordinator.upkeep().metadata.cleaned
    is_true(table)


@pytest.mark.parametrize("table", ["java12_metadata"], indirect=True)
def test_a_delta_commit_that_began_before_a_compaction_and_completed_after_it_is_not_archived(table: Path) -> None:
    commit(table, 25)

    def compact(step: Step) -> None:
        if step is Step.DATA_WRITTEN:
            at_each_step(lambda step: None)
            other = engine(table, options=SEVERAL).coordinator.table
            assert keep_metadata(other, Budget.of(other.runtime, 10)).compacted

    at_each_step(compact)
    instant = engine(table, options=SEVERAL).insert(changed(table, "late", v=1)).instant
    compaction = compactions(table)[-1]
    assert instant < compaction
    commit(table, 8)
    at = engine(table, options={**SEVERAL, **READY}).coordinator
    assert at.archive().instants
    assert keep_metadata(at.table, Budget.of(at.table.runtime, 10)).archived
    found = metadata(table).timeline
    assert not at.table.timeline().has_commit(instant) and found.has_commit(instant)
    assert compaction in {i.requested for i in found.commits}
    is_true(table)


def test_log_files_of_a_commit_that_is_written_for_long_are_kept_though_all_before_it_is_archived(table: Path) -> None:
    """Java archives, here and in the metadata table, whose timeline then begins after the commit; two compactions follow."""
    commit(table, 36)
    slow = list[str]()

    def kept() -> None:
        at = engine(table, options={**SEVERAL, **READY}).coordinator.table
        keep_metadata(at, Budget.of(at.runtime, 60), every=10)

    def others(step: Step) -> None:
        if step is Step.DATA_WRITTEN and not slow:
            at_each_step(lambda step: None)
            slow.extend(each.requested for each in metadata(table).data.pending)
            for _ in range(3):
                rows, each = changed(table, "k2", "new"), engine(table, options=SEVERAL)
                for _ in range(12):
                    each.upsert(rows)
                kept()
            storage = engine(table).coordinator.table.storage
            Peer(storage).archive(*(i.requested for i in read_timeline(storage).instants if i.requested < slow[0]))
            kept()
            kept()
            at_each_step(others)
        elif step is Step.METADATA_LOGGED and slow:
            at_each_step(lambda step: None)
            kept()

    at_each_step(others)
    engine(table, options=SEVERAL).insert(changed(table, "late", v=1))
    assert len(slow) == 1 and values(table)["late"] == 1
    is_true(table)
