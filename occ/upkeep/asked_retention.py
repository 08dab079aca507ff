"""Retention that somebody asks for in one call: refused if it would take files that are still needed.

Upkeep that runs by itself keeps such files and says for whom. Whoever asks for a shorter retention wants the old files gone,
so it is an error if they had to stay.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from lakelock.errors import InputError
from lakelock.occ.open_table import OpenTable
from lakelock.occ.upkeep.clean_policy import COMMITS, HOURS, READERS, VERSIONS, Retention
from lakelock.occ.upkeep.savepoints import list_savepoints, saved_at
from lakelock.settings import CleanSettings
from lakelock.table.snapshot import DataFile
from lakelock.table.timeline import Timeline
from lakelock.texts import command, counted

_POLICIES = {"keep_hours": HOURS, "keep_commits": COMMITS, "keep_versions": VERSIONS}


def asked_retention(
    settings: CleanSettings,
    *,
    keep_hours: float | None = None,
    keep_commits: int | None = None,
    keep_versions: int | None = None,
) -> CleanSettings | None:
    """The settings with the one retention that was given, None if none was. `InputError` for more than one."""
    values = {"keep_hours": keep_hours, "keep_commits": keep_commits, "keep_versions": keep_versions}
    given = {name: value for name, value in values.items() if value is not None}
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} exclude each other", hint=f"give one of {', '.join(values)}")
    if not given:
        return None
    changes: dict[str, object] = {"policy": _POLICIES[next(iter(given))], **given}
    return replace(settings, **changes)  # type: ignore[arg-type]


def ensure_not_needed(table: OpenTable, timeline: Timeline, kept: Retention, files: Collection[DataFile]) -> None:
    """`InputError` that names who needs the files, which the retention alone would delete; nothing if there are none."""
    if not files:
        return
    holder, hint = _holder(table, timeline, kept, {file.key for file in files})
    raise InputError(
        f"{table.storage.uri}: this retention would delete {counted(len(files), 'file')} kept for {holder}",
        hint=f"{hint}; or ask for no retention: then the settings clean.* apply, and what is needed stays",
    )


def _holder(table: OpenTable, timeline: Timeline, kept: Retention, keys: set[str]) -> tuple[str, str]:
    """Who needs one of the files, and what to do about it."""
    for savepoint in list_savepoints(table):
        if keys & (saved_at(table, timeline, savepoint.instant) or frozenset()):
            remove = command("savepoint", "rm", table.storage.uri, savepoint.instant)
            return f"the savepoint {savepoint.name!r} of {savepoint.instant}", f"delete it first: {remove}"
    if kept.held_by:
        who = f"{kept.held_by}; nothing that was current at {kept.settled} or later may go"
        if READERS in kept.held_by:
            return who, f"make sure that nobody reads the table as it was, and clean with {READERS}=0; or run again later"
        return who, f"wait until it has ended ({command('commits', 'ls', table.storage.uri)}), and run again"
    plans = ", ".join(str(plan) for plan in timeline.pending_clustering)
    return f"another engine's plan: {plans}", "let that engine carry it out"
