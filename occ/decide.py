"""How a transaction decides: its record under the next number of the log, and the publication that follows.

The record is the commit point, and its bytes are those of the completed instant. `Commit` says when to decide. Until then it
is a `PendingCommit`, which lacks only its number, its completion time, and the commits of others in the meantime.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lakelock.errors import CommitOutcomeUnknown, LakelockError, RolledBackError, StorageUnavailable
from lakelock.events import EventKind
from lakelock.occ import commit_keys as keys
from lakelock.occ.begin import Baseline
from lakelock.occ.crash_points import Step, reached
from lakelock.occ.ending import News, OwnDecision, outcome_unknown
from lakelock.occ.footprint import CommitCost, Footprint
from lakelock.occ.log import Decision, DecisionKind, LogView, Resolution, resolve, tombstone
from lakelock.occ.metadata_table import KeptMetadata
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publish import SHARE_THE_LOCK, InstantFate, Publication, fate_of, looked_for, plans_awaited, publish
from lakelock.providers.base import Lease
from lakelock.storage import Created, has_file
from lakelock.table.archive import completed_write
from lakelock.table.commit_metadata import CommitMetadata, WriteStat
from lakelock.table.instants import later_than
from lakelock.table.schema import TableSchema
from lakelock.table.statistics import STATISTICS, statistics_of_commit
from lakelock.table.timeline import Timeline

HUDI_NAMES = {"UPDATE": "UPSERT", "MERGE": "UPSERT"}
"""What Hudi calls operations that it has no name for, as its own UPDATE and MERGE INTO do; it cannot read other names."""


@dataclass(frozen=True)
class PendingCommit:
    """What the completed instant will say. `replaced` is None for a commit and a mapping for a replacecommit.

    `schema` is the table's after this commit, if no other commit changes it meanwhile.
    """

    footprint: Footprint
    stats: Mapping[str, tuple[WriteStat, ...]]
    replaced: Mapping[str, tuple[str, ...]] | None
    schema: TableSchema
    extra: Mapping[str, str]

    @classmethod
    def of(
        cls,
        footprint: Footprint,
        stats: Sequence[WriteStat],
        replaced: Mapping[str, Sequence[str]] | None,
        schema: TableSchema,
        extra: Mapping[str, str],
    ) -> PendingCommit:
        """Files by partition, and all that Hudi has no field for under `lakelock.`; empty entries of `extra` are left out."""
        by_partition: dict[str, list[WriteStat]] = defaultdict(list)
        for stat in stats:
            by_partition[stat.partition_path or ""].append(stat)
        return cls(
            footprint,
            {partition: tuple(found) for partition, found in sorted(by_partition.items())},
            None if replaced is None else {partition: tuple(ids) for partition, ids in replaced.items()},
            schema,
            {
                name: value
                for name, value in {**_extra_of(footprint), **extra, STATISTICS: statistics_of_commit(stats)}.items()
                if value
            },
        )

    @property
    def operation(self) -> str:
        return self.footprint.party.operation

    def payload(self, number: int, write_id: str, schema_json: str, *, newest_foreign: str = "", cost: CommitCost) -> bytes:
        """The bytes of the completed instant, if it is decided as `number`.

        `newest_foreign`: the newest known commit of another engine, so that a reader of only this commit knows of it.
        """
        extra = {**self.extra, keys.DECISION: str(number), keys.WRITE_ID: write_id, keys.SCHEMA: schema_json}
        extra[keys.COMMIT_INFO] = cost.to_json()
        if newest_foreign:
            extra[keys.NEWEST_FOREIGN] = newest_foreign
        operation = HUDI_NAMES.get(self.operation, self.operation)
        return CommitMetadata(self.stats, operation, extra, self.replaced).to_bytes()


def _extra_of(footprint: Footprint) -> dict[str, str]:
    """A footprint as extra metadata, for writers that judge against it and for people."""
    writer = footprint.party.writer
    reads = [{"kind": read.kind.value, "what": read.description} for read in footprint.reads]
    return {
        keys.WRITER: json.dumps(writer.as_dict()) if writer else "",
        keys.OPERATION: footprint.party.operation,
        keys.READS: json.dumps(reads) if reads else "",
        keys.APPLICATION: footprint.application.to_json() if footprint.application else "",
    }


LastLook = tuple[Timeline, list[str]]
"""The timeline right before a publication, and the files of the commit that were gone then."""


class Deciding:
    """The decision of one transaction on one table. `own` records what becomes of it."""

    def __init__(
        self,
        table: OpenTable,
        baseline: Baseline,
        draft: PendingCommit,
        own: OwnDecision,
        members: tuple[str, ...] = (),
    ) -> None:
        """`members`: the offers whose rows it has."""
        self._table, self._baseline, self._draft, self._own, self._members = table, baseline, draft, own, members
        self._since: LastLook | None = None

    @property
    def may_be_in_log(self) -> bool:
        """Whether a record of it was sent, so that only the log may withdraw it."""
        return self._own.may_be_in_log

    def saw_whole_window(self) -> None:
        """A look at the log found that no decision since the beginning has been collected."""
        self._own.learn(News.UNCOLLECTED)

    def stands(self, mine: Decision) -> bool:
        """Whether the decision about this instant that was found in the log is the transaction's own."""
        if resolve(mine) is not Resolution.COMMITTED:
            return False
        self._own.learn(News.FOUND)
        return True

    def decide(self, view: LogView, timeline: Timeline, schema_json: str, cost: CommitCost) -> Decision | None:
        """Put the commit under the next number: this is the commit point. None when another has the number."""
        table = self._table
        decision = self._record(DecisionKind.COMMIT, view, timeline, schema_json, cost)
        self._own.learn(News.SENDS)
        made = table.log.decide(decision)
        if made is Created.UNKNOWN:
            self._own.learn(News.HEARS_NOTHING)
            made = self._make_definite(decision)
        if made is Created.THEIRS:
            found = table.log.read(decision.number)
            if found is None or found.write_id != decision.write_id:
                self._own.learn(News.LOSES)
                return None
        # The number may have been used and collected before: then the record means nothing, and only the timeline tells.
        try:
            if self._boundary_after(decision) >= decision.number:
                self._own.learn(News.COLLECTED)
                self._since = None
                return None
        except LakelockError as error:
            raise self._unknown(error) from error
        self._own.learn(News.WINS)
        reached(Step.DECIDED)
        table.emit(EventKind.DECIDED, decision.instant, self._draft.operation, decision=decision.number)
        return decision

    def _boundary_after(self, decision: Decision) -> int:
        """The boundary as it is after a decision. Where another engine writes, too, the table is looked at simultaneously: that
        engine may have rolled the instant back since it was found pending, without the lock.
        """
        table = self._table
        if not table.observed.foreign_writers:
            return table.log.boundary()
        boundary, self._since = self._last_look(decision, table.log.boundary)
        return boundary

    def _last_look(self, decision: Decision, beside: Callable[[], int]) -> tuple[int, LastLook]:
        """The timeline, and which files of the commit are gone; along with another request."""
        table, paths = self._table, looked_for(decision)
        files = [partial(has_file, table.storage, path) for path in paths]
        answer, timeline, *there = table.at_once(beside, table.timeline, *files)
        return answer, (timeline, [path for path, found in zip(paths, there, strict=True) if not found])

    def _record(self, kind: DecisionKind, view: LogView, timeline: Timeline, schema_json: str, cost: CommitCost) -> Decision:
        """The record for the next number, with the very bytes of the completed instant."""
        table, baseline = self._table, self._baseline
        newest = max([timeline.newest_time, *(d.completion for d in view.decisions)])
        number, write_id = view.head + 1, table.runtime.uuid()
        return Decision(
            number=number,
            kind=kind,
            instant=baseline.instant,
            action=baseline.action,
            write_id=write_id,
            writer=table.writer,
            operation=self._draft.operation,
            completion=later_than(table.runtime.now_ms(), newest),
            payload=self._draft.payload(number, write_id, schema_json, newest_foreign=table.observed.newest_foreign, cost=cost),
            members=self._members,
        )

    def _make_definite(self, decision: Decision) -> Created:
        """No reply came: put a rollback of this instant under the same number, which settles whose number it is.

        THEIRS: the number is taken, by this commit after all or by another. Raises when the rollback won, or when
        storage does not answer at all.
        """
        table = self._table
        made = table.log.decide(tombstone(decision, table.runtime.uuid()))
        try:
            # The commit may have arrived, been published and collected meanwhile: then the withdrawal means nothing.
            reused = made is Created.OURS and table.log.boundary() >= decision.number
        except LakelockError as error:
            raise self._unknown(error) from error
        if reused:
            return Created.THEIRS
        if made is Created.OURS:
            raise RolledBackError(
                f"{decision.instant}: storage gave no answer to the commit, which was withdrawn",
                hint="run the operation again when the storage answers",
                instant=decision.instant,
                decision=decision.number,
            )
        if made is Created.UNKNOWN:
            raise self._unknown(StorageUnavailable("no answer to the commit, nor to its withdrawal"))
        return made

    def conclude(self, decision: Decision, timeline: Timeline, lease: Lease | None, metadata: KeptMetadata | None) -> Decision:
        """Make what is decided visible. `timeline` and `metadata` were looked at under the lock, while `lease` held."""
        table = self._table
        try:
            gone: list[str] = []
            if table.observed.foreign_writers:
                timeline, gone = self._since or self._last_look(decision, lambda: 0)[1]
                plans_awaited(table, timeline, decision.instant)
            current = timeline if lease is None or lease.lost is None else table.timeline()
            published = publish(table, decision, current, lambda: gone, metadata)
            if fate_of(table, decision.instant, current) is InstantFate.GONE:
                published = Publication.VOID
        except LakelockError as error:
            raise self._unknown(error) from error
        if published is Publication.VOID:
            lost = f", and {gone[0]} is gone" if gone else ""
            raise RolledBackError(
                f"{decision.instant} was decided, but another Hudi writer rolled it back before it was visible{lost}",
                hint=f"{SHARE_THE_LOCK}; then run the operation again",
                instant=decision.instant,
            )
        table.observed.time_seen(decision.completion)
        table.observed.newest_commit = decision.instant
        reached(Step.PUBLISHED)
        table.emit(EventKind.PUBLISHED, decision.instant, decision.operation, decision=decision.number)
        return decision

    def by_timeline(self, timeline: Timeline) -> Decision:
        """Part of the window was collected, so only the timeline can tell: the instant is completed, or never will be."""
        instant = self._baseline.instant
        try:
            # No other process decides this commit. If it was never tried, it is neither on the timeline nor in the archive.
            completed = completed_write(self._table.storage, timeline, instant) if self.may_be_in_log else None
        except LakelockError as error:
            raise self._unknown(error) from error
        if completed is None:
            raise RolledBackError(
                f"{instant}: decisions of its window were collected, because its heartbeat had stopped",
                hint="run the operation again; if the process was paused, raise heartbeat.interval_s",
                instant=instant,
            )
        self._own.learn(News.FOUND)
        extra = CommitMetadata.from_bytes(completed.data, instant).extra
        return Decision(
            number=int(extra.get(keys.DECISION, 0)),
            kind=DecisionKind.COMMIT,
            instant=instant,
            action=completed.action,
            write_id=extra.get(keys.WRITE_ID, ""),
            writer=self._table.writer,
            operation=self._draft.operation,
            completion=completed.completion,
            payload=completed.data,
        )

    def _unknown(self, cause: Exception) -> CommitOutcomeUnknown:
        return outcome_unknown(self._table, self._baseline.instant, self._draft.operation, cause)
