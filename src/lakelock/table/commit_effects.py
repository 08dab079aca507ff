"""What commits did to the table's files: the effect of one commit, of several together, and which instants a checkpoint covers.

Folding is a union in which the greater instant wins, so neither the order nor the grouping of the commits matters: a
commit that completes late with an early instant, as a Java writer's may, changes nothing but its own file groups. Log files
are a union, too: which of them lie on the newest base file is decided by their completion, whatever came first.

A checkpoint covers a set of instants, never a time. A commit may complete late with an early instant, and with an early
completion time if its writer's clock is slow. So a checkpoint names the instants whose effects it has. Only instants
older than all active ones, and older than any clock may be slow, are not named one by one: they are below `low`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from sys import intern
from typing import NamedTuple

from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import format_instant, parse_instant
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import LogFile
from lakelock.table.snapshot import DataFile
from lakelock.table.statistics import STATISTICS, statistics_by_path
from lakelock.table.timeline import Timeline


class Slice(NamedTuple):
    """One file slice and what its writer knew of it; `columns` is a text of `recorded.py`."""

    file: DataFile
    rows: int | None = None
    key_min: str | None = None
    key_max: str | None = None
    columns: str | None = None

    @property
    def order(self) -> tuple[str, str]:
        """Of two slices of a file group the greater one counts."""
        return self.file.instant, self.file.token


class CompletedLog(NamedTuple):
    """A log file, and when its commit completed: it lies on the base file that was the newest then."""

    file: LogFile
    completion: str


class Applied(NamedTuple):
    """The commit by which an application has applied a version of its own numbering; `writer` is an identity as JSON."""

    completion: str
    instant: str
    app_id: str
    version: int
    operation: str
    writer: str


class SchemaSeen(NamedTuple):
    """When a schema was last recorded: by completion time, and by the instants of the commits that recorded it."""

    completion: str
    instant: str


@dataclass(frozen=True)
class Effect:
    """What one completed commit says: slices and log files that it wrote, file groups that it replaced, schema, application."""

    instant: str
    completion: str
    slices: tuple[Slice, ...] = ()
    replaced: frozenset[FileGroupId] = frozenset()
    schema_json: str = ""
    applied: Applied | None = None
    logs: tuple[LogFile, ...] = ()

    @classmethod
    def of(cls, instant: str, completion: str, metadata: CommitMetadata, applied: Applied | None = None) -> Effect:
        """The effect of a commit by its metadata, whichever engine wrote it."""
        told = statistics_by_path(metadata.extra.get(STATISTICS, ""))
        slices, logs = [], []
        for stat in metadata.stats:
            path, size_bytes = stat.path or "", stat.file_size_bytes or 0
            file = DataFile.parse(path, size_bytes)
            log = LogFile.parse(path, size_bytes) if file is None else None
            if file is not None:
                slices.append(Slice(file, stat.num_writes, *told.get(file.key, ())))
            elif log is not None:
                logs.append(log)
        # Thousands of effects are remembered, nearly all with one schema.
        schema = intern(metadata.schema_json or "")
        return cls(instant, completion, tuple(slices), metadata.replaced_groups, schema, applied, tuple(logs))


@dataclass(frozen=True)
class Changes:
    """The sum of some effects. Slices, log files and replaced groups are kept by partition and file id; do not change them."""

    slices: dict[str, dict[str, Slice]] = field(default_factory=dict)
    replaced: dict[str, dict[str, str]] = field(default_factory=dict)
    """For each replaced file group, the instant that replaced it."""
    schemas: dict[str, SchemaSeen] = field(default_factory=dict)
    applications: dict[str, Applied] = field(default_factory=dict)
    logs: dict[str, dict[str, set[CompletedLog]]] = field(default_factory=dict)

    @property
    def partitions(self) -> frozenset[str]:
        """The partitions in which anything changed."""
        return frozenset(self.slices) | frozenset(self.replaced) | frozenset(self.logs)


def fold(effects: Iterable[Effect]) -> Changes:
    """The sum of the effects, in whatever order they come."""
    sum_ = Changes()
    for effect in effects:
        for one in effect.slices:
            groups = sum_.slices.setdefault(one.file.partition, {})
            known = groups.get(one.file.file_id)
            if known is None or one.order > known.order:
                groups[one.file.file_id] = one
        for log in effect.logs:
            of_partition = sum_.logs.setdefault(log.partition, {})
            of_partition.setdefault(log.file_id, set()).add(CompletedLog(log, effect.completion))
        for partition, file_id in effect.replaced:
            gone = sum_.replaced.setdefault(partition, {})
            gone[file_id] = max(effect.instant, gone.get(file_id, ""))
        if effect.schema_json:
            told = SchemaSeen(effect.completion, effect.instant)
            sum_.schemas[effect.schema_json] = later_schema(told, sum_.schemas.get(effect.schema_json))
        if effect.applied is not None:
            sum_.applications[effect.applied.app_id] = later_applied(
                effect.applied, sum_.applications.get(effect.applied.app_id)
            )
    return sum_


def later_schema(one: SchemaSeen, other: SchemaSeen | None) -> SchemaSeen:
    """Both combined: the greater of each time."""
    if other is None:
        return one
    return SchemaSeen(max(one.completion, other.completion), max(one.instant, other.instant))


def later_applied(one: Applied, other: Applied | None) -> Applied:
    """The one that completed later."""
    return one if other is None else max(one, other)


GRACE_MS = 3_600_000
"""How slow a clock may be: instants younger than this, by the newest on the timeline, are covered one by one."""


@dataclass(frozen=True)
class Coverage:
    """All commits below `low`, and those in `instants`. Files of the archive in `archive` hold nothing else."""

    low: str = ""
    instants: frozenset[str] = frozenset()
    archive: frozenset[str] = frozenset()
    restores: frozenset[str] = frozenset()

    def covers(self, instant: str) -> bool:
        """Whether the effect of this commit is contained, if it has one."""
        return instant < self.low or instant in self.instants

    def is_within(self, timeline: Timeline) -> bool:
        """Whether the timeline shows everything covered, so its state can be reached by adding commits.

        That fails if the timeline is older, if commits were undone (a restore by another engine), or if
        an instant turned up among those that were considered settled.
        """
        writes = (i.requested for i in timeline.instants if i.is_write)
        if self.low > next(writes, self.low) or not self.restores >= restores_of(timeline):
            return False
        others = self.instants - timeline.completed_instants
        ranges = [name.split("_")[:2] for name in timeline.archive] if others else []
        return all(
            timeline.is_visible(instant) and any(first <= instant <= last for first, last in ranges) for instant in others
        )

    def with_all_of(self, timeline: Timeline, archived: Iterable[str] = ()) -> Coverage:
        """The coverage after the commits of the timeline, and those `archived` that it does not show, were added."""
        low = lowest_open(timeline)
        covered = self.instants | timeline.completed_instants | frozenset(archived)
        return Coverage(low, frozenset(i for i in covered if i >= low), frozenset(timeline.archive), restores_of(timeline))


def lowest_open(timeline: Timeline) -> str:
    """Below this instant nothing new can appear: it passes neither a pending nor an active instant, nor one of a slow clock."""
    writes = [i for i in timeline.instants if i.is_write]
    if not any(i.is_completed for i in writes):
        return ""
    grace = format_instant(max(0, parse_instant(timeline.newest_time) - GRACE_MS))
    return min(writes[0].requested, grace)


def restores_of(timeline: Timeline) -> frozenset[str]:
    """Completed restores, by which another engine has undone commits."""
    return frozenset(i.requested for i in timeline.restores if i.is_completed)
