"""What happened to the table: commits for people, and the fate of one instant."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lakelock.json_object import JsonObject
from lakelock.occ.conflicts import footprint as keys
from lakelock.occ.conflicts.footprint import ConcurrentCommit, operation_of, writer_of
from lakelock.occ.conflicts.window import read_commit
from lakelock.occ.decisions import DecisionKind, decided_for
from lakelock.occ.fate import InstantFate, fate_of
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publish import finish_head
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Instant


class Outcome(str, Enum):
    """COMMITTED: visible. REJECTED: it never will be. PENDING: its writer is at it, or will be judged dead."""

    COMMITTED = "committed"
    REJECTED = "rejected"
    PENDING = "pending"


@dataclass(frozen=True)
class HistoryEntry:
    """One commit: who, when, what, how much. `decision` is None for commits that lakelock did not make."""

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


def history(table: OpenTable, limit: int) -> list[HistoryEntry]:
    """The newest commits by completion, newest first; one request each."""
    newest = sorted(table.timeline().commits, key=lambda i: i.completion or i.requested, reverse=True)[:limit]
    reads = [lambda i=i: read_commit(table.storage, i.file_name, i.requested, i.completion or "") for i in newest]
    others = table.runtime.gather(reads, limit=table.parallel_requests)
    return [entry_of(instant, other) for instant, other in zip(newest, others, strict=True)]


def entry_of(instant: Instant, other: ConcurrentCommit) -> HistoryEntry:
    """One commit, read from the timeline, as an entry of the history."""
    metadata: CommitMetadata = other.metadata
    stats = metadata.stats
    writer = writer_of(metadata)
    return HistoryEntry(
        instant=instant.requested,
        completion=instant.completion or "",
        decision=int(metadata.extra[keys.DECISION]) if keys.DECISION in metadata.extra else None,
        operation=operation_of(metadata),
        action=instant.action,
        writer=str(writer) if writer else "",
        application=other.application.to_json() if other.application else "",
        tag=metadata.extra.get(keys.TAG, ""),
        files=len(stats),
        partitions=len(metadata.write_stats),
        rows_inserted=sum(s.num_inserts or 0 for s in stats),
        rows_updated=sum(s.num_update_writes or 0 for s in stats),
        rows_deleted=sum(s.num_deletes or 0 for s in stats),
        size_bytes=sum(s.file_size_bytes or 0 for s in stats),
        took_s=_took_s(metadata),
    )


def _took_s(metadata: CommitMetadata) -> float | None:
    try:
        return JsonObject.parse(metadata.extra[keys.COMMIT_INFO]).number("took_s")
    except (KeyError, ValueError):
        return None


def outcome_of(table: OpenTable, instant: str) -> Outcome:
    """What became of an instant; a decided commit that is not visible yet is published on the way.

    REJECTED also for instants that never existed. Of those that are older than the timeline the archive tells;
    `CorruptTableError` when it cannot be read.
    """
    fate = fate_of(table, instant, table.timeline())
    if fate is InstantFate.PENDING:
        decided = decided_for(instant, table.log.look(newest=None).decisions)
        if decided is None:
            return Outcome.PENDING
        if decided.kind is DecisionKind.ROLLBACK:
            return Outcome.REJECTED
        with table.locked(instant, "publish"):
            finish_head(table, table.log.look(), table.timeline())
        fate = fate_of(table, instant, table.timeline())
    return Outcome.COMMITTED if fate is InstantFate.COMMITTED else Outcome.REJECTED
