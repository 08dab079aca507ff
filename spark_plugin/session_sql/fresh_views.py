"""Temporary views of `format("lakelock")` that are made again before a statement reads them.

Spark keeps what it planned for the first query over such a view, so later ones would see the table as it was then.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lakelock.spark_plugin.statements.operations import Name, quoted
from lakelock.spark_plugin.statements.sources import relation_of_view


def read_afresh(spark: SparkSession, names: Iterable[Name]) -> None:
    """Have those of the names that are such views show their tables as they are now; all others stay as they are.

    A view that somebody cached, or that shows a table as of a time, stays, too.
    """
    for name in dict.fromkeys(names):
        is_global = _is_global(spark, name)
        relation = relation_of_view(spark, name) if is_global is not None else None
        if relation is None or relation.options().containsKey("as_of") or spark.catalog.isCached(quoted(name)):
            continue
        options = dict(relation.options().asCaseSensitiveMap())
        frame = spark.read.format("lakelock").options(**options).load()
        named = _named_by_the_view(spark.table(quoted(name)).schema, frame.schema)
        if named is not None:
            frame = spark.read.format("lakelock").options(**options).schema(named).load()
        if is_global:
            frame.createOrReplaceGlobalTempView(name[1])
        else:
            frame.createOrReplaceTempView(name[0])


def _is_global(spark: SparkSession, name: Name) -> bool | None:
    """Whether a temporary view is one of all sessions; None for what is no temporary view. No metastore is asked."""
    catalog = spark._jsparkSession.sessionState().catalog()
    if len(name) == 1:
        return False if catalog.getTempView(name[0]).isDefined() else None
    if len(name) == 2 and name[0].lower() == str(spark.conf.get("spark.sql.globalTempDatabase", "global_temp")).lower():
        return True if catalog.getGlobalTempView(name[1]).isDefined() else None
    return None


def _named_by_the_view(shown: StructType, now: StructType) -> StructType | None:
    """The columns for a view that was made with some of the table's; None for one of them all, which new ones come behind."""
    if not set(shown.names) < set(now.names) or now.names[: len(shown)] == shown.names:
        return None
    return StructType([now[name] for name in shown.names])
