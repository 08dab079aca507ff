"""Finds everything that an instant left behind. Nothing here decides whether it may be removed.

Only files that carry the instant in their own name count as its data, whatever a marker says, so a wrong marker can never
cost a committed file. Finding is repeatable: what an interrupted attempt removed is simply not found again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from lakelock.errors import CorruptTableError
from lakelock.markers.claims import OwnClaims, claims_of
from lakelock.markers.data_files import MarkerSet, listed
from lakelock.markers.heartbeat import HeartbeatRecord
from lakelock.storage import Storage
from lakelock.storage.location import TableIO
from lakelock.table import layout
from lakelock.table.log_files import LogFile


@dataclass(frozen=True)
class Leftovers:
    """The objects of one instant besides its timeline files. Delete `data_files` first and the heartbeat after all else.

    `unreadable` are entries among its markers that announce no file of this instant; because of them the whole table was
    listed for its files.
    """

    instant: str
    data_files: tuple[str, ...]
    announced: MarkerSet
    claims: tuple[str, ...]
    heartbeat: str
    unreadable: tuple[str, ...] = ()

    @property
    def markers(self) -> tuple[str, ...]:
        return self.announced.keys

    @property
    def control_files(self) -> tuple[str, ...]:
        """Markers, claims and heartbeat of an instant that is not pending: once the data is gone they can go in one request."""
        return (*self.markers, *self.claims, self.heartbeat)

    @property
    def by_partition(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the data files by partition, as a rollback records them."""
        names: dict[str, list[str]] = defaultdict(list)
        for key in self.data_files:
            partition, name = layout.split_path(key)
            names[partition].append(name)
        return {partition: tuple(files) for partition, files in names.items()}


def find_leftovers(
    io: TableIO, instant: str, *, data: bool = True, everywhere: bool = False, own: OwnClaims | None = None
) -> Leftovers:
    """Find what an instant left; without `data` (it has committed, or never wrote) only markers, claims and heartbeat.

    Data files are those that markers announce and those found by listing the same partitions. A foreign instant without
    markers may have written anywhere: then the whole table is listed, as with `everywhere`. A writer of ours places each
    marker before its file.

    `own`: the asker's own instant, and what it knows of its claims. Without it all claims are read.
    """
    storage = io.storage
    markers = listed(storage, instant)
    claims = claims_of(io, instant) if own is None else own.keys(io, instant)
    files: set[str] = set()
    unreadable = list(markers.unreadable)
    if data:
        for marker in markers.markers:
            if is_data_file_of(marker.data_key, instant):
                files.add(marker.data_key)
            else:
                unreadable.append(str(marker))
        folders = _where(storage, instant, markers, everywhere or bool(unreadable), ours=own is not None)
        looks = [partial(_listed_files, storage, instant, folder) for folder in folders]
        files.update(*io.gather(looks))
    return Leftovers(instant, tuple(sorted(files)), markers, claims, layout.heartbeat(instant), tuple(unreadable))


def is_data_file_of(key: str, instant: str) -> bool:
    """Whether `key` is a place for a base file or a log file of this instant, inside the table and outside its metadata."""
    partition, name = layout.split_path(key)
    try:
        layout.checked_partition(partition, key)
        layout.checked_file_name(name, key)
    except CorruptTableError:
        return False
    if not instant or key.startswith("/"):
        return False
    log = LogFile.parse(key)
    if log is not None:
        return log.instant == instant
    return name.endswith(f"_{instant}.parquet") and not name.startswith(".")


def _where(storage: Storage, instant: str, markers: MarkerSet, unreadable: bool, *, ours: bool) -> tuple[str, ...]:
    """The folders to list for data files of the instant; `""` is the whole table. `ours`: lakelock's for certain."""
    if unreadable:
        return ("",)
    if markers.markers:
        return ("",) if "" in markers.partitions else markers.partitions
    return () if ours or _has_our_heartbeat(storage, instant) else ("",)


def _has_our_heartbeat(storage: Storage, instant: str) -> bool:
    heartbeat = storage.get(layout.heartbeat(instant))
    return heartbeat is not None and HeartbeatRecord.from_bytes(heartbeat.data) is not None


def _listed_files(storage: Storage, instant: str, folder: str) -> set[str]:
    return {file.key for file in storage.list(folder) if is_data_file_of(file.key, instant)}
