"""Rows chosen by a condition, as positions in their files: exact even where a key occurs twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakelock.spark_plugin.conditions import Condition
from lakelock.spark_plugin.frames import spark_schema
from lakelock.spark_plugin.session.versions import file_place
from lakelock.spark_plugin.writing.attempt import Attempt
from lakelock.spark_plugin.writing.parcels import ROUTE
from lakelock.spark_plugin.writing.reports import REPORT, reporting
from lakelock.spark_plugin.writing.tagging import CHUNK_ROWS, chunks
from lakelock.table.layout import FileGroupId
from lakelock.table.snapshot import DataFile

POSITIONS = "_lakelock_positions"
_FILE, _ROW = "_lakelock_file", "_lakelock_row"
SELECTED = pa.schema([(ROUTE, pa.int32()), (POSITIONS, pa.binary()), (REPORT, pa.binary())])


@dataclass(frozen=True)
class Selection:
    """The chosen rows of `files`: how many by the number of the file among these, and their positions as a persisted frame."""

    files: tuple[DataFile, ...]
    counts: Mapping[int, int]
    frame: DataFrame

    @property
    def groups(self) -> tuple[FileGroupId, ...]:
        """The file groups that have chosen rows."""
        return tuple(self.files[number].group for number in sorted(self.counts))

    def positions(self) -> DataFrame:
        """Rows of a file number and some positions in that file, as 64-bit numbers."""
        return self.frame.where(F.col(REPORT).isNull()).drop(REPORT)


def select_rows(attempt: Attempt, files: Sequence[DataFile], condition: Condition) -> Selection:
    """Find the rows of the files that satisfy the condition; null counts as not satisfied."""
    numbers = {file.name: number for number, file in enumerate(files)}
    rows = attempt.read(files)
    chosen = rows.where(condition.on(rows))
    if files:
        place = file_place(rows)
        rows = chosen.select(place["file_name"].alias(_FILE), place["row_index"].alias(_ROW))
    else:
        rows = chosen.select(F.lit("").alias(_FILE), F.lit(0).alias(_ROW))
    stage = reporting(SELECTED, partial(select_stage, numbers))
    frame = rows.mapInArrow(stage, spark_schema(SELECTED))
    attempt.keep(frame)
    with attempt.jobs("finding the rows"):
        reports = [report for report in attempt.collected(frame) if isinstance(report, Counter)]
    return Selection(tuple(files), sum(reports, Counter()), frame)


def select_stage(numbers: Mapping[str, int], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | Counter[int]]:
    """On an executor: pack the positions of each file into one value per chunk, and report their number."""
    counts: Counter[int] = Counter()
    for rows in chunks(batches, CHUNK_ROWS):
        names = rows.column(_FILE).combine_chunks().dictionary_encode()
        codes, positions = np.asarray(names.indices), rows.column(_ROW).to_numpy()
        routes, packed = [], []
        for code, name in enumerate(names.dictionary.to_pylist()):
            mine = positions[codes == code].astype("<i8")
            counts[numbers[name]] += len(mine)
            routes.append(numbers[name])
            packed.append(mine.tobytes())
        columns = [pa.array(routes, pa.int32()), pa.array(packed, pa.binary()), pa.nulls(len(routes), pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, schema=SELECTED)
    yield counts


class AtPositions:
    """A delete mask for the rows at some positions of a file; call it with the file's batches in order."""

    def __init__(self, positions: npt.NDArray[Any]) -> None:
        self._positions, self._at = np.sort(positions), 0

    def __call__(self, batch: pa.Table) -> pa.Array:
        start, end = self._at, self._at + batch.num_rows
        first, last = np.searchsorted(self._positions, [start, end])
        mask = np.zeros(batch.num_rows, np.bool_)
        mask[self._positions[first:last] - start] = True
        self._at = end
        return pa.array(mask)
