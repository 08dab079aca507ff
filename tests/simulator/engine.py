"""The production engine on a simulated table, with the calls that actors make."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from lakelock.engine.batch import AttemptCache, Batch
from lakelock.engine.file_tasks import FileTasks
from lakelock.markers.data_files import TaskToken
from lakelock.occ.begin import Detached
from lakelock.occ.optimize import Optimized
from lakelock.occ.reading import ReadView
from lakelock.occ.restore import Repaired
from lakelock.settings import OptimizeSettings
from lakelock.table.partitions import PartitionValues
from lakelock.table.pruning import StatisticsOf
from lakelock.table.rewriting import Kernels
from tests.api import (
    AppTransaction,
    ArrowEngine,
    Committed,
    Coordinator,
    DataFile,
    Resource,
    Stamp,
    TableSchema,
    Timeline,
    Transaction,
    WriteRequest,
    WriteStat,
)
from tests.simulator.light_rows import Chosen, LightKernels, Lines
from tests.simulator.rows import NOT_GIVEN, SCHEMA, TABLE_SCHEMA, Row, partition_of, row_of

_LATE = TaskToken(0, 9, 9)

Follow = Callable[[str, Callable[..., object]], None]
"""Takes an instant and one of its tasks, to be run again with another `storage` and `runtime`."""

FAILED_ATTEMPTS = 0.1
"""How often the first attempt of a task fails after its file is complete. Spark then makes another attempt."""


@dataclass(frozen=True)
class Format:
    """How rows are represented in memory and in base files: the kernels, and the conversion to and from their rows."""

    kernels: Kernels
    table: Callable[[Iterable[Row]], Any]
    rows: Callable[[Any], list[Row]]
    in_part: Callable[[str], Any]
    with_keys: Callable[[frozenset[str]], Any]
    below: Callable[[int], Any]


class Engine:
    """What the actors do to a table. Every call is one transaction, with the retries that users get."""

    def __init__(self, coordinator: Coordinator, rows: Format, *, follow: Follow | None = None) -> None:
        """`follow` is called for each task, and may run another attempt of it once its commit is decided."""
        self.coordinator, self._format = coordinator, rows
        self._engine = _Engine(coordinator, rows.kernels)
        self._engine.follow = follow

    def insert(self, rows: Sequence[Row], tag: str, application: AppTransaction | None = None) -> Committed:
        return self._engine.insert(self._format.table(rows), application=application, tag=tag)

    def insert_detached(self, rows: Sequence[Row], tag: str) -> tuple[Detached, list[WriteStat]]:
        """Write the files of an insert that another process is to commit."""
        table, kernels, stats = self.coordinator.table, self._format.kernels, []
        with self.coordinator.begin(WriteRequest("INSERT", tag=tag)) as tx:
            tasks = FileTasks(tx.write_context(), table.storage, table.runtime, kernels)
            for number, (partition, mine) in enumerate(self._by_partition(rows)):
                stats += tasks.write_new_files(partition, [mine], TaskToken(number, 0, 0))
            return tx.detach(), stats

    def upsert(self, rows: Sequence[Row], tag: str, application: AppTransaction | None = None) -> Committed:
        return self._engine.upsert(self._format.table(rows), application=application, tag=tag)

    def delete_keys(self, part: str, keys: Sequence[str], tag: str) -> Committed:
        return self._engine.delete_keys(self._format.table([Row(part, key, 0, ()) for key in keys]), tag=tag)

    def delete_below(self, value: int, tag: str) -> Committed:
        return self._engine.delete_where(self._format.below(value), tag=tag)

    def overwrite(self, rows: Sequence[Row], tag: str) -> Committed:
        return self._engine.overwrite_partitions(self._format.table(rows), tag=tag)

    def optimize(self, tag: str, sort_by: Sequence[str] = ()) -> Optimized:
        return self._engine.optimize(sort_by=sort_by, tag=tag)

    def compact(self, tag: str) -> Optimized:
        """Write file groups with log files anew, and join none."""
        return self._engine.optimize(sizes=OptimizeSettings(small_file_bytes=1, target_file_bytes=1, commit_bytes=1), tag=tag)

    def restore(self, back: int, tag: str) -> Committed | None:
        """Restore the table as of that many commits ago; None if there was nothing then."""
        commits = self.coordinator.table.timeline().commits
        return self._engine.restore(commits[-1 - back].requested, tag=tag) if len(commits) > back else None

    def repair(self) -> Repaired:
        """Take out what another engine has undone."""
        return self._engine.repair()

    def read(self, as_of: str | None = None) -> list[Row]:
        return self._format.rows(self._engine.read(as_of))

    def read_at(self, timeline: Timeline) -> list[Row]:
        """The rows that a timeline shows."""
        snapshot, schema = self.coordinator.state_at(timeline)
        return self._format.rows(self._engine.read_files(snapshot.files, schema))

    def read_in(self, tx: Transaction, part: str | None, keys: frozenset[str] | None) -> list[Row]:
        """Rows of one partition, or with one of these keys, read as part of the transaction."""
        where = self._format.in_part(part or "") if keys is None else self._format.with_keys(keys)
        return self._format.rows(self._engine.read_in(tx, where))

    def upsert_in(self, tx: Transaction, rows: Sequence[Row]) -> Committed:
        return self._engine.upsert_in(tx, self._format.table(rows))

    def encode(self, file: DataFile, rows: Sequence[Row]) -> bytes:
        """A data file with these rows, as another engine would write it into the same table."""
        properties, kernels, output = self.coordinator.properties, self._format.kernels, BytesIO()
        stamp = Stamp(properties.name, file.instant, file.partition, file.name)
        writer = kernels.new_file(output, TABLE_SCHEMA, stamp, self.coordinator.table.settings.write)
        keyed = kernels.keyed(self._format.table(rows), properties)
        writer.add_new(keyed.rows, keyed.keys)
        writer.close()
        return output.getvalue()

    def _by_partition(self, rows: Sequence[Row]) -> list[tuple[str, Any]]:
        parts = sorted({row.part for row in rows})
        return [(partition_of(part), self._format.table(row for row in rows if row.part == part)) for part in parts]


class _Engine(ArrowEngine):
    follow: Follow | None = None

    def _merged(
        self, shown: ReadView, named: Sequence[Resource], where: Any, columns: TableSchema
    ) -> Iterator[Any]:  # fmt: skip
        for slice_ in shown.logged_within(named):
            yield self._kernels.read([slice_.as_file], columns, where, self._coordinator.table.storage)

    def _batch_of(self, tx: Transaction, schema: TableSchema, rows: Any, memory: AttemptCache | None = None) -> Batch:
        batch = _AttemptedTwice(self._coordinator, self._kernels, tx, schema, rows, memory or AttemptCache())
        batch.follow = self.follow
        return batch


class _AttemptedTwice(Batch):
    """Tasks whose first attempt may fail after its file is complete, and may be followed by an attempt that comes too late."""

    follow: Follow | None = None

    def copy(self, earlier: WriteStat) -> WriteStat | None:
        stat = super().copy(earlier)
        if self.follow is not None and not earlier.is_new_group:
            self._follow(lambda late: late.copy_file(earlier, _LATE))
        return stat

    def write_new(self, partition: str, bucket: int | None, keyed: Any) -> list[WriteStat]:
        stats = super().write_new(partition, bucket, keyed)
        # New rows of an upsert's straggler would be found by their keys and changed by others, and would then stay.
        if self.follow is not None and self.context.operation == "INSERT":
            self._follow(lambda late: late.write_new_files(partition, [keyed.rows], _LATE, bucket=bucket))
        return stats

    def rewrite(self, file: DataFile, *, upserts: Any, delete_mask: Any, added: Any) -> WriteStat | None:
        task, attempt = self.task(), 0
        while True:
            token = TaskToken(task.partition, 0, attempt)
            stat = self.tasks.rewrite_group(file, token, upserts=upserts, delete_mask=delete_mask, added=added)
            attempt += 1
            if attempt > 1 or self.runtime.random() >= FAILED_ATTEMPTS:
                break
        self._follow(lambda late: late.rewrite_group(file, _LATE, upserts=upserts, delete_mask=delete_mask, added=added))
        return stat

    def _follow(self, attempt: Callable[[FileTasks], Any]) -> None:
        """Have another attempt follow, in a process of its own."""
        if self.follow is not None:
            context, kernels = self.context, self.kernels
            self.follow(context.instant, lambda **opened: attempt(FileTasks.of(context, **opened, kernels=kernels)))


def _table(rows: Iterable[Row]) -> pa.Table:
    rows = list(rows)
    values: dict[str, list[Any]] = {
        "id": [row.key for row in rows],
        "v": [row.value for row in rows],
        "trail": [json.dumps(row.trail) for row in rows],
        "left": [row.left for row in rows],
        "right": [row.right for row in rows],
        "part": [row.part for row in rows],
    }
    lacking = [name for name in ("left", "right") if NOT_GIVEN in values[name]]
    given = [field for field in SCHEMA if field.name not in lacking]
    return pa.table([values[field.name] for field in given], schema=pa.schema(given))


def _from_table(table: pa.Table) -> list[Row]:
    return [row_of(row) for row in table.to_pylist()]


class _WithoutStatistics(Kernels):
    """Rules files out by their partitions only, as lines of JSON can, so that a seed is the same history with both."""

    def possible(
        self, condition: pc.Expression, files: Sequence[DataFile], schema: TableSchema, values: PartitionValues,
        statistics: StatisticsOf,
    ) -> Sequence[DataFile]:  # fmt: skip
        return super().possible(condition, files, schema, values, lambda file: None)


PARQUET = Format(
    _WithoutStatistics(),
    _table,
    _from_table,
    lambda part: pc.field("part") == part,
    lambda keys: pc.field("id").isin(sorted(keys)),
    lambda value: pc.field("v") < value,
)

LIGHT = Format(
    cast("Kernels", LightKernels()),
    Lines,
    list,
    lambda part: Chosen(f"part = {part}", lambda row: row.part == part, partition_of(part)),
    lambda keys: Chosen(f"id in {sorted(keys)}", lambda row: row.key in keys),
    lambda value: Chosen(f"v < {value}", lambda row: row.value < value),
)
