"""Commands that set a table and its writers up: `lakelock adopt`, `register`, `profile`, `config` and `package`.

`adopt` makes a table of Java Hudi writable whose first write is refused, after saying what would change. `register` tells the
catalog of a table, under a name that other engines read. `profile` is the weakest profile that writers of the table may have.
`config` explains which settings are in effect, and where each came from. `package` makes an archive of lakelock for Spark
executors that do not have it.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from lakelock.admin.adopt import Adoption, Wishes, adopt, plan_adoption, undo
from lakelock.admin.executor_archive import ExecutorArchive, default_name, write_archive
from lakelock.admin.java_writers import java_options
from lakelock.admin.manual_changes import refuse_live
from lakelock.cli.arguments import Call, DryRunOption, JsonOption, location_of, on_table, resolved
from lakelock.cli.locks import JavaPropertiesOption, ReasonOption, YesOption, check_java_file, commit_lock, tell_java
from lakelock.cli.output import Output, reporting
from lakelock.errors import SettingsError
from lakelock.occ.publish import has_table
from lakelock.occ.recorded_lock import recorded_guard, recorded_provider
from lakelock.settings import ConcurrencySettings
from lakelock.settings.resolver import Explained
from lakelock.storage import Storage
from lakelock.texts import counted


@on_table
def adopt_table(
    call: Call,
    dry_run: DryRunOption = False,
    assume_utc: Annotated[
        bool, typer.Option("--assume-utc", help="You know that the instants are in UTC, though their files do not prove it.")
    ] = False,
    drop_metadata_table: Annotated[
        bool, typer.Option("--drop-metadata-table", help="Drop Hudi's metadata table instead of keeping it true.")
    ] = False,
    remove_indexes: Annotated[
        bool, typer.Option("--remove-indexes", help="Remove the indexes in Hudi's metadata table that lakelock does not keep.")
    ] = False,
    undoing: Annotated[bool, typer.Option("--undo", help="Take it back, as long as nothing was committed since.")] = False,
    reason: ReasonOption = "",
    java_properties: JavaPropertiesOption = None,
    yes: YesOption = False,
) -> None:
    """Make a table of Java Hudi writable where a write is refused.

    Prints what its Java writers need. Sets its zone to UTC if its instants prove it, as the first write does, or if you know
    it. Its metadata table is kept. Stop all writers first. Rows and instants stay as they are. From then on each Java writer
    needs the properties that it prints, the lock among them; --java-properties writes them to a file.
    """
    wishes = Wishes(assume_utc, drop_metadata_table, remove_indexes)
    if undoing and (dry_run or java_properties is not None or wishes != Wishes()):
        raise SettingsError(
            "--undo takes no other wish, and has no --dry-run", hint="leave out --undo, or what is given with it"
        )
    with call.opened(lock=True) as coordinator:
        lock, java = commit_lock(coordinator).identity, java_options(coordinator.properties, coordinator.table.settings)
        check_java_file(java_properties, java, lock)
        if undoing:
            changed = undo(coordinator, reason=reason)
            call.out.show({"table": coordinator.table.storage.uri, "changes": changed}, lambda o: o.line(_UNDONE))
            return
        plan = plan_adoption(coordinator, wishes)
        if plan.needed and not dry_run and not yes:
            call.ask(f"Change {plan.table}?", lambda o: _print_plan(o, plan))
        done = plan if dry_run or not plan.needed else adopt(coordinator, wishes, reason=reason)
        values = {**asdict(done), "dry_run": dry_run, "java_options": java, "lock": lock}
        call.out.show(values, lambda o: _print_adoption(o, call, done))
        tell_java(call.out, java, lock, java_properties, coordinator.table.storage.uri)
        if dry_run and done.needed:
            refuse_live(coordinator.table, done.live)


_UNDONE = "undone: the zone is what it was; a metadata table that was dropped is built anew by the next Java writer"


def _print_adoption(out: Output, then: Call, done: Adoption) -> None:
    if not done.needed:
        out.line("nothing to do: lakelock writes this table as it is")
        return
    _print_plan(out, done)
    if done.done:
        out.line(f"done; `{then.command('adopt', '--undo')}` takes it back until the first commit")


def _print_plan(out: Output, plan: Adoption) -> None:
    would = "" if plan.done else "would "
    for key, value in plan.changes.items():
        out.line(f"{would}set {key}={value}" if value is not None else f"{would}take out {key}")
    for folder in plan.dropped:
        out.line(f"{would}delete {folder}, of Hudi's metadata table")
    if plan.proven:
        out.line(f"{counted(plan.proven, 'instant')} proven to be in UTC: the storage stamped files at these times")
    if plan.archived:
        out.line("older instants are archived and were not looked at")
    for name in plan.live:
        out.line(f"in the way: {name}")


@on_table
def register_table(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="The name, such as sales.orders; else catalog.table.")] = "",
) -> None:
    """Tell a Hive metastore or Glue what the table is now.

    That is its columns, its partitions and its newest commit. Writers with `catalog.table` do so after each commit; this makes
    the first entry, or tells what a commit could not.
    """
    with call.opened() as coordinator:
        synced = coordinator.register(name)
        call.out.show(asdict(synced), lambda o: o.line(str(synced)))


@on_table
def profile(
    call: Call,
    require: Annotated[
        Literal["strict", "delta", "hive", "hudi"] | None,
        typer.Option("--require", help="Refuse writers with a weaker profile than this.", show_default=False),
    ] = None,
    isolation: Annotated[
        Literal["Serializable", "WriteSerializable"] | None,
        typer.Option("--isolation", help="With --require delta: refuse writers with a weaker level.  [default: Serializable]"),
    ] = None,
    release: Annotated[bool, typer.Option("--release", help="Admit writers with any profile.")] = False,
) -> None:
    """Show or change the weakest profile that writers may have."""
    if isolation and not require:
        raise SettingsError("--isolation says which level of delta is required", hint="add --require delta")
    if require and release:
        raise SettingsError("--require and --release contradict each other", hint="give one of them")
    wanted = isolation or "Serializable"
    if require:
        ConcurrencySettings(profile=require, isolation=wanted).check_together()
    with call.opened(lock=bool(require or release)) as coordinator:
        if require or release:
            coordinator.require_profile(require or "", wanted if require else "")
        storage = coordinator.table.storage
        guard = recorded_guard(storage)
        required = guard.profile if guard else ""
        level = guard.isolation if guard and required == "delta" else ""
        text = f"{required} ({level})" if level else required or "none: writers may have any"
        values = {"table": storage.uri, "required": required or None, "isolation": level or None}
        call.out.show(values, lambda o: o.line(f"required profile: {text}"))


config_app = typer.Typer(no_args_is_help=True, help="Which settings are in effect.")


@config_app.command("explain")
@on_table
def explain(call: Call) -> None:
    """Print each setting in effect for a table and where it came from; secrets are masked.

    Spark conf is not visible from here: what a job sets there wins over the file.
    """
    found = resolved(call.config, call.overrides)
    storage = location_of(call.path, found.settings).open()
    recorded = recorded_provider(storage)
    rows = found.explain()
    values = {
        "table": storage.uri,
        "recorded_lock": recorded,
        "settings": [asdict(row) for row in rows],
        "warnings": list(found.warnings),
    }
    call.out.show(values, lambda o: _print_settings(o, rows, found.warnings, _guard(storage, recorded)))


def _guard(storage: Storage, recorded: str | None) -> str:
    if recorded:
        return f"the table is guarded by {recorded}"
    if has_table(storage):
        return "no lakelock writer has written to this table yet"
    return f"there is no table at {storage.uri} yet"


def _print_settings(out: Output, rows: list[Explained], warnings: tuple[str, ...], guard: str) -> None:
    cells = [(row.key, f"{row.value} {row.unit}".strip(), row.origin, row.doc) for row in rows]
    out.table(("setting", "value", "from", "meaning"), cells, empty="no settings")
    for warning in warnings:
        out.line(f"warning: {warning}")
    out.line(guard)


def package(
    file: Annotated[
        Path | None,
        typer.Argument(help="The archive to write; default: a name with the version, in this folder.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Pack lakelock and what it needs for Spark executors."""
    with reporting(as_json) as out:
        made = write_archive(file or Path(default_name()))
        values = {
            "file": str(made.path), "size_bytes": made.size_bytes, "python": made.python, "platform": made.platform,
            "packages": made.packages, "spark": dict(made.spark_options),
        }  # fmt: skip
        out.show(values, lambda o: _print_archive(o, made))


def _print_archive(out: Output, made: ExecutorArchive) -> None:
    what = f"{made.size_bytes / 1_000_000:.0f} MB, {counted(len(made.packages), 'package')}"
    out.line(f"{made.path}: {what}, for Python {made.python} on {made.platform}")
    out.line("Give it to the executors by the Spark conf:")
    for name, value in made.spark_options.items():
        out.line("  " + shlex.join(["--conf", f"{name}={value}"]))
