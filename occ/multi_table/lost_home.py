"""The end of a transaction whose home table was dropped for good: no writer can know that, so people have to say it."""

from __future__ import annotations

from lakelock.errors import InputError
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publishing.fate import InstantFate, shown_fate
from lakelock.occ.publishing.settling import is_its_home, is_there, owner_lives, put_outcome, standing
from lakelock.occ.records.decisions import Resolution, decided_for
from lakelock.occ.records.outcomes import OutcomeRecord, TableInstant, Verdict
from lakelock.table.timeline import read_timeline
from lakelock.texts import command


def settle_without_home(table: OpenTable, instant: str) -> OutcomeRecord:
    """Decide the transaction over several tables that waits at `instant` for a home that is gone for good.

    It is committed if one of its other tables shows it, else aborted: its writer tells nobody of a commit before all tables
    show it. The outcome is put where the home was, if there is none, so its other tables come to the same end.
    `InputError` if nothing waits there, the home is there, or the writer is alive; `StorageError` if a table gives no answer.
    """
    uri, timeline = table.storage.uri, table.timeline()
    prepare = decided_for(instant, table.log.look(newest=None).decisions)
    transaction = prepare.transaction if prepare is not None else None
    if prepare is None or transaction is None or standing(table, prepare, timeline).resolution is not Resolution.UNDECIDED:
        raise InputError(f"{instant} of {uri} waits for no outcome", hint=command("commits", "show", uri, instant))
    home = table.storage_of(transaction.home)
    if is_there(home) and is_its_home(home, transaction):
        raise InputError(
            f"{instant} of {uri} waits for an outcome in {home.uri}, and that table is there",
            hint=f"the next writer of {uri} ends the transaction",
        )
    if owner_lives(table, instant, timeline):
        raise InputError(f"{prepare.writer}, whose transaction this is, is alive", hint="end that process first")
    shown = next((each for each in transaction.tables[1:] if _is_shown(table, each)), None)
    verdict = Verdict.ABORTED if shown is None else Verdict.COMMITTED
    why = f"{home.uri} is gone for good, and " + (f"{shown.uri} shows it" if shown else "no other table shows it")
    return put_outcome(table, home, transaction, verdict, why)


def _is_shown(table: OpenTable, where: TableInstant) -> bool:
    return shown_fate(read_timeline(table.storage_of(where.uri)), where.instant) is InstantFate.COMMITTED
