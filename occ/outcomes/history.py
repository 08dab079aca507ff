"""What happened to the table: commits for people, and the fate of one instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import partial

from lakelock.occ.conflicts.summary import CommitSummary
from lakelock.occ.conflicts.window import read_summary
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publishing.fate import InstantFate, fate_of
from lakelock.occ.publishing.settling import finish_head, standing
from lakelock.occ.records.decisions import DecisionKind, Resolution, decided_for, resolve
from lakelock.table.archive import archived_writes
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Instant, State


class Outcome(str, Enum):
    """COMMITTED: visible. REJECTED: it never will be. PENDING: its writer is at work, or will be judged dead."""

    COMMITTED = "committed"
    REJECTED = "rejected"
    PENDING = "pending"


@dataclass(frozen=True)
class HistoryEntry:
    """One commit: who, when, what, how much. `decision` is None for commits that lakelock did not make.

    `files_kept` of its files were taken over from an attempt that a conflict rejected; the others were made again.

    `transaction`: the id of the transaction over several tables that it is part of, which is the same in each; else empty.

    What it cost is told as of its decision: seconds in all, seconds until it had the lock, and, of the time under the lock,
    seconds and requests. `phases` has the seconds of each `lakelock.occ.phases.Phase`. The publication, some two requests, came
    after that.
    """

    instant: str
    completion: str
    decision: int | None
    operation: str
    action: str
    writer: str
    application: str
    tag: str
    files: int
    partitions: int
    rows_inserted: int
    rows_updated: int
    rows_deleted: int
    size_bytes: int
    took_s: float | None
    lock_wait_s: float | None
    lock_s: float | None
    lock_requests: int | None
    files_kept: int = 0
    transaction: str = ""
    phases: Mapping[str, float] = field(default_factory=dict)


def history(table: OpenTable, limit: int) -> list[HistoryEntry]:
    """The newest commits by completion, newest first; one request each, and where they do not suffice, the archive's files."""
    newest = sorted(table.timeline().commits, key=lambda i: i.completion or i.requested, reverse=True)[:limit]
    reads = [partial(read_summary, table.storage, i) for i in newest]
    others = table.io.gather(reads)
    entries = [entry_of(instant, other) for instant, other in zip(newest, others, strict=True)]
    return entries + _archived(table, limit - len(entries), {i.requested for i in newest})


def _archived(table: OpenTable, limit: int, known: set[str]) -> list[HistoryEntry]:
    """The newest archived commits, newest first, without the known ones."""
    found: dict[str, HistoryEntry] = {}
    if limit <= 0:
        return []
    for _, writes in archived_writes(table.storage):
        for write in writes:
            if write.requested not in known and write.requested not in found:
                metadata = CommitMetadata.from_bytes(write.data, write.requested)
                instant = Instant(write.requested, write.action, State.COMPLETED, write.completion)
                found[write.requested] = entry_of(instant, CommitSummary.of(write.requested, write.completion, metadata, None))
    return sorted(found.values(), key=lambda e: (e.completion, e.instant), reverse=True)[:limit]


def entry_of(instant: Instant, other: CommitSummary) -> HistoryEntry:
    """One commit, read from the timeline, as an entry of the history."""
    party, rows = other.party, other.rows
    return HistoryEntry(
        instant=instant.requested,
        completion=instant.completion or "",
        decision=other.number,
        operation=party.operation,
        action=instant.action,
        writer=str(party.writer) if party.writer else "",
        application=other.application.to_json() if other.application else "",
        tag=other.tag,
        files=rows.files,
        partitions=len(other.written_partitions),
        rows_inserted=rows.inserted,
        rows_updated=rows.updated,
        rows_deleted=rows.deleted,
        size_bytes=rows.size_bytes,
        files_kept=rows.files_kept,
        transaction=other.transaction.id if other.transaction is not None else "",
        **asdict(other.cost),
    )


def outcome_of(table: OpenTable, instant: str) -> Outcome:
    """What became of an instant; a decided commit that is not visible yet is published on the way.

    REJECTED also for instants that never existed. Instants older than the timeline are looked up in the archive;
    `CorruptTableError` when it cannot be read.
    """
    fate = fate_of(table, instant, table.timeline())
    if fate is InstantFate.PENDING:
        decided = decided_for(instant, table.log.look(newest=None).decisions)
        resolution = resolve(decided)
        if decided is not None and decided.kind is DecisionKind.PREPARE:
            resolution = standing(table, decided, table.timeline()).resolution
        if resolution is not Resolution.COMMITTED:
            return Outcome.PENDING if resolution is Resolution.UNDECIDED else Outcome.REJECTED
        with table.locked(instant, "publish"):
            finish_head(table, table.log.look(), table.timeline())
        fate = fate_of(table, instant, table.timeline())
    return Outcome.COMMITTED if fate is InstantFate.COMMITTED else Outcome.REJECTED
