"""`lakelock doctor`: is everything in place for this table, from the settings to the lock's round trip."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from lakelock.cli.arguments import ConfigOption, JsonOption, SetOption, TableArgument, location_of, resolved
from lakelock.cli.doctor.checks import examine
from lakelock.cli.doctor.context import Check, DoctorContext
from lakelock.cli.output import Exit, Output, reporting
from lakelock.clock import SystemRuntime
from lakelock.errors import TableError
from lakelock.storage import Storage
from lakelock.table import layout

_STYLES = {"ok": "green", "warning": "yellow", "failed": "bold red"}


def doctor(
    path: TableArgument,
    keys: Annotated[bool, typer.Option("--keys", help="Also read the key of every row, and name duplicates.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a table, its storage, its lock and this machine; exit code 1 when a check failed, 0 otherwise.

    Writes a few small objects under `.hoodie/` and removes them, and takes the commit lock once. Only the lock's own file
    stays. Warnings alone end with 0: jobs can run.
    """
    with reporting(as_json) as out:
        found = resolved(config, settings)
        storage = location_of(path, found.settings).open()
        _ensure_table(storage)
        checks = list(examine(DoctorContext(path, found, storage, SystemRuntime(), config, settings), keys=keys))
        failed = any(check.status == "failed" for check in checks)
        values = {"table": storage.uri, "ok": not failed, "checks": [asdict(check) for check in checks]}
        out.show(values, lambda o: _print(o, checks))
        if failed:
            raise typer.Exit(Exit.ERROR)


def _ensure_table(storage: Storage) -> None:
    """Refuse to examine a folder that is not a table: the checks would leave folders behind in it."""
    if storage.get(layout.PROPERTIES) is None:
        raise TableError(
            f"{storage.uri} is not a table: it has no {layout.PROPERTIES}",
            hint="check the path; LakeTable.create(...) makes a table",
        )


def _print(out: Output, checks: list[Check]) -> None:
    for check in checks:
        out.text(Text(f"{check.status:<8}", style=_STYLES[check.status]) + Text(f"{check.name:<10} {check.found}"))
        if check.hint:
            out.text(Text(f"{'':19}next: {check.hint}"))
