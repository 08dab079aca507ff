"""Names in Spark's own catalog, by which a table of `format("lakelock")` could not be read."""

from __future__ import annotations

from pyspark import TaskContext

from lakelock.errors import InputError
from lakelock.spark_plugin.streaming import QUERY_ID

_EXECUTION, _OUTERMOST = "spark.sql.execution.id", "spark.sql.execution.root.id"


def refuse_name() -> None:
    """In a task of a write: `InputError` if the write has given the table a name, which Spark takes back when the write fails.

    `saveAsTable` and `writeTo(...).create()` call the source with exactly what `save` calls it with. But they make the name
    first, and write in an execution inside that one. Batches of a stream are inside one of the stream's.
    """
    task = TaskContext.get()
    if task is None or task.getLocalProperty(QUERY_ID):
        return
    outermost = task.getLocalProperty(_OUTERMOST)
    if outermost and outermost != task.getLocalProperty(_EXECUTION):
        raise InputError(
            'Spark\'s catalog keeps no path for a table of format("lakelock"), so nobody could read it by its name',
            hint='write by the path, df.write.format("lakelock").mode("append").save(path); for SQL name it in the session, '
            'spark.read.format("lakelock").load(path).createOrReplaceTempView("t")',
        )
