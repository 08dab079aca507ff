"""What tasks do: write new base files, rewrite file groups. The same for Spark's executors and for the Arrow engine.

A marker is placed before its data file, so that no file is ever anonymous; the driver has claimed the file groups to rewrite.
A file that could not be finished is deleted if possible; its marker stays and says what to clean up.

The next attempt of a write takes the good files of the rejected attempt over (ADR 19): it copies them instead of making them
again. `EarlierFiles` names them, with Spark and without.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import IO

import pyarrow as pa

from lakelock.clock import Runtime, SystemRuntime
from lakelock.errors import LakelockError, StorageError, TransactionStateError, WriteFailed
from lakelock.events import Step, reached
from lakelock.markers.data_files import Announced, MarkerKind, TaskToken, announce_partition, announcements, is_announced
from lakelock.occ.begin import WriteContext
from lakelock.occ.restore import Copy
from lakelock.storage import Storage
from lakelock.table.base_files import Stamp, Written
from lakelock.table.commit_metadata import (
    NO_PREVIOUS,
    FileStatistics,
    RuntimeStats,
    WriteStat,
    ranges_in_footer,
    statistics_text,
)
from lakelock.table.index import file_id_without_bucket, new_file_id
from lakelock.table.log_files import LogFile
from lakelock.table.log_writing import LogChanges, LogStamp, log_stat
from lakelock.table.properties import TableProperties
from lakelock.table.record_keys import GeneratedKeys, Keyed
from lakelock.table.restamp import CannotRestamp
from lakelock.table.rewriting import ARROW, Counts, DeleteMask, Kernels, KeyedRows, Placed, StoredRows
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile

__all__ = ["FileTasks", "TaskToken", "WriteContext", "generated_keys"]


SLOW_S = 0.5
"""A task that took longer checks whether its file is still wanted; one more request hardly matters then."""


@dataclass(frozen=True)
class FileTasks:
    """The tasks of one transaction that write files."""

    context: WriteContext
    storage: Storage
    runtime: Runtime
    kernels: Kernels

    @classmethod
    def of(
        cls,
        context: WriteContext,
        storage: Storage | None = None,
        runtime: Runtime | None = None,
        kernels: Kernels = ARROW,
    ) -> FileTasks:
        """In a process that has nothing but the context, such as an executor's, which opens the storage itself."""
        return cls(context, storage or context.location.open(holds_table=True), runtime or SystemRuntime(), kernels)

    def write_new_files(
        self,
        partition: str,
        tables: Iterable[pa.Table],
        task: TaskToken,
        *,
        bucket: int | None = None,
        generated: GeneratedKeys | None = None,
        announced: Announced | None = None,
    ) -> list[WriteStat]:
        """Write rows of one partition into new file groups; columns of the table that they lack are null. No rows, no file.

        A file is closed at `write.target_file_rows` or `write.target_file_bytes`, unless all rows are those of one `bucket`,
        which has one file group. On an error none of the files of this call remains, if storage lets them go. In a table
        without a key, a task that calls this more than once passes the keys of its rows as `generated`. `announced`: the first
        file, where that is known and has its marker already.
        """
        context, uuid, stats = self.context, file_id_without_bucket(self.runtime.uuid()), list[WriteStat]()
        rows = _Rows(context, tables, self.kernels, generated or generated_keys(context, task))
        try:
            while rows.more():
                file_id = f"{uuid}-{len(stats)}" if bucket is None else new_file_id(bucket, partition, context.instant)
                file = DataFile(partition, file_id, str(task), context.instant)
                known = announced if announced is not None and not stats else Announced(file, None)
                stats.append(self._new_file(known, rows, first=not stats, whole=bucket is not None))
        except BaseException:
            self._remove([stat.path for stat in stats if stat.path])
            raise
        return stats

    def _new_file(self, announced: Announced, rows: _Rows, *, first: bool, whole: bool) -> WriteStat:
        """Write the next rows, all of them if they are to be in one file as a `whole`."""
        (file, since_s), context, runtime = announced, self.context, self.runtime
        began_s, settings = runtime.monotonic_s(), context.settings.write
        most_rows, most_bytes = (sys.maxsize, sys.maxsize) if whole else (settings.target_file_rows, settings.target_file_bytes)
        with self.announced(file, with_partition=first, since_s=since_s) as output:
            writer = self.kernels.new_file(output, context.schema, context.stamp(file), settings)
            while (left := most_rows - writer.rows) and output.tell() < most_bytes:
                if (part := rows.take(min(left, settings.row_group_rows))) is None:
                    break
                writer.add_new(part.rows, part.keys)
            written, size_bytes = writer.close(), output.tell()
        stat = _created(file, written.rows, size_bytes, round((runtime.monotonic_s() - began_s) * 1000), inserts=written.rows)
        return replace(stat, recorded=_recorded(context, written))

    def rewrite_group(
        self,
        base: DataFile,
        task: TaskToken,
        *,
        upserts: Keyed | Placed | None = None,
        delete_mask: DeleteMask | None = None,
        added: Keyed | None = None,
        content: DataFile | None = None,
    ) -> WriteStat | None:
        """Write the next slice of the file group of `base`, without the rows of `delete_mask` and with `upserts` (one per key,
        or by place). None if no row would change, as when all stored rows are newer: then no file is left.

        The `added` rows come last, whatever their keys. Columns that the `upserts` lack keep their stored values. `content`: an
        older slice, whose rows are taken instead. If `base` is of an earlier write of this transaction, the new file takes its
        place.
        """
        context, kernels, runtime = self.context, self.kernels, self.runtime
        file, began_s = DataFile(base.partition, base.file_id, str(task), context.instant), runtime.monotonic_s()
        source, ordering = content or base, context.properties.ordering_field
        own = next((own for own in context.own if own.file == base), None)
        made_from = base if own is None else own.made_from
        if own is None and base.newest_instant >= context.instant:
            raise TransactionStateError(
                f"{base.key} is not older than this transaction {context.instant}, and readers would keep showing it",
                hint="begin a new transaction",
            )
        if own is None and content is None and added is None and (share := context.append_below(base)):
            found = kernels.changed_in(
                base, self.storage, context.schema, context.stamp(file), context.settings.write, share,
                upserts=upserts, delete_mask=delete_mask, ordering_field=ordering,
            )  # fmt: skip
            if found is not None:
                return None if found.changes is None else self._appended(base, task, found.changes)
        try:
            with self.announced(file, base=made_from) as output:
                writer = kernels.new_file(output, context.schema, context.stamp(file), context.settings.write)
                counts = kernels.rewrite(
                    source, self.storage, writer, context.schema,
                    upserts=upserts, delete_mask=delete_mask, added=added, ordering_field=ordering,
                )  # fmt: skip
                if content is None and not counts.changes:
                    raise _Unchanged
                written = writer.close()
                size_bytes = output.tell()
        except _Unchanged:
            return None  # the commit removes the marker, as it does those of other files that it does not count
        stat = _rewritten(made_from, file, counts, size_bytes, round((runtime.monotonic_s() - began_s) * 1000))
        return replace(stat, recorded=_recorded(context, written))

    def _appended(self, base: DataFile, task: TaskToken, changes: LogChanges) -> WriteStat:
        """Append a log file to the file group of `base`."""
        stamp, began_s = LogStamp(self.context.instant, base.group, str(task)), self.runtime.monotonic_s()
        size_bytes = self._write_log(changes, stamp)
        took_ms = round((self.runtime.monotonic_s() - began_s) * 1000)
        return replace(log_stat(changes, stamp, size_bytes), runtime=RuntimeStats(upsert_ms=took_ms))

    def _write_log(self, changes: LogChanges, stamp: LogStamp) -> int:
        context = self.context
        with self.announced(stamp.file) as output:
            output.write(self.kernels.log(changes, context.schema, context.properties.name, stamp, context.settings.write))
            return output.tell()

    def move_rows(
        self,
        partition: str,
        batches: Iterable[StoredRows],
        task: TaskToken,
        *,
        file_rows: int | None = None,
        bucket: int | None = None,
    ) -> list[WriteStat]:
        """Write stored rows into new file groups of a partition, in their order and with all that their meta columns say.

        A file is closed at `file_rows`, if given. Rows of one `bucket` make its one file group. No rows make no file. On an
        error none of the files of this call remains, if storage lets them go.
        """
        context, runtime = self.context, self.runtime
        uuid, stats = file_id_without_bucket(runtime.uuid()), list[WriteStat]()
        pieces = _Pieces(batches)
        try:
            while pieces.more():
                file_id = f"{uuid}-{len(stats)}" if bucket is None else new_file_id(bucket, partition, context.instant)
                file = DataFile(partition, file_id, str(task), context.instant)
                began_s = runtime.monotonic_s()
                with self.announced(file, with_partition=not stats) as output:
                    writer = self.kernels.new_file(output, context.schema, context.stamp(file), context.settings.write)
                    while (piece := pieces.take(None if file_rows is None else file_rows - writer.rows)) is not None:
                        writer.add_stored(piece)
                    written, size_bytes = writer.close(), output.tell()
                stat = _created(file, written.rows, size_bytes, round((runtime.monotonic_s() - began_s) * 1000), inserts=0)
                stats.append(replace(stat, recorded=_recorded(context, written)))
        except BaseException:
            self._remove([stat.path for stat in stats if stat.path])
            raise
        return stats

    def copy_slice(self, copy: Copy, task: TaskToken) -> list[WriteStat]:
        """Write the rows of an older slice again: as the next one of its file group, or as a new group where that is gone."""
        if copy.base is not None:
            stat = self.rewrite_group(copy.base, task, content=copy.source)
            assert stat is not None, "the content of another slice is always written"
            return [stat]
        rows, bucket = self.stored([copy.source]), copy.bucket(self.context.properties)
        return self.move_rows(copy.source.partition, rows, task, bucket=bucket)

    def stored(self, files: Sequence[DataFile]) -> Iterator[StoredRows]:
        """The rows of these files, with all that their meta columns say of them."""
        return self.kernels.stored(files, self.context.schema, self.storage)

    def copy_file(
        self,
        earlier: WriteStat,
        task: TaskToken,
    ) -> WriteStat | None:
        """Copy a file of the `earlier` attempt, under this one's marker, name and instant; its file group stays.

        None if it has to be made again: it is gone, because its writer was taken for dead, or is not one that can be copied.
        """
        context, storage = self.context, self.storage
        source = DataFile.parse(earlier.path or "", earlier.file_size_bytes or 0)
        if source is None:
            return self._copied_log(earlier, task)
        file = DataFile(source.partition, source.file_id, str(task), context.instant)
        old = Stamp(context.properties.name, source.instant, source.partition, source.name)
        try:
            if earlier.is_new_group:
                announce_partition(storage, context.instant, file.partition)
            with self.announced(file, base=None if earlier.is_new_group else source) as output:
                with storage.open_input(source.key, size_bytes=source.size_bytes) as opened:
                    self.kernels.restamp(opened, output, old, context.stamp(file))
                size_bytes = output.tell()
        except (CannotRestamp, StorageError):
            return None
        return replace(earlier, path=file.key, total_write_bytes=size_bytes, file_size_bytes=size_bytes)

    def _copied_log(self, earlier: WriteStat, task: TaskToken) -> WriteStat | None:
        """The same for a log file, all of whose rows name its instant: it is read, and written anew."""
        source = LogFile.parse(earlier.path or "", earlier.file_size_bytes or 0)
        if source is None:
            return None
        stamp = LogStamp(self.context.instant, source.group, str(task))
        try:
            size_bytes = self._write_log(self.kernels.logged(source, self.context.schema, self.storage), stamp)
        except StorageError:
            return None
        log = stamp.file
        return replace(
            earlier, path=log.key, prev_commit=log.instant, log_files=(log.name,),
            total_write_bytes=size_bytes, file_size_bytes=size_bytes,
        )  # fmt: skip

    @contextmanager
    def announced(
        self,
        file: DataFile | LogFile,
        *,
        base: DataFile | None = None,
        with_partition: bool = False,
        since_s: float | None = None,
    ) -> Iterator[IO[bytes]]:
        """A new data file with its marker, complete when the block ends without an error and removed otherwise.

        With `base` it is the next slice of that file group; `with_partition` also makes its folder a partition, if it is none.
        `since_s`: it has been announced since then, by the monotonic clock.

        A slow task may be one that was given up: another attempt is committed, and a file of this one would be visible with it.
        The commit removes the markers of attempts that it does not count before it removes their files for the last time, so a
        file whose marker is gone once it is complete is removed here.
        """
        context, storage, runtime = self.context, self.storage, self.runtime
        began_s, kind = runtime.monotonic_s() if since_s is None else since_s, MarkerKind.MERGE if base else MarkerKind.CREATE
        if since_s is None:
            runtime.gather(announcements(storage, file, kind, with_partition=with_partition), limit=context.requests_at_once)
            reached(Step.MARKED)
        try:
            with storage.open_output(file.key) as output:
                reached(Step.FILE_OPENED)
                yield output
            slow = runtime.monotonic_s() - began_s > SLOW_S
            if slow and not is_announced(storage, file.instant, file, kind):
                raise WriteFailed(
                    f"{file.key} was written too late: its transaction has ended, or continues with another attempt of this "
                    "task",
                    hint="nothing needs to be done; if a whole write failed with this, run it again",
                    instant=file.instant,
                )
        except BaseException:
            self._remove([file.key])
            raise
        reached(Step.FILE_WRITTEN)

    def _remove(self, keys: list[str]) -> None:
        with suppress(LakelockError):
            self.storage.delete(keys)


class _Unchanged(Exception):
    """A rewrite turned out to change nothing, so its file is given up."""


def generated_keys(context: WriteContext, task: TaskToken) -> GeneratedKeys | None:
    """The keys of the new rows of a task in a table without a key; None where rows have keys."""
    if context.properties.record_keys:
        return None
    # Java's middle number is that of the task in its stage. A transaction may have several stages that insert.
    return GeneratedKeys(context.instant, task.stage << 32 | task.partition)


class _Pieces:
    """Batches of stored rows as a stream that can be cut at any row."""

    def __init__(self, batches: Iterable[StoredRows]) -> None:
        self._batches = (batch for batch in batches if batch.num_rows)
        self._next: StoredRows | None = None

    def more(self) -> bool:
        if self._next is None:
            self._next = next(self._batches, None)
        return self._next is not None

    def take(self, most: int | None) -> StoredRows | None:
        """The next rows, at most `most`; None at the end, and where no more may be taken."""
        if most == 0 or not self.more():
            return None
        current: StoredRows = self._next
        self._next = None
        if most is not None and current.num_rows > most:
            current, self._next = current.slice(0, most), current.slice(most, current.num_rows - most)
        return current


class _Rows:
    """The rows of a task as a stream that can be cut at any row."""

    def __init__(
        self, context: WriteContext, tables: Iterable[pa.Table], kernels: Kernels, generated: GeneratedKeys | None
    ) -> None:
        self._keyed: Iterator[KeyedRows] = (
            kernels.keyed(batch, context.properties) if generated is None else Keyed(batch, generated.take(batch.num_rows))
            for table in tables
            for batch in kernels.batches(table)
        )
        self._next: KeyedRows | None = None

    def more(self) -> bool:
        if self._next is None:
            self._next = next(self._keyed, None)
        return self._next is not None

    def take(self, most: int) -> KeyedRows | None:
        """The next rows, at least one and at most `most`; None at the end."""
        if not self.more() or self._next is None:
            return None
        current, self._next = self._next, None
        if len(current) <= most:
            return current
        first, self._next = current.cut(most)
        return first


def _created(file: DataFile, count: int, size_bytes: int, took_ms: int, *, inserts: int) -> WriteStat:
    return WriteStat(
        file_id=file.file_id,
        path=file.key,
        partition_path=file.partition,
        num_writes=count,
        num_inserts=inserts,
        total_write_bytes=size_bytes,
        file_size_bytes=size_bytes,
        runtime=RuntimeStats(create_ms=took_ms),
    )


def _recorded(context: WriteContext, written: Written) -> str | None:
    """What is known of the rows of a file that was written, for its commit."""
    footer, keys = written.metadata, written.keys
    if footer is None and keys is None:
        return None
    columns = ranges_in_footer(footer, context.schema.arrow, most=context.settings.statistics.columns) if footer else {}
    least, greatest = (keys.least, keys.greatest) if keys is not None else (None, None)
    return statistics_text(FileStatistics(written.rows, least, greatest, columns))


def _rewritten(base: DataFile | None, file: DataFile, counts: Counts, size_bytes: int, took_ms: int) -> WriteStat:
    """`base`: None in a new file group, which an earlier write of the transaction has made."""
    return WriteStat(
        file_id=file.file_id,
        path=file.key,
        partition_path=file.partition,
        prev_commit=NO_PREVIOUS if base is None else base.instant,
        prev_base_file=base.name if base is not None and base.token else None,
        num_writes=counts.written,
        num_inserts=counts.inserted,
        num_update_writes=counts.updated,
        num_deletes=counts.deleted,
        total_write_bytes=size_bytes,
        file_size_bytes=size_bytes,
        runtime=RuntimeStats(upsert_ms=took_ms),
    )


Target = tuple[str, "int | None"]
"""Partition and, in a table with buckets, bucket of new rows."""


@dataclass
class Files:
    """The files that one attempt wrote: those that came of a slice, by content, and the new ones with their rows' keys."""

    rewritten: dict[str, WriteStat] = field(default_factory=dict)
    new: dict[Target, tuple[object, Sequence[WriteStat]]] = field(default_factory=dict)
    adopted: dict[str, str] = field(default_factory=dict)
    """By partition, the content of the slice whose rewritten file also has the partition's new rows."""
    joined: dict[str, object] = field(default_factory=dict)
    """By the content of a slice whose bucket got new rows: what tells these rows."""

    def made_from(self, base: DataFile) -> WriteStat | None:
        """The file that was made from this base file."""
        return self.rewritten.get(base.content)

    def made_of(self, target: Target, keys: object) -> Sequence[WriteStat] | None:
        """The new files that were made of the rows with these keys; None if none were, or others."""
        if target not in self.new:
            return None
        before, stats = self.new[target]
        return stats if before == keys else None


class EarlierFiles:
    """The files that the attempts of one call have written; its rows or condition are the same in each attempt."""

    def __init__(self) -> None:
        self._written_by: tuple[TableSchema, TableProperties] | None = None
        self._files: dict[str, Files] = {}

    def begin(self, instant: str, earlier: str | None, schema: TableSchema, properties: TableProperties) -> tuple[Files, Files]:
        """The files of the `earlier` attempt that the attempt of an instant may copy, and an empty record for its own files.

        Under another schema rows differ, and under other properties keys do: then the earlier files are forgotten.
        """
        if self._written_by not in (None, (schema, properties)):
            self.forget()
        self._written_by = schema, properties
        before = self._files.get(earlier or "", Files())
        self._files = {earlier or "": before, instant: Files()}
        return before, self._files[instant]

    def forget(self) -> None:
        """Forget everything, since the table is not what it was."""
        self._files = {}
