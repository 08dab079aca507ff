"""The first stage of an upsert, on the executors: which file holds the key of each incoming row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelock.occ.write_context import WriteContext
from lakelock.spark_plugin.writing.parcels import Parcels
from lakelock.spark_plugin.writing.routing import slot_of
from lakelock.storage import Storage
from lakelock.table.bucket_hash import buckets_of
from lakelock.table.buckets import bucket_of
from lakelock.table.fitting import conform
from lakelock.table.index import Holding, Tags, tag
from lakelock.table.keyed import Keyed
from lakelock.table.partitions import partition_paths
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile

CHUNK_ROWS = 262_144
"""Keys that are looked up at once: each chunk reads the key columns of its partitions' files."""


@dataclass(frozen=True)
class TagPlan:
    """What a tag task needs: the columns of the rows, and the files of the snapshot, whose numbers are routes."""

    context: WriteContext
    columns: TableSchema
    files: tuple[DataFile, ...]

    @property
    def parcels(self) -> Parcels:
        """How the rows are passed on."""
        return Parcels.of(self.columns.arrow, self.context.properties)


@dataclass
class TagReport:
    """What a tag task found: rows by (partition, route), and the rows of the files that hold some of them, by number."""

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    file_rows: dict[int, int] = field(default_factory=dict)


def tag_stage(plan: TagPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | TagReport]:
    """Every incoming row once for each file that holds its key, or once, with a slot as its route, if none does."""
    numbered: dict[str, dict[DataFile, int]] = {}
    for number, file in enumerate(plan.files):
        numbered.setdefault(file.partition, {})[file] = number
    report, parcels = TagReport(), plan.parcels
    for rows in chunks(batches, CHUNK_ROWS):
        keyed = Keyed.of(conform(rows, plan.columns.arrow), plan.context.properties)
        yield from parcels.packed(keyed.rows, *_tagged(plan, keyed, numbered, report))
    yield report


def chunks(batches: Iterator[pa.RecordBatch], most_rows: int) -> Iterator[pa.Table]:
    """The batches as tables of about `most_rows` rows."""
    pending: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if batch.num_rows:
            pending.append(batch)
            count += batch.num_rows
        if count >= most_rows:
            yield pa.Table.from_batches(pending)
            pending, count = [], 0
    if pending:
        yield pa.Table.from_batches(pending)


def _tagged(
    plan: TagPlan, keyed: Keyed, numbered: Mapping[str, Mapping[DataFile, int]], report: TagReport
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Positions into the chunk and the route of each; a key that several files hold has several."""
    paths = partition_paths(keyed.rows, plan.context.properties)
    codes = np.asarray(paths.indices)
    storage, all_keys = plan.context.location.open(), keyed.keys.combine_chunks()
    positions: list[npt.NDArray[Any]] = []
    routes: list[npt.NDArray[Any]] = []
    for code, partition in enumerate(paths.dictionary.to_pylist()):
        at = np.flatnonzero(codes == code)
        keys = all_keys.take(pa.array(at)) if len(paths.dictionary) > 1 else all_keys
        numbers = numbered.get(partition, {})
        tags = _tags(plan, keyed, at, keys, list(numbers), storage)
        for holding in tags.holdings:
            number = numbers[holding.file]
            report.file_rows[number] = holding.rows
            report.counts[partition, number] += len(holding.positions)
            positions.append(at[holding.positions])
            routes.append(np.full(len(holding.positions), number, np.int32))
        if len(tags.missing):
            texts = keys.take(pa.array(tags.missing)).to_pylist()
            slots = np.array([slot_of(partition, text) for text in texts], np.int32) + np.int32(len(plan.files))
            for slot, rows in zip(*np.unique(slots, return_counts=True), strict=True):
                report.counts[partition, int(slot)] += int(rows)
            positions.append(at[tags.missing])
            routes.append(slots)
    return np.concatenate(positions), np.concatenate(routes)


def _tags(
    plan: TagPlan, keyed: Keyed, at: npt.NDArray[Any], keys: pa.Array, files: Sequence[DataFile], storage: Storage
) -> Tags:
    """The keys of one partition, at these positions of the chunk, looked up in its files: each in that of its bucket only."""
    properties = plan.context.properties
    if properties.bucket_index is None:
        return tag(keys, files, storage)
    buckets = buckets_of(keyed.pick(at), properties.bucket_index, properties.record_keys)
    holdings: list[Holding] = []
    for file in files:
        mine = np.flatnonzero(buckets == bucket_of(file.file_id))
        found = tag(keys.take(pa.array(mine)), [file], storage).holdings
        holdings += [Holding(file, mine[holding.positions], holding.rows) for holding in found]
    return Tags(len(keys), tuple(holdings))
