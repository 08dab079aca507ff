"""`lakelock timeline`: the transactions of a table as bars over time, with the conflicts between them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lakelock.admin.timeline_bars import read_bars
from lakelock.admin.timeline_page import timeline_page
from lakelock.cli.arguments import ConfigOption, JsonOption, SetOption, TableArgument, opened
from lakelock.cli.output import reporting


def timeline(
    path: TableArgument,
    html: Annotated[Path, typer.Option("--html", help="The file to write the page to.", show_default=False)],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many commits.")] = 200,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a page with who wrote when, for how long, who waited, and who was rejected because of whom.

    Rejected transactions are on it as long as their records are kept: a week.
    """
    with reporting(as_json) as out, opened(path, config, settings) as coordinator:
        bars, uri = read_bars(coordinator, limit), coordinator.table.storage.uri
        html.write_text(timeline_page(uri, bars), encoding="utf-8")
        values = {"table": uri, "html": str(html), "transactions": [asdict(bar) for bar in bars]}
        met = sum(bool(bar.blocked_by) for bar in bars)
        out.show(values, lambda o: o.line(f"{len(bars)} transactions, {met} of them in conflict with another: {html}"))
