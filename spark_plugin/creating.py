"""Making a table from a Spark schema."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import StructType

from lakelock.clock import Runtime
from lakelock.errors import InputError
from lakelock.occ.create import create_table
from lakelock.spark_plugin.frames import arrow_schema
from lakelock.storage.location import StorageLocation
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema


def create(
    location: StorageLocation,
    schema: StructType,
    *,
    key: Sequence[str],
    partition_by: Sequence[str],
    order_by: str | None,
    name: str | None,
    hive_style: bool,
    runtime: Runtime,
) -> None:
    """Make an empty table; `SchemaError` or `InputError` before anything is written."""
    if not key:
        raise InputError("a table needs a key", hint='name the columns that identify a row: key=["order_id"]')
    columns = TableSchema.from_arrow(arrow_schema(schema))
    columns.require(key, "key")
    columns.require(partition_by, "partition")
    columns.require([order_by] if order_by else [], "ordering")
    table_name = name or location.uri.rpartition("/")[2]
    properties = TableProperties.new(
        table_name,
        key,
        partition_by,
        order_by,
        hive_style=hive_style,
        create_schema=columns.to_avro_json(table_name, null_first=False),
    )
    create_table(location.open(), properties, runtime)
