"""Rows that cost next to nothing to encode: tuples in memory, a line of JSON per base file.

Encoding Parquet takes longer than everything else in a simulated transaction. The code that isolates transactions knows
rows only through their kernels, so a history on these rows is the same as on Parquet (tests/simulation/test_light_rows.py).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from lakelock.settings import MissingColumns, WriteSettings
from lakelock.table.base_files import KeyRange, Written
from lakelock.table.key_search import buckets_of_keys
from lakelock.table.log_files import LogFile
from lakelock.table.log_writing import Found, LogChanges, LogStamp
from lakelock.table.merged_slices import Change
from lakelock.table.partitions import PartitionValues
from lakelock.table.pruning import StatisticsOf
from lakelock.table.rewriting import Counts
from lakelock.table.schema import COMMIT_TIME, RECORD_KEY
from tests.api import BucketIndex, DataFile, Stamp, Storage, TableProperties, TableSchema
from tests.simulator.rows import (
    NOT_GIVEN,
    WRITTEN_NOW,
    Changes,
    Row,
    changes_of,
    log_line,
    merged,
    partition_of,
    record_key,
    rows_of,
    written_now,
)


class Lines(tuple[Row, ...]):
    """Rows in memory."""

    @property
    def num_rows(self) -> int:
        return len(self)

    @property
    def nbytes(self) -> int:
        return sum(len(row.key) for row in self)

    @property
    def rows(self) -> Lines:
        return self

    @property
    def keys(self) -> list[str]:
        return [row.key for row in self]

    def cut(self, count: int) -> tuple[Lines, Lines]:
        return Lines(self[:count]), Lines(self[count:])

    def slice(self, start: int, count: int) -> Lines:
        return Lines(self[start : start + count])


@dataclass(frozen=True)
class Chosen:
    """A condition on rows."""

    text: str
    chooses: Callable[[Row], bool]
    partition: str | None = None
    """The only one that has such rows, if the text says so."""

    def __str__(self) -> str:
        return self.text


class NewLines:
    """A base file that is being written."""

    def __init__(self, output: IO[bytes]) -> None:
        self._output = output
        self._lines: list[tuple[object, ...]] = []

    @property
    def rows(self) -> int:
        return len(self._lines)

    def add_new(self, rows: Lines, keys: object) -> None:
        self._lines += ((*row.completed()[1:], WRITTEN_NOW) for row in rows)

    def add_stored(self, rows: Lines) -> None:
        self._lines += (row[1:] for row in rows)

    def close(self) -> Written:
        self._output.write(json.dumps(self._lines).encode())
        keys = [str(line[0]) for line in self._lines]
        return Written(self.rows, KeyRange(min(keys), max(keys)) if keys else None)


@dataclass(frozen=True)
class Light(LogChanges):
    """What a log file says."""

    upserts: Any = None

    def __post_init__(self) -> None:
        """It says one thing of each key."""


class LightKernels:
    """The methods of `Kernels`, for rows that are `Lines`."""

    def fitted(self, rows: Lines, schema: TableSchema, *, merge: bool) -> tuple[TableSchema, Lines]:
        return schema, rows

    def fitted_upserts(
        self, rows: Lines, schema: TableSchema, properties: TableProperties, *, merge: bool, missing: MissingColumns
    ) -> tuple[TableSchema, Lines]:
        assert missing == "keep"
        return schema, rows

    def fitted_keys(self, rows: Lines, schema: TableSchema, properties: TableProperties) -> Lines:
        return rows

    def keyed(self, rows: Lines, properties: TableProperties) -> Lines:
        return rows

    def batches(self, rows: Lines) -> Iterator[Lines]:
        if rows:
            yield rows

    def packed(self, rows: Lines) -> bytes:
        return json.dumps([list(row) for row in rows]).encode()

    def unpacked(self, packed: Sequence[bytes], schema: TableSchema) -> list[Lines]:
        found = [json.loads(each) for each in packed]
        if any(NOT_GIVEN in row for rows in found for row in rows):
            raise ValueError("its rows lack columns")
        return [Lines(Row(part, key, value, tuple(trail), *rest) for part, key, value, trail, *rest in rows) for rows in found]

    def together(self, rows: Sequence[Lines]) -> Lines:
        return Lines(row for each in rows for row in each)

    def by_partition(self, rows: Lines, properties: TableProperties) -> Mapping[str, Lines]:
        found: dict[str, list[Row]] = {}
        for row in rows:
            found.setdefault(partition_of(row.part), []).append(row)
        return {partition: Lines(mine) for partition, mine in found.items()}

    def by_bucket(self, keyed: Lines, index: BucketIndex, properties: TableProperties) -> Mapping[int, Lines]:
        found: dict[int, list[Row]] = {}
        for row, bucket in zip(keyed, buckets_of_keys(keyed.keys, index), strict=True):
            found.setdefault(bucket, []).append(row)
        return {bucket: Lines(found[bucket]) for bucket in sorted(found)}

    def dedupe(self, keyed: Lines, ordering_field: str | None, *, take_any: bool) -> Lines:
        assert take_any or len(set(keyed.keys)) == len(keyed)
        last = {row.key: number for number, row in enumerate(keyed)}
        return Lines(row for number, row in enumerate(keyed) if last[row.key] == number)

    def may_hold(self, keyed: Lines, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        def may(file: DataFile) -> bool:
            known = statistics(file)
            if file.logs or known is None or not known.key_min or not known.key_max:
                return True
            return any(known.key_min <= key <= known.key_max for key in keyed.keys)

        return [file for file in files if may(file)]

    def tag(self, keyed: Lines, files: Sequence[DataFile], storage: Storage) -> tuple[list[tuple[DataFile, Lines]], Lines]:
        known, rest = [], set(keyed.keys)
        for file in files:
            stored = {row.key for row in _stored(storage, file)}
            found = Lines(row for row in keyed if row.key in stored)
            if found:
                known.append((file, found))
                rest -= stored
        return known, Lines(row for row in keyed if row.key in rest)

    def without(self, keyed: Lines, others: Sequence[Lines]) -> Lines:
        theirs = {key for other in others for key in other.keys}
        return Lines(row for row in keyed if row.key not in theirs)

    def first_held(self, keyed: Lines, file: DataFile, storage: Storage) -> str | None:
        stored = {row.key for row in _stored(storage, file)}
        return next((key for key in keyed.keys if key in stored), None)

    def first_changed(self, keyed: Lines, change: Change, storage: Storage) -> str | None:
        changed = {row.key for row in _changed(change, storage)}.union(*(log[1] for log in _logs(storage, change.made)))
        return next((key for key in keyed.keys if key in changed), None)

    def changed_example(self, change: Change, schema: TableSchema, condition: Chosen | None, storage: Storage) -> str | None:
        return next((str(row) for row in _changed(change, storage) if condition is None or condition.chooses(row)), None)

    def among(self, keyed: Lines) -> Callable[[Row], bool]:
        keys = frozenset(keyed.keys)
        return lambda row: row.key in keys

    def satisfying(self, condition: Chosen) -> Callable[[Row], bool]:
        return condition.chooses

    def possible(
        self, condition: Chosen, files: Sequence[DataFile], schema: TableSchema, values: PartitionValues,
        statistics: StatisticsOf,
    ) -> Sequence[DataFile]:  # fmt: skip
        return [file for file in files if condition.partition in (None, file.partition)]

    def example(self, file: DataFile, schema: TableSchema, condition: Chosen | None, storage: Storage) -> str | None:
        for row in _stored(storage, file):
            if condition is None or condition.chooses(row):
                return str(row)
        return None

    def read(self, files: Iterable[DataFile], schema: TableSchema, condition: Chosen | None, storage: Storage) -> Lines:
        found = [row for file in files for row in _stored(storage, file)]
        return Lines(found if condition is None else filter(condition.chooses, found))

    def stored(self, files: Sequence[DataFile], schema: TableSchema, storage: Storage) -> Iterator[Lines]:
        for file in files:
            yield Lines(_stored(storage, file))

    def in_order(self, batches: Iterable[Lines], columns: Sequence[str]) -> Lines:
        assert tuple(columns) == ("id",)
        return Lines(sorted((row for batch in batches for row in batch), key=lambda row: row.key))

    def new_file(self, output: IO[bytes], schema: TableSchema, stamp: Stamp, settings: WriteSettings) -> NewLines:
        return NewLines(output)

    def rewrite(
        self, source: DataFile, storage: Storage, file: NewLines, schema: TableSchema, *,
        upserts: Lines | None, delete_mask: Callable[[Row], bool] | None, added: Lines | None, ordering_field: str | None,
    ) -> Counts:  # fmt: skip
        stored = _stored(storage, source)
        kept = [row for row in stored if delete_mask is None or not delete_mask(row)]
        changes = {row.key: row for row in upserts or ()}
        keys = {row.key for row in kept}
        for row in kept:
            if (change := changes.get(row.key)) is None:
                file.add_stored(Lines([row]))
            else:
                file.add_new(Lines([change.completed(row.left, row.right)]), None)
        file.add_new(Lines(row for key, row in changes.items() if key not in keys), None)
        file.add_new(added or Lines(), None)
        inserted, updated = len(changes.keys() - keys) + len(added or ()), sum(row.key in changes for row in kept)
        return Counts(file.rows, inserted, updated, len(stored) - len(kept))

    def changed_in(
        self, source: DataFile, storage: Storage, schema: TableSchema, stamp: Stamp, settings: WriteSettings, share: float, *,
        upserts: Lines | None, delete_mask: Callable[[Row], bool] | None, ordering_field: str | None,
    ) -> Found | None:  # fmt: skip
        stored = _stored(storage, source)
        gone = [row.key for row in stored if delete_mask is not None and delete_mask(row)]
        changes = {row.key: row for row in upserts or ()}
        changed = [changes[row.key].completed(row.left, row.right) for row in stored if row.key in changes]
        named = [*gone, *(row.key for row in changed)]
        keys, below = ([row.key for row in rows] for rows in (stored, _stored(storage, source._replace(logs=()))))
        twice = any(each.count(key) > 1 for key in named for each in (keys, below))
        if changes.keys() - set(keys) or twice or len(named) > max(1, share * len(keys)):
            return None
        return Found(Light(Lines(changed), tuple(gone)) if named else None)

    def log(self, changes: Light, schema: TableSchema, table: str, stamp: LogStamp, settings: WriteSettings) -> bytes:
        return log_line(changes.upserts, changes.deleted)

    def logged(self, log: LogFile, schema: TableSchema, storage: Storage) -> Light:
        rows, deleted = changes_of(log.key, _read(storage, log.key))
        return Light(Lines(rows), deleted)

    def restamp(self, source: IO[bytes], output: IO[bytes], old: Stamp, new: Stamp) -> None:
        output.write(source.read())


def keys_of(storage: Storage, file: DataFile) -> Iterator[pa.Table]:
    """Commit time and record key of each row, as `lakelock.table.record_index` reads them of Parquet files."""
    fresh = written_now(_read(storage, file.key)) if file.token else frozenset()
    rows = [(row.key, record_key(row.part, row.key)) for row in _stored(storage, file)]
    times = [file.instant if key in fresh else "" for key, _ in rows]
    yield pa.table([pa.array(times, pa.string()), pa.array([key for _, key in rows], pa.string())], [COMMIT_TIME, RECORD_KEY])


def changes_in(log: LogFile, schema: TableSchema, storage: Storage) -> Light:
    """What a log file says, with record keys."""
    rows, deleted = changes_of(log.key, _read(storage, log.key))
    part = log.partition.partition("=")[2]
    return Light(Lines(rows), [record_key(part, key) for key in deleted])


def _stored(storage: Storage, file: DataFile) -> tuple[Row, ...]:
    base = rows_of(file.key, _read(storage, file.key)) if file.token else ()
    return merged(base, _logs(storage, file)) if file.logs else base


def _logs(storage: Storage, file: DataFile) -> list[Changes]:
    return [changes_of(log.key, _read(storage, log.key)) for log in file.logs]


def _changed(change: Change, storage: Storage) -> list[Row]:
    """The rows that a commit changed, before and after. A row that was written again is another one."""
    before = () if change.before is None else _stored(storage, change.before)
    after = _stored(storage, change.after)
    if not change.made.token:
        named = {key for rows, deleted in _logs(storage, change.made) for key in (*(row.key for row in rows), *deleted)}
        return [row for row in (*before, *after) if row.key in named]
    return [*(Counter(before) - Counter(after)), *(Counter(after) - Counter(before))]


def _read(storage: Storage, key: str) -> bytes:
    with storage.open_input(key) as opened:
        return opened.read()
