"""Delete by condition: Spark finds the rows, their file groups are claimed, and rewritten without them.

Rows are chosen as positions in their files: exact even where a key occurs twice. The rows that a transaction selected become a
question about the files of other writers: does one of them hold such a row?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakelock.engine.file_tasks import rewrite_group
from lakelock.errors import StorageError
from lakelock.occ.begin import WriteContext
from lakelock.occ.footprint import ReadKind
from lakelock.spark_plugin.conditions import SHOWN_CHARACTERS, Condition
from lakelock.spark_plugin.lookup_stages import CHUNK_ROWS, chunks
from lakelock.spark_plugin.reading import FILE_GONE
from lakelock.spark_plugin.spark_session import FILE, ROW, local_frame, spark_schema
from lakelock.spark_plugin.stage_rows import Rows, is_few_bytes
from lakelock.spark_plugin.write_attempt import Attempt, Redoing, Written
from lakelock.spark_plugin.write_stages import (
    REPORT,
    REPORT_SCHEMA,
    ROUTE,
    FileTarget,
    plan_routes,
    this_task,
    while_wanted,
)
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.layout import FileGroupId
from lakelock.table.merged_slices import Change
from lakelock.table.pruning import Pruning, StatisticsOf
from lakelock.table.snapshot import DataFile
from lakelock.texts import counted

POSITIONS = "_lakelock_positions"
SELECTED = pa.schema([(ROUTE, pa.int32()), (POSITIONS, pa.binary()), (REPORT, pa.binary())])


@dataclass(frozen=True)
class Selection:
    """The chosen rows of `files`: how many by the number of the file among these, and their positions, which are kept."""

    files: tuple[DataFile, ...]
    counts: Mapping[int, int]
    rows: Rows

    @property
    def groups(self) -> tuple[FileGroupId, ...]:
        """The file groups that have chosen rows."""
        return tuple(self.files[number].group for number in sorted(self.counts))

    def positions(self) -> Rows:
        """Rows of a file number and some positions in that file, as 64-bit numbers."""
        return self.rows.without_reports()


def select_rows(attempt: Attempt, files: Sequence[DataFile], condition: Condition) -> Selection:
    """Find the rows of the files that satisfy the condition; null counts as not satisfied."""
    numbers = {file.name: number for number, file in enumerate(files)}
    rows = attempt.placed(files)
    rows = rows.where(condition.on(rows)).select(FILE, ROW)
    found = attempt.rows(rows, little=is_few_bytes(files)).through(partial(select_stage, numbers), SELECTED)
    attempt.keep(found)
    reports = [report for report in attempt.reports(found, "finding the rows") if isinstance(report, Counter)]
    return Selection(tuple(files), sum(reports, Counter()), found)


def select_stage(numbers: Mapping[str, int], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | Counter[int]]:
    """On an executor: pack the positions of each file into one value per chunk, and report their number."""
    counts: Counter[int] = Counter()
    for rows in chunks(batches, CHUNK_ROWS):
        names = rows.column(FILE).combine_chunks().dictionary_encode()
        codes, positions = np.asarray(names.indices), rows.column(ROW).to_numpy()
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


class RowsRead:
    """The rows that satisfy a condition, as Spark understands it."""

    kind = ReadKind.ROWS

    def __init__(self, condition: Condition, pruning: Pruning, attempt: Attempt) -> None:
        self._condition, self._pruning, self._attempt = condition, pruning, attempt

    @property
    def description(self) -> str:
        return str(self._condition)

    def concerns(self, partition: str) -> bool:
        return self._pruning.concerns(partition)

    def candidates(self, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        return self._pruning.kept(files, statistics)

    def matches(self, files: Sequence[DataFile]) -> str | None:
        files = self._pruning.kept(files)
        return self._first(lambda: [self._attempt.read(files)]) if files else None

    def changed_by(self, changes: Sequence[Change]) -> str | None:
        return self._first(partial(self._changed, changes))

    def _changed(self, changes: Sequence[Change]) -> Iterator[DataFrame]:
        """The rows that were changed, some of them at a time."""
        attempt, found = self._attempt, list[pa.Table]()
        schema = spark_schema(attempt.schema.arrow)
        for change in changes:
            for rows in change.rows(attempt.storage, attempt.schema):
                found.append(rows)
                if sum(rows.num_rows for rows in found) > CHUNK_ROWS:
                    yield local_frame(attempt.spark, pa.concat_tables(found), schema)
                    found = []
        if any(rows.num_rows for rows in found):
            yield local_frame(attempt.spark, pa.concat_tables(found), schema)

    def _first(self, frames: Callable[[], Iterable[DataFrame]]) -> str | None:
        try:
            for frame in frames():
                found = frame.where(self._condition.on(frame)).limit(1).select(F.to_json(F.struct("*"))).head()
                if found is not None:
                    return str(found[0])[:SHOWN_CHARACTERS]
        except StorageError as error:
            return error.message
        except (PySparkException, Py4JJavaError) as error:
            if not FILE_GONE.search(str(error)):
                raise
            return "a file that it has to look into is gone"
        return None


def delete_where(attempt: Attempt, condition: Condition) -> Written:
    """Delete the rows that satisfy the condition. No other writer may add such a row meanwhile."""
    if not condition.repeatable:
        attempt = attempt.forgetful()
    pruning = attempt.pruning(condition)
    attempt.tx.reads(RowsRead(condition, pruning, attempt))
    redoing, matched = Redoing.of(attempt, attempt.schema), attempt.memory.matched
    files = tuple(pruning.files_of(attempt.tx.current()))
    # An attempt before has looked into these, and has either found nothing or written what is left.
    known = {number for number, file in enumerate(files) if redoing.before.made_from(file) is not None}
    asked = [file for number, file in enumerate(files) if number not in known and matched.get(file.content, True)]
    selection = select_rows(attempt, asked, condition)
    matched.update((file.content, number in selection.counts) for number, file in enumerate(asked))
    found = known | {number for number, file in enumerate(files) if number not in known and matched[file.content]}
    kept = redoing.claimed_and_kept(files, found, {}, counts=selection.counts)
    removed = remove_rows(attempt, selection)
    lost = [files[number] for number in sorted(known - kept.files.keys())]
    if lost:
        removed += remove_rows(attempt, select_rows(attempt, lost, condition))
    return Written(redoing.note(files, removed, kept, {}))


def remove_rows(attempt: Attempt, selection: Selection) -> tuple[WriteStat, ...]:
    """Rewrite the file groups that have selected rows, without those rows. The groups must be claimed."""
    if not selection.counts:
        return ()
    files = selection.files
    counts = {(files[number].partition, number): count for number, count in selection.counts.items()}
    targets = [FileTarget(file.partition, file.size_bytes, 0) for file in files]
    routes = plan_routes(counts, targets, tasks=2 * attempt.tasks, target_rows=1, task_rows=10_000_000)
    plan = RemovePlan(attempt.context(), files)
    size_bytes = sum(files[number].size_bytes for number in selection.counts)
    packed = selection.positions().gathered(routes, files=len(counts), size_bytes=size_bytes)
    what = f"rewriting {counted(len(counts), 'file group')}"
    return attempt.written(packed.through(partial(remove_stage, plan), REPORT_SCHEMA), what, count=sum(counts.values()))


@dataclass(frozen=True)
class RemovePlan:
    """What a task that removes rows needs."""

    context: WriteContext
    files: tuple[DataFile, ...]


def remove_stage(plan: RemovePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
    """On an executor: rewrite each file group whose positions came to this task."""
    packed: dict[int, list[bytes]] = {}
    for batch in batches:
        columns = batch.select([ROUTE, POSITIONS]).to_pydict()
        for number, positions in zip(columns[ROUTE], columns[POSITIONS], strict=True):
            packed.setdefault(number, []).append(positions)
    task = this_task()
    masks = {number: AtPositions(np.frombuffer(b"".join(parts), "<i8")) for number, parts in sorted(packed.items())}
    written = (rewrite_group(plan.context, plan.files[number], task, delete_mask=mask) for number, mask in masks.items())
    yield from while_wanted(plan.context, written)
