"""The sources of a statement as data frames, and whether they read the table that the statement changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakelock.errors import InputError, SettingsError
from lakelock.spark_plugin.session.hadoop import in_full
from lakelock.spark_plugin.statements.operations import Name, quoted
from lakelock.storage.location import canonical_uri

IN_A_TRANSACTION = (
    "read it in a transaction, which watches what it reads: with table.transaction() as tx: "
    "tx.read().createOrReplaceTempView('before'), and then tx.sql('… FROM before …')"
)


def is_path_of(spark: SparkSession, path: object, uri: str, *, within: bool = False) -> bool:
    """Whether a path is that of the table or, if asked for, one within it."""
    try:
        found = canonical_uri(in_full(spark, str(path)))
    except SettingsError:
        return False
    return found == uri or (within and found.startswith(f"{uri}/"))


def require_foreign(frame: DataFrame, uri: str) -> None:
    """`InputError` if a frame reads files of the table outside a transaction, such as a view of `table.read()`."""
    leaves = (node for node in nodes_of(frame._jdf.queryExecution().analyzed()) if node.children().isEmpty())
    for leaf in leaves:
        if any(is_path_of(frame.sparkSession, path, uri, within=True) for path in _paths(leaf)):
            raise InputError("the source reads the table that the statement changes", hint=IN_A_TRANSACTION)


def nodes_of(plan: Any) -> Iterator[Any]:
    """A plan and all that is in it, subqueries and common table expressions, too."""
    yield plan
    for plans in (plan.subqueries(), plan.children(), plan.innerChildren()):
        for number in range(plans.size()):
            yield from nodes_of(plans.apply(number))


def _paths(leaf: Any) -> Sequence[object]:
    """Where a leaf of a plan reads its rows; nothing for a relation that has no files."""
    try:
        if leaf.getClass().getSimpleName() == "LogicalRelation":
            roots = leaf.relation().location().rootPaths()
            return [roots.apply(number).toString() for number in range(roots.size())]
        if leaf.getClass().getSimpleName() == "DataSourceV2Relation":
            return [leaf.options().get("path")]
    except Py4JError:
        pass
    return []


def path_of_view(spark: SparkSession, name: Name) -> str | None:
    """The path of a temporary view `USING lakelock OPTIONS (path ...)`; None for any other relation, and for no relation."""
    plan = relation_of_view(spark, name)
    return None if plan is None or plan.options().containsKey("as_of") else str(plan.options().get("path"))


def relation_of_view(spark: SparkSession, name: Name) -> Any:
    """Spark's own relation of such a view, which has its options; None for any other relation, and for no relation."""
    try:
        plan: Any = spark.table(quoted(name))._jdf.queryExecution().analyzed()
        while plan.getClass().getSimpleName() in ("SubqueryAlias", "View"):
            plan = plan.children().apply(0)
        if plan.getClass().getSimpleName() == "DataSourceV2Relation" and plan.table().name() == "lakelock":
            return plan
    except (Py4JError, PySparkException):
        pass
    return None
