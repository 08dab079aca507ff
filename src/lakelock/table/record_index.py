"""Hudi's record index, `record_index` of the metadata table: the file group of each record key of a table.

Java's writers with `hoodie.index.type=RECORD_INDEX` look keys up there, and its readers skip files by it, so a key that it
lacks would be inserted once more. What a commit changes follows from the keys in its files and in those that they replace. An
update that leaves a row in its file group changes nothing. The index has one place for each key, so it is only for tables that
store each key once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from lakelock.errors import CorruptTableError
from lakelock.parsing import JsonObject
from lakelock.storage import Storage
from lakelock.storage.location import TableIO
from lakelock.table.base_files import BaseFile
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.instants import parse_instant
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import LogFile
from lakelock.table.merged_slices import LoggedSlice, MergedRows, changes_in
from lakelock.table.metadata_records import RECORD_INDEX, Record
from lakelock.table.metadata_table import MetadataTable, lacking, list_partition
from lakelock.table.schema import COMMIT_TIME, RECORD_KEY, TableSchema
from lakelock.table.snapshot import DataFile
from lakelock.table.timeline import Timeline

MOST_KEYS = 2_000_000
"""A commit that adds or removes more keys is not brought into the index: it would take too much memory under the lock."""

_TYPE = 5
_INFO = "org.apache.hudi.avro.model.HoodieRecordIndexInfo"
_AS_UUID, _AS_TEXT = 0, 1
_UUID = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-(0|[1-9][0-9]{0,8}))?", re.ASCII)


def is_partitioned(definitions: bytes | None, source: str) -> bool:
    """Whether `index.json` of a table says that its record index knows keys by partition. Hudi 1.0 says nothing of it."""
    if definitions is None:
        return False
    try:
        found = JsonObject.parse(definitions).child("indexDefinitions")
        options = found.child(RECORD_INDEX).child("indexOptions") if RECORD_INDEX in found.fields else None
        return options is not None and options.text("isPartitioned", "false").lower() == "true"
    except (ValueError, KeyError) as error:
        raise CorruptTableError(f"{source} does not say how {RECORD_INDEX} is made: {error!r}", file=source) from error


def has_definition(definitions: bytes) -> bool:
    """Whether `index.json` of a table names a record index, whether it is there or not."""
    try:
        return RECORD_INDEX in JsonObject.parse(definitions).child("indexDefinitions").fields
    except ValueError:
        return False


def place_record(group: FileGroupId, instant: str) -> Record:
    """The record that a key is in a file group since an instant. A file id that is no UUID with a number is kept as text."""
    place = {"partitionName": group.partition, "instantTime": parse_instant(instant), "position": None}
    found = _UUID.fullmatch(group.file_id)
    if found is None:
        place |= {"fileId": group.file_id, "fileIdEncoding": _AS_TEXT}
        place |= dict.fromkeys(("fileIdHighBits", "fileIdLowBits", "fileIndex"), -1)
    else:
        data = UUID(found[1]).bytes
        high, low = (int.from_bytes(half, "big", signed=True) for half in (data[:8], data[8:]))
        place |= {"fileIdHighBits": high, "fileIdLowBits": low, "fileIndex": int(found[2] or -1)}
        place |= {"fileId": "", "fileIdEncoding": _AS_UUID}
    return {"key": "", "type": _TYPE, "recordIndexMetadata": (_INFO, place)}


def place_in(record: Record) -> FileGroupId:
    """The file group that a record names; `CorruptTableError` for one of another kind."""
    try:
        place = record["recordIndexMetadata"][1]
        if place["fileIdEncoding"] != _AS_UUID:
            return FileGroupId(str(place["partitionName"]), str(place["fileId"]))
        halves = (int(place[half]).to_bytes(8, "big", signed=True) for half in ("fileIdHighBits", "fileIdLowBits"))
        number = "" if place["fileIndex"] == -1 else f"-{place['fileIndex']}"
        return FileGroupId(str(place["partitionName"]), f"{UUID(bytes=b''.join(halves))}{number}")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CorruptTableError(f"a record of {RECORD_INDEX} cannot be read: {error!r}", file=RECORD_INDEX) from error


class KeyChanges(NamedTuple):
    """The keys that a file slice has and the slice before it lacked, and the keys that it has lost."""

    added: list[str]
    gone: list[str]


NO_CHANGES = KeyChanges([], [])


def most_changed(stat: WriteStat, *, counted: bool) -> int:
    """How many keys a file may add or take away, by what its commit says."""
    if stat.is_new_group or not counted:
        return stat.num_writes or 0
    return (stat.num_inserts or 0) + (stat.num_deletes or 0)


def changed_keys(
    storage: Storage, stat: WriteStat, before: DataFile | None, instant: str, *, counted: bool
) -> KeyChanges:  # fmt: skip
    """How the keys of a file group differ from those of the slice `before` by a base file, or by a log file of lakelock's own.

    `counted`: the numbers of rows that were inserted and deleted are known, and each inserted row has the commit's `instant`.
    Then only what these make necessary is read. `CorruptTableError` or `StorageError` for a file that is damaged or gone.
    """
    path, size_bytes = stat.path or "", stat.file_size_bytes or 0
    if counted and not stat.is_new_group and not stat.num_inserts and not stat.num_deletes:
        return NO_CHANGES
    if (log := LogFile.parse(path, size_bytes)) is not None:
        return KeyChanges([], list(changes_in(log, _NO_COLUMNS, storage).deleted))  # new keys go to base files
    if (file := DataFile.parse(path, size_bytes)) is None:
        raise CorruptTableError(f"{path} is not a data file", file=path)
    if stat.is_new_group:
        return KeyChanges(keys_in(storage, file), [])
    if before is None or (before.token and before.name != stat.prev_base_file):
        raise CorruptTableError(f"it is not known which file {path} replaces", file=path)
    mine = pa.concat_tables(stamped_keys(storage, file))
    keys = mine.column(RECORD_KEY)
    fresh = keys.filter(pc.equal(mine.column(COMMIT_TIME), instant)) if counted else keys
    if counted and not stat.num_deletes and len(fresh) == stat.num_inserts:
        return KeyChanges(fresh.to_pylist(), [])
    known = pa.concat_tables(stamped_keys(storage, before)).column(RECORD_KEY)
    return KeyChanges(_without(fresh, known), _without(known, keys))


def keys_in(storage: Storage, file: DataFile) -> list[str]:
    """The record keys of a file slice."""
    return [key for rows in stamped_keys(storage, file) for key in rows.column(RECORD_KEY).to_pylist()]


_NO_COLUMNS = TableSchema(pa.schema([]))
_STAMPS = pa.schema([(COMMIT_TIME, pa.string()), (RECORD_KEY, pa.string())])


def stamped_keys(storage: Storage, file: DataFile) -> Iterator[pa.Table]:
    """Commit time and record key of each row, at least one table."""
    yield _STAMPS.empty_table()
    if file.logs:
        yield from MergedRows(_STAMPS, None).read(LoggedSlice.of(file), storage)
        return
    with BaseFile(storage.open_input(file.key), file.key) as base:
        yield from base.stamps(_STAMPS.names)


def _without(keys: pa.ChunkedArray, others: pa.ChunkedArray) -> list[str]:
    found: list[str] = keys.filter(pc.invert(pc.is_in(keys, value_set=others.combine_chunks()))).to_pylist()
    return found


FROM_FILES = 8
"""For fewer files the index is not asked: it takes some requests itself."""
MOST_ASKED = 100_000
"""For more keys than these it is not asked: they are in most of its blocks."""


class Answer(NamedTuple):
    """The files of one partition to search for keys, and the keys that the index places in them."""

    files: list[DataFile]
    keys: set[str]


def places_of(io: TableIO, data: Timeline, keys: Collection[str]) -> dict[str, FileGroupId]:
    """The file groups of those of the keys that a table has, by its record index.

    As of `data`, a timeline of the table that was listed before: later commits do not count. `CorruptTableError` if the index
    cannot tell that, because it lacks a commit, or was compacted with a later one.
    """
    found = MetadataTable.look(io, data)
    late = lacking(found.timeline, data)
    if late:
        raise CorruptTableError(f"it lacks {late[0].requested}", file=RECORD_INDEX)
    listed = list_partition(io.storage, RECORD_INDEX)
    records = found.without_later().newest(RECORD_INDEX, keys, listed)
    return {key: place_in(record) for key, record in records.items()}


def answers(
    places: Mapping[str, FileGroupId], keys: Mapping[str, Sequence[str]], possible: Mapping[str, Sequence[DataFile]]
) -> dict[str, Answer]:
    """The `possible` files of each partition to search for its keys, given the `places` of keys in the index.

    `CorruptTableError` if the index places a key in a file group without such a file: one of them is wrong.
    """
    found = {}
    for partition, asked in keys.items():
        named: dict[FileGroupId, set[str]] = {}
        for key in asked:
            place = places.get(key)
            if place is not None and place.partition == partition:
                named.setdefault(place, set()).add(key)
        files = [file for file in possible.get(partition, ()) if file.group in named]
        if len(files) != len(named):
            gone = next(group for group in named if group not in {file.group for file in files})
            some = min(named[gone])[:100]
            raise CorruptTableError(f"it has {some!r} in {gone}, which has no file with such a key", file=RECORD_INDEX)
        found[partition] = Answer(files, set().union(*named.values()))
    return found
