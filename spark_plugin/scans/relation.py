"""A Spark relation over given files that Spark can prune by partition columns; built in the JVM, without listing anything.

It is what `spark.read.parquet` would build, with three differences. Its file index is filled with the snapshot's files
beforehand (`SnapshotFiles.java`). The partition columns and their values are given, so that any layout of folders will do. And
no filter is pushed into Parquet that leaves out rows which Spark would find (`ParquetReader.java`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files as resources
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakelock.errors import CorruptTableError
from lakelock.spark_plugin.frames import spark_schema
from lakelock.spark_plugin.session.classes import PYTHON_UTILS, java_class
from lakelock.spark_plugin.session.versions import local_frame
from lakelock.table.instants import parse_instant
from lakelock.table.snapshot import DataFile
from lakelock.table.statistics import Value

AS_STORED = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
"""Options of a reader that gives all rows as they are, whatever the session's configuration says.

A file whose footer names the Spark that wrote it, as those of Java Hudi's row writers do, also tells the calendar of its dates,
and Spark goes by that. No other writer of Hudi's files uses the calendar of before 1582.
"""
_CLASSES = ("SnapshotFiles", "ParquetReader")
_compiled: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
"""An object of each compiled class, by its name, for each JVM that this process has talked to."""


@dataclass(frozen=True)
class Partitioned:
    """Partition columns, at least one, and for each partition path their values; every file is in one of these partitions."""

    columns: pa.Schema
    values: Mapping[str, Mapping[str, Value | None]]


def relation_over(
    spark: SparkSession, root: str, files: Sequence[DataFile], schema: StructType, by: Partitioned | None = None
) -> DataFrame:
    """A frame over at least one file. `Py4JError` or `TypeError` if this Spark's internal classes differ from the known ones.

    The values of the columns of `by` come from there, all others from the files. No request goes to storage: a file that
    is gone or damaged fails the job that reads it, even if the session ignores such files.
    """
    relation = _Relation(spark, root, files, schema)
    return relation.partitioned(by) if by is not None else relation.plain()


class _Relation:
    """The parts of a relation, in the JVM."""

    def __init__(self, spark: SparkSession, root: str, files: Sequence[DataFile], schema: StructType) -> None:
        self._spark, self._root, self._files, self._schema = spark, root, files, schema
        self._session: Any = spark._jsparkSession
        self._python: Any = java_class(spark, PYTHON_UTILS)

    def plain(self) -> DataFrame:
        none = self._source("PartitionSpec").emptySpec()
        # Without partitions Spark shows only files in the root itself, unless it is told to look deeper.
        return self._frame(StructType(), none, {"recursiveFileLookup": "true"})

    def partitioned(self, by: Partitioned) -> DataFrame:
        columns = StructType([self._schema[name] for name in by.columns.names])
        rows = pa.Table.from_pylist(list(by.values.values()), by.columns)
        plan = local_frame(self._spark, rows, spark_schema(by.columns))._jdf.queryExecution().analyzed()
        local = plan.collectLeaves().head()
        found = self._ours("SnapshotFiles").partitions(self._root, "\0".join(by.values), local.data())
        spec = self._source("PartitionSpec")(self._java(columns), self._python.toSeq(found))
        return self._frame(columns, spec, {})

    def _frame(self, partition_columns: StructType, spec: Any, options: Mapping[str, str]) -> DataFrame:
        option = java_class(self._spark, "scala.Option")
        none = option.apply(None)
        # Spark treats indexes over the same folder as equal; any difference between two snapshots has to be in the options.
        parameters = {**options, **AS_STORED, "lakelock.files": self._digest()}
        given = self._python.toScalaMap(parameters)
        columns = self._java(self._schema)
        roots = self._python.toSeq([java_class(self._spark, "org.apache.hadoop.fs.Path")(self._root)])
        index = self._source("InMemoryFileIndex")(
            self._session, roots, given, option.apply(columns), self._listed(), option.apply(spec), none
        )
        relation = self._source("HadoopFsRelation")(
            index, self._java(partition_columns), columns, none, self._ours("ParquetReader"), given, self._session
        )
        return DataFrame(self._session.baseRelationToDataFrame(relation), self._spark)

    def _listed(self) -> Any:
        files = self._files
        times = {instant: _written_at_ms(instant) for instant in {file.instant for file in files}}
        return self._ours("SnapshotFiles").of(
            self._root,
            "\0".join(file.key for file in files),
            "\0".join(str(file.size_bytes) for file in files),
            "\0".join(str(times[file.instant]) for file in files),
        )

    def _digest(self) -> str:
        found = hashlib.sha256()
        for file in self._files:
            found.update(file.key.encode())
            found.update(b"\0")
        return found.hexdigest()

    def _source(self, name: str) -> Any:
        return java_class(self._spark, f"org.apache.spark.sql.execution.datasources.{name}")

    def _java(self, schema: StructType) -> Any:
        return self._session.parseDataType(schema.json())

    def _ours(self, name: str) -> Any:
        gateway: Any = self._spark.sparkContext._gateway
        if gateway not in _compiled:
            _compiled[gateway] = {each: self._made(each, gateway) for each in _CLASSES}
        return _compiled[gateway][name]

    def _made(self, name: str, gateway: Any) -> Any:
        compiler = java_class(self._spark, "org.codehaus.janino.SimpleCompiler")()
        thread = java_class(self._spark, "java.lang.Thread").currentThread()
        compiler.setParentClassLoader(thread.getContextClassLoader())
        compiler.cook((resources("lakelock.spark_plugin") / f"{name}.java").read_text())
        found = compiler.getClassLoader().loadClass(f"lakelock.{name}")
        no_types, nothing = (gateway.new_array(java_class(self._spark, f"java.lang.{name}"), 0) for name in ("Class", "Object"))
        return found.getConstructor(no_types).newInstance(nothing)


def _written_at_ms(instant: str) -> int:
    """The time in an instant; 1970 for one that is not a time, such as Java's names of bootstrapped slices."""
    try:
        return parse_instant(instant)
    except CorruptTableError:
        return 0
