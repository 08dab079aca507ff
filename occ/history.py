"""What was committed: since a transaction's baseline (the window), in the whole table, and why an instant was rejected.

The window is what others committed between the baseline and the transaction's own decision. It is read from two sources, in
this order: the timeline (which also holds the commits of Java writers), then the decision log (which also holds a commit that
is decided and not yet visible).

All of this reads only: unlike `commits show`, asking why an instant was rejected publishes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import partial

from lakelock.errors import InputError
from lakelock.occ.begin import Baseline
from lakelock.occ.commit_keys import Member
from lakelock.occ.footprint import CommitSummary
from lakelock.occ.log import Decision, DecisionKind, Resolution, decided_for, resolve
from lakelock.occ.offers import is_offer, settle
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publish import InstantFate, current_outcome, fate_of, finish_head, is_committed, is_rolled_back
from lakelock.occ.rejections import KEPT_DAYS, MOST_RECORDS, Rejection, read_rejection
from lakelock.storage import Storage
from lakelock.table.archive import archived_write, archived_writes, covered_by_archive, read_commit
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Instant, State
from lakelock.table.timeline import Timeline


def commits_since(
    table: OpenTable,
    baseline: Baseline,
    timeline: Timeline,
    decisions: Sequence[Decision],
    known: MutableMapping[str, CommitSummary],
) -> list[CommitSummary]:
    """Every commit that the baseline does not contain, oldest decision first, foreign ones last by completion.

    A prepare among the decisions counts if the timeline shows its commit, so the timeline is one that `finish_head` returned.
    `known` keeps what was read before: a commit's bytes never change.
    """
    decided = {d.instant: d for d in decisions if is_committed(d, timeline)}
    fresh: list[str] = [i for i in decided if not baseline.saw(i) and i != baseline.instant]
    for instant, decision in decided.items():
        if instant in fresh and instant not in known:
            metadata = CommitMetadata.from_bytes(decision.payload, f"decision {decision.number}")
            known[instant] = CommitSummary.of(instant, decision.completion, metadata, decision.number)
    since = timeline.commits_since(baseline.timeline)
    foreign = [i for i in since if i.requested not in decided and i.requested != baseline.instant]
    unread = [i for i in foreign if i.requested not in known]
    reads = [partial(read_summary, table.storage, i) for i in unread]
    read = table.io.gather(reads)
    known.update(zip((i.requested for i in unread), read, strict=True))
    fresh += [i.requested for i in foreign]
    return sorted((known[i] for i in fresh), key=lambda o: (o.decision is None, o.decision or 0, o.party.completion or ""))


def read_summary(storage: Storage, instant: Instant) -> CommitSummary:
    """What is compared of a completed instant that a listing of the timeline showed; errors as for `read_commit`."""
    return CommitSummary.of(instant.requested, instant.completion or "", read_commit(storage, instant), None)


def possibly_archived(storage: Storage, baseline: Baseline, timeline: Timeline) -> set[str]:
    """Instants that were pending at the baseline and have committed and been archived since.

    Such a commit can no longer be judged. An instant that vanished otherwise was rolled back or given up. The names of the
    archive's files rule out most; of those that they cover the archive itself tells.
    """
    then = baseline.timeline
    pending_then = {i.requested for i in (*then.pending, *then.pending_services)} - {baseline.instant}
    vanished = {i for i in pending_then if timeline.state_of(i) is None}
    covered = covered_by_archive(storage, vanished) if vanished else set()
    return {instant for instant in covered if archived_write(storage, instant) is not None}


class Outcome(str, Enum):
    """COMMITTED: visible. REJECTED: it never will be. PENDING: its writer is at work, or will be judged dead."""

    COMMITTED = "committed"
    REJECTED = "rejected"
    PENDING = "pending"


@dataclass(frozen=True)
class HistoryMember:
    """One write of a group commit: by whom, how many rows it gave, and what became of them."""

    writer: str
    tag: str
    rows: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @classmethod
    def of(cls, member: Member) -> HistoryMember:
        """What a commit records of it, for people."""
        writer = str(member.writer) if member.writer else ""
        return cls(writer, member.tag, member.rows, member.inserted, member.updated, member.deleted)


@dataclass(frozen=True)
class HistoryEntry:
    """One commit: who, when, what, how much. `decision` is None for commits that lakelock did not make.

    `files_kept` of its files were taken over from an attempt that a conflict rejected; the others were made again.

    `job` is the writer's name without the rest of its identity; `retries` counts the attempts that others had rejected before.

    `ran_on`: where a write by Spark has run, "driver" (few rows) or "executors"; else empty.

    `transaction`: the id of the transaction over several tables that it is part of, which is the same in each; else empty.

    Its cost counts up to its decision: seconds in all, seconds until it had the lock, and, of the time under the lock,
    seconds and requests. `phases` has the seconds of each `Phase`. The publication, some two requests, came
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
    retries: int | None = None
    job: str = ""
    ran_on: str = ""
    members: tuple[HistoryMember, ...] = ()
    """The writes of which it is made, if several writers were committed together; `writer` and `tag` name the first."""

    @property
    def rows(self) -> int:
        """The rows that it inserted, updated and deleted, together."""
        return self.rows_inserted + self.rows_updated + self.rows_deleted


def history(table: OpenTable, limit: int) -> list[HistoryEntry]:
    """The newest commits by completion, newest first; one request each, and where they do not suffice, the archive's files."""
    if limit < 0:
        raise InputError(f"limit is {limit}", hint="give how many commits are wanted at most, such as 100")
    newest = table.timeline().latest(limit)
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
        job=party.writer.application if party.writer else "",
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
        members=tuple(map(HistoryMember.of, other.members)) if len(other.members) > 1 else (),
        ran_on=other.ran_on,
        **asdict(other.cost),
    )


def outcome_of(table: OpenTable, instant: str) -> Outcome:
    """What became of an instant; a decided commit that is not visible yet is published on the way.

    REJECTED also for instants that never existed. Instants older than the timeline are looked up in the archive;
    `CorruptTableError` when it cannot be read. A write that waited for others has no instant: its offer is ended now.
    """
    if is_offer(instant):
        decision = settle(table, instant, 0)
        return Outcome.REJECTED if decision is None else outcome_of(table, decision.instant)
    fate = fate_of(table, instant, table.timeline())
    if fate is InstantFate.PENDING:
        decided = decided_for(instant, table.log.look(newest=None).decisions)
        resolution = resolve(decided)
        if decided is not None and decided.kind is DecisionKind.PREPARE:
            resolution = current_outcome(table, decided, table.timeline()).resolution
        if resolution is not Resolution.COMMITTED:
            return Outcome.PENDING if resolution is Resolution.UNDECIDED else Outcome.REJECTED
        with table.locked(instant, "publish"):
            finish_head(table, table.log.look(), table.timeline())
        fate = fate_of(table, instant, table.timeline())
    return Outcome.COMMITTED if fate is InstantFate.COMMITTED else Outcome.REJECTED


NO_TRACE = "no trace"
"""What commands say instead of an outcome where nothing tells that there ever was such an instant."""


@dataclass(frozen=True)
class WhyRejected:
    """`rejection` is None where no record is left, or the instant was not rejected. `detail` says so, or what is left to do.

    `known` is False where nothing tells that there ever was such an instant: perhaps it is that of another table.
    """

    instant: str
    outcome: Outcome
    rejection: Rejection | None = None
    detail: str = ""
    known: bool = True

    def as_dict(self) -> dict[str, object]:
        found = self.rejection
        return {
            "instant": self.instant,
            "outcome": self.outcome.value if self.known else NO_TRACE,
            "known": self.known,
            "detail": self.detail,
            "rejection": found.as_dict() if found is not None else None,
        }


def why_rejected(table: OpenTable, instant: str) -> WhyRejected:
    """What is known of the rejection of an instant; `CorruptTableError` when its record cannot be understood.

    The timeline has the last word on what became of it: a record is for people.
    """
    timeline = table.timeline()
    fate = fate_of(table, instant, timeline)
    if fate is InstantFate.COMMITTED:
        return WhyRejected(instant, Outcome.COMMITTED, detail="it is committed, not rejected")
    record = read_rejection(table.storage, instant)
    if record is not None:
        left = "what it wrote is not removed yet: the next writer does so" if fate is InstantFate.PENDING else ""
        return WhyRejected(instant, Outcome.REJECTED, record, left)
    decision = decided_for(instant, table.log.peek(after=table.log.boundary()))
    if decision is not None and resolve(decision) is Resolution.ROLLED_BACK:
        by = f"{decision.writer} rolled it back in decision {decision.number}; it left no record of a conflict"
        return WhyRejected(instant, Outcome.REJECTED, detail=by)
    if decision is not None and decision.kind is DecisionKind.PREPARE and fate is InstantFate.PENDING:
        settled = current_outcome(table, decision, table.timeline())
        if settled.resolution is Resolution.ROLLED_BACK and settled.outcome is not None:
            by = f"its transaction over several tables was aborted by {settled.outcome.writer}: {settled.outcome.why}"
            return WhyRejected(instant, Outcome.REJECTED, detail=by)
    if fate is InstantFate.PENDING:
        return WhyRejected(instant, Outcome.PENDING, detail="it is still pending, and not rejected so far")
    left = (
        "no record of a rejection is left: it never existed, was rolled back, or its record was too old "
        f"(the newest {MOST_RECORDS:,} of the last {KEPT_DAYS} days are kept) or could not be written"
    )
    known = decision is not None or is_rolled_back(table, timeline, instant)
    return WhyRejected(instant, Outcome.REJECTED, detail=left, known=known)
