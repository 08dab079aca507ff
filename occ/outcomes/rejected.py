"""Why an instant was rejected, asked afterwards. Reads only: unlike `commits show` it publishes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from lakelock.occ.open_table import OpenTable
from lakelock.occ.outcomes.history import Outcome
from lakelock.occ.publishing.fate import InstantFate, fate_of, is_rolled_back
from lakelock.occ.publishing.settling import standing
from lakelock.occ.records.decisions import DecisionKind, Resolution, decided_for, resolve
from lakelock.occ.records.rejections import KEPT_DAYS, MOST_RECORDS, Rejection, read_rejection

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
        return WhyRejected(instant, Outcome.COMMITTED, detail="it is committed: nobody rejected it")
    record = read_rejection(table.storage, instant)
    if record is not None:
        left = "what it wrote is not removed yet: the next writer does so" if fate is InstantFate.PENDING else ""
        return WhyRejected(instant, Outcome.REJECTED, record, left)
    decision = decided_for(instant, table.log.peek(after=table.log.boundary()))
    if decision is not None and resolve(decision) is Resolution.ROLLED_BACK:
        by = f"{decision.writer} rolled it back in decision {decision.number}; it left no record of a conflict"
        return WhyRejected(instant, Outcome.REJECTED, detail=by)
    if decision is not None and decision.kind is DecisionKind.PREPARE and fate is InstantFate.PENDING:
        settled = standing(table, decision, table.timeline())
        if settled.resolution is Resolution.ROLLED_BACK and settled.outcome is not None:
            by = f"its transaction over several tables was aborted by {settled.outcome.writer}: {settled.outcome.why}"
            return WhyRejected(instant, Outcome.REJECTED, detail=by)
    if fate is InstantFate.PENDING:
        return WhyRejected(instant, Outcome.PENDING, detail="it is still pending: nobody has rejected it yet")
    left = (
        "no record of a rejection is left: it never existed, was rolled back, or its record was too old "
        f"(the newest {MOST_RECORDS:,} of the last {KEPT_DAYS} days are kept) or could not be written"
    )
    known = decision is not None or is_rolled_back(table, timeline, instant)
    return WhyRejected(instant, Outcome.REJECTED, detail=left, known=known)
