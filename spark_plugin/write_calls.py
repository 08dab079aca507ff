"""Calls of `df.write`, `df.writeTo`, `df.writeStream` and `spark.sql` that Spark refuses or half obeys without asking a source.

Spark lets a source in Python only append and overwrite, refuses `partitionBy` in a batch and forgets it in a stream, keeps no
path in its catalog, and tells no source that an overwrite reads what it replaces. So `register` has these methods of the driver
look at the format first: for `lakelock` they do what is meant, or say what to type. For every other format they are Spark's
own, called as they were. `unregister` puts Spark's methods back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameWriter, DataFrameWriterV2, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from lakelock.errors import InputError, TableError
from lakelock.occ.create import table_exists
from lakelock.spark_plugin.data_source.options import SourceOptions
from lakelock.spark_plugin.frames import spark_conf
from lakelock.spark_plugin.hudi_operations import run_operation
from lakelock.spark_plugin.peers.uses import Use
from lakelock.spark_plugin.session.conf import OVERWRITE_MODE
from lakelock.spark_plugin.session.hadoop import hadoop_settings, in_full
from lakelock.spark_plugin.statements.operations import quoted
from lakelock.spark_plugin.statements.sources import nodes_of, path_of_view, require_foreign
from lakelock.storage.location import canonical_uri

FORMAT = "lakelock"
_SPARKS = "_lakelock_stands_for"
_OVERWRITES = re.compile(r"\bINSERT\s+OVERWRITE\b", re.IGNORECASE)
_VIEW = (
    ".save(path), and then LakeTable.for_path(spark, path).read().createOrReplaceTempView({name!r}), or in SQL "
    "CREATE TEMPORARY VIEW {name} USING lakelock OPTIONS (path '...')"
)


def teach_writers() -> None:
    """Have the writers of this process look at the format first; once is enough."""
    for writer, name, instead, where in _TAUGHT:
        spark = getattr(writer, name)
        if not hasattr(spark, _SPARKS):
            taught = wraps(spark)(_with(spark, instead, where) if where is not None else _before(spark, instead))
            setattr(taught, _SPARKS, spark)
            setattr(writer, name, taught)


def unteach_writers() -> None:
    """Give the writers of this process Spark's own methods back, unless somebody else has replaced ours."""
    for writer, name, *_ in _TAUGHT:
        spark = getattr(getattr(writer, name), _SPARKS, None)
        if spark is not None:
            setattr(writer, name, spark)


def session_conf(spark: SparkSession) -> dict[str, str]:
    """What the data source should know of this session: its confs for lakelock, Hadoop's for stores, and Spark's own mode."""
    mode = {OVERWRITE_MODE: str(spark.conf.get(OVERWRITE_MODE, "static"))}
    return {**spark_conf(spark), **mode, **hadoop_settings(spark)}


def _with(spark: Callable[..., Any], instead: Callable[..., Any], where: int) -> Callable[..., Any]:
    """`instead` for the format `lakelock`, Spark's own for any other. `where`: which argument names the format, if one does."""

    def call(writer: Any, *args: Any, **kwargs: Any) -> Any:
        named = args[where] if len(args) > where else kwargs.get("provider" if where == 0 else "format")
        ours = str(named or _source(writer)).lower() == FORMAT
        return instead(spark, writer, *args, **kwargs) if ours else spark(writer, *args, **kwargs)

    return call


def _before(spark: Callable[..., Any], check: Callable[..., Any]) -> Callable[..., Any]:
    """Spark's own method, after a check of its arguments."""

    def call(session: Any, *args: Any, **kwargs: Any) -> Any:
        check(session, *args, **kwargs)
        return spark(session, *args, **kwargs)

    return call


def _refuse_own_source(session: SparkSession, sqlQuery: object = "", *_: object, **__: object) -> None:  # noqa: N803 - Spark's word
    """`InputError` for an INSERT OVERWRITE of a view `USING lakelock` whose query reads the same table.

    Spark would read what the view showed when it was first used, and replace what others have committed since.
    """
    if not isinstance(sqlQuery, str) or not _OVERWRITES.search(sqlQuery):
        return
    try:
        plan: Any = session._jsparkSession.sessionState().sqlParser().parsePlan(sqlQuery)  # type: ignore[attr-defined]
    except (AttributeError, Py4JError, PySparkException):
        return  # Spark says what is wrong with it
    nodes = list(nodes_of(plan))
    targets = [node.table() for node in nodes if node.nodeName() == "InsertIntoStatement" and node.overwrite()]
    for target in targets:
        path = path_of_view(session, _name_of(target))
        if path is None:
            continue
        uri = canonical_uri(in_full(session, path))
        for node in nodes:
            if node.nodeName() == "UnresolvedRelation":
                with suppress(PySparkException):  # such as the name of a common table expression
                    require_foreign(session.table(quoted(_name_of(node))), uri)


def _name_of(relation: Any) -> tuple[str, ...]:
    parts = relation.multipartIdentifier()
    return tuple(str(parts.apply(number)) for number in range(parts.size()))


def _save(
    spark: Callable[..., Any],
    writer: Any,
    path: str | None = None,
    format: str | None = None,  # noqa: A002 - Spark's word
    mode: str | None = None,
    partitionBy: Any = None,  # noqa: N803 - Spark's word
    **options: Any,
) -> None:
    writer.options(**options)
    if mode is not None:
        writer.mode(mode)
    if partitionBy is not None:
        writer.partitionBy(partitionBy)
    if format is not None:
        writer.format(format)
    if path is not None:
        writer.option("path", path)
    _partition_as_option(writer)
    options = _options(writer)
    conf = session_conf(writer._spark)
    parsed = SourceOptions.parse(options, conf, (Use.BATCH_WRITE,), in_driver=True, warn=True)
    if not _is_wanted(writer, parsed):
        return
    if parsed.operation == "insert":
        spark(writer)
    else:
        run_operation(writer._df, options, parsed, overwrite=_mode(writer) == "Overwrite")


def _save_as_table(spark: Callable[..., Any], writer: Any, name: str, *args: Any, **more: Any) -> None:
    raise _no_catalog(name, _VIEW)


def _using(spark: Callable[..., Any], writer: Any, provider: str) -> Any:
    names = _field(writer._jwriter, "tableName")
    raise _no_catalog("that name" if names is None else str(names.mkString(".")), "df.write.format('lakelock')" + _VIEW)


def _start(
    spark: Callable[..., Any],
    writer: Any,
    path: str | None = None,
    format: str | None = None,  # noqa: A002 - Spark's word
    outputMode: str | None = None,  # noqa: N803 - Spark's word
    partitionBy: Any = None,  # noqa: N803 - Spark's word
    queryName: str | None = None,  # noqa: N803 - Spark's word
    **options: Any,
) -> Any:
    writer.options(**options)
    if outputMode is not None:
        writer.outputMode(outputMode)
    if partitionBy is not None:
        writer.partitionBy(partitionBy)
    if format is not None:
        writer.format(format)
    if queryName is not None:
        writer.queryName(queryName)
    if path is not None:
        writer.option("path", path)
    _partition_stream(writer)
    return spark(writer)


def _to_table(spark: Callable[..., Any], writer: Any, tableName: str, *args: Any, **more: Any) -> Any:  # noqa: N803
    raise _no_catalog(tableName, _VIEW.replace(".save", ".start"))


_TAUGHT: tuple[tuple[type, str, Callable[..., Any], int | None], ...] = (
    (SparkSession, "sql", _refuse_own_source, None),
    (DataFrameWriter, "save", _save, 1),
    (DataFrameWriter, "saveAsTable", _save_as_table, 1),
    (DataFrameWriterV2, "using", _using, 0),
    (DataStreamWriter, "start", _start, 1),
    (DataStreamWriter, "toTable", _to_table, 1),
)


def _no_catalog(name: str, instead: str) -> InputError:
    return InputError(
        f'Spark\'s catalog keeps no path for a table of format("{FORMAT}"), so nobody could read it as {name}',
        hint=instead.format(name=name.rpartition(".")[2] if " " not in name else "t"),
    )


def _source(writer: Any) -> str:
    """The format that the writer was given; of a writer that does not tell it, Spark knows what to do."""
    try:
        java: Any = writer._jwrite
        return str(_field(java, "source") if isinstance(writer, DataStreamWriter) else java.source())
    except (AttributeError, TypeError, Py4JError):
        return ""


def _field(java: Any, name: str) -> Any:
    """What Spark keeps in this private field of an object of the JVM; None where there is no such field."""
    try:
        field = java.getClass().getDeclaredField(name)
        field.setAccessible(True)
        return field.get(java)
    except (AttributeError, TypeError, Py4JError):
        return None


def _partition_as_option(writer: Any) -> None:
    """`partitionBy` becomes the option of the same meaning; buckets and clusters are an `InputError`."""
    java = writer._jwrite
    if java.numBuckets().isDefined():
        raise InputError(f'format("{FORMAT}") takes no bucketBy', hint='.option("index", "bucket:16") places rows by their key')
    if hasattr(writer, "clusterBy") and java.clusteringColumns().isDefined():
        raise _no_clusters()
    columns = java.partitioningColumns()
    if columns.isDefined() and columns.get().nonEmpty():
        writer.option("partition_by", columns.get().mkString(","))
        writer.partitionBy([])


def _partition_stream(writer: Any) -> None:
    """The same for a stream, whose `partition_by` is named in any case where it is to make the table."""
    java = writer._jwrite
    columns, clusters = _field(java, "partitioningColumns"), _field(java, "clusteringColumns")
    if clusters is not None and clusters.isDefined():
        raise _no_clusters()
    if str(_field(java, "outputMode")) == "Update":
        raise InputError(
            f'format("{FORMAT}") takes no output mode update: a data source in Python only appends and replaces everything',
            hint='table = LakeTable.for_path(spark, path), then df.writeStream.outputMode("update").foreachBatch('
            "table.upsert_batch) upserts each batch once",
        )
    if columns is not None and columns.isDefined() and columns.get().nonEmpty():
        writer.option("partition_by", columns.get().mkString(","))
    parsed = SourceOptions.parse(_options(writer), session_conf(writer._spark), (Use.STREAM_WRITE,), warn=True)
    parsed.refuse_version()
    if table_exists(parsed.location.open()):
        parsed.open().close()  # it is as the options say
    elif columns is not None and parsed.stated.partition_by is None:
        writer.option("partition_by", "")


def _no_clusters() -> InputError:
    hint = "table.optimize(sort_by=[...]).execute() sorts the rows of files"
    return InputError(f'format("{FORMAT}") takes no clusterBy', hint=hint)


def _mode(writer: Any) -> str:
    return str(writer._jwrite.curmode().name())


def _is_wanted(writer: Any, parsed: SourceOptions) -> bool:
    """Whether to write in the mode given; the modes that Spark does not take become append where there is no table."""
    mode = _mode(writer)
    if mode in ("Append", "Overwrite"):
        return True
    if not table_exists(parsed.location.open()):
        writer.mode("append")
        return True
    if mode == "Ignore":
        return False
    raise TableError(
        f"{parsed.location.uri} is a table already, and the mode is Spark's default, error",
        hint='.mode("append") adds the rows, .mode("overwrite") replaces what is there, .mode("ignore") leaves it',
    )


def _options(writer: Any) -> dict[str, str]:
    java = writer._jwrite
    given = _field(java, "extraOptions") if isinstance(writer, DataStreamWriter) else java.extraOptions()
    pairs, found = given.iterator(), {}
    while pairs.hasNext():
        pair = pairs.next()
        found[str(pair._1())] = str(pair._2())
    return found
