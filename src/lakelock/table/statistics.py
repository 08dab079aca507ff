"""The statistics of one file: its number of rows, key range, and each column's range, known without opening the file.

They come from the row groups of the Parquet file (`column_ranges`), and a writer records them in the extra metadata of
its commit, as JSON under `lakelock.statistics`: `{"<path>": [key_min, key_max, {"<column>": [least, greatest, nulls]}]}`.
Dates, timestamps and decimals are objects with one letter for the kind. A damaged record, or one of a later version,
counts as not recorded.

Unknown values, such as those of another engine's commit, are None or left out, and must be taken for "anything".
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakelock.parsing import JsonObject
from lakelock.table.commit_metadata import WriteStat

Value = bool | int | float | str | date | datetime | Decimal
"""A value of a column, as pyarrow's `as_py` gives it. Timestamps with a zone are in UTC, those without have none."""

LONGEST_TEXT = 32
"""Texts are cut to this many characters: the least one down, the greatest one up."""

_LAST_CHARACTER, _BEFORE_SURROGATES, _AFTER_SURROGATES = 0x10FFFF, 0xD7FF, 0xE000


@dataclass(frozen=True)
class ColumnRange:
    """The least and the greatest value of one column of a file, and how many nulls it has; None where it is not known.

    No value lies outside the range, but its ends need not occur: texts are cut. Texts are compared by code points, as
    Python and UTF-8 do. Where `nulls` is the number of rows there is no value, and both ends are None.
    """

    least: Value | None = None
    greatest: Value | None = None
    nulls: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.least, str):
            object.__setattr__(self, "least", at_most(self.least))
        if isinstance(self.greatest, str):
            object.__setattr__(self, "greatest", at_least(self.greatest))


@dataclass(frozen=True)
class FileStatistics:
    """What the writer of one file knew about it. `key_min` and `key_max` are record keys in the order of Java's strings
    (`table/base_files.py`), never cut; empty keys and None mean unknown.
    """

    rows: int | None = None
    key_min: str | None = None
    key_max: str | None = None
    columns: Mapping[str, ColumnRange] = dataclasses.field(default_factory=lambda: MappingProxyType({}))


UNKNOWN = FileStatistics()
"""For a file about which nothing was recorded."""


def at_most(text: str) -> str:
    """A text of at most `LONGEST_TEXT` characters that is not greater."""
    return text[:LONGEST_TEXT]


def at_least(text: str) -> str | None:
    """A text of at most `LONGEST_TEXT` characters that is not less; None if there is none."""
    if len(text) <= LONGEST_TEXT:
        return text
    kept = text[:LONGEST_TEXT]
    while kept:
        code = ord(kept[-1])
        if code < _LAST_CHARACTER:
            return kept[:-1] + chr(_AFTER_SURROGATES if code == _BEFORE_SURROGATES else code + 1)
        kept = kept[:-1]
    return None


STATISTICS = "lakelock.statistics"
MOST_CHARACTERS = 262_144
"""The most bytes of statistics in a commit, which is written under the lock. Beyond it columns are left out, then keys."""


def statistics_text(statistics: FileStatistics) -> str:
    """What a task reports to its driver about one file."""
    ranges = {name: [*map(_plain, (r.least, r.greatest)), r.nulls] for name, r in statistics.columns.items()}
    return json.dumps([statistics.key_min, statistics.key_max, ranges], separators=(",", ":"))


def statistics_of_commit(stats: Iterable[WriteStat]) -> str:
    """What a commit records about all its files; empty if it records nothing."""
    files = {stat.path: json.loads(stat.recorded) for stat in stats if stat.path and stat.recorded}
    for kept in (files, {path: [least, greatest, {}] for path, (least, greatest, _) in files.items()}):
        text = json.dumps(kept, separators=(",", ":"))
        if len(text) <= MOST_CHARACTERS:
            return text if kept else ""
    return ""


def statistics_by_path(text: str) -> Mapping[str, tuple[str | None, str | None, str | None]]:
    """Key range and the text of the column ranges for each file that a commit describes."""
    try:
        found = JsonObject.parse(text).fields if text else {}
        return {
            path: (
                _text(least),
                _text(greatest),
                json.dumps(columns, separators=(",", ":"), sort_keys=True) if columns else None,
            )
            for path, (least, greatest, columns) in found.items()
        }
    except (ValueError, TypeError):
        return {}


def column_ranges_in(text: str | None) -> dict[str, ColumnRange]:
    """The ranges in the text that `by_path` gives."""
    try:
        found = JsonObject.parse(text).fields if text else {}
        return {
            name: ColumnRange(_value(least), _value(greatest), nulls if isinstance(nulls, int) else None)
            for name, (least, greatest, nulls) in found.items()
        }
    except (ValueError, TypeError, InvalidOperation):
        return {}


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise ValueError("a key is not text")


def _plain(value: Value | None) -> Any:
    if isinstance(value, datetime):
        return {"t": value.isoformat()}
    if isinstance(value, date):
        return {"d": value.isoformat()}
    if isinstance(value, Decimal):
        return {"n": str(value)}
    return value if isinstance(value, bool | int | float | str) else None


def _value(plain: Any) -> Value | None:
    if isinstance(plain, dict):
        ((kind, text),) = plain.items()
        readers: dict[str, Any] = {"t": datetime.fromisoformat, "d": date.fromisoformat, "n": Decimal}
        return readers[kind](text) if kind in readers else None  # type: ignore[no-any-return]
    return plain if isinstance(plain, bool | int | float | str) else None


def ranges_in_footer(metadata: pq.FileMetaData, schema: pa.Schema, *, most: int) -> dict[str, ColumnRange]:
    """The ranges of the first `most` columns that are not nested, by name; those of which nothing is known are left out.

    Of floating-point columns the greatest value is not told: Parquet passes over NaN, which is greater than any other.
    """
    flat = [field for field in schema if not pa.types.is_nested(field.type)][:most]
    if not flat or not metadata.num_row_groups:
        return {}
    first = metadata.row_group(0)
    places = {first.column(number).path_in_schema: number for number in range(first.num_columns)}
    found = {}
    for field in flat:
        number = places.get(field.name)
        if number is None:
            continue
        chunks = [metadata.row_group(group).column(number).statistics for group in range(metadata.num_row_groups)]
        column = _range_of_chunks(chunks, open_above=pa.types.is_floating(field.type))
        if column is not None:
            found[field.name] = column
    return found


def _range_of_chunks(chunks: Iterable[Any], *, open_above: bool) -> ColumnRange | None:
    least: Any = None
    greatest: Any = None
    nulls = 0
    known = True
    for chunk in chunks:
        if chunk is None or not chunk.has_null_count:
            return None
        nulls += chunk.null_count
        if chunk.has_min_max:
            try:
                low, high = chunk.min, chunk.max
            except (OverflowError, ValueError):  # a day that Python has not, or text that is not UTF-8
                known = False
                continue
            least = low if least is None else min(least, low)
            greatest = high if greatest is None else max(greatest, high)
        elif chunk.num_values:  # values, of which none is told: too long, or NaN
            known = False
    if not known or isinstance(least, bytes):
        return ColumnRange(nulls=nulls)
    return ColumnRange(least, None if open_above else greatest, nulls)
