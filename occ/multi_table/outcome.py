"""The commit point of a transaction over several tables, and what may be told of it afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from lakelock.errors import StorageUnavailable
from lakelock.events import EventKind
from lakelock.occ.certainty import News, OwnDecision
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publishing.fate import InstantFate
from lakelock.occ.publishing.settling import PUTS
from lakelock.occ.records.commit_keys import AppTransaction
from lakelock.occ.records.outcomes import OutcomeRecord, TransactionName, Verdict
from lakelock.occ.recovery.ending import outcome_unknown
from lakelock.occ.steps import Step, reached
from lakelock.storage import Created, create
from lakelock.table import layout


class Told(Enum):
    """What the timelines of all its tables say of a transaction whose outcome is not to be trusted.

    COMMITTED: visible in every table, or about to be. REJECTED: in none, for ever. TORN: in some, void in others; only another
    engine that rolls back without asking can bring that about.
    """

    COMMITTED = "committed"
    REJECTED = "rejected"
    TORN = "torn"


def decide(home: OpenTable, name: TransactionName, own: OwnDecision, application: AppTransaction | None) -> Verdict:
    """Put the outcome `committed`, if absent: the commit point. Returns which outcome is there.

    A request without a reply is repeated, since it may still arrive: the same record cannot contradict it.
    `CommitOutcomeUnknown` if storage does not answer at all.
    """
    runtime = home.runtime
    applications = () if application is None else (application,)
    record = OutcomeRecord(name, Verdict.COMMITTED, runtime.uuid(), home.writer, runtime.now_ms(), applications=applications)
    instant = name.tables[0].instant
    cause: Exception = StorageUnavailable("no answer to the outcome of its transaction")
    for _ in range(PUTS):
        own.learn(News.SENDS)
        made = create(home.storage, layout.outcome(name.id), record.to_bytes())
        if made is Created.OURS:
            own.learn(News.WINS)
            reached(Step.OUTCOME_PUT)
            home.emit(EventKind.DECIDED, instant, transaction=name.id)
            return Verdict.COMMITTED
        own.learn(News.HEARS_NOTHING)
        if made is Created.THEIRS:
            # Nobody else puts `committed`. But the name may have been used before: it is in doubt until the timelines tell.
            return Verdict.ABORTED
    raise outcome_unknown(home, instant, "TRANSACTION", cause)


def judge(verdict: Verdict, shown: Mapping[str, InstantFate]) -> Told:
    """What may be told, by the fates in all tables, which were looked at after the outcome."""
    fates = set(shown.values())
    if verdict is Verdict.COMMITTED:
        lives = fates - {InstantFate.GONE}
        return Told.COMMITTED if lives == fates else Told.TORN if lives else Told.REJECTED
    if InstantFate.COMMITTED not in fates:
        return Told.REJECTED
    return Told.COMMITTED if fates == {InstantFate.COMMITTED} else Told.TORN
