"""What a write reads before it writes anything: it looks keys up, which gives each row the file that holds its key, or selects
rows by a condition.

The keys or the condition become a question about the files of other writers: does one of them hold such a row?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakelock.errors import LakelockError, StorageError
from lakelock.occ.begin import WriteContext
from lakelock.occ.committed import Phase
from lakelock.occ.footprint import ReadKind, WholeTable
from lakelock.spark_plugin import lookup_stages
from lakelock.spark_plugin.conditions import SHOWN_CHARACTERS, Condition
from lakelock.spark_plugin.lookup_stages import (
    CHUNK_ROWS,
    FileKeys,
    KeysByPartition,
    LookedUpKeys,
    LookPlan,
    PackReport,
    TagPlan,
    TagReport,
    joined_keys,
    keys_by_partition,
    look_stage,
    pack_stage,
    tag_stage,
)
from lakelock.spark_plugin.reading import FILE_GONE
from lakelock.spark_plugin.spark_jobs import in_task_text
from lakelock.spark_plugin.spark_session import local_frame, spark_schema
from lakelock.spark_plugin.stage_rows import Rows, Stage
from lakelock.spark_plugin.write_attempt import Attempt, Memory, Staged
from lakelock.spark_plugin.write_stages import (
    KEYS,
    NEW_ROUTES,
    PARCELS,
    REPORT,
    REPORT_SCHEMA,
    SLOTS,
    Batches,
    Parcels,
    Routes,
    family_of,
    values_for,
)
from lakelock.storage import Storage
from lakelock.storage.location import TableIO
from lakelock.table.base_files import BaseFile
from lakelock.table.key_search import LocatedKeys, held, possible_files
from lakelock.table.merged_slices import Change, open_slice
from lakelock.table.pruning import Pruning, StatisticsOf
from lakelock.table.record_index import Answer
from lakelock.table.snapshot import DataFile
from lakelock.texts import counted


@dataclass(frozen=True)
class LookedUp:
    """The key and partition columns of the rows that a write looked up, packed and kept, and how many they are."""

    rows: Rows
    parcels: Parcels
    context: WriteContext
    count: int

    def first_in(self, files: Sequence[DataFile], *, anywhere: bool = False) -> str | None:
        """The first match, found by the executors; `anywhere` also in files of other partitions than the key's."""
        stage = partial(_search_stage, self.context, self.parcels, tuple(files), anywhere=anywhere)
        return next((str(report) for report in self.rows.through(stage, REPORT_SCHEMA).reports()), None)


class KeysRead:
    """The keys that a write looked up, found or not."""

    kind = ReadKind.KEYS

    def __init__(
        self,
        description: str,
        partitions: frozenset[str] | None,
        attempt: Attempt,
        looked_up: LookedUp,
        keys: KeysByPartition | None = None,
    ) -> None:
        """In these partitions; None: each key in all of them. `keys`: the same keys, if the driver has them already."""
        self.description = description
        self._partitions, self._looked_up, self._keys = partitions, looked_up, keys
        self._io = TableIO(attempt.storage, attempt.runtime, looked_up.context.settings.listing.parallel_requests)

    def concerns(self, partition: str) -> bool:
        return self._partitions is None or partition in self._partitions

    def candidates(self, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        return files

    def matches(self, files: Sequence[DataFile]) -> str | None:
        mine, anywhere = [file for file in files if self.concerns(file.partition)], self._partitions is None
        if not mine:
            return None
        try:
            if self._keys is None:
                return self._looked_up.first_in(mine, anywhere=anywhere)
            keys = in_every_partition(self._keys, mine) if anywhere else self._keys
            return first_held(keys, mine, self._io)
        except StorageError as error:
            return error.message

    def changed_by(self, changes: Sequence[Change]) -> str | None:
        mine = [change for change in changes if self.concerns(change.made.partition)]
        try:
            changed = [(change.made.partition, change.keys(self._io.storage)) for change in mine]
        except StorageError as error:
            return error.message
        if self._keys is not None:
            return _first_among(self._keys, changed, anywhere=self._partitions is None)
        stage = partial(
            _among_stage, self._looked_up.context, self._looked_up.parcels, changed, anywhere=self._partitions is None
        )
        return next((str(report) for report in self._looked_up.rows.through(stage, REPORT_SCHEMA).reports()), None)


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


def files_with(attempt: Attempt, condition: Condition | None) -> tuple[DataFile, ...]:
    """The files that may have rows that satisfy the condition, or all. These rows were read: no other writer may add one."""
    if condition is None:
        attempt.tx.reads(WholeTable())
        return tuple(attempt.tx.current().files)
    pruning = attempt.pruning(condition)
    attempt.tx.reads(RowsRead(condition, pruning, attempt))
    return tuple(pruning.files_of(attempt.tx.current()))


KeysOfPartitions = Sequence[tuple[str, pa.Array]]


def _first_among(keys: KeysByPartition, changed: KeysOfPartitions, *, anywhere: bool) -> str | None:
    """The first of `keys` that was changed in its partition, or `anywhere`, as text for people."""
    for partition, names in changed:
        for asked in keys.values() if anywhere else [keys[partition]] if partition in keys else []:
            found = asked.filter(pc.is_in(asked, value_set=names))
            if len(found):
                return f"{partition}: {found[0].as_py()}" if partition else str(found[0].as_py())
    return None


def in_every_partition(keys: KeysByPartition, files: Iterable[DataFile]) -> KeysByPartition:
    """All of the keys, for each partition of the files."""
    together = pa.concat_arrays(list(keys.values()))
    return dict.fromkeys((file.partition for file in files), together)


def first_held(keys: KeysByPartition, files: Iterable[DataFile], io: TableIO) -> str | None:
    """The first of `keys` that a file of its partition holds, as text for people. Several files are read at a time."""
    concerned = [file for file in files if file.partition in keys]
    for start in range(0, len(concerned), io.concurrent_requests):
        together = concerned[start : start + io.concurrent_requests]
        looks = [partial(_held_in, keys[file.partition], file, io.storage) for file in together]
        found = next((text for text in io.gather(looks) if text is not None), None)
        if found is not None:
            return found
    return None


def _held_in(keys: pa.Array, file: DataFile, storage: Storage) -> str | None:
    with BaseFile(open_slice(file, storage), file.key) as base:
        found = np.flatnonzero(held(keys, base))
    if not len(found):
        return None
    key = keys[int(found[0])].as_py()
    return f"{file.partition}: {key}" if file.partition else str(key)


def _keys_stage(context: WriteContext, parcels: Parcels, batches: Iterator[pa.RecordBatch]) -> Iterator[object]:
    for rows in parcels.unpacked_keys(batches, CHUNK_ROWS):
        yield from keys_by_partition(context, rows).items()


def _among_stage(
    context: WriteContext, parcels: Parcels, changed: KeysOfPartitions, batches: Iterator[pa.RecordBatch], *, anywhere: bool
) -> Iterator[object]:
    for rows in parcels.unpacked_keys(batches, CHUNK_ROWS):
        found = _first_among(keys_by_partition(context, rows), changed, anywhere=anywhere)
        if found is not None:
            yield found
            return


def _search_stage(
    context: WriteContext, parcels: Parcels, files: Sequence[DataFile], batches: Iterator[pa.RecordBatch], *, anywhere: bool
) -> Iterator[object]:
    io = context.io()
    for rows in parcels.unpacked_keys(batches, CHUNK_ROWS):
        keys = keys_by_partition(context, rows)
        found = first_held(in_every_partition(keys, files) if anywhere else keys, files, io)
        if found is not None:
            yield found
            return


@dataclass(frozen=True)
class Tagged:
    """Rows in parcels by route, how many take each route, the number of rows of the files that hold some of their keys, and
    what a row takes in memory.

    `keys` are the keys that were looked up, unless they are too many for the driver. `new` has, for each partition with rows
    whose keys no file holds, a value that is equal in two attempts only if these are the same rows.
    """

    plan: TagPlan
    rows: Rows
    counts: Mapping[tuple[str, int], int]
    file_rows: Mapping[int, int]
    row_bytes: int
    looked_up: LookedUp
    keys: KeysByPartition | None = None
    new: Mapping[str, object] = field(default_factory=dict)


def look_up(attempt: Attempt, frame: DataFrame | Rows, plan: TagPlan, memory: Memory) -> Tagged | None:
    """Find which file holds the key of each row of `frame`; None if it has no row. Its rows are computed once.

    What the `memory` has of an earlier attempt is not done again: neither packing the rows, nor looking into the same files.
    """
    snapshot = attempt.tx.current()
    staged = memory.staged or _packed(attempt, frame, plan, memory)
    if not staged.counts:
        return None
    plan = replace(plan, files=tuple(file for partition in sorted(staged.counts) for file in snapshot.in_partition(partition)))
    rows, count = staged.rows.without_reports(), sum(staged.counts.values())
    if count > lookup_stages.FEW_KEYS:
        return _by_rows(attempt, rows, plan, staged, memory)
    looked_up = LookedUp(rows.select(KEYS), plan.parcels, plan.context, count)
    if staged.keys is None:
        staged.keys = _fetched(attempt, looked_up)
    return _by_files(attempt, rows, plan, looked_up, staged, memory)


@dataclass(frozen=True)
class FoundAnywhere:
    """Keys that were looked up in all partitions: how many, and the files that hold some of them, or, of too many keys for the
    driver, may. `keys` are under the empty partition, None if they are too many."""

    count: int
    files: tuple[DataFile, ...]
    looked_up: LookedUp
    keys: KeysByPartition | None = None


def look_up_anywhere(attempt: Attempt, frame: DataFrame | Rows, plan: TagPlan, memory: Memory) -> FoundAnywhere | None:
    """Find which files hold the keys of `frame`, in whatever partition; None if it has no row.

    The plan's context is that of a table without partitions.
    """
    files = attempt.tx.current().files
    staged = memory.staged or _packed(attempt, frame, plan, memory)
    if not staged.counts:
        return None
    rows, count = staged.rows.without_reports(), sum(staged.counts.values())
    looked_up = LookedUp(rows.select(KEYS), plan.parcels, plan.context, count)
    if count > lookup_stages.FEW_KEYS:
        return FoundAnywhere(count, files, looked_up)
    if staged.keys is None:
        staged.keys = _fetched(attempt, looked_up)
    distinct = in_every_partition({"": staged.keys[""].unique()}, files)
    found = _looked_into(attempt, replace(plan, files=files), distinct, memory, few=rows.few) if files else []
    holders = tuple(files[number] for number in sorted({each.file for each in found}))
    return FoundAnywhere(count, holders, looked_up, staged.keys)


def _fetched(attempt: Attempt, looked_up: LookedUp) -> KeysByPartition:
    """The record keys that were looked up, collected on the driver."""
    stage = partial(_keys_stage, looked_up.context, looked_up.parcels)
    found: dict[str, list[pa.Array]] = {}
    for report in attempt.reports(looked_up.rows.through(stage, REPORT_SCHEMA), "fetching the keys"):
        assert isinstance(report, tuple)
        found.setdefault(report[0], []).append(report[1])
    return {partition: pa.concat_arrays(parts) for partition, parts in found.items()}


def _packed(attempt: Attempt, frame: DataFrame | Rows, plan: TagPlan, memory: Memory) -> Staged:
    """Compute the rows, once."""
    packed = attempt.rows(frame).through(partial(pack_stage, plan), PARCELS)
    memory.keep(packed)
    answers = attempt.reports(packed, "packing the rows", Phase.SHUFFLE)
    reports = [report for report in answers if isinstance(report, PackReport)]
    counts: Counter[str] = sum((report.counts for report in reports), Counter())
    listed = [report.keys for report in reports if report.keys is not None]
    keys = joined_keys(*listed) if len(listed) == len(reports) else None
    memory.staged = Staged(packed, counts, keys, sum(report.size_bytes for report in reports))
    return memory.staged


def _by_files(attempt: Attempt, rows: Rows, plan: TagPlan, looked_up: LookedUp, staged: Staged, memory: Memory) -> Tagged:
    """Send the keys to the files."""
    assert staged.keys is not None, "the driver has fetched them"
    keys = staged.keys
    distinct = {partition: found.unique() for partition, found in keys.items()}
    found = _looked_into(attempt, plan, distinct, memory, few=rows.few)
    holdings: dict[str, list[FileKeys]] = {partition: [] for partition in keys}
    for each in found:
        holdings[plan.files[each.file].partition].append(each)
    held = {
        partition: LocatedKeys.of(distinct[partition], ((each.file, each.positions, each.places) for each in mine))
        for partition, mine in holdings.items()
    }
    counts: Counter[tuple[str, int]] = Counter()
    new: dict[str, object] = {}
    unheld: list[pa.Array] = []
    for partition, given in keys.items():
        _, files, _, missing = held[partition].tagged(given)
        unheld.append(given.take(pa.array(missing)))
        slots = lookup_stages.slots_of(partition, unheld[-1], len(plan.files))
        counts.update(lookup_stages.rows_by_route(partition, files, slots))
        if len(missing):
            new[partition] = missing.tobytes()
    plan = replace(plan, held=held, no_file=LookedUpKeys.of(unheld))
    tagged = rows.through(partial(_rows_of, partial(tag_stage, plan)), _UNREPORTED)
    return Tagged(plan, tagged, counts, {each.file: each.rows for each in found}, staged.row_bytes, looked_up, distinct, new)


_UNREPORTED = pa.schema([field for field in PARCELS if field.name != REPORT])


def _looked_into(
    attempt: Attempt, plan: TagPlan, distinct: KeysByPartition, memory: Memory, *, few: bool
) -> list[FileKeys]:  # fmt: skip
    """What the files hold of the keys, each of which may be looked into once in all attempts; of `few` keys in the driver,
    unless that is much to read."""
    possible = possible_files(plan.files, distinct, attempt.tx.current().stats_of)
    answers = _by_record_index(attempt, plan.files, distinct, possible)
    named = {file for answer in answers.values() for file in answer.files}
    fewer = [number for number in possible if plan.files[number] in named] if answers else possible
    found = _look(attempt, plan, distinct, memory, fewer, few=few)
    for partition, answer in answers.items():
        mine = [each.positions for each in found if plan.files[each.file].partition == partition]
        keys = {key for positions in mine for key in distinct[partition].take(pa.array(positions)).to_pylist()}
        if answer.keys - keys:
            attempt.tx.doubt_record_index(f"{min(answer.keys - keys)!r} is not where it says")
            return _look(attempt, plan, distinct, memory, possible, few=few)
    return found


def _by_record_index(
    attempt: Attempt, files: Sequence[DataFile], distinct: KeysByPartition, possible: Sequence[int]
) -> Mapping[str, Answer]:
    """The possible files that have some of the keys, by partition, as the record index has it."""
    if not attempt.tx.asks_record_index:
        return {}
    by_partition: dict[str, list[DataFile]] = {}
    for number in possible:
        by_partition.setdefault(files[number].partition, []).append(files[number])
    listed = {id(keys): keys.to_pylist() for keys in {id(keys): keys for keys in distinct.values()}.values()}
    return attempt.tx.by_record_index({partition: listed[id(keys)] for partition, keys in distinct.items()}, by_partition)


def _look(
    attempt: Attempt, plan: TagPlan, distinct: KeysByPartition, memory: Memory, possible: Sequence[int], *, few: bool
) -> list[FileKeys]:  # fmt: skip
    """What some of the files hold."""
    fresh = [number for number in possible if plan.files[number].content not in memory.held]
    if fresh:
        look = LookPlan(plan.context, distinct, plan.files, lookup_stages.shares(plan.files, fresh, 2 * attempt.tasks))
        keys = sum(len(each) for each in {id(each): each for each in distinct.values()}.values())
        here = few and is_quick([plan.files[number] for number in fresh], keys, attempt.settings.bloom_fpp)
        numbers = attempt.numbers(len(look.shares), len(look.shares), in_driver=here)
        what = f"looking up keys in {counted(len(fresh), 'file')}"
        answers = attempt.reports(numbers.through(partial(look_stage, look), REPORT_SCHEMA), what, count=keys)
        found = [each for part in answers for each in _file_keys(part)]
        memory.held.update(dict.fromkeys((plan.files[number].content for number in fresh), None))
        memory.held.update((plan.files[each.file].content, each) for each in found)
    known = ((number, memory.held[plan.files[number].content]) for number in possible)
    return [replace(held, file=number) for number, held in known if held is not None]


LOOK_FILES, LOOK_BYTES = 256, 512 << 20
"""The most files whose footers the driver reads, and the most bytes of files whose keys it reads."""


def is_quick(files: Sequence[DataFile], keys: int, error_rate: float) -> bool:
    """Whether the driver looks for so many keys in these files: their filters keep it from most that have none."""
    read = min(1.0, keys * (1 / max(1, len(files)) + error_rate))
    return len(files) <= LOOK_FILES and read * sum(file.size_bytes for file in files) <= LOOK_BYTES


def _file_keys(report: object) -> list[FileKeys]:
    assert isinstance(report, list)
    return report


def _rows_of(stage: Stage, batches: Batches) -> Batches:
    """A stage without its reports: they are not collected, so any error in it is raised."""
    try:
        yield from (item.select(_UNREPORTED.names) for item in stage(batches) if isinstance(item, pa.RecordBatch))
    except LakelockError as error:
        raise RuntimeError(in_task_text(error)) from error


def _by_rows(attempt: Attempt, rows: Rows, plan: TagPlan, staged: Staged, memory: Memory) -> Tagged:
    """Gather the rows of each partition in as few tasks as can hold them, and look into its files from there."""
    together = rows.gathered(_packs(staged.counts), files=0, size_bytes=0)
    tagged = together.through(partial(tag_stage, plan), PARCELS)
    attempt.keep(tagged)
    answers = attempt.reports(tagged, "looking up keys", count=sum(staged.counts.values()))
    reports = [report for report in answers if isinstance(report, TagReport)]
    if memory is not attempt.memory or not attempt.tx.redo.keeps_files:
        memory.unstage()  # the tagged rows are all that the rest of the write needs
    routes: Counter[tuple[str, int]] = sum((report.counts for report in reports), Counter())
    file_rows = {number: count for report in reports for number, count in report.file_rows.items()}
    frame = tagged.without_reports()
    looked_up = LookedUp(frame.select(KEYS), plan.parcels, plan.context, sum(staged.counts.values()))
    in_partition: dict[str, frozenset[str]] = {
        partition: frozenset(file.content for file in attempt.tx.current().in_partition(partition))
        for partition in staged.counts
    }
    new = {partition: in_partition[partition] for partition, route in routes if route >= len(plan.files)}
    return Tagged(plan, frame, routes, file_rows, staged.row_bytes, looked_up, new=new)


def _packs(counts: Mapping[str, int]) -> Routes:
    """The task that gets the rows of each slot of a partition's family: several tasks only for many rows."""
    families: Counter[int] = Counter()
    for partition, rows in counts.items():
        families[family_of(partition)] += rows
    first, tasks_of = 0, {}
    for family, rows in sorted(families.items()):
        tasks_of[family] = first, min(SLOTS, -(-rows // lookup_stages.CHUNK_ROWS))
        first += tasks_of[family][1]
    values = values_for(first)
    pack_values = [values[0]] * NEW_ROUTES
    for family, (start, tasks) in tasks_of.items():
        for slot in range(SLOTS):
            pack_values[family * SLOTS + slot] = values[start + slot * tasks // SLOTS]
    return Routes(first, tuple(pack_values), frozenset())
