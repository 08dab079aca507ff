"""`lakelock adopt`: makes a table of Java Hudi's defaults writable, after saying what would change."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from lakelock.admin.adopt import Adoption, adopt, java_options, plan_adoption, undo
from lakelock.admin.manual_changes import refuse_live
from lakelock.cli.arguments import ConfigOption, JsonOption, Next, SetOption, TableArgument, opened
from lakelock.cli.lock_changes import ReasonOption, YesOption, commit_lock
from lakelock.cli.output import Output, reporting
from lakelock.errors import SettingsError
from lakelock.table import layout
from lakelock.texts import counted


def adopt_table(
    path: TableArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change, and who is in the way.")] = False,
    assume_utc: Annotated[
        bool, typer.Option("--assume-utc", help="You know that the instants are in UTC, though their files do not prove it.")
    ] = False,
    undoing: Annotated[bool, typer.Option("--undo", help="Take it back, as long as nothing was committed since.")] = False,
    reason: ReasonOption = "",
    yes: YesOption = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a table of Java Hudi's defaults writable: drop its metadata table, and set its zone to UTC if its instants prove it.

    Stop all writers first. Rows and instants stay as they are. From then on each Java writer needs the options that it prints.
    """
    with reporting(as_json) as out, opened(path, config, settings, lock=True) as coordinator:
        lock, java = commit_lock(coordinator).identity, list(java_options(coordinator.properties))
        if undoing:
            changed = undo(coordinator, reason=reason)
            out.show({"table": coordinator.table.storage.uri, "changes": changed}, lambda o: o.line(_UNDONE))
            return
        plan = plan_adoption(coordinator, assume_utc=assume_utc)
        if plan.needed and not dry_run and not yes:
            if as_json:
                raise SettingsError("--json does not ask", hint="add --yes")
            _print_plan(out, plan)
            typer.confirm(f"Change {plan.table}?", abort=True, err=True)
        done = plan if dry_run or not plan.needed else adopt(coordinator, assume_utc=assume_utc, reason=reason)
        values = {**asdict(done), "dry_run": dry_run, "java_options": java, "lock": lock}
        out.show(values, lambda o: _print(o, Next(path, config, settings), done, lock, java))
        if dry_run and done.needed:
            refuse_live(coordinator.table, done.live)


_UNDONE = "undone: the zone is what it was; the next Java writer with hoodie.metadata.enable=true builds its metadata table"


def _print(out: Output, then: Next, done: Adoption, lock: str, java: list[str]) -> None:
    if not done.needed:
        out.line("nothing to do: lakelock writes this table as it is")
        return
    _print_plan(out, done)
    if done.done:
        out.line(f"done; `{then.command('adopt', '--undo')}` takes it back until the first commit")
    out.line(f"Java writers need these options from then on, and the lock {lock} in hoodie.write.lock.*:")
    for option in java:
        out.line(f"  {option}")


def _print_plan(out: Output, plan: Adoption) -> None:
    would = "" if plan.done else "would "
    for key, value in plan.changes.items():
        out.line(f"{would}set {key}={value}" if value is not None else f"{would}take out {key}")
    if plan.has_metadata:
        out.line(f"{would}delete the metadata table, {layout.METADATA_TABLE}")
    if plan.proven:
        out.line(f"{counted(plan.proven, 'instant')} proven to be in UTC: the storage stamped files at these times")
    if plan.archived:
        out.line("older instants are archived and were not looked at")
    for name in plan.live:
        out.line(f"in the way: {name}")
