"""Where rows go that no file holds yet: beside others of their partition, or into their bucket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.engine.file_tasks import Target
from lakelock.occ.write_context import WriteContext
from lakelock.spark_plugin.writing import bucketing, rewriting
from lakelock.spark_plugin.writing.bucketing import BucketPlan
from lakelock.spark_plugin.writing.looked_up_keys import LookedUpKeys
from lakelock.spark_plugin.writing.rewriting import RewritePlan
from lakelock.spark_plugin.writing.routing import Routes
from lakelock.spark_plugin.writing.tagging import counted, slots_of
from lakelock.table.partitions import partition_paths
from lakelock.table.record_keys import Keyed
from lakelock.table.snapshot import DataFile

Place = rewriting.Target
_ODD, _M64 = 0x9E3779B97F4A7C15, (1 << 64) - 1


@dataclass(frozen=True)
class NewRows:
    """Which new rows each partition or bucket gets: how many, and two sums over the numbers that were drawn for them.

    The numbers are random, so the sums of other rows are others, whatever tasks they are summed up in.
    """

    sums: Mapping[Target, tuple[int, int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, drawn: Mapping[Target, npt.NDArray[Any]]) -> NewRows:
        return cls({target: (len(numbers), *_sums(numbers.astype(np.uint64))) for target, numbers in drawn.items()})

    def __add__(self, other: NewRows) -> NewRows:
        sums, none = dict(self.sums), (0, 0, 0)
        for target, more in other.sums.items():
            count, plain, mixed = (a + b for a, b in zip(sums.get(target, none), more, strict=True))
            sums[target] = count, plain & _M64, mixed & _M64
        return NewRows(sums)


def _sums(numbers: npt.NDArray[np.uint64]) -> tuple[int, int]:
    """The sum of the numbers, and that of a function of them that is not linear; array arithmetic wraps around."""
    mixed = (numbers ^ (numbers >> np.uint64(29))) * np.uint64(_ODD)
    return int(numbers.sum()), int((mixed ^ (mixed >> np.uint64(32))).sum())


Placement = tuple[npt.NDArray[Any], Counter[tuple[str, int]], NewRows]
"""The route of each row, how many take each by (partition, route), and the rows of each partition or bucket."""


@dataclass(frozen=True)
class NewPlaces:
    """The places for new rows beside `files`, whose numbers are routes. `routes`, once they are planned, say which file takes
    the new rows of a partition, if any does. The new rows of `settled` partitions and buckets are in files that were kept.
    `looked_up`: the only keys that new rows may have, if it is known. `equated`: no stored row has the key of a new one in
    which none of these columns is null; without one, nothing is known of their keys, and with None nobody asks."""

    context: WriteContext
    files: tuple[DataFile, ...]
    routes: Routes | None = None
    settled: frozenset[Target] = frozenset()
    looked_up: LookedUpKeys | None = None
    equated: tuple[str, ...] | None = None

    @property
    def in_buckets(self) -> bool:
        return self.context.properties.bucket_index is not None

    def routed(self, keyed: Keyed, drawn: npt.NDArray[Any]) -> Placement:
        """A route for each row; rows of one key get the same. `drawn` has a number for each row.

        `WriteFailed` if the rows are not those whose keys were looked up.
        """
        if self.looked_up is not None:
            self.looked_up.require(keyed.keys.filter(self._can_match(keyed.rows)).combine_chunks())
        if self.in_buckets:
            return self._by_bucket(keyed, drawn)
        routes, counts = np.zeros(len(keyed), np.int32), Counter[tuple[str, int]]()
        paths, keys = partition_paths(keyed.rows, self.context.properties), keyed.keys.combine_chunks()
        codes, rows_of = np.asarray(paths.indices), dict[Target, npt.NDArray[Any]]()
        for code, partition in enumerate(paths.dictionary.to_pylist()):
            at = np.flatnonzero(codes == code)
            routes[at] = slots_of(partition, keys.take(pa.array(at)), len(self.files))
            counts.update(counted(partition, routes[at]))
            rows_of[partition, None] = drawn[at]
        return routes, counts, NewRows.of(rows_of)

    def _can_match(self, rows: pa.Table) -> pa.ChunkedArray:
        """Whether each row has no null where its key is looked up: one that has equals no stored row, so nobody looks."""
        properties = self.context.properties
        names = (*properties.record_keys, *(() if properties.keys_span_partitions else properties.partition_fields))
        return reduce(pc.and_, [rows.column(name).is_valid() for name in names])

    def may_be_stored(self, rows: pa.Table) -> pa.ChunkedArray | pa.Array:
        """Whether the table may have the key of each new row."""
        if not self.equated:
            return pa.repeat(self.equated is not None, rows.num_rows)
        return reduce(pc.or_, [rows.column(name).is_null() for name in self.equated])

    def _by_bucket(self, keyed: Keyed, drawn: npt.NDArray[Any]) -> Placement:
        plan = self._bucket_plan()
        routes, counts = np.zeros(len(keyed), np.int32), Counter[tuple[str, int]]()
        numbered, rows_of = plan.numbered(), dict[Target, npt.NDArray[Any]]()
        for partition, bucket, at in bucketing.rows_by_bucket(plan, keyed):
            number = numbered.get((partition, bucket), plan.slot_of(partition, bucket))
            rows_of[partition, bucket] = drawn[at]
            counts[partition, number] += len(at)
            routes[at] = number
        return routes, counts, NewRows.of(rows_of)

    def numbered(self) -> dict[Target, int]:
        """The number of the file of each partition and bucket; empty unless rows lie in buckets."""
        return dict(self._bucket_plan().numbered().items()) if self.in_buckets else {}

    def slots(self, targets: Collection[Target]) -> frozenset[tuple[str, int]]:
        """The routes, by partition, of those of these buckets that have no file."""
        plan = self._bucket_plan()
        return frozenset((partition, plan.slot_of(partition, bucket)) for partition, bucket in targets if bucket is not None)

    def targets(self, route: int, rows: pa.Table) -> Iterator[tuple[Place, pa.Table]]:
        """Where the rows of a route go: to a file by its number, or to a new file group (or bucket) of a partition."""
        if self.in_buckets:
            return bucketing.by_target(self._bucket_plan(), route, rows)
        assert self.routes is not None, "rows are written after their routes were planned"
        settled = frozenset(partition for partition, _ in self.settled)
        plan = RewritePlan(self.context, self.context.schema, self.files, self.routes, settled)
        return rewriting.by_target(plan, route, rows)

    def _bucket_plan(self) -> BucketPlan:
        index = self.context.properties.bucket_index
        assert index is not None
        return BucketPlan(self.context, self.context.schema, self.files, index, "add", self.settled)
