"""The calls of `df.write` and `df.writeTo` that Spark would refuse, or half obey, before it asks a data source in Python.

Spark lets such a source only append and overwrite, refuses `partitionBy`, and keeps no path in its catalog. So `register` has
these methods of the driver's writers look at the format first: for `lakelock` they do what is meant, or say what to type. For
every other format they are Spark's own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from pyspark.sql import DataFrameWriter, DataFrameWriterV2

from lakelock.errors import InputError, TableError
from lakelock.occ.create import table_exists
from lakelock.spark_plugin.data_source.options import SourceOptions
from lakelock.spark_plugin.data_source.uses import Use
from lakelock.spark_plugin.frames import spark_conf
from lakelock.spark_plugin.session.hadoop import hadoop_settings

FORMAT = "lakelock"
_SEEN = "_lakelock_looks_first"
_VIEW = (
    ".save(path), and then LakeTable.for_path(spark, path).read().createOrReplaceTempView({name!r}), or in SQL "
    "CREATE TEMPORARY VIEW {name} USING lakelock OPTIONS (path '...')"
)


def teach_writers() -> None:
    """Have the writers of this process look at the format first; once is enough."""
    for writer, name, instead in (
        (DataFrameWriter, "save", _save),
        (DataFrameWriter, "saveAsTable", _save_as_table),
        (DataFrameWriterV2, "using", _using),
    ):
        spark = getattr(writer, name)
        if not hasattr(spark, _SEEN):
            taught = wraps(spark)(_with(spark, instead))
            setattr(taught, _SEEN, True)
            setattr(writer, name, taught)


def _with(spark: Callable[..., Any], instead: Callable[..., Any]) -> Callable[..., Any]:
    def call(writer: Any, *args: Any, **kwargs: Any) -> Any:
        return instead(spark, writer, *args, **kwargs)

    return call


def _save(
    spark: Callable[..., Any],
    writer: Any,
    path: str | None = None,
    format: str | None = None,  # noqa: A002 - Spark's word
    mode: str | None = None,
    partitionBy: Any = None,  # noqa: N803 - Spark's word
    **options: Any,
) -> None:
    if not _is_ours(writer, format):
        spark(writer, path, format, mode, partitionBy, **options)
        return
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
    if _is_wanted(writer):
        spark(writer)


def _save_as_table(spark: Callable[..., Any], writer: Any, name: str, *args: Any, **more: Any) -> None:
    if not _is_ours(writer, args[0] if args else more.get("format")):
        spark(writer, name, *args, **more)
        return
    raise _no_catalog(name)


def _using(spark: Callable[..., Any], writer: Any, provider: str) -> Any:
    if provider.lower() == FORMAT:
        raise _no_catalog("t")
    return spark(writer, provider)


def _no_catalog(name: str) -> InputError:
    return InputError(
        f'Spark\'s catalog keeps no path for a table of format("{FORMAT}"), so nobody could read it as {name}',
        hint=_VIEW.format(name=name.rpartition(".")[2]),
    )


def _is_ours(writer: Any, given: str | None) -> bool:
    return str(given or writer._jwrite.source()).lower() == FORMAT


def _partition_as_option(writer: Any) -> None:
    """`partitionBy` becomes the option of the same meaning; buckets and clusters are an `InputError`."""
    java = writer._jwrite
    if java.numBuckets().isDefined():
        raise InputError(f'format("{FORMAT}") takes no bucketBy', hint='.option("index", "bucket:16") places rows by their key')
    if hasattr(writer, "clusterBy") and java.clusteringColumns().isDefined():
        raise InputError(f'format("{FORMAT}") takes no clusterBy', hint="table.optimize(sort_by=[...]) sorts the rows of files")
    columns = java.partitioningColumns()
    if columns.isDefined() and columns.get().nonEmpty():
        writer.option("partition_by", columns.get().mkString(","))
        writer.partitionBy([])


def _is_wanted(writer: Any) -> bool:
    """Whether to write in the mode given; the modes that Spark does not take become append where there is no table."""
    mode = str(writer._jwrite.curmode().name())
    if mode in ("Append", "Overwrite"):
        return True
    conf = {**spark_conf(writer._spark), **hadoop_settings(writer._spark)}
    location = SourceOptions.parse(_options(writer), conf, (Use.BATCH_WRITE,)).location
    if not table_exists(location.open()):
        writer.mode("append")
        return True
    if mode == "Ignore":
        return False
    raise TableError(
        f"{location.uri} is a table already, and the mode is Spark's default, error",
        hint='.mode("append") adds the rows, .mode("overwrite") replaces what is there, .mode("ignore") leaves it',
    )


def _options(writer: Any) -> dict[str, str]:
    pairs, found = writer._jwrite.extraOptions().iterator(), {}
    while pairs.hasNext():
        pair = pairs.next()
        found[str(pair._1())] = str(pair._2())
    return found
