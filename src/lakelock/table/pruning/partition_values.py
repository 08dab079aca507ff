"""The values of partition columns, from the name of the partition's folder: only where the name leaves no doubt.

The inverse of `lakelock.table.partitioning.paths`: a value is taken from a folder only if that value gives exactly this name.
So an unusual spelling, of a key generator with its own formats for instance, is never misread; its values are simply unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from functools import cached_property

import pyarrow as pa

from lakelock.table import key_generators
from lakelock.table.partitioning.paths import DEFAULT_PARTITION, escape, unescape
from lakelock.table.properties import TableProperties
from lakelock.table.statistics import Value
from lakelock.table.transforms import Transform

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,19}").fullmatch
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?(E[+-]?[0-9]+)?").fullmatch
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UNITS = {"s": 1000, "ms": 1000, "us": 1, "ns": 1}
"""Microseconds of one step of the number that stands for a timestamp, by the unit of the column."""

Values = tuple[Value | None, ...]


@dataclass(frozen=True)
class PartitionValues:
    """Reads the values of the partition columns from partition paths.

    `types`: the Arrow type of each partition column, in the order of the path. A column that the table does not have, such as
    a nested one, or of a type that cannot be read back, has None.
    """

    types: Mapping[str, pa.DataType | None]
    hive_style: bool
    url_encode: bool
    spelled: bool = True
    transforms: tuple[Transform, ...] = ()
    """How partition columns are computed from others."""

    @classmethod
    def of(cls, properties: TableProperties, schema: pa.Schema) -> PartitionValues:
        """For a table with these columns."""
        types = {
            name: schema.field(name).type if schema.get_field_index(name) >= 0 else None for name in properties.partition_fields
        }
        spelled = properties.key_generator in key_generators.KNOWN
        return cls(types, properties.hive_style, properties.url_encode, spelled, properties.transforms)

    @cached_property
    def readable(self) -> tuple[str, ...]:
        """The columns whose values the path can tell, in its order."""
        return (
            tuple(name for name, kind in self.types.items() if kind is not None and _is_readable(kind)) if self.spelled else ()
        )

    def possible(self, partition: str) -> Mapping[str, Values]:
        """For each column that this path says something about: every value that its rows may have."""
        texts = self._texts(partition)
        found = {name: _possible(texts[name], self.types[name]) for name in self.readable if name in texts}
        return {name: values for name, values in found.items() if values is not None}

    def exact(self, partition: str) -> Mapping[str, Value | None]:
        """The value of each column that all rows of this partition are certain to have."""
        return {name: values[0] for name, values in self.possible(partition).items() if len(values) == 1}

    def _texts(self, partition: str) -> Mapping[str, str]:
        """The text of each column; empty if the path is not made of one folder per column."""
        folders = partition.split("/")
        if len(folders) != len(self.types):
            return {}
        found = {}
        for name, folder in zip(self.types, folders, strict=True):
            text = folder
            if self.hive_style:
                label, equals, text = folder.partition("=") if "=" not in name else ("", "", "")
                if label != name or not equals:
                    return {}
            plain = unescape(text) if self.url_encode else text
            if self.url_encode and escape(plain) != text:
                return {}
            found[name] = plain
        return found


def _is_readable(kind: pa.DataType) -> bool:
    types = pa.types
    text = types.is_string(kind) or types.is_large_string(kind)
    number = types.is_signed_integer(kind) or types.is_boolean(kind) or types.is_decimal128(kind)
    return bool(text or number or types.is_date(kind) or (types.is_timestamp(kind) and kind.unit in ("ms", "us")))


def _possible(text: str, kind: pa.DataType | None) -> Values | None:
    """Every value with this text; None if there is none."""
    assert kind is not None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # Null and the empty text share one folder, whose name is a text like any other.
        return (None, "", DEFAULT_PARTITION) if text == DEFAULT_PARTITION else (text,)
    if text == DEFAULT_PARTITION:
        return (None,)
    try:
        value = _value(text, kind)
    except (ValueError, OverflowError, InvalidOperation):
        return None
    return None if value is None else (value,)


def _value(text: str, kind: pa.DataType) -> Value | None:
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}.get(text)
    if pa.types.is_decimal(kind):
        return _decimal(text, kind)
    if pa.types.is_date(kind):
        day = date.fromisoformat(text)
        return day if day.isoformat() == text else None
    if not _WHOLE(text):
        return None
    number = int(text)
    if pa.types.is_timestamp(kind):
        moment = _EPOCH + timedelta(microseconds=number * _UNITS[kind.unit])
        return moment if kind.tz is not None else moment.replace(tzinfo=None)
    return number if -(1 << kind.bit_width - 1) <= number < 1 << kind.bit_width - 1 else None


def _decimal(text: str, kind: pa.DataType) -> Value | None:
    if not _DECIMAL(text):
        return None
    value = Decimal(text)
    _, digits, exponent = value.as_tuple()
    return value if -exponent == kind.scale and len(digits) <= kind.precision and str(value) == text else None  # type: ignore[operator]
