"""Hudi's metadata table, kept true: what becomes visible in the table is listed in the metadata table before.

A delta commit of the metadata table has the same instant as the commit of the table that it describes, and counts once that
commit is completed. So it is written under the lock, between the decision and the completed file. Each of its files is put if
absent, with bytes that the decision determines, and a process that publishes a commit for another writer writes this, too. Only
its completion time is chosen when it is written. Readers assign a log file to the newest base file before its completion, so
that time must be later than everything on the timeline of the metadata table.

The partitions `files`, `column_stats`, `partition_stats` and `record_index` are maintained. Java's other partitions would hide
rows if they fell behind, so a table that has them is refused (`lakelock.table.eligibility`). Records about files are derived
from the files, so every process that publishes a commit writes the same. If it can no longer be known which keys a commit
changed, the record index is dropped, as Java does. Statistics of a partition are merged with those that the metadata table has.

Readers merge log files in the order of their instants, whatever was completed first. So a transaction begins again if the
record index has one of its keys under a later instant. Statistics of a partition that has some under a later instant are
written once more, under an instant of their own; likewise if another engine has completed a delta commit in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from lakelock.errors import CorruptTableError, RolledBackError, StorageError, StorageUnavailable, TableError
from lakelock.events import EventKind, Step, reached
from lakelock.occ import commit_keys as keys
from lakelock.occ.live_logs import slices_at, with_committed_logs
from lakelock.occ.open_table import OpenTable
from lakelock.storage import Listed, Storage
from lakelock.storage.base import is_missing
from lakelock.table import layout
from lakelock.table.archive import read_commit
from lakelock.table.commit_metadata import CommitMetadata, WriteStat
from lakelock.table.hfile import MOST_KEY_BYTES, is_too_long
from lakelock.table.instants import Action, Instant, State, format_instant, later_than, parse_instant
from lakelock.table.log_files import LogFile
from lakelock.table.metadata_records import (
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    Record,
    Records,
    files_records,
    unkept,
)
from lakelock.table.metadata_stats import (
    FileStats,
    StatsIndex,
    column_stats_key,
    column_stats_records,
    file_stats,
    null_records,
    partition_stats_key,
    partition_stats_records,
    with_files_of_nulls,
    with_nulls,
)
from lakelock.table.metadata_table import (
    GroupLog,
    MetadataTable,
    file_groups,
    group_logs,
    is_own_time,
    lacking,
    list_partition,
    log_name,
    overtaken,
    own_time,
    read_metadata_timeline,
    schemas_of,
)
from lakelock.table.properties import METADATA_PARTITIONS, TableProperties
from lakelock.table.record_index import (
    MOST_KEYS,
    KeyChanges,
    changed_keys,
    is_partitioned,
    keys_in,
    most_changed,
    place_record,
)
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile, Snapshot, read_snapshot
from lakelock.table.timeline import Timeline
from lakelock.texts import command

_FILES_GROUP = "files-0000-0"
_OPERATION = "UPSERT_PREPPED"
_SOON_MS = 1000


OWN_TIMES = 20
"""How many times in a row others may take the time that bounds are to be written once more under."""


@dataclass(frozen=True)
class Ahead:
    """What was read of a commit's files before the lock was taken, by path."""

    statistics: Mapping[str, FileStats] = field(default_factory=dict)
    keys: Mapping[str, KeyChanges] = field(default_factory=dict)


NOTHING_AHEAD = Ahead()


@dataclass(frozen=True)
class KeptMetadata:
    """The metadata table as it was found under the lock.

    `timeline`: that of the metadata table. `listed`: the files of its partitions except the partition `files`. `ahead`: what
    was read of the commit's files before the lock. `named`: keys that log files of the record index name, by log file.
    """

    table: OpenTable
    timeline: Timeline
    listed: Mapping[str, Sequence[Listed]]
    index: StatsIndex | None
    ahead: Ahead
    named: dict[str, list[str]] = field(default_factory=dict, compare=False)

    @classmethod
    def look(cls, table: OpenTable, properties: TableProperties, ahead: Ahead = NOTHING_AHEAD) -> KeptMetadata | None:
        """The metadata table that the table's properties name; None if there is none. Hold the table's lock.

        A listing of its timeline and of each partition but `files`, at once. `TableError` if it is not there, or not as
        lakelock writes it.
        """
        kept = properties.metadata_partitions
        if not kept:
            return None
        others = unkept(kept)
        if FILES not in kept or others:
            raise _unfit(table, f"its metadata table has {', '.join(others) or 'no files'}, which lakelock does not keep")
        storage, indexes = table.storage, [name for name in kept if name != FILES]
        timeline, stored, definitions, *listings = table.at_once(
            partial(read_metadata_timeline, storage),
            partial(storage.get, _key(layout.PROPERTIES)),
            partial(storage.get, layout.INDEX_DEFINITIONS) if indexes else lambda: None,
            *(partial(list_partition, storage, name) for name in indexes),
        )
        if stored is None or not timeline.commits:
            raise _unfit(table, f"{layout.PROPERTIES} names a metadata table, and {layout.METADATA_TABLE} has none")
        version = TableProperties.parse(stored.data, _key(layout.PROPERTIES)).version
        if version != properties.version:
            raise _unfit(table, f"its metadata table has version {version}, and itself {properties.version}")
        statistics, defined = set(indexes) - {RECORD_INDEX}, definitions and definitions.data
        index = StatsIndex.parse(defined, layout.INDEX_DEFINITIONS) if statistics and defined else None
        if statistics and index is None:
            raise _unfit(table, f"it has {', '.join(kept)}, and {layout.INDEX_DEFINITIONS} is not there")
        if index is not None and index.nested:
            raise _unfit(table, f"its metadata table has statistics of columns inside others: {', '.join(index.nested)}")
        if RECORD_INDEX in indexes and is_partitioned(defined, layout.INDEX_DEFINITIONS):
            raise _unfit(table, "its record index knows a key by its partition (hoodie.metadata.record.level.index.enable)")
        found = cls(table, timeline, dict(zip(indexes, listings, strict=True)), index, ahead)
        found._groups()  # raises now, before anything is decided
        return found

    def ensure_free(self, instant: str) -> None:
        """`RolledBackError` if the commit cannot be listed under its instant; running it again takes a later one.

        The metadata table may have another action at this instant, since clocks differ. Or its record index may have some of
        the same keys under a later instant, which would hide the commit's records.
        """
        at = (i for i in self.timeline.instants if i.requested == instant)
        if any(i.action != Action.DELTA_COMMIT or i.is_completed for i in at):
            # Where a clock is ahead, upkeep may have taken many of the next times. One of a year ahead would be of no use.
            soon = format_instant(parse_instant(instant) + _SOON_MS)
            self.table.observed.time_seen(max(i.requested for i in self.timeline.instants if i.requested < soon))
            raise RolledBackError(
                f"{instant}: another engine has changed the metadata table at this very time",
                hint="run the operation again",
                instant=instant,
            )
        mine = {key for changes in self.ahead.keys.values() for key in (*changes.added, *changes.gone)}
        if mine and not self._said_later(instant).isdisjoint(mine):
            raise RolledBackError(
                f"{instant}: a commit that began later has changed the places of the same keys in Hudi's record index",
                hint="run the operation again",
                instant=instant,
            )

    def _said_later(self, instant: str) -> set[str]:
        """The keys of which the record index says something under a later instant."""
        found = MetadataTable(self.table.io, self.timeline, Timeline.of([]))
        return found.said_later(self.listed.get(RECORD_INDEX, ()), instant, self.named)

    def commit(self, instant: str, metadata: CommitMetadata, data: Timeline) -> None:
        """List the files of a commit that is decided and not visible yet. Idempotent. Hold the table's lock.

        `data`: the table's timeline, which does not show it.
        """
        at = max((i.completion or "" for i in self.timeline.commits if i.requested == instant), default="")
        if not at:
            self._list(instant, metadata, partial(slices_at, self.table, data))
            return
        others = [i for i in self.timeline.instants if i.requested != instant]
        if any(i.action == Action.DELTA_COMMIT and ((i.completion or "") > at or i.requested > instant) for i in others):
            # A process was killed after listing this, and others have written partition statistics without these files since.
            self.append_anew(metadata)

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
        _, known = self.table.observed.columns_in_statistics
        is_known, kept = self._have_all(known), self._append(instant, records)
        if is_known:
            kept._remember(known)

    def withdraw(self, instant: str) -> None:
        """Remove what any writer listed for an instant that will never be visible. Hold the table's lock.

        Call it before the pending files are deleted from the table's timeline: a delta commit that is completed here counts as
        soon as its instant is no longer pending there.
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
        """Repair what other engines left wrong in the metadata table, and return it as it is then.

        Partition statistics that an earlier instant wrote are hidden by those of a later one, so they are written once more.
        Completed commits of the table that were never listed are listed now. Call it before anything else is written:
        statistics that were written once more show that a process has already looked for hidden ones.
        """
        now, late = self, sorted(lacking(self.timeline, data), key=lambda each: each.completion or each.requested)
        hidden = overtaken(self.timeline, data) if PARTITION_STATS in self.listed else []
        if hidden:
            read = [read_commit(self.table.storage, each) for each in hidden]
            partitions = {partition for metadata in read for partition in metadata.write_stats}
            written = {each: tuple(s for metadata in read for s in metadata.write_stats.get(each, ())) for each in partitions}
            now = self.append_anew(replace(read[-1], write_stats=written))
        for number, commit in enumerate(late):
            before = replace(data, instants=tuple(each for each in data.instants if each not in late[number:]))
            if any((each.completion or each.requested) > (commit.completion or commit.requested) for each in before.commits):
                # What came later may have moved its keys, or taken them out.
                now = now._without_record_index(f"it lacked {commit.requested}, and others have committed since")
            metadata = read_commit(self.table.storage, commit)
            counted = keys.WRITE_ID in metadata.extra  # by lakelock
            slices = partial(_slices_of, self.table, before)
            now = now._list(commit.requested, metadata, slices, counted=counted)
            problem = f"the metadata table lacked {commit.requested}, so its readers missed rows; it has it now"
            self.table.emit(EventKind.ALERT, commit.requested, problem=problem)
        return now

    def _list(
        self, instant: str, metadata: CommitMetadata, before: Callable[[], Snapshot], *, counted: bool = True
    ) -> KeptMetadata:
        """Write the delta commit of a commit: what it says of its files, and of their keys as far as that can be known.

        `before`: the table as the commit found it; `counted`: as for `changed_keys`.
        """
        added = {
            partition: {stat.path.rpartition("/")[2]: stat.file_size_bytes or 0 for stat in stats if stat.path}
            for partition, stats in metadata.write_stats.items()
        }
        records: dict[str, Records] = {FILES: files_records(added, {}), **self.statistics(metadata)}
        kept = self
        if RECORD_INDEX in self.listed:
            try:
                places = _places(self.table, instant, metadata, before, self.ahead, counted=counted)
                if not self._said_later(instant).isdisjoint(places):
                    raise _KeysUnknown(f"a commit of a later instant than {instant} has changed the places of the same keys")
                records[RECORD_INDEX] = places
            except _KeysUnknown as unknown:
                kept = self._without_record_index(str(unknown))
        kept, logs = kept._append(instant, records), (LogFile.parse(item.key) for item in self.listed.get(PARTITION_STATS, ()))
        if self.index is not None:
            # As of before: who lists a commit without the lock at the same time is found to have come since.
            self._remember(self._added(self.index.of(_schema_of(metadata))))
        hidden = records.get(PARTITION_STATS) and any(log and log.instant > instant for log in logs)
        return kept.append_anew(metadata) if hidden else kept

    def append_anew(self, metadata: CommitMetadata) -> KeptMetadata:
        """Write statistics of the partitions with a commit's files under a time of their own, so that they count.

        The time is taken first, and then all that others have written is read, whatever the last of them says. Others take a
        time after they have listed their commit: so the last word knows all commits, even if the lock excludes no one.
        """
        if PARTITION_STATS not in self.listed:
            return self
        timeline, storage = self.timeline, self.table.storage
        for _ in range(OWN_TIMES):
            own = own_time(timeline)
            requested = _key(layout.timeline(_delta_commit(own, State.REQUESTED).file_name))
            if storage.put_if_absent(requested, b"") is not None:
                listed = {**self.listed, PARTITION_STATS: list_partition(storage, PARTITION_STATS)}
                now = replace(self, timeline=timeline, listed=listed)
                bounds = now.statistics(metadata, counting=False).get(PARTITION_STATS, {})
                return now._append(own, {PARTITION_STATS: bounds})
            timeline = read_metadata_timeline(storage)
        raise StorageUnavailable(
            f"others took each of {OWN_TIMES} times in the metadata table of {storage.uri}",
            hint="run it again; if it persists, check that the lock excludes: " + command("doctor", storage.uri),
        )

    def _without_record_index(self, why: str) -> KeptMetadata:
        """Remove the record index, if it is there: first its name, by which readers and writers know of it, then its files."""
        if RECORD_INDEX not in self.listed:
            return self
        table = self.table
        names = [name for name in table.properties().metadata_partitions if name != RECORD_INDEX]
        table.change_properties({METADATA_PARTITIONS: ",".join(names)})
        table.storage.delete_folder(_key(RECORD_INDEX))
        again = "Java's next write with its option builds it anew"
        table.emit(EventKind.ALERT, "", problem=f"the record index of Hudi's metadata table was removed: {why}. {again}")
        return replace(self, listed={name: files for name, files in self.listed.items() if name != RECORD_INDEX})

    def statistics(self, metadata: CommitMetadata, *, counting: bool = True) -> dict[str, Records]:
        """The records of the statistics that are kept, from the footers of a commit's new files.

        Bounds of partitions are joined with those that readers see, or, if not only the `counting`, with all in the log files.
        """
        if self.index is None:
            return {}
        schema = _schema_of(metadata)
        columns = self.index.of(schema)
        dropped = [name for name in self.index.columns if name not in (*schema.names, *columns)] if schema.names else []
        files = _data_files(metadata.stats)
        found = _statistics_of(self.table, files, columns, schema, self.ahead.statistics)
        by_file: dict[str, Record] = {}
        by_partition: dict[str, list[FileStats]] = {}
        for stat, stats in zip(files, found, strict=True):
            if stats is not None:
                stats = with_nulls(stats, dropped)
                partition, name = layout.split_path(stat.path or "")
                by_file |= column_stats_records(partition, name, stats, self.index.version)
                if any(found.values for found in stats.values()):
                    by_partition.setdefault(partition, []).append(stats)
        metadata_table, version = MetadataTable(self.table.io, self.timeline, Timeline.of([])), self.index.version
        records: dict[str, dict[str, Record]] = {name: {} for name in (COLUMN_STATS, PARTITION_STATS) if name in self.listed}
        added = self._added(columns)
        for name, made in records.items() if added and not self._have_all(added) else ():
            there = metadata_table.records(name)
            made |= null_records(name, added, there, schema, version)
            if name == PARTITION_STATS:
                made |= with_files_of_nulls(there, records.get(COLUMN_STATS, {}), version)
        if COLUMN_STATS in records:
            records[COLUMN_STATS] |= by_file
        if PARTITION_STATS in records:
            named = (*columns, *dropped)
            keys = [partition_stats_key(column, partition) for partition in by_partition for column in named]
            listed = self.listed[PARTITION_STATS]
            if counting:
                known = {key: [found] for key, found in metadata_table.newest(PARTITION_STATS, keys, listed).items()}
            else:
                known = metadata_table.all_said(PARTITION_STATS, keys, listed)
            known |= {key: [record] for key, record in records[PARTITION_STATS].items() if key in known}
            for partition, each in by_partition.items():
                records[PARTITION_STATS] |= partition_stats_records(partition, each, known, version, schema)
        return dict(records)

    def _added(self, columns: Iterable[str]) -> frozenset[str]:
        """Those of the columns that were added since Java last named what is indexed."""
        return frozenset(columns).difference(self.index.columns if self.index else ())

    def _have_all(self, added: frozenset[str]) -> bool:
        """Whether each file is known to have statistics of these columns: it had, and all commits since then have the columns.

        To look costs a read of the statistics of all files.
        """
        then, known = self.table.observed.columns_in_statistics
        done = [(i.completion or "", i.requested) for i in self.timeline.commits if i.action == Action.DELTA_COMMIT]
        if not added <= known or all(at > then for at, _ in done):
            return False  # some of those since then may be archived
        return all(at <= then or is_own_time(each) or added <= self._columns_of(each) for at, each in done)

    def _columns_of(self, instant: str) -> frozenset[str]:
        """The columns of a commit that this process has read; none of another."""
        decided = self.table.log.known(instant)
        return frozenset(_schema_of(CommitMetadata.from_bytes(decided.payload, instant)).names if decided is not None else ())

    def _remember(self, added: frozenset[str]) -> None:
        """Each file has statistics of these columns now."""
        done = (i.completion or "" for i in self.timeline.commits if i.action == Action.DELTA_COMMIT)
        self.table.observed.columns_in_statistics = max(done, default=""), added

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


def read_ahead(
    table: OpenTable, kept: Sequence[str], instant: str, metadata: CommitMetadata, schema: pa.Schema, data: Timeline
) -> Ahead:
    """What `KeptMetadata` needs of a commit's files, read before the lock is taken: so that no writer waits there meanwhile.

    `kept`: the partitions of the metadata table; `data`: the table's timeline, which does not show the commit.
    """
    statistics, changes = dict[str, FileStats](), dict[str, KeyChanges]()
    definitions = table.storage.get(layout.INDEX_DEFINITIONS) if COLUMN_STATS in kept else None
    if definitions is not None:
        files, columns = _data_files(metadata.stats), StatsIndex.parse(definitions.data, layout.INDEX_DEFINITIONS).of(schema)
        found = zip(files, _statistics_of(table, files, columns, schema, {}), strict=True)
        statistics = {stat.path or "": each for stat, each in found if each is not None}
    if RECORD_INDEX in kept:
        with suppress(_KeysUnknown):
            before = partial(slices_at, table, data)
            changes = dict(key_changes(table, instant, metadata, before, NOTHING_AHEAD, counted=True))
    return Ahead(statistics, changes)


class _KeysUnknown(Exception):
    """Which keys a commit adds or takes away cannot be known, or not be said in the index."""


def _places(
    table: OpenTable, instant: str, metadata: CommitMetadata, before: Callable[[], Snapshot], ahead: Ahead, *, counted: bool
) -> Records:
    """A commit's records for the record index: the places of keys that it adds, and None for keys that it removes.

    A key of a row that it moves is both added and removed: then the new place counts.
    """
    groups = {stat.path: stat.group for stat in metadata.stats}
    gone, places = dict[str, None](), dict[str, Record]()
    for path, changes in key_changes(table, instant, metadata, before, ahead, counted=counted):
        gone.update(dict.fromkeys(changes.gone))
        if changes.added:
            places.update(dict.fromkeys(changes.added, place_record(groups[path], instant)))
    return {**gone, **places}


def key_changes(
    table: OpenTable, instant: str, metadata: CommitMetadata, before: Callable[[], Snapshot], ahead: Ahead, *, counted: bool
) -> list[tuple[str, KeyChanges]]:
    """How each file of a commit, and each file slice that it replaces, changes the keys of the table, by path.

    `_KeysUnknown` if a file is gone or damaged, if there are too many keys or too long ones, or if another engine wrote over
    log files.
    """
    is_own, merges = counted, table.is_merge_on_read
    # A replacecommit may bring back rows of any time.
    counted = is_own and metadata.replaced is None
    stats, storage = _data_files(metadata.stats), table.storage
    if merges and not is_own and not all(stat.is_new_group and DataFile.parse(stat.path or "") for stat in stats):
        # Log files lie over what it wrote, or under it: its files alone do not tell which keys there are now.
        raise _KeysUnknown(f"{instant}, a commit of another engine, changed file groups of a merge-on-read table")
    groups = sorted(metadata.replaced_groups)
    rewrites = merges and any(not (stat.is_new_group or stat.log_files or stat.path in ahead.keys) for stat in stats)
    snapshot = before() if groups or rewrites else Snapshot()
    replaced = [file for file in map(snapshot.group, groups) if file is not None]
    most = sum(most_changed(stat, counted=counted) for stat in stats)
    most += sum(snapshot.stats_of(file._replace(logs=())).rows or 0 for file in replaced)
    if most > MOST_KEYS:
        raise _KeysUnknown(f"{instant} changes up to {most:,} keys, more than {MOST_KEYS:,}")

    def below(stat: WriteStat) -> DataFile | None:
        if merges:
            return snapshot.group(stat.group)
        return DataFile.parse(layout.in_partition(stat.partition_path or "", stat.prev_base_file or ""))

    def read(path: str, changes: Callable[[], KeyChanges]) -> tuple[str, KeyChanges]:
        known = ahead.keys.get(path)
        return path, changes() if known is None else known

    calls = [
        partial(read, stat.path or "", partial(changed_keys, storage, stat, below(stat), instant, counted=counted))
        for stat in stats
    ]
    calls += [partial(read, file.key, partial(all_gone, storage, file)) for file in replaced]
    try:
        found = table.io.gather(calls)
    except CorruptTableError as error:
        raise _KeysUnknown(error.message) from error
    except StorageError as error:
        if not is_missing(error):
            raise
        raise _KeysUnknown(error.message) from error
    if any(is_too_long(key) for _, changes in found for key in changes.added):
        raise _KeysUnknown(f"{instant} has a key of more than {MOST_KEY_BYTES:,} bytes, and the index takes none of these")
    return found


def all_gone(storage: Storage, file: DataFile) -> KeyChanges:
    """What becomes of the keys of a file slice that nothing takes the place of."""
    return KeyChanges([], keys_in(storage, file))


def _slices_of(table: OpenTable, timeline: Timeline) -> Snapshot:
    """The file slices at a timeline with some commits left out, by a listing and the commits."""
    return with_committed_logs(table, read_snapshot(table.io, timeline), timeline)


def _data_files(stats: Iterable[WriteStat]) -> list[WriteStat]:
    return [stat for stat in stats if stat.path and (DataFile.parse(stat.path) or LogFile.parse(stat.path))]


def _statistics_of(
    table: OpenTable, files: Sequence[WriteStat], columns: Sequence[str], schema: pa.Schema, ahead: Mapping[str, FileStats]
) -> list[FileStats | None]:
    """The statistics of new files; None for one that is gone, damaged or not understood, so that no reader has its rows."""

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
