"""`lakelock` on the command line. Text for people, `--json` for programs.

Exit codes: 0 ok, 1 error, 2 usage, 3 lock held, 4 conflict (or: this instant was rejected), 5 outcome unknown (yet).
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from lakelock.cli import commits, config, conflicts, locks, markers, savepoints
from lakelock.cli.adopt import adopt_table
from lakelock.cli.audit import audit_table
from lakelock.cli.doctor.command import doctor
from lakelock.cli.optimize import optimize_table, repair_table, restore_table
from lakelock.cli.package import package
from lakelock.cli.profile import profile
from lakelock.cli.register import register_table
from lakelock.cli.timeline import timeline
from lakelock.cli.upkeep import archive, clean, upkeep
from lakelock.cli.usage import Commands
from lakelock.cli.watch import watch

app = typer.Typer(
    name="lakelock",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Look at a lakelock table, its commits, its lock and its writers, and clean up where a writer died.",
    epilog="Exit codes: 0 ok, 1 error, 2 usage, 3 lock held, 4 conflict or rejected, 5 outcome unknown.",
)
app.command("doctor")(doctor)
app.command("audit")(audit_table)
app.command("adopt")(adopt_table)
app.command("optimize")(optimize_table)
app.command("restore")(restore_table)
app.command("repair")(repair_table)
app.command("package")(package)
app.command("profile")(profile)
app.command("register")(register_table)
app.command("timeline")(timeline)
app.command("watch")(watch)
app.command("upkeep")(upkeep)
app.command("clean")(clean)
app.command("archive")(archive)
app.add_typer(commits.app, name="commits")
app.add_typer(config.app, name="config")
app.add_typer(conflicts.app, name="conflicts")
app.add_typer(locks.app, name="locks")
app.add_typer(markers.app, name="markers")
app.add_typer(savepoints.app, name="savepoint")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lakelock {version('lakelock')}")
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
