"""Which file holds the key of each incoming row: the stages of an upsert before it writes, on the executors.

1. `pack_stage` packs the rows, and counts them by partition.
2. `look_stage`: each task gets the keys and some files of their partitions, of those whose recorded key range may have one.
   Each footer is read once, however many the rows, and the files of one hot partition are spread over many tasks.
3. `tag_stage` gives each row the number of the file that holds its key.

More keys than `FEW_KEYS` do not go through the driver: the third stage then looks into the files itself, and the rows of a
partition are gathered in few tasks before that.

Tasks that meet the rows again check that their keys were looked up. An executor that is lost takes the rows with it that it
kept. Spark computes them again from the data frame, and a frame that gives other rows each time (a `limit` without an order, a
query of a live database) may bring keys that no task has looked for in the table. They would be taken for new, and be there
twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelock.errors import WriteFailed
from lakelock.occ.begin import WriteContext
from lakelock.spark_plugin.write_stages import SLOTS, Parcels, family_of, numbers_of, slot_of, this_task
from lakelock.table.key_search import NONE_LOCATED, NOT_STORED, LocatedKeys, string_hashes, tag
from lakelock.table.partitions import partition_paths
from lakelock.table.record_keys import Keyed
from lakelock.table.rows import conform
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile


def rows_changed(how: str) -> WriteFailed:
    """The error for rows that are not those which the write began with."""
    return WriteFailed(
        f"{how}: the rows changed while they were being written",
        hint="the data frame gives different rows each time it is computed: checkpoint it, or write it to files first",
    )


@dataclass(frozen=True)
class LookedUpKeys:
    """A set of keys by hashes of 32 bits, ascending: of so many other keys as Java has hashes, about one is taken for one of
    them."""

    hashes: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, keys: Iterable[pa.Array]) -> LookedUpKeys:
        return cls(np.sort(np.concatenate([np.zeros(0, np.uint32), *map(string_hashes, keys)])))

    def require(self, keys: pa.Array) -> None:
        """`WriteFailed` if one of these keys was not looked up."""
        hashes = string_hashes(keys)
        first, behind = (np.searchsorted(self.hashes, hashes, side) for side in ("left", "right"))
        others = np.flatnonzero(first == behind)
        if len(others):
            raise rows_changed(f"the key {keys[int(others[0])]} was not among those that were looked up")


CHUNK_ROWS, CHUNK_BYTES = 262_144, 128 << 20
"""How many rows a task packs, and how many keys it looks up, at once: as many rows as reach either of the two."""
FEW_KEYS = 1_000_000
"""Up to this many keys, the driver fetches them once and sends them to every task."""
REPORTED_KEYS, REPORTED_BY_ALL = 262_144, 4_096
"""Up to so many keys, the first task that packs rows reports them at once, which saves a job; the n-th of `REPORTED_KEYS` the
n-th part, so that they are not many together, however many tasks there are. And every task reports up to `REPORTED_BY_ALL`."""

MOST_FILES, SHARE_BYTES = 256, 8 << 20
"""The most files that a task looks into, and the least to read for which another task is worthwhile."""

KeysByPartition = Mapping[str, pa.Array]


@dataclass(frozen=True)
class TagPlan:
    """What the tasks need: the columns of the rows, the files of their partitions, whose numbers are routes, and, if it was
    looked up before, which of them hold which keys, and which keys `no_file` holds.
    """

    context: WriteContext
    columns: TableSchema
    files: tuple[DataFile, ...] = ()
    held: Mapping[str, LocatedKeys] | None = None
    no_file: LookedUpKeys | None = None

    @property
    def parcels(self) -> Parcels:
        """How the rows are packed for the next stage."""
        return Parcels.of(self.columns.arrow, self.context.properties)


@dataclass
class PackReport:
    """The rows of a task by partition, what they take in memory, and their keys unless they are many."""

    counts: Counter[str] = field(default_factory=Counter)
    size_bytes: int = 0
    keys: dict[str, pa.Array] | None = None


@dataclass
class TagReport:
    """What a task found: rows by (partition, route), and the rows of the files that hold some of them, by number."""

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    file_rows: dict[int, int] = field(default_factory=dict)


def pack_stage(plan: TagPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | PackReport]:
    """Every incoming row in a parcel of its partition's family; the slot in it only says which task packed it."""
    report, parcels, task = PackReport(keys={}), plan.parcels, this_task().partition
    most_reported, slot = max(REPORTED_BY_ALL, REPORTED_KEYS // (task + 1)), task % SLOTS
    for rows in chunks(batches, CHUNK_ROWS):
        fitted = conform(rows, plan.columns.arrow)
        paths = partition_paths(fitted, plan.context.properties)
        names, codes = paths.dictionary.to_pylist(), np.asarray(paths.indices)
        report.size_bytes += fitted.nbytes
        report.counts.update(dict(zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True)))
        families = np.array([family_of(name) * SLOTS + slot for name in names], np.int32)
        if report.keys is not None:
            few = sum(report.counts.values()) <= most_reported
            report.keys = joined_keys(report.keys, keys_by_partition(plan.context, fitted)) if few else None
        yield from parcels.packed(fitted, np.arange(len(codes)), families[codes])
    yield report


def keys_by_partition(context: WriteContext, rows: pa.Table) -> dict[str, pa.Array]:
    """The record keys of the rows, with repetitions."""
    keys = Keyed.of(rows, context.properties).keys.combine_chunks()
    paths = partition_paths(rows, context.properties)
    codes, names = np.asarray(paths.indices), paths.dictionary.to_pylist()
    return {name: keys.take(pa.array(np.flatnonzero(codes == code))) for code, name in enumerate(names)}


def joined_keys(*several: KeysByPartition) -> dict[str, pa.Array]:
    """The keys of all of them, by partition."""
    parts: dict[str, list[pa.Array]] = {}
    for keys in several:
        for partition, found in keys.items():
            parts.setdefault(partition, []).append(found)
    return {partition: pa.concat_arrays(found) for partition, found in parts.items()}


@dataclass(frozen=True)
class LookPlan:
    """What the tasks that look into files need: distinct keys by partition, and which files each task looks into."""

    context: WriteContext
    keys: KeysByPartition
    files: tuple[DataFile, ...]
    shares: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class FileKeys:
    """The positions, among the keys of its partition, of those that a file holds, the places of their rows there, and how many
    rows the file has."""

    file: int
    rows: int
    positions: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]


def look_stage(plan: LookPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[list[FileKeys]]:
    """For each share whose number came to this task, what its files hold."""
    io = plan.context.io()
    for share in numbers_of(batches):
        asked: dict[int, tuple[pa.Array, dict[DataFile, int]]] = {}
        for number in plan.shares[share]:
            file = plan.files[number]
            keys = plan.keys[file.partition]
            asked.setdefault(id(keys), (keys, {}))[1][file] = number  # partitions may share their keys
        for keys, numbers in asked.values():
            tags = tag(keys, list(numbers), io)
            yield [FileKeys(numbers[held.file], held.rows, held.positions, held.places) for held in tags.holdings]


def tag_stage(plan: TagPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | TagReport]:
    """Every packed row, once for each file that holds its key; once, with a slot as its route, if none does."""
    numbered: dict[str, dict[DataFile, int]] = {}
    for number, file in enumerate(plan.files):
        numbered.setdefault(file.partition, {})[file] = number
    report, parcels = TagReport(), plan.parcels.with_places
    for rows in chunked(plan.parcels.unpacked(batches), CHUNK_ROWS):
        keyed = Keyed.of(conform(rows, plan.columns.arrow), plan.context.properties)
        positions, routes, places = _tagged(plan, keyed, numbered, report)
        yield from parcels.packed(keyed.rows, positions, routes, places)
    yield report


def chunks(batches: Iterator[pa.RecordBatch], most_rows: int) -> Iterator[pa.Table]:
    """The batches as tables of about `most_rows` rows or `CHUNK_BYTES`."""
    yield from chunked(((0, pa.Table.from_batches([batch])) for batch in batches), most_rows)


def chunked(parts: Iterator[tuple[int, pa.Table]], most_rows: int) -> Iterator[pa.Table]:
    """The tables of all routes together, about `most_rows` rows or `CHUNK_BYTES` at a time."""
    pending: list[pa.Table] = []
    count = size_bytes = 0
    for _, rows in parts:
        if rows.num_rows:
            pending.append(rows)
            count += rows.num_rows
            size_bytes += rows.nbytes
        if count >= most_rows or size_bytes >= CHUNK_BYTES:
            yield pa.concat_tables(pending)
            pending, count, size_bytes = [], 0, 0
    if pending:
        yield pa.concat_tables(pending)


def _tagged(
    plan: TagPlan, keyed: Keyed, numbered: Mapping[str, Mapping[DataFile, int]], report: TagReport
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Positions in the chunk, the route of each, and its place there; a key that several files hold has several routes."""
    paths = partition_paths(keyed.rows, plan.context.properties)
    codes, all_keys = np.asarray(paths.indices), keyed.keys.combine_chunks()
    positions: list[npt.NDArray[Any]] = []
    routes: list[npt.NDArray[Any]] = []
    places: list[npt.NDArray[Any]] = []
    for code, partition in enumerate(paths.dictionary.to_pylist()):
        at = np.flatnonzero(codes == code)
        keys = all_keys.take(pa.array(at)) if len(paths.dictionary) > 1 else all_keys
        files_of = numbered.get(partition, {})
        held = _looked_up(plan, keys, files_of, report) if plan.held is None else plan.held.get(partition, NONE_LOCATED)
        found, files, at_places, missing = held.tagged(keys)
        new = keys.take(pa.array(missing))
        if plan.no_file is not None:
            plan.no_file.require(new)
        slots = slots_of(partition, new, len(plan.files))
        report.counts.update(rows_by_route(partition, files, slots))
        positions += [at[found], at[missing]]
        routes += [files, slots]
        places += [at_places, np.full(len(missing), NOT_STORED)]
    return np.concatenate(positions), np.concatenate(routes), np.concatenate(places)


def _looked_up(plan: TagPlan, keys: pa.Array, numbers: Mapping[DataFile, int], report: TagReport) -> LocatedKeys:
    """Look into the files in this task."""
    distinct = keys.unique()
    holdings = tag(distinct, list(numbers), plan.context.io()).holdings
    report.file_rows.update((numbers[held.file], held.rows) for held in holdings)
    return LocatedKeys.of(distinct, ((numbers[held.file], held.positions, held.places) for held in holdings))


def slots_of(partition: str, new: pa.Array, files: int) -> npt.NDArray[np.int32]:
    """The routes of keys that none of so many files holds."""
    return np.array([slot_of(partition, text) for text in new.to_pylist()], np.int32) + np.int32(files)


def rows_by_route(partition: str, *routes: npt.NDArray[np.int32]) -> Counter[tuple[str, int]]:
    """How many rows of the partition take each route."""
    values, counts = np.unique(np.concatenate(routes), return_counts=True)
    return Counter({(partition, int(route)): int(rows) for route, rows in zip(values, counts, strict=True)})


def shares(files: Sequence[DataFile], numbers: Sequence[int], tasks: int) -> tuple[tuple[int, ...], ...]:
    """The numbers of the files for each task that looks into some, as much to read for each; one task if that is little."""
    size_bytes = sum(files[number].size_bytes for number in numbers)
    wanted = max(-(-len(numbers) // MOST_FILES), min(tasks, 1 + size_bytes // SHARE_BYTES))
    count = max(1, min(len(numbers), wanted))
    by_size = sorted(numbers, key=lambda number: (-files[number].size_bytes, number))
    return tuple(tuple(by_size[start::count]) for start in range(count))
