"""Registers `format("lakelock")` with a session, and makes Spark's writers look at the format first.

The registered data source carries the session's confs. Spark lets a source in Python only append and overwrite, refuses
`partitionBy` in a batch and forgets it in a stream, keeps no path in its catalog, and tells no source that an overwrite reads
what it replaces. So `register` has the methods of `df.write`, `df.writeTo`, `df.writeStream` and `spark.sql` of the driver
look at the format first: for `lakelock` they do what is meant, or say what to type. For every other format they are Spark's
own, called as they were. `unregister` puts Spark's methods back.

Hudi's operations that look keys up cannot run in a data source in Python: `LakeTable` runs them, in the driver.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial, wraps
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, DataFrameWriterV2, SparkSession
from pyspark.sql.catalog import Catalog
from pyspark.sql.streaming.readwriter import DataStreamWriter

from lakelock.clock import SystemRuntime
from lakelock.errors import DuplicateKeyError, InputError, TableError, UnsupportedSpark
from lakelock.identity import job_name
from lakelock.occ.create import table_exists
from lakelock.occ.request import WriteRequest, numbered, resources_of
from lakelock.spark_plugin import inserting
from lakelock.spark_plugin.changing import TIE, newest
from lakelock.spark_plugin.hadoop import hadoop_settings, in_full
from lakelock.spark_plugin.lake_table import LakeTable
from lakelock.spark_plugin.session_sql import concerns, read_afresh, sql, views_in
from lakelock.spark_plugin.source_class import LakelockDataSource
from lakelock.spark_plugin.source_option_names import Use
from lakelock.spark_plugin.source_options import APP_ID, APP_NAME, OVERWRITE_MODE, SourceOptions, settings_given
from lakelock.spark_plugin.spark_session import (
    STANDS_FOR,
    application_in_spark,
    column,
    condition_of,
    java_class,
    quoted,
    scala_object,
    spark_conf,
    with_generated,
)
from lakelock.spark_plugin.sql_planning import (
    IN_A_TRANSACTION_OF_FRAMES,
    nodes_of,
    path_of_view,
    require_foreign,
)
from lakelock.storage.location import canonical_uri
from lakelock.table.properties import TableProperties

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
        delete = partial(inserting.delete_partitions, targets=resources_of(named, properties))
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
    keys, any_row = [column(name) for name in names], table._settings.duplicates == "any"
    rows = newest(df, keys, properties.ordering_field, any_row=any_row)
    twice = [] if any_row else rows.where(TIE).select(*keys).distinct().limit(_SHOWN).collect()
    if twice:
        examples = ["/".join(str(row[name]) for name in names) for row in twice]
        raise DuplicateKeyError(
            f"several rows have the same key, and none of them is newer: {', '.join(examples)}",
            hint="remove the duplicates, give the table an ordering column, or set write.duplicates=any to keep any of them",
            keys=examples,
        )
    return rows.drop(TIE)


FORMAT = "lakelock"
_BY_PATH = re.compile(r"\blakelock\s*\.\s*`[^`]*/", re.IGNORECASE)
_TO_CHECK = re.compile(r"\bOVERWRITE\b|\b(?:CREATE|REPLACE)\b.*\bTABLE\b", re.IGNORECASE | re.DOTALL)
_NOT_READ = ("CREATE", "REPLACE", "DROP", "ALTER", "TRUNCATE", "UNCACHE", "INTO", "OVERWRITE")
_A_TABLE = "".join(f"(?<!\\b{word} )" for word in _NOT_READ) + r"(?<![^\s(])TABLE\s+[\w`\"]"
_READS = re.compile(rf"\b(?:FROM|JOIN)\b|\bMERGE\b.*\bUSING\b|{_A_TABLE}", re.IGNORECASE | re.DOTALL)
"""Where a statement names what it reads; `TABLE a_view` reads it, too."""
_HIVE_BY_DEFAULT = "spark.sql.legacy.createHiveTableByDefault"
_MAKE_A_NAME = ("CreateTable", "ReplaceTable")
_SAYS_NOTHING = re.compile(r"\s*SHOW\s+TBLPROPERTIES\b", re.IGNORECASE)
"""What Spark answers for a view without a word that it has none."""
_VIEW = (
    ".save(path), and then LakeTable.for_path(spark, path).read().createOrReplaceTempView({name!r}), or in SQL "
    "CREATE TEMPORARY VIEW {name} USING lakelock OPTIONS (path '...')"
)


def patch_writers() -> None:
    """Make the writers of this process look at the format first; one call is enough."""
    for writer, name, instead, where in _PATCHED:
        spark = getattr(writer, name)
        if not hasattr(spark, STANDS_FOR):
            patched = wraps(spark)(_with(spark, instead, where))
            setattr(patched, STANDS_FOR, spark)
            setattr(writer, name, patched)


def restore_writers() -> None:
    """Give the writers of this process Spark's own methods back, unless other code has replaced ours."""
    for writer, name, *_ in _PATCHED:
        spark = getattr(getattr(writer, name), STANDS_FOR, None)
        if spark is not None:
            setattr(writer, name, spark)


def session_conf(spark: SparkSession) -> dict[str, str]:
    """What the data source should know of this session: confs for lakelock and stores, the job's name, and Spark's own mode."""
    spark_name, run = application_in_spark(spark)
    mode = str(spark.conf.get(OVERWRITE_MODE, "static"))
    known = {APP_NAME: job_name(os.environ, sys.argv, spark_name), APP_ID: run, OVERWRITE_MODE: mode}
    return {**spark_conf(spark), **hadoop_settings(spark), **known}


def _with(spark: Callable[..., Any], instead: Callable[..., Any], where: int | None) -> Callable[..., Any]:
    """`instead` for the format `lakelock`, Spark's own for any other; with no `where`, always `instead`.

    `where`: which argument names the format, if one does.
    """

    def call(writer: Any, *args: Any, **kwargs: Any) -> Any:
        if where is None:
            return instead(spark, writer, *args, **kwargs)
        named = args[where] if len(args) > where else kwargs.get("provider" if where == 0 else "format")
        ours = str(named or _source(writer)).lower() == FORMAT
        return instead(spark, writer, *args, **kwargs) if ours else spark(writer, *args, **kwargs)

    return call


def _sql(
    spark: Callable[..., Any],
    session: SparkSession,
    sqlQuery: Any = "",  # noqa: N803 - Spark's word
    args: Any = None,
    **kwargs: Any,
) -> Any:
    """Spark's own, with views of lake tables as they are now; what names such a table by its path, and what Spark refuses and
    is about one, goes to lakelock's `sql`.
    """
    ours = isinstance(sqlQuery, str) and not kwargs and (args is None or isinstance(args, Mapping))
    if ours and (_BY_PATH.search(sqlQuery) or (_SAYS_NOTHING.match(sqlQuery) and concerns(session, sqlQuery))):
        return sql(session, sqlQuery, args)
    _refuse_by_plan(session, sqlQuery)
    if isinstance(sqlQuery, str) and _READS.search(sqlQuery):
        read_afresh(session, views_in(session, sqlQuery))
    try:
        return spark(session, sqlQuery, args, **kwargs)
    except (PySparkException, Py4JError):  # Spark 4.3 has no error of its own for `ADD CONSTRAINT` of a view
        if ours and concerns(session, sqlQuery):
            return sql(session, sqlQuery, args)
        raise


def _table(spark: Callable[..., Any], session: SparkSession, tableName: Any) -> Any:  # noqa: N803 - Spark's word
    """Spark's own, with a view of a lake table as it is now."""
    read_afresh(session, [_parsed_name(session, tableName)])
    return spark(session, tableName)


def _parsed_name(session: Any, name: object) -> tuple[str, ...]:
    """The parts of a name as Spark reads it; none of what is no name, which Spark then refuses itself."""
    with suppress(AttributeError, Py4JError, PySparkException):
        return _parts(session._jsparkSession.sessionState().sqlParser().parseMultipartIdentifier(name))
    return ()


def _refuse_by_plan(session: SparkSession, sqlQuery: object) -> None:  # noqa: N803 - Spark's word
    """`InputError` for a table `USING lakelock`, and for an INSERT OVERWRITE of a view of one by rows of the same.

    For the second Spark would read what the view showed when it was first used, and replace what others have committed since.
    """
    if not isinstance(sqlQuery, str) or not _TO_CHECK.search(sqlQuery):
        return
    try:
        plan: Any = session._jsparkSession.sessionState().sqlParser().parsePlan(sqlQuery)  # type: ignore[attr-defined]
    except (AttributeError, Py4JError, PySparkException):
        return  # Spark says what is wrong with it
    nodes = list(nodes_of(plan))
    if any(node.nodeName().startswith(_MAKE_A_NAME) and _provider_of(session, node) == FORMAT for node in nodes):
        make = "LakeTable.create(spark, path, schema=..., key=...) makes a table; for a name, df.write.format('lakelock')"
        raise _no_catalog("", make + _VIEW)
    targets = [node.table() for node in nodes if node.nodeName() == "InsertIntoStatement" and node.overwrite()]
    for target in targets:
        uri = _uri_of_view(session, _parts(target.multipartIdentifier()))
        for node in nodes:
            if uri is not None and node.nodeName() == "UnresolvedRelation":
                with suppress(PySparkException):  # such as the name of a common table expression
                    require_foreign(session.table(quoted(*_parts(node.multipartIdentifier()))), uri)


def _provider_of(session: SparkSession, node: Any) -> str:
    """The format of a table that a statement makes in Spark's catalog: what it names, or the session's; empty for Hive's."""
    for holder in ("tableSpec", "provider"):
        with suppress(AttributeError, TypeError, Py4JError):
            spec = getattr(node, holder)()
            named = spec.provider() if holder == "tableSpec" else spec
            if named.isDefined():
                return str(named.get()).lower()
            if holder == "tableSpec" and not spec.serde().isDefined() and session.conf.get(_HIVE_BY_DEFAULT) != "true":
                return _default_format(session)
    return ""


def _default_format(session: SparkSession) -> str:
    return str(session.conf.get("spark.sql.sources.default")).lower()


def _uri_of_view(session: SparkSession, name: tuple[str, ...]) -> str | None:
    """The table that a view `USING lakelock` shows; None for any other name."""
    path = path_of_view(session, name)
    return None if path is None else canonical_uri(in_full(session, path))


def _parts(name: Any) -> tuple[str, ...]:
    return tuple(str(name.apply(number)) for number in range(name.size()))


def _insert_into(spark: Callable[..., Any], writer: Any, tableName: Any, overwrite: Any = None) -> None:  # noqa: N803 - Spark's words
    """Spark's own; `InputError` where it replaces a view `USING lakelock` by rows that are read from the same table."""
    if overwrite or (overwrite is None and _mode(writer) == "Overwrite"):
        name = _parsed_name(writer._spark, tableName)
        uri = _uri_of_view(writer._spark, name) if name else None
        if uri is not None:
            require_foreign(writer._df, uri)
    spark(writer, tableName, overwrite)


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
    if _mode(writer) == "Overwrite" or parsed.operation in ("insert_overwrite", "insert_overwrite_table"):
        require_foreign(writer._df, parsed.location.uri, IN_A_TRANSACTION_OF_FRAMES)
    if parsed.operation == "insert":
        spark(writer)
    else:
        run_operation(writer._df, options, parsed, overwrite=_mode(writer) == "Overwrite")


def _save_as_table(spark: Callable[..., Any], writer: Any, name: str, *args: Any, **more: Any) -> None:
    raise _no_catalog(name, _VIEW)


def _create_table(
    spark: Callable[..., Any],
    catalog: Any,
    tableName: str,  # noqa: N803 - Spark's word
    path: str | None = None,
    source: str | None = None,
    *args: Any,
    **more: Any,
) -> Any:
    if str(source or _default_format(catalog._sparkSession)).lower() == FORMAT:
        raise _no_catalog(tableName, "df.write.format('lakelock')" + _VIEW)
    return spark(catalog, tableName, path, source, *args, **more)


def _create(spark: Callable[..., Any], writer: Any) -> Any:
    """Spark's own, but where no format was given and the session's is lakelock."""
    named = _private_field(writer._jwriter, "provider")
    if named is not None and not named.isDefined() and _default_format(writer._spark) == FORMAT:
        _using(spark, writer, FORMAT)
    return spark(writer)


def _using(spark: Callable[..., Any], writer: Any, provider: str) -> Any:
    names = _private_field(writer._jwriter, "tableName")
    raise _no_catalog("" if names is None else str(names.mkString(".")), "df.write.format('lakelock')" + _VIEW)


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


_PATCHED: tuple[tuple[type, str, Callable[..., Any], int | None], ...] = (
    (SparkSession, "sql", _sql, None),
    (SparkSession, "table", _table, None),
    (DataFrameWriter, "save", _save, 1),
    (DataFrameWriter, "saveAsTable", _save_as_table, 1),
    (DataFrameWriter, "insertInto", _insert_into, None),
    (DataFrameWriterV2, "using", _using, 0),
    (DataFrameWriterV2, "create", _create, None),
    (DataFrameWriterV2, "createOrReplace", _create, None),
    (DataFrameWriterV2, "replace", _create, None),
    (Catalog, "createTable", _create_table, None),
    (Catalog, "createExternalTable", _create_table, None),
    (DataStreamWriter, "start", _start, 1),
    (DataStreamWriter, "toTable", _to_table, 1),
)


def _no_catalog(name: str, instead: str) -> InputError:
    read = f"as {name}" if name else "by its name"
    return InputError(
        f'Spark\'s catalog keeps no path for a table of format("{FORMAT}"), so it could not be read {read}',
        hint=instead.format(name=name.rpartition(".")[2] or "t"),
    )


def _source(writer: Any) -> str:
    """The format that the writer was given; of a writer that does not tell it, Spark knows what to do."""
    try:
        java: Any = writer._jwrite
        return str(_private_field(java, "source") if isinstance(writer, DataStreamWriter) else java.source())
    except (AttributeError, TypeError, Py4JError):
        return ""


def _private_field(java: Any, name: str) -> Any:
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
    columns, clusters = _private_field(java, "partitioningColumns"), _private_field(java, "clusteringColumns")
    if clusters is not None and clusters.isDefined():
        raise _no_clusters()
    if str(_private_field(java, "outputMode")) == "Update":
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
    given = _private_field(java, "extraOptions") if isinstance(writer, DataStreamWriter) else java.extraOptions()
    pairs, found = given.iterator(), {}
    while pairs.hasNext():
        pair = pairs.next()
        found[str(pair._1())] = str(pair._2())
    return found


_MANAGER = "org.apache.spark.sql.execution.datasources.DataSourceManager"
_KNOWN_ALREADY = "DATA_SOURCE_ALREADY_EXISTS"


def register(spark: SparkSession) -> None:
    """Register `format("lakelock")` with the session's present confs under `spark.lakelock.`, and Hadoop's for object stores.

    Once per session is enough. Call it again after changing these confs: until then writes fail, rather than use the old ones.
    From the first call on, `df.write.format("lakelock")` takes all save modes, `partitionBy` and Hudi's operations,
    `df.writeStream.format("lakelock")` takes `partitionBy`, and what cannot work says what to type. Writes of other formats are
    Spark's own, as before. `unregister` undoes it.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise InputError(
            "register needs the driver's own Spark session, this one is a Spark Connect client",
            hint='format("lakelock") works without it: give settings as options of each read and write',
        )
    # The class is not an attribute of its module, so it is pickled by value, with the confs, for Spark's Python processes.
    known = {"conf": session_conf(spark), "drivers_writers": True}
    _offer(spark, type(LakelockDataSource.__name__, (LakelockDataSource,), known))
    patch_writers()


def unregister(spark: SparkSession) -> None:
    """Undo `register`: the data source knows none of the session's confs any more, and Spark's writers have their own methods.

    The writers are those of all sessions of this process; where another one needs `register`, call it there again.
    """
    restore_writers()
    _offer(spark, LakelockDataSource)


def _offer(spark: SparkSession, source: type[LakelockDataSource]) -> None:
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if condition_of(error) != _KNOWN_ALREADY:
            raise
        _replace(spark, source)


def _replace(spark: SparkSession, source: type[LakelockDataSource]) -> None:
    """Spark 4.0 has found the data source by itself, and refuses another: put it in the place of the one that was found.

    Other sessions of this JVM that begin later, and copies of this one, as streams make them, take it from the same place. A
    session whose confs are others fails in its first task, whose error says to call `register`.
    """
    try:
        manager: Any = spark._jsparkSession.sessionState().dataSourceManager()  # type: ignore[attr-defined]
        found, added = (_field(manager, name) for name in ("staticDataSourceBuilders", "runtimeDataSourceBuilders"))
        all_found = found.get(manager)
        found.set(manager, all_found.removed(FORMAT))
        try:
            spark.dataSource.register(source)
            all_found = all_found.updated(FORMAT, added.get(manager).remove(FORMAT))
        finally:
            found.set(manager, all_found)
        option: Any = java_class(spark, "scala.Option")
        getattr(scala_object(spark, _MANAGER), "dataSourceBuilders_$eq")(option.apply(all_found))
    except (AttributeError, TypeError, Py4JError) as error:
        raise UnsupportedSpark(
            f'this Spark ({spark.version}) has found format("lakelock") by itself, and does not let it be replaced',
            hint="give settings as options of each read and write, or use LakeTable; a newer Spark lets it be replaced",
            found=spark.version,
        ) from error


def _field(manager: Any, name: str) -> Any:
    field = manager.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field
