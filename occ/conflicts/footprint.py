"""What a transaction touched: derived from commit metadata, so that a Java writer's commits can be judged like our own.

What Hudi has no field for travels in `extraMetadata` under keys that start with `lakelock.`; a foreign commit without them
is judged conservatively.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakelock.conflict import Party
from lakelock.identity import WriterIdentity
from lakelock.json_object import JsonObject
from lakelock.occ.conflicts.reads import Read
from lakelock.table.commit_metadata import CommitMetadata, WriteStat
from lakelock.table.layout import FileGroupId
from lakelock.table.snapshot import DataFile

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

CLUSTER = "CLUSTER"
"""What Hudi calls the operation of a commit that clusters (`WriteOperationType.CLUSTER`)."""

OVERWRITES = frozenset({"INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE", "DELETE_PARTITION"})
"""Hudi's names of the operations that replace the whole content of partitions."""


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
            return cls(values.text("id"), values.whole("version"))
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

    @property
    def touched(self) -> frozenset[FileGroupId]:
        """The existing file groups that this transaction rewrites or replaces."""
        return self.rewritten | self.replaced

    @property
    def written_partitions(self) -> frozenset[str]:
        return frozenset(g.partition for g in self.added | self.rewritten)

    def wrote(self, stats: Sequence[WriteStat], replaced: Mapping[str, Sequence[str]] | None) -> Footprint:
        """This footprint with the files that were written in the end instead of those that were announced."""
        return replace(
            self,
            added=frozenset(s.group for s in stats if s.is_new_group),
            rewritten=frozenset(s.group for s in stats if not s.is_new_group),
            replaced=frozenset(FileGroupId(p, f) for p, ids in (replaced or {}).items() for f in ids),
        )


@dataclass(frozen=True)
class ConcurrentCommit:
    """A commit by somebody else in my window."""

    party: Party
    decision: int | None
    metadata: CommitMetadata
    files: Mapping[FileGroupId, DataFile] = field(default_factory=dict)
    application: AppTransaction | None = None

    @classmethod
    def of(cls, instant: str, completion: str, metadata: CommitMetadata, decision: int | None) -> ConcurrentCommit:
        return cls(
            party=Party(instant, operation_of(metadata), writer_of(metadata), completion),
            decision=decision,
            metadata=metadata,
            files=files_of(metadata),
            application=AppTransaction.from_extra(metadata.extra),
        )

    @property
    def is_foreign(self) -> bool:
        """Whether another engine made it: no decision orders it."""
        return DECISION not in self.metadata.extra

    @property
    def touched(self) -> frozenset[FileGroupId]:
        return self.metadata.rewritten_groups | self.metadata.replaced_groups

    @property
    def changes_no_row(self) -> bool:
        """Whether it is known to have moved rows only, as clustering does, by whatever engine.

        Clustering replaces file groups by new ones and names itself as the operation; anything else counts as a change.
        """
        return self.metadata.operation == CLUSTER and bool(self.metadata.replaced) and not self.metadata.rewritten_groups

    @property
    def overwritten_partitions(self) -> frozenset[str]:
        """Partitions whose whole content this commit replaced; clustering replaces groups but overwrites nothing."""
        if self.metadata.operation not in OVERWRITES:
            return frozenset()
        return frozenset(self.metadata.replaced or ()) | self.written_partitions

    @property
    def written_partitions(self) -> frozenset[str]:
        return frozenset(self.metadata.write_stats)


def files_of(metadata: CommitMetadata) -> dict[FileGroupId, DataFile]:
    """The base files that a commit wrote, by file group."""
    files = (DataFile.parse(s.path, s.file_size_bytes or 0) for s in metadata.stats if s.path is not None)
    return {f.group: f for f in files if f is not None}


def writer_of(metadata: CommitMetadata) -> WriterIdentity | None:
    try:
        return WriterIdentity.from_dict(JsonObject.parse(metadata.extra[WRITER]).fields)
    except (KeyError, ValueError):
        return None


def operation_of(metadata: CommitMetadata) -> str:
    return metadata.extra.get(OPERATION) or metadata.operation or "write"
