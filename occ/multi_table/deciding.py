"""What takes the place of a commit's decision in each table of a transaction over several: a prepare, or a mere validation."""

from __future__ import annotations

from dataclasses import replace

from lakelock.events import EventKind
from lakelock.occ.baseline import Baseline
from lakelock.occ.certainty import OwnDecision
from lakelock.occ.committing.deciding import Deciding
from lakelock.occ.committing.pending_commit import PendingCommit
from lakelock.occ.conflicts.summary import CommitCost
from lakelock.occ.open_table import OpenTable
from lakelock.occ.records.decisions import Decision, DecisionKind, LogView
from lakelock.occ.records.outcomes import TransactionName
from lakelock.occ.steps import Step, reached
from lakelock.providers.base import Lease
from lakelock.storage import Created
from lakelock.table.timeline import Timeline


class Preparing(Deciding):
    """Puts a prepare under the next number, and publishes it when it is told to."""

    def __init__(
        self, table: OpenTable, baseline: Baseline, draft: PendingCommit, own: OwnDecision, name: TransactionName
    ) -> None:
        super().__init__(table, baseline, draft, own)
        self._name = name
        self._prepared: tuple[Decision, Timeline, Lease | None] | None = None

    def stands(self, mine: Decision) -> bool:
        """Whether it is the prepare: one whose reply got lost is found in the log."""
        return mine.kind is DecisionKind.PREPARE

    def decide(self, view: LogView, timeline: Timeline, schema_json: str, cost: CommitCost) -> Decision | None:
        """Put the prepare. None when somebody else has the number, or no reply came: then the log is looked at again.

        It binds nobody before the outcome, so an unanswered request needs no withdrawal: should it land later, its number is
        the one that the next look finds it under, or one that was collected.
        """
        table = self._table
        record = self._record(DecisionKind.PREPARE, view, timeline, schema_json, cost)
        prepare = replace(record, transaction=self._name)
        if table.log.decide(prepare) is not Created.OURS or table.log.boundary() >= prepare.number:
            return None
        reached(Step.PREPARED)
        table.emit(EventKind.PREPARED, prepare.instant, prepare.operation, decision=prepare.number, transaction=self._name.id)
        return prepare

    def conclude(self, decision: Decision, timeline: Timeline, lease: Lease | None) -> Decision:
        """Keep the prepare for its publication."""
        self._prepared = decision, timeline, lease
        return decision

    def publish(self) -> Decision:
        """Make the prepared commit visible, after the outcome; `RolledBackError` if another engine has rolled it back."""
        assert self._prepared is not None, "it is prepared before the outcome is put"
        return super().conclude(*self._prepared)


class Validating(Deciding):
    """Decides nothing: in a table that is only read, validation is all there is."""

    def decide(self, view: LogView, timeline: Timeline, schema_json: str, cost: CommitCost) -> Decision | None:
        """The record that a commit would have had; nobody stores it."""
        return self._record(DecisionKind.COMMIT, view, timeline, schema_json, cost)

    def conclude(self, decision: Decision, timeline: Timeline, lease: Lease | None) -> Decision:
        """There is nothing to publish."""
        return decision
