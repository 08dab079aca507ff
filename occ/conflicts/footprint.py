"""What a transaction touched, as the rules of conflict look at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lakelock.conflict import Party
from lakelock.occ.conflicts.reads import Read
from lakelock.occ.records.commit_keys import AppTransaction
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.index import bucket_of_group
from lakelock.table.layout import FileGroupId

OVERWRITES = frozenset({"INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE", "DELETE_PARTITION"})
"""Hudi's names of the operations that replace the whole content of partitions."""

CLUSTER = "CLUSTER"
"""What Hudi calls the operation of a commit that clusters (`WriteOperationType.CLUSTER`)."""
SERVICES = frozenset({CLUSTER})
"""Operations that change no row. They yield to every write of the same file groups, also when they came first."""


@dataclass(frozen=True)
class Footprint:
    """What this transaction read and wrote, as far as the rules need it."""

    party: Party
    added: frozenset[FileGroupId] = frozenset()
    rewritten: frozenset[FileGroupId] = frozenset()
    replaced: frozenset[FileGroupId] = frozenset()
    overwritten_partitions: frozenset[str] = frozenset()
    reads: tuple[Read, ...] = ()
    application: AppTransaction | None = None
    new_buckets: frozenset[FileGroupId] = frozenset()
    """In a table whose rows lie in buckets: those that get their first file group, as they are claimed."""

    @property
    def touched(self) -> frozenset[FileGroupId]:
        """The existing file groups that this transaction rewrites or replaces."""
        return self.rewritten | self.replaced

    @property
    def written_partitions(self) -> frozenset[str]:
        return frozenset(g.partition for g in self.added | self.rewritten)

    @property
    def all_partitions(self) -> frozenset[str]:
        """Where this transaction writes, replaces or removes rows."""
        return self.written_partitions | self.overwritten_partitions | {group.partition for group in self.replaced}

    def wrote(
        self, stats: Sequence[WriteStat], replaced: Mapping[str, Sequence[str]] | None, *, in_buckets: bool = False
    ) -> Footprint:
        """This footprint with the files that were written in the end instead of those that were announced."""
        added = frozenset(s.group for s in stats if s.is_new_group)
        return replace(
            self,
            added=added,
            new_buckets=frozenset(map(bucket_of_group, added)) if in_buckets else frozenset(),
            rewritten=frozenset(s.group for s in stats if not s.is_new_group),
            replaced=frozenset(FileGroupId(p, f) for p, ids in (replaced or {}).items() for f in ids),
        )
