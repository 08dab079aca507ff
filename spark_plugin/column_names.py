"""Which column of a table a name means: in whatever case, unless the session tells upper case from lower case."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from lakelock.errors import SchemaError
from lakelock.table.rows import spelled
from lakelock.table.schema import TableSchema
from lakelock.texts import column_hint


@dataclass(frozen=True)
class ColumnNames:
    """The names of a table's columns, as assignments, merges and statements of one session mean them.

    The rows of a write mean the table's columns in whatever case in every session: it has no two that differ in case only.
    """

    names: tuple[str, ...]
    exactly: bool

    @classmethod
    def of(cls, spark: SparkSession, schema: TableSchema) -> ColumnNames:
        """Of a table with this schema, told apart as the session does now (`spark.sql.caseSensitive`)."""
        return cls(tuple(schema.names), str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true")

    def spelling(self, name: str) -> str:
        """A name as the table spells it; itself if the table has no such column."""
        return name if self.exactly else spelled(name, self.names) or name

    def spelled(self, frame: DataFrame) -> DataFrame:
        """A frame with its columns spelt as the table's."""
        return frame if self.exactly else frame.toDF(*map(self.spelling, frame.columns))

    def missing_in(self, columns: Iterable[str]) -> list[str]:
        """The table's columns that none of these means."""
        there = {self.spelling(name) for name in columns}
        return [name for name in self.names if name not in there]

    def refuse_other_case(self, columns: Iterable[str]) -> None:
        """`SchemaError` for a column that is the table's in another case, where the session tells them apart."""
        for name in columns if self.exactly else ():
            if name not in self.names and spelled(name, self.names) is not None:
                raise SchemaError(f"the table has no column {name!r}", hint=column_hint(name, self.names), column=name)
