"""Reading exactly the files of a snapshot with Spark's own Parquet reader.

The frame is a relation that Spark can prune by partition columns; it is built in the JVM, without listing anything. It is what
`spark.read.parquet` would build, with three differences. Its file index is filled with the snapshot's files beforehand
(`SnapshotFiles.java`). The partition columns and their values are given, so that any layout of folders will do. And no filter
is pushed into Parquet that leaves out rows which Spark would find (`ParquetReader.java`).

For a Spark with unexpected internal classes the files are named to `spark.read`: Spark then lists the folders once more, and
does not prune by partition columns.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any
from weakref import WeakSet

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from lakelock.errors import CorruptTableError, StorageError
from lakelock.events import Event, EventKind, Events
from lakelock.spark_plugin.spark_session import (
    PYTHON_UTILS,
    column_of,
    condition_of,
    java_class,
    local_frame,
    own_class,
    quoted,
    require_running,
    scala_object,
    spark_schema,
    takes_structs_for_null,
)
from lakelock.table.commit_metadata import Value
from lakelock.table.instants import parse_instant
from lakelock.table.partitions import PartitionValues
from lakelock.table.snapshot import DataFile

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
reported_slow: WeakSet[Any] = WeakSet()
"""The JVMs whose slow reads were reported."""


@dataclass(frozen=True)
class Partitioned:
    """Partition columns, at least one, and for each partition path their values; every file is in one of these partitions."""

    columns: pa.Schema
    values: Mapping[str, Mapping[str, Value | None]]


def relation_over(
    spark: SparkSession, root: str, files: Sequence[DataFile], schema: StructType, by: Partitioned | None = None
) -> DataFrame:
    """A frame over at least one file. `Py4JError` if this Spark's internal classes differ from the known ones.

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
        found = own_class(self._spark, "SnapshotFiles").partitions(self._root, "\0".join(by.values), local.data())
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
            index, self._java(partition_columns), columns, none, own_class(self._spark, "ParquetReader"), given, self._session
        )
        return DataFrame(self._session.baseRelationToDataFrame(relation), self._spark)

    def _listed(self) -> Any:
        files = self._files
        times = {instant: _written_at_ms(instant) for instant in {file.instant for file in files}}
        return own_class(self._spark, "SnapshotFiles").of(
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


def _written_at_ms(instant: str) -> int:
    """The time in an instant; 1970 for one that is not a time, such as Java's names of bootstrapped slices."""
    try:
        return parse_instant(instant)
    except CorruptTableError:
        return 0


_FILTERS = ("stats", "dictionary", "bloom", "columnindex", "record-level")
NO_FILTERS = {f"parquet.filter.{kind}.enabled": "false" for kind in _FILTERS}
"""Options of a reader that leave filters to Spark alone: Parquet tells 0.0 from -0.0."""
FEW_FILES = 32
MANY_FILES = 4000
_GLOB = re.compile(r"([\\{}\[\]*?])")


def read_files_by_name(spark: SparkSession, root: str, files: Sequence[DataFile], schema: StructType) -> DataFrame:
    """A frame over these files and no others, with the columns of `schema`; a column that a file lacks is null there.

    `root` is the table's path as Spark knows it. `StorageError` when a file of the snapshot is already gone.
    Spark takes seconds to plan 2,000 explicit paths, but milliseconds for a name filter over the folder, so there are two ways.
    A name filter is one alternation that every file is matched against: for very many files explicit paths win again.
    """
    if not files:
        return spark.createDataFrame([], schema)
    try:
        frame = _frame_by_name(spark, root, files, schema)
    except AnalysisException as error:
        if condition_of(error) != "PATH_NOT_FOUND":
            raise
        raise _files_gone(files, [], str(error)) from error
    found = {path.rpartition("/")[2] for path in frame.inputFiles()}
    missing = [file.key for file in files if file.name not in found]
    if missing:
        raise _files_gone(files, missing)
    return frame


def _frame_by_name(spark: SparkSession, root: str, files: Sequence[DataFile], schema: StructType) -> DataFrame:
    reader = spark.read.schema(schema).options(recursiveFileLookup="true", **AS_STORED, **NO_FILTERS)
    if len(files) <= FEW_FILES or len(files) > MANY_FILES:
        return reader.parquet(*(_escaped(f"{root}/{file.key}") for file in files))
    names = "{" + ",".join(file.name for file in files) + "}"
    return reader.option("pathGlobFilter", names).parquet(*(_escaped(path) for path in _folders(root, files)))


def _folders(root: str, files: Sequence[DataFile]) -> list[str]:
    """The table's folder, and those inside it that Spark would skip because of how their names begin."""
    hidden = set()
    for partition in {file.partition for file in files}:
        segments = partition.split("/")
        for depth, segment in enumerate(segments):
            if segment.startswith(".") or (segment.startswith("_") and "=" not in segment):
                hidden.add("/".join([root, *segments[: depth + 1]]))
    return [root, *sorted(hidden)]


def _escaped(path: str) -> str:
    return _GLOB.sub(r"\\\1", path)


def _files_gone(files: Sequence[DataFile], missing: Sequence[str], problem: str = "") -> StorageError:
    """Spark skips files that it does not find, and a cleaner may have removed one: rows must never vanish like that."""
    what = f"{len(missing)} of the {len(files)} files of this snapshot are gone, the first is {missing[0]}" if missing else ""
    return StorageError(
        what or f"a file of this snapshot is gone: {problem.splitlines()[0]}",
        hint="read again; to read as of old times, let the cleaner keep more commits",
        missing=list(missing[:5]),
    )


FILE_GONE = re.compile(r"FAILED_READ_FILE\.FILE_NOT_EXIST|It is possible the underlying files have been updated")
"""Text in the error of a job that reads a missing file, in Spark 4 and in Spark 3.5; the error's class varies."""


def read_files(
    spark: SparkSession, root: str, files: Sequence[DataFile], schema: StructType, partitions: PartitionValues | None = None
) -> DataFrame:
    """A frame over these files and no others, with the columns of `schema`; a column that a file lacks is null there.

    `root` is the table's path as Spark knows it. With `partitions` Spark prunes by the partition columns. Storage is not asked:
    a file that has been removed meanwhile fails the job that reads it; rows are never silently missing.

    Where a folder does not determine the value of a column (null and the empty text share one), that column comes
    from the files, in a separate part of the frame; a frame of several parts has no column `_metadata`.

    Nested columns are read as a whole by a Spark that would otherwise take a struct of an old file for null.
    """
    require_running(spark)  # building the frame only asks the JVM, which still answers after the session was stopped
    if not files:
        return spark.createDataFrame([], schema)
    try:
        frame = _frame(spark, root, files, schema, partitions)
    except Py4JError as error:
        # This Spark has different internal classes: use the way that works on every Spark, slower but correct.
        _tell_slow_reads(spark, root, error)
        frame = read_files_by_name(spark, root, files, schema)
    return _with_whole_structs(frame) if takes_structs_for_null(spark) else frame


def with_hidden(frame: DataFrame, hidden: Sequence[str]) -> DataFrame:
    """The frame without these columns, which a query can still name, as it can `_metadata`.

    Spark finds them as it finds the columns of the other side of a natural join: in a tag of the node that left them out. It
    forgets the tag's columns where a frame is joined with itself, and then says that it cannot find them.
    """
    spark, chosen = frame.sparkSession, set(hidden)
    shown = frame.select(*[quoted(name) for name in frame.columns if name not in chosen])
    try:
        plan: Any = frame._jdf.queryExecution().analyzed()
        builder = java_class(spark, "org.apache.spark.sql.types.MetadataBuilder")
        output, further = plan.output(), plan.metadataOutput()
        found = [further.apply(number) for number in range(further.size())]
        for attribute in (output.apply(number) for number in range(output.size())):
            if attribute.name() in chosen:
                marked = builder().withMetadata(attribute.metadata()).putString("__metadata_col", attribute.name()).build()
                found.append(attribute.withMetadata(marked))
        tag = scala_object(spark, "org.apache.spark.sql.catalyst.plans.logical.Project").hiddenOutputTag()
        shown._jdf.logicalPlan().setTagValue(tag, java_class(spark, PYTHON_UTILS).toSeq(found))
    except (Py4JError, TypeError):
        pass  # this Spark keeps no such tag: read with include_meta=True
    return shown


def _tell_slow_reads(spark: SparkSession, root: str, error: Py4JError) -> None:
    """One event for each JVM that this process talks to, with the reason."""
    gateway = spark.sparkContext._gateway
    if gateway in reported_slow:
        return
    reported_slow.add(gateway)
    facts = {"spark": spark.version, "problem": (str(error) or type(error).__name__).splitlines()[0]}
    Events().emit(Event(EventKind.SLOW_READS, root, operation="READ", facts=facts))


def _with_whole_structs(frame: DataFrame) -> DataFrame:
    """The frame as it is, from which Spark does not read single fields of structs.

    It reads only those fields that a query names. Where a file lacks all of them, because it is older than they are, Spark
    takes the struct for null. Behind an expression that it cannot see through it reads all fields.
    """
    nested = [_has_struct(field.dataType) for field in frame.schema]
    if not any(nested):
        return frame
    spark = frame.sparkSession
    jdf: Any = frame._jdf
    opaque = java_class(spark, "org.apache.spark.sql.catalyst.expressions.KnownNullable")
    output = jdf.queryExecution().analyzed().output()
    columns = []
    for number, (name, is_nested) in enumerate(zip(frame.columns, nested, strict=True)):
        attribute = output.apply(number)
        columns.append(column_of(spark, opaque(attribute)).alias(name) if is_nested else column_of(spark, attribute))
    return frame.select(*columns)


def _has_struct(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_struct(kind.elementType)
    return isinstance(kind, StructType) or (isinstance(kind, MapType) and _has_struct(kind.valueType))


def _frame(
    spark: SparkSession, root: str, files: Sequence[DataFile], schema: StructType, partitions: PartitionValues | None
) -> DataFrame:
    parts: dict[tuple[str, ...], dict[str, Mapping[str, Value | None]]] = {}
    part_of: dict[str, tuple[str, ...]] = {}
    for path in dict.fromkeys(file.partition for file in files):
        exact = partitions.exact(path) if partitions is not None else {}
        part_of[path] = tuple(exact)
        parts.setdefault(tuple(exact), {})[path] = exact
    frames = []
    for names, values in parts.items():
        mine = [file for file in files if part_of[file.partition] == names]
        by = (
            Partitioned(pa.schema([(name, partitions.types[name]) for name in names]), values) if partitions and names else None
        )
        frames.append(relation_over(spark, root, mine, schema, by))
    return reduce(DataFrame.union, frames)
