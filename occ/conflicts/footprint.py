"""What a transaction touched, and the keys under which its commit records it.

What Hudi has no field for travels in `extraMetadata` under keys that start with `lakelock.`; a foreign commit without them
is judged conservatively.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lakelock.conflict import Party
from lakelock.json_object import JsonObject
from lakelock.occ.conflicts.reads import Read
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.index.buckets import bucket_of_group
from lakelock.table.layout import FileGroupId

SCHEMA = "schema"
WRITE_ID = "lakelock.write_id"
DECISION = "lakelock.decision"
WRITER = "lakelock.writer"
OPERATION = "lakelock.operation"
APPLICATION = "lakelock.application"
READS = "lakelock.reads"
COMMIT_INFO = "lakelock.commit_info"
SAW = "lakelock.saw"
NEWEST_FOREIGN = "lakelock.beside"
TAG = "lakelock.tag"
RESTORED = "lakelock.restored"
"""The instant time as of which a restore made the table what it was."""

OVERWRITES = frozenset({"INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE", "DELETE_PARTITION"})
"""Hudi's names of the operations that replace the whole content of partitions."""

CLUSTER = "CLUSTER"
"""What Hudi calls the operation of a commit that clusters (`WriteOperationType.CLUSTER`)."""
SERVICES = frozenset({CLUSTER})
"""Operations that change no row. They yield to every write of the same file groups, also when they came first."""


@dataclass(frozen=True)
class AppTransaction:
    """An application's own numbering of its writes: each `(app_id, version)` is applied at most once, in growing order."""

    app_id: str
    version: int

    def __str__(self) -> str:
        return f"{self.app_id}: {self.version}"

    def to_json(self) -> str:
        return json.dumps({"id": self.app_id, "version": self.version})

    @classmethod
    def from_extra(cls, extra: Mapping[str, str]) -> AppTransaction | None:
        try:
            values = JsonObject.parse(extra[APPLICATION])
            return cls(values.text("id"), values.integer("version"))
        except (KeyError, ValueError):
            return None


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
