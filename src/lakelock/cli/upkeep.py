"""`lakelock upkeep`, `clean` and `archive`: remove old files and old instants while writers are live."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from lakelock.cli.arguments import ConfigOption, JsonOption, SetOption, TableArgument, opened
from lakelock.cli.output import Exit, Output, console, plain, reporting
from lakelock.occ.upkeep.archive import Archived
from lakelock.occ.upkeep.asked_retention import asked_retention
from lakelock.occ.upkeep.budget import Progress as Report
from lakelock.occ.upkeep.clean import Cleaned
from lakelock.occ.upkeep.run import Upkept
from lakelock.texts import counted, size_text

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
BudgetOption = Annotated[
    float | None,
    typer.Option("--budget", metavar="SECONDS", min=0.1, help="Start no new work after this long.", show_default=False),
]


def _instead(name: str, kept: str) -> Any:
    return typer.Option(name, help=f"Keep the table {kept}, instead of what clean.* says.", show_default=False)


def upkeep(
    path: TableArgument,
    dry_run: DryRunOption = False,
    budget_s: BudgetOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Finish what dead writers left behind, delete old files, archive old instants, collect old decisions.

    Live writers and readers are not disturbed. Exit code 1 if a step could not be done; the others are still done.
    """
    with reporting(as_json) as out, opened(path, config, _with_budget(settings, budget_s), lock=not dry_run) as coordinator:
        with _shown_progress() as report:
            done = coordinator.upkeep(dry_run=dry_run, progress=report)
        out.show({"table": coordinator.table.storage.uri, **plain(done)}, lambda o: _print_upkept(o, done))
        if done.problems:
            raise typer.Exit(Exit.ERROR)


def clean(
    path: TableArgument,
    keep_hours: Annotated[float | None, _instead("--keep-hours", "as of the last so many hours")] = None,
    keep_commits: Annotated[int | None, _instead("--keep-commits", "as of the newest so many commits")] = None,
    keep_versions: Annotated[int | None, _instead("--keep-versions", "with so many files of each file group")] = None,
    dry_run: DryRunOption = False,
    budget_s: BudgetOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete the old data files that `clean.*` does not keep (elsewhere called vacuum).

    With --keep-... it is an error, before any work, if somebody still needs a file that would go; otherwise such files stay.
    """
    with reporting(as_json) as out, opened(path, config, _with_budget(settings, budget_s), lock=not dry_run) as coordinator:
        configured = coordinator.table.settings.clean
        asked = asked_retention(configured, keep_hours=keep_hours, keep_commits=keep_commits, keep_versions=keep_versions)
        with _shown_progress() as report:
            done = coordinator.clean(dry_run=dry_run, progress=report, asked=asked)
        values = {"table": coordinator.table.storage.uri, "dry_run": dry_run, **plain(done)}
        out.show(values, lambda o: _print_cleaned(o, done, dry_run=dry_run))


def archive(
    path: TableArgument,
    dry_run: DryRunOption = False,
    budget_s: BudgetOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move the oldest instants from the active timeline to its history, where every reader still finds them."""
    with reporting(as_json) as out, opened(path, config, _with_budget(settings, budget_s), lock=not dry_run) as coordinator:
        with _shown_progress() as report:
            done = coordinator.archive(dry_run=dry_run, progress=report)
        values = {"table": coordinator.table.storage.uri, "dry_run": dry_run, **plain(done)}
        out.show(values, lambda o: _print_archived(o, done, dry_run=dry_run))


def _with_budget(settings: list[str] | None, budget_s: float | None) -> list[str]:
    return [*(settings or ()), *([f"upkeep.budget_s={budget_s:g}"] if budget_s is not None else ())]


@contextmanager
def _shown_progress() -> Iterator[Report]:
    """Shows progress, on a terminal only."""
    shown = console(sys.stderr)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=shown, transient=True,
        disable=not shown.is_terminal,
    ) as bar:  # fmt: skip
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=None)
            bar.update(tasks[what], completed=done, total=total or None)

        yield report


def _print_upkept(out: Output, done: Upkept) -> None:
    verb = "would finish" if done.dry_run else "finished"
    out.line(f"{verb} {counted(len(done.reaped), 'dead writer')}")
    _print_cleaned(out, done.cleaned, dry_run=done.dry_run)
    _print_archived(out, done.archived, dry_run=done.dry_run)
    out.line(f"{'would collect' if done.dry_run else 'collected'} {counted(done.collected, 'decision')}")
    if done.forgotten:
        out.line(f"{'would delete' if done.dry_run else 'deleted'} {counted(done.forgotten, 'old record')} of rejections")
    for problem in done.problems:
        out.note(f"problem: {problem}")
    if done.spent:
        out.line("the time for this run is over; the next run continues, or give this one more time with --budget")


def _print_cleaned(out: Output, done: Cleaned, *, dry_run: bool) -> None:
    for instant in done.finished:
        out.line(f"finished clean {instant}, which another writer had left unfinished")
    if done.yielded_to:
        out.line(f"another engine is cleaning ({done.yielded_to}); run again when it is done")
        return
    verb = "would delete" if dry_run else "deleted"
    out.line(f"{verb} {counted(done.files, 'old file')}, {size_text(done.size_bytes)}")
    if done.readable_from and done.files:
        out.line(f"the table {'would be' if dry_run else 'is'} readable as of {done.readable_from} and later")
    if done.held_by:
        out.line(f"what was replaced at {done.retained} or later stays for {done.held_by}")
    if done.left:
        out.line(f"left for the next run: {counted(done.left, 'file')}")


def _print_archived(out: Output, done: Archived, *, dry_run: bool) -> None:
    if done.finished:
        out.line(f"finished archiving {counted(done.finished, 'instant')}, which another writer had begun")
    verb = "would archive" if dry_run else "archived"
    span = f", {done.first} to {done.last}" if done.instants else ""
    out.line(f"{verb} {counted(done.instants, 'instant')}{span}")
    if done.held_by:
        out.line(f"more stays on the timeline for {done.held_by}")
