"""Where rows go that no file holds yet: beside others of their partition, or into their bucket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelock.occ.write_context import WriteContext
from lakelock.spark_plugin.writing import bucketing, rewriting
from lakelock.spark_plugin.writing.bucketing import BucketPlan
from lakelock.spark_plugin.writing.rewriting import RewritePlan, Target
from lakelock.spark_plugin.writing.routing import SLOTS, Routes, family_of
from lakelock.spark_plugin.writing.tagging import counted, slots_of
from lakelock.table.keys.keyed import Keyed
from lakelock.table.partitions import partition_paths
from lakelock.table.snapshot import DataFile

Placement = tuple[npt.NDArray[Any], Counter[tuple[str, int]], set[tuple[str, int]]]
"""The route of each row, how many take each by (partition, route), and the buckets that get their first file group."""


@dataclass(frozen=True)
class NewPlaces:
    """The places for new rows beside `files`, whose numbers are routes. `routes`, once they are planned, say which file takes
    the new rows of a partition, if any does."""

    context: WriteContext
    files: tuple[DataFile, ...]
    routes: Routes | None = None

    @property
    def in_buckets(self) -> bool:
        return self.context.properties.bucket_index is not None

    def routed(self, keyed: Keyed) -> Placement:
        """A route for each row; rows of one key get the same."""
        if self.in_buckets:
            return self._by_bucket(keyed)
        routes, counts = np.zeros(len(keyed), np.int32), Counter[tuple[str, int]]()
        paths, keys = partition_paths(keyed.rows, self.context.properties), keyed.keys.combine_chunks()
        codes = np.asarray(paths.indices)
        for code, partition in enumerate(paths.dictionary.to_pylist()):
            at = np.flatnonzero(codes == code)
            routes[at] = slots_of(partition, keys.take(pa.array(at)), len(self.files))
            counts.update(counted(partition, routes[at]))
        return routes, counts, set()

    def _by_bucket(self, keyed: Keyed) -> Placement:
        plan = self._bucket_plan()
        routes, counts = np.zeros(len(keyed), np.int32), Counter[tuple[str, int]]()
        numbered, new = plan.numbered(), set[tuple[str, int]]()
        for partition, bucket, at in bucketing.rows_by_bucket(plan, keyed):
            number = numbered.get((partition, bucket))
            if number is None:
                new.add((partition, bucket))
                number = len(self.files) + family_of(partition) * SLOTS + bucket % SLOTS
            counts[partition, number] += len(at)
            routes[at] = number
        return routes, counts, new

    def targets(self, route: int, rows: pa.Table) -> Iterator[tuple[Target, pa.Table]]:
        """Where the rows of a route go: to a file by its number, or to a new file group (or bucket) of a partition."""
        if self.in_buckets:
            return bucketing.by_target(self._bucket_plan(), route, rows)
        assert self.routes is not None, "rows are written after their routes were planned"
        return rewriting.by_target(RewritePlan(self.context, self.context.schema, self.files, self.routes), route, rows)

    def _bucket_plan(self) -> BucketPlan:
        index = self.context.properties.bucket_index
        assert index is not None
        return BucketPlan(self.context, self.context.schema, self.files, index, "add")
