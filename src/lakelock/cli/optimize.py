"""`lakelock optimize`, `restore` and `repair`: joining small files, undoing the commits after a point in time, and taking out
commits that another engine has undone, without Spark.

One file after the other, a batch of rows at a time: right for a small table or a cron job, slower than a cluster.
"""

from __future__ import annotations

from typing import Annotated

import typer

from lakelock.cli.arguments import ConfigOption, JsonOption, Next, SetOption, TableArgument, opened
from lakelock.cli.output import Output, moment, plain, reporting
from lakelock.engine.arrow import ArrowEngine
from lakelock.occ.locking.targets import resources_of, within
from lakelock.occ.publishing.fate import SHARE_THE_LOCK
from lakelock.occ.services.optimize import has_buckets, plan_joins, without_rows
from lakelock.occ.services.repair import preview_repair
from lakelock.occ.services.restore import check_moment, kept_by, moment_of, preview_restore, undone_by
from lakelock.table.eligibility import check_writable
from lakelock.table.timeline import Timeline
from lakelock.texts import counted

PartitionOption = Annotated[
    list[str] | None,
    typer.Option("--partition", "-p", help="A partition or prefix, such as month=1. May be repeated.", show_default=False),
]
TagOption = Annotated[str, typer.Option("--tag", help="A note that the commit keeps.", show_default=False)]


def optimize_table(
    path: TableArgument,
    partition: PartitionOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be joined.")] = False,
    tag: TagOption = "",
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Join small files into bigger ones. No row changes, and every other write of the same files takes precedence."""
    with reporting(as_json) as out, opened(path, config, settings, lock=not dry_run) as coordinator:
        if dry_run:
            check_writable(coordinator.properties)
            targets = resources_of(partition, coordinator.properties)
            snapshot = coordinator.snapshot()
            files = [] if has_buckets(coordinator, snapshot) else snapshot.files
            chosen = [file for file in files if not targets or within(file.partition, targets)]
            is_empty = without_rows(snapshot)
            joins = plan_joins(chosen, coordinator.table.settings.optimize, is_empty=is_empty)
            count, new = sum(len(join.sources) for join in joins), sum(not all(map(is_empty, join.sources)) for join in joins)
            values = {"table": coordinator.table.storage.uri, "files_before": count, "files_after": new}
            out.show(values, lambda o: o.line(f"{counted(count, 'file')} would become {new:,}; nothing was changed"))
            return
        done = ArrowEngine(coordinator).optimize(partition=partition, tag=tag)
        values = {
            "table": coordinator.table.storage.uri,
            "instants": [commit.instant for commit in done.commits],
            "files_before": done.files_before,
            "files_after": done.files_after,
            "size_bytes": done.size_bytes,
            "yielded": done.yielded,
            "reasons": done.reasons,
        }
        out.show(values, lambda o: o.line(str(done)))


def restore_table(
    path: TableArgument,
    as_of: Annotated[
        str, typer.Argument(metavar="AS_OF", help="A savepoint, an instant, or a time in UTC such as 2026-11-21 09:27.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be undone.")] = False,
    tag: TagOption = "",
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Restore an earlier state of the table: a new commit undoes what came after it, and can be undone in the same way."""
    with reporting(as_json) as out, opened(path, config, settings, lock=not dry_run) as coordinator:
        table = coordinator.table
        as_of = moment_of(coordinator, as_of)
        before = table.timeline_of_one_moment()
        values: dict[str, object] = {"table": table.storage.uri, "dry_run": dry_run, "restored": None}
        if dry_run:
            found = preview_restore(coordinator, as_of)
            new, gone = len(found.plan.copies), len(found.plan.removed)
            values |= {"restored_to": found.kept, "undone": found.undone, "files_new": new, "file_groups_removed": gone}
            told = f"would restore to {_named(before, found.kept)}: {counted(len(found.undone), 'commit')} undone, "
            told += f"{counted(new, 'file')} written anew, {counted(gone, 'file group')} removed; nothing was changed"
            out.show(values, lambda o: o.line(told))
            return
        kept = kept_by(before, as_of)
        if not undone_by(before, as_of):
            check_moment(before, as_of, table.runtime.now_ms())
            values |= {"restored_to": kept, "undone": ()}
            out.show(values, lambda o: o.line(f"the newest commit is {_named(before, kept)}; nothing was to be done"))
            return
        done = ArrowEngine(coordinator).restore(as_of, tag=tag)
        undone = [instant for instant in undone_by(table.timeline(), as_of) if instant < done.instant]
        values |= {"restored": plain(done), "restored_to": kept, "undone": undone}
        undo = f"to undo this: {Next(path, config, settings).command('restore', before.commits[-1].requested)}"
        told = f"restored to {_named(before, kept)}, {counted(len(undone), 'commit')} undone, "
        told += f"{counted(done.files, 'file')} written anew"

        def show(o: Output) -> None:
            o.line(f"RESTORE {done.instant}: {told}")
            o.line(undo)

        out.show(values, show)


def repair_table(
    path: TableArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    tag: TagOption = "",
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take commits out of the table whose files another engine's rollback has removed, so that it can be read again.

    File groups that they had rewritten show their older rows again. Rows of these commits are lost: write them again.
    """
    with reporting(as_json) as out, opened(path, config, settings, lock=not dry_run) as coordinator:
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

        out.show(values, show)


def _named(timeline: Timeline, instant: str) -> str:
    """A commit with the time at which it completed, if the timeline has it."""
    completion = next((i.completion for i in timeline.commits if i.requested == instant), None)
    return f"{instant} ({moment(completion or instant)} UTC)"
