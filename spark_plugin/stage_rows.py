"""Rows on their way through the stages of a write: on Spark's executors, or, if they are few, in the driver (ADR 43).

A stage is a function over batches of Arrow. It does not know where it runs, so both ways look keys up, claim, write and report
alike. Rows that are in the driver go on to the executors where the work that they bring is much: many files to look into, or
many bytes to rewrite.

Whether a frame has few rows is asked by computing one row more than may be few. If there are more, these are thrown away, and
the executors compute the frame. So it is asked only where the answer is cheap. Spark's statistics must say that the frame is
small, in bytes and in rows of the size that they assume. Where they say nothing, as of a frame made of Python values or of a
micro-batch, no step of its plan may need a shuffle: Spark then computes partition after partition, until it has enough rows.
"""

from __future__ import annotations

import sys
from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import chain, count
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext, serializers
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelock.clock import SystemRuntime
from lakelock.markers.data_files import TaskToken
from lakelock.spark_plugin.spark_session import (
    KeptFrames,
    arrow_schema,
    frame_of,
    is_local,
    local_frame,
    own_class,
    parallelism,
    spark_schema,
)
from lakelock.spark_plugin.write_stages import (
    REPORT,
    ROUTE,
    Batches,
    Routes,
    among,
    pack_of,
    received,
    reporting,
    task_here,
)
from lakelock.table.snapshot import DataFile

Stage = Callable[[Batches], Iterator[object]]
"""Takes batches of rows, and gives others, and reports: any other values."""

FEW_BYTES = 16 << 20
"""The most memory that few rows take."""
LOCAL_TIMES, LOCAL_BYTES = 25, 32 << 20
"""Where Spark runs in the driver's JVM alone, so many times `write.driver_rows` are few for an upsert or delete by key, and so
much memory. No other machine would do the work, and the rows need not go to Python workers and between these."""
DRIVER_FILES, DRIVER_BYTES = 16, 128 << 20
"""The most files that the driver writes for one step of a write, and the most bytes of those that it rewrites."""


def is_little(files: int, size_bytes: int) -> bool:
    """Whether the driver writes so many files, over others of this size."""
    return files <= DRIVER_FILES and size_bytes <= DRIVER_BYTES


def is_few_bytes(files: Iterable[DataFile]) -> bool:
    """Whether it is little work to read these files twice."""
    return sum(file.size_bytes for file in files) <= FEW_BYTES


class Rows(Protocol):
    """Rows that a stage takes or has given."""

    @property
    def few(self) -> bool:
        """Whether they are in the driver."""

    def through(self, stage: Stage, schema: pa.Schema) -> Rows:
        """What a stage makes of them, in rows of this schema, which has a column for reports where they are wanted."""

    def reports(self) -> list[object]:
        """The reports of the stage that has given them; raises the first error among them."""

    def without_reports(self) -> Rows:
        """The rows alone."""

    def select(self, *names: str) -> Rows:
        """These columns."""

    def on_routes(self, routes: Collection[int]) -> Rows:
        """Those that take one of these routes."""

    def gathered(self, routes: Routes, *, files: int, size_bytes: int) -> Rows:
        """The rows of each pack in one task, which will write so many `files` over those of `size_bytes`."""

    def keep(self, frames: KeptFrames) -> None:
        """Compute them once, until `frames` are closed."""

    def drop(self, frames: KeptFrames) -> None:
        """Let them go before."""


class SparkRows:
    """Rows on the executors: a frame. Stages are sent there until `frames` are closed."""

    few = False

    def __init__(self, frame: DataFrame, frames: KeptFrames) -> None:
        self.frame, self._frames = frame, frames

    def through(self, stage: Stage, schema: pa.Schema) -> SparkRows:
        run = self._frames.shipped(self.frame.sparkSession, reporting(schema, stage) if REPORT in schema.names else stage)
        return self._of(self.frame.mapInArrow(run, spark_schema(schema)))

    def _of(self, frame: DataFrame) -> SparkRows:
        return SparkRows(frame, self._frames)

    def reports(self) -> list[object]:
        return received(self.frame.select(REPORT).where(F.col(REPORT).isNotNull()).collect())

    def without_reports(self) -> SparkRows:
        return self._of(self.frame.where(F.col(REPORT).isNull()).drop(REPORT))

    def select(self, *names: str) -> SparkRows:
        return self._of(self.frame.select(*names))

    def on_routes(self, routes: Collection[int]) -> SparkRows:
        return self._of(self.frame.where(among(routes, ROUTE)))

    def gathered(self, routes: Routes, *, files: int, size_bytes: int) -> SparkRows:
        return self._of(self.frame.repartition(routes.packs, pack_of(routes, ROUTE)))

    def keep(self, frames: KeptFrames) -> None:
        frames.keep(self.frame)

    def drop(self, frames: KeptFrames) -> None:
        frames.drop(self.frame)


_task_numbers = count()
"""No two tasks of this process have the same, or two of a transaction could write the same file."""
_STAGE = (1 << 31) - 1
"""The stage of tasks in the driver, which none of Spark's has: keys that are made up differ by stage and task."""


class DriverRows:
    """Few rows, in this process. A stage runs when its rows or reports are asked for, once: as one task, or in threads, as one
    for each pack of routes."""

    few = True

    def __init__(
        self,
        spark: SparkSession,
        frames: KeptFrames,
        schema: pa.Schema,
        compute: Callable[[], Iterator[object]],
        routes: Routes | None = None,
    ) -> None:
        self.schema = schema
        self._spark, self._frames, self._compute, self._routes = spark, frames, compute, routes

    @classmethod
    def of(cls, spark: SparkSession, frames: KeptFrames, rows: pa.Table) -> DriverRows:
        return cls(spark, frames, rows.schema, lambda: iter(rows.to_batches()))

    @cached_property
    def _items(self) -> list[object]:
        return list(self._compute())

    @property
    def batches(self) -> list[pa.RecordBatch]:
        """The rows."""
        return [item for item in self._items if isinstance(item, pa.RecordBatch) and item.num_rows]

    @property
    def table(self) -> pa.Table:
        """The rows together."""
        return pa.Table.from_batches(self.batches, self.schema)

    def through(self, stage: Stage, schema: pa.Schema) -> DriverRows:
        def task(batches: list[pa.RecordBatch]) -> list[object]:
            with task_here(TaskToken(next(_task_numbers), _STAGE, 0)):
                return list(stage(iter(batches)))

        def run() -> Iterator[object]:
            tasks = [partial(task, batches) for batches in self._packs()]
            return chain.from_iterable(SystemRuntime().gather(tasks, limit=parallelism(self._spark)))

        return DriverRows(self._spark, self._frames, schema, run)

    def _packs(self) -> list[list[pa.RecordBatch]]:
        """The batches of each task."""
        if self._routes is None or self._routes.packs == 1:
            return [self.batches]
        values, packs = np.array(self._routes.pack_values), dict[int, list[pa.RecordBatch]]()
        for batch in self.batches:
            mine = values[batch.column(ROUTE).to_numpy()]
            for value in np.unique(mine).tolist():
                packs.setdefault(value, []).append(batch.filter(pa.array(mine == value)))
        return list(packs.values()) or [[]]

    def reports(self) -> list[object]:
        return [item for item in self._items if not isinstance(item, pa.RecordBatch)]

    def without_reports(self) -> DriverRows:
        return self.select(*(name for name in self.schema.names if name != REPORT))

    def select(self, *names: str) -> DriverRows:
        return self._mapped(pa.schema([self.schema.field(name) for name in names]), lambda batch: batch.select(names))

    def on_routes(self, routes: Collection[int]) -> DriverRows:
        wanted = pa.array(sorted(routes), pa.int32())
        return self._mapped(self.schema, lambda batch: batch.filter(pc.is_in(batch.column(ROUTE), wanted)))

    def _mapped(self, schema: pa.Schema, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> DriverRows:
        return DriverRows(self._spark, self._frames, schema, lambda: map(change, self.batches))

    def gathered(self, routes: Routes, *, files: int, size_bytes: int) -> Rows:
        if is_little(files, size_bytes):
            return DriverRows(self._spark, self._frames, self.schema, lambda: iter(self._items), routes)
        on_executors = SparkRows(local_frame(self._spark, self.table, spark_schema(self.schema)), self._frames)
        return on_executors.gathered(routes, files=files, size_bytes=size_bytes)

    def keep(self, frames: KeptFrames) -> None:
        """They are."""

    def drop(self, frames: KeptFrames) -> None:
        """Nothing but memory is taken."""


class FewRows:
    """The rows of a frame of which the driver has collected all."""

    def __init__(self, frame: DataFrame, rows: Any, arrow: pa.Table) -> None:
        self._frame, self._rows, self.arrow = frame, rows, arrow

    @property
    def frame(self) -> DataFrame:
        """The frame with its rows in its plan, and the same columns: an expression on a column of one is one on the other's."""
        spark = self._frame.sparkSession
        output = self._frame._jdf.queryExecution().analyzed().output()
        return frame_of(spark, own_class(spark, "FewRows").plan(output, self._rows))


def few_rows(
    frame: DataFrame, most_rows: int, running: Callable[[], AbstractContextManager[None]], *, little: bool, by_key: bool = False
) -> FewRows | None:
    """The rows of a frame if they are at most so many, and few in bytes; None also where to ask would be dear, unless it is
    known to be `little`. `by_key`: more are few on a local Spark. Jobs, if any are needed, run in the context `running`.
    """
    spark, most_bytes = frame.sparkSession, FEW_BYTES
    if by_key and is_local(spark):
        most_rows, most_bytes = most_rows * LOCAL_TIMES, LOCAL_BYTES
    try:
        ours, computed = own_class(spark, "FewRows"), frame
        plan = _with_values(spark, ours, frame._jdf.queryExecution().analyzed(), most_bytes)
        if plan.nodeName() != "LocalRelation":
            computed = frame_of(spark, plan)
            plan = computed._jdf.queryExecution().optimizedPlan()
        most_rows = min(most_rows, most_bytes // _row_bytes(plan))
        cost = _Cost.of(plan, most_rows, most_bytes, little=little)
        if cost is None or cost.rows > most_rows:
            return None
        rows = ours.held(plan) if cost.local else None
        query = None if cost.local else _limited(computed, most_rows + 1, at_once=cost.partitions <= parallelism(spark))
    except (Py4JError, PySparkException):  # this Spark's inside is another, or its plan fails, as it will on the executors
        return None
    if rows is None:
        try:
            with running():
                rows = ours.of(query)
        except (PySparkException, Py4JJavaError) as error:
            if "spark.driver.maxResultSize" in str(error):
                return None
            raise
    if len(rows) > most_rows:
        return None
    try:
        stream = ours.arrow(rows, frame._jdf.schema(), "UTC")
    except Py4JError:
        return None
    table = arrow_schema(frame.schema).empty_table() if stream is None else pa.ipc.open_stream(b64decode(stream)).read_all()
    return FewRows(frame, rows, table) if table.nbytes <= most_bytes else None


def _with_values(spark: SparkSession, ours: Any, plan: Any, most_bytes: int) -> Any:
    """The plan of a frame that Python made of values, with these in it: Spark would get them by a job with Python workers.

    Other plans as they are.
    """
    if plan.nodeName() == "LocalRelation":
        return plan
    sent = ours.sent(plan, most_bytes)
    if sent is None:
        return plan
    context: Any = spark.sparkContext
    size = max(1, min(sent[1] // sent[3], context._batchSize or 1024))
    return sent[0] if bytes(sent[2]) == _passing_on(size) else plan


@cache
def _passing_on(size: int) -> bytes:
    """What `createDataFrame` has Python workers call on values that it has sent in batches of this size: the identity."""
    context, pickling = SparkContext._active_spark_context, serializers  # type: Any, Any
    sent = pickling.BatchedSerializer(context._unbatched_serializer, size)
    passed = pickling.AutoBatchedSerializer(pickling.CPickleSerializer())
    return bytes(pickling.CloudPickleSerializer().dumps((context.emptyRDD()._pickled().func, None, sent, passed)))


def _limited(frame: DataFrame, most: int, *, at_once: bool) -> Any:
    """The query of the first rows: of each partition, all at once, or of one partition after the other."""
    if not at_once:
        return frame.limit(most)._jdf.queryExecution()
    spark, plan = frame.sparkSession, frame._jdf.queryExecution().analyzed()
    return frame_of(spark, own_class(spark, "FewRows").firstOfEach(plan, most))._jdf.queryExecution()


_NARROW = {
    "Project", "Filter", "Generate", "Sample", "LocalLimit", "GlobalLimit", "Union", "SubqueryAlias", "Expand",
    "BatchEvalPython", "ArrowEvalPython", "MapInPandas", "PythonMapInArrow", "MapInArrow",
    "MapPartitions", "MapElements", "SerializeFromObject", "DeserializeToObject",
}  # fmt: skip
_MOST_STEPS = 50


def _row_bytes(plan: Any) -> int:
    """What Spark's estimates assume for a row."""
    return 8 + int(plan.schema().defaultSize())


@dataclass(frozen=True)
class _Cost:
    """What it takes to compute a few rows of a plan: it has them already (`local`), or computes some of these partitions."""

    local: bool = False
    rows: int = 0
    partitions: int = 0

    @classmethod
    def of(cls, plan: Any, most_rows: int, most_bytes: int, *, little: bool) -> _Cost | None:
        """None if it may be much, or is much to do twice, and is not known to be `little`."""
        if plan.nodeName() == "LocalRelation":
            return cls(local=True, rows=plan.data().size())
        size_bytes = int(str(plan.stats().sizeInBytes()))
        if little or size_bytes <= min(most_bytes, most_rows * _row_bytes(plan)):
            return cls()
        steps, partitions = [plan], 0
        for _ in range(_MOST_STEPS):
            if not steps:
                return cls(partitions=partitions)
            step = steps.pop()
            name = step.nodeName()
            if name == "LogicalRDD":
                if not _is_narrow(step.rdd()):
                    return None
                partitions += step.rdd().getNumPartitions()
            elif name in _NARROW:
                children = step.children()
                steps += [children.apply(number) for number in range(children.size())]
            elif name == "InMemoryRelation":
                partitions += sys.maxsize  # not known; what is computed of it stays
            elif name not in ("LocalRelation", "OneRowRelation"):
                return None
        return None


def _is_narrow(rdd: Any) -> bool:
    """Whether each of its partitions needs one of another's at most."""
    for _ in range(_MOST_STEPS):
        needed = rdd.dependencies()
        if not needed.size():
            return True
        if needed.size() > 1 or "ShuffleDependency" in needed.apply(0).getClass().getSimpleName():
            return False
        rdd = needed.apply(0).rdd()
    return False
