"""The files that a read may skip, from a condition, partition values and column ranges; never one too many.

The logic is SQL's: a condition is true, false or null. For a file it is only known which of the three are possible; a
file may be left out if "true" is not among them. A part of a condition that is not understood can answer all three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Flag
from functools import cached_property, reduce
from typing import Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakelock.table.commit_metadata import ColumnRange, FileStatistics, Value
from lakelock.table.partitions import PartitionValues, Values
from lakelock.table.snapshot import DataFile, Snapshot
from lakelock.table.transforms import Kind, Transform

Operator = Literal["=", "<", "<=", ">", ">="]
_MIRRORED: Mapping[Operator, Operator] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Answers(Flag):
    """Which answers are possible."""

    NONE = 0
    TRUE = 1
    FALSE = 2
    NULL = 4
    ANY = 7


@dataclass(frozen=True)
class Known:
    """What is known about one column in some rows: one of `values` if they are given, otherwise within `range`.

    `values` lists every value that may occur, None for null. `rows` is how many rows the range is about.
    """

    values: tuple[Value | None, ...] | None = None
    range: ColumnRange = field(default_factory=ColumnRange)
    rows: int | None = None

    @property
    def all_null(self) -> bool:
        return self.rows is not None and self.range.nulls == self.rows


NOTHING_KNOWN = Known()
Knowledge = Callable[[str], Known]
"""Returns what is known about a column."""


class Predicate(Protocol):
    """A condition as far as it is understood."""

    def answers(self, known: Knowledge) -> Answers:
        """The answers that it can give for a row about which this is known; too many rather than too few."""
        ...


@dataclass(frozen=True)
class Anything:
    """A part of a condition that is not understood."""

    def answers(self, known: Knowledge) -> Answers:
        return Answers.ANY


@dataclass(frozen=True)
class Constant:
    """The same answer for every row."""

    value: bool | None

    def answers(self, known: Knowledge) -> Answers:
        return _answer(self.value)


@dataclass(frozen=True)
class Comparison:
    """`column op value`; the value is not null and of the column's type."""

    column: str
    op: Operator
    value: Value

    @classmethod
    def mirrored(cls, column: str, op: Operator, value: Value) -> Comparison:
        return cls(column, _MIRRORED[op], value)

    def answers(self, known: Knowledge) -> Answers:
        about = known(self.column)
        if about.values is not None:
            return _union(self._of(each) for each in about.values)
        if about.all_null:
            return Answers.NULL
        null = Answers.NONE if about.range.nulls == 0 else Answers.NULL
        return null | self._within(about.range)

    def _of(self, value: Value | None) -> Answers:
        if value is None:
            return Answers.NULL
        return _answer(_holds(value, self.op, self.value)) if _comparable(value, self.value) else Answers.ANY

    def _within(self, bounds: ColumnRange) -> Answers:
        """The answers for values between the two ends, an unknown end is infinitely far away."""
        least = bounds.least if bounds.least is not None and _comparable(bounds.least, self.value) else None
        greatest = bounds.greatest if bounds.greatest is not None and _comparable(bounds.greatest, self.value) else None
        below = least is None or least < self.value  # type: ignore[operator]
        above = greatest is None or greatest > self.value  # type: ignore[operator]
        inside = (least is None or least <= self.value) and (greatest is None or greatest >= self.value)  # type: ignore[operator]
        places = [(below, _holds(0, self.op, 1)), (inside, _holds(0, self.op, 0)), (above, _holds(1, self.op, 0))]
        return _union(_answer(holds) for possible, holds in places if possible)


@dataclass(frozen=True)
class TimeComparison(Comparison):
    """The same of texts such as `2026-01-31-23`: years after 9999, which no value has, come last and not where they sort."""

    def _of(self, value: Value | None) -> Answers:
        if isinstance(value, str) and value[4:5] != "-" and not value.startswith("-"):
            return _answer(self.op in (">", ">="))
        return super()._of(value)

    def _within(self, bounds: ColumnRange) -> Answers:
        return Answers.TRUE | Answers.FALSE


@dataclass(frozen=True)
class IsNull:
    """`column is null`; never null itself."""

    column: str

    def answers(self, known: Knowledge) -> Answers:
        about = known(self.column)
        if about.values is not None:
            return _union(_answer(each is None) for each in about.values)
        if about.all_null:
            return Answers.TRUE
        return Answers.FALSE if about.range.nulls == 0 else Answers.TRUE | Answers.FALSE


@dataclass(frozen=True)
class BeginsWith:
    """`column like 'prefix%'`."""

    column: str
    prefix: str

    def answers(self, known: Knowledge) -> Answers:
        about = known(self.column)
        if about.values is not None:
            return _union(self._of(each) for each in about.values)
        if about.all_null:
            return Answers.NULL
        null = Answers.NONE if about.range.nulls == 0 else Answers.NULL
        least, greatest = about.range.least, about.range.greatest
        # Texts with the prefix are never less than it; a text is beyond all of them if its own beginning is greater.
        before = isinstance(greatest, str) and greatest < self.prefix
        beyond = isinstance(least, str) and least[: len(self.prefix)] > self.prefix
        return null | (Answers.FALSE if before or beyond else Answers.TRUE | Answers.FALSE)

    def _of(self, value: Value | None) -> Answers:
        if value is None:
            return Answers.NULL
        return _answer(value.startswith(self.prefix)) if isinstance(value, str) else Answers.ANY


@dataclass(frozen=True)
class Not:
    """The opposite; null stays null."""

    part: Predicate

    def answers(self, known: Knowledge) -> Answers:
        found = self.part.answers(known)
        swapped = Answers.NULL & found
        swapped |= Answers.FALSE if Answers.TRUE in found else Answers.NONE
        return swapped | (Answers.TRUE if Answers.FALSE in found else Answers.NONE)


@dataclass(frozen=True)
class And:
    """True where all parts are, false where one is."""

    parts: tuple[Predicate, ...]

    def answers(self, known: Knowledge) -> Answers:
        return reduce(_both, (part.answers(known) for part in self.parts), Answers.TRUE)


@dataclass(frozen=True)
class Or:
    """False where all parts are, true where one is."""

    parts: tuple[Predicate, ...]

    def answers(self, known: Knowledge) -> Answers:
        return Not(And(tuple(Not(part) for part in self.parts))).answers(known)


def may_hold(predicate: Predicate, known: Knowledge) -> bool:
    """Whether a row about which this is known can satisfy the condition."""
    return Answers.TRUE in predicate.answers(known)


def _answer(value: bool | None) -> Answers:
    if value is None:
        return Answers.NULL
    return Answers.TRUE if value else Answers.FALSE


def _union(found: Iterable[Answers]) -> Answers:
    return reduce(Answers.__or__, found, Answers.NONE)


def _both(one: Answers, other: Answers) -> Answers:
    """Every answer of an AND whose sides answer independently."""
    result = Answers.FALSE & (one | other)
    if Answers.TRUE in one and Answers.TRUE in other:
        result |= Answers.TRUE
    if (Answers.NULL in one and other & ~Answers.FALSE) or (Answers.NULL in other and one & ~Answers.FALSE):
        result |= Answers.NULL
    return result


def _comparable(one: Value, other: Value) -> bool:
    """Whether Python compares these two as Spark does. Not for floats: Spark has an order of NaN and -0.0 among them."""
    if type(one) is not type(other) or isinstance(one, float):
        return False
    return not isinstance(one, datetime) or (one.tzinfo is None) == (other.tzinfo is None)  # type: ignore[union-attr]


def _holds(one: Value, op: Operator, other: Value) -> bool:
    if op == "=":
        return one == other
    if op == "<":
        return bool(one < other)  # type: ignore[operator]
    if op == "<=":
        return bool(one <= other)  # type: ignore[operator]
    return bool(one > other) if op == ">" else bool(one >= other)  # type: ignore[operator]


_IMPLIED: Mapping[Operator, Operator] = {"=": "=", "<": "<=", "<=": "<=", ">": ">=", ">=": ">="}


def sharpened(predicate: Predicate, transforms: Sequence[Transform]) -> Predicate:
    """The same condition, which also says what it implies of the computed columns.

    Each part `p` becomes `p and q` where `p` implies `q` and both are null for the same rows, so the answers stay the same,
    also within a NOT.
    """
    if not transforms:
        return predicate
    if isinstance(predicate, Not):
        return Not(sharpened(predicate.part, transforms))
    if isinstance(predicate, And | Or):
        return type(predicate)(tuple(sharpened(part, transforms) for part in predicate.parts))
    implied = tuple(_implied(predicate, transforms))
    return And((predicate, *implied)) if implied else predicate


def _implied(predicate: Predicate, transforms: Sequence[Transform]) -> Iterable[Predicate]:
    for transform in transforms:
        # IS NULL implies nothing: rows may bring the computed column without the one that it is computed from.
        if isinstance(predicate, Comparison) and predicate.column == transform.source:
            value = transform.of_value(predicate.value)
            if value is not None and (predicate.op == "=" or transform.kind is not Kind.BUCKET):
                compared = TimeComparison if transform.kind in (Kind.MONTHS, Kind.HOURS) else Comparison
                yield compared(transform.name, _IMPLIED[predicate.op], value)
        elif isinstance(predicate, BeginsWith) and predicate.column == transform.source and transform.kind is Kind.TRUNCATE:
            short = predicate.prefix[: transform.number]
            whole = len(predicate.prefix) >= transform.number
            yield Comparison(transform.name, "=", short) if whole else BeginsWith(transform.name, short)


StatisticsOf = Callable[[DataFile], FileStatistics | None]
"""Looks up what is recorded about a file; None if nothing is."""


@dataclass(frozen=True)
class Pruning:
    """Rules files out by a condition: whole partitions first, then files by the recorded ranges of their columns."""

    predicate: Predicate
    values: PartitionValues

    @cached_property
    def _sharp(self) -> Predicate:
        """The condition with what it says about computed partition columns."""
        return sharpened(self.predicate, self.values.transforms)

    def concerns(self, partition: str) -> bool:
        """False if no row of this partition can satisfy the condition."""
        return may_hold(self._sharp, _knowledge(self.values.possible(partition)))

    def files_of(self, snapshot: Snapshot) -> tuple[DataFile, ...]:
        """The files of a snapshot that may hold such a row. Of partitions that are ruled out nothing is read."""
        if isinstance(self.predicate, Anything):
            return snapshot.files
        partitions = [partition for partition in snapshot.partitions if self.concerns(partition)]
        if len(partitions) == len(snapshot.partitions):
            return self.kept(snapshot.files, snapshot.stats_of)
        return tuple(
            file for partition in partitions for file in self.kept(snapshot.in_partition(partition), snapshot.stats_of)
        )

    def kept(self, files: Iterable[DataFile], statistics: StatisticsOf | None = None) -> tuple[DataFile, ...]:
        """The files that may hold such a row, in the same order."""
        if isinstance(self.predicate, Anything):
            return tuple(files)
        partitions: dict[str, Mapping[str, Values] | None] = {}
        found = []
        for file in files:
            if file.partition not in partitions:
                possible = self.values.possible(file.partition)
                partitions[file.partition] = possible if may_hold(self._sharp, _knowledge(possible)) else None
            values = partitions[file.partition]
            if values is None:
                continue
            recorded = statistics(file) if statistics is not None else None
            if recorded is None or may_hold(self._sharp, _knowledge(values, recorded)):
                found.append(file)
        return tuple(found)


def _knowledge(values: Mapping[str, Values], recorded: FileStatistics | None = None) -> Callable[[str], Known]:
    """What is known about a column: from the partition, otherwise from the file's statistics."""
    ranges: Mapping[str, ColumnRange] = recorded.columns if recorded is not None else {}
    rows = recorded.rows if recorded is not None else None

    def known(column: str) -> Known:
        if column in values:
            return Known(values[column])
        return Known(range=ranges[column], rows=rows) if column in ranges else NOTHING_KNOWN

    return known


def files_of_expression(
    condition: pc.Expression,
    files: Sequence[DataFile],
    schema: pa.Schema,
    values: PartitionValues,
    statistics: StatisticsOf = lambda file: None,
) -> list[DataFile]:
    """The files that may hold a row which satisfies a condition of Arrow, in the same order.

    Arrow compares it with what is certain of all rows of a file; nothing is opened. All files for a condition that does not
    fit the columns: its evaluation reports what is wrong with it.
    """
    import pyarrow.dataset as ds  # which imports pandas, for a second, where that is installed
    from pyarrow.fs import LocalFileSystem

    by_partition: dict[str, list[pc.Expression]] = {}
    fragments, form, nowhere = [], ds.ParquetFileFormat(), LocalFileSystem()
    for number, file in enumerate(files):
        if file.partition not in by_partition:
            by_partition[file.partition] = [*_certain_in(file.partition, schema, values)]
        recorded = statistics(file)
        if recorded is not None and recorded.rows == 0:
            continue
        certain = [*by_partition[file.partition], *(() if recorded is None else _certain_of(recorded, schema))]
        known = reduce(pc.Expression.__and__, certain, pc.scalar(True))
        fragments.append(form.make_fragment(str(number), nowhere, partition_expression=known))
    try:
        left = ds.FileSystemDataset(fragments, schema, form, nowhere).get_fragments(filter=condition)
        return [files[int(fragment.path)] for fragment in left]
    except (pa.ArrowException, KeyError, TypeError):
        return list(files)


def _certain_in(partition: str, schema: pa.Schema, values: PartitionValues) -> Iterator[pc.Expression]:
    for name, value in values.exact(partition).items():
        column = pc.field(name)
        yield column.is_null() if value is None else column == pa.scalar(value, schema.field(name).type)


def _certain_of(recorded: FileStatistics, schema: pa.Schema) -> Iterator[pc.Expression]:
    """Not of columns that may hold a NaN, which is in no range."""
    for name, known in recorded.columns.items():
        at = schema.get_field_index(name)
        kind = schema.field(at).type if at >= 0 else pa.null()
        for bound, holds in ((known.least, pc.Expression.__ge__), (known.greatest, pc.Expression.__le__)):
            if bound is None or not _is_ordered_alike(kind, bound):
                continue
            try:
                within = holds(pc.field(name), pa.scalar(bound, kind))
            except (pa.ArrowException, OverflowError):
                continue  # a bound of the type that the column had before
            yield within if known.nulls == 0 else within | pc.field(name).is_null()


def _is_ordered_alike(kind: pa.DataType, bound: object) -> bool:
    """Whether Arrow compares values of this type as the writer did that recorded the bound."""
    types = pa.types
    if types.is_timestamp(kind):
        return isinstance(bound, datetime) and (bound.tzinfo is None) == (kind.tz is None)
    if types.is_date(kind):
        return not isinstance(bound, datetime)
    return bool(types.is_integer(kind) or types.is_decimal(kind) or types.is_string(kind) or types.is_large_string(kind))
