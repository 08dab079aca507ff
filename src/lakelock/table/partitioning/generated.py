"""The partition columns of rows that are computed from other columns of theirs, by the table's transforms.

Where rows have the column that a transform reads, the partition column is computed, whatever they bring in it; where they lack
that column, they must bring the partition column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from lakelock.errors import SchemaError
from lakelock.table.columns.fields import spelled
from lakelock.table.properties import TableProperties
from lakelock.table.transforms import Transform

Rows = TypeVar("Rows")


def with_generated(rows: Rows, properties: TableProperties) -> Rows:
    """Arrow rows with the computed partition columns; rows of any kind as they are, if the table has none."""
    if not properties.transforms:
        return rows
    assert isinstance(rows, pa.Table)
    table = rows
    for transform in properties.transforms:
        source, there = places(transform, table.column_names)
        if source is not None:
            table = _replaced(table, there, transform, table.column(source))
    return table  # type: ignore[return-value]


def batches_with_generated(batches: Iterable[pa.RecordBatch], properties: TableProperties) -> Iterator[pa.RecordBatch]:
    """Batches of rows with the computed partition columns."""
    if not properties.transforms:
        yield from batches
        return
    for batch in batches:
        yield from with_generated(pa.Table.from_batches([batch]), properties).to_batches()


def fields_with_generated(columns: pa.Schema, properties: TableProperties) -> pa.Schema:
    """The columns that rows with `columns` have once their partition columns are computed."""
    for transform in properties.transforms:
        source, there = places(transform, columns.names)
        if source is not None:
            field = pa.field(there or transform.name, transform.type)
            columns = columns.append(field) if there is None else columns.set(columns.get_field_index(there), field)
    return columns


def places(transform: Transform, names: Sequence[str]) -> tuple[str | None, str | None]:
    """The columns of rows that the transform reads, and that it computes; `SchemaError` if they have neither."""
    source, there = spelled(transform.source, names), spelled(transform.name, names)
    if source is None and there is None:
        raise SchemaError(
            f"the rows to write have no column {transform.source!r}, of which their partition is computed: {transform}",
            hint=f"add it, or {transform.name} itself",
            column=transform.source,
        )
    return source, there


def _replaced(table: pa.Table, there: str | None, transform: Transform, source: pa.ChunkedArray) -> pa.Table:
    if pa.types.is_dictionary(source.type):
        source = source.cast(source.type.value_type)
    # Whether the column itself fits the table is asked later, and answered with a better error.
    computed = transform.of(source) if transform.takes(source.type) else pa.nulls(len(source), transform.type)
    field = pa.field(there or transform.name, transform.type)
    if there is None:
        return table.append_column(field, computed)
    return table.set_column(table.schema.get_field_index(there), field, computed)
