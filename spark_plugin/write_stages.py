"""The stages of a write: which task writes which file group, how rows get there, and what the tasks report to the driver.

Every row of an upsert gets a *route*, an integer. Routes below the number of files name the file that holds the row's key. The
others are *slots* for new keys: one of 256 families by partition path, one of 32 slots in it by key, so equal new keys always
share a route. The driver turns routes into *packs*, by pure arithmetic over the counts that the tag stage reports: a pack is
what one task writes, and one shuffle brings each row to its task.

Rows travel as Arrow, many in one binary value, a parcel. Spark keeps and moves these few values unchanged. It would convert
its own rows four times on the way, which costs several times as much CPU as the look-up and the transfer themselves.

Reports are Python values in one binary column of the frame that a stage returns. A task that meets a definite error returns it
as a report instead of raising it: the driver raises it typed, and no task retry is wasted on an error that comes again. Errors
that a second attempt may cure are raised, so that Spark retries.

A task may outlive its transaction, or be replaced by another attempt; its files must not stay then. Spark runs a task again
when it has lost the executor, or runs a copy when it is slow, and does not tell the first attempt. So each task checks once
more when its files are complete, and removes them if it is too late. What remains is a task that places a marker after the
commit has listed the markers, and ends before the commit does.
"""

from __future__ import annotations

import heapq
import math
import pickle
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from lakelock.clock import SystemRuntime
from lakelock.errors import LakelockError, WriteFailed
from lakelock.markers.data_files import MarkerKind, TaskToken
from lakelock.markers.heartbeat import SharedHeartbeat
from lakelock.occ.begin import WriteContext
from lakelock.table import layout
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.properties import TableProperties
from lakelock.table.rows import rows_within

FAMILIES = 256
SLOTS = 32
NEW_ROUTES = FAMILIES * SLOTS

TASK_ROWS, TASK_BYTES = 500_000, 512 << 20
"""How many incoming rows one write task holds, and about how much memory they may take; beyond that there are more tasks."""

_M32 = 0xFFFFFFFF


def slot_of(partition: str, key: str) -> int:
    """The slot, from 0 to 8191, of a key that no file of the partition holds."""
    return family_of(partition) * SLOTS + zlib.crc32(key.encode()) % SLOTS


def family_of(partition: str) -> int:
    return zlib.crc32(partition.encode()) % FAMILIES


@dataclass(frozen=True)
class FileTarget:
    """A file that exists: its partition, its size, and its rows (0: not known)."""

    partition: str
    size_bytes: int
    rows: int


@dataclass(frozen=True)
class Routes:
    """The plan. `pack_values[route]` is the value to shuffle by; `rewritten` are the files to rewrite.

    `adopted[partition]` is the file that takes the new keys of the partition; without one they go to new file
    groups, as many as `groups_of_family` says.
    """

    packs: int
    pack_values: tuple[int, ...]
    rewritten: frozenset[int]
    adopted: Mapping[str, int] = field(default_factory=dict)
    groups_of_family: Mapping[int, int] = field(default_factory=dict)

    def target_of(self, partition: str, slot: int) -> int | tuple[str, int]:
        """Where a new key goes: to the file with this number, or to this new file group of the partition."""
        if partition in self.adopted:
            return self.adopted[partition]
        groups = self.groups_of_family.get(slot // SLOTS, 1)
        return partition, slot % SLOTS * groups // SLOTS


@dataclass
class _Unit:
    """Routes that one task must get together."""

    routes: list[int]
    load: int


def tasks_for(rows: int, at_once: int) -> int:
    """How many tasks write these rows where `at_once` can run: twice as many for many rows, so that a slow one matters less."""
    return at_once if rows < TASK_ROWS else 2 * at_once


def plan_routes(
    counts: Mapping[tuple[str, int], int],
    files: Sequence[FileTarget],
    *,
    tasks: int,
    target_rows: int,
    target_bytes: int = sys.maxsize,
    task_rows: int = TASK_ROWS,
    row_bytes: int = 1,
    in_buckets: bool = False,
    adopts: bool = True,
) -> Routes:
    """Balance the work over about `tasks` tasks, or more, so that each has at most about `task_rows` incoming rows and
    `TASK_BYTES` of them.

    `counts` has the number of incoming rows by (partition path, route), each of about `row_bytes` in memory.
    New keys of a partition join the smallest of its files that is rewritten anyway, if one `adopts` them and has room. With
    `in_buckets` they have places of their own, and each slot may go to another task.
    """
    held_rows = max(1, TASK_BYTES // max(1, row_bytes))
    found = {route for _, route in counts if route < len(files)}
    new: dict[str, int] = {}
    for (partition, route), rows in counts.items():
        if route >= len(files):
            new[partition] = new.get(partition, 0) + rows
    adopted = {} if in_buckets or not adopts else _adopted(new, found, files, target_rows, target_bytes)
    groups: dict[int, int] = {}
    for partition, rows in new.items():
        if partition not in adopted:
            family, wanted = family_of(partition), SLOTS if in_buckets else math.ceil(rows / min(target_rows, held_rows))
            groups[family] = max(groups.get(family, 1), min(SLOTS, wanted))
    units = _units(counts, files, found, adopted, groups)
    wanted = max(tasks, math.ceil(sum(counts.values()) / min(task_rows, held_rows)))
    packs = max(1, min(len(units), wanted))
    values = values_for(packs)
    pack_values = [values[0]] * (len(files) + NEW_ROUTES)
    for pack, unit in _balanced(units, packs):
        for route in unit.routes:
            pack_values[route] = values[pack]
    return Routes(packs, tuple(pack_values), frozenset(found), adopted, groups)


def _adopted(
    new: Mapping[str, int], found: set[int], files: Sequence[FileTarget], target_rows: int, target_bytes: int
) -> dict[str, int]:
    smallest: dict[str, int] = {}
    for route in sorted(found):
        partition = files[route].partition
        if partition not in smallest or files[route].rows < files[smallest[partition]].rows:
            smallest[partition] = route
    return {
        partition: smallest[partition]
        for partition, rows in new.items()
        if partition in smallest and _has_room(files[smallest[partition]], rows, target_rows, target_bytes)
    }


def _has_room(file: FileTarget, rows: int, target_rows: int, target_bytes: int) -> bool:
    """Whether a file may get so many more rows, each of which takes as much of it as one that it has."""
    return file.rows + rows <= target_rows and file.size_bytes * (file.rows + rows) <= target_bytes * max(1, file.rows)


def _units(
    counts: Mapping[tuple[str, int], int],
    files: Sequence[FileTarget],
    found: set[int],
    adopted: Mapping[str, int],
    groups: Mapping[int, int],
) -> list[_Unit]:
    loads: dict[int, int] = {}
    for (_, route), rows in counts.items():
        loads[route] = loads.get(route, 0) + rows
    for route in found:
        loads[route] += max(files[route].rows, files[route].size_bytes // 64)
    families = sorted({(route - len(files)) // SLOTS for _, route in counts if route >= len(files)})
    adopting: dict[int, list[int]] = {}
    for partition, route in adopted.items():
        adopting.setdefault(family_of(partition), []).append(route)
    units = [_Unit([route], loads[route]) for route in sorted(found - set(adopted.values()))]
    for family in families:
        slots = [len(files) + family * SLOTS + slot for slot in range(SLOTS)]
        pieces = 1 if family in adopting else groups.get(family, 1)
        parts: list[list[int]] = [[] for _ in range(pieces)]
        for slot, route in enumerate(slots):
            parts[slot * pieces // SLOTS].append(route)
        parts[0].extend(adopting.get(family, ()))
        units.extend(_Unit(part, sum(loads.get(route, 0) for route in part)) for part in parts)
    return units


def _balanced(units: Sequence[_Unit], packs: int) -> list[tuple[int, _Unit]]:
    """The heaviest unit first, each to the pack with the least to do."""
    heap = [(0, pack) for pack in range(packs)]
    placed = []
    for unit in sorted(units, key=lambda u: -u.load):
        load, pack = heapq.heappop(heap)
        placed.append((pack, unit))
        heapq.heappush(heap, (load + unit.load, pack))
    return placed


def values_for(packs: int) -> list[int]:
    """Integers such that the i-th lands in the i-th of `packs` partitions when Spark repartitions by it."""
    values: dict[int, int] = {}
    candidate = 0
    while len(values) < packs:
        values.setdefault(spark_hash(candidate) % packs, candidate)
        candidate += 1
    return [values[pack] for pack in range(packs)]


def spark_hash(value: int, seed: int = 42) -> int:
    """Spark's `hash()` of one int column: Murmur3, 32 bits, as a signed number."""
    k = _rotated(value * 0xCC9E2D51 & _M32, 15) * 0x1B873593 & _M32
    h = (_rotated(seed ^ k, 13) * 5 + 0xE6546B64) & _M32
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _M32
    h = (h ^ h >> 13) * 0xC2B2AE35 & _M32
    h ^= h >> 16
    return h - (1 << 32) if h >= 1 << 31 else h


def _rotated(x: int, bits: int) -> int:
    return (x << bits | x >> (32 - bits)) & _M32


def pack_of(routes: Routes, route: str) -> Column:
    """The value to shuffle by, for the number in the column `route`: one look-up in a constant array."""
    values = ",".join(map(str, routes.pack_values))
    return F.expr(f"element_at(cast(split('{values}', ',') as array<int>), {route} + 1)")


def among(routes: Collection[int], route: str) -> Column:
    """Whether the number in the column `route` is one of these. As one text, since Python would send each number alone."""
    return F.expr(f"{route} in ({','.join(map(str, sorted(routes)))})")


REPORT = "_lakelock_report"
REPORTS_ONLY = f"{REPORT} binary"
Batches = Iterator[pa.RecordBatch]


def report_of(value: object, schema: pa.Schema) -> pa.RecordBatch:
    """One row of `schema` that carries `value` in its report column; the other columns are null."""
    arrays = [
        pa.array([pickle.dumps(value)], pa.binary()) if field.name == REPORT else pa.nulls(1, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def reporting(schema: pa.Schema, stage: Callable[[Batches], Iterator[pa.RecordBatch | object]]) -> Callable[[Batches], Batches]:
    """Make a stage for `mapInArrow` whose values other than record batches travel as reports."""

    def run(batches: Batches) -> Batches:
        try:
            for item in stage(batches):
                yield item if isinstance(item, pa.RecordBatch) else report_of(item, schema)
        except LakelockError as error:
            if error.retryable:
                from lakelock.spark_plugin.spark_jobs import in_task_text

                raise RuntimeError(in_task_text(error)) from error
            yield report_of(error, schema)

    return run


def received(rows: Iterable[tuple[bytes | bytearray]]) -> list[object]:
    """The values in collected report rows; raises the first error among them."""
    values = [pickle.loads(bytes(row[0])) for row in rows]
    for value in values:
        if isinstance(value, LakelockError):
            raise value
    return values


REPORT_SCHEMA = pa.schema([(REPORT, pa.binary())])


_task_here: ContextVar[TaskToken | None] = ContextVar("task_here", default=None)


@contextmanager
def task_here(task: TaskToken) -> Iterator[None]:
    """For stages that run in the driver's process: they are this task."""
    token = _task_here.set(task)
    try:
        yield
    finally:
        _task_here.reset(token)


def this_task() -> TaskToken:
    """The identity of the running task attempt, for the names of its files."""
    from pyspark import TaskContext

    own = _task_here.get()
    if own is not None:
        return own
    context = TaskContext.get()
    if context is None:
        return TaskToken(0, 0, 0)
    return TaskToken(context.partitionId(), context.stageId(), context.taskAttemptId())


ROUTE = "_lakelock_route"
KEYS, REST = "_lakelock_keys", "_lakelock_rest"
PARCELS = pa.schema([(ROUTE, pa.int32()), (KEYS, pa.binary()), (REST, pa.binary()), (REPORT, pa.binary())])
"""What a stage that sends rows returns: all rows of one value have the same route."""
STORED_AT = "_lakelock_stored_at"
"""In parcels of an upsert: the place of the row with this key in the file that the route names."""
PARCEL_BYTES = 4 << 20
"""About how many bytes one value may hold."""


@dataclass(frozen=True)
class Parcels:
    """How rows are packed: the key and partition columns apart from the rest, so keys can be read alone."""

    keys: pa.Schema
    rest: pa.Schema

    @classmethod
    def of(cls, columns: pa.Schema, properties: TableProperties) -> Parcels:
        """For rows of these columns."""
        names = {*properties.record_keys, *properties.partition_fields}
        keys = pa.schema([field for field in columns if field.name in names])
        return cls(keys, pa.schema([field for field in columns if field.name not in names]))

    @property
    def with_places(self) -> Parcels:
        """The same for rows of which each has a place in the file of its route."""
        return Parcels(self.keys, self.rest.append(pa.field(STORED_AT, pa.int64())))

    def packed(
        self, rows: pa.Table, positions: npt.NDArray[Any], routes: npt.NDArray[Any], places: npt.NDArray[Any] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows at these positions, each with its route, and its place there if rows have one."""
        order = np.argsort(routes, kind="stable")
        routes, ordered = routes[order], rows.take(pa.array(positions[order])).combine_chunks()
        if places is not None:
            ordered = ordered.append_column(STORED_AT, pa.array(places[order], pa.int64()))
        most_rows = rows_within(ordered, PARCEL_BYTES)
        keys, rest = ordered.select(self.keys.names), ordered.select(self.rest.names)
        bounds = [0, *(np.flatnonzero(np.diff(routes)) + 1).tolist(), len(routes)]
        sent = _Sent()
        for start, end in pairwise(bounds):
            for at in range(start, end, most_rows):
                count = min(most_rows, end - at)
                sent.add(int(routes[at]), _to_bytes(keys.slice(at, count)), _to_bytes(rest.slice(at, count)))
                if sent.size_bytes >= PARCEL_BYTES:
                    yield sent.batch()
                    sent = _Sent()
        yield sent.batch()

    def unpacked(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
        """The rows of each value, and their route; the key columns first."""
        schema = pa.schema([*self.keys, *self.rest])
        for batch in batches:
            for route, keys, rest in zip(batch[ROUTE].to_pylist(), batch[KEYS], batch[REST], strict=True):
                columns = [*_from_bytes(keys, self.keys).columns, *_from_bytes(rest, self.rest).columns]
                yield route, pa.table(columns, schema=schema)

    def unpacked_keys(self, batches: Iterable[pa.RecordBatch], most_rows: int) -> Iterator[pa.Table]:
        """The key and partition columns of the rows, about `most_rows` at a time."""
        pending: list[pa.RecordBatch] = []
        count = 0
        for value in (value for batch in batches for value in batch[KEYS]):
            pending.append(_from_bytes(value, self.keys))
            count += pending[-1].num_rows
            if count >= most_rows:
                yield pa.Table.from_batches(pending, self.keys)
                pending, count = [], 0
        if pending:
            yield pa.Table.from_batches(pending, self.keys)


class _Sent:
    """Values that go into one batch."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._routes: list[int] = []
        self._keys: list[pa.Buffer] = []
        self._rest: list[pa.Buffer] = []

    def add(self, route: int, keys: pa.Buffer, rest: pa.Buffer) -> None:
        self._routes.append(route)
        self._keys.append(keys)
        self._rest.append(rest)
        self.size_bytes += keys.size + rest.size

    def batch(self) -> pa.RecordBatch:
        none = pa.nulls(len(self._routes), pa.binary())
        columns = [pa.array(self._routes, pa.int32()), _binary(self._keys), _binary(self._rest), none]
        return pa.RecordBatch.from_arrays(columns, schema=PARCELS)


def _binary(values: list[pa.Buffer]) -> pa.Array:
    # `pa.array` of memory views never lets their bytes go, and Spark's workers live as long as its application.
    offsets = pa.array(np.cumsum([0, *(value.size for value in values)]), pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), len(values), [None, offsets, pa.py_buffer(b"".join(values))])


def _to_bytes(rows: pa.Table) -> pa.Buffer:
    if not rows.num_columns:
        return pa.py_buffer(b"")
    (batch,) = rows.combine_chunks().to_batches()
    return batch.serialize()


def _from_bytes(value: pa.BinaryScalar, schema: pa.Schema) -> pa.RecordBatch:
    # A copy: Arrow needs aligned buffers, and in a column they are not aligned.
    return pa.ipc.read_record_batch(pa.py_buffer(value.as_py()), schema) if len(schema) else _NOTHING


_NOTHING = pa.RecordBatch.from_arrays([], schema=pa.schema([]))


def numbers_of(batches: Batches) -> Iterator[int]:
    """The numbers that came to a task whose rows are nothing else."""
    return (number for batch in batches for number in batch.column(0).to_pylist())


def while_wanted(
    context: WriteContext, written: Iterator[WriteStat | None], shared: SharedHeartbeat | None = None
) -> Iterator[WriteStat]:
    """Pass on the files that a task writes; None is a rewrite that had nothing to change. If they are not wanted in the end,
    remove them all and raise `WriteFailed`.

    The commit removes the markers of the attempts that it does not count before it removes their files for the last time, and
    every transaction removes its heartbeat in the end. This costs one request for each file, and one more. The answers tell a
    heartbeat that the task shares with others (`shared`) what time it is by the storage's clock.
    """
    files: list[str] = []
    markers: list[str] = []
    for stat in written:
        if stat is None:
            continue
        if stat.path:
            files.append(stat.path)
            kind = MarkerKind.CREATE if stat.is_new_group or stat.log_files else MarkerKind.MERGE
            markers.append(layout.marker(context.instant, *layout.split_path(stat.path), kind.value))
        yield stat
    # No other attempt replaces a task in the driver, and its transaction ends after it.
    if not files or _task_here.get() is not None:
        return
    storage, signs = context.location.open(holds_table=True), [*markers, layout.heartbeat(context.instant)]
    found = SystemRuntime().gather(
        [partial(storage.get, key) for key in signs], limit=context.settings.listing.parallel_requests
    )
    beat, marked_ms = found[-1], [marker.modified_ms for marker in found[:-1] if marker is not None]
    if shared is not None and beat is not None and marked_ms:
        shared.wrote(beat, max(marked_ms))
    if None in found:
        storage.delete(files)
        storage.delete(markers)
        raise WriteFailed(
            f"a task of {context.instant} was late: its transaction has ended, or another attempt of the task counts",
            hint="nothing needs to be done; if a whole write failed with this, run it again",
            instant=context.instant,
        )
