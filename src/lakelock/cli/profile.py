"""`lakelock profile`: the weakest profile that writers of a table may have."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from lakelock.cli.arguments import ConfigOption, JsonOption, SetOption, TableArgument, opened
from lakelock.cli.output import reporting
from lakelock.errors import SettingsError
from lakelock.occ.records.lock import recorded_guard
from lakelock.settings import ConcurrencySettings


def profile(
    path: TableArgument,
    require: Annotated[
        Literal["strict", "delta", "hive", "hudi"] | None,
        typer.Option("--require", help="Refuse writers with a weaker profile than this.", show_default=False),
    ] = None,
    isolation: Annotated[
        Literal["Serializable", "WriteSerializable"] | None,
        typer.Option("--isolation", help="With --require delta: refuse writers with a weaker level.  [default: Serializable]"),
    ] = None,
    release: Annotated[bool, typer.Option("--release", help="Admit writers with any profile.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show or change the weakest profile that writers of a table may have."""
    with reporting(as_json) as out:
        if isolation and not require:
            raise SettingsError("--isolation says which level of delta is required", hint="add --require delta")
        if require and release:
            raise SettingsError("--require and --release contradict each other", hint="give one of them")
        wanted = isolation or "Serializable"
        if require:
            ConcurrencySettings(profile=require, isolation=wanted).check_together()
        with opened(path, config, settings, lock=bool(require or release)) as coordinator:
            if require or release:
                coordinator.require_profile(require or "", wanted if require else "")
            storage = coordinator.table.storage
            guard = recorded_guard(storage)
            required = guard.profile if guard else ""
            level = guard.isolation if guard and required == "delta" else ""
            told = f"{required} ({level})" if level else required or "none: writers may have any"
            values = {"table": storage.uri, "required": required or None, "isolation": level or None}
            out.show(values, lambda o: o.line(f"required profile: {told}"))
