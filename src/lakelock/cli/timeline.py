"""Commands that show how writers got along: `lakelock timeline` and `audit`.

`timeline` draws the transactions as bars over time, with the conflicts between them. `audit` says whether commits of other
engines and of lakelock stayed out of each other's way.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lakelock.admin.timeline_page import read_bars, timeline_page
from lakelock.cli.arguments import Call, on_table
from lakelock.cli.output import Exit, Output
from lakelock.errors import InputError, SettingsError
from lakelock.identity import name_of
from lakelock.occ.foreign import HINT, Audited, Overlap, audit
from lakelock.occ.publish import SHARE_THE_LOCK
from lakelock.texts import counted


@on_table
def timeline(
    call: Call,
    html: Annotated[
        Path | None, typer.Option("--html", help="The file to write the page to; not needed with --json.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many commits.")] = 200,
) -> None:
    """Write a page with who wrote when, and who was rejected.

    It shows for how long each wrote and waited, and because of whom it was rejected. Rejected transactions are on it as long as
    their records are kept: a week.
    """
    with call.opened() as coordinator:
        if html is None and not call.out.as_json:
            raise SettingsError("a page needs a file", hint="add --html FILE, or --json for the data")
        bars, uri = read_bars(coordinator, limit), coordinator.table.storage.uri
        if html is not None:
            _write(html, timeline_page(uri, bars))
        values = {"table": uri, "html": str(html or ""), "transactions": [asdict(bar) for bar in bars]}
        met = sum(bool(bar.blocked_by) for bar in bars)
        summary = f"{counted(len(bars), 'transaction')}, {met or 'none'} in conflict with another: {html}"
        call.out.show(values, lambda o: o.line(summary))


def _write(html: Path, page: str) -> None:
    try:
        html.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {html}: {error.strerror or error}", hint="name a file in a folder") from error


@on_table
def audit_table(
    call: Call,
    limit: Annotated[int, typer.Option("--limit", "-n", min=2, help="How many of the newest commits to read.")] = 1000,
) -> None:
    """Find rewrites unaware of each other, and undone commits.

    Exit code 4 if commits rewrote the same file groups unaware of each other, or another engine has undone a commit. Both mean
    that some writer, such as Java Hudi, takes no lock or a different one. The command only reads.
    """
    with call.opened() as coordinator:
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
        next_steps = f"{call.command('repair')}; then write their rows again. {SHARE_THE_LOCK}"
        call.out.show(values, lambda o: _print(o, done, next_steps))
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
