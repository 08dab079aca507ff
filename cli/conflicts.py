"""`lakelock conflicts`: would two operations collide, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from lakelock.cli.arguments import ConfigOption, JsonOption, SetOption, TableArgument, opened
from lakelock.cli.output import Exit, Output, reporting
from lakelock.explanation import PairExplanation, Verdict

app = typer.Typer(no_args_is_help=True, help="Would two operations collide, and why.")

_EXITS = {Verdict.COLLIDES: Exit.CONFLICT, Verdict.DEPENDS: Exit.OK, Verdict.PASSES: Exit.OK}


@app.command("explain")
def explain_conflict(
    path: TableArgument,
    mine: Annotated[
        str,
        typer.Option("--mine", help='An operation, such as "DELETE month=1" or "READ v > 3".', show_default=False),
    ],
    theirs: Annotated[
        str,
        typer.Option("--theirs", help="Another operation, or the instant of a commit.", show_default=False),
    ],
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what becomes of my operation if the other runs at the same time and is decided first.

    An operation is one of INSERT, UPSERT, UPDATE, DELETE, MERGE, OVERWRITE, OPTIMIZE and READ, then a partition or a condition,
    or nothing for the whole table. The table's own rules are asked, of every profile. Reads only, and takes no lock.
    Exit code 4 if the two certainly collide, else 0.
    """
    with reporting(as_json) as out:
        with opened(path, config, settings) as coordinator:
            found = coordinator.explain_conflict(mine, theirs)
            values = {"table": coordinator.table.storage.uri, **found.as_dict()}
        out.show(values, lambda o: _print_pair(o, found))
        raise typer.Exit(_EXITS[found.verdict])


def _print_pair(out: Output, found: PairExplanation) -> None:
    out.fields(found.facts())
