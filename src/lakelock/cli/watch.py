"""`lakelock watch`: who writes a table, who waits for whom and what was committed last, refreshed until a bound."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from lakelock.admin.watch import View, Watch, Writing, view_of
from lakelock.cli.arguments import ConfigOption, JsonOption, SetOption, TableArgument, opened
from lakelock.cli.columns import in_columns
from lakelock.cli.output import Output, console, iso, reporting
from lakelock.clock import Runtime
from lakelock.identity import OTHER_ENGINE
from lakelock.texts import counted


def watch(
    path: TableArgument,
    every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two refreshes.")] = 2.0,
    for_s: Annotated[float, typer.Option("--for", min=0.0, help="End after so many seconds.")] = 3600.0,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="End after so many refreshes.", show_default=False)
    ] = None,
    commits: Annotated[int, typer.Option("--commits", "-n", min=0, max=100, help="How many of the newest commits.")] = 5,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Watch who writes the table, who waits for whom, and what was committed last. Writes nothing; Ctrl-C ends it.

    With --json each refresh is one line. Ages of heartbeats compare the storage's clock with this machine's.
    """
    with reporting(as_json) as out, opened(path, config, settings, lock=True) as coordinator:
        uri, runtime = coordinator.table.storage.uri, coordinator.table.runtime
        views = _views(Watch(coordinator, commits), runtime, every, for_s, count)
        try:
            _show(out, uri, views)
        except KeyboardInterrupt:
            return


def _views(watched: Watch, runtime: Runtime, every_s: float, for_s: float, count: int | None) -> Iterator[View]:
    """The refreshes: at least one, and none after the bound."""
    end_s, shown = runtime.monotonic_s() + for_s, 0
    while True:
        yield view_of(watched.look())
        shown += 1
        if shown == count or runtime.monotonic_s() + every_s > end_s:
            return
        runtime.sleep(every_s)


def _show(out: Output, uri: str, views: Iterator[View]) -> None:
    screen = console(sys.stdout)
    if out.as_json:
        for view in views:
            out.json_line({"table": uri, "at": iso(view.at_ms), "view": view})
    elif screen.is_terminal:
        with Live(console=screen, auto_refresh=False, transient=False) as live:
            for view in views:
                live.update(rendered(uri, view, screen.width), refresh=True)
    else:
        for view in views:
            screen.print(rendered(uri, view, screen.width))


def rendered(uri: str, view: View, width: int) -> Group:
    """One refresh for people."""
    writing = [(w.instant, w.operation, w.writer, _sign(w), w.running_s, w.markers, w.claims) for w in view.writing]
    columns = ("writing", "operation", "by", "heartbeat", "for s", "files", "claims")
    lines = [f"commit lock: {view.holder or 'free'}"]
    lines += [f"data locks: {each}" for each in view.data_locks]
    lines += [f"{w.who} waits for {w.what}{', held by ' + ', '.join(w.on) if w.on else ''}" for w in view.waiting]
    lines += [f"reserved by {each}" for each in view.reserved]
    if view.unread_claims:
        lines.append(f"not read yet: {counted(view.unread_claims, 'claim')}")
    done = [
        (c.instant, c.operation, c.writer or OTHER_ENGINE, c.rows_inserted, c.rows_updated, c.rows_deleted, c.took_s)
        for c in view.commits
    ]
    names = ("committed", "operation", "by", "+", "~", "-", "took s")
    return Group(
        Text(f"{uri} at {iso(view.at_ms)}", style="bold"),
        in_columns(columns, writing, empty="nobody is writing", width=width),
        *(Text(line) for line in lines),
        in_columns(names, done, empty="no commit on the timeline", width=width),
    )


def _sign(writing: Writing) -> str:
    return "none" if writing.beat_age_s is None else f"{writing.sign}, {writing.beat_age_s:.0f} s ago"
