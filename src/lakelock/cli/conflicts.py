"""`lakelock conflicts`: would two operations collide, why was an instant rejected, and which were."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from lakelock.cli.arguments import ConfigOption, JsonOption, Next, SetOption, TableArgument, opened
from lakelock.cli.output import Exit, Output, iso, reporting
from lakelock.conflict import Verdict
from lakelock.errors import InputError, LakelockError
from lakelock.occ.outcomes.history import Outcome
from lakelock.occ.outcomes.rejected import WhyRejected
from lakelock.occ.records.rejections import Rejection, read_rejection, rejected_instants
from lakelock.storage import Storage
from lakelock.table.instants import is_instant_time

app = typer.Typer(no_args_is_help=True, help="Would two operations collide, and why was an instant rejected.")

_EXITS = {Verdict.COLLIDES: Exit.CONFLICT, Verdict.DEPENDS: Exit.OK, Verdict.PASSES: Exit.OK}
_OUTCOMES = {Outcome.COMMITTED: Exit.OK, Outcome.REJECTED: Exit.CONFLICT, Outcome.PENDING: Exit.OUTCOME_UNKNOWN}


@app.command("explain")
def explain_conflict(
    path: TableArgument,
    instant: Annotated[str, typer.Argument(help="An instant that was rejected.", show_default=False)] = "",
    mine: Annotated[
        str | None,
        typer.Option("--mine", help='An operation, such as "DELETE month=1", or a rejected instant.', show_default=False),
    ] = None,
    theirs: Annotated[
        str | None, typer.Option("--theirs", help="Another operation, or the instant of a commit.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell why an instant was rejected, or what would become of my operation beside another that is decided first.

    An operation is one of INSERT, UPSERT, UPDATE, DELETE, MERGE, OVERWRITE, OPTIMIZE and READ, then a partition or a condition,
    or nothing for the whole table. The rules themselves are asked, at every level of every profile. Reads only and
    takes no lock.
    Exit code 4 if the instant was rejected or the two certainly collide, 5 if the instant is pending, 1 if there is no trace of
    such an instant, else 0.
    """
    with reporting(as_json) as out:
        rejected = _rejected(Next(path, config, settings), instant, mine, theirs)
        with opened(path, config, settings) as coordinator:
            table = {"table": coordinator.table.storage.uri}
            if rejected:
                why = coordinator.why_rejected(rejected)
                out.show({**table, **why.as_dict()}, lambda o: _print_why(o, why))
                raise typer.Exit(_OUTCOMES[why.outcome] if why.known else Exit.ERROR)
            found = coordinator.explain_conflict(mine or "", theirs or "")
        out.show({**table, **found.as_dict()}, lambda o: o.fields(found.facts()))
        raise typer.Exit(_EXITS[found.verdict])


def _rejected(then: Next, instant: str, mine: str | None, theirs: str | None) -> str:
    """The instant that is asked about; empty for a question about two operations."""
    two = mine is not None and theirs is not None
    asked = instant or (mine or "").strip()
    if two and not instant:
        return ""
    if instant and not is_instant_time(instant):
        raise InputError(f"{instant!r} is not an instant", hint=then.command("conflicts ls"))
    if theirs is not None or (instant and mine is not None) or not is_instant_time(asked):
        example = then.command("conflicts explain", "--mine", "DELETE month=1", "--theirs", "UPSERT month=2")
        raise InputError("name one rejected instant, or two operations", hint=example)
    return asked


def _print_why(out: Output, why: WhyRejected) -> None:
    record, explanation = why.rejection, why.rejection.explanation if why.rejection is not None else None
    facts: dict[str, object] = {name: why.as_dict()[name] for name in ("instant", "outcome", "detail")}
    if record is not None:
        facts |= {"rejected": iso(record.at_ms)}
        facts |= explanation.facts() if explanation is not None else {"mine": _mine(record), "because": record.message}
        facts.pop("verdict", None)
    out.fields(facts)


def _mine(record: Rejection) -> str:
    return f"{record.operation} {record.instant} by {record.writer}"


@app.command("list", hidden=True)
@app.command("ls")
def list_rejections(
    path: TableArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many rejections.")] = 20,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the newest transactions that were rejected, newest first, and whom they met; retries are listed, too."""
    with reporting(as_json) as out, opened(path, config, settings) as coordinator:
        table = coordinator.table
        newest = rejected_instants(table.storage)[:limit]
        reads = [partial(_read, table.storage, instant) for instant in newest]
        found = [record for record in table.io.gather(reads) if record is not None]
        values = {"table": table.storage.uri, "rejections": [record.as_dict() for record in found]}
        out.show(values, lambda o: _print_list(o, found))


def _read(storage: Storage, instant: str) -> Rejection | None:
    """The record, None if it went meanwhile or cannot be understood: `explain` says more about that."""
    try:
        return read_rejection(storage, instant)
    except LakelockError:
        return None


def _print_list(out: Output, found: list[Rejection]) -> None:
    rows = [
        (r.instant, r.operation, r.writer, r.conflict.rule if r.conflict else "rolled back",
         ", ".join(r.conflict.overlap[:2]) if r.conflict else "", r.conflict.other if r.conflict else "",
         "claim" if r.conflict and r.conflict.early else "commit")
        for r in found
    ]  # fmt: skip
    columns = ("instant", "operation", "by", "rule", "over", "met", "found at")
    out.table(columns, rows, empty="no transaction left a record of its rejection", keep=("met",))
