"""Folders of Parquet that become tables: what may be imported, how it is read, and that it happens once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelock.errors import DuplicateKeyError, InputError, SchemaError, TableError
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.coordinator import Coordinator
from lakelock.settings import Settings
from lakelock.spark_plugin.hadoop import spark_path
from lakelock.spark_plugin.spark_session import arrow_schema, column
from lakelock.storage.location import StorageLocation, canonical_uri
from lakelock.table import layout
from lakelock.table.record_keys import key_text
from lakelock.table.schema import META_COLUMNS

_MOST_LOOKED_AT = 1000
_SHOWN = 5
_ROWS = "_lakelock_rows"
_TABLES = {
    layout.HOODIE: ("a Hudi table", "open it: LakeTable.for_path(spark, path)"),
    "_delta_log": ("a Delta table", "read it with Delta: LakeTable.create(spark, path, schema=df, key=...).insert(df)"),
    "metadata": ("an Iceberg table", "read it with Iceberg: LakeTable.create(spark, path, schema=df, key=...).insert(df)"),
}


@dataclass(frozen=True)
class Source:
    """A folder of Parquet as Spark reads it. `partition_by`: the columns that its folders are named by."""

    uri: str
    frame: DataFrame
    partition_by: tuple[str, ...]

    @classmethod
    def of(cls, spark: SparkSession, folder: str | Path, path: str | Path, settings: Settings) -> Source:
        """The folder, to become a table at `path`; `InputError` says why it cannot. `settings` are those of its storage."""
        uri = canonical_uri(folder)
        _require_apart(uri, canonical_uri(path))
        _require_no_table(uri, settings)
        frame = _read(spark, spark_path(spark, folder, uri), uri)
        if hudis := [name for name in frame.columns if name in META_COLUMNS]:
            raise InputError(
                f"{uri} has the column {hudis[0]}: its files are those of a Hudi table, old versions of them included",
                hint="open the table: LakeTable.for_path(spark, path); or drop these columns in files of your own",
            )
        return cls(uri, frame, _named_by(frame))

    @property
    def number(self) -> AppTransaction:
        """Under what name the import is in the table: the same each time, so it is there once."""
        return AppTransaction(f"lakelock.from_parquet:{self.uri}", 1)

    def require_keys(self, key: Sequence[str], within: Sequence[str], *, once: bool) -> None:
        """`SchemaError` for rows without a key and, if each key is to be there `once`, `DuplicateKeyError` for the others.

        So a folder that cannot become a table is refused before there is one. `within`: the partition columns. Where one
        of them is computed, the write of the rows finds out whether a key is there twice.
        """
        names, there = dict.fromkeys([*key, *within]), {name.lower() for name in self.frame.columns}
        if not all(name.lower() in there for name in key):
            return  # making the table says which is missing
        once = once and all(name.lower() in there for name in names)
        keys = [column(name) for name in key]
        no_key = reduce(Column.__and__, (each.isNull() | (each.cast("string") == "") for each in keys))
        try:
            for field in arrow_schema(self.frame.select(*keys).schema):
                key_text(pa.chunked_array([], field.type), field.name)
            if self.frame.where(no_key).select(*keys).take(1):
                raise SchemaError(
                    f"{', '.join(key)}: null or empty in some rows of {self.uri}, and a row needs its key",
                    hint="choose other key columns, or fill these",
                )
            groups = self.frame.groupBy(*map(column, names)).agg(F.count("*").alias(_ROWS))
            twice = groups.where(F.col(_ROWS) > 1).select(*keys).take(_SHOWN) if once else []
        except (PySparkException, Py4JJavaError) as error:
            raise _unreadable(self.uri, error) from error
        if twice:
            examples = ["/".join(map(str, row)) for row in twice]
            raise DuplicateKeyError(
                f"rows of {self.uri} have the same key: {', '.join(examples)}",
                hint='add a column to key, give order_by to keep the newest row of each key, or duplicates="any" to keep any',
                keys=examples,
            )


def is_imported(coordinator: Coordinator, source: Source) -> bool:
    """Whether the table has the rows of this import already; `TableError` if it has other rows."""
    if coordinator.applied_by(source.number) is not None:
        return True
    if coordinator.table.timeline().commits:
        raise TableError(
            f"{coordinator.table.storage.uri} is a table already, and not one that was imported from {source.uri}",
            hint="choose another path, or write into it: table.upsert(spark.read.parquet(folder))",
        )
    return False


def _require_apart(folder: str, table: str) -> None:
    if folder == table:
        raise InputError(
            f"{folder} cannot become a table in its place: the rows are written again, with Hudi's columns",
            hint="choose another path for the table",
        )
    for outer, inner in ((folder, table), (table, folder)):
        if inner.startswith(f"{outer}/"):
            raise InputError(f"{inner} is inside {outer}", hint="choose a path for the table beside the folder")


def _require_no_table(uri: str, settings: Settings) -> None:
    """Look for the logs of tables in the folder; and above it as far as it looks like a partition of one."""
    for place in _places(uri):
        storage = StorageLocation(place, settings.storage).open()
        for log, (what, hint) in _TABLES.items():
            found = (each.key for each in islice(storage.list(log), _MOST_LOOKED_AT))
            if any(log != "metadata" or key.endswith(".metadata.json") for key in found):
                raise InputError(f"{place} is {what}, which has files that are not its rows", hint=hint)


def _places(uri: str) -> Iterator[str]:
    yield uri
    while "=" in uri.rpartition("/")[2]:
        uri = uri.rpartition("/")[0]
        yield uri


def _read(spark: SparkSession, path: str, uri: str) -> DataFrame:
    try:
        frame = spark.read.option("mergeSchema", "true").parquet(path)
    except (PySparkException, Py4JJavaError) as error:
        why = _message_of(error)
        if any(word in why for word in ("UNABLE_TO_INFER_SCHEMA", "PATH_NOT_FOUND")):
            raise InputError(
                f"{uri} has no Parquet files", hint="give the folder that holds them, or that of the partitions"
            ) from error
        raise _unreadable(uri, error) from error
    if not frame.columns:
        raise InputError(f"the Parquet files of {uri} have no columns", hint="give another folder")
    return frame


def _unreadable(uri: str, error: PySparkException | Py4JJavaError) -> InputError:
    return InputError(
        f"the Parquet files of {uri} cannot be read as one table: {_message_of(error)}",
        hint="make their columns fit, and leave damaged files out",
    )


def _message_of(error: PySparkException | Py4JJavaError) -> str:
    message = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error
    return str(message).splitlines()[0]


def _named_by(frame: DataFrame) -> tuple[str, ...]:
    """The columns that Spark took from the names of folders."""
    try:
        relation: Any = frame._jdf.queryExecution().analyzed().relation()
        return tuple(str(name) for name in relation.partitionSchema().fieldNames())
    except Py4JError:
        return ()
