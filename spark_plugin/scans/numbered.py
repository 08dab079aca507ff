"""A frame whose rows tasks read in Python, a piece at a time: the pieces go with the plan, and only their numbers are rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lakelock.spark_plugin.frames import spark_schema
from lakelock.storage import Storage
from lakelock.storage.location import StorageLocation

P = TypeVar("P")

MOST_TASKS = 1_000


@dataclass(frozen=True)
class Numbered(Generic[P]):
    """What a task needs: the pieces, at least one, and how the rows of one are read."""

    location: StorageLocation
    pieces: tuple[P, ...]
    read: Callable[[P, Storage], Iterator[pa.Table]]

    def frame(self, spark: SparkSession, columns: pa.Schema) -> DataFrame:
        """The rows of all pieces, which have these columns."""
        numbers = spark.range(0, len(self.pieces), 1, min(len(self.pieces), MOST_TASKS))
        return numbers.mapInArrow(partial(numbered_stage, self), spark_schema(columns))


def numbered_stage(plan: Numbered[P], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On an executor: the rows of the pieces whose numbers came to this task."""
    storage = plan.location.open()
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        for rows in plan.read(plan.pieces[number], storage):
            yield from rows.to_batches()
