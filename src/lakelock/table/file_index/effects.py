"""What one commit did to the table, and what several did together.

Folding is a union in which the greater instant wins, so neither the order nor the grouping of the commits matters: a commit
that completes late with an early instant, as a Java writer's may, changes nothing but its own file groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from sys import intern
from typing import NamedTuple

from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.file_index.recorded import STATISTICS, by_path
from lakelock.table.layout import FileGroupId
from lakelock.table.snapshot import DataFile


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


class Applied(NamedTuple):
    """The commit by which an application has applied a version of its own numbering; `writer` is an identity as JSON."""

    completion: str
    instant: str
    app_id: str
    version: int
    operation: str
    writer: str


class SchemaTold(NamedTuple):
    """When a schema was last recorded: by completion time, and by the instants of the commits that recorded it."""

    completion: str
    instant: str


@dataclass(frozen=True)
class Effect:
    """What one completed commit says: the slices that it wrote, the file groups that it replaced, schema and application."""

    instant: str
    completion: str
    slices: tuple[Slice, ...] = ()
    replaced: frozenset[FileGroupId] = frozenset()
    schema_json: str = ""
    applied: Applied | None = None

    @classmethod
    def of(cls, instant: str, completion: str, metadata: CommitMetadata, applied: Applied | None = None) -> Effect:
        """The effect of a commit by its metadata, whichever engine wrote it."""
        told = by_path(metadata.extra.get(STATISTICS, ""))
        slices = []
        for stat in metadata.stats:
            file = DataFile.parse(stat.path, stat.file_size_bytes or 0) if stat.path else None
            if file is not None:
                slices.append(Slice(file, stat.num_writes, *told.get(file.key, ())))
        # Thousands of effects are remembered, nearly all with one schema.
        schema = intern(metadata.schema_json or "")
        return cls(instant, completion, tuple(slices), metadata.replaced_groups, schema, applied)


@dataclass(frozen=True)
class Changes:
    """The sum of some effects. Slices and replaced groups are kept by partition and file id; do not change them."""

    slices: dict[str, dict[str, Slice]] = field(default_factory=dict)
    replaced: dict[str, dict[str, str]] = field(default_factory=dict)
    """For each replaced file group, the instant that replaced it."""
    schemas: dict[str, SchemaTold] = field(default_factory=dict)
    applications: dict[str, Applied] = field(default_factory=dict)

    @property
    def partitions(self) -> frozenset[str]:
        """The partitions in which anything changed."""
        return frozenset(self.slices) | frozenset(self.replaced)


def fold(effects: Iterable[Effect]) -> Changes:
    """The sum of the effects, in whatever order they come."""
    sum_ = Changes()
    for effect in effects:
        for one in effect.slices:
            groups = sum_.slices.setdefault(one.file.partition, {})
            known = groups.get(one.file.file_id)
            if known is None or one.order > known.order:
                groups[one.file.file_id] = one
        for partition, file_id in effect.replaced:
            gone = sum_.replaced.setdefault(partition, {})
            gone[file_id] = max(effect.instant, gone.get(file_id, ""))
        if effect.schema_json:
            told = SchemaTold(effect.completion, effect.instant)
            sum_.schemas[effect.schema_json] = later_told(told, sum_.schemas.get(effect.schema_json))
        if effect.applied is not None:
            sum_.applications[effect.applied.app_id] = later_applied(
                effect.applied, sum_.applications.get(effect.applied.app_id)
            )
    return sum_


def later_told(one: SchemaTold, other: SchemaTold | None) -> SchemaTold:
    """Both combined: the greater of each time."""
    if other is None:
        return one
    return SchemaTold(max(one.completion, other.completion), max(one.instant, other.instant))


def later_applied(one: Applied, other: Applied | None) -> Applied:
    """The one that completed later."""
    return one if other is None else max(one, other)
