"""What became of a prepare, and the end of whatever the head of a log leaves open: the one place that settles decisions.

A prepare says that its instant is committed if the outcome of its transaction says so (`docs/adr/0021`). Its state is asked in
this order: the outcome, *then* the table's timeline. Completed there: committed. Gone: rolled back. Pending: what the outcome
said, or undecided. The outcome comes first, because it may be deleted, and its name used again by a late request, once the
instant is pending in none of the tables.

Whoever needs the next number of the log settles an undecided prepare: it puts `aborted` under the outcome's name, if absent.
Whichever outcome is there counts. While the owner lives it is given a lease's time to put its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakelock.errors import StorageUnavailable, TableError
from lakelock.events import EventKind
from lakelock.markers.liveness import LivenessState, judge_all
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publishing.fate import InstantFate, shown_fate
from lakelock.occ.publishing.publish import Publication, looked_for, missing, publish
from lakelock.occ.records.decisions import Decision, DecisionKind, LogView, Resolution
from lakelock.occ.records.outcomes import OutcomeRecord, TransactionName, Verdict, read_outcome
from lakelock.occ.steps import Step, reached
from lakelock.storage import Created, Storage, create
from lakelock.table import layout
from lakelock.table.timeline import Timeline, read_timeline
from lakelock.texts import command

PUTS = 5
"""How often an outcome is put again that gets no answer, or whose record has just been deleted."""
LOOKS_IN_A_LEASE = 20


@dataclass(frozen=True)
class Settled:
    """What became of a prepare, and the timeline that was listed after its outcome was known."""

    resolution: Resolution
    timeline: Timeline
    outcome: OutcomeRecord | None = None


def standing(table: OpenTable, prepare: Decision, timeline: Timeline) -> Settled:
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
    found = standing(table, prepare, timeline)
    if found.resolution is not Resolution.UNDECIDED:
        return found
    transaction = _transaction_of(prepare)
    home = table.storage_of(transaction.home)
    _ensure_home(table, home, prepare)
    outcome = _awaited(table, home, prepare, found.timeline) or put_outcome(
        table, home, transaction, Verdict.ABORTED, "its writer did not decide in time"
    )
    return by_outcome(table, prepare, outcome)


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
    published = publish(table, head, timeline, lambda: missing(table, looked_for(head)))
    if published is Publication.PUBLISHED and head.writer != table.writer:
        reached(Step.FINISHED_FOR_ANOTHER)
        table.emit(EventKind.FINISHED_FOR_ANOTHER, head.instant, head.operation, writer=str(head.writer), decision=head.number)
    return published


def counts(decision: Decision, timeline: Timeline) -> bool:
    """Whether a decision commits its instant, by a timeline as `finish_head` returns it."""
    if decision.kind is DecisionKind.PREPARE:
        return timeline.is_visible(decision.instant)
    return decision.kind is DecisionKind.COMMIT


def put_outcome(table: OpenTable, home: Storage, transaction: TransactionName, verdict: Verdict, why: str) -> OutcomeRecord:
    """Put an outcome for another's transaction, unless there is one; the outcome that is there."""
    record = OutcomeRecord(transaction, verdict, table.runtime.uuid(), table.writer, table.runtime.now_ms(), why)
    for _ in range(PUTS):
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


def is_there(home: Storage) -> bool:
    """Whether there is a table where a transaction has its home."""
    return any(home.get(key) is not None for key in (layout.PROPERTIES, layout.PROPERTIES_BACKUP))


def is_its_home(home: Storage, transaction: TransactionName) -> bool:
    """Whether the table at the home of a pending transaction is the one that it began in, and not another made there since.

    The one that it began in shows its instant or a later rollback; or it has an archive, where both may be.
    """
    instant, timeline = transaction.tables[0].instant, read_timeline(home)
    if timeline.state_of(instant) is not None or any(each.requested >= instant for each in timeline.rollbacks):
        return True
    return timeline.has_archive and instant < timeline.first_active


def _ensure_home(table: OpenTable, home: Storage, prepare: Decision) -> None:
    """An outcome in a place where there is no table would decide nothing for whoever moved the table away."""
    where = f"decision {prepare.number} of {table.storage.uri}"
    about = f"{where} prepares {prepare.instant} for a transaction whose outcome belongs"
    if not is_there(home):
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
