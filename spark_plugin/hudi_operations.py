"""Hudi's operations that a data source in Python cannot run, because they look keys up: run by `LakeTable`, in the driver."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lakelock.clock import SystemRuntime
from lakelock.errors import DuplicateKeyError, InputError, TableError
from lakelock.occ.create import table_exists
from lakelock.occ.request import WriteRequest
from lakelock.occ.targets import resources_of
from lakelock.spark_plugin.arguments import numbered
from lakelock.spark_plugin.data_source.options import SourceOptions, settings_given
from lakelock.spark_plugin.generated_columns import with_generated
from lakelock.spark_plugin.tables.lake_table import LakeTable
from lakelock.spark_plugin.writing import overwriting
from lakelock.spark_plugin.writing.attempt import column
from lakelock.table.properties import TableProperties

_RANK = "__lakelock_rank"
_SHOWN = 3


def run_operation(df: DataFrame, options: Mapping[str, str], parsed: SourceOptions, *, overwrite: bool) -> None:
    """Run the operation that the options name with these rows. `overwrite`: the writer's mode; an upsert then replaces all.

    A table that is not there yet is made, as by any write; only what deletes needs one (`TableError`).
    """
    deletes = parsed.operation in ("delete", "delete_partition")
    exists = table_exists(parsed.location.open())
    if deletes and not exists:
        raise TableError(f"{parsed.location.uri} is no table, so there is nothing to delete", hint="check the path")
    if not exists:
        parsed.stated.definition(parsed.location, df.schema).make(parsed.location, SystemRuntime(), if_not_exists=True)
    settings, config = settings_given(options)
    spark = df.sparkSession
    with LakeTable.for_path(spark, parsed.path, config=config, options=settings, application=parsed.application) as table:
        parsed.stated.check(table._coordinator)
        _run(table, df, parsed, replaces=overwrite and exists)


def _run(table: LakeTable, df: DataFrame, parsed: SourceOptions, *, replaces: bool) -> None:
    once = {"txn_app_id": parsed.txn_app_id, "txn_version": parsed.txn_version}
    within: dict[str, Any] = {"partition": parsed.partition, "tag": parsed.tag, **once}
    properties = table._coordinator.properties
    if parsed.operation == "upsert" and not replaces:
        table.upsert(df, **within)
    elif parsed.operation == "upsert":
        table.overwrite(_newest(df, properties, table), overwrite_schema=parsed.overwrite_schema, **within)
    elif parsed.operation == "delete":
        table.delete(df, **within)
    elif parsed.operation == "insert_overwrite":
        table.overwrite_partitions(df, **within)
    elif parsed.operation == "insert_overwrite_table":
        table.overwrite(df, overwrite_schema=parsed.overwrite_schema, **within)
    else:
        if parsed.partition is not None:
            raise InputError("delete_partition takes no option partition", hint="partitions_to_delete names what is deleted")
        named = _partitions(df, parsed, properties)
        delete = partial(overwriting.delete_partitions, targets=resources_of(named, properties))
        txn = numbered(parsed.txn_app_id, parsed.txn_version)
        table._write(WriteRequest("DELETE_PARTITION", named, parsed.tag, txn), delete)


def _partitions(df: DataFrame, parsed: SourceOptions, properties: TableProperties) -> list[str | Mapping[str, object]]:
    """The partitions that Hudi's option lists, else those that the rows are in."""
    if any("*" in partition for partition in parsed.partitions_to_delete):
        hint = "name a partition in full, or the beginning of its path: month=1 is all of month=1/day=..."
        raise InputError("partitions_to_delete takes no *", hint=hint)
    if parsed.partitions_to_delete:
        return list(parsed.partitions_to_delete)
    fields = properties.partition_fields
    if not fields:
        raise InputError("the table has no partitions", hint="use the operation delete, with the keys of the rows")
    found = [row.asDict() for row in with_generated(df, properties).select(*map(column, fields)).distinct().collect()]
    if not found:
        raise InputError("delete_partition was given no rows", hint="partitions_to_delete names partitions without any")
    return [{field: row[field] for field in fields} for row in found]


def _newest(df: DataFrame, properties: TableProperties, table: LakeTable) -> DataFrame:
    """One row for each key, as an upsert has it; `DuplicateKeyError` for rows of one key none of which is newer."""
    partition = () if properties.keys_span_partitions else properties.partition_fields
    names = list(dict.fromkeys((*properties.record_keys, *partition)))
    by_key = Window.partitionBy(*map(column, names))
    ordering = properties.ordering_field
    in_order = by_key.orderBy(F.lit(0) if ordering is None else column(ordering).desc_nulls_last())
    if table._settings.duplicates == "any":
        return df.withColumn(_RANK, F.row_number().over(in_order)).where(column(_RANK) == 1).drop(_RANK)
    newest = df.withColumn(_RANK, F.rank().over(in_order)).where(column(_RANK) == 1).drop(_RANK)
    twice = newest.groupBy(*map(column, names)).count().where("count > 1").limit(_SHOWN).collect()
    if twice:
        examples = ["/".join(str(row[name]) for name in names) for row in twice]
        raise DuplicateKeyError(
            f"several rows have the same key, and none of them is newer: {', '.join(examples)}",
            hint="remove the duplicates, give the table an ordering column, or set write.duplicates=any to keep any of them",
            keys=examples,
        )
    return newest
