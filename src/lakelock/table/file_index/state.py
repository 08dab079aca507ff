"""The state of a table: a checkpoint and the sum of the commits after it, partition by partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from lakelock.table.file_index.checkpoint import Checkpoint
from lakelock.table.file_index.coverage import lowest_open
from lakelock.table.file_index.effects import Applied, Changes, Effect, SchemaTold, fold, later_applied, later_told
from lakelock.table.file_index.recorded import column_ranges_in
from lakelock.table.file_index.rows import Group, LoadedRows, groups_of, merged, with_changes
from lakelock.table.layout import FileGroupId
from lakelock.table.snapshot import DataFile
from lakelock.table.statistics import UNKNOWN, FileStatistics
from lakelock.table.timeline import Timeline


@dataclass(frozen=True)
class IndexState:
    """The live slices after a checkpoint and some commits. Reads of the checkpoint's rows raise what those raise."""

    base: Checkpoint
    changes: Changes
    effects: tuple[Effect, ...] = ()
    _known: dict[str, Mapping[str, Group]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def after(cls, base: Checkpoint, effects: Iterable[Effect]) -> IndexState:
        """The state after the commits, each of which the checkpoint does not cover."""
        effects = tuple(effects)
        return cls(base, fold(effects), effects)

    @cached_property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that have live slices, in order."""
        found = set(self.base.rows.partitions) - self.changes.partitions
        found.update(partition for partition in self.changes.partitions if self.in_partition(partition))
        return tuple(sorted(found))

    def in_partition(self, partition: str) -> tuple[DataFile, ...]:
        """The live slices of one partition, in order of their file ids."""
        groups = self._groups(partition)
        return tuple(groups[file_id].slice.file for file_id in sorted(groups) if groups[file_id].slice)  # type: ignore[union-attr]

    def is_replaced(self, group: FileGroupId) -> bool:
        """Whether the file group is known to have been replaced."""
        found = self._groups(group.partition).get(group.file_id)
        return found is not None and found.slice is None

    def statistics(self, file: DataFile) -> FileStatistics:
        """What the writer of a live slice knew about it."""
        group = self._groups(file.partition).get(file.file_id)
        one = group.slice if group is not None else None
        if one is None or one.file != file:
            return UNKNOWN
        return FileStatistics(one.rows, one.key_min, one.key_max, column_ranges_in(one.columns))

    def preload(self) -> None:
        """Read all of the checkpoint's rows at once: for whoever needs every partition."""
        if not isinstance(self.base.rows, LoadedRows):
            loaded = LoadedRows(self.base.rows.all())
            object.__setattr__(self, "base", Checkpoint(self.base.coverage, loaded, self.base.schemas, self.base.applications))

    @cached_property
    def schemas(self) -> Mapping[str, SchemaTold]:
        """When each schema was last recorded."""
        found = dict(self.base.schemas)
        for text, told in self.changes.schemas.items():
            found[text] = later_told(told, found.get(text))
        return found

    @cached_property
    def applications(self) -> Mapping[str, Applied]:
        """The newest commit of each application that numbers its writes."""
        found = dict(self.base.applications)
        for app_id, applied in self.changes.applications.items():
            found[app_id] = later_applied(applied, found.get(app_id))
        return found

    def checkpoint(self, timeline: Timeline) -> Checkpoint:
        """The state as a checkpoint; the timeline is the one whose commits it has."""
        coverage = self.base.coverage.with_all_of(timeline, (effect.instant for effect in self.effects))
        rows = with_changes(self.base.rows.all(), self.changes, forget_below=lowest_open(timeline))
        return Checkpoint(coverage, LoadedRows(rows), self.schemas, self.applications)

    def _groups(self, partition: str) -> Mapping[str, Group]:
        if partition not in self._known:
            self._known[partition] = merged(groups_of(self.base.rows.of(partition)), partition, self.changes)
        return self._known[partition]
