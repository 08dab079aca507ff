"""`lakelock upkeep`, `clean`, `archive`, `savepoint`, `optimize`, `restore` and `repair`: upkeep without Spark.

Writers may be live. `clean` and `archive` remove old files and old instants; a savepoint keeps the table as of one commit
until it is deleted. `optimize` joins small files, `restore` undoes the commits after a point in time, and `repair` takes
out commits that another engine has undone: one file after the other, a batch of rows at a time, which is right for a
small table or a cron job, and slower than a cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from lakelock.cli.arguments import Call, DryRunOption, PartitionOption, on_table
from lakelock.cli.output import Exit, Output, console, iso, moment, plain
from lakelock.engine.arrow import ArrowEngine
from lakelock.engine.batch import compacts
from lakelock.occ.archive import Archived
from lakelock.occ.clean import Cleaned, asked_retention
from lakelock.occ.live_logs import logged_files
from lakelock.occ.optimize import has_buckets, plan_joins, without_rows
from lakelock.occ.publish import SHARE_THE_LOCK
from lakelock.occ.request import resources_of, within
from lakelock.occ.restore import check_moment, kept_by, moment_of, preview_repair, preview_restore, undone_by
from lakelock.occ.retention import Progress as Report
from lakelock.occ.savepoints import Savepoint
from lakelock.occ.upkeep import Upkept
from lakelock.table.eligibility import check_writable
from lakelock.table.timeline import Timeline
from lakelock.texts import counted, size_text

BudgetOption = Annotated[
    float | None,
    typer.Option("--budget", metavar="SECONDS", min=0.1, help="Start no new work after this long.", show_default=False),
]


def _instead(name: str, kept: str) -> Any:
    return typer.Option(name, help=f"Keep the table {kept}, instead of what clean.* says.", show_default=False)


@on_table
def upkeep(
    call: Call,
    dry_run: DryRunOption = False,
    budget_s: BudgetOption = None,
) -> None:
    """Clean up after dead writers, compact, clean and archive.

    Finishes what the dead left, compacts log files, deletes old files, archives old instants and collects old decisions.
    Live writers and readers are not disturbed. Exit code 1 if a step could not be done; the others are still done.
    """
    with _within(call, budget_s).opened(lock=not dry_run) as coordinator:
        compacts(coordinator)
        with _shown_progress() as report:
            done = coordinator.upkeep(dry_run=dry_run, progress=report)
        call.out.show({"table": coordinator.table.storage.uri, **plain(done)}, lambda o: _print_upkept(o, done))
        if done.problems:
            raise typer.Exit(Exit.ERROR)


@on_table
def clean(
    call: Call,
    keep_hours: Annotated[float | None, _instead("--keep-hours", "as of the last so many hours")] = None,
    keep_commits: Annotated[int | None, _instead("--keep-commits", "as of the newest so many commits")] = None,
    keep_versions: Annotated[int | None, _instead("--keep-versions", "with so many files of each file group")] = None,
    dry_run: DryRunOption = False,
    budget_s: BudgetOption = None,
) -> None:
    """Delete the old data files (elsewhere called vacuum).

    The settings `clean.*` say what is kept. With --keep-... it is an error, before any work, if a file that would go is still
    needed; otherwise such files stay.
    """
    with _within(call, budget_s).opened(lock=not dry_run) as coordinator:
        configured = coordinator.table.settings.clean
        asked = asked_retention(configured, keep_hours=keep_hours, keep_commits=keep_commits, keep_versions=keep_versions)
        with _shown_progress() as report:
            done = coordinator.clean(dry_run=dry_run, progress=report, asked=asked)
        values = {"table": coordinator.table.storage.uri, "dry_run": dry_run, **plain(done)}
        call.out.show(values, lambda o: _print_cleaned(o, done, dry_run=dry_run))


@on_table
def archive(
    call: Call,
    dry_run: DryRunOption = False,
    budget_s: BudgetOption = None,
) -> None:
    """Move the oldest instants from the timeline to its history.

    Every reader still finds them there.
    """
    with _within(call, budget_s).opened(lock=not dry_run) as coordinator:
        with _shown_progress() as report:
            done = coordinator.archive(dry_run=dry_run, progress=report)
        values = {"table": coordinator.table.storage.uri, "dry_run": dry_run, **plain(done)}
        call.out.show(values, lambda o: _print_archived(o, done, dry_run=dry_run))


def _within(call: Call, budget_s: float | None) -> Call:
    return call if budget_s is None else replace(call, overrides=[*(call.overrides or ()), f"upkeep.budget_s={budget_s:g}"])


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
    if done.compacted:
        out.line(f"{'would compact' if done.dry_run else 'compacted'} log files of {counted(done.compacted, 'file group')}")
    _print_cleaned(out, done.cleaned, dry_run=done.dry_run)
    _print_archived(out, done.archived, dry_run=done.dry_run)
    if done.metadata.compacted:
        out.line(f"{'would compact' if done.dry_run else 'compacted'} Hudi's metadata table")
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
        out.line(f"other instants stay on the timeline because of {done.held_by}")


savepoints_app = typer.Typer(no_args_is_help=True, help="Keep the table as of one commit, whatever is cleaned.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the savepoint.", show_default=False)]


@savepoints_app.command("create")
@on_table
def create_savepoint(
    call: Call,
    name: NameArgument,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="INSTANT", help="The commit to keep; default: the newest.", show_default=False),
    ] = None,
) -> None:
    """Keep the files of the table as of a commit."""
    with call.opened(lock=True) as coordinator:
        made = coordinator.savepoint(name, as_of)
        call.out.show(_values(made), lambda o: o.line(f"{made.name} keeps {counted(made.files, 'file')} as of {made.instant}"))


@savepoints_app.command("ls")
@on_table
def list_savepoints(call: Call) -> None:
    """List the savepoints, oldest commit first."""
    with call.opened() as coordinator:
        found = coordinator.savepoints()
        values = {"table": coordinator.table.storage.uri, "savepoints": [_values(each) for each in found]}
        call.out.show(values, lambda o: _print(o, found))


@savepoints_app.command("rm")
@on_table
def delete_savepoint(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the savepoint, or its instant.", show_default=False)],
) -> None:
    """Delete a savepoint; cleaning may then delete its files."""
    with call.opened(lock=True) as coordinator:
        gone = coordinator.delete_savepoint(name)
        call.out.show(_values(gone), lambda o: o.line(f"deleted the savepoint {gone.name} of {gone.instant}"))


def _print(out: Output, found: list[Savepoint]) -> None:
    rows = [(each.name, each.instant, iso(each.at_ms), each.by, each.files) for each in found]
    out.table(("name", "instant", "taken", "by", "files"), rows, empty="there is no savepoint")


def _values(savepoint: Savepoint) -> dict[str, object]:
    return {**plain(savepoint), "taken": iso(savepoint.at_ms)}


TagOption = Annotated[str, typer.Option("--tag", help="A note that the commit keeps.", show_default=False)]


@on_table
def optimize_table(
    call: Call,
    partition: PartitionOption = None,
    dry_run: DryRunOption = False,
    tag: TagOption = "",
) -> None:
    """Join small files into bigger ones, and compact log files.

    No row changes, and every other write of the same files takes precedence.
    """
    with call.opened(lock=not dry_run) as coordinator:
        if dry_run:
            check_writable(coordinator.properties)
            targets = resources_of(partition, coordinator.properties)
            snapshot = coordinator.snapshot()
            files = [] if has_buckets(coordinator, snapshot) else snapshot.files
            chosen = [file for file in files if not targets or within(file.partition, targets)]
            is_empty = without_rows(snapshot)
            joins = plan_joins(chosen, coordinator.table.settings.optimize, is_empty=is_empty)
            count, new = sum(len(join.sources) for join in joins), sum(not all(map(is_empty, join.sources)) for join in joins)
            joined = {file.group for join in joins for file in join.sources}
            logged = [f for f in logged_files(coordinator.table) if f.group not in joined]
            compacted = sum(not targets or within(file.partition, targets) for file in logged)
            values = {"table": coordinator.table.storage.uri, "files_before": count, "files_after": new, "compacted": compacted}
            joining = f"{counted(count, 'file')} would become {new:,}" if count else ""
            compacting = f"log files of {counted(compacted, 'file group')} would be compacted" if compacted else ""
            plan = ", ".join(filter(None, (joining, compacting))) or "nothing to do"
            call.out.show(values, lambda o: o.line(f"{plan}; nothing was changed"))
            return
        done = ArrowEngine(coordinator).optimize(partition=partition, tag=tag)
        values = {
            "table": coordinator.table.storage.uri,
            "instants": [commit.instant for commit in done.commits],
            "files_before": done.files_before,
            "files_after": done.files_after,
            "size_bytes": done.size_bytes,
            "compacted": done.compacted,
            "yielded": done.yielded,
            "reasons": done.reasons,
        }
        call.out.show(values, lambda o: o.line(str(done)))


@on_table
def restore_table(
    call: Call,
    as_of: Annotated[
        str, typer.Argument(metavar="AS_OF", help="A savepoint, an instant, or a time in UTC such as 2026-11-21 09:27.")
    ],
    dry_run: DryRunOption = False,
    tag: TagOption = "",
) -> None:
    """Restore an earlier state; this can be undone in the same way.

    A new commit undoes what came after that state.
    """
    with call.opened(lock=not dry_run) as coordinator:
        table = coordinator.table
        as_of = moment_of(coordinator, as_of)
        before = table.timeline_of_one_moment()
        values: dict[str, object] = {"table": table.storage.uri, "dry_run": dry_run, "restored": None}
        if dry_run:
            found = preview_restore(coordinator, as_of)
            new, gone = len(found.plan.copies), len(found.plan.removed)
            values |= {"restored_to": found.kept, "undone": found.undone, "files_new": new, "file_groups_removed": gone}
            text = f"would restore to {_named(before, found.kept)}: {counted(len(found.undone), 'commit')} undone, "
            text += f"{counted(new, 'file')} written anew, {counted(gone, 'file group')} removed; nothing was changed"
            call.out.show(values, lambda o: o.line(text))
            return
        kept = kept_by(before, as_of)
        if not undone_by(before, as_of):
            check_moment(before, as_of, table.runtime.now_ms())
            values |= {"restored_to": kept, "undone": ()}
            call.out.show(values, lambda o: o.line(f"the newest commit is {_named(before, kept)}; nothing was to be done"))
            return
        done = ArrowEngine(coordinator).restore(as_of, tag=tag)
        undone = [instant for instant in undone_by(table.timeline(), as_of) if instant < done.instant]
        values |= {"restored": plain(done), "restored_to": kept, "undone": undone}
        undo = f"to undo this: {call.command('restore', before.commits[-1].requested)}"
        text = f"restored to {_named(before, kept)}, {counted(len(undone), 'commit')} undone, "
        text += f"{counted(done.files, 'file')} written anew"

        def show(o: Output) -> None:
            o.line(f"RESTORE {done.instant}: {text}")
            o.line(undo)

        call.out.show(values, show)


@on_table
def repair_table(
    call: Call,
    dry_run: DryRunOption = False,
    tag: TagOption = "",
) -> None:
    """Take out commits whose files another engine has removed.

    So the table can be read again after a rollback by such an engine. File groups that they had rewritten show their older rows
    again. Rows of these commits are lost: write them again.
    """
    with call.opened(lock=not dry_run) as coordinator:
        table = coordinator.table
        done = preview_repair(coordinator) if dry_run else ArrowEngine(coordinator).repair(tag=tag)
        values = {
            "table": table.storage.uri,
            "dry_run": dry_run,
            "repaired": plain(done.committed) if done.committed is not None else None,
            "undone": [each.as_dict() for each in done.undone],
            "older_rows_again": list(map(str, done.again)),
            "dropped": list(map(str, done.dropped)),
            "rollbacks_removed": list(done.plans),
        }

        def show(o: Output) -> None:
            for each in done.undone:
                o.line(str(each))
            if done.plans:
                does = "would remove" if dry_run else "removed"
                o.line(f"{does} {counted(len(done.plans), 'rollback')} of commits, left half done: {', '.join(done.plans[:5])}")
            if not done.undone and not done.plans:
                o.line("no commit was undone by another engine; nothing was to be done")
            if not done.undone:
                return
            what = f"{counted(len(done.again), 'file group')} with the older rows again, {len(done.dropped)} dropped"
            if done.committed is None:
                o.line(f"would take out {counted(len(done.undone), 'commit')}: {what}; nothing was changed")
                return
            o.line(f"REPAIR {done.committed.instant}: {counted(len(done.undone), 'commit')} taken out, {what}")
            o.line(f"next: write the rows of these commits again; {SHARE_THE_LOCK}")

        call.out.show(values, show)


def _named(timeline: Timeline, instant: str) -> str:
    """A commit with the time at which it completed, if the timeline has it."""
    completion = next((i.completion for i in timeline.commits if i.requested == instant), None)
    return f"{instant} ({moment(completion or instant)} UTC)"
