"""Rows changed at their places: updated and deleted by position in their files, and new rows beside them.

An update or a merge lets Spark compute a frame of changes. The stages here pack it, and rewrite each file group that it names;
the driver's part between them is in `applying.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.engine.file_tasks import rewrite_group, write_new_files
from lakelock.errors import DuplicateKeyError, SchemaError
from lakelock.occ.write_context import WriteContext
from lakelock.spark_plugin.changing.placing import NewPlaces, NewRows
from lakelock.spark_plugin.writing.late_tasks import while_wanted
from lakelock.spark_plugin.writing.parcels import Parcels
from lakelock.spark_plugin.writing.reports import this_task
from lakelock.spark_plugin.writing.rewriting import Target
from lakelock.spark_plugin.writing.selecting import AtPositions
from lakelock.spark_plugin.writing.tagging import CHUNK_ROWS, chunks
from lakelock.table.base_files import BaseFile
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.record_keys import Keyed
from lakelock.table.rewriting import Placed
from lakelock.table.rows import conform, take_rows
from lakelock.table.schema import RECORD_KEY
from lakelock.table.snapshot import DataFile
from lakelock.texts import counted

FILE, ROW, ACTION = "_lakelock_file", "_lakelock_row", "_lakelock_action"
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
        """How changes are packed: nobody looks up their keys, so all columns go together."""
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
    for rows in chunks(batches, CHUNK_ROWS):
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
    new: dict[Target, list[pa.Table]] = {}
    for route, rows in plan.parcels.unpacked(batches):
        is_new = pc.is_null(rows.column(PLACE))
        stored, fresh = rows.filter(pc.invert(is_new)), rows.filter(is_new).select(plan.carried.names)
        if stored.num_rows:
            changes.setdefault(route, []).append(stored)
        if fresh.num_rows and plan.inserts is not None:
            for target, mine in plan.inserts.targets(route, fresh):
                new.setdefault(target, []).append(mine)
    for target in [*new, *(number for number in changes if number not in new)]:
        yield from _rewritten(
            plan, target, changes.pop(target, None) if isinstance(target, int) else None, new.pop(target, None)
        )


def _rewritten(
    plan: ChangePlan, target: Target, changes: list[pa.Table] | None, new: list[pa.Table] | None
) -> Iterator[WriteStat | None]:
    context, task = plan.context, this_task()
    added = None
    if new is not None:
        added = Keyed.of(conform(pa.concat_tables(new), context.schema.arrow), context.properties)
        if plan.inserts is None or plan.inserts.equated is not None or not context.settings.write.merge_may_duplicate_keys:
            _refuse_twins(added)
    if not isinstance(target, int):
        assert added is not None
        assert plan.inserts is not None
        bucket = target[1] if plan.inserts.in_buckets else None
        yield from write_new_files(context, target[0], [added.rows], task, bucket=bucket)
        return
    file = plan.files[target]
    placed, mask = (None, None) if changes is None else _at_places(plan, file, pa.concat_tables(changes))
    yield rewrite_group(context, file, task, upserts=placed, delete_mask=mask, added=added)


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


def _changed_twice(context: WriteContext, file: DataFile, position: int, count: int) -> DuplicateKeyError:
    start, key = 0, "?"
    with BaseFile(context.location.open().open_input(file.key), file.key) as base:
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
