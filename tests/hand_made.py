"""Merge-on-read tables whose commits are made with given times, of base files and log files as lakelock writes them.

Nothing is locked, claimed or decided: any history can be written.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.settings import WriteSettings
from lakelock.table.base_files import BaseFileWriter, Stamp
from lakelock.table.commit_metadata import CommitMetadata, RuntimeStats, WriteStat
from lakelock.table.layout import FileGroupId
from lakelock.table.log_writing import BasePositions, LogChanges, LogStamp, log_bytes, log_stat
from lakelock.table.partitions import partition_metadata
from lakelock.table.properties import TableProperties
from lakelock.table.record_keys import Keyed
from lakelock.table.schema import TableSchema


@dataclass
class HandMade:
    """A table at a path, which is made with these properties as a merge-on-read table."""

    path: Path
    properties: TableProperties
    schema: TableSchema
    settings: WriteSettings = field(default_factory=WriteSettings)
    positions: bool = True
    """Whether log files name the positions of their rows in the base file, where it has all of them."""
    _tasks: count[int] = field(default_factory=count)
    _newest: dict[FileGroupId, str] = field(default_factory=dict)
    _stored: dict[FileGroupId, pa.Array] = field(default_factory=dict)

    def create(self) -> HandMade:
        (self.path / ".hoodie" / "timeline" / "history").mkdir(parents=True)
        values = {**self.properties.values, "hoodie.table.type": "MERGE_ON_READ"}
        made = replace(self.properties, values=values).serialize(0)
        (self.path / ".hoodie" / "hoodie.properties").write_bytes(made)
        return self

    def commit(
        self,
        requested: str,
        completion: str,
        bases: Mapping[FileGroupId, pa.Table] | None = None,
        logs: Mapping[FileGroupId, LogChanges] | None = None,
    ) -> None:
        """A deltacommit of base files with these rows, and of log files."""
        stats: dict[str, list[WriteStat]] = {}
        for group, rows in (bases or {}).items():
            stats.setdefault(group.partition, []).append(self._base(requested, group, rows))
        for group, changes in (logs or {}).items():
            stamp = LogStamp(requested, group, f"{next(self._tasks)}-0-0")
            data = log_bytes(self._located(group, changes), self.schema, self.properties.name, stamp)
            self._put(stamp.file.key, data, requested)
            stats.setdefault(group.partition, []).append(log_stat(changes, stamp, len(data)))
        timeline = self.path / ".hoodie" / "timeline"
        for state in ("requested", "inflight"):
            (timeline / f"{requested}.deltacommit.{state}").touch()
        extra = {"schema": self.schema.to_avro_json(self.properties.name)}
        metadata = CommitMetadata({partition: tuple(found) for partition, found in stats.items()}, "UPSERT", extra)
        (timeline / f"{requested}_{completion}.deltacommit").write_bytes(metadata.to_bytes())

    def _located(self, group: FileGroupId, changes: LogChanges) -> LogChanges:
        if not self.positions or changes.positions is not None or group not in self._stored:
            return changes
        keys = [] if changes.upserts is None else changes.upserts.keys.chunks
        named = pa.chunked_array([*keys, pa.array(changes.deleted, pa.string())], pa.string())
        at = pc.index_in(named, value_set=self._stored[group])
        if at.null_count:
            return changes
        places = at.to_numpy().astype(np.int64)
        return replace(changes, positions=BasePositions(self._newest[group], *np.split(places, [changes.rows])))

    def keyed(self, rows: pa.Table) -> Keyed:
        return Keyed.of(rows, self.properties)

    def _base(self, requested: str, group: FileGroupId, rows: pa.Table) -> WriteStat:
        name = f"{group.file_id}_{next(self._tasks)}-0-0_{requested}.parquet"
        output = io.BytesIO()
        stamp = Stamp(self.properties.name, requested, group.partition, name)
        writer = BaseFileWriter(output, self.schema, stamp, self.settings)
        writer.add_new(rows, self.keyed(rows).keys)
        writer.close()
        key = f"{group.partition}/{name}" if group.partition else name
        self._put(key, output.getvalue(), requested)
        self._stored[group] = self.keyed(rows).keys.combine_chunks()
        before, self._newest[group] = self._newest.get(group, "null"), requested
        return WriteStat(
            group.file_id, key, before, num_writes=rows.num_rows, num_inserts=rows.num_rows if before == "null" else 0,
            num_update_writes=0 if before == "null" else rows.num_rows, total_write_bytes=len(output.getvalue()),
            file_size_bytes=len(output.getvalue()), partition_path=group.partition, runtime=RuntimeStats(),
        )  # fmt: skip

    def _put(self, key: str, data: bytes, requested: str) -> None:
        file = self.path / key
        file.parent.mkdir(parents=True, exist_ok=True)
        about = file.parent / ".hoodie_partition_metadata"
        if not about.exists():
            about.write_bytes(partition_metadata(requested, key.rpartition("/")[0]))
        file.write_bytes(data)
