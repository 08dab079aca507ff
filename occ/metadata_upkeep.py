"""Upkeep of Hudi's metadata table, where only lakelock writes: compaction, and clean and archive of its own timeline.

Java compacts the metadata table whenever it writes. This does the same as Java, in steps that may be interrupted anywhere:

- *Compaction.* Its instant is later than everything on the metadata table's timeline. It is put there under the table's lock
  while every listed commit is visible, since a base file cannot be taken back. This fixes what it merges: everything that was
  completed before its instant, because delta commits complete later than everything on that timeline. So the base files are
  written without the lock, and the compaction is completed under it. A compaction that a killed writer left, even one of
  Java's, is withdrawn once it is as old as a dead heartbeat, and planned again. The plan takes a number of the decision log, so
  no writer that has not seen the plan can decide a commit after it, even if the lock fails.
- *Clean.* The two newest base files of each file group are kept, with the log files on top of them. Older files are deleted
  once the older of the two has been there for `clean.readers_s`, at most a quarter of an hour: that is how long a query plans.
- *Archive.* The oldest instants move to the history of the metadata table, as long as all of them completed before the newest
  compaction, before every log file that is still on top of a base file, and before the first commit on the table's own
  timeline. So a commit on the table's timeline that is not listed cannot be taken for one whose delta commit was archived.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lakelock.errors import CorruptTableError, StorageError
from lakelock.events import Step, reached
from lakelock.occ.archive import extend, history_file, in_history, merge_levels, remove_archived, whole_batch
from lakelock.occ.log import LogView
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publish import finish_head
from lakelock.occ.retention import Budget
from lakelock.storage import Created, Listed
from lakelock.storage.base import Folder
from lakelock.storage.location import TableIO
from lakelock.table import layout
from lakelock.table.avro import COMPACTION_PLAN, encode
from lakelock.table.commit_metadata import CommitMetadata, WriteStat
from lakelock.table.history_files import is_superseded, read_history
from lakelock.table.instants import Action, Instant, State, later_than, parse_instant
from lakelock.table.metadata_records import unkept
from lakelock.table.metadata_table import BASE_FILE, MetadataTable, Piece, is_own_time, is_pending, list_partition, schemas_of
from lakelock.table.timeline import Timeline

COMPACT_EVERY = 10
"""Delta commits after which the metadata table is compacted, as by Java's default."""
READERS_S = 900.0
"""For so long readers of the metadata table may use what they have listed, unless `clean.readers_s` is shorter."""
ARCHIVE_FROM = 3
"""So many instants at least for each delta commit between compactions are archived at once, into one file of the history."""
MIB = 1 << 20
_LAYOUT_VERSION = 2
"""Of a plan that names files without their folder."""


@dataclass(frozen=True)
class MetadataUpkept:
    """What was done, or would be: the instant of a compaction, files deleted, instants archived; and why there was no more."""

    compacted: str = ""
    cleaned: int = 0
    archived: int = 0
    held_by: str = ""


@dataclass(frozen=True)
class _Look:
    """The metadata table at one moment, and the files of its partitions."""

    table: MetadataTable
    listed: Mapping[str, Sequence[Listed]]

    @property
    def compaction(self) -> Instant | None:
        """The compaction that is pending."""
        return next((i for i in self.table.timeline.pending_services if i.action == Action.COMPACTION), None)

    def pieces(self, at: str) -> list[Piece]:
        return [piece for name, files in self.listed.items() for piece in self.table.pieces(name, files, at)]


def keep_metadata(table: OpenTable, budget: Budget, *, dry_run: bool = False, every: int = COMPACT_EVERY) -> MetadataUpkept:
    """Compact, clean and archive the metadata table as far as it is due. Safe to kill, and safe while others do the same.

    `every`: how many delta commits make a compaction due.
    """
    kept = table.properties().metadata_partitions
    if not kept or unkept(kept):
        return MetadataUpkept()
    # The table's own timeline first: what it shows was listed before.
    found = MetadataTable.look(table.io, table.timeline())
    done, due = MetadataUpkept(), found.uncompacted >= every
    if (due or any(i.action == Action.COMPACTION for i in found.timeline.pending_services)) and not budget.is_spent:
        if dry_run:
            return MetadataUpkept(compacted="due")
        done = _compact(table, kept, every)
    if dry_run or budget.is_spent:
        return done
    look = _look(table, kept)
    cleaned = _clean(table, look)
    return replace(done, cleaned=cleaned, archived=_archive(table, look, budget, ARCHIVE_FROM * every))


def _look(table: OpenTable, kept: Iterable[str]) -> _Look:
    data = table.timeline()
    found = MetadataTable.look(table.io, data)
    listings = table.io.gather([partial(list_partition, table.storage, name) for name in kept])
    return _Look(found, dict(zip(kept, listings, strict=True)))


def _compact(table: OpenTable, kept: Sequence[str], every: int) -> MetadataUpkept:
    with table.locked(operation="METADATA"):
        finish_head(table, view := table.log.look(), table.timeline())
        look = _look(table, kept)
        held_by = _held_by(table, look)
        if held_by:
            return MetadataUpkept(held_by=held_by)
        instant = _planned(table, look, view, every)
    if not instant:
        return MetadataUpkept()
    reached(Step.METADATA_PLANNED)
    planned, text = look.pieces(instant), schemas_of(look.table)
    due = [piece for piece in planned if piece.is_due]
    try:
        stats = table.io.gather([partial(_base_file, table, look, piece, instant, text[0]) for piece in due])
    except CorruptTableError:
        compaction = _look(table, kept).compaction
        if compaction is None or compaction.requested != instant:
            return MetadataUpkept()  # others have ended it, and cleaned what it was to read
        raise
    reached(Step.METADATA_COMPACTED)
    with table.locked(operation="METADATA"):
        look = _look(table, kept)
        if look.compaction is None or look.compaction.requested != instant:
            return MetadataUpkept()
        there = {item.key: item.size_bytes for files in look.listed.values() for item in files}
        sizes = [there.get(_key(stat.path), 0) for stat in stats]
        if not all(sizes) or look.pieces(instant) != planned:
            _withdraw(table, look, instant)
            return MetadataUpkept(held_by="another engine that wrote without the lock")
        made = [replace(stat, file_size_bytes=size, total_write_bytes=size) for stat, size in zip(stats, sizes, strict=True)]
        completion = later_than(table.runtime.now_ms(), look.table.timeline.newest_time)
        completed = Instant(instant, Action.COMMIT, State.COMPLETED, completion)
        table.storage.put_if_absent(_timeline(completed), _commit_bytes(made, text[1]))
    return MetadataUpkept(compacted=instant)


def _held_by(table: OpenTable, look: _Look) -> str:
    """Why the metadata table must not be compacted now, `""` if it may be."""
    timeline, pending = look.table.timeline, look.compaction
    begun = [i for i in timeline.instants if not i.is_completed and i.action not in (Action.COMPACTION, Action.DELTA_COMMIT)]
    if begun:
        return f"{begun[0]} of Java's in the metadata table"
    if pending and abs(table.runtime.now_ms() - parse_instant(pending.requested)) < table.settings.heartbeat.limit_s * 1000:
        return f"{pending} in the metadata table"
    unsettled = [i for i in timeline.commits if is_pending(look.table.data, i.requested)]
    return f"{unsettled[0].requested}, which is not visible yet" if unsettled else ""


def _planned(table: OpenTable, look: _Look, view: LogView, every: int) -> str:
    """The instant of a compaction that is planned now, in the place of one that is pending; `""` if nothing is due."""
    timeline, storage = look.table.timeline, table.storage
    if look.compaction is not None:
        _withdraw(table, look, look.compaction.requested)
    instant = later_than(table.runtime.now_ms(), max(timeline.newest_time, look.table.data.newest_time))
    due = [piece for piece in look.pieces(instant) if piece.is_due]
    if not due or look.table.uncompacted < every:
        return ""
    requested, inflight = (Instant(instant, Action.COMPACTION, state) for state in (State.REQUESTED, State.INFLIGHT))
    storage.put_if_absent(_timeline(requested), _plan_bytes(due))
    # Whoever decides after this has seen the plan, also one that only believes to have the lock.
    about = f"{Action.COMPACTION}-{instant}"
    made = table.log.decide_rollback(view.head + 1, about, Action.COMPACTION, table.writer, table.runtime.uuid())
    if made is not Created.OURS:
        _withdraw(table, look, instant)
        return ""
    storage.put_if_absent(_timeline(inflight), b"")
    return instant


def _withdraw(table: OpenTable, look: _Look, instant: str) -> None:
    """Take a compaction back that is pending: no reader uses its base files. Its plan goes last."""
    ends = f"_{instant}{BASE_FILE}"
    table.storage.delete([item.key for files in look.listed.values() for item in files if item.key.endswith(ends)])
    for state in (State.INFLIGHT, State.REQUESTED):
        table.storage.delete([_timeline(Instant(instant, Action.COMPACTION, state))])


def _base_file(table: OpenTable, look: _Look, piece: Piece, instant: str, schema: str) -> WriteStat:
    """Make one base file, unless it is there; what the compaction says of it."""
    records, data = look.table.merged(piece, schema)
    path = f"{piece.partition}/{piece.name_at(instant)}"
    table.storage.put_if_absent(_key(path), data)
    return WriteStat(
        piece.file_id, path, prev_commit=piece.since, num_writes=records, partition_path=piece.partition,
        prev_base_file=piece.base.rpartition("/")[2] or None, total_log_files_compacted=len(piece.logs),
    )  # fmt: skip


def _plan_bytes(pieces: Sequence[Piece]) -> bytes:
    operations = [
        {
            "baseInstantTime": piece.since,
            "deltaFilePaths": [log.name for log in piece.logs],
            "dataFilePath": piece.base.rpartition("/")[2] or None,
            "fileId": piece.file_id,
            "partitionPath": piece.partition,
            "metrics": _metrics(piece),
            "bootstrapFilePath": None,
        }
        for piece in pieces
    ]
    return encode(COMPACTION_PLAN, {"operations": operations, "extraMetadata": None, "version": _LAYOUT_VERSION})


def _metrics(piece: Piece) -> dict[str, float]:
    """What Java asks of a plan that it carries out."""
    log_bytes = sum(log.size_bytes for log in piece.logs)
    read_mb, write_mb = (piece.base_bytes + log_bytes) // MIB, (piece.base_bytes or log_bytes) // MIB
    metrics = {
        "TOTAL_LOG_FILES": len(piece.logs),
        "TOTAL_LOG_FILES_SIZE": log_bytes,
        "TOTAL_IO_READ_MB": read_mb,
        "TOTAL_IO_WRITE_MB": write_mb,
        "TOTAL_IO_MB": read_mb + write_mb,
    }
    return {name: float(value) for name, value in metrics.items()}


def _commit_bytes(stats: Sequence[WriteStat], schema: str) -> bytes:
    by_partition: dict[str, tuple[WriteStat, ...]] = {}
    for stat in stats:
        by_partition[stat.partition_path or ""] = (*by_partition.get(stat.partition_path or "", ()), stat)
    return CommitMetadata(by_partition, "COMPACT", {"schema": schema}, compacted=True).to_bytes()


def _clean(table: OpenTable, look: _Look) -> int:
    """Delete what is outdated, and has been for long enough, by the storage's own time; how many files."""
    files = [item for listed in look.listed.values() for item in listed]
    # The newest file was written just now, or earlier.
    written_ms = {item.key: item.modified_ms for item in files}
    since_ms = max(written_ms.values(), default=0) - round(min(READERS_S, table.settings.clean.readers_s) * 1000)
    old = [
        key
        for listed in look.listed.values()
        for key, kept in look.table.outdated(listed).items()
        if written_ms[kept] <= since_ms
    ]
    table.storage.delete(old)
    _remove_abandoned(table, look.table.timeline)
    return len(old)


def _remove_abandoned(table: OpenTable, timeline: Timeline) -> None:
    """Remove what writers left that died before they had written bounds once more: it would end the archivable instants.

    These bounds are those of commits that others have finished, so nothing is lost if the writer has only stood still.
    """
    compacted = max((i.requested for i in timeline.commits if i.action == Action.COMMIT), default="")
    left = [i for i in timeline.instants if is_own_time(i.requested) and not i.is_completed and i.requested < compacted]
    for state in (State.INFLIGHT, State.REQUESTED):
        table.storage.delete([_timeline(replace(each, state=state)) for each in left])


def _archive(table: OpenTable, look: _Look, budget: Budget, least: int) -> int:
    """Move the oldest instants of the metadata table to its history, `least` of them or more; how many."""
    folder = Folder(table.storage, layout.METADATA_TABLE)
    io = TableIO(folder, table.runtime, table.parallel_requests)
    if len(look.table.timeline.instants) < least:
        return 0
    listed = list(folder.list(layout.TIMELINE))
    timeline, history = Timeline.from_listing(listed), read_history(folder)
    try:
        known = in_history(io, timeline, history)
    except (CorruptTableError, StorageError):
        if not is_superseded(folder, history):
            raise
        return 0
    if known:  # of an archiver that was killed
        remove_archived(folder, listed, known, budget)
        return len(known)
    chosen = whole_batch(_archivable(look, timeline), history.last)
    made = history_file(io, chosen) if len(chosen) >= least else None
    if made is None:
        return 0
    file, data = made
    with table.locked(operation="METADATA"):
        now = MetadataTable.look(table.io, table.timeline())
        if not set(chosen) <= set(now.timeline.instants) or not extend(folder, history, {file: data}, without=()):
            return 0
    reached(Step.HISTORY_SHOWN)
    remove_archived(folder, listed, chosen, budget)
    merge_levels(table, folder, budget)
    return len(chosen)


def _archivable(look: _Look, timeline: Timeline) -> tuple[Instant, ...]:
    """The oldest instants that are not needed on the timeline any more."""
    # The newest clean stays on the table's timeline as long as there is no other.
    data = (i.requested for i in look.table.data.instants if i.is_write or not i.is_completed)
    until = min(
        max((i.requested for i in timeline.commits if i.action == Action.COMMIT), default=""),
        min(data, default=""),
        *(look.table.needed_from(listed) for listed in look.listed.values()),
    )
    kept = next((n for n, i in enumerate(timeline.instants) if not i.is_completed or (i.completion or "") >= until), None)
    return timeline.instants[:kept]


def _timeline(instant: Instant) -> str:
    return _key(layout.timeline(instant.file_name))


def _key(path: str | None) -> str:
    return f"{layout.METADATA_TABLE}/{path}"
