"""`lakelock commits` and `lakelock conflicts`: what was committed, what became of one instant, and what collides.

`conflicts` says whether two operations would collide, why an instant was rejected, and which instants were.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import Annotated

import typer

from lakelock.admin.manual_changes import audited
from lakelock.cli.arguments import Call, on_table
from lakelock.cli.locks import ReasonOption
from lakelock.cli.output import Exit, Output, iso, moment
from lakelock.conflict import Conflict, Party
from lakelock.errors import CorruptTableError, InputError, LakelockError
from lakelock.identity import OTHER_ENGINE, name_of
from lakelock.markers.liveness import judge_all
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.history import NO_TRACE, HistoryEntry, Outcome, WhyRejected, entry_of, read_summary
from lakelock.occ.log import Resolution, TableInstant, TransactionName, decided_for, resolve
from lakelock.occ.multi_table import settle_without_home
from lakelock.occ.offers import is_offer, settle
from lakelock.occ.publish import InstantFate, shown_fate
from lakelock.occ.rejections import Rejection, read_rejection, rejected_instants
from lakelock.storage import Storage
from lakelock.table.archive import archived_write
from lakelock.table.instants import Instant, State, is_instant_time
from lakelock.table.timeline import Timeline, read_timeline
from lakelock.texts import size_text

commits_app = typer.Typer(no_args_is_help=True, help="What was committed, and what became of one instant.")

_EXITS = {Outcome.COMMITTED: Exit.OK, Outcome.REJECTED: Exit.CONFLICT, Outcome.PENDING: Exit.OUTCOME_UNKNOWN}


@commits_app.command("ls")
@on_table
def list_commits(
    call: Call,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many commits.")] = 20,
) -> None:
    """List the newest commits, newest first."""
    with call.opened() as coordinator:
        entries = coordinator.history(limit)
        pending = [i.requested for i in coordinator.table.timeline().pending]
        values = {"table": coordinator.table.storage.uri, "commits": [asdict(e) for e in entries], "pending": pending}
        call.out.show(values, lambda o: _print_list(o, entries, pending))


def _print_list(out: Output, entries: list[HistoryEntry], pending: list[str]) -> None:
    columns = (
        "instant", "completed (UTC)", "operation", "by", "rows", "took s", "retries", "inserted", "updated", "deleted",
        "files", "size", "decision",
    )  # fmt: skip
    rows = [
        (e.instant, moment(e.completion)[: len("2026-11-21 09:35:15")], e.operation, e.job or OTHER_ENGINE, e.rows, e.took_s,
         e.retries, e.rows_inserted, e.rows_updated, e.rows_deleted, e.files, size_text(e.size_bytes), e.decision)
        for e in entries
    ]  # fmt: skip
    out.table(columns, rows, empty="nothing was committed yet")
    if pending:
        out.line(f"{len(pending)} pending: {', '.join(pending[:5])}{' and more' if len(pending) > 5 else ''}")


@commits_app.command("show")
@on_table
def show_commit(
    call: Call,
    instant: Annotated[str, typer.Argument(help="The instant, such as 20261121093515485.", show_default=False)],
) -> None:
    """Tell what became of an instant: exit code 0 committed, 4 rejected, 5 still pending, 1 no trace of such an instant.

    A commit that was decided but is not visible yet gets published in passing. A write that waited for others, whose error
    has given it a name, is withdrawn unless it is committed.
    """
    if not is_instant_time(instant) and not is_offer(instant):
        raise InputError(f"{instant!r} is not an instant", hint=call.command("commits ls"))
    with call.opened(lock=True) as coordinator:
        committed = settle(coordinator.table, instant, 0) if is_offer(instant) else None
        values = _facts(coordinator, instant if committed is None else committed.instant, call)
    shown = {name: _text(name, value) for name, value in values.items() if name != "known"}
    call.out.show(values, lambda o: o.fields(shown))
    raise typer.Exit(_EXITS[Outcome(str(values["outcome"]))] if values["known"] else Exit.ERROR)


@commits_app.command("settle")
@on_table
def settle_commit(
    call: Call,
    instant: Annotated[str, typer.Argument(help="The instant that waits, from `lakelock doctor`.", show_default=False)],
    home_is_gone: Annotated[
        bool, typer.Option("--home-is-gone", help="The table that the error names was dropped and will not come back.")
    ] = False,
    reason: ReasonOption = "",
) -> None:
    """End a transaction over several tables whose first table was dropped for good.

    It is committed if one of its other tables shows it, else rejected, and so in all of them. Needed only in this case:
    every other transaction is ended by the next writer.
    """
    with call.opened(lock=True) as coordinator:
        if not home_is_gone:
            raise InputError(
                "only you can know that the table with the outcome will not come back",
                hint="put it back where it was, or say --home-is-gone",
            )
        table = coordinator.table
        with audited(table.storage, table.runtime, table.writer, "settle", f"the outcome of {instant}", reason=reason):
            record = settle_without_home(table, instant)
        outcome = coordinator.outcome(instant).value
        others = [f"{each.uri} {each.instant}" for each in record.name.tables[1:] if each.uri != table.storage.uri]
        values = {"table": table.storage.uri, "instant": instant, "outcome": outcome, "why": record.why, "other_tables": others}
        call.out.show(values, lambda o: o.fields({name: _text(name, value) for name, value in values.items()}))


def _facts(coordinator: Coordinator, instant: str, then: Call) -> dict[str, object]:
    outcome = coordinator.outcome(instant)
    table = coordinator.table
    timeline = table.timeline()
    facts: dict[str, object] = {"table": table.storage.uri, "instant": instant, "outcome": outcome.value, "known": True}
    if outcome is Outcome.COMMITTED:
        return facts | _commit_facts(coordinator, timeline, instant, then)
    if outcome is Outcome.REJECTED:
        return facts | _rejected_facts(coordinator, instant, then)
    found = timeline.write_at(instant)
    liveness = judge_all(table.io, table.settings.heartbeat, timeline.pending).get(instant)
    if liveness is None:
        return facts
    record = liveness.record
    return facts | {
        "state": str(found.state) if found else "",
        "operation": record.operation if record else "",
        "writer": name_of(record.writer if record else None),
        "liveness": liveness.state.value,
        "evidence": liveness.evidence,
    }


def _rejected_facts(coordinator: Coordinator, instant: str, then: Call) -> dict[str, object]:
    table = coordinator.table
    facts: dict[str, object] = {}
    decision = decided_for(instant, table.log.peek(after=table.log.boundary()))
    if decision is not None and resolve(decision) is Resolution.ROLLED_BACK:
        facts |= {"decision": decision.number, "rolled_back_by": str(decision.writer)}
    try:
        why = coordinator.why_rejected(instant)
    except CorruptTableError as error:  # a record that is damaged is a trace, too
        return facts | {"detail": error.message}
    if not why.known:
        where = "neither the timeline nor the decision log nor the records of rejections have it"
        detail = f"{where}: it never existed in this table, or was rolled back long ago"
        look = f"compare the path and the instant: {then.command('commits ls')}"
        return facts | {"outcome": NO_TRACE, "known": False, "detail": detail, "next": look}
    if why.rejection is not None:
        record, explain = why.rejection, then.command("conflicts explain", instant)
        return facts | {
            "operation": record.operation,
            "writer": str(record.writer),
            "because": record.message,
            "detail": why.detail,
            "next": explain,
        }
    return facts if decision is not None else facts | {"detail": why.detail}


def _commit_facts(coordinator: Coordinator, timeline: Timeline, instant: str, then: Call) -> dict[str, object]:
    """What a commit did, as the timeline tells it, or the archive."""
    storage, found = coordinator.table.storage, timeline.write_at(instant)
    if found is None or not found.is_completed:
        archived = archived_write(storage, instant)
        if archived is None:
            return {}
        found = Instant(instant, archived.action, State.COMPLETED, archived.completion)
    other = read_summary(storage, found)
    return {
        **asdict(entry_of(found, other)),
        "file_groups": sorted(str(group) for group in other.files),
        "rewritten": sorted(str(group) for group in other.touched),
        "partition_paths": sorted(other.written_partitions),
        "overwritten_partitions": sorted(other.overwritten_partitions),
        "read": other.reads,
        "write_id": other.write_id,
        **_other_tables(coordinator, other.transaction, then),
    }


def _other_tables(coordinator: Coordinator, transaction: TransactionName | None, then: Call) -> dict[str, object]:
    """The other tables of a transaction over several, and what they show of it."""
    if transaction is None:
        return {}
    mine = coordinator.table.storage.uri
    others = [each for each in transaction.tables if each.uri != mine]
    return {"other_tables": [f"{each.uri} {each.instant}: {_shown_there(coordinator, each, then)}" for each in others]}


def _shown_there(coordinator: Coordinator, where: TableInstant, then: Call) -> str:
    try:
        timeline = read_timeline(coordinator.table.storage_of(where.uri))
    except LakelockError as error:
        return f"cannot be read: {error.message}"
    fate = shown_fate(timeline, where.instant)
    if fate is not InstantFate.PENDING:
        return "committed" if fate is InstantFate.COMMITTED else "not there"
    show = replace(then, path=where.uri).command("commits show", where.instant)
    return f"committed, and not visible yet: {show}"


def _text(name: str, value: object) -> object:
    if name == "completion":
        return moment(str(value)) + " UTC"
    if name == "size_bytes" and isinstance(value, int):
        return size_text(value)
    if isinstance(value, list):
        shown = ", ".join(map(str, value[:5]))
        return f"{shown} and {len(value) - 5} more" if len(value) > 5 else shown
    return value


conflicts_app = typer.Typer(no_args_is_help=True, help="Which transactions were rejected, and why.")


@conflicts_app.command("explain")
@on_table
def explain_rejection(
    call: Call,
    instant: Annotated[str, typer.Argument(help="An instant that was rejected.", show_default=False)],
) -> None:
    """Tell why an instant was rejected: whom it met, over what, by which rule, and what helps. Reads only and takes no lock.

    Exit code 4 if the instant was rejected, 5 if it is pending, 1 if there is no trace of it, else 0.
    """
    if not is_instant_time(instant):
        raise InputError(f"{instant!r} is not an instant", hint=call.command("conflicts ls"))
    with call.opened() as coordinator:
        why = coordinator.why_rejected(instant)
        call.out.show({"table": coordinator.table.storage.uri, **why.as_dict()}, lambda o: _print_why(o, why))
    raise typer.Exit(_EXITS[why.outcome] if why.known else Exit.ERROR)


def _print_why(out: Output, why: WhyRejected) -> None:
    record, explanation = why.rejection, why.rejection.explanation if why.rejection is not None else None
    facts: dict[str, object] = {name: why.as_dict()[name] for name in ("instant", "outcome", "detail")}
    if record is not None:
        facts |= {"rejected": iso(record.at_ms)}
        facts |= explanation.facts() if explanation is not None else {"mine": _mine(record), "because": record.message}
    out.fields(facts)


def _mine(record: Rejection) -> str:
    return f"{record.operation} {record.instant} by {record.writer}"


@conflicts_app.command("list", hidden=True)
@conflicts_app.command("ls")
@on_table
def list_rejections(
    call: Call,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many rejections.")] = 20,
) -> None:
    """List the newest transactions that were rejected, newest first, and whom they met; retries are listed, too."""
    with call.opened() as coordinator:
        table = coordinator.table
        newest = rejected_instants(table.storage)[:limit]
        reads = [partial(_read, table.storage, instant) for instant in newest]
        found = [record for record in table.io.gather(reads) if record is not None]
        values = {"table": table.storage.uri, "rejections": [record.as_dict() for record in found]}
        call.out.show(values, lambda o: _print_rejections(o, found))


def _read(storage: Storage, instant: str) -> Rejection | None:
    """The record, None if it went meanwhile or cannot be understood: `explain` says more about that."""
    try:
        return read_rejection(storage, instant)
    except LakelockError:
        return None


def _print_rejections(out: Output, found: list[Rejection]) -> None:
    rows = [
        (r.instant, r.operation, r.writer.application, r.conflict.rule if r.conflict else "rolled back",
         _over(r.conflict) if r.conflict else "", _met(r.conflict.other) if r.conflict else "",
         "claim" if r.conflict and r.conflict.early else "commit")
        for r in found
    ]  # fmt: skip
    columns = ("instant", "operation", "by", "rule", "over", "met", "found at")
    out.table(columns, rows, empty="no transaction left a record of its rejection", keep=("met",))


def _over(conflict: Conflict) -> str:
    """The first of what both touch, and how many more there are."""
    more = conflict.overlap_count - 1
    return f"{conflict.overlap[0]}{f' and {more:,} more' if more > 0 else ''}" if conflict.overlap else ""


def _met(other: Party) -> str:
    return f"{other.operation} {other.instant} by {other.writer.application if other.writer else OTHER_ENGINE}"
