"""Hudi's metadata table, kept true: what becomes visible in the table is listed in the metadata table before.

A delta commit of the metadata table has the time of the commit that it is about, and counts once that commit is completed.
So it goes between the decision and the completed file, under the lock. Each of its files is put if absent, with bytes that
the decision fixes, and whoever finishes a commit for another finishes this, too. Its completion time alone is made when it is
written: readers take a log file for a part of the newest base file before its completion, so that time must be later than
everything on the timeline of the metadata table.

`files`, `column_stats` and `partition_stats` are kept. Java's other partitions would hide rows if they were left as they are,
so a table that has them is refused (`lakelock.table.eligibility`). Statistics come from the footers of the new files, so
whoever finishes a commit makes the same. Those of a partition are joined with what the metadata table says of it. Where
another engine has completed a delta commit in between, they are joined once more, under a time of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from lakelock.errors import CorruptTableError, RolledBackError, StorageError, TableError
from lakelock.events import EventKind
from lakelock.occ.crash_points import Step, reached
from lakelock.occ.open_table import OpenTable
from lakelock.storage import Listed, Storage
from lakelock.storage.base import is_missing
from lakelock.table import layout
from lakelock.table.archive import read_commit
from lakelock.table.commit_metadata import CommitMetadata, WriteStat
from lakelock.table.instants import Action, Instant, State, later_than
from lakelock.table.log_files import LogFile
from lakelock.table.metadata_records import COLUMN_STATS, FILES, KEPT, PARTITION_STATS, Record, Records, files_records
from lakelock.table.metadata_stats import (
    FileStats,
    StatsIndex,
    column_stats_key,
    column_stats_records,
    file_stats,
    null_records,
    partition_stats_key,
    partition_stats_records,
)
from lakelock.table.metadata_table import (
    GroupLog,
    MetadataTable,
    file_groups,
    group_logs,
    lacking,
    list_partition,
    log_name,
    read_metadata_timeline,
    schemas_of,
)
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile
from lakelock.table.timeline import Timeline
from lakelock.texts import command

NOTHING_AHEAD: Mapping[str, FileStats] = {}
_FILES_GROUP = "files-0000-0"
_OPERATION = "UPSERT_PREPPED"


@dataclass(frozen=True)
class KeptMetadata:
    """The metadata table as it was found under the lock. `timeline` is its own; `listed` are the files of its statistics.
    `ahead`: statistics of new files that were made before, by path.
    """

    table: OpenTable
    timeline: Timeline
    listed: Mapping[str, Sequence[Listed]]
    index: StatsIndex | None
    ahead: Mapping[str, FileStats]

    @classmethod
    def look(
        cls, table: OpenTable, properties: TableProperties, ahead: Mapping[str, FileStats] = NOTHING_AHEAD
    ) -> KeptMetadata | None:
        """The metadata table that the table's properties name; None if there is none. Hold the table's lock.

        A listing of its timeline and of its statistics, at once. `TableError` if it is not there, or not as lakelock writes it.
        """
        kept = properties.metadata_partitions
        if not kept:
            return None
        if FILES not in kept or not set(kept) <= set(KEPT):
            raise _unfit(table, f"its metadata table has {', '.join(kept)}, not only {', '.join(KEPT)}")
        storage, statistics = table.storage, [name for name in kept if name != FILES]
        timeline, stored, definitions, *listings = table.at_once(
            partial(read_metadata_timeline, storage),
            partial(storage.get, _key(layout.PROPERTIES)),
            partial(storage.get, layout.INDEX_DEFINITIONS) if statistics else lambda: None,
            *(partial(list_partition, storage, name) for name in statistics),
        )
        if stored is None or not timeline.commits:
            raise _unfit(table, f"{layout.PROPERTIES} names a metadata table, and {layout.METADATA_TABLE} has none")
        version = TableProperties.parse(stored.data, _key(layout.PROPERTIES)).version
        if version != properties.version:
            raise _unfit(table, f"its metadata table has version {version}, and itself {properties.version}")
        index = None if definitions is None else StatsIndex.parse(definitions.data, layout.INDEX_DEFINITIONS)
        if statistics and index is None:
            raise _unfit(table, f"it has {', '.join(kept)}, and {layout.INDEX_DEFINITIONS} is not there")
        if index is not None and index.nested:
            raise _unfit(table, f"its metadata table has statistics of columns inside others: {', '.join(index.nested)}")
        return cls(table, timeline, dict(zip(statistics, listings, strict=True)), index, ahead)

    def ensure_free(self, instant: str) -> None:
        """`RolledBackError` if the metadata table has other things of this time: a clock was ahead, or stood still."""
        at = (i for i in self.timeline.instants if i.requested == instant)
        if any(i.action != Action.DELTA_COMMIT or i.is_completed for i in at):
            raise RolledBackError(
                f"{instant}: another engine has changed the metadata table at this very time",
                hint="run the operation again",
                instant=instant,
            )

    def commit(self, instant: str, metadata: CommitMetadata) -> None:
        """List the files of a commit that is decided and not visible yet. Idempotent. Hold the table's lock."""
        at = max((i.completion or "" for i in self.timeline.commits if i.requested == instant), default="")
        if not at:
            self._append(instant, self._records_of(metadata))
        elif any((i.completion or "") > at for i in self.timeline.commits if i.action == Action.DELTA_COMMIT):
            # A finisher was killed before, and another engine has written bounds of partitions without these files since.
            joined = {PARTITION_STATS: self._statistics(metadata).get(PARTITION_STATS, {})}
            if joined[PARTITION_STATS]:
                self._append(later_than(self.table.runtime.now_ms(), self.timeline.newest_time), joined)

    def clean(self, instant: str, files: Mapping[str, Sequence[str]], data: Timeline) -> None:
        """Take the files out, by partition, that a clean has deleted; before it is completed. Hold the table's lock."""
        records: dict[str, Records] = {FILES: files_records({}, files)}
        if COLUMN_STATS in self.listed:
            schema = _schema_of(read_commit(self.table.storage, data.commits[-1])) if data.commits else pa.schema([])
            columns = {*self.index.of(schema), *self.index.columns} if self.index else ()
            records[COLUMN_STATS] = {
                column_stats_key(column, partition, name): None
                for partition, names in files.items()
                for name in names
                for column in columns
            }
        self._append(instant, records)

    def withdraw(self, instant: str) -> None:
        """Take out what an instant listed that never will be visible, whoever did. Hold the table's lock.

        Before its pending files go from the table: what is completed here and pending nowhere counts.
        """
        listed = [i for i in self.timeline.instants if i.requested == instant and i.action == Action.DELTA_COMMIT]
        if not listed:
            return
        storage = self.table.storage
        logs = [f"{partition}/{log_name(each, instant)}" for partition, groups in self._groups().items() for each in groups]
        for done in (i for i in listed if i.is_completed):
            key = _key(layout.timeline(done.file_name))
            stored = storage.get(key)
            if stored is not None:  # another engine names its log files in its own way
                logs += [stat.path for stat in CommitMetadata.from_bytes(stored.data, key).stats if stat.path]
            storage.delete([key])
        storage.delete(sorted({_key(log) for log in logs}))
        storage.delete_folder(_key(layout.marker_folder(instant)))
        for state in (State.INFLIGHT, State.REQUESTED):
            storage.delete([_key(layout.timeline(_delta_commit(instant, state).file_name))])
        storage.delete([_key(layout.heartbeat(instant))])

    def mended(self, data: Timeline) -> KeptMetadata:
        """This after what completed commits of the table should have listed, and did not, was appended late."""
        now = self
        for commit in lacking(self.timeline, data):
            now = now._append(commit.requested, now._records_of(read_commit(self.table.storage, commit)))
            problem = f"the metadata table lacked {commit.requested}, so its readers missed rows; it has it now"
            self.table.emit(EventKind.ALERT, commit.requested, problem=problem)
        return now

    def _records_of(self, metadata: CommitMetadata) -> dict[str, Records]:
        """What a delta commit says of the files of a commit."""
        added = {
            partition: {stat.path.rpartition("/")[2]: stat.file_size_bytes or 0 for stat in stats if stat.path}
            for partition, stats in metadata.write_stats.items()
        }
        return {FILES: files_records(added, {}), **self._statistics(metadata)}

    def _statistics(self, metadata: CommitMetadata) -> dict[str, Records]:
        """The records of the statistics that are kept, from the footers of the new files."""
        if self.index is None:
            return {}
        schema = _schema_of(metadata)
        columns = self.index.of(schema)
        files = _data_files(metadata.stats)
        found = _statistics_of(self.table, files, columns, schema, self.ahead)
        by_file: dict[str, Record] = {}
        by_partition: dict[str, list[FileStats]] = {}
        for stat, stats in zip(files, found, strict=True):
            if stats is not None:
                partition, name = layout.split_path(stat.path or "")
                by_file |= column_stats_records(partition, name, stats, self.index.version)
                if any(found.values for found in stats.values()):
                    by_partition.setdefault(partition, []).append(stats)
        metadata_table, version = MetadataTable(self.table.io, self.timeline, Timeline.of([])), self.index.version
        records: dict[str, dict[str, Record]] = {name: {} for name in (COLUMN_STATS, PARTITION_STATS) if name in self.listed}
        added = [
            column for column in columns if column not in (*self.index.columns, *self.table.observed.columns_in_statistics)
        ]
        for name, made in records.items() if added else ():
            made |= null_records(name, added, metadata_table.records(name), schema, version)
        if COLUMN_STATS in records:
            records[COLUMN_STATS] |= by_file
        if PARTITION_STATS in records:
            keys = [partition_stats_key(column, partition) for partition in by_partition for column in columns]
            known = metadata_table.newest(PARTITION_STATS, keys, self.listed[PARTITION_STATS])
            for partition, each in by_partition.items():
                records[PARTITION_STATS] |= partition_stats_records(partition, each, known, version)
        return dict(records)

    def _append(self, instant: str, records: Mapping[str, Records]) -> KeptMetadata:
        """Write one delta commit, unless it is there; the metadata table with it."""
        timeline, storage = self.timeline, self.table.storage
        if any(i.requested == instant and i.is_completed and i.action == Action.DELTA_COMMIT for i in timeline.instants):
            return self
        schema, table_schema = self._schemas()
        logs = group_logs(instant, records, self._groups(), schema)
        put = storage.put_if_absent
        begun = (_delta_commit(instant, state) for state in (State.REQUESTED, State.INFLIGHT))
        requested, inflight = (_key(layout.timeline(each.file_name)) for each in begun)
        put_logs = (partial(_put_log, storage, _key(log.path), log.data) for log in logs)
        self.table.at_once(partial(put, requested, b""), partial(put, inflight, b""), *put_logs)
        reached(Step.METADATA_LOGGED)
        # Later than everything on its timeline: the log file goes on top of the base files that there are.
        completion = later_than(self.table.runtime.now_ms(), max(timeline.newest_time, instant))
        done = _delta_commit(instant, State.COMPLETED, completion)
        put(_key(layout.timeline(done.file_name)), _commit_bytes(instant, logs, table_schema))
        reached(Step.METADATA_KEPT)
        added = {
            name: [Listed(_key(log.path), len(log.data), 0) for log in logs if log.partition == name] for name in self.listed
        }
        return replace(
            self,
            timeline=Timeline.of([*timeline.instants, done], archived=timeline.has_archive),
            listed={name: [*files, *added[name]] for name, files in self.listed.items()},
        )

    def _groups(self) -> dict[str, tuple[str, ...]]:
        """The file groups of each partition that is kept; `files` has one."""
        return {FILES: (_FILES_GROUP,), **{name: file_groups(name, files) for name, files in self.listed.items()}}

    def _schemas(self) -> tuple[str, str]:
        """The schema of records, with Hudi's own columns and without. Read again only if it was made anew."""
        known = self.table.observed.metadata_schemas
        first = self.timeline.instants[0].requested, self.timeline.instants[0].completion or ""
        if known is None or known[0] != first:
            found = schemas_of(MetadataTable(self.table.io, self.timeline, Timeline.of([])))
            known = self.table.observed.metadata_schemas = first, found
        return known[1]


def statistics_ahead(
    table: OpenTable, properties: TableProperties, stats: Iterable[WriteStat], schema: pa.Schema
) -> Mapping[str, FileStats]:
    """The statistics of a commit's files by path, for `KeptMetadata.look`: so that nobody waits at the lock meanwhile."""
    definitions = table.storage.get(layout.INDEX_DEFINITIONS) if COLUMN_STATS in properties.metadata_partitions else None
    if definitions is None:
        return NOTHING_AHEAD
    files, columns = _data_files(stats), StatsIndex.parse(definitions.data, layout.INDEX_DEFINITIONS).of(schema)
    found = zip(files, _statistics_of(table, files, columns, schema, NOTHING_AHEAD), strict=True)
    return {stat.path or "": each for stat, each in found if each is not None}


def _data_files(stats: Iterable[WriteStat]) -> list[WriteStat]:
    return [stat for stat in stats if stat.path and (DataFile.parse(stat.path) or LogFile.parse(stat.path))]


def _statistics_of(
    table: OpenTable, files: Sequence[WriteStat], columns: Sequence[str], schema: pa.Schema, ahead: Mapping[str, FileStats]
) -> list[FileStats | None]:
    """The statistics of new files; None for one that is gone, damaged or not understood, so that nobody can read its rows."""

    def read(stat: WriteStat) -> FileStats | None:
        path = stat.path or ""
        known = ahead.get(path, {})
        if set(columns) <= known.keys():
            return {column: known[column] for column in columns}
        try:
            with table.storage.open_input(path, size_bytes=stat.file_size_bytes or 0) as source:
                return file_stats(source, path, columns, schema)
        except (CorruptTableError, TableError) as error:
            table.emit(EventKind.ALERT, "", problem=f"no statistics for Hudi's metadata table: {error.message}")
        except StorageError as error:
            if not is_missing(error):
                raise
        return None

    return table.io.gather([partial(read, stat) for stat in files])


def _commit_bytes(instant: str, logs: Sequence[GroupLog], schema: str) -> bytes:
    """The completed delta commit, as Java writes it."""
    stats: dict[str, tuple[WriteStat, ...]] = {}
    for log in logs:
        stat = WriteStat(
            log.file_id, log.path, prev_commit=instant, num_writes=log.records, num_update_writes=log.records,
            total_write_bytes=len(log.data), partition_path=log.partition, file_size_bytes=len(log.data), log_version=1,
            log_offset=0, base_file="", log_files=(log.name,),
        )  # fmt: skip
        stats[log.partition] = (*stats.get(log.partition, ()), stat)
    return CommitMetadata(stats, _OPERATION, {"schema": schema}).to_bytes()


def _put_log(storage: Storage, key: str, data: bytes) -> None:
    """Put a log file. One that a killed writer left may have been joined with less than there is now."""
    if storage.put_if_absent(key, data) is None:
        stored = storage.get(key)
        if stored is not None and stored.data != data:
            storage.delete([key])
            storage.put_if_absent(key, data)


def _schema_of(metadata: CommitMetadata) -> pa.Schema:
    """The columns of the table as of a commit."""
    return TableSchema.of_commit(metadata.schema_json).arrow if metadata.schema_json else pa.schema([])


def _delta_commit(instant: str, state: State, completion: str | None = None) -> Instant:
    return Instant(instant, Action.DELTA_COMMIT.value, state, completion)


def _key(key: str) -> str:
    return f"{layout.METADATA_TABLE}/{key}"


def _unfit(table: OpenTable, why: str) -> TableError:
    return TableError(
        f"lakelock does not write {table.storage.uri}: {why}",
        hint=f"{command('adopt', table.storage.uri, '--drop-metadata-table')} drops it; Java's next write builds it anew",
    )
