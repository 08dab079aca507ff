"""`lakelock register`: tells the catalog of a table, under a name that other engines read."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from lakelock.cli.arguments import ConfigOption, JsonOption, SetOption, TableArgument, opened
from lakelock.cli.output import reporting


def register_table(
    path: TableArgument,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="The name, such as sales.orders; else catalog.table.")] = "",
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell a Hive metastore or Glue of a table: its columns, its partitions and its newest commit.

    Writers with `catalog.table` do so after each commit; this makes the first entry, or tells what a commit could not.
    """
    with reporting(as_json) as out, opened(path, config, settings) as coordinator:
        synced = coordinator.register(name)
        out.show(asdict(synced), lambda o: o.line(str(synced)))
