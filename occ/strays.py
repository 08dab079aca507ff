"""Stray files: written by a task that came after its commit had looked at the markers, and was killed before it could look.

Readers know files by their names, so such a file shows beside those of the commit: its rows twice, or, in a file group that
was rewritten, two slices of one instant, which no reader accepts. Its marker tells of it; the commit's write statistics tell
which files count.
"""

from __future__ import annotations

from lakelock.events import EventKind
from lakelock.markers.direct import MarkerSet, listed
from lakelock.markers.leftovers import is_data_file_of
from lakelock.markers.liveness import CLOCK_GRAIN_MS, StorageClock
from lakelock.markers.reconcile import markers_of
from lakelock.occ.conflicts import footprint as keys
from lakelock.occ.open_table import OpenTable
from lakelock.storage import Listed
from lakelock.table import layout
from lakelock.table.archive import completed_write
from lakelock.table.commit_metadata import CommitMetadata


def remove_strays(table: OpenTable, instant: str) -> frozenset[str]:
    """Delete what markers of a committed instant announce and its commit does not name; keys of the markers that must stay.

    A file that the commit names is never deleted. The marker of a stray file stays for as long as a silent heartbeat may:
    whoever placed it may be about to write the file, and be killed then. All markers stay where the commit's metadata cannot
    be had. The commits of other engines are left alone: these reconcile by themselves.
    """
    placed = list(table.storage.list(layout.marker_folder(instant)))
    if not placed:
        return frozenset()
    markers = listed(table.storage, instant)
    commit = completed_write(table.storage, table.timeline(), instant)
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
    return _settled(table, instant, markers, placed, strays)


def _settled(table: OpenTable, instant: str, markers: MarkerSet, placed: list[Listed], strays: list[str]) -> frozenset[str]:
    """Forget stray files whose markers are old; the markers of the others. A task at work finds its marker gone."""
    heartbeat = table.settings.heartbeat
    now_ms = StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)
    oldest_ms = now_ms - heartbeat.interval_s * heartbeat.tolerable_misses * 1000 - CLOCK_GRAIN_MS
    young = frozenset(item.key for item in placed if item.modified_ms >= oldest_ms)
    of_strays = frozenset(markers_of(markers, strays))
    table.storage.delete(sorted(of_strays - young))
    table.storage.delete(strays)
    if of_strays - young:
        problem = "files of tasks that were killed late may have shown beside those of the commit until now; they are removed"
        table.emit(EventKind.ALERT, instant, problem=problem, files=len(of_strays - young))
    return of_strays & young
