"""`lakelock timeline`: the transactions of a table as bars over time, with the conflicts between them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lakelock.admin.timeline_page import read_bars, timeline_page
from lakelock.cli.arguments import ConfigOption, JsonOption, SetOption, TableArgument, opened
from lakelock.cli.output import reporting
from lakelock.errors import InputError, SettingsError
from lakelock.texts import counted


def timeline(
    path: TableArgument,
    html: Annotated[
        Path | None, typer.Option("--html", help="The file to write the page to; not needed with --json.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many commits.")] = 200,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a page with who wrote when, for how long, who waited, and who was rejected because of whom.

    Rejected transactions are on it as long as their records are kept: a week.
    """
    with reporting(as_json) as out, opened(path, config, settings) as coordinator:
        if html is None and not as_json:
            raise SettingsError("a page needs a file", hint="add --html FILE, or --json for the data")
        bars, uri = read_bars(coordinator, limit), coordinator.table.storage.uri
        if html is not None:
            _write(html, timeline_page(uri, bars))
        values = {"table": uri, "html": str(html or ""), "transactions": [asdict(bar) for bar in bars]}
        met = sum(bool(bar.blocked_by) for bar in bars)
        told = f"{counted(len(bars), 'transaction')}, {met or 'none'} in conflict with another: {html}"
        out.show(values, lambda o: o.line(told))


def _write(html: Path, page: str) -> None:
    try:
        html.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {html}: {error.strerror or error}", hint="name a file in a folder") from error
