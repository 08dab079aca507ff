"""A commit that lacks only its number, its completion time, and what others committed meanwhile."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakelock.occ.conflicts.footprint import Footprint
from lakelock.occ.conflicts.summary import CommitCost
from lakelock.occ.records import commit_keys as keys
from lakelock.table.commit_metadata import CommitMetadata, WriteStat
from lakelock.table.schema import TableSchema
from lakelock.table.statistics import STATISTICS, statistics_of_commit

HUDI_NAMES = {"UPDATE": "UPSERT", "MERGE": "UPSERT"}
"""What Hudi calls operations that it has no name for, as its own UPDATE and MERGE INTO do; it cannot read other names."""


@dataclass(frozen=True)
class PendingCommit:
    """What the completed instant will say. `replaced` is None for a commit and a mapping for a replacecommit.

    `schema` is the table's after this commit, if nobody else changes it meanwhile.
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

        `newest_foreign`: the newest known commit of another engine, so that whoever reads only this commit knows of it.
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
