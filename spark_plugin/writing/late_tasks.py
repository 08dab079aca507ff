"""A task may outlive its transaction, or be replaced by another attempt; its files must not stay then.

Spark runs a task again when it has lost the executor, or runs a copy when it is slow, and nobody tells the first attempt. So
each task checks once more when its files are complete, and removes them if it is too late. What remains is a task
that places a marker after the commit has listed the markers, and ends before the commit does.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from lakelock.clock import SystemRuntime
from lakelock.errors import WriteFailed
from lakelock.markers.data_files import MarkerKind
from lakelock.markers.heartbeat import SharedHeartbeat
from lakelock.occ.write_context import WriteContext
from lakelock.table import layout
from lakelock.table.commit_metadata import WriteStat


def while_wanted(
    context: WriteContext, written: Iterator[WriteStat | None], shared: SharedHeartbeat | None = None
) -> Iterator[WriteStat]:
    """Pass on the files that a task writes; None is a rewrite that had nothing to change. If nobody wants them in the end,
    remove them all and raise `WriteFailed`.

    The commit removes the markers of the attempts that it does not count before it removes their files for the last time, and
    every transaction removes its heartbeat in the end. This costs one request for each file, and one more. The answers tell a
    heartbeat that the task shares with others (`shared`) what time it is by the storage's clock.
    """
    files: list[str] = []
    markers: list[str] = []
    for stat in written:
        if stat is None:
            continue
        if stat.path:
            files.append(stat.path)
            kind = MarkerKind.CREATE if stat.is_new_group else MarkerKind.MERGE
            markers.append(layout.marker(context.instant, *layout.split_path(stat.path), kind.value))
        yield stat
    if not files:
        return
    storage, signs = context.location.open(holds_table=True), [*markers, layout.heartbeat(context.instant)]
    found = SystemRuntime().gather(
        [partial(storage.get, key) for key in signs], limit=context.settings.listing.parallel_requests
    )
    beat, marked_ms = found[-1], [marker.modified_ms for marker in found[:-1] if marker is not None]
    if shared is not None and beat is not None and marked_ms:
        shared.wrote(beat, max(marked_ms))
    if None in found:
        storage.delete(files)
        storage.delete(markers)
        raise WriteFailed(
            f"a task of {context.instant} was late: its transaction has ended, or another attempt of the task counts",
            hint="nothing needs to be done; if a whole write failed with this, run it again",
            instant=context.instant,
        )
