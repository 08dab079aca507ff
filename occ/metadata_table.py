"""Hudi's metadata table, kept true: what becomes visible in the table is listed in the metadata table before.

A delta commit of the metadata table has the time of the commit that it is about, and counts once that commit is completed.
So it goes between the decision and the completed file, under the lock. Each of its files is put if absent, with bytes that
the decision fixes, and whoever finishes a commit for another finishes this, too. Its completion time alone is made when it is
written: readers take a log file for a part of the newest base file before its completion, so that time must be later than
everything on the timeline of the metadata table.

Of the metadata table `files` is kept. Java's other partitions would hide rows if they were left as they are, so a table that
has them is refused (`lakelock.table.eligibility`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lakelock.errors import RolledBackError, TableError
from lakelock.events import EventKind
from lakelock.occ.crash_points import Step, reached
from lakelock.occ.open_table import OpenTable
from lakelock.table import layout
from lakelock.table.archive import read_commit
from lakelock.table.commit_metadata import CommitMetadata, WriteStat
from lakelock.table.instants import Action, Instant, State, later_than
from lakelock.table.metadata_records import FILES, Records, commit_records
from lakelock.table.metadata_table import GroupLog, MetadataTable, group_logs, log_name, read_metadata_timeline, schemas_of
from lakelock.table.properties import TableProperties
from lakelock.table.timeline import Timeline
from lakelock.texts import command

BOOTSTRAP = "00000000000000"
"""How the instants begin by which Java makes the metadata table from a listing."""
_GROUPS = {FILES: ("files-0000-0",)}
"""The file groups of each partition that is kept."""
_OPERATION = "UPSERT_PREPPED"


@dataclass(frozen=True)
class KeptMetadata:
    """The metadata table as it was found under the lock. `timeline` is its own."""

    table: OpenTable
    timeline: Timeline

    @classmethod
    def look(cls, table: OpenTable, properties: TableProperties) -> KeptMetadata | None:
        """The metadata table that the table's properties name; None if there is none. Hold the table's lock. One listing.

        `TableError` if it is not there, or not as lakelock writes it.
        """
        if not properties.metadata_partitions:
            return None
        if properties.metadata_partitions != (FILES,):
            raise _unfit(table, f"its metadata table has {', '.join(properties.metadata_partitions)}, not only {FILES}")
        timeline, stored = table.at_once(
            partial(read_metadata_timeline, table.storage), partial(table.storage.get, _key(layout.PROPERTIES))
        )
        if stored is None or not timeline.commits:
            raise _unfit(table, f"{layout.PROPERTIES} names a metadata table, and {layout.METADATA_TABLE} has none")
        version = TableProperties.parse(stored.data, _key(layout.PROPERTIES)).version
        if version != properties.version:
            raise _unfit(table, f"its metadata table has version {version}, and itself {properties.version}")
        return cls(table, timeline)

    def ensure_free(self, instant: str) -> None:
        """`RolledBackError` if a compaction of the metadata table has this time: its clock was ahead, or stood still."""
        if any(i.requested == instant and i.action != Action.DELTA_COMMIT for i in self.timeline.instants):
            raise RolledBackError(
                f"{instant}: another engine has compacted the metadata table at this very time",
                hint="run the operation again",
                instant=instant,
            )

    def commit(self, instant: str, metadata: CommitMetadata) -> None:
        """List the files of a commit that is decided and not visible yet. Idempotent. Hold the table's lock."""
        self._append(instant, self._records_of(metadata), self.timeline)

    def clean(self, instant: str, files: Mapping[str, Sequence[str]]) -> None:
        """Take the files out, by partition, that a clean has deleted; before it is completed. Hold the table's lock."""
        self._append(instant, commit_records({}, files, _GROUPS), self.timeline)

    def withdraw(self, instant: str) -> None:
        """Take out what an instant listed that never will be visible, whoever did. Hold the table's lock.

        Before its pending files go from the table: what is completed here and pending nowhere counts.
        """
        listed = [i for i in self.timeline.instants if i.requested == instant and i.action == Action.DELTA_COMMIT]
        if not listed:
            return
        storage = self.table.storage
        logs = [f"{partition}/{log_name(each, instant)}" for partition, groups in _GROUPS.items() for each in groups]
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
        timeline = self.timeline
        for commit in lacking(self.timeline, data):
            timeline = self._append(commit.requested, self._records_of(read_commit(self.table.storage, commit)), timeline)
            problem = f"the metadata table lacked {commit.requested}, so its readers missed rows; it has it now"
            self.table.emit(EventKind.ALERT, commit.requested, problem=problem)
        return replace(self, timeline=timeline)

    def _records_of(self, metadata: CommitMetadata) -> dict[str, Records]:
        """What a delta commit says of the files of a commit."""
        added = {
            partition: {stat.path.rpartition("/")[2]: stat.file_size_bytes or 0 for stat in stats if stat.path}
            for partition, stats in metadata.write_stats.items()
        }
        return commit_records(added, {}, _GROUPS)

    def _append(self, instant: str, records: Mapping[str, Records], timeline: Timeline) -> Timeline:
        """Write one delta commit, unless it is there; the timeline of the metadata table with it."""
        if any(i.requested == instant and i.is_completed and i.action == Action.DELTA_COMMIT for i in timeline.instants):
            return timeline
        table = self.table
        schema, table_schema = self._schemas()
        logs = group_logs(instant, records, _GROUPS, schema)
        put = table.storage.put_if_absent
        begun = (_delta_commit(instant, state) for state in (State.REQUESTED, State.INFLIGHT))
        requested, inflight = (_key(layout.timeline(each.file_name)) for each in begun)
        table.at_once(
            partial(put, requested, b""), partial(put, inflight, b""), *(partial(put, _key(log.path), log.data) for log in logs)
        )
        reached(Step.METADATA_LOGGED)
        # Later than everything on its timeline: the log file goes on top of the base files that there are.
        completion = later_than(table.runtime.now_ms(), max(timeline.newest_time, instant))
        done = _delta_commit(instant, State.COMPLETED, completion)
        put(_key(layout.timeline(done.file_name)), _commit_bytes(instant, logs, table_schema))
        reached(Step.METADATA_KEPT)
        return Timeline.of([*timeline.instants, done], archived=timeline.has_archive)

    def _schemas(self) -> tuple[str, str]:
        """The schema of records, with Hudi's own columns and without. Read again only if it was made anew."""
        known = self.table.observed.metadata_schemas
        first = self.timeline.instants[0].requested, self.timeline.instants[0].completion or ""
        if known is None or known[0] != first:
            found = schemas_of(MetadataTable(self.table.io, self.timeline, Timeline.of([])))
            known = self.table.observed.metadata_schemas = first, found
        return known[1]


def lacking(metadata: Timeline, data: Timeline) -> Iterable[Instant]:
    """The completed commits of a table that its metadata table lacks, oldest first."""
    known = {i.requested for i in metadata.commits if i.action == Action.DELTA_COMMIT}
    # What was completed before the metadata table was made is in the listing that it was made of.
    made = min((i.completion or "" for i in metadata.commits if i.requested.startswith(BOOTSTRAP)), default="")
    return [
        i
        for i in data.commits
        if i.requested not in known and not metadata.is_visible(i.requested) and (i.completion or i.requested) > made
    ]


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


def _delta_commit(instant: str, state: State, completion: str | None = None) -> Instant:
    return Instant(instant, Action.DELTA_COMMIT.value, state, completion)


def _key(key: str) -> str:
    return f"{layout.METADATA_TABLE}/{key}"


def _unfit(table: OpenTable, why: str) -> TableError:
    return TableError(
        f"lakelock does not write {table.storage.uri}: {why}",
        hint=f"{command('adopt', table.storage.uri, '--drop-metadata-table')} drops it; Java's next write builds it anew",
    )
