"""`lakelock` on the command line. Text for people, `--json` for programs.

Exit codes: 0 ok, 1 error, 2 usage, 3 lock held, 4 conflict (or: this instant was rejected), 5 outcome unknown (yet).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import typer

from lakelock.cli.usage import Commands, Home
from lakelock.version import version


class _AllCommands(Commands):
    homes: ClassVar[Mapping[str, Home]] = {
        "doctor": Home(
            "lakelock.cli.doctor.command",
            "doctor",
            "Check a table, its storage, its lock and this machine; exit code 1 when a check failed, 0 otherwise.",
        ),
        "history": Home("lakelock.cli.commits", "list_commits", "List the newest commits, newest first."),
        "audit": Home(
            "lakelock.cli.audit",
            "audit_table",
            "Find commits that rewrote the same file groups unaware of each other, and commits that another engine has undone; "
            "exit code 4 if there are any.",
        ),
        "adopt": Home(
            "lakelock.cli.adopt",
            "adopt_table",
            "Make a table of Java Hudi's defaults writable: drop its metadata table, and set its zone to UTC if its "
            "instants prove it.",
        ),
        "optimize": Home(
            "lakelock.cli.optimize",
            "optimize_table",
            "Join small files into bigger ones. No row changes, and every other write of the same files takes precedence.",
        ),
        "restore": Home(
            "lakelock.cli.optimize",
            "restore_table",
            "Restore an earlier state of the table: a new commit undoes what came after it, and can be undone in the same way.",
        ),
        "repair": Home(
            "lakelock.cli.optimize",
            "repair_table",
            "Take commits out of the table whose files another engine's rollback has removed, so that it can be read again.",
        ),
        "package": Home(
            "lakelock.cli.package", "package", "Pack lakelock and what it needs into an archive for Spark executors."
        ),
        "profile": Home(
            "lakelock.cli.profile", "profile", "Show or change the weakest profile that writers of a table may have."
        ),
        "register": Home(
            "lakelock.cli.register",
            "register_table",
            "Tell a Hive metastore or Glue of a table: its columns, its partitions and its newest commit.",
        ),
        "timeline": Home(
            "lakelock.cli.timeline",
            "timeline",
            "Write a page with who wrote when, for how long, who waited, and who was rejected because of whom.",
        ),
        "watch": Home(
            "lakelock.cli.watch",
            "watch",
            "Watch who writes the table, who waits for whom, and what was committed last. Writes nothing; Ctrl-C ends it.",
        ),
        "upkeep": Home(
            "lakelock.cli.upkeep",
            "upkeep",
            "Finish what dead writers left behind, delete old files, archive old instants, collect old decisions.",
        ),
        "clean": Home(
            "lakelock.cli.upkeep", "clean", "Delete the old data files that `clean.*` does not keep (elsewhere called vacuum)."
        ),
        "archive": Home(
            "lakelock.cli.upkeep",
            "archive",
            "Move the oldest instants from the active timeline to its history, where every reader still finds them.",
        ),
        "commits": Home("lakelock.cli.commits", "app", "What was committed, and what became of one instant."),
        "config": Home("lakelock.cli.config", "app", "Which settings are in effect."),
        "conflicts": Home("lakelock.cli.conflicts", "app", "Would two operations collide, and why was an instant rejected."),
        "locks": Home("lakelock.cli.locks", "app", "The table's commit lock and its data locks."),
        "markers": Home("lakelock.cli.markers", "app", "What writers have announced, and what dead writers left."),
        "savepoint": Home("lakelock.cli.savepoints", "app", "Keep the table as of one commit, whatever is cleaned."),
    }


app = typer.Typer(
    name="lakelock",
    cls=_AllCommands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Look at a lakelock table, its commits, its lock and its writers, and clean up where a writer died.",
    epilog="Exit codes: 0 ok, 1 error, 2 usage, 3 lock held, 4 conflict or rejected, 5 outcome unknown.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lakelock {version()}")
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
