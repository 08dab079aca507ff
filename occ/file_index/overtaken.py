"""Whether a cleaner has overtaken a reader that goes by the names of files.

The reader lists the timeline, then the files. If it takes longer than `clean.readers_s` of a cleaner, a file that the timeline
shows may be superseded and deleted before it is listed, and a listing does not tell what it lacks. But a clean is on the
timeline, with the names of its files, before it deletes the first of them.
"""

from __future__ import annotations

from functools import partial

from lakelock.errors import SnapshotTooOld
from lakelock.table.io import TableIO
from lakelock.table.service_metadata import read_clean
from lakelock.table.snapshot import DataFile, Snapshot, read_replaced
from lakelock.table.timeline import Timeline, read_timeline


def ensure_not_overtaken(io: TableIO, timeline: Timeline, snapshot: Snapshot) -> None:
    """`SnapshotTooOld` if a clean that the timeline does not show has deleted what belongs to the listed snapshot.

    One listing, and one read of each clean that has begun since.
    """
    now = read_timeline(io.storage)
    known = {clean.requested for clean in timeline.cleanings}
    begun = [partial(read_clean, io.storage, clean) for clean in now.cleanings if clean.requested not in known]
    told = (record for record in io.gather(begun) if record is not None)
    deleted = (DataFile.parse(key) for record in told for key in record.keys)
    lost = [file for file in deleted if file and timeline.is_visible(file.instant) and _is_newer(file, snapshot)]
    if not lost:
        return
    replaced = read_replaced(io, timeline)
    missed = next((file for file in lost if file.group not in replaced), None)
    if missed is not None:
        raise SnapshotTooOld(
            f"{io.storage.uri}: {missed.key} was cleaned while the table's files were listed",
            hint="read again; if it happens often, raise clean.readers_s for the cleaner",
            file=missed.key,
        )


def _is_newer(file: DataFile, snapshot: Snapshot) -> bool:
    shown = snapshot.group(file.group)
    return shown is None or shown.instant < file.instant
