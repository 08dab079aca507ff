"""File slices with log files: which log files belong to a slice, and its rows, merged from the base file and the logs.

Commits say which log files belong to a slice: listings leave log files out, and names do not tell.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from operator import attrgetter
from typing import IO, Any, NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelock.storage import Storage
from lakelock.table.base_files import BaseFile
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import Block, BlockHeader, BlockKind, LogFile, blocks_of, positions_in
from lakelock.table.log_rows import add_block
from lakelock.table.log_writing import BasePositions, LogChanges
from lakelock.table.record_keys import Keyed
from lakelock.table.row_versions import ByCommitTime, ByEventTime, OtherPositions, Places, RowVersions
from lakelock.table.schema import COMMIT_TIME, RECORD_KEY, TableSchema
from lakelock.table.snapshot import CompletedLog, DataFile, Effect, Snapshot

_BATCH_ROWS = 262_144
"""How many rows of a base file are merged at a time."""


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
    """Reads slices with log files, in any process. `ordering`: the column that orders versions of a row, None for commit time.

    A task has the rows of one slice's log files in memory, and of its base file a batch at a time.
    """

    columns: pa.Schema
    ordering: pa.Field | None

    def read(self, slice_: LoggedSlice, storage: Storage) -> Iterator[pa.Table]:
        columns, blocks = self._needed, list(_blocks(slice_, storage))
        if slice_.base is None:
            yield from (rows.select(self.columns.names) for rows in _added(blocks, self._versions(columns)).rest())
            return
        with BaseFile(storage.open_input(slice_.base.key), slice_.base.key, in_dictionaries=True) as base:
            versions = self._merging(blocks, columns, slice_.base.instant, base)
            for group, count in enumerate(base.rows_of_groups):
                if not versions.passes(count):
                    for rows, load in base.loads(columns, _BATCH_ROWS, group):
                        yield versions.merged(rows, load).select(self.columns.names)
            yield from (rows.select(self.columns.names) for rows in versions.rest())

    def _merging(self, blocks: list[Block], columns: pa.Schema, instant: str, base: BaseFile) -> RowVersions:
        """What the log files say, to be merged with a base file: by positions in it if all blocks name them, else by keys."""
        if self.ordering is None:
            try:
                return _added(blocks, ByCommitTime(columns, base.rows), _positions(blocks, instant, base.rows))
            except OtherPositions:
                pass
        return _added(blocks, self._versions(columns, base))

    def _versions(self, columns: pa.Schema, base: BaseFile | None = None) -> RowVersions:
        if self.ordering is not None:
            return ByEventTime(columns, self.ordering.name)
        return ByCommitTime(columns) if base is None else ByCommitTime(columns, base.rows, base.key_batches())

    @property
    def _needed(self) -> pa.Schema:
        extra = [] if self.columns.names else [pa.field(RECORD_KEY, pa.string())]
        if self.ordering is not None:
            extra = [pa.field(RECORD_KEY, pa.string()), self.ordering]
        return pa.schema([*self.columns, *(field for field in extra if field.name not in self.columns.names)])


MOST_LOGS, MOST_LOG_SHARE, FEW_LOG_BYTES = 10, 0.3, 1 << 18
"""A file group is compacted when it has so many log files, or when they are larger than this share of its base file, and larger
than so many bytes."""


def is_to_be_compacted(file: DataFile, most_logs: int = MOST_LOGS) -> bool:
    """Whether the log files on a base file are so many, or so large, that it is cheaper to compact them than to read them."""
    log_bytes = sum(log.size_bytes for log in file.logs)
    return len(file.logs) >= most_logs or log_bytes > max(FEW_LOG_BYTES, MOST_LOG_SHARE * file.size_bytes)


def keys_in_logs(file: DataFile, storage: Storage, logs: Collection[LogFile]) -> pa.Array:
    """The keys of which some of the log files of a slice say something, each once."""
    blocks = _blocks(LoggedSlice.of(file._replace(token="", logs=tuple(logs))), storage)
    return _added(blocks, ByCommitTime(pa.schema([(RECORD_KEY, pa.string())]))).keys


_STATED = pa.schema([(COMMIT_TIME, pa.string()), (RECORD_KEY, pa.string())])


def open_slice(file: DataFile, storage: Storage, schema: TableSchema | None = None, keys: pa.Array | None = None) -> IO[bytes]:
    """A file slice as one base file: the stored one, or a temporary one with merged rows if there are log files or `keys`.

    The temporary file has the meta columns and the columns of the `schema`, or without a schema only commit times and record
    keys, and neither key range nor bloom filter. Equal slices give equal rows in equal order. With `keys` it has only their
    rows. Rows are merged by commit time, so this is not for tables that order versions by event time.
    """
    if not file.logs and keys is None:
        return storage.open_input(file.key, size_bytes=file.size_bytes)
    columns = _STATED if schema is None else schema.file_schema
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
        """The keys of the rows that it inserted, updated or deleted, or of which it brought earlier versions back.

        Of a base file the versions tell, each a commit time and a key, and how often they are there.
        """
        if not self.made.token:
            return keys_in_logs(self.made, storage, self.made.logs)
        counted = [_versions(self.made, storage, 1)]
        if self.before is not None:
            counted.append(_versions(self.before, storage, -1))
        more = pa.concat_tables(counted).group_by(_STATED.names).aggregate([(_COUNT, "sum")])
        return more.filter(pc.not_equal(more.column(f"{_COUNT}_sum"), 0)).column(RECORD_KEY).unique()

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


_COUNT = "how often"
"""With a space, as no column of a table has."""


def _versions(slice_: DataFile, storage: Storage, count: int) -> pa.Table:
    """The commit time and the key of each row of a slice, and how much it counts."""
    with BaseFile(open_slice(slice_, storage), slice_.key) as base:
        stamps = pa.concat_tables([_STATED.empty_table(), *base.stamps(_STATED.names)])
    return stamps.append_column(_COUNT, pa.repeat(pa.scalar(count, pa.int64()), stamps.num_rows))


Versions = TypeVar("Versions", bound=RowVersions)


def _added(blocks: Iterable[Block], versions: Versions, positions: Iterable[Places | None] = ()) -> Versions:
    for block, places in zip_longest(blocks, positions):
        add_block(block, versions, places)
    return versions


def _positions(blocks: Iterable[Block], instant: str, rows: int) -> list[Places]:
    """Where the rows of blocks are in the base file of this instant, which has so many rows.

    `OtherPositions` if one does not say so, also because it was written on an earlier base file.
    """
    found = []
    for block in blocks:
        positions = positions_in(block, rows) if block.header.get(BlockHeader.BASE_INSTANT) == instant else None
        if positions is None or positions[-1] >= rows:
            raise OtherPositions
        found.append(positions)
    return found


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
    """The changes in a log file that lakelock wrote."""
    blocks = list(_blocks(LoggedSlice.of(DataFile(*log.group, "", log.instant, 0, (log,))), storage))
    versions = _added(blocks, ByCommitTime(_keyed(schema)))
    rows = pa.concat_tables([versions.columns.empty_table(), *versions.rest()])
    keys = rows.column(RECORD_KEY)
    gone = versions.keys.filter(pc.invert(pc.is_in(versions.keys, value_set=keys.combine_chunks())))
    upserts = Keyed(rows.select(schema.names), keys) if rows.num_rows else None
    return LogChanges(upserts, gone.to_pylist(), _same_positions(blocks, rows.num_rows, len(gone)))


def _same_positions(blocks: Sequence[Block], upserted: int, deleted: int) -> BasePositions | None:
    """The positions that a log file of one block of rows and one of deletes names; None if it does not, or has other blocks."""
    instants = {block.header.get(BlockHeader.BASE_INSTANT, "") for block in blocks}
    counts = {BlockKind.PARQUET: upserted, BlockKind.DELETE: deleted}
    found = {block.kind: positions_in(block, counts.get(block.kind, 0)) for block in blocks}
    lengths = {kind: 0 if positions is None else len(positions) for kind, positions in found.items()}
    if len(instants) != 1 or len(found) < len(blocks) or lengths != {kind: count for kind, count in counts.items() if count}:
        return None
    upserts, deletes = (found.get(kind) for kind in counts)
    nothing = np.array([], np.int64)
    return BasePositions(instants.pop(), nothing if upserts is None else upserts, nothing if deletes is None else deletes)


def _keyed(schema: TableSchema) -> pa.Schema:
    return pa.schema([*schema.arrow, (RECORD_KEY, pa.string())])


class LoggedCommit(NamedTuple):
    """A visible commit, which may have written log files."""

    requested: str
    completion: str
    metadata: CommitMetadata


def logs_of(commits: Iterable[LoggedCommit], as_of: str | None = None) -> dict[FileGroupId, set[CompletedLog]]:
    """The log files of these commits, except those of file groups that were replaced; for `with_logs`.

    `commits` must be all visible ones that wrote log files or replaced file groups, from the first on: a file group may have
    nothing but log files, older than every base file. With `as_of`, give the commits that were requested later, too: a log file
    that belongs to a later base file is not shown then, as in Java, although its own commit was requested before that time.
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
