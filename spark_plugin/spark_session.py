"""What the plugin asks of a Spark session: its classes, versions and types, frames that stay persisted, and whether it is gone.

When Spark goes away during a write, the user learns what became of the transaction, not only that a connection broke. Storage
and locks are reached without the JVM, so this process can roll its transaction back after Spark has ended.

Micro-batches of Structured Streaming are numbered, which makes replaying one harmless. Partition columns that a table computes
from other columns are as `lakelock.table.transforms` has them, whatever the session's time zone.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial, wraps
from importlib.resources import files as resources
from itertools import count
from typing import Any, Concatenate, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

import pyarrow as pa
from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JError
from pyspark import Broadcast, StorageLevel, serializers
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    _parse_datatype_string,
)

from lakelock.errors import InputError, LakelockError, SchemaError, SparkGone
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.ending import TransactionState
from lakelock.occ.transaction import Transaction
from lakelock.spark_plugin.supported import has_data_sources, require_supported_spark
from lakelock.table.partitions import places
from lakelock.table.properties import TableProperties
from lakelock.table.transforms import DAY_US, HOUR_US, Kind, Transform
from lakelock.texts import command

PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"


class MissingClass(Py4JError):  # type: ignore[misc]
    """The JVM has no class of a name: this Spark is another one than expected, or lacks a library."""


def java_class(spark: SparkSession, name: str) -> Any:
    """A class of the JVM; `MissingClass` where it has none of this name.

    In `spark._jvm.org.apache.spark` the JVM searches all of Spark's jars at each dot for a class of that name, and for a name
    without dots it searches them again and again.
    """
    found = getattr(spark._jvm, name)
    if isinstance(found, JavaPackage):  # py4j takes every unknown name for a package
        raise MissingClass(f"the JVM has no class {name}")
    return found


def scala_object(spark: SparkSession, name: str) -> Any:
    """A Scala object by its name; `MissingClass` where there is none."""
    return getattr(java_class(spark, f"{name}$"), "MODULE$")


_compiled: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
"""An object of each compiled class, by its name, for each JVM that this process has talked to."""


def own_class(spark: SparkSession, name: str) -> Any:
    """An object of a Java class of this package, which the compiler of Spark's generated code compiles once for each JVM."""
    gateway: Any = spark.sparkContext._gateway
    known = _compiled.setdefault(gateway, {})
    if name not in known:
        compiler = java_class(spark, "org.codehaus.janino.SimpleCompiler")()
        thread = java_class(spark, "java.lang.Thread").currentThread()
        compiler.setParentClassLoader(thread.getContextClassLoader())
        compiler.cook((resources("lakelock.spark_plugin") / f"{name}.java").read_text())
        found = compiler.getClassLoader().loadClass(f"lakelock.{name}")
        no_types, nothing = (gateway.new_array(java_class(spark, f"java.lang.{kind}"), 0) for kind in ("Class", "Object"))
        known[name] = found.getConstructor(no_types).newInstance(nothing)
    return known[name]


_NULL_STRUCTS = "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing"


def quoted(*parts: str) -> str:
    """A name as SQL has it, whatever characters its parts have."""
    return ".".join("`{}`".format(part.replace("`", "``")) for part in parts)


def column(name: str) -> Column:
    """The column of exactly this name, whatever characters the name has."""
    return F.col(quoted(name))


def is_older(spark: SparkSession) -> bool:
    """Whether this session is one of Spark 3.5."""
    return not has_data_sources(spark.version)


def session_confs(spark: SparkSession) -> dict[str, str]:
    """The confs of the session, those of its application among them."""
    if is_older(spark):
        converters = java_class(spark, "scala.collection.JavaConverters")
        return dict(converters.mapAsJavaMapConverter(spark._jsparkSession.conf().getAll()).asJava())  # type: ignore[attr-defined]
    found = spark.conf.getAll
    values: Mapping[str, str] = found() if callable(found) else found
    return dict(values)


def takes_structs_for_null(spark: SparkSession) -> bool:
    """Whether a struct is null to Spark where a Parquet file has none of the fields that a query names: always before 4.1."""
    return not spark.conf.isModifiable(_NULL_STRUCTS) or spark.conf.get(_NULL_STRUCTS) == "true"


FILE, ROW = "_lakelock_file", "_lakelock_row"
"""Columns for the place of a stored row: the name of its file, and its number there."""


def file_place(rows: DataFrame) -> Column:
    """Where a row of files lies: a struct with `file_name` and `row_index`, even where the frame has a column of that name."""
    jdf: Any = rows._jdf
    return Column(jdf.metadataColumn("_metadata"))


def local_frame(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """A few rows as a frame that Spark keeps in its plan."""
    if not is_older(spark):
        return spark.createDataFrame(rows, schema)
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    context, jvm = spark.sparkContext, spark._jvm  # type: Any, Any
    batches = context._serialize_to_jvm(
        rows.combine_chunks().to_batches(),
        ArrowStreamSerializer(),
        jvm.PythonSQLUtils.readArrowStreamFromFile,
        jvm.ArrowIteratorServer,
    )
    return DataFrame(jvm.PythonSQLUtils.toDataFrame(batches, schema.json(), spark._jsparkSession), spark)


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    of = "org.apache.spark.sql.Dataset" if is_older(spark) else "org.apache.spark.sql.classic.Dataset"
    return DataFrame(scala_object(spark, of).ofRows(spark._jsparkSession, plan), spark)


def rebalanced(frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """The rows of each value of these columns close together, in partitions of about the same size."""
    spark = frame.sparkSession
    if not is_older(spark):
        return frame.hint("rebalance", *columns)
    jdf, given = frame._jdf, columns  # type: Any, Any
    expressions = java_class(spark, PYTHON_UTILS).toSeq([column._jc.expr() for column in given])
    return DataFrame(jdf.hint("rebalance", expressions), spark)


def column_of(spark: SparkSession, expression: Any) -> Column:
    """An expression of an analysed plan as a Column."""
    if is_older(spark):
        return Column(java_class(spark, "org.apache.spark.sql.Column")(expression))
    return Column(scala_object(spark, "org.apache.spark.sql.classic.ExpressionUtils").column(expression))


def try_cast(spark: SparkSession, expression: Any, wanted: Any) -> Column:
    """An expression of an analysed plan in another of Spark's types; null where its value has none of that type."""
    if not is_older(spark):
        column: Column = column_of(spark, expression)
        return column.try_cast(wanted.simpleString())
    expressions = "org.apache.spark.sql.catalyst.expressions"
    null_otherwise = scala_object(spark, f"{expressions}.EvalMode").TRY()
    no_zone = java_class(spark, "scala.Option").apply(None)
    return column_of(spark, java_class(spark, f"{expressions}.Cast")(expression, wanted, no_zone, null_otherwise))


def condition_of(error: PySparkException) -> str | None:
    """The name of what is wrong, such as `PATH_NOT_FOUND`."""
    return error.getCondition() if hasattr(error, "getCondition") else error.getErrorClass()


P = ParamSpec("P")
T = TypeVar("T")
Self = TypeVar("Self")


def why_gone(spark: SparkSession) -> str:
    """Why this session can no longer run anything; `""` if it can. One call into the JVM."""
    try:
        context = spark.sparkContext._jsc
        stopped = context is None or context.sc().isStopped()
    except (Py4JError, OSError):
        return "Spark's JVM does not answer: it has ended or was killed"
    except AttributeError:  # stopped by another thread just now
        stopped = True
    return "the Spark session was stopped" if stopped else ""


def require_running(spark: SparkSession) -> None:
    """Raise `SparkGone` if nothing can run in this session."""
    if problem := why_gone(spark):
        raise _gone(problem)


def needs_spark(method: Callable[Concatenate[Self, P], T]) -> Callable[Concatenate[Self, P], T]:
    """A method that fails with `SparkGone`, rather than a broken connection, when Spark goes away during the call.

    For methods of objects that keep their session in `_spark`.
    """

    @wraps(method)
    def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except LakelockError:
            raise
        except Exception as error:
            if problem := why_gone(self._spark):
                raise _gone(problem) from error
            raise

    return cast(Callable[Concatenate[Self, P], T], call)


@contextmanager
def outcome_reported(spark: SparkSession, tx: Transaction, path: str) -> Iterator[None]:
    """End the transaction if Spark goes away in the block, or the user interrupts it, and say what became of it.

    Raises `SparkGone`, or the user's own `KeyboardInterrupt` with a note.
    """
    try:
        yield
    except BaseException as error:
        if gone := ended_by(error, spark, tx, path):
            raise gone from error
        raise


def ended_by(error: BaseException, spark: SparkSession, tx: Transaction, path: str) -> SparkGone | None:
    """The error to raise instead of one that Spark's end caused; the transaction has then ended.

    An interruption also ends the transaction, and gets a note that says what became of it.
    """
    if isinstance(error, LakelockError):
        return None
    if not isinstance(error, Exception):
        tx.abort(type(error).__name__)
        _note(error, f"lakelock: {outcome_of(tx, path)}")
        return None
    problem = why_gone(spark)
    if not problem:
        return None
    tx.abort(problem)
    return _gone(f"{problem}; {outcome_of(tx, path)}", instant=tx.instant, outcome=tx.state.value)


def outcome_of(tx: Transaction, path: str) -> str:
    """What became of a transaction that has ended, as a sentence."""
    name = f"{tx.operation} {tx.instant}"
    if tx.state is TransactionState.COMMITTED:
        return f"{name} is committed"
    if tx.state is TransactionState.REJECTED:
        return f"{name} was rolled back, nothing of it is in the table"
    look = command("commits", "show", path, tx.instant)
    return f"whether {name} is committed is not known yet, nothing was cleaned up: {look}"


def _gone(message: str, **details: object) -> SparkGone:
    return SparkGone(
        message,
        hint="start a new Spark session (if the JVM died, in a new Python process), open the table in it, "
        "and run the operation again",
        **details,
    )


def _note(error: BaseException, text: str) -> None:
    if hasattr(error, "add_note"):
        error.add_note(text)
    elif not error.args:  # Python 3.10 has no notes
        error.args = (text,)


CONF_PREFIX = "spark.lakelock."
_MAY_JOIN_PARTITIONS = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"


@cache
def _to_arrow_arguments() -> Mapping[str, Any]:
    """Spark 4.3 requires the time zone of timestamps; earlier versions use UTC by themselves."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of a Spark schema, timestamps in UTC; `SchemaError` for a type that Arrow cannot carry."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(schema, **_to_arrow_arguments())
    except PySparkException as error:
        raise SchemaError(
            f"a column has a type that a table cannot hold: {error}", hint="cast it, for example to string, before writing"
        ) from error


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of an Arrow schema, all columns nullable. Timestamps without a zone are TIMESTAMP_NTZ."""
    from pyspark.sql.pandas.types import from_arrow_schema

    nullable = pa.schema([field.with_nullable(True) for field in schema])
    found: StructType = from_arrow_schema(nullable, prefer_timestamp_ntz=True)
    return found


def spark_conf(spark: SparkSession) -> dict[str, str]:
    """The session's confs under `spark.lakelock.`, with that prefix."""
    return {key: str(value) for key, value in session_confs(spark).items() if key.startswith(CONF_PREFIX)}


STANDS_FOR = "_lakelock_stands_for"


def sparks_own(method: Callable[..., Any]) -> Callable[..., Any]:
    """Spark's own method where `register` has put another in its place."""
    found: Callable[..., Any] = getattr(method, STANDS_FOR, method)
    return found


def application_in_spark(spark: SparkSession) -> tuple[str, str]:
    """The name of Spark's application, and the id by which its cluster knows it; empty where there is no cluster."""
    context = spark.sparkContext
    run = str(context.applicationId)
    return str(context.appName), "" if run.startswith("local-") else run


def require_batch(df: object, verb: str) -> DataFrame:
    """`df` if it can be written in one go, otherwise an error that says what to use instead."""
    from pyspark.sql import DataFrame as AnyFrame

    if not isinstance(df, AnyFrame):
        kind, hint = type(df).__name__, "make one with spark.createDataFrame(...)"
        if kind in ("LakeTable", "str"):
            hint = "give its rows: table.read()" if kind == "LakeTable" else "read it: spark.table(name), or spark.read"
        raise InputError(f"{verb} needs a DataFrame of Spark, not {kind}", hint=hint)
    if df.isStreaming:
        raise InputError(
            f"{verb} was given a streaming DataFrame",
            hint="use df.writeStream.foreachBatch(table.upsert_batch) or table.insert_batch",
        )
    return df


def alias_of(df: DataFrame) -> str:
    """The alias that a frame was given last, by `df.alias(...)`, else "source"."""
    plan = df._jdf.queryExecution().logical()
    return str(plan.alias()) if plan.nodeName() == "SubqueryAlias" else "source"


_numbers = count()


def apart(frame: DataFrame, name: str) -> DataFrame:
    """The frame with one more column, which tells it from all others: of equal frames Spark keeps the rows once, and lets them
    go with the first of these that is let go."""
    return frame.withColumn(name, F.lit(next(_numbers)).cast("long"))


class KeptFrames:
    """Frames that are persisted, in memory and on the disks of the executors, until `close`; and large stages, sent once."""

    def __init__(self) -> None:
        self._frames: list[DataFrame] = []
        self._sent: list[Broadcast[bytes]] = []

    def keep(self, frame: DataFrame) -> None:
        """Persist a frame, unless that was done before: its rows must not change."""
        if not any(other is frame for other in self._frames):
            _persist(frame)
            self._frames.append(frame)

    def drop(self, frame: DataFrame) -> None:
        """Unpersist a frame that is not needed any more. If Spark is gone, nothing is left to free."""
        self._frames = [other for other in self._frames if other is not frame]
        with suppress(Py4JError, OSError, AttributeError):
            frame.unpersist()

    def shipped(self, spark: SparkSession, stage: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A stage as tasks get it. Spark by itself keeps a large one in a file of the driver until the application ends."""
        context, pickling = spark.sparkContext, serializers  # type: Any, Any
        stage_bytes = pickling.CloudPickleSerializer().dumps(stage)
        most_bytes = java_class(spark, PYTHON_UTILS).getBroadcastThreshold(context._jsc)
        if len(stage_bytes) + _PACKING_BYTES <= most_bytes:
            return partial(_unpacked, stage_bytes)
        self._sent.append(context.broadcast(stage_bytes))
        return partial(_unpacked, self._sent[-1])

    def close(self) -> None:
        """Unpersist everything, and remove what was sent."""
        for frame in self._frames:
            self.drop(frame)
        sent, self._sent = self._sent, []
        for each in sent:
            with suppress(Py4JError, OSError, AttributeError):
                each.destroy()


_PACKING_BYTES = 10_000
"""More than Spark adds to the bytes of a stage."""


def _unpacked(stage: bytes | Broadcast[bytes], batches: Any) -> Any:
    """In a task: run a stage that was shipped."""
    return pickle.loads(stage if isinstance(stage, bytes) else stage.value)(batches)


def _persist(frame: DataFrame) -> None:
    """Persist a frame in as few tasks as suit its bytes, not in the `spark.sql.shuffle.partitions` of the session.

    Spark joins small partitions after a shuffle, but those of a persisted frame only where a conf allows it. The frame is
    persisted by a copy of the session that has this conf; the session itself stays as it is. Spark 3.5 cannot do it.
    """
    spark, level = frame.sparkSession, StorageLevel.MEMORY_AND_DISK
    if is_older(spark):
        frame.persist(level)
        return
    session: Any = spark._jsparkSession
    other = session.cloneSession()
    other.conf().set(_MAY_JOIN_PARTITIONS, "true")
    plan = frame._jdf.queryExecution().logical()
    scala_object(spark, "org.apache.spark.sql.classic.Dataset").ofRows(other, plan).persist(
        spark.sparkContext._getJavaStorageLevel(level)
    )


def parallelism(spark: SparkSession) -> int:
    """How many tasks the cluster can run at once, as far as Spark reports it."""
    return max(1, spark.sparkContext.defaultParallelism)


def is_local(spark: SparkSession) -> bool:
    """Whether tasks run in the driver's JVM, and nowhere else."""
    return str(spark.sparkContext.master).split("[")[0] == "local"


def require_classic(spark: SparkSession) -> None:
    """`InputError` on Spark Connect, which has neither the job tags that lakelock needs nor a driver process to commit in.

    `SparkGone` for a session that was stopped, `UnsupportedSpark` for a JVM with an older Spark than PySpark's.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise InputError(
            "LakeTable needs the driver's own Spark session, this one is a Spark Connect client",
            hint='run in the driver, or append through df.write.format("lakelock"), which works with Connect',
        )
    require_running(spark)
    require_supported_spark(spark.version)


QUERY_ID = "sql.streaming.queryId"


def micro_batch(df: DataFrame, batch_id: int) -> AppTransaction:
    """The application transaction of a micro-batch: the query's id, which its checkpoint keeps, and the batch's number."""
    query = df.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if not query:
        raise InputError(
            "this is not running inside foreachBatch: Spark does not say which streaming query this is",
            hint="use it as df.writeStream.foreachBatch(table.upsert_batch); elsewhere call table.upsert(df)",
        )
    return application_of(query, batch_id)


def application_of(query: str, batch_id: int) -> AppTransaction:
    return AppTransaction(f"spark-stream:{query}", batch_id)


def columns_of(schema: object) -> StructType:
    """The columns that a caller gives: a schema, a data frame with them, or the text of a schema, which Spark parses."""
    if isinstance(schema, str):
        # Not `createDataFrame`: for `char` and `varchar` that is an internal error of Spark's.
        schema = _parse_datatype_string(schema)
    found = schema.schema if isinstance(schema, DataFrame) else schema
    if not isinstance(found, StructType):
        raise InputError(
            f"schema is of the type {type(schema).__name__}",
            hint='give a StructType, a data frame with the columns, or a text such as "id bigint, name string"',
        )
    return found


_HASHED = (StringType, ByteType, ShortType, IntegerType, LongType, DateType)
_TYPES = {Kind.YEARS: "int", Kind.DAYS: "date", Kind.BUCKET: "int"}


def with_generated(df: DataFrame, properties: TableProperties) -> DataFrame:
    """The frame with the computed partition columns; `SchemaError` if it lacks one and the column that it comes from."""
    for transform in properties.transforms:
        source, there = places(transform, df.columns)
        if source is not None:
            df = df.withColumn(there or transform.name, computed(transform, F.col(source), df.schema[source].dataType))
    return df


def computed(transform: Transform, source: Column, given: DataType) -> Column:
    """The partition column, of a column of type `given`; null where that type is none that the transform takes."""
    found: Column | None = None
    if transform.kind is Kind.TRUNCATE and isinstance(given, StringType):
        found = F.substring(source, 1, transform.number)
    elif transform.kind is Kind.BUCKET and isinstance(given, _HASHED):
        found = F.pmod(F.crc32(source.cast("string").cast("binary")), F.lit(transform.number))
    elif isinstance(given, DateType | TimestampType | TimestampNTZType):
        found = _of_time(transform.kind, source, given)
    kind = _TYPES.get(transform.kind, "string")
    return F.lit(None).cast(kind) if found is None else found.cast(kind)


def _of_time(kind: Kind, source: Column, given: DataType) -> Column | None:
    day = _utc_day(source) if isinstance(given, TimestampType) else source.cast("date")
    if kind is Kind.DAYS:
        return day
    if kind is Kind.YEARS:
        return F.year(day)
    if kind is Kind.MONTHS:
        return F.substring(day.cast("string"), 1, 7)
    if kind is Kind.HOURS and not isinstance(given, DateType):
        hour = _utc_hour(source) if isinstance(given, TimestampType) else F.hour(source)
        return F.concat(day.cast("string"), F.lit("-"), F.lpad(hour.cast("string"), 2, "0"))
    return None


def _utc_day(instant: Column) -> Column:
    # Spark divides doubles. A whole number of days in microseconds is a multiple of 2**13, and so exact in one.
    midnight = F.unix_micros(instant) - F.pmod(F.unix_micros(instant), F.lit(DAY_US))
    return F.date_from_unix_date((midnight / F.lit(DAY_US)).cast("int"))


def _utc_hour(instant: Column) -> Column:
    return (F.pmod(F.unix_micros(instant), F.lit(DAY_US)) / F.lit(HOUR_US)).cast("int")
