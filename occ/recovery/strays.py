"""Stray files: a late task wrote them after its commit had read the markers, and was killed before it could check its own.

Readers find files by name, so a stray file shows beside those of the commit: its rows appear twice, or, in a file group that
was rewritten, there are two slices of one instant, which no reader accepts. The marker announces the file; the commit's write
statistics say which files count (`docs/adr/0011`). Whatever a rolled back instant left is deleted in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakelock.events import EventKind
from lakelock.markers.direct import MarkerSet
from lakelock.markers.leftovers import Leftovers, is_data_file_of
from lakelock.markers.liveness import CLOCK_GRAIN_MS, StorageClock
from lakelock.markers.reconcile import markers_of
from lakelock.occ.open_table import OpenTable
from lakelock.occ.records import commit_keys as keys
from lakelock.table.archive import completed_write
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.timeline import Timeline


def remove_strays(table: OpenTable, timeline: Timeline, markers: MarkerSet) -> frozenset[str]:
    """Delete the files that the markers of a committed instant announce and its commit does not name.

    Returns the keys of the markers that must stay. The `timeline` shows the commit, or is newer than all of the archive.
    A file that the commit names is never deleted. The marker of a stray file stays until it is older than a heartbeat may
    be: its task may still write the file, and be killed afterwards. All markers stay if the commit's metadata is not found.
    Commits of other engines are left alone: those engines reconcile by themselves.
    """
    instant = markers.instant
    if not markers.objects:
        return frozenset()
    commit = completed_write(table.storage, timeline, instant)
    if commit is None:
        return frozenset(markers.keys)
    metadata = CommitMetadata.from_bytes(commit.data, instant)
    if keys.DECISION not in metadata.extra:
        return frozenset()
    named = {stat.path for stat in metadata.stats}
    strays = sorted({m.data_key for m in markers.markers} - named)
    strays = [key for key in strays if is_data_file_of(key, instant)]
    if not strays:
        return frozenset()
    table.storage.delete(strays)
    return _settled(table, markers, strays)


def _settled(table: OpenTable, markers: MarkerSet, strays: list[str]) -> frozenset[str]:
    """Remove the old markers of stray files, and return the young ones. A task that is still at work finds its marker gone."""
    young = _young_markers(table, markers)
    of_strays = frozenset(markers_of(markers, strays))
    table.storage.delete(sorted(of_strays - young))
    table.storage.delete(strays)
    if of_strays - young:
        problem = "files of tasks that were killed late may have shown beside those of the commit until now; they are removed"
        table.emit(EventKind.ALERT, markers.instant, problem=problem, files=len(of_strays - young))
    return of_strays & young


def remove_uncommitted(table: OpenTable, left: Leftovers, control_files: Iterable[str]) -> None:
    """Delete the data files that a rolled back instant left, then these of its other objects.

    Young markers stay for a later sweep: a task that still runs writes its file, and may be killed before it can remove it.
    """
    table.storage.delete(left.data_files)
    young = _young_markers(table, left.announced)
    table.storage.delete([key for key in control_files if key not in young])


def _young_markers(table: OpenTable, markers: MarkerSet) -> frozenset[str]:
    """The keys of markers younger than a heartbeat may be: whoever placed them may be about to write the files."""
    if not markers.objects:
        return frozenset()
    now_ms = StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)
    oldest_ms = now_ms - table.settings.heartbeat.limit_s * 1000 - CLOCK_GRAIN_MS
    return frozenset(item.key for item in markers.objects if item.modified_ms >= oldest_ms)
