"""File slices with log files: which log files belong to a slice, and its rows, those of the base file with the logs' changes.

Commits say which log files belong to a slice: listings leave log files out, and names do not tell.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import IO, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelock.storage import Storage
from lakelock.table.base_files import BaseFile
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import Block, BlockHeader, BlockKind, LogFile, blocks_of
from lakelock.table.log_rows import add_block
from lakelock.table.log_writing import LogChanges
from lakelock.table.record_keys import Keyed
from lakelock.table.row_versions import ByCommitTime, ByEventTime, RowVersions
from lakelock.table.schema import COMMIT_TIME, RECORD_KEY, TableSchema
from lakelock.table.snapshot import CompletedLog, DataFile, Effect, Snapshot

_BATCH_ROWS = 262_144
"""How many rows of a base file are merged at a time: each time, the keys of the log files are hashed."""


class LoggedSlice(NamedTuple):
    """A file slice with log files, in the order in which they are read; a file group may have no base file yet.

    `instants` are those of the visible commits that wrote these files: a file may also have blocks of others.
    """

    partition: str
    file_id: str
    base: DataFile | None
    logs: tuple[LogFile, ...]
    instants: frozenset[str]

    @property
    def as_file(self) -> DataFile:
        """The same as a file with logs."""
        return (self.base or DataFile(self.partition, self.file_id, "", self.logs[0].instant))._replace(logs=self.logs)

    @classmethod
    def of(cls, file: DataFile) -> LoggedSlice:
        """The slice that is given as a file with logs, of table version 8 or later."""
        base = file._replace(logs=()) if file.token else None
        return cls(file.partition, file.file_id, base, file.logs, frozenset(log.instant for log in file.logs))


@dataclass(frozen=True)
class MergedRows:
    """Reads such slices; a task gets it. `ordering`: the column by which versions of a row are ordered, None for commit time.

    A task has the rows of one slice's log files in memory, and of its base file a batch at a time.
    """

    columns: pa.Schema
    ordering: pa.Field | None

    def read(self, slice_: LoggedSlice, storage: Storage) -> Iterator[pa.Table]:
        """The rows of a slice with these columns."""
        versions = self._versions()
        for block in _blocks(slice_, storage):
            add_block(block, versions)
        if slice_.base is not None:
            with BaseFile(storage.open_input(slice_.base.key), slice_.base.key) as base:
                for batch in base.batches(TableSchema(versions.columns), _BATCH_ROWS):
                    yield versions.merged(batch).select(self.columns.names)
        yield versions.rest().select(self.columns.names)

    def _versions(self) -> RowVersions:
        extra = [field for field in (pa.field(RECORD_KEY, pa.string()), self.ordering) if field is not None]
        needed = pa.schema([*self.columns, *(field for field in extra if field.name not in self.columns.names)])
        return ByCommitTime(needed) if self.ordering is None else ByEventTime(needed, self.ordering.name)


MOST_LOGS, MOST_LOG_SHARE, FEW_LOG_BYTES = 10, 0.3, 1 << 18
"""A file group with so many log files is written anew, and so is one whose log files have grown beyond this share of its base
file, and beyond these bytes."""


def is_to_be_compacted(file: DataFile, most_logs: int = MOST_LOGS) -> bool:
    """Whether so much lies on a base file that reading it costs more than writing it anew."""
    log_bytes = sum(log.size_bytes for log in file.logs)
    return len(file.logs) >= most_logs or log_bytes > max(FEW_LOG_BYTES, MOST_LOG_SHARE * file.size_bytes)


def keys_in_logs(file: DataFile, storage: Storage, logs: Collection[LogFile]) -> pa.Array:
    """The keys of which some of the log files of a slice say something, each once."""
    versions = ByCommitTime(pa.schema([(RECORD_KEY, pa.string())]))
    for block in _blocks(LoggedSlice.of(file._replace(token="", logs=tuple(logs))), storage):
        add_block(block, versions)
    return versions.keys


def open_slice(file: DataFile, storage: Storage, schema: TableSchema | None = None, keys: pa.Array | None = None) -> IO[bytes]:
    """The rows of a file slice as a base file: what is stored, or, where there are log files, what they and the base file make.

    Then the file has the meta columns, the columns of the `schema`, and neither key range nor bloom filter; it is a temporary
    one of this machine. Equal slices give equal rows in equal order. By commit time only. With `keys` only rows with these.
    """
    if not file.logs and keys is None:
        return storage.open_input(file.key, size_bytes=file.size_bytes)
    columns = (schema or TableSchema(pa.schema([]))).file_schema
    output: Any = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        with pq.ParquetWriter(output, columns, store_schema=False, compression="lz4") as writer:
            for rows in MergedRows(columns, None).read(LoggedSlice.of(file), storage):
                writer.write_table(rows if keys is None else rows.filter(pc.is_in(rows.column(RECORD_KEY), value_set=keys)))
    except BaseException:
        output.close()
        raise
    output.seek(0)
    return cast("IO[bytes]", output)


class Change(NamedTuple):
    """What a commit changed in a file group: the slice `before`, if there was one, what the commit `made`, a base file or log
    files as a slice of their own, and the slice `after`.
    """

    before: DataFile | None
    made: DataFile
    after: DataFile

    def keys(self, storage: Storage) -> pa.Array:
        """The keys of the rows that it inserted, updated or deleted. Of a base file their commit time tells."""
        if not self.made.token:
            return keys_in_logs(self.made, storage, self.made.logs)
        kept, changed = [], []
        with BaseFile(open_slice(self.made, storage), self.made.key) as base:
            for stamps in base.stamps():
                is_new = pc.equal(stamps.column(COMMIT_TIME), self.made.instant)
                changed += stamps.column(RECORD_KEY).filter(is_new).chunks
                kept += stamps.column(RECORD_KEY).filter(pc.invert(is_new)).chunks
        if self.before is not None:
            there = pa.chunked_array(kept, pa.string()).combine_chunks()
            with BaseFile(open_slice(self.before, storage), self.before.key) as base:
                for keys in base.key_batches():
                    changed += keys.filter(pc.invert(pc.is_in(keys, value_set=there))).chunks
        return pa.chunked_array(changed, pa.string()).unique()

    def rows(self, storage: Storage, schema: TableSchema) -> Iterator[pa.Table]:
        """The rows that it changed, as they were before and as they are after, in batches."""
        keys = self.keys(storage)
        for slice_ in (self.before, self.after):
            if slice_ is None or not len(keys):
                continue
            if slice_.logs:
                for rows in MergedRows(_keyed(schema), None).read(LoggedSlice.of(slice_), storage):
                    yield rows.filter(pc.is_in(rows.column(RECORD_KEY), value_set=keys)).select(schema.names)
                continue
            with BaseFile(open_slice(slice_, storage), slice_.key) as base:
                stored = pa.chunked_array([chunk for part in base.key_batches() for chunk in part.chunks], pa.string())
                yield from base.rows_at(np.flatnonzero(pc.is_in(stored, value_set=keys).to_numpy()), schema)


def _blocks(slice_: LoggedSlice, storage: Storage) -> Iterator[Block]:
    """The blocks of rows and deletes that count, in order. The bytes of all log files are in memory meanwhile."""
    found = [block for log in slice_.logs for block in _blocks_in(log, storage)]
    undone = {block.header.get(BlockHeader.TARGET_INSTANT, "") for block in found if block.kind is BlockKind.COMMAND}
    for block in found:
        if block.kind is not BlockKind.COMMAND and block.instant in slice_.instants and block.instant not in undone:
            yield block


def _blocks_in(log: LogFile, storage: Storage) -> Iterator[Block]:
    with storage.open_input(log.key, size_bytes=log.size_bytes) as file:
        yield from blocks_of(file, _size(file), log.key)


def _size(file: IO[bytes]) -> int:
    end = file.seek(0, io.SEEK_END)
    file.seek(0)
    return end


def changes_in(log: LogFile, schema: TableSchema, storage: Storage) -> LogChanges:
    """What a log file says that lakelock wrote."""
    slice_, versions = DataFile(*log.group, "", log.instant, 0, (log,)), ByCommitTime(_keyed(schema))
    for block in _blocks(LoggedSlice.of(slice_), storage):
        add_block(block, versions)
    rows = versions.rest()
    keys = rows.column(RECORD_KEY)
    gone = versions.keys.filter(pc.invert(pc.is_in(versions.keys, value_set=keys.combine_chunks())))
    return LogChanges(Keyed(rows.select(schema.names), keys) if rows.num_rows else None, gone.to_pylist())


def _keyed(schema: TableSchema) -> pa.Schema:
    return pa.schema([*schema.arrow, (RECORD_KEY, pa.string())])


class LoggedCommit(NamedTuple):
    """A visible commit, which may have written log files."""

    requested: str
    completion: str
    metadata: CommitMetadata


def logs_of(commits: Iterable[LoggedCommit], as_of: str | None = None) -> dict[FileGroupId, set[CompletedLog]]:
    """The log files of these commits, but of file groups that they replaced; for `with_logs`.

    `commits` are all visible ones that wrote log files or replaced file groups, as far back as there are any: a file group may
    have log files only, older than every base file. As of an earlier time also those that were requested later: a log file that
    belongs to a later base file is not shown then, as in Java, although its own commit was requested before that time.
    """
    replaced: set[FileGroupId] = set()
    later: dict[FileGroupId, str] = {}
    logs: dict[FileGroupId, set[CompletedLog]] = {}
    for requested, completion, metadata in commits:
        effect = Effect.of(requested, completion, metadata)
        if as_of is not None and requested > as_of:
            later.update((one.file.group, min(requested, later.get(one.file.group, requested))) for one in effect.slices)
            continue
        replaced |= effect.replaced
        for log in effect.logs:
            logs.setdefault(log.group, set()).add(CompletedLog(log, completion))
    for group, base in later.items():
        if group in logs:
            logs[group] = {log for log in logs[group] if log.completion < base}
    return {group: found for group, found in logs.items() if group not in replaced}


def with_logs(bases: Snapshot, logs: Mapping[FileGroupId, Collection[CompletedLog]]) -> tuple[LoggedSlice, ...]:
    """The file slices that have log files, in order of partition and file id. `bases` are the newest visible base files.

    A log file belongs to the newest base file that is not younger than its completion, as in Hudi since table version 8: what
    completed before has been compacted into it.
    """
    files = {file.group: file for file in bases.files}
    found = []
    for group in sorted(logs):
        base = files.get(group)
        mine = [log.file for log in logs[group] if base is None or log.completion >= base.instant]
        if mine:
            found.append(_slice(group, base, mine, (log.instant for log in mine)))
    return tuple(found)


def slice_of(group: FileGroupId, base: DataFile | None, logs: Iterable[CompletedLog]) -> DataFile | None:
    """The slice that a base file makes with those of the log files that lie on it; None for nothing."""
    mine = [log.file for log in logs if base is None or log.completion >= base.instant]
    return _slice(group, base, mine, ()).as_file if mine else base


def with_logs_of_version_6(bases: Snapshot, commits: Iterable[LoggedCommit]) -> tuple[LoggedSlice, ...]:
    """The same of a table of version 6, where the instant in a log file's name is that of its base file, or of the compaction
    that is going to make the next one. `commits` are those that `logs_of` takes.
    """
    files = {file.group: file for file in bases.files}
    writers: dict[FileGroupId, dict[LogFile, set[str]]] = {}
    replaced: set[FileGroupId] = set()
    for requested, completion, metadata in commits:
        effect = Effect.of(requested, completion, metadata)
        replaced |= effect.replaced
        for log in effect.logs:
            base = files.get(log.group)
            if base is None or log.instant >= base.instant:
                # Such a file grows with each commit, so none of its sizes is known.
                writers.setdefault(log.group, {}).setdefault(log._replace(size_bytes=0), set()).add(requested)
    return tuple(
        _slice(group, files.get(group), writers[group], (instant for of in writers[group].values() for instant in of))
        for group in sorted(writers.keys() - replaced)
    )


def _slice(group: FileGroupId, base: DataFile | None, logs: Iterable[LogFile], instants: Iterable[str]) -> LoggedSlice:
    ordered = sorted(logs, key=attrgetter("instant", "version", "token"))
    return LoggedSlice(*group, base, tuple(ordered), frozenset(instants))
