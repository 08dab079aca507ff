"""The columns of a `LakeTable`: what may change while all its files stay as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from lakelock.errors import InputError
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.services.alter import alter
from lakelock.spark_plugin.arguments import names
from lakelock.spark_plugin.frames import arrow_schema
from lakelock.spark_plugin.lost_spark import needs_spark
from lakelock.spark_plugin.results import WriteResult
from lakelock.table.alterations import Alteration

Types = Mapping[str, "str | DataType"]
"""Columns, or fields inside them such as `address.zip`, and their types: Spark's, or their names in SQL."""


class TableColumns:
    """The operations of a `LakeTable` that change its columns."""

    _spark: SparkSession
    _coordinator: Coordinator

    @needs_spark
    def add_columns(self, columns: Types, *, tag: str = "") -> WriteResult:
        """Add columns that may be null: `table.add_columns({"note": "string", "address.zip": "string"})`.

        No file is written: stored rows have null in them. Running writers go on, and keep the new columns. Fields inside lists
        and maps are named `items.element.price` and `prices.value.net`. `SchemaError` for a column that is there.
        """
        return self._altered(Alteration(add=self._types(columns)), tag)

    @needs_spark
    def widen_columns(self, columns: Types, *, tag: str = "") -> WriteResult:
        """Give columns wider types: `table.widen_columns({"quantity": "bigint", "price": "decimal(20, 4)"})`.

        int becomes bigint or double, float double, and decimals get more digits on both sides of the point; anything else is a
        `SchemaError`. No file is written: old ones are read in the new types.
        """
        return self._altered(Alteration(widen=self._types(columns)), tag)

    @needs_spark
    def relax_columns(self, columns: str | Sequence[str], *, tag: str = "") -> WriteResult:
        """Let columns be null that must not be, as Java's tables have them: `table.relax_columns("price")`."""
        return self._altered(Alteration(relax=names(columns)), tag)

    def _altered(self, alteration: Alteration, tag: str) -> WriteResult:
        return WriteResult.of(alter(self._coordinator, alteration, tag=tag))

    def _types(self, columns: Types) -> dict[str, pa.DataType]:
        if not isinstance(columns, Mapping):
            raise InputError(
                f"{columns!r} is not a mapping from columns to types", hint='use {"column": "type"}, such as {"note": "string"}'
            )
        return {path: self._arrow(path, given) for path, given in columns.items()}

    def _arrow(self, path: str, given: str | DataType) -> pa.DataType:
        spark = given if isinstance(given, DataType) else self._spark.createDataFrame([], f"c {given}").schema[0].dataType
        return arrow_schema(StructType([StructField(path, spark)])).field(0).type
