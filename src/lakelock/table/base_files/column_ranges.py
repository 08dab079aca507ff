"""The range of each column of a base file, from the statistics that Parquet keeps of its row groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakelock.table.statistics import ColumnRange


def column_ranges(metadata: pq.FileMetaData, schema: pa.Schema, *, most: int) -> dict[str, ColumnRange]:
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
        column = _together(chunks, open_above=pa.types.is_floating(field.type))
        if column is not None:
            found[field.name] = column
    return found


def _together(chunks: Iterable[Any], *, open_above: bool) -> ColumnRange | None:
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
