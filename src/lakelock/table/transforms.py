"""Partition transforms: `days(ts)`, `bucket(16, id)` and the like, which compute a partition column from another column.

The names and the forms are those of Iceberg and of Spark's `PARTITIONED BY`. A computed column is an ordinary one to every
reader and every other writer: its values are in the files, and its folders are readable (ADR 28).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.errors import InputError, SchemaError
from lakelock.table.commit_metadata import Value
from lakelock.table.rows import Fields
from lakelock.texts import column_hint, did_you_mean

_CALL = re.compile(r"\s*(\w+)\s*\(([^()]*)\)\s*").fullmatch
DAY_US, HOUR_US = 86_400_000_000, 3_600_000_000
FORMS = "years(c), months(c), days(c), hours(c), bucket(n, c), truncate(n, c)"


class Kind(str, Enum):
    """The transforms. Those of time are of UTC where the column is an instant, else of its wall clock."""

    YEARS = "years"
    MONTHS = "months"
    DAYS = "days"
    HOURS = "hours"
    BUCKET = "bucket"
    TRUNCATE = "truncate"

    @property
    def has_number(self) -> bool:
        return self in (Kind.BUCKET, Kind.TRUNCATE)


_ALSO = {"year": "years", "month": "months", "day": "days", "date": "days", "hour": "hours", "date_hour": "hours"}
_SUFFIX = {
    Kind.YEARS: "year", Kind.MONTHS: "month", Kind.DAYS: "day", Kind.HOURS: "hour",
    Kind.BUCKET: "bucket", Kind.TRUNCATE: "prefix",
}  # fmt: skip
_TYPES = {Kind.YEARS: pa.int32(), Kind.DAYS: pa.date32(), Kind.BUCKET: pa.int32()}


@dataclass(frozen=True)
class Transform:
    """A partition column and how it is computed from the column `source`; null stays null.

    `years` is a number, `months` a text such as `2026-01`, `days` a date, `hours` a text such as `2026-01-31-23`; `bucket` is
    the CRC-32 of the value's text modulo `number`, `truncate` the first `number` characters of a text.
    """

    kind: Kind
    source: str
    number: int = 0

    @property
    def name(self) -> str:
        """The name of the computed column."""
        return f"{self.source}_{_SUFFIX[self.kind]}"

    @property
    def type(self) -> pa.DataType:
        """The type of the computed column."""
        return _TYPES.get(self.kind, pa.string())

    def __str__(self) -> str:
        number = f"{self.number}, " if self.kind.has_number else ""
        return f"{self.kind.value}({number}{self.source})"

    def takes(self, source: pa.DataType) -> bool:
        """Whether it can be computed from values of this type."""
        types = pa.types
        text = types.is_string(source) or types.is_large_string(source) or types.is_string_view(source)
        if self.kind is Kind.TRUNCATE:
            return bool(text)
        if self.kind is Kind.BUCKET:
            return bool(text or types.is_integer(source) or types.is_date(source))
        return bool((types.is_date(source) and self.kind is not Kind.HOURS) or types.is_timestamp(source))

    def of(self, source: pa.Array | pa.ChunkedArray) -> pa.Array:
        """The computed column, of values that the transform `takes`."""
        whole = source.combine_chunks() if isinstance(source, pa.ChunkedArray) else source
        if self.kind is Kind.TRUNCATE:
            return pc.utf8_slice_codeunits(whole.cast(pa.string()), 0, self.number)
        if self.kind is Kind.BUCKET:
            return _per_value(whole.cast(pa.string()), lambda text: zlib.crc32(text.encode()) % self.number, pa.int32())
        unit_us = HOUR_US if self.kind is Kind.HOURS else DAY_US
        if pa.types.is_date(whole.type):
            steps = whole.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
        else:
            micros = whole.cast(pa.timestamp("us", whole.type.tz), safe=False).cast(pa.int64())
            steps = pa.array(np.floor_divide(micros.fill_null(0).to_numpy(zero_copy_only=False), unit_us), mask=_nulls(micros))
        if self.kind is Kind.DAYS:
            return steps.cast(pa.int32()).cast(pa.date32())
        if self.kind is Kind.YEARS:
            return pc.year(steps.cast(pa.int32()).cast(pa.date32())).cast(pa.int32())
        return _per_value(steps, _month if self.kind is Kind.MONTHS else _hour, pa.string())

    def of_value(self, value: Value) -> Value | None:
        """What it makes of one value; None of one that it does not take."""
        array = pa.array([value])
        if not self.takes(array.type):
            return None
        found: Value | None = self.of(array)[0].as_py()
        return found


def _nulls(array: pa.Array) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = array.is_null().to_numpy(zero_copy_only=False)
    return found


def _per_value(values: pa.Array, function: Any, kind: pa.DataType) -> pa.Array:
    """The function of each value, called once for each different one."""
    coded = values.dictionary_encode()
    found = pa.array([function(value.as_py()) for value in coded.dictionary], kind)
    return pa.DictionaryArray.from_arrays(coded.indices, found).cast(kind)


def _month(days: int) -> str:
    return str(np.datetime64(days, "D"))[:7]


def _hour(hours: int) -> str:
    return str(np.datetime64(hours, "h")).replace("T", "-")


def parsed_transform(text: str) -> Transform | None:
    """The transform that a text names; None for a plain column. `InputError` for one that means nothing."""
    call = _CALL(text)
    if call is None:
        if "(" in text or ")" in text:
            raise InputError(f"{text!r} is no partition transform", hint=f"use {FORMS}")
        return None
    given = call[1].lower()
    name = _ALSO.get(given, given)
    if name not in {kind.value for kind in Kind}:
        near = did_you_mean(given, [kind.value for kind in Kind])
        raise InputError(f"there is no partition transform {call[1]!r}{near}", hint=f"use {FORMS}")
    kind, arguments = Kind(name), [part.strip().strip("`") for part in call[2].split(",")]
    if kind.has_number and len(arguments) == 2 and arguments[1].isdecimal() and not arguments[0].isdecimal():
        arguments.reverse()  # Iceberg's own files write the column first
    numbers = [int(each) for each in arguments[:-1] if each.isdecimal() and len(each) < 7]
    if len(arguments) != 1 + kind.has_number or not arguments[-1] or len(numbers) != kind.has_number or 0 in numbers:
        form = f"{kind.value}(n, column) with a number n above 0" if kind.has_number else f"{kind.value}(column)"
        raise InputError(f"{text!r} is no partition transform", hint=f"write {form}")
    return Transform(kind, arguments[-1], *numbers)


def parsed_transforms(text: str) -> tuple[Transform, ...]:
    """The transforms in a list such as `days(ts), bucket(16, id)`; `InputError` for anything else."""
    found = [parsed_transform(part) for part in split_columns(text)]
    if None in found:
        raise InputError(f"{text!r} has a column that is no partition transform", hint=f"use {FORMS}")
    return tuple(transform for transform in found if transform is not None)


def split_columns(text: str) -> list[str]:
    """The parts of a list that is separated by commas, except those within parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def partition_columns(
    columns: pa.Schema, partition_by: Sequence[str]
) -> tuple[tuple[str, ...], tuple[Transform, ...], pa.Schema]:
    """The names of the partition columns, the transforms among them, and the table's columns with the computed ones.

    `SchemaError` for a transform whose column is missing or of a type that it does not take, or whose name another column has.
    """
    names, transforms, fields = [], [], list(columns)
    for text in partition_by:
        transform = parsed_transform(text)
        if transform is None:
            names.append(text)
            continue
        transform = _of_column(transform, Fields(columns))
        found = Fields(fields).find(transform.name)
        if found is None:
            fields.append(pa.field(transform.name, transform.type))
        elif found.type != transform.type:
            raise SchemaError(
                f"partition_by {transform} makes {transform.name} of {transform.type}, and there is a column of {found.type}",
                hint=f"partition by {found.name} itself, or rename it",
                column=found.name,
            )
        names.append(transform.name if found is None else found.name)
        transforms.append(transform)
    return tuple(names), tuple(transforms), pa.schema(fields)


def _of_column(transform: Transform, columns: Fields) -> Transform:
    """The transform, with its column as the table spells it."""
    found = columns.find(transform.source)
    if found is None:
        hint = column_hint(transform.source, columns.names)
        raise SchemaError(f"partition_by {transform}: there is no column {transform.source!r}", hint=hint)
    if not transform.takes(found.type):
        raise SchemaError(
            f"partition_by {transform}: {found.name} is {found.type}",
            hint="times are taken from dates and timestamps (hours from timestamps only), buckets from texts, integers and "
            "dates, and prefixes from texts",
            column=found.name,
        )
    return replace(transform, source=found.name)
