"""The archive of the timeline, which old completed instants are moved to: how it is read.

Layout 2 (Hudi 1.x): `.hoodie/timeline/history/<first instant>_<last instant>_<level>.parquet`, one row for each instant, with
the bytes of its completed timeline file in `metadata`. A file is written before its instants leave the active timeline, so
an archived instant that a listing of the timeline no longer shows is in the archive. On a disk a file shows while it is being
written, or stays half written where its writer died. The newest manifest does not list it then: nothing in it has left the
timeline, and readers pass over it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelock.errors import CorruptTableError, StorageError, StorageUnavailable, damage_of_table
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.history_files import read_history
from lakelock.table.instants import WRITES, Action, Instant
from lakelock.table.timeline import Timeline

T = TypeVar("T")

LOOKS = 3
"""How often the archive is listed if its files vanish while they are read: Java merges them now and then."""

_COLUMNS = ["instantTime", "completionTime", "action", "metadata"]


@dataclass(frozen=True)
class CompletedWrite:
    """A completed write; `data` are the bytes of its completed timeline file."""

    requested: str
    completion: str
    action: str
    data: bytes


def completed_write(storage: Storage, timeline: Timeline, instant: str) -> CompletedWrite | None:
    """A completed write with the bytes of its timeline file, from the timeline or from the archive; None: neither has it."""
    active = next((i for i in timeline.commits if i.requested == instant), None)
    stored = storage.get(layout.timeline(active.file_name)) if active is not None else None
    if active is not None and stored is not None:
        return CompletedWrite(instant, active.completion or "", active.action, stored.data)
    return archived_write(storage, instant)


def extra_of_write(storage: Storage, timeline: Timeline, instant: str) -> Mapping[str, str]:
    """The extra metadata of a completed write, from the timeline or from the archive; empty if neither has it."""
    write = completed_write(storage, timeline, instant)
    return {} if write is None else CommitMetadata.from_bytes(write.data, instant).extra


def read_commit(storage: Storage, instant: Instant) -> CommitMetadata:
    """What a completed instant did, from the timeline, or from the archive if it was moved there since it was listed.

    `CorruptTableError` if neither has it.
    """
    stored = storage.get(layout.timeline(instant.file_name))
    found = archived_write(storage, instant.requested) if stored is None else None
    data = stored.data if stored is not None else found.data if found is not None else None
    if data is None:
        raise CorruptTableError(
            f"{instant.file_name} was on the timeline and is neither there nor in the archive",
            hint="another process may have removed it just now; run the command again",
            file=layout.timeline(instant.file_name),
        )
    with damage_of_table(storage.uri):
        return CommitMetadata.from_bytes(data, layout.timeline(instant.file_name))


def archived_write(storage: Storage, requested: str) -> CompletedWrite | None:
    """The completed write of this requested time, None if the archive has none.

    One listing, and the files that cover the time are read. `CorruptTableError` when one of them cannot be read: then
    the answer is unknown.
    """
    for _ in range(LOOKS - 1):
        try:
            return _look(storage, requested)
        except StorageUnavailable:
            raise
        except StorageError:
            continue
    return _look(storage, requested)


def _look(storage: Storage, requested: str) -> CompletedWrite | None:
    covering = [key for key, first, last in _ranges(storage) if first <= requested <= last]
    for key in covering:
        found = _unless_unlisted(storage, key, partial(_find, storage, key, requested))
        if found is not None:
            return found
    return None


def _unless_unlisted(storage: Storage, key: str, read: Callable[[], T]) -> T | None:
    """What `read` finds in a file of the archive; None if the file cannot be read and the newest manifest does not list it.

    Two more reads for a file that cannot be read. Where there is no manifest, every file belongs to the archive.
    """
    try:
        return read()
    except CorruptTableError:
        history = read_history(storage)
        if not history.version or any(file.key == key for file in history.files):
            raise
        return None


def archive_names(storage: Storage) -> list[str]:
    """The names of the archive's files. One listing."""
    return [key.rpartition("/")[2] for key, _, _ in _ranges(storage)]


def instants_in(storage: Storage, name: str) -> frozenset[str] | None:
    """The requested times of the completed writes in one file of the archive; None while it does not count yet.

    `StorageError` if it is not there any more, `CorruptTableError` if it cannot be read.
    """
    key = f"{layout.HISTORY}/{name}"
    table = _unless_unlisted(storage, key, partial(_rows, storage, key, ["instantTime", "action"]))
    if table is None:
        return None
    times, actions = (table.column(column).to_pylist() for column in table.column_names)
    return frozenset(str(time) for time, action in zip(times, actions, strict=True) if action in WRITES)


def writes_in(storage: Storage, name: str, wanted: Collection[str]) -> list[CompletedWrite]:
    """Those of the wanted writes that one file of the archive has; errors as for `instants_in`."""
    filters = [("instantTime", "in", sorted(wanted))]
    return list(_writes(_rows(storage, f"{layout.HISTORY}/{name}", _COLUMNS, filters)))


def archived_writes(
    storage: Storage, *, holding: bytes = b"", after: str = "", only: frozenset[str] | None = None
) -> Iterator[tuple[str, list[CompletedWrite]]]:
    """The completed writes in each file of the archive, or in the `only` ones, with the file's key; the latest files first.

    `holding`: only writes whose bytes contain it. `after`: only writes that completed after that time. While Java merges files,
    one write may be in several. A file that vanishes was merged into another: then the archive is listed again, so a file may
    come twice.
    """
    for look in range(LOOKS):
        keys = [key for key, _, _ in sorted(_ranges(storage), key=lambda each: each[2], reverse=True)]
        try:
            for key in keys:
                # From the second listing on every file is read: `only` does not know the names of merged files.
                if only is not None and key not in only and not look:
                    continue
                found = _unless_unlisted(storage, key, partial(_writes_in, storage, key, holding, after))
                if found is not None:
                    yield key, found
            return
        except StorageUnavailable:
            raise
        except StorageError:
            if look + 1 == LOOKS:
                raise


def archived_cleans(storage: Storage) -> list[tuple[str, bytes]]:
    """Requested time and bytes of each clean in the archive. One listing, and each file is read."""
    for look in range(LOOKS):
        try:
            keys = [key for key, _, _ in _ranges(storage)]
            tables = [_unless_unlisted(storage, key, partial(_cleans_in, storage, key)) for key in keys]
            break
        except StorageUnavailable:
            raise
        except StorageError:
            if look + 1 == LOOKS:
                raise
    rows = (row for table in tables if table is not None for row in table.to_pylist())
    return [(row["instantTime"], bytes(row["metadata"])) for row in rows if row["metadata"]]


def _cleans_in(storage: Storage, key: str) -> pa.Table:
    return _rows(storage, key, ["instantTime", "metadata"], [("action", "==", Action.CLEAN.value)])


def archive_keys(storage: Storage) -> frozenset[str]:
    """The keys of the archive's files. One listing."""
    return frozenset(key for key, _, _ in _ranges(storage))


def covered_by_archive(storage: Storage, instants: set[str]) -> set[str]:
    """The instants that may be in the archive, by the names of its files. One listing."""
    ranges = list(_ranges(storage))
    return {instant for instant in instants if any(first <= instant <= last for _, first, last in ranges)}


def _ranges(storage: Storage) -> Iterator[tuple[str, str, str]]:
    """Key, first and last instant of each file of the archive."""
    for item in storage.list(layout.HISTORY):
        first, _, rest = item.key.rpartition("/")[2].partition("_")
        last, _, level = rest.partition("_")
        if level.endswith(".parquet"):
            yield item.key, first, last


def _writes_in(storage: Storage, key: str, holding: bytes, after: str) -> list[CompletedWrite]:
    found: list[CompletedWrite] = []
    with storage.open_input(key) as source:
        try:
            file = pq.ParquetFile(source)
            for group in range(file.num_row_groups):
                if _ended_by(file, group, after):
                    continue
                rows = file.read_row_group(group, columns=_COLUMNS)
                if after:
                    rows = rows.filter(pc.greater(rows.column("completionTime"), after))
                if holding:
                    rows = rows.filter(pc.match_substring(rows.column("metadata").cast(pa.binary()), holding))
                found += _writes(rows)
            return found
        except (pa.ArrowException, OSError, KeyError, TypeError) as error:
            raise _unreadable(key, error) from error


def _ended_by(file: pq.ParquetFile, group: int, after: str) -> bool:
    """Whether the statistics of a row group say that nothing in it completed after that time, so that it is not read."""
    if not after:
        return False
    row_group = file.metadata.row_group(group)
    columns = (row_group.column(number) for number in range(row_group.num_columns))
    bounds = next((column.statistics for column in columns if column.path_in_schema == "completionTime"), None)
    return bounds is not None and bounds.has_min_max and str(bounds.max) <= after


def _unreadable(key: str, error: Exception) -> CorruptTableError:
    hint = "restore the file from a backup; until then the fate of the instants in it is unknown"
    return CorruptTableError(f"{key} cannot be read: {error}", hint=hint, file=key)


def _find(storage: Storage, key: str, requested: str) -> CompletedWrite | None:
    return next(_writes(_rows(storage, key, _COLUMNS, [("instantTime", "==", requested)])), None)


def _writes(table: pa.Table) -> Iterator[CompletedWrite]:
    for row in table.to_pylist():
        if row["action"] in WRITES and row["metadata"]:
            yield CompletedWrite(row["instantTime"], str(row["completionTime"] or ""), row["action"], bytes(row["metadata"]))


def _rows(storage: Storage, key: str, columns: list[str], filters: list[tuple[str, str, Any]] | None = None) -> pa.Table:
    with storage.open_input(key) as source:
        try:
            found = pq.read_table(source, columns=columns, filters=filters)
            if found.column_names != columns:
                raise KeyError(*set(columns).difference(found.column_names))
            return found
        except (pa.ArrowException, OSError, KeyError, TypeError) as error:
            raise _unreadable(key, error) from error
