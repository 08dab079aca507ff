"""Archiving: the oldest instants move from the active timeline to its history, as Java Hudi keeps it.

First the history gets a file with them, a manifest that lists it, and a version that names the manifest. Only then do they
leave the timeline, oldest first, so each instant is in at least one of the two at all times. A new version only replaces the
one that was read, so one of two archivers starts over. Instants that a killed one had put into the history but not removed
from the timeline are removed by the next one. Several files of the history are merged into one, and old versions removed.

Readers regard a data file as visible when its instant is completed on the timeline, or older than the whole timeline. So only
a contiguous run of the oldest commits may go, never past an instant that is pending, nor past one that was rolled back but
has left something behind, or was rolled back so lately that its writer may still leave something. A commit that is still
needed on the timeline stays there, with all later ones. It is needed by:

* a running transaction: everything outside its baseline, which appeared after it began, by the storage's time;
* a savepoint: its commit;
* a replacement: itself, as long as files of the replaced groups exist, because without it they would be visible again;
* `archive.min_age_s` and `clean.readers_s`: a request for the instant may still be in flight, a reader may still rely on it.

Late files. A writer may pause in the middle of an upload until others have rolled it back and removed its markers, and die
before it notices. Its file stays invisible as long as the timeline reaches back to its instant. After that readers would take
the file for one of an archived commit, so it must be deleted first. The rollback names the file, because it records everything
that the markers announced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from types import MappingProxyType

from lakelock.errors import CorruptTableError, StorageError
from lakelock.events import EventKind, Step, reached
from lakelock.markers.leftovers import is_data_file_of
from lakelock.markers.liveness import CLOCK_GRAIN_MS, StorageClock
from lakelock.occ import commit_keys as keys
from lakelock.occ.foreign import unrepaired
from lakelock.occ.live_logs import bases_below
from lakelock.occ.open_table import OpenTable
from lakelock.occ.retention import COMMITS, Appearances, Budget
from lakelock.settings import Settings
from lakelock.storage import Listed, Storage
from lakelock.storage.location import TableIO
from lakelock.table import layout
from lakelock.table.commit_metadata import STATISTICS, CommitMetadata
from lakelock.table.eligibility import check_writable
from lakelock.table.history_files import (
    VERSION,
    History,
    HistoryFile,
    HistoryRow,
    instants_in,
    is_superseded,
    manifest_bytes,
    manifest_key,
    manifests,
    merged_bytes,
    read_history,
    read_manifest,
    rows_bytes,
)
from lakelock.table.instants import Action, Instant, completes_as, is_instant_time, parse_file_name
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import LogFile
from lakelock.table.service_metadata import RollbackPlan
from lakelock.table.snapshot import DataFile
from lakelock.table.timeline import Timeline

_ARCHIVED_ALONG = frozenset({Action.CLEAN, Action.ROLLBACK})
"""Actions that leave together with the later commits."""


@dataclass(frozen=True)
class Archivable:
    """The instants that may go, in order, and what keeps more on the timeline."""

    instants: tuple[Instant, ...] = ()
    held_by: str = ""


def archivable(
    settings: Settings,
    timeline: Timeline,
    shown: Appearances,
    now_ms: int,
    *,
    unfinished: Set[str] = frozenset(),
    still_replaced: Set[str] = frozenset(),
    rolled_back_ms: Mapping[str, int] = MappingProxyType({}),
    undone: Set[str] = frozenset(),
    late: Set[str] = frozenset(),
) -> Archivable:
    """What may be archived of a timeline. `now_ms` is the storage's time.

    `unfinished`: instants that left markers or a heartbeat. `still_replaced`: replacements of which old files are there.
    `rolled_back_ms`: when instants were rolled back; for a while their writers may not know.
    `undone`: commits of which another engine has removed files, and which no repair has taken out: the timeline explains them.
    `late`: commits of which readers have to know when they completed, to find their log files.
    """
    commits, keep = timeline.commits, settings.archive.min_commits
    if settings.clean.policy == COMMITS:
        keep = max(keep, settings.clean.keep_commits + 1)
    if len(commits) <= max(settings.archive.max_commits, keep):
        return Archivable()
    if any(not i.is_completed for i in timeline.rollbacks):
        return Archivable(held_by="a rollback that is not completed")
    age_s = max(settings.archive.min_age_s, settings.clean.readers_s)
    since_ms = now_ms - round(age_s * 1000)
    lately = min((instant for instant, ms in rolled_back_ms.items() if ms > since_ms), default="")
    if timeline.pending:
        since_ms = min(since_ms, min(shown.pending_ms(i) for i in timeline.pending) - CLOCK_GRAIN_MS - 1)
    blocked, why = _first_blocked(timeline)
    dirty = min(unfinished - {i.requested for i in timeline.pending}, default="")

    gone: list[Instant] = []
    held_by = ""
    for commit, following in pairwise(commits[: len(commits) - keep + 1]):
        if blocked and following.requested > blocked:
            held_by = why
        elif dirty and following.requested > dirty:
            # If it were older than the whole timeline, its files would be taken for those of an archived commit.
            held_by = f"what {dirty} left, which is not removed yet"
        elif lately and following.requested > lately:
            held_by = f"archive.min_age_s and clean.readers_s: {lately} was rolled back lately"
        elif (shown_ms := shown.completed_ms(commit)) is None or shown_ms > since_ms:
            held_by = "running transactions" if timeline.pending else "archive.min_age_s and clean.readers_s"
        else:
            held_by = _holder_of(commit, still_replaced, undone, late)
        if held_by:
            break
        gone.append(commit)
    if not gone:
        return Archivable(held_by=held_by)
    return Archivable(tuple(sorted((*gone, *_services_before(timeline, gone[-1].requested)))), held_by)


def _holder_of(commit: Instant, still_replaced: Set[str], undone: Set[str], late: Set[str]) -> str:
    """Why readers still need this commit on the timeline."""
    if commit.requested in late:
        return f"{commit}, whose log files are not compacted yet"
    if commit.requested in undone:
        return f"{commit}, which another engine has undone: lakelock repair"
    if commit.requested in still_replaced:
        return f"{commit}, whose replaced files are not cleaned yet"
    return ""


def _first_blocked(timeline: Timeline) -> tuple[str, str]:
    """The first instant that ends the run of commits, whatever their age, and what it is."""
    found = [(i.requested, f"{i}") for i in (*timeline.pending, *timeline.pending_services, *timeline.savepoints)]
    return min(found, default=("", ""))


def _services_before(timeline: Timeline, last: str) -> list[Instant]:
    """Completed cleans and rollbacks before the last commit that goes; the newest clean stays, to record what was cleaned."""
    newest = max((i.requested for i in timeline.cleanings if i.is_completed), default="")
    return [
        i
        for i in timeline.instants
        if i.action in _ARCHIVED_ALONG and i.is_completed and i.requested < last and i.requested != newest
    ]


KEPT_VERSIONS = 3
"""How many versions keep all their files for readers, as in Java Hudi."""

MERGED_BYTES = 16 * 1024 * 1024
"""Files larger than this in total are not merged: some ten thousand commits, which each reader of the history has in memory."""

MOST_LEVELS = 8


def extend(storage: Storage, history: History, files: Mapping[HistoryFile, bytes], without: Iterable[HistoryFile]) -> bool:
    """Put the next version of the history, with `files` and without others; False when it is no longer what was read.

    Hold the table's lock: other engines replace the version without checking.
    """
    known = {file.name for file in history.files}
    for file, data in files.items():
        if file.name in known or not put_once(storage, file.key, data):
            return False
    reached(Step.HISTORY_WRITTEN)
    gone = {file.name for file in without}
    listed = manifest_bytes(sorted([file for file in history.files if file.name not in gone] + list(files)))
    version = history.version + 1
    while not put_once(storage, manifest_key(version), listed):
        # Left by an archiver that died before the version named it, or is about to name it: numbers may be skipped.
        version += 1
        if version > history.version + 100:
            return False
    number = str(version).encode()
    made = storage.put_if_match(VERSION, number, history.etag) if history.etag else storage.put_if_absent(VERSION, number)
    # A manifest that no version names stays: a late request to remove it could hit the next one of its number.
    return made is not None


def put_once(storage: Storage, key: str, data: bytes) -> bool:
    """Whether the object is there with these bytes, created by this call or by a process that stored the same."""
    if storage.put_if_absent(key, data) is not None:
        return True
    found = storage.get(key)
    return found is not None and found.data == data


def merge_levels(table: OpenTable, storage: Storage, budget: Budget) -> int:
    """Merge files of a level where there are enough of them, and remove old versions; how many were merged.

    `storage` is that of the history.
    """
    merged, history = 0, read_history(storage)
    for level in range(MOST_LEVELS):
        while not budget.is_spent:
            files = history.level(level)[: table.settings.archive.merge_files]
            if len(files) < table.settings.archive.merge_files or sum(f.size_bytes for f in files) > MERGED_BYTES:
                break
            budget.progress("merge history", merged, merged + len(files))
            try:
                data = merged_bytes(storage, files)
            except (CorruptTableError, StorageError):
                if not is_superseded(storage, history):
                    raise
                break
            last = max(file.last for file in files)
            one = HistoryFile(min(file.first for file in files), last, level + 1, len(data))
            with table.locked(operation="ARCHIVE"):
                if not extend(storage, history, {one: data}, without=files):
                    break
            merged += len(files)
            history = read_history(storage)
    if merged:
        _remove_old(table, storage)
    return merged


def _remove_old(table: OpenTable, storage: Storage) -> None:
    """Remove the manifests of old versions, and the files that only they list or that no run will list again."""
    now_ms = StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)
    oldest_ms = now_ms - round(table.settings.archive.min_age_s * 1000)
    listed = list(storage.list(layout.HISTORY))
    # The version is read after the listing: a file that it does not list either belongs to the past or to an unfinished run.
    newest = read_history(storage)
    found = [number for number in manifests(listed) if number < newest.version]
    kept = found[-(KEPT_VERSIONS - 1) :]
    shown = set(newest.files).union(*(read_manifest(storage, number) or () for number in kept))
    names = {file.name for file in shown}
    # Other engines may add files that end before the history does: those are listed long before they are that old.
    files = [HistoryFile.parse(item.key.rpartition("/")[2]) for item in listed if item.modified_ms <= oldest_ms]
    gone = [file.key for file in files if file is not None and file.name not in names and _is_past(file, newest)]
    storage.delete([manifest_key(number) for number in found if number not in kept])
    storage.delete(gone)


def _is_past(file: HistoryFile, newest: History) -> bool:
    """Whether no archiver of lakelock can list the file again, as one of the next ones does with what a killed one left.

    A file of instants is past once the history reaches its end, since archivers add to the end only; a merged file is past
    once the files that it was made of are gone.
    """
    if file.level == 0:
        return file.last <= newest.last
    parts = [other for other in newest.level(file.level - 1) if file.first <= other.first and other.last <= file.last]
    return not parts


def rolled_back_ms(table: OpenTable, timeline: Timeline, listed: Iterable[Listed]) -> Mapping[str, int]:
    """When each instant was rolled back, in the storage's time, as far as the timeline shows it. Each plan is read once."""
    done_ms = {item.key.rpartition("/")[2]: item.modified_ms for item in listed}
    return {target: done_ms[rollback.file_name] for rollback, target in _rolled_back(table, timeline)}


def remove_late_files(table: OpenTable, timeline: Timeline, *, after: str, before: str) -> None:
    """Delete what instants announced that were rolled back and lie between the end of the archive (`after`) and `before`.

    One read for each, and the deletes. Whatever is older is left alone: the timeline cannot tell whether it has committed.
    """
    rolled = [rollback for rollback, target in _rolled_back(table, timeline) if after < target < before]
    plans = [partial(table.rollback_plan, rollback) for rollback in rolled]
    for plan in table.io.gather(plans):
        if plan is not None:
            table.storage.delete(_announced(plan))


def _rolled_back(table: OpenTable, timeline: Timeline) -> list[tuple[Instant, str]]:
    """Completed rollbacks, each with its target; a commit that shares the time of one that was rolled back is not one."""
    completed = [i for i in timeline.rollbacks if i.is_completed]
    looks = [partial(table.rollback_target, rollback) for rollback in completed]
    targets = table.io.gather(looks)
    return [(r, t) for r, t in zip(completed, targets, strict=True) if t is not None and timeline.state_of(t) is None]


def _announced(plan: RollbackPlan) -> list[str]:
    keys = (layout.in_partition(partition, name) for partition, names in plan.files.items() for name in names)
    return sorted(key for key in keys if is_data_file_of(key, plan.target_instant))


MOST_AT_ONCE = 200
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
        timeline, listed = table.timeline_and_files()
        history = read_history(table.storage)
        try:
            known = in_history(table.io, timeline, history)
        except (CorruptTableError, StorageError):
            if not is_superseded(table.storage, history):
                raise
            continue
        if known and not dry_run:
            remove_archived(table.storage, listed, known, budget)
            done = replace(done, finished=done.finished + len(known))
            continue
        found = _archivable(table, listed, timeline)
        done = replace(done, held_by=found.held_by)
        if dry_run:
            return _added(done, found.instants)
        if not found.instants or budget.is_spent:
            break
        chosen = whole_batch(found.instants, history.last)
        if not chosen:
            break
        remove_late_files(table, timeline, after=history.last, before=_next_write(timeline, chosen[-1]))
        if not _move(table, listed, chosen, history, budget):
            done = replace(done, held_by="another archiver")
            break
        done = _added(done, chosen)
        table.emit(EventKind.ARCHIVED, chosen[-1].requested, "ARCHIVE", instants=len(chosen))
    return done if dry_run else replace(done, merged=merge_levels(table, table.storage, budget))


def _added(done: Archived, instants: tuple[Instant, ...]) -> Archived:
    if not instants:
        return done
    first = done.first or instants[0].requested
    return replace(done, instants=done.instants + len(instants), first=first, last=instants[-1].requested)


def whole_batch(instants: tuple[Instant, ...], last: str) -> tuple[Instant, ...]:
    """The oldest of them, not cut between two of one requested time; none if they do not reach beyond the history's `last`.

    Since the history is extended at its end only, a file that was left behind within it is never listed again.
    """
    beyond = next((number for number, instant in enumerate(instants) if instant.requested > last), None)
    if beyond is None:
        return ()
    size = max(MOST_AT_ONCE, beyond + 1)
    return instants if len(instants) <= size else tuple(i for i in instants if i.requested < instants[size].requested)


def _next_write(timeline: Timeline, last: Instant) -> str:
    """The first write that stays on the timeline. Whatever is older than it will count as archived."""
    return min(i.requested for i in timeline.instants if i.is_write and i.requested > last.requested)


def _archivable(table: OpenTable, listed: Sequence[Listed], timeline: Timeline) -> Archivable:
    # No requests if there is too little on the timeline.
    if len(timeline.commits) <= table.settings.archive.max_commits:
        return Archivable()
    now_ms = StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)
    by_time = partial(archivable, table.settings, timeline, Appearances.of(listed), now_ms)
    found = by_time()
    if not found.instants:
        return found
    return by_time(
        unfinished=_unfinished(table),
        still_replaced=_still_replaced(table, timeline),
        rolled_back_ms=rolled_back_ms(table, timeline, listed),
        undone={each.instant for each in unrepaired(table, timeline)},
        late=_late_logs(table, timeline),
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
    files = (DataFile.parse(item.key) or LogFile.parse(item.key) for item in table.storage.list(folder))
    return {file.group for file in files if file is not None}


def _late_logs(table: OpenTable, timeline: Timeline) -> set[str]:
    """Commits of log files that are older than the base file below them. hudi-rs looks for completions on the timeline only,
    and would take such a file for one of the slice before.
    """
    if not table.is_merge_on_read:
        return set()
    return {log.instant for log, below in bases_below(table, timeline).items() if log.instant < below}


def in_history(io: TableIO, timeline: Timeline, history: History) -> tuple[Instant, ...]:
    """Completed instants of the timeline that are already in the history, in order. No request unless the names overlap."""
    done = [i for i in timeline.instants if i.is_completed and i.action != Action.SAVEPOINT]
    overlapping = [f for f in history.files if any(f.first <= i.requested <= f.last for i in done)]
    known: set[tuple[str, str]] = set()
    for found in io.gather([partial(instants_in, io.storage, f) for f in overlapping]):
        known |= found
    return tuple(i for i in done if (i.requested, i.action) in known)


def _move(table: OpenTable, listed: Sequence[Listed], chosen: tuple[Instant, ...], history: History, budget: Budget) -> bool:
    """Put the instants into the history, then remove them from the timeline; False when another archiver was faster."""
    made = history_file(table.io, chosen)
    if made is None:
        return False
    file, data = made
    with table.locked(operation="ARCHIVE"):
        now = table.timeline()
        # Neither archived nor withdrawn meanwhile, and no transaction has begun before the last of them.
        pending = [i for i in (*now.pending, *now.pending_services) if i.requested <= file.last]
        if pending or not set(chosen) <= set(now.instants) or any(i.requested <= file.last for i in now.savepoints):
            return False
        if not extend(table.storage, history, {file: data}, without=()):
            return False
    reached(Step.HISTORY_SHOWN)
    remove_archived(table.storage, listed, chosen, budget)
    return True


def history_file(io: TableIO, chosen: Sequence[Instant]) -> tuple[HistoryFile, bytes] | None:
    """A file of the history with these instants; None when one is not on the timeline any more."""
    found = io.gather([partial(_row, io.storage, instant) for instant in chosen])
    rows = [row for row in found if row is not None]
    if len(rows) < len(chosen):
        return None
    data = rows_bytes(rows)
    return HistoryFile(chosen[0].requested, chosen[-1].requested, 0, len(data)), data


def _row(storage: Storage, instant: Instant) -> HistoryRow | None:
    """What the history is to hold of a completed instant; None when it is not on the timeline any more."""
    stored = storage.get(layout.timeline(instant.file_name))
    if stored is None:
        return None
    plan = None
    if instant.action in _PLANNED:
        names = [f"{instant.requested}.{action}.requested" for action in (instant.action, Action.CLUSTERING.value)]
        found = (storage.get(layout.timeline(name)) for name in names)
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


def remove_archived(storage: Storage, listed: Iterable[Listed], gone: Iterable[Instant], budget: Budget) -> None:
    """Remove instants from the timeline: their files from before completion first, then the completed files, oldest first."""
    wanted = {(i.requested, i.action) for i in gone}
    pending: list[str] = []
    completed: list[str] = []
    for item in listed:
        instant = parse_file_name(item.key.rpartition("/")[2]) if item.key.rpartition("/")[0] == layout.TIMELINE else None
        if instant is not None and (instant.requested, completes_as(instant.action)) in wanted:
            (completed if instant.is_completed else pending).append(item.key)
    storage.delete(pending)
    for number, key in enumerate(sorted(completed)):
        budget.progress("archive", number, len(completed))
        # One by one: a reader must never find a later one gone while an earlier one is still there.
        storage.delete([key])
    budget.progress("archive", len(completed), len(completed))
    reached(Step.ARCHIVED)
