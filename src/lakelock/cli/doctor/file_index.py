"""What `lakelock doctor` says about the file index: it names the files that a listing shows, and no other."""

from __future__ import annotations

from collections.abc import Iterator

from lakelock.cli.doctor.context import Check, DoctorContext
from lakelock.occ.file_index.index import FileIndex
from lakelock.occ.records.decisions import DecisionLog
from lakelock.table.snapshot import DataFile, Snapshot
from lakelock.table.timeline import read_timeline
from lakelock.texts import counted

SHOWN = 5


def check_index(context: DoctorContext) -> Iterator[Check]:
    """The newest checkpoint and the commits after it, compared with a listing of all files."""
    problems: list[str] = []
    storage = context.shown
    index = FileIndex(
        context.io(storage),
        context.settings,
        DecisionLog(storage),
        problems.append,
    )
    timeline = read_timeline(storage)
    state = index.state_at(timeline)
    for problem in problems:
        yield Check("index", "warning", problem, "nothing to do: the next checkpoint replaces it")
    if state is None:
        found = "off" if not index.is_on else "no checkpoint yet"
        yield Check("index", "ok", f"{found}; the files are listed")
        return
    told = Snapshot(slices=state).files
    there = {item.key: item.size_bytes for item in storage.list("")}
    undone = {key for each in context.undone for key in each.gone}  # the check of contents says so
    gone = [file.key for file in told if there.get(file.key) != file.size_bytes and file.key not in undone]
    # A commit made since the timeline was listed is newer than everything in it.
    named = {file.key for file in told}
    newest = {file.group: file.instant for file in told}
    strays = []
    for key in there:
        file = DataFile.parse(key)
        if file is None or key in named or not timeline.is_visible(file.instant) or state.is_replaced(file.group):
            continue
        if file.instant >= newest.get(file.group, file.instant):
            strays.append(key)
    if gone:
        restore = context.next("restore", "AS_OF")
        hint = f"restore these files from a backup, or the table to a state without them: {restore}"
        yield Check("index", "failed", f"{len(gone)} of {counted(len(told), 'file')} not there as named: {_some(gone)}", hint)
    if strays:
        hint = f"late attempts of tasks left them; {context.next('markers reap')} removes those that are announced"
        found = f"no commit names {counted(len(strays), 'file')} that other readers show: {_some(strays)}"
        yield Check("index", "warning", found, hint)
    if not gone and not strays and not undone:
        later = counted(len(state.effects), "commit")
        after = f"{later} after a checkpoint" if state.base.coverage.instants else "no checkpoint yet"
        yield Check("index", "ok", f"the commits and a listing agree on {counted(len(told), 'file')}; {after}")


def _some(keys: list[str]) -> str:
    return ", ".join(sorted(keys)[:SHOWN])
