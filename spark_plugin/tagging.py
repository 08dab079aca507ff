"""The first stage of an upsert, on the executors: which file holds the key of each incoming row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelock.occ.file_tasks import WriteContext
from lakelock.spark_plugin.reports import REPORT
from lakelock.spark_plugin.routing import slot_of
from lakelock.table.base_reader import BaseFile
from lakelock.table.fitting import conform
from lakelock.table.index import held
from lakelock.table.keyed import Keyed
from lakelock.table.partitions import partition_paths
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile

ROUTE = "_lakelock_route"
CHUNK_ROWS = 262_144
"""Keys that are looked up at once: each chunk reads the key columns of its partitions' files."""


@dataclass(frozen=True)
class TagPlan:
    """What a tag task needs: the columns of the rows, and the files of the snapshot, by whose number routes go."""

    context: WriteContext
    columns: TableSchema
    files: tuple[DataFile, ...]

    @property
    def schema(self) -> pa.Schema:
        """What the stage returns: the rows in the table's types, their routes, and reports."""
        rows = [f.with_nullable(True) for f in self.columns.arrow]
        return pa.schema([*rows, pa.field(ROUTE, pa.int32()), pa.field(REPORT, pa.binary())])


@dataclass
class TagReport:
    """What a tag task found: rows by (partition, route), and the rows of the files that it looked into, by number."""

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    file_rows: dict[int, int] = field(default_factory=dict)


def tag_stage(plan: TagPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | TagReport]:
    """Every incoming row once for each file that holds its key, or once, with a slot for a route, when none does."""
    numbered: dict[str, list[tuple[int, DataFile]]] = {}
    for number, file in enumerate(plan.files):
        numbered.setdefault(file.partition, []).append((number, file))
    report = TagReport()
    for rows in chunks(batches, CHUNK_ROWS):
        keyed = Keyed.of(conform(rows, plan.columns.arrow), plan.context.properties)
        positions, routes = _tagged(plan, keyed, numbered, report)
        whole = len(positions) == len(keyed) and bool((np.diff(positions) == 1).all())
        tagged = keyed.rows if whole else keyed.rows.take(pa.array(positions))
        yield from _with_routes(tagged, routes, plan.schema)
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
    plan: TagPlan, keyed: Keyed, numbered: dict[str, list[tuple[int, DataFile]]], report: TagReport
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Positions into the chunk, ascending, and the route of each; a key that several files hold has several."""
    paths = partition_paths(keyed.rows, plan.context.properties)
    codes = np.asarray(paths.indices)
    storage = plan.context.location.open()
    all_positions: list[npt.NDArray[Any]] = []
    all_routes: list[npt.NDArray[Any]] = []
    for code, partition in enumerate(paths.dictionary.to_pylist()):
        at = np.flatnonzero(codes == code)
        keys = keyed.keys.combine_chunks().take(pa.array(at)) if len(paths.dictionary) > 1 else keyed.keys.combine_chunks()
        unknown = np.ones(len(at), np.bool_)
        for number, file in numbered.get(partition, ()):
            with BaseFile(storage.open_input(file.key), file.key) as base:
                found = np.flatnonzero(held(keys, base))
                report.file_rows[number] = base.rows
            if len(found):
                unknown[found] = False
                report.counts[partition, number] += len(found)
                all_positions.append(at[found])
                all_routes.append(np.full(len(found), number, np.int32))
        new = np.flatnonzero(unknown)
        if len(new):
            texts = (keys if len(new) == len(keys) else keys.take(pa.array(new))).to_pylist()
            slots = np.array([slot_of(partition, text) for text in texts], np.int32) + np.int32(len(plan.files))
            for slot, rows in zip(*np.unique(slots, return_counts=True), strict=True):
                report.counts[partition, int(slot)] += int(rows)
            all_positions.append(at[new])
            all_routes.append(slots)
    positions, routes = np.concatenate(all_positions), np.concatenate(all_routes)
    order = np.argsort(positions, kind="stable")
    return positions[order], routes[order]


def _with_routes(rows: pa.Table, routes: npt.NDArray[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    columns = [*rows.columns, pa.chunked_array([pa.array(routes)]), pa.chunked_array([pa.nulls(len(routes), pa.binary())])]
    yield from pa.table(columns, schema=schema).to_batches()
