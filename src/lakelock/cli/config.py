"""`lakelock config`: which settings are in effect, and where each came from."""

from __future__ import annotations

from dataclasses import asdict

import typer

from lakelock.cli.arguments import ConfigOption, JsonOption, SetOption, TableArgument, location_of, resolved
from lakelock.cli.output import Output, reporting
from lakelock.occ.publishing.settling import is_there
from lakelock.occ.records.lock import recorded_provider
from lakelock.settings.resolver import Explained
from lakelock.storage import Storage

app = typer.Typer(no_args_is_help=True, help="Which settings are in effect.")


@app.command("explain")
def explain(path: TableArgument, config: ConfigOption = None, settings: SetOption = None, as_json: JsonOption = False) -> None:
    """Print each setting in effect for a table and where it came from; secrets are masked.

    Spark conf is not visible from here: what a job sets there wins over the file.
    """
    with reporting(as_json) as out:
        found = resolved(config, settings)
        storage = location_of(path, found.settings).open()
        recorded = recorded_provider(storage)
        rows = found.explain()
        values = {
            "table": storage.uri,
            "recorded_lock": recorded,
            "settings": [asdict(row) for row in rows],
            "warnings": list(found.warnings),
        }
        out.show(values, lambda o: _print(o, rows, found.warnings, _guard(storage, recorded)))


def _guard(storage: Storage, recorded: str | None) -> str:
    if recorded:
        return f"the table is guarded by {recorded}"
    if is_there(storage):
        return "no lakelock writer has written to this table yet"
    return f"there is no table at {storage.uri} yet"


def _print(out: Output, rows: list[Explained], warnings: tuple[str, ...], guard: str) -> None:
    cells = [(row.key, f"{row.value} {row.unit}".strip(), row.origin, row.doc) for row in rows]
    out.table(("setting", "value", "from", "meaning"), cells, empty="no settings")
    for warning in warnings:
        out.line(f"warning: {warning}")
    out.line(guard)
