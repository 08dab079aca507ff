"""Savepoints: the table as of one commit, kept from cleaning until the savepoint is deleted.

A savepoint is first shown (inflight), then looked for among cleans and their plans, and only then completed: a clean looks at
the timeline after it has published its plan. So one of the two always sees the other, and saved files are never deleted.
A process that stands still for long may find its savepoint withdrawn by others: it looks once more at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from lakelock.errors import InputError, SnapshotTooOld, TransactionError
from lakelock.events import Step, reached
from lakelock.occ.archive import put_once
from lakelock.occ.live_logs import with_their_logs
from lakelock.occ.open_table import OpenTable
from lakelock.occ.retention import ensure_readable
from lakelock.table import layout
from lakelock.table.eligibility import check_writable, require_slices
from lakelock.table.instants import Action, Instant, State, is_instant_time, later_than
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import LogFile
from lakelock.table.merged_slices import slice_of
from lakelock.table.service_metadata import CleanPlan, SavepointMetadata
from lakelock.table.snapshot import CompletedLog, DataFile, Snapshot, read_snapshot
from lakelock.table.timeline import Timeline
from lakelock.texts import command


@dataclass(frozen=True)
class Savepoint:
    """A completed savepoint. `instant` is the commit that it keeps, `at_ms` when it was taken (since 1970 UTC)."""

    name: str
    instant: str
    by: str
    at_ms: int
    files: int


@dataclass(frozen=True)
class Saved:
    """What the savepoints of a timeline keep. `is_being_taken`: one is not completed, so its files are not known yet."""

    keys: frozenset[str]
    instants: frozenset[str]
    is_being_taken: bool


def saved_files(table: OpenTable, timeline: Timeline) -> Saved:
    """The keys of all files that savepoints keep. One read for each savepoint."""
    done = [i for i in timeline.savepoints if i.is_completed]
    found = table.io.gather([partial(_metadata, table, i) for i in done])
    keys = frozenset(key for metadata in found if metadata is not None for key in metadata.keys)
    return Saved(keys, frozenset(i.requested for i in done), any(not i.is_completed for i in timeline.savepoints))


def _metadata(table: OpenTable, savepoint: Instant) -> SavepointMetadata | None:
    """What a completed savepoint keeps; None when it was deleted meanwhile."""
    key = layout.timeline(savepoint.file_name)
    stored = table.storage.get(key)
    return SavepointMetadata.from_bytes(stored.data, key) if stored is not None else None


def saved_at(table: OpenTable, timeline: Timeline, commit: str) -> frozenset[str] | None:
    """The keys of the files that made up the table as of a commit, if a completed savepoint keeps it."""
    saved = next((each for each in timeline.savepoints if each.is_completed and each.requested == commit), None)
    metadata = _metadata(table, saved) if saved is not None else None
    return metadata.keys if metadata is not None else None


def all_that_is_kept(table: OpenTable, timeline: Timeline, as_of: str) -> frozenset[str] | None:
    """The keys of the files to read as of a time, if only a savepoint keeps it; None if nothing of that time was cleaned.

    A commit that was requested before the savepoint's, and became visible after it was taken, is not part of it: some of its
    files may be cleaned, and others not. `InputError` as for `ensure_readable`, `SnapshotTooOld` if the savepoint is gone.
    """
    if not ensure_readable(table, timeline, as_of):
        return None
    keys = saved_at(table, timeline, as_of)
    if keys is None:
        raise SnapshotTooOld(
            f"the savepoint that kept {table.storage.uri} as of {as_of} was deleted meanwhile",
            hint="read it as of a later time",
        )
    return keys


def slices_kept(saved: Iterable[str]) -> Snapshot:
    """The file slices of a savepoint, by the keys of their files."""
    bases = {file.group: file for file in map(DataFile.parse, saved) if file is not None}
    logs: dict[FileGroupId, list[CompletedLog]] = {}
    for log in filter(None, map(LogFile.parse, saved)):
        below = bases.get(log.group)
        logs.setdefault(log.group, []).append(CompletedLog(log, below.instant if below is not None else ""))
    slices = (slice_of(group, bases.get(group), logs.get(group, ())) for group in bases.keys() | logs.keys())
    return Snapshot(sorted(filter(None, slices)))


def list_savepoints(table: OpenTable) -> list[Savepoint]:
    """The completed savepoints, oldest commit first."""
    found = []
    for instant in table.timeline().savepoints:
        metadata = _metadata(table, instant) if instant.is_completed else None
        if metadata is not None:
            found.append(_savepoint(instant.requested, metadata))
    return found


def _savepoint(instant: str, metadata: SavepointMetadata) -> Savepoint:
    return Savepoint(metadata.comments, instant, metadata.by, metadata.at_ms, len(metadata.keys))


def take_savepoint(table: OpenTable, name: str, as_of: str | None = None) -> Savepoint:
    """Keep the table as of its newest commit, or of the commit `as_of`, readable until the savepoint is deleted.

    `InputError` when there is no such commit on the active timeline, when its files were or are being cleaned, or when the
    name or the commit has a savepoint already.
    """
    if len(name) == 17 and is_instant_time(name):
        hint = "use another name: savepoints are also deleted and read by the time of their commit"
        raise InputError(f"the savepoint name {name!r} reads as the time of a commit", hint=hint)
    if not name.strip() or name != name.strip() or len(name) > 200 or not name.isprintable():
        raise InputError(
            f"{name!r} is not a valid savepoint name", hint="use up to 200 printable characters, with no space at the ends"
        )
    properties = table.properties()
    check_writable(properties)
    require_slices(properties, "a savepoint")
    with table.locked(operation="SAVEPOINT"):
        timeline = table.timeline()
        commit = _commit_to_save(table, timeline, name, as_of)
        inflight = layout.timeline(Instant(commit.requested, Action.SAVEPOINT.value, State.INFLIGHT).file_name)
        # A savepoint that was left incomplete is completed now: it keeps what it would have kept.
        table.storage.put_if_absent(inflight, b"")
        shown_ms = _modified_ms(table, inflight)
        reached(Step.SAVEPOINT_SHOWN)
        try:
            done, metadata = _complete(table, name, commit)
            if shown_ms is None or _modified_ms(table, inflight) != shown_ms:
                _ensure_not_cleaned_meanwhile(table, commit, done, metadata)
        except InputError:
            table.storage.delete([inflight])
            raise
    return _savepoint(commit.requested, metadata)


def _modified_ms(table: OpenTable, key: str) -> int | None:
    """When the object was put, which tells it from a later one: a savepoint that was shown just now is not withdrawn."""
    stored = table.storage.get(key)
    return None if stored is None else stored.modified_ms


def _commit_to_save(table: OpenTable, timeline: Timeline, name: str, as_of: str | None) -> Instant:
    commits = timeline.commits
    if not commits:
        raise InputError(f"{table.storage.uri} has no commit to save", hint="take the savepoint after the first write")
    if as_of is None:
        commit = commits[-1]
    else:
        found = next((i for i in commits if i.requested == as_of), None)
        if found is None:
            is_older = as_of < commits[0].requested
            raise InputError(
                f"{as_of} is not a commit on the active timeline of {table.storage.uri}"
                + (", which begins later: what was committed before is archived" if is_older and timeline.has_archive else ""),
                hint=f"use {commits[0].requested}, the first one there, or a later one"
                if is_older
                else f"use an instant that `{command('commits', 'ls', table.storage.uri)}` shows",
            )
        commit = found
    for known in list_savepoints(table):
        if name == known.name or known.instant == commit.requested:
            raise InputError(
                f"there is already a savepoint {known.name!r} of {known.instant}",
                hint="use another name and commit, or delete that savepoint first",
            )
    ensure_readable(table, timeline, commit.requested)
    return commit


def _complete(table: OpenTable, name: str, commit: Instant) -> tuple[Instant, SavepointMetadata]:
    timeline = table.timeline()
    # A clean may have been planned, carried out and completed since the first look.
    ensure_readable(table, timeline, commit.requested)
    bases = read_snapshot(table.io, timeline, commit.requested)
    files: dict[str, list[str]] = {}
    for file in with_their_logs(table, bases, timeline, commit.requested).files:
        names = [*([file.name] if file.token else []), *(log.name for log in file.logs)]
        files.setdefault(file.partition, []).extend(names)
    at_ms = table.runtime.now_ms()
    metadata = SavepointMetadata(str(table.writer), at_ms, name, files)
    _ensure_not_planned(table, timeline, commit, metadata)
    done = Instant(commit.requested, Action.SAVEPOINT.value, State.COMPLETED, later_than(at_ms, timeline.newest_time))
    if not put_once(table.storage, layout.timeline(done.file_name), metadata.to_bytes()):
        raise TransactionError(f"another process is taking a savepoint of {commit.requested}", hint="run again")
    reached(Step.SAVEPOINT_TAKEN)
    table.observed.time_seen(done.completion or "")
    return done, metadata


def _ensure_not_cleaned_meanwhile(table: OpenTable, commit: Instant, done: Instant, metadata: SavepointMetadata) -> None:
    """Delete the completed savepoint and raise `InputError` if a clean that did not see it may have deleted its files.

    A clean that looks at the timeline from now on sees it, and one that looked before has its plan there by now.
    """
    now = table.timeline()
    timeline = replace(now, instants=tuple(each for each in now.instants if each != done))
    try:
        ensure_readable(table, timeline, commit.requested)
        _ensure_not_planned(table, timeline, commit, metadata)
    except InputError:
        table.storage.delete([layout.timeline(done.file_name)])
        raise


def _ensure_not_planned(table: OpenTable, timeline: Timeline, commit: Instant, metadata: SavepointMetadata) -> None:
    for pending in [i for i in timeline.cleanings if not i.is_completed]:
        both = metadata.keys & _planned(table, pending)
        if both:
            raise InputError(
                f"the files as of {commit.requested} are being cleaned by {pending.requested}, such as {min(both)}",
                hint="take the savepoint of a later commit",
            )


def _planned(table: OpenTable, pending: Instant) -> frozenset[str]:
    key = layout.timeline(replace(pending, state=State.REQUESTED).file_name)
    stored = table.storage.get(key)
    return frozenset(CleanPlan.from_bytes(stored.data, key).keys) if stored is not None and stored.data else frozenset()


def delete_savepoint(table: OpenTable, name: str) -> Savepoint:
    """Delete a savepoint, given by name or instant; cleaning may then delete its files. `InputError` if there is none."""
    with table.locked(operation="SAVEPOINT"):
        known = list_savepoints(table)
        found = next((s for s in known if name in (s.name, s.instant)), None)
        if found is None:
            there = ", ".join(repr(s.name) for s in known)
            hint = f"there are: {there}" if there else "the table has no savepoint"
            raise InputError(f"there is no savepoint {name!r}", hint=hint)
        instant = next(i for i in table.timeline().savepoints if i.requested == found.instant and i.is_completed)
        # As in Java, the completed file goes first: a killed deletion leaves a savepoint that is not completed.
        table.storage.delete([layout.timeline(instant.file_name)])
        table.storage.delete([layout.timeline(replace(instant, state=State.INFLIGHT, completion=None).file_name)])
    return found


def withdraw_unfinished(table: OpenTable, older_than_ms: int) -> int:
    """Remove savepoints that were begun before a storage time and never completed; how many.

    They were never reported, and they would keep every clean from deleting.
    """
    gone = 0
    for instant in [i for i in table.timeline().savepoints if not i.is_completed]:
        key = layout.timeline(instant.file_name)
        stored = table.storage.get(key)
        if stored is None or stored.modified_ms > older_than_ms:
            continue
        with table.locked(operation="SAVEPOINT"):
            if instant in table.timeline().savepoints:
                table.storage.delete([key])
                gone += 1
    return gone
