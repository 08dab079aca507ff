"""The stages on executors that change rows: updated and deleted by position in their files, and new rows.

An update or a merge lets Spark compute a frame of changes. The stages here pack it, and rewrite each file group that it names;
the driver's part between them is in `changing.py`. The last stage of an upsert or delete is here, too: each task writes its
pack of file groups. Rows that no file holds yet go to others of their partition, or into their bucket.
"""

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

from lakelock.engine.file_tasks import FileTasks, Target
from lakelock.errors import DuplicateKeyError, SchemaError
from lakelock.occ.begin import WriteContext
from lakelock.spark_plugin import bucketing
from lakelock.spark_plugin.bucketing import BucketPlan, fitting
from lakelock.spark_plugin.lookup_stages import CHUNK_ROWS, LookedUpKeys, chunks, rows_by_route, slots_of
from lakelock.spark_plugin.spark_session import FILE, ROW
from lakelock.spark_plugin.write_stages import STORED_AT, Parcels, Routes, this_task, while_wanted
from lakelock.table.base_files import BaseFile
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.key_search import NOT_STORED, STORED_TWICE
from lakelock.table.merged_slices import open_slice
from lakelock.table.partitions import partition_paths
from lakelock.table.record_keys import Keyed, dedupe
from lakelock.table.rewriting import Located, Placed, keys_among
from lakelock.table.rows import conform, take_rows
from lakelock.table.schema import RECORD_KEY, TableSchema
from lakelock.table.snapshot import DataFile
from lakelock.texts import counted

RewriteTarget = int | tuple[str, int]
"""A file by its number, or a new file group of a partition by its number there."""


@dataclass(frozen=True)
class RewritePlan:
    """What a write task needs. With `deletes` the incoming rows are keys, and rows with these keys are removed.

    The new rows of `settled` partitions are in files that were kept.
    """

    context: WriteContext
    columns: TableSchema
    files: tuple[DataFile, ...]
    routes: Routes
    settled: frozenset[str] = frozenset()
    deletes: bool = False

    @property
    def parcels(self) -> Parcels:
        """How the rows arrive."""
        return Parcels.of(self.columns.arrow, self.context.properties).with_places


def rewrite_stage(plan: RewritePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
    """Write every file group whose rows came to this task, one after the other, and report the files."""
    yield from while_wanted(plan.context, _pack_rewritten(plan, batches))


def _pack_rewritten(plan: RewritePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat | None]:
    found: dict[RewriteTarget, list[pa.Table]] = {}
    for route, rows in plan.parcels.unpacked(batches):
        for target, mine in by_target(plan, route, rows):
            found.setdefault(target, []).append(mine)
    context, task, tasks = plan.context, this_task(), FileTasks.of(plan.context)
    take_any = context.settings.write.duplicates == "any"
    for target in list(found):
        rows = pa.concat_tables(found.pop(target))
        keyed = Keyed.of(conform(rows, plan.columns.arrow), context.properties)
        if plan.deletes:
            assert isinstance(target, int), "keys that no file holds were left out before"
            yield tasks.rewrite_group(plan.files[target], task, delete_mask=keys_among(keyed.keys))
            continue
        keyed = Keyed(keyed.rows.append_column(STORED_AT, rows.column(STORED_AT)), keyed.keys)
        keyed = _located(dedupe(keyed, context.properties.ordering_field, take_any=take_any))
        if isinstance(target, int):
            yield tasks.rewrite_group(plan.files[target], task, upserts=keyed)
        else:
            yield from tasks.write_new_files(target[0], [keyed.rows], task)


def _located(keyed: Keyed) -> Keyed:
    """Rows of distinct keys whose last column says where these are stored: without it, and located if each is there once."""
    places, rows = keyed.rows.column(STORED_AT).to_numpy(), keyed.rows.drop_columns([STORED_AT])
    if (places == STORED_TWICE).any():
        return Keyed(rows, keyed.keys)
    stored = np.flatnonzero(places != NOT_STORED)
    nth = stored[np.argsort(places[stored])]
    return Located(rows, keyed.keys, places[nth], nth)


def by_target(plan: RewritePlan, route: int, rows: pa.Table) -> Iterator[tuple[RewriteTarget, pa.Table]]:
    """Where the rows of a route go: to the file that it names, or, if they are new, to a new place in each partition."""
    files = len(plan.files)
    if route < files:
        yield route, rows
        return
    # Several partitions may share a slot.
    paths = partition_paths(rows, plan.context.properties)
    if len(paths.dictionary) == 1:
        if (only := paths.dictionary[0].as_py()) not in plan.settled:
            yield plan.routes.target_of(only, route - files), rows
        return
    codes = np.asarray(paths.indices)
    for code, partition in enumerate(paths.dictionary.to_pylist()):
        if partition not in plan.settled:
            yield plan.routes.target_of(partition, route - files), rows.take(pa.array(np.flatnonzero(codes == code)))


Place = RewriteTarget
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
    """The places for new rows, next to `files`, whose numbers are routes. `routes`, once they are planned, say which file takes
    the new rows of a partition, if any does. The new rows of `settled` partitions and buckets are in files that were kept.
    `looked_up`: the only keys that new rows may have, if it is known. `equated`: no stored row has the key of a new one in
    which none of these columns is null; without one, nothing is known of their keys, and with None no task looks. Unless they
    `may_repeat`, two new rows of one key are an error."""

    context: WriteContext
    files: tuple[DataFile, ...]
    routes: Routes | None = None
    settled: frozenset[Target] = frozenset()
    looked_up: LookedUpKeys | None = None
    equated: tuple[str, ...] | None = None
    may_repeat: bool = False

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
            counts.update(rows_by_route(partition, routes[at]))
            rows_of[partition, None] = drawn[at]
        return routes, counts, NewRows.of(rows_of)

    def _can_match(self, rows: pa.Table) -> pa.ChunkedArray:
        """Whether each row has no null where its key is looked up; a row with one equals no stored row, so none is sought."""
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
        return by_target(plan, route, rows)

    def _bucket_plan(self) -> BucketPlan:
        index = self.context.properties.bucket_index
        assert index is not None
        return BucketPlan(self.context, self.context.schema, self.files, index, "add", self.settled)


ACTION = "_lakelock_action"
"""The columns of a frame of changes before those of the table: the name of a file, a position in it, and what to do."""
DRAWN = "_lakelock_drawn"
"""Where there may be new rows, the last column: a number that tells the row of the source from all others."""
_SHOWN = 5
UPDATE, DELETE, INSERT, MISFIT, TWIN = 0, 1, 2, 3, 4
"""Actions. A MISFIT must not be written, for the reason in the plan; a TWIN is one of several new rows of a key."""

PLACE = "_lakelock_place"
"""In parcels: the position of a row that gets new values, -1 minus the position of one to delete, null for a new row."""


@dataclass(frozen=True)
class ChangePlan:
    """What the tasks need. Updates have values for the columns `changed`; frames with new rows have all columns of the table.

    `once`: two changes of one stored row are an error. `misfit` is the error for misfits.
    """

    context: WriteContext
    files: tuple[DataFile, ...]
    changed: tuple[str, ...]
    inserts: NewPlaces | None = None
    once: bool = True
    misfit: str = ""

    @property
    def new_values(self) -> pa.Schema:
        """The columns that updates set."""
        return pa.schema([column for column in self.context.schema.arrow if column.name in self.changed])

    @property
    def carried(self) -> pa.Schema:
        """The columns of the table that a frame of changes has, any of them null where an action has no value."""
        columns = self.context.schema.arrow if self.inserts is not None else self.new_values
        return pa.schema([column.with_nullable(True) for column in columns])

    @property
    def parcels(self) -> Parcels:
        """How changes are packed: their keys are not looked up, so all columns go together."""
        return Parcels(pa.schema([]), pa.schema([*self.carried, (PLACE, pa.int64())]))


@dataclass
class ChangeReport:
    """What a task packed: changes by (partition, route), the new rows of each partition or bucket, and their size in memory;
    whether the table may have the key of a new row."""

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    new: NewRows = field(default_factory=NewRows)
    size_bytes: int = 0
    unsure: bool = False

    def __add__(self, other: ChangeReport) -> ChangeReport:
        counts, new, size_bytes = self.counts + other.counts, self.new + other.new, self.size_bytes + other.size_bytes
        return ChangeReport(counts, new, size_bytes, self.unsure or other.unsure)

    @property
    def row_bytes(self) -> int:
        """What a change takes in memory, on average."""
        return self.size_bytes // max(1, self.counts.total())


def pack_stage(plan: ChangePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | ChangeReport]:
    """Every change in a parcel of the file that it concerns, or of the place where a new row goes; values fit the table."""
    numbers = {file.name: number for number, file in enumerate(plan.files)}
    report, parcels = ChangeReport(), plan.parcels
    for rows in chunks(map(fitting, batches), CHUNK_ROWS):
        report.size_bytes += rows.nbytes
        action = rows.column(ACTION)
        if pc.any(pc.equal(action, MISFIT)).as_py():
            raise SchemaError(
                plan.misfit, hint="name the columns to set, or equate these columns in the condition of the merge"
            )
        twins = rows.filter(pc.equal(action, TWIN))
        if twins.num_rows:
            raise _twins(plan, twins)
        for kind in (UPDATE, DELETE):
            mine = rows.filter(pc.equal(action, kind))
            if mine.num_rows:
                routes = _file_numbers(mine, numbers)
                for number, count in zip(*np.unique(routes, return_counts=True), strict=True):
                    report.counts[plan.files[number].partition, int(number)] += int(count)
                yield from parcels.packed(_change_rows(plan, mine, kind), np.arange(len(routes)), routes)
        new = rows.filter(pc.equal(action, INSERT))
        if new.num_rows and plan.inserts is not None:
            fitted = conform(new, plan.context.schema.arrow)
            drawn = new.column(DRAWN).to_numpy()
            routes, counts, rows_of = plan.inserts.routed(Keyed.of(fitted, plan.context.properties), drawn)
            report.counts.update(counts)
            report.new += rows_of
            report.unsure = report.unsure or bool(pc.any(plan.inserts.may_be_stored(fitted)).as_py())
            yield from parcels.packed(_carried(plan, fitted, pa.nulls(len(routes), pa.int64())), np.arange(len(routes)), routes)
    yield report


def _twins(plan: ChangePlan, rows: pa.Table) -> DuplicateKeyError:
    keys = Keyed.of(conform(rows, plan.context.schema.arrow), plan.context.properties).keys.unique().to_pylist()[:_SHOWN]
    return DuplicateKeyError(
        f"several new rows have the same key, in one partition or several: {', '.join(keys)}",
        hint="remove the duplicates from the source: with index=global a key is there once in the whole table",
        keys=keys,
    )


def _refuse_twins(added: Keyed) -> None:
    """`DuplicateKeyError` if two new rows of a partition have one key."""
    if pc.count_distinct(added.keys).as_py() == len(added):
        return
    tallied = pc.value_counts(added.keys)
    keys = tallied.field("values").filter(pc.greater(tallied.field("counts"), 1)).to_pylist()[:_SHOWN]
    raise DuplicateKeyError(
        f"several new rows of the merge have the same key: {', '.join(keys)}",
        hint="remove the duplicates from the source; table.upsert(df) takes the newest of them, and table.insert(df) stores "
        "all, as does a merge with write.merge_may_duplicate_keys=true",
        keys=keys,
    )


def _file_numbers(rows: pa.Table, numbers: Mapping[str, int]) -> npt.NDArray[Any]:
    names = rows.column(FILE).combine_chunks().dictionary_encode()
    known = np.array([numbers[name] for name in names.dictionary.to_pylist()], np.int32)
    return known.take(np.asarray(names.indices))


def _change_rows(plan: ChangePlan, rows: pa.Table, kind: int) -> pa.Table:
    place = rows.column(ROW).cast(pa.int64()).combine_chunks()
    if kind == DELETE:
        return _carried(plan, rows.select([]), pc.subtract(-1, place))
    return _carried(plan, conform(rows, plan.new_values), place)


def _carried(plan: ChangePlan, rows: pa.Table, place: pa.Array) -> pa.Table:
    """The rows with the columns of parcels; those that they lack are null."""
    columns = [
        rows.column(column.name) if column.name in rows.column_names else pa.nulls(len(place), column.type)
        for column in plan.carried
    ]
    return pa.table([*columns, place], schema=plan.parcels.rest)


def change_stage(plan: ChangePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
    """Write every file group whose changes came to this task, one after the other, and report the files."""
    yield from while_wanted(plan.context, _written(plan, batches))


def _written(plan: ChangePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat | None]:
    changes: dict[int, list[pa.Table]] = {}
    new: dict[RewriteTarget, list[pa.Table]] = {}
    for route, rows in plan.parcels.unpacked(batches):
        is_new = pc.is_null(rows.column(PLACE))
        stored, fresh = rows.filter(pc.invert(is_new)), rows.filter(is_new).select(plan.carried.names)
        if stored.num_rows:
            changes.setdefault(route, []).append(stored)
        if fresh.num_rows and plan.inserts is not None:
            for target, mine in plan.inserts.targets(route, fresh):
                new.setdefault(target, []).append(mine)
    tasks = FileTasks.of(plan.context)
    for target in [*new, *(number for number in changes if number not in new)]:
        mine = changes.pop(target, None) if isinstance(target, int) else None
        yield from _rewritten(plan, tasks, target, mine, new.pop(target, None))


def _rewritten(
    plan: ChangePlan, tasks: FileTasks, target: RewriteTarget, changes: list[pa.Table] | None, new: list[pa.Table] | None
) -> Iterator[WriteStat | None]:
    context, task, added = plan.context, this_task(), None
    if new is not None:
        added = Keyed.of(conform(pa.concat_tables(new), context.schema.arrow), context.properties)
        if plan.inserts is None or not plan.inserts.may_repeat:
            _refuse_twins(added)
    if not isinstance(target, int):
        assert added is not None
        assert plan.inserts is not None
        bucket = target[1] if plan.inserts.in_buckets else None
        yield from tasks.write_new_files(target[0], [added.rows], task, bucket=bucket)
        return
    file = plan.files[target]
    placed, mask = (None, None) if changes is None else _at_places(plan, file, pa.concat_tables(changes))
    yield tasks.rewrite_group(file, task, upserts=placed, delete_mask=mask, added=added)


def _at_places(plan: ChangePlan, file: DataFile, changes: pa.Table) -> tuple[Placed | None, AtPositions | None]:
    """The new values and the deletions in one file; `DuplicateKeyError` if one row has two changes."""
    place = changes.column(PLACE).to_numpy()
    positions = np.where(place < 0, -1 - place, place)
    distinct, counts = np.unique(positions, return_counts=True)
    if plan.once and len(distinct) < len(positions):
        raise _changed_twice(plan.context, file, int(distinct[counts > 1][0]), int((counts > 1).sum()))
    updates = np.flatnonzero(place >= 0)
    order = updates[np.argsort(place[updates])]
    values = conform(take_rows(changes.select(plan.changed), order), plan.new_values)
    placed = Placed(values, place[order]) if len(order) else None
    gone = np.unique(positions[place < 0])
    return placed, AtPositions(gone) if len(gone) else None


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


def _changed_twice(context: WriteContext, file: DataFile, position: int, count: int) -> DuplicateKeyError:
    start, key = 0, "?"
    with BaseFile(open_slice(file, context.location.open(), context.schema), file.key) as base:
        for batch in base.stamped_batches(context.schema, CHUNK_ROWS):
            if position < start + batch.num_rows:
                key = batch.column(RECORD_KEY)[position - start].as_py()
                break
            start += batch.num_rows
    of = f" of partition {file.partition}" if file.partition else ""
    more = f", and so for {counted(count - 1, 'more row')} of its file" if count > 1 else ""
    return DuplicateKeyError(
        f"several source rows match the row with the key {key}{of} and would change it{more}",
        hint="leave one source row for each row of the table, for example with dropDuplicates, or narrow the conditions",
        keys=[key],
    )
