"""Commands that show how writers get along: `lakelock watch`, `timeline` and `audit`.

`watch` shows who writes a table, who waits for whom and what was committed last, refreshed until a bound. `timeline`
draws the transactions as bars over time, with the conflicts between them. `audit` says whether commits of other engines
and of lakelock stayed out of each other's way.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from lakelock.admin.timeline_page import read_bars, timeline_page
from lakelock.admin.watch import View, Watch, Writing, view_of
from lakelock.cli.arguments import ConfigOption, JsonOption, Next, SetOption, TableArgument, opened
from lakelock.cli.output import Exit, Output, console, in_columns, iso, reporting
from lakelock.clock import Runtime
from lakelock.errors import InputError, SettingsError
from lakelock.identity import OTHER_ENGINE, name_of
from lakelock.occ.overlaps import HINT, Audited, Overlap, audit
from lakelock.occ.publish import SHARE_THE_LOCK
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


def audit_table(
    path: TableArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=2, help="How many of the newest commits to read.")] = 1000,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find commits that rewrote the same file groups unaware of each other, and commits that another engine has undone; exit
    code 4 if there are any.

    Both mean that some writer, such as Java Hudi, takes no lock or a different one. The command only reads.
    """
    with reporting(as_json) as out, opened(path, config, settings) as coordinator:
        done = audit(coordinator.table, limit)
        found = done.overlaps
        values = {
            "table": coordinator.table.storage.uri,
            "commits": done.read,
            "not_read": done.older,
            "has_archive": done.has_archive,
            "undone": [each.as_dict() for each in done.undone],
            "overlaps": [{**_side("first", o), **_side("second", o), "file_groups": list(map(str, o.groups))} for o in found],
        }
        next_steps = f"{Next(path, config, settings).command('repair')}; then write their rows again. {SHARE_THE_LOCK}"
        out.show(values, lambda o: _print(o, done, next_steps))
        if found or done.undone:
            raise typer.Exit(Exit.CONFLICT)


def _side(name: str, overlap: Overlap) -> dict[str, object]:
    party = overlap.first if name == "first" else overlap.second
    return {
        name: party.instant,
        f"{name}_completion": party.completion,
        f"{name}_operation": party.operation,
        f"{name}_writer": name_of(party.writer),
    }


def _print(out: Output, done: Audited, repair: str) -> None:
    for each in done.undone:
        out.line(str(each))
    if done.undone:
        out.line(f"next: {repair}")
    for overlap in done.overlaps:
        out.line(str(overlap))
    if done.overlaps:
        out.line(f"next: {HINT}")
    elif not done.undone:
        out.line(f"{counted(done.read, 'commit')}: none rewrote file groups behind the back of another, and none was undone")
    if done.older:
        out.line(f"not read: {counted(done.older, 'older commit')}; to read them, too: --limit {done.read + done.older}")
    if done.has_archive:
        out.line("archived commits were not read")
