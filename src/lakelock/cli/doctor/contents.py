"""What `lakelock doctor` says about a table's contents: every commit can be read, the files it names are there,
and no two rewrote a file group unaware of each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from lakelock.cli.doctor.context import Check, DoctorContext
from lakelock.errors import LakelockError
from lakelock.occ.conflicts.summary import CommitSummary
from lakelock.occ.foreign.overlaps import overlaps
from lakelock.occ.publishing.fate import SHARE_THE_LOCK
from lakelock.table.archive import read_commit
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Instant
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import LogFile
from lakelock.table.timeline import read_timeline
from lakelock.texts import counted

NEWEST_COMMITS = 1_000
"""How many commits are read: the timeline of a table that nobody archives can have any length."""
SHOWN = 5


def check_contents(context: DoctorContext) -> Iterator[Check]:
    """The newest commits can be read, and the newest file of each file group is as long as its commit says."""
    every = sorted(read_timeline(context.shown).commits)
    commits = every[-NEWEST_COMMITS:]
    calls = [partial(_read, context, instant) for instant in commits]
    found = context.runtime.gather(calls, limit=context.settings.listing.parallel_requests)
    broken = [error for error in found if isinstance(error, LakelockError)]
    for error in broken[:SHOWN]:
        yield Check("contents", "failed", error.message, error.hint)
    newest = newest_files(metadata for metadata in found if isinstance(metadata, CommitMetadata))
    sizes = {item.key: item.size_bytes for item in context.storage.list("")}
    undone = {path for each in context.undone for path in each.gone}
    for each in context.undone[:SHOWN]:
        again = "; then write their rows again" if each.gone else ""
        hint = f"{context.next('repair')}{again}. {SHARE_THE_LOCK}"
        yield Check("contents", "failed" if each.gone else "warning", str(each), hint)
    wrong = [_wrong(path, size, sizes) for path, size in newest if sizes.get(path) != size and path not in undone]
    hint = "readers fail or miss rows: restore the file from a backup or an older version of the object"
    for text in wrong[:SHOWN]:
        yield Check("contents", "failed", text, hint)
    if len(broken) > SHOWN or len(wrong) > SHOWN:
        total = f"{counted(len(broken), 'commit')} and {counted(len(wrong), 'file')}"
        yield Check("contents", "failed", f"damaged in total: {total}")
    if not broken and not wrong and not context.undone:
        unread = len(every) - len(commits)
        older = f"; not read: {counted(unread, 'older commit')}" if unread else ""
        files = counted(len(newest), "file")
        read = f"{counted(len(commits), 'commit')} can be read, and nothing is missing of {files}"
        yield Check("contents", "ok", f"{read}{older}")
    others = [
        CommitSummary.of(instant.requested, instant.completion or "", metadata, None)
        for instant, metadata in zip(commits, found, strict=True)
        if isinstance(metadata, CommitMetadata)
    ]
    for overlap in overlaps(others)[:SHOWN]:
        yield Check("contents", "warning", str(overlap), context.next("audit"))


def newest_files(commits: Iterable[CommitMetadata]) -> list[tuple[str, int]]:
    """Path and size of the newest file of each file group that is not replaced, by commits in the order of their instants."""
    newest: dict[FileGroupId, tuple[str, int]] = {}
    for commit in commits:
        for group in commit.replaced_groups:
            newest.pop(group, None)
        files = [stat for stat in commit.stats if stat.path and LogFile.parse(stat.path) is None]  # which no listing shows
        newest.update((stat.group, (stat.path or "", stat.file_size_bytes or 0)) for stat in files)
    return list(newest.values())


def _read(context: DoctorContext, instant: Instant) -> CommitMetadata | LakelockError:
    try:
        return read_commit(context.shown, instant)
    except LakelockError as error:
        return error


def _wrong(path: str, size: int, sizes: Mapping[str, int]) -> str:
    if path not in sizes:
        return f"{path} is missing"
    return f"{path} has {sizes[path]:,} bytes, but its commit wrote {size:,}"
