"""The columns that a read names itself, by `.schema(...)`: whether they can hold what the table has."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lakelock.errors import SchemaError
from lakelock.spark_plugin.frames import arrow_schema, spark_schema
from lakelock.table.rows import Fields, why_not_fits
from lakelock.texts import column_hint


def check_asked(columns: pa.Schema, asked: pa.Schema) -> None:
    """`SchemaError` for a column that the table lacks, or whose values the asked type cannot all hold.

    Any column, and any field of a struct, may be left out.
    """
    unknown = [name for name in asked.names if name not in columns.names]
    if unknown:
        hint = column_hint(unknown[0], columns.names)
        raise SchemaError(f"the schema of the read asks for {', '.join(unknown)}, which the table does not have", hint=hint)
    there = arrow_schema(spark_schema(pa.schema([columns.field(name) for name in asked.names])))
    pairs = zip(there, asked, strict=True)
    problems = [why for field, wanted in pairs for why in _misfits(field.type, wanted.type, field.name)]
    if problems:
        raise SchemaError(
            "the schema of the read cannot hold what the table has:\n  " + "\n  ".join(problems),
            hint="name in .schema(...) the table's type, or one that holds all of its values, or leave the schema out; "
            "a cast in the query then says what is to become of values that do not fit",
        )


def _misfits(there: pa.DataType, asked: pa.DataType, where: str) -> Iterator[str]:
    """What the table has `there` that `asked` cannot hold, a sentence for each place."""
    types = pa.types
    if types.is_struct(there) and types.is_struct(asked):
        fields = Fields(there)
        for child in asked:
            found = fields.find(child.name)
            if found is None:
                yield f"{where}.{child.name}: the table's column has no such field"
            else:
                yield from _misfits(found.type, child.type, f"{where}.{child.name}")
    elif types.is_list(there) and types.is_list(asked):
        yield from _misfits(there.value_type, asked.value_type, f"{where}[]")
    elif types.is_map(there) and types.is_map(asked):
        yield from _misfits(there.key_type, asked.key_type, f"{where} (keys)")
        yield from _misfits(there.item_type, asked.item_type, f"{where}{{}}")
    elif why_not_fits(there, asked, where):
        yield f"{where}: the table has {_named(there)}, and the read asks for {_named(asked)}"


def _named(arrow: pa.DataType) -> str:
    """A type as Spark calls it."""
    found: str = spark_schema(pa.schema([("c", arrow)]))["c"].dataType.simpleString()
    return found
