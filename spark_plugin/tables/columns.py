"""The columns of a `LakeTable`: what changes while all its files stay as they are, and what writes all rows again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from lakelock.checked_calls import checked_calls
from lakelock.errors import InputError
from lakelock.occ.alter import alter
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.request import WriteRequest
from lakelock.occ.results import WriteResult
from lakelock.spark_plugin.arguments import names
from lakelock.spark_plugin.frames import arrow_schema
from lakelock.spark_plugin.session.lost_spark import needs_spark
from lakelock.spark_plugin.writing.overwriting import rename_columns
from lakelock.table.schema_changes import Alteration, renamed

Types = Mapping[str, str | DataType]
"""Columns, or fields inside them such as `address.zip`, and their types: Spark's, or their names in SQL."""


@checked_calls
class Columns:
    """`table.columns`: what changes the columns of a `LakeTable`."""

    def __init__(self, spark: SparkSession, coordinator: Coordinator, write: Callable[..., WriteResult]) -> None:
        self._spark, self._coordinator, self._write = spark, coordinator, write

    @needs_spark
    def add(self, columns: Types, *, tag: str = "") -> WriteResult:
        """Add columns that may be null: `table.columns.add({"note": "string", "address.zip": "string"})`.

        No file is written: stored rows have null in them. Running writers go on, and keep the new columns. Fields inside lists
        and maps are named `items.element.price` and `prices.value.net`. `SchemaError` for a column that is there.
        """
        return self._altered(Alteration(add=self._types(columns)), tag)

    @needs_spark
    def widen(self, columns: Types, *, tag: str = "") -> WriteResult:
        """Give columns wider types: `table.columns.widen({"quantity": "bigint", "price": "decimal(20, 4)"})`.

        int becomes bigint or double, float double, and decimals get more digits on both sides of the point; anything else is a
        `SchemaError`. No file is written: old ones are read in the new types.
        """
        return self._altered(Alteration(widen=self._types(columns)), tag)

    @needs_spark
    def relax(self, columns: str | Sequence[str], *, tag: str = "") -> WriteResult:
        """Let columns be null that must not be, as Java's tables have them: `table.columns.relax("price")`."""
        return self._altered(Alteration(relax=names(columns)), tag)

    @needs_spark
    def reorder(self, columns: str | Sequence[str], *, tag: str = "") -> WriteResult:
        """Put these columns first, in this order; the others follow in theirs: `table.columns.reorder(["price", "note"])`.

        Fields inside columns are named as `place.zip`, and come first there. No file is written: every reader finds columns by
        their names. Two who reorder at the same time conflict.
        """
        return self._altered(Alteration(first=names(columns)), tag)

    @needs_spark
    def rename(self, columns: Mapping[str, str], *, tag: str = "") -> WriteResult:
        """Give columns, or fields inside them, other names: `table.columns.rename({"price": "cost", "place.zip": "postcode"})`.

        All rows are written again, in one transaction that everybody else's commit makes run again: files find their columns by
        name. Key, partition and ordering columns keep their names: a `SchemaError`.
        `read(as_of=...)` shows the old names as before; the change feed does not go across it.
        """
        return self._written_again(_new_names(columns), (), tag)

    @needs_spark
    def drop(self, columns: str | Sequence[str], *, tag: str = "") -> WriteResult:
        """Remove columns, or fields inside them, and their values: `table.columns.drop(["note", "items.element.price"])`.

        All rows are written again, as by `rename`.
        """
        return self._written_again({}, names(columns), tag)

    def _written_again(self, rename: Mapping[str, str], drop: Sequence[str], tag: str) -> WriteResult:
        renamed(self._coordinator.schema(), self._coordinator.properties, rename, drop)
        return self._write(WriteRequest("INSERT_OVERWRITE_TABLE", tag=tag), partial(rename_columns, rename=rename, drop=drop))

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


def _new_names(given: object) -> dict[str, str]:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for pair in given.items() for name in pair):
        raise InputError(f"{given!r} is not a mapping from old to new names", hint='use {"old": "new"}')
    return dict(given)
