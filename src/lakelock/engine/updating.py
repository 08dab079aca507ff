"""New values for the rows of a file: computed from the old ones, in the types of their columns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.engine.sql_texts import evaluated
from lakelock.errors import InputError, SchemaError
from lakelock.storage import Storage
from lakelock.table.base_files import BaseFile
from lakelock.table.merged_slices import open_slice
from lakelock.table.properties import TableProperties
from lakelock.table.rewriting import DeleteMask, Placed
from lakelock.table.rows import conform, lacking, why_not_fits
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile
from lakelock.texts import column_hint


def checked_values(values: Mapping[str, pc.Expression], schema: TableSchema, properties: TableProperties) -> None:
    """`SchemaError` unless stored rows may get these values: the columns say nothing of where a row is, and the types fit."""
    if not values:
        raise InputError("an update sets no column", hint='name columns and their new values: {"price": "price * 2"}')
    fixed = {transform.source: f"the column of {transform}, a partition" for transform in properties.transforms}
    fixed |= dict.fromkeys(properties.partition_fields, "a partition column")
    fixed |= dict.fromkeys(properties.record_keys, "a record key column")
    for name in values:
        if name not in schema.names:
            raise SchemaError(f"the table has no column {name!r}", hint=column_hint(name, schema.names), column=name)
        if name in fixed:
            raise SchemaError(
                f"{name} is {fixed[name]}, whose stored values cannot be changed",
                hint="delete the rows and insert them with the new values, in one transaction",
                column=name,
            )
    _fitted(evaluated(values, schema.arrow.empty_table()), schema)


def new_values(
    file: DataFile, *, schema: TableSchema, values: Mapping[str, pc.Expression], chosen: DeleteMask | None, storage: Storage
) -> Placed:
    """The new values of the rows of a file that are `chosen`, all without it, and where these rows are."""
    positions, rows, start = [np.array([], np.int64)], [], 0
    with BaseFile(open_slice(file, storage, schema), file.key) as base:
        for batch in base.batches(schema):
            mask = np.ones(batch.num_rows, np.bool_) if chosen is None else np.asarray(pc.fill_null(chosen(batch), False))
            if mask.any():
                rows.append(_fitted(evaluated(values, batch.filter(pa.array(mask))), schema))
                positions.append(np.flatnonzero(mask) + start)
            start += batch.num_rows
    empty = pa.schema([field for field in schema.arrow if field.name in values]).empty_table()
    return Placed(pa.concat_tables([empty, *rows]), np.concatenate(positions))


def _fitted(found: pa.Table, schema: TableSchema) -> pa.Table:
    """The values in the types of their columns; `SchemaError` for one that its column cannot hold."""
    fields = [field for field in schema.arrow if field.name in found.column_names]
    columns = [_as(found.column(field.name), field) for field in fields]
    return conform(pa.table(columns, names=[field.name for field in fields]), pa.schema(fields))


def _as(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Numbers become those of the column where none of them changes its value, but for digits of a decimal that it rounds."""
    types, given, wanted = pa.types, values.type, field.type
    whole, decimal = types.is_integer(given), types.is_decimal(given)
    if (
        (whole and types.is_integer(wanted) | types.is_floating(wanted) | types.is_decimal(wanted))
        or (types.is_floating(given) and types.is_floating(wanted))
        or (decimal and types.is_decimal(wanted) | types.is_floating(wanted))
    ):
        try:
            if decimal and types.is_decimal(wanted) and given.scale > wanted.scale:
                values = pc.round(values, wanted.scale, "half_towards_infinity")
            if whole and types.is_decimal(wanted):
                values = values.cast(pa.decimal256(76, wanted.scale))  # Arrow goes by the widest number of a type otherwise
            return values.cast(wanted, safe=not types.is_floating(wanted))
        except pa.ArrowException as error:
            raise SchemaError(
                f"a new value of {field.name} does not fit {wanted}: {str(error).splitlines()[0]}",
                hint="widen the column first, or choose other rows",
                column=field.name,
            ) from error
    misfits = why_not_fits(given, wanted, field.name)
    misfits += [f"{lack.path}: missing" for lack in lacking([field], [pa.field(field.name, given)])]
    if misfits:
        raise SchemaError(
            f"the new value does not fit its column: {misfits[0]}",
            hint="compute it in the type of the column",
            column=field.name,
        )
    return values
