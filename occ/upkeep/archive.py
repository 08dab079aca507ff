"""Archiving: the oldest instants move from the active timeline to its history, as Java Hudi keeps it.

First the history gets a file with them, a manifest that lists it, and a version that names the manifest. Only then do they
leave the timeline, oldest first, so each instant is in at least one of the two at all times. A new version only replaces
the one that was read, so one of two archivers starts over. Instants that a killed one had put into the history but not removed
from the timeline are removed by the next one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial

from lakelock.errors import CorruptTableError, StorageError
from lakelock.events import EventKind
from lakelock.markers.liveness import StorageClock
from lakelock.occ.foreign.undone import unrepaired
from lakelock.occ.open_table import OpenTable
from lakelock.occ.records import commit_keys as keys
from lakelock.occ.steps import Step, reached
from lakelock.occ.upkeep.archive_policy import Archivable, archivable
from lakelock.occ.upkeep.budget import Budget
from lakelock.occ.upkeep.clean_policy import Shown
from lakelock.occ.upkeep.history_versions import extend, merge_levels
from lakelock.occ.upkeep.late_files import remove_late_files, rolled_back_ms
from lakelock.storage import Listed
from lakelock.table import layout
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.eligibility import check_writable
from lakelock.table.history_files import History, HistoryFile, HistoryRow, instants_in, is_superseded, read_history, rows_bytes
from lakelock.table.instants import Action, Instant, completes_as, is_instant_time, parse_file_name
from lakelock.table.layout import FileGroupId
from lakelock.table.snapshot import DataFile
from lakelock.table.statistics import STATISTICS
from lakelock.table.timeline import Timeline

AT_ONCE = 200
"""How many instants one file of the history holds: memory, and the leftovers of a killed run, stay small."""

_PLANNED = frozenset({Action.CLEAN, Action.REPLACE_COMMIT})
"""Actions whose plan goes to the history, too."""


@dataclass(frozen=True)
class Archived:
    """What a run of the archiver moved, or would move. `finished` were in the history and still on the timeline.

    `held_by` says what keeps more on the timeline; `merged` are files of the history that were merged into others.
    """

    instants: int = 0
    first: str = ""
    last: str = ""
    finished: int = 0
    merged: int = 0
    held_by: str = ""


def archive(table: OpenTable, budget: Budget, *, dry_run: bool = False) -> Archived:
    """Move the oldest instants to the history until `archive.min_commits` are left, or the budget is spent."""
    check_writable(table.properties())
    done = Archived()
    for _ in range(table.settings.decisions.slot_attempts):
        listed = list(table.storage.list(layout.TIMELINE))
        timeline, history = Timeline.from_listing(listed), read_history(table.storage)
        try:
            known = _in_history(table, timeline, history)
        except (CorruptTableError, StorageError):
            if not is_superseded(table.storage, history):
                raise
            continue
        if known and not dry_run:
            _remove(table, listed, known, budget)
            done = replace(done, finished=done.finished + len(known))
            continue
        found = _archivable(table, listed, timeline)
        done = replace(done, held_by=found.held_by)
        if dry_run:
            return _with(done, found.instants)
        if not found.instants or budget.is_spent:
            break
        chosen = _whole_batch(found.instants, history.last)
        if not chosen:
            break
        remove_late_files(table, timeline, after=history.last, before=_next_write(timeline, chosen[-1]))
        if not _move(table, listed, chosen, history, budget):
            done = replace(done, held_by="another archiver")
            break
        done = _with(done, chosen)
        table.emit(EventKind.ARCHIVED, chosen[-1].requested, "ARCHIVE", instants=len(chosen))
    return done if dry_run else replace(done, merged=merge_levels(table, budget))


def _with(done: Archived, instants: tuple[Instant, ...]) -> Archived:
    if not instants:
        return done
    first = done.first or instants[0].requested
    return replace(done, instants=done.instants + len(instants), first=first, last=instants[-1].requested)


def _whole_batch(instants: tuple[Instant, ...], last: str) -> tuple[Instant, ...]:
    """The oldest of them, not cut between two of one requested time; none if they do not reach beyond the history's `last`.

    Since the history is extended at its end only, a file that was left behind within it is never listed again.
    """
    beyond = next((number for number, instant in enumerate(instants) if instant.requested > last), None)
    if beyond is None:
        return ()
    size = max(AT_ONCE, beyond + 1)
    return instants if len(instants) <= size else tuple(i for i in instants if i.requested < instants[size].requested)


def _next_write(timeline: Timeline, last: Instant) -> str:
    """The first write that stays on the timeline. Whatever is older than it will count as archived."""
    return min(i.requested for i in timeline.instants if i.is_write and i.requested > last.requested)


def _archivable(table: OpenTable, listed: list[Listed], timeline: Timeline) -> Archivable:
    # No requests if there is too little on the timeline.
    if len(timeline.commits) <= table.settings.archive.max_commits:
        return Archivable()
    now_ms = StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)
    return archivable(
        table.settings,
        timeline,
        Shown.of(listed),
        now_ms,
        unfinished=_unfinished(table),
        still_replaced=_still_replaced(table, timeline),
        rolled_back_ms=rolled_back_ms(table, timeline, listed),
        undone={each.instant for each in unrepaired(table, timeline)},
    )


def _unfinished(table: OpenTable) -> set[str]:
    """Instants with markers or a heartbeat: their writers are active, or left files that the next sweep removes."""
    marked = (item.key[len(layout.TEMP) + 1 :].partition("/")[0] for item in table.storage.list(layout.TEMP))
    beating = (item.key.rpartition("/")[2] for item in table.storage.list(layout.HEARTBEATS))
    return {instant for instant in (*marked, *beating) if is_instant_time(instant)}


def _still_replaced(table: OpenTable, timeline: Timeline) -> set[str]:
    """The oldest replacement of which old files still exist, where there is one: nothing after it may be archived anyway.

    A read of each replacement up to it, and a listing of each partition concerned until an old file is found.
    """
    seen: dict[str, set[FileGroupId]] = {}
    old = timeline.commits[: max(0, len(timeline.commits) - table.settings.archive.min_commits)]
    for instant in (i for i in old if i.action == Action.REPLACE_COMMIT):
        key = layout.timeline(instant.file_name)
        stored = table.storage.get(key)
        groups = CommitMetadata.from_bytes(stored.data, key).replaced_groups if stored is not None else frozenset()
        folders = sorted({group.partition for group in groups})
        for start in range(0, len(folders), table.parallel_requests):
            part = folders[start : start + table.parallel_requests]
            new = [folder for folder in part if folder not in seen]
            looks = [partial(_groups_in, table, folder) for folder in new]
            seen.update(zip(new, table.io.gather(looks), strict=True))
            if any(group in seen[group.partition] for group in groups if group.partition in part):
                return {instant.requested}
    return set()


def _groups_in(table: OpenTable, folder: str) -> set[FileGroupId]:
    files = (DataFile.parse(item.key) for item in table.storage.list(folder))
    return {file.group for file in files if file is not None}


def _in_history(table: OpenTable, timeline: Timeline, history: History) -> tuple[Instant, ...]:
    """Completed instants of the timeline that are already in the history, in order. No request unless the names overlap."""
    done = [i for i in timeline.instants if i.is_completed and i.action != Action.SAVEPOINT]
    overlapping = [f for f in history.files if any(f.first <= i.requested <= f.last for i in done)]
    known: set[tuple[str, str]] = set()
    for found in table.io.gather([partial(_instants_in, table, f) for f in overlapping]):
        known |= found
    return tuple(i for i in done if (i.requested, i.action) in known)


def _instants_in(table: OpenTable, file: HistoryFile) -> set[tuple[str, str]]:
    return instants_in(table.storage, file)


def _move(table: OpenTable, listed: list[Listed], chosen: tuple[Instant, ...], history: History, budget: Budget) -> bool:
    """Put the instants into the history, then remove them from the timeline; False when another archiver was faster."""
    reads = [partial(_row, table, instant) for instant in chosen]
    found = table.io.gather(reads)
    rows = [row for row in found if row is not None]
    if len(rows) < len(chosen):
        return False
    data = rows_bytes(rows)
    file = HistoryFile(chosen[0].requested, chosen[-1].requested, 0, len(data))
    with table.locked(operation="ARCHIVE"):
        now = table.timeline()
        # Neither archived nor withdrawn meanwhile, and nobody has begun before the last of them.
        pending = [i for i in (*now.pending, *now.pending_services) if i.requested <= file.last]
        if pending or not set(chosen) <= set(now.instants) or any(i.requested <= file.last for i in now.savepoints):
            return False
        if not extend(table.storage, history, {file: data}, without=()):
            return False
    reached(Step.HISTORY_SHOWN)
    _remove(table, listed, chosen, budget)
    return True


def _row(table: OpenTable, instant: Instant) -> HistoryRow | None:
    """What the history is to hold of a completed instant; None when it is not on the timeline any more."""
    stored = table.storage.get(layout.timeline(instant.file_name))
    if stored is None:
        return None
    plan = None
    if instant.action in _PLANNED:
        names = [f"{instant.requested}.{action}.requested" for action in (instant.action, Action.CLUSTERING.value)]
        found = (table.storage.get(layout.timeline(name)) for name in names)
        plan = next((each.data for each in found if each is not None and each.data), None)
    data = _without_values(stored.data) if instant.is_write else stored.data
    return HistoryRow(instant.requested, instant.completion or "", instant.action, data, plan)


def _without_values(data: bytes) -> bytes:
    """A commit's metadata without values of rows: the history is there for ever, and they would outlive an erasure.

    No reader asks for the ranges of files or the texts of conditions once a commit is archived; that it read is kept.
    """
    try:
        metadata = CommitMetadata.from_bytes(data)
        reads = [{"kind": each["kind"]} for each in json.loads(metadata.extra.get(keys.READS, "[]"))]
    except (CorruptTableError, ValueError, TypeError, KeyError):
        return data
    extra = {name: value for name, value in metadata.extra.items() if name not in (STATISTICS, keys.READS)}
    if extra.keys() == metadata.extra.keys():
        return data
    return replace(metadata, extra={**extra, keys.READS: json.dumps(reads)} if reads else extra).to_bytes()


def _remove(table: OpenTable, listed: list[Listed], gone: tuple[Instant, ...], budget: Budget) -> None:
    """Remove instants from the timeline: their files from before completion first, then the completed files, oldest first."""
    wanted = {(i.requested, i.action) for i in gone}
    pending: list[str] = []
    completed: list[str] = []
    for item in listed:
        instant = parse_file_name(item.key.rpartition("/")[2]) if item.key.rpartition("/")[0] == layout.TIMELINE else None
        if instant is not None and (instant.requested, completes_as(instant.action)) in wanted:
            (completed if instant.is_completed else pending).append(item.key)
    table.storage.delete(pending)
    for number, key in enumerate(sorted(completed)):
        budget.progress("archive", number, len(completed))
        # One by one: a reader must never find a later one gone while an earlier one is still there.
        table.storage.delete([key])
    budget.progress("archive", len(completed), len(completed))
    reached(Step.ARCHIVED)
