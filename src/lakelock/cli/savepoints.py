"""`lakelock savepoint`: keep the table as of one commit until the savepoint is deleted."""

from __future__ import annotations

from typing import Annotated

import typer

from lakelock.cli.arguments import ConfigOption, JsonOption, SetOption, TableArgument, opened
from lakelock.cli.output import Output, iso, plain, reporting
from lakelock.occ.upkeep.savepoints import Savepoint
from lakelock.texts import counted

app = typer.Typer(no_args_is_help=True, help="Keep the table as of one commit, whatever is cleaned.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the savepoint.", show_default=False)]


@app.command("create")
def create_savepoint(
    path: TableArgument,
    name: NameArgument,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="INSTANT", help="The commit to keep; default: the newest.", show_default=False),
    ] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep the files of the table as of a commit."""
    with reporting(as_json) as out, opened(path, config, settings, lock=True) as coordinator:
        made = coordinator.savepoint(name, as_of)
        out.show(_values(made), lambda o: o.line(f"{made.name} keeps {counted(made.files, 'file')} as of {made.instant}"))


@app.command("ls")
def list_savepoints(
    path: TableArgument, config: ConfigOption = None, settings: SetOption = None, as_json: JsonOption = False
) -> None:
    """List the savepoints, oldest commit first."""
    with reporting(as_json) as out, opened(path, config, settings) as coordinator:
        found = coordinator.savepoints()
        values = {"table": coordinator.table.storage.uri, "savepoints": [_values(each) for each in found]}
        out.show(values, lambda o: _print(o, found))


@app.command("rm")
def delete_savepoint(
    path: TableArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the savepoint, or its instant.", show_default=False)],
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a savepoint; cleaning may then delete its files."""
    with reporting(as_json) as out, opened(path, config, settings, lock=True) as coordinator:
        gone = coordinator.delete_savepoint(name)
        out.show(_values(gone), lambda o: o.line(f"deleted the savepoint {gone.name} of {gone.instant}"))


def _print(out: Output, found: list[Savepoint]) -> None:
    rows = [(each.name, each.instant, iso(each.at_ms), each.by, each.files) for each in found]
    out.table(("name", "instant", "taken", "by", "files"), rows, empty="there is no savepoint")


def _values(savepoint: Savepoint) -> dict[str, object]:
    return {**plain(savepoint), "taken": iso(savepoint.at_ms)}
