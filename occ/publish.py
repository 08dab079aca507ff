"""Publication: a decided commit becomes visible by one file in the timeline, created by any process that finds it missing.

Whether an instant is committed, pending or gone for good is answered here only. `shown_fate` answers from one listing of the
timeline, for instants that are known to have been decided or finished. If an instant is older than everything that the listing
shows, the listing cannot tell whether it was committed: it may have been archived, which happens only to completed instants, or
another engine rolled it back and later instants were archived. Then `fate_of` reads the archive. The reasons are in
`docs/adr/0011`.

A prepare says that its instant is committed if the outcome of its transaction says so (`docs/adr/0021`). Its state is asked
in this order: the outcome, *then* the table's timeline. Completed there: committed. Gone: rolled back. Pending: what the
outcome said, or undecided. The outcome comes first, because it may be deleted, and its name used again by a late request,
once the instant is pending in none of the tables.

A writer that needs the next number of the log settles an undecided prepare: it puts `aborted` under the outcome's name, if
absent. The outcome that is there counts, whichever it is. While the owner lives it is given a lease's time to put its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from lakelock.errors import StorageUnavailable, TableError
from lakelock.events import EventKind, Step, reached
from lakelock.markers.liveness import LivenessState, judge_all
from lakelock.occ.log import (
    Decision,
    DecisionKind,
    LogView,
    OutcomeRecord,
    Resolution,
    TransactionName,
    Verdict,
    read_outcome,
    resolve,
)
from lakelock.occ.metadata_table import KeptMetadata
from lakelock.occ.open_table import TORN_LOOKS, TORN_WAIT_S, OpenTable
from lakelock.storage import Created, Storage, create, has_file
from lakelock.table import layout
from lakelock.table.archive import archived_write
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Instant, State
from lakelock.table.log_files import LogFile
from lakelock.table.snapshot import DataFile
from lakelock.table.timeline import Timeline, read_timeline
from lakelock.texts import command

SHARE_THE_LOCK = (
    "give every Hudi writer hoodie.write.concurrency.mode=OPTIMISTIC_CONCURRENCY_CONTROL, "
    "hoodie.clean.failed.writes.policy=LAZY and the lock of lakelock's writers (hoodie.write.lock.provider with its keys)"
)
"""The hint about an engine that rolls back a live transaction, or commits without the lock."""


class InstantFate(Enum):
    """COMMITTED: visible, archived or not. PENDING: still to be completed or rolled back. GONE: it never will be visible."""

    COMMITTED = "committed"
    PENDING = "pending"
    GONE = "gone"


def shown_fate(timeline: Timeline, instant: str) -> InstantFate:
    """The fate of an instant that once was on the timeline, by one listing; one older than all of it counts as archived."""
    if timeline.is_visible(instant):
        return InstantFate.COMMITTED
    return InstantFate.GONE if timeline.state_of(instant) is None else InstantFate.PENDING


def fate_of(table: OpenTable, instant: str, timeline: Timeline) -> InstantFate:
    """What became of an instant that once was on the timeline, as of a `timeline` that was listed before this call.

    No request if the timeline shows the instant, or if it cannot have been archived yet; else one listing of the archive and
    one read. `CorruptTableError` when the archive cannot be read: then the fate is unknown.
    """
    shown = shown_fate(timeline, instant)
    if shown is not InstantFate.COMMITTED or timeline.state_of(instant) is not None:
        return shown
    # A rollback says nothing here: where it names an archived commit, another engine has undone what was committed.
    return InstantFate.GONE if archived_write(table.storage, instant) is None else InstantFate.COMMITTED


def is_withdrawn(table: OpenTable, timeline: Timeline, instant: str) -> bool:
    """Whether others have rolled back a pending instant, or are doing so: its markers may be gone while its files remain."""
    return timeline.state_of(instant) is None or is_rolled_back(table, timeline, instant)


def is_rolled_back(table: OpenTable, timeline: Timeline, instant: str) -> bool:
    """True when a rollback in any state targets the instant. Each rollback plan is read once; they never change."""
    return any(table.rollback_target(rollback) == instant for rollback in timeline.rollbacks if rollback.requested >= instant)


def plans_awaited(table: OpenTable, timeline: Timeline, instant: str) -> None:
    """Wait until each rollback that may be about the instant says so: Java creates a plan on a disk before it writes to it.

    No request if each has been read. An abandoned plan is waited for no longer than any torn file.
    """
    later = [r for r in timeline.rollbacks if r.requested >= instant and not r.is_completed]
    for _ in range(TORN_LOOKS):
        if all(table.rollback_target(each) is not None for each in later):
            return
        table.runtime.sleep(TORN_WAIT_S)


class Publication(Enum):
    """PUBLISHED by this call; ALREADY visible; VOID: a foreign writer rolled the instant back before it was visible, or
    removed files of it.
    """

    PUBLISHED = "published"
    ALREADY = "already"
    VOID = "void"


FILES_CHECKED = 16
"""Of a commit with more files, so many are looked for before it is published: a rollback removes all of them."""


def publish(
    table: OpenTable,
    decision: Decision,
    timeline: Timeline,
    files_gone: Callable[[], Sequence[str]],
    metadata: KeptMetadata | None,
) -> Publication:
    """Make a decided commit visible, unless it is already, a foreign rollback targets it, or files of it are gone.

    Hold the table's lock. `timeline` was read after the decision was seen, or under the same lock, as `metadata` was. All lower
    commits must be published. Idempotent: the file's name and bytes are fixed by the decision.
    """
    fate = shown_fate(timeline, decision.instant)
    if fate is InstantFate.COMMITTED:
        return Publication.ALREADY
    void = fate is InstantFate.GONE or is_rolled_back(table, timeline, decision.instant) or bool(files_gone())
    # The timeline may be old: others may have published it since, rewritten its files, and cleaned the old ones.
    if void and shown_fate(table.timeline(), decision.instant) is InstantFate.COMMITTED:
        return Publication.ALREADY
    if void:
        table.observed.void.add(decision.instant)
        if metadata is not None:
            metadata.withdraw(decision.instant)
        return Publication.VOID
    if metadata is not None:
        metadata.commit(decision.instant, CommitMetadata.from_bytes(decision.payload, f"decision {decision.number}"), timeline)
    completed = Instant(decision.instant, decision.action, State.COMPLETED, decision.completion)
    made = table.storage.put_if_absent(layout.timeline(completed.file_name), decision.payload)
    return Publication.PUBLISHED if made is not None else Publication.ALREADY


def looked_for(decision: Decision) -> list[str]:
    """The files of a decided commit that are looked for before it is published: all, or the same few in every process."""
    paths = files_of(CommitMetadata.from_bytes(decision.payload, f"decision {decision.number}"))
    return paths[:: -(-len(paths) // FILES_CHECKED)] if paths else []


def files_of(metadata: CommitMetadata) -> list[str]:
    """The data files that a commit names, in order."""
    paths = [stat.path for stat in metadata.stats if stat.path]
    return sorted(path for path in paths if DataFile.parse(path) is not None or LogFile.parse(path) is not None)


def missing(table: OpenTable, paths: Sequence[str]) -> list[str]:
    """Those of the files that are not there. One request each, made at once."""
    there = table.io.gather([partial(has_file, table.storage, path) for path in paths])
    return [path for path, found in zip(paths, there, strict=True) if not found]


def newest_commit(view: LogView) -> Decision | None:
    """The head of the log if it is a commit: the only decision that can still await publication."""
    decision = view.decisions[-1] if view.decisions else None
    return decision if resolve(decision) is Resolution.COMMITTED else None


OUTCOME_PUTS = 5
"""How often an outcome is put again that gets no answer, or whose record has just been deleted."""
LOOKS_IN_A_LEASE = 20


@dataclass(frozen=True)
class Settled:
    """What became of a prepare, and the timeline that was listed after its outcome was known."""

    resolution: Resolution
    timeline: Timeline
    outcome: OutcomeRecord | None = None


def current_outcome(table: OpenTable, prepare: Decision, timeline: Timeline) -> Settled:
    """What became of a prepare as far as it is known; UNDECIDED if it has no outcome yet. Writes nothing.

    `timeline` was listed after the prepare was seen. Only if it shows the instant as pending, the outcome is read, and the
    timeline is listed once more.
    """
    final = _final(prepare, timeline)
    if final is not None:
        return Settled(final, timeline)
    transaction = _transaction_of(prepare)
    return by_outcome(table, prepare, read_outcome(table.storage_of(transaction.home), transaction.id))


def settle(table: OpenTable, prepare: Decision, timeline: Timeline) -> Settled:
    """What became of a prepare, never UNDECIDED: an undecided one is aborted. Hold the table's lock.

    Waits for at most a lease while the owner lives: it holds no lock any more, but may be about to decide.
    `TableError` if the home of the transaction is gone, `StorageError` if it cannot be reached; both name it.
    """
    found = current_outcome(table, prepare, timeline)
    if found.resolution is not Resolution.UNDECIDED:
        return found
    transaction = _transaction_of(prepare)
    home = table.storage_of(transaction.home)
    _ensure_home(table, home, prepare)
    outcome = _awaited(table, home, prepare, found.timeline) or put_outcome(
        table, home, transaction, Verdict.ABORTED, "its writer did not decide in time"
    )
    return by_outcome(table, prepare, outcome)


def is_finished(view: LogView, timeline: Timeline) -> bool:
    """Whether the head of the log leaves nothing open. `timeline` was listed after the `view`, which has the head's record."""
    head = view.decisions[-1] if view.decisions else None
    return head is None or head.kind is DecisionKind.ROLLBACK or shown_fate(timeline, head.instant) is InstantFate.COMMITTED


def finish_head(table: OpenTable, view: LogView, timeline: Timeline) -> Timeline:
    """Finish what the head of the log leaves open: publish a commit, settle a prepare. Hold the table's lock.

    Returns the timeline by which the decisions of the view are to be judged: it was listed after them wherever a prepare
    among them is not completed in the given one.
    """
    head = view.decisions[-1] if view.decisions else None
    if any(d.kind is DecisionKind.PREPARE and not timeline.is_visible(d.instant) for d in view.decisions):
        timeline = table.timeline()
    if head is None or head.kind is DecisionKind.ROLLBACK or shown_fate(timeline, head.instant) is InstantFate.COMMITTED:
        return timeline
    if head.kind is DecisionKind.COMMIT:
        # The listing may be older than the decision: its writer may have begun, published, or lost it to a rollback since.
        publish_for_another(table, head, table.timeline())
        return timeline
    settled = settle(table, head, timeline)
    if settled.resolution is not Resolution.COMMITTED:
        return settled.timeline
    publish_for_another(table, head, settled.timeline)
    return table.timeline()


def publish_for_another(table: OpenTable, head: Decision, timeline: Timeline) -> Publication:
    """Make a commit visible that is decided and is not published, and tell if it is that of another writer."""
    is_pending = shown_fate(timeline, head.instant) is InstantFate.PENDING
    metadata = KeptMetadata.look(table, table.properties()) if is_pending else None
    if metadata is not None:
        metadata = metadata.mended(timeline)
    published = publish(table, head, timeline, lambda: missing(table, looked_for(head)), metadata)
    if published is Publication.PUBLISHED and head.writer != table.writer:
        reached(Step.FINISHED_FOR_ANOTHER)
        table.emit(EventKind.FINISHED_FOR_ANOTHER, head.instant, head.operation, writer=str(head.writer), decision=head.number)
    return published


def is_committed(decision: Decision, timeline: Timeline) -> bool:
    """Whether a decision commits its instant, by a timeline as `finish_head` returns it."""
    if decision.kind is DecisionKind.PREPARE:
        return timeline.has_commit(decision.instant)
    return decision.kind is DecisionKind.COMMIT


def put_outcome(table: OpenTable, home: Storage, transaction: TransactionName, verdict: Verdict, why: str) -> OutcomeRecord:
    """Put an outcome for another's transaction, unless there is one; the outcome that is there."""
    record = OutcomeRecord(transaction, verdict, table.runtime.uuid(), table.writer, table.runtime.now_ms(), why)
    for _ in range(OUTCOME_PUTS):
        made = create(home, layout.outcome(transaction.id), record.to_bytes())
        if made is Created.OURS:
            if verdict is Verdict.ABORTED:
                reached(Step.ABORTED_FOR_ANOTHER)
            return record
        found = read_outcome(home, transaction.id) if made is Created.THEIRS else None
        if found is not None:
            return found
    raise StorageUnavailable(
        f"{home.uri} gave no answer to the outcome of the transaction {transaction.id}, so nothing was done about it",
        hint="run again when the storage answers",
    )


def _awaited(table: OpenTable, home: Storage, prepare: Decision, timeline: Timeline) -> OutcomeRecord | None:
    """The outcome, if its owner lives and puts one within a lease."""
    runtime, lease_s = table.runtime, table.settings.lock.lease_s
    if prepare.writer == table.writer or not owner_lives(table, prepare.instant, timeline):
        return None
    deadline_s = runtime.monotonic_s() + lease_s
    while runtime.monotonic_s() < deadline_s:
        runtime.sleep(lease_s / LOOKS_IN_A_LEASE)
        outcome = read_outcome(home, _transaction_of(prepare).id)
        if outcome is not None:
            return outcome
    return None


def owner_lives(table: OpenTable, instant: str, timeline: Timeline) -> bool:
    """Whether the writer of a pending instant is alive, by its heartbeat in this table."""
    pending = [each for each in timeline.pending if each.requested == instant]
    judged = judge_all(table.io, table.settings.heartbeat, pending)
    return any(each.state is LivenessState.ALIVE for each in judged.values())


def by_outcome(table: OpenTable, prepare: Decision, outcome: OutcomeRecord | None) -> Settled:
    """What became of a prepare, by an outcome that was read or put just now, or was not there: lists the timeline after it."""
    timeline = table.timeline()
    final = _final(prepare, timeline)
    if final is not None:
        return Settled(final, timeline, outcome)
    if outcome is None:
        return Settled(Resolution.UNDECIDED, timeline)
    committed = outcome.verdict is Verdict.COMMITTED
    return Settled(Resolution.COMMITTED if committed else Resolution.ROLLED_BACK, timeline, outcome)


def _final(prepare: Decision, timeline: Timeline) -> Resolution | None:
    """What the timeline alone says of an instant that was pending when it was prepared; None while it still is."""
    fate = shown_fate(timeline, prepare.instant)
    if fate is InstantFate.PENDING:
        return None
    return Resolution.COMMITTED if fate is InstantFate.COMMITTED else Resolution.ROLLED_BACK


def _transaction_of(prepare: Decision) -> TransactionName:
    assert prepare.transaction is not None, "a prepare names its transaction"
    return prepare.transaction


def has_table(home: Storage) -> bool:
    """Whether there is a table where a transaction has its home."""
    return any(home.get(key) is not None for key in (layout.PROPERTIES, layout.PROPERTIES_BACKUP))


def is_its_home(home: Storage, transaction: TransactionName) -> bool:
    """Whether the table at the home of a pending transaction is the one that it began in, and not another made there since.

    The one that it began in shows its instant or a later rollback; or it has an archive, where both may be.
    """
    instant = transaction.tables[0].instant
    beats = home.get(layout.heartbeat(instant)) is not None  # before the timeline: it goes once a rollback is recorded there
    timeline = read_timeline(home)
    if beats or timeline.state_of(instant) is not None or any(each.requested >= instant for each in timeline.rollbacks):
        return True
    return timeline.has_archive and instant < timeline.first_active


def _ensure_home(table: OpenTable, home: Storage, prepare: Decision) -> None:
    """An outcome in a place where there is no table would decide nothing where the table was moved to."""
    where = f"decision {prepare.number} of {table.storage.uri}"
    about = f"{where} prepares {prepare.instant} for a transaction whose outcome belongs"
    if not has_table(home):
        wrong = f"{about} to the table {home.uri}, and there is no such table any more"
    elif not is_its_home(home, _transaction_of(prepare)):
        wrong = f"{about} to a table that was at {home.uri}, and another one was made there since"
    else:
        return
    raise TableError(
        wrong,
        hint="put that table back where it was. If it is gone for good: "
        + command("commits", "settle", table.storage.uri, prepare.instant, "--home-is-gone"),
        home=home.uri,
        instant=prepare.instant,
    )
