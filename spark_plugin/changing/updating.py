"""Update by condition: Spark finds the rows and computes their new values; their file groups are claimed and rewritten."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakelock.occ.footprint import WholeTable
from lakelock.spark_plugin.changing.applying import write_changes
from lakelock.spark_plugin.changing.assignments import Assignments, fitting_values, grown_by_values, values_are_repeatable
from lakelock.spark_plugin.changing.changes import ACTION, FILE, ROW, UPDATE, ChangePlan
from lakelock.spark_plugin.conditions import Condition
from lakelock.spark_plugin.session.versions import file_place
from lakelock.spark_plugin.writing.attempt import Attempt, Written
from lakelock.spark_plugin.writing.row_reads import RowsRead
from lakelock.table.snapshot import DataFile


def update_where(attempt: Attempt, values: Assignments, condition: Condition | None, alias: str = "") -> Written:
    """Give the rows that satisfy the condition new values, computed from the old ones. Nobody may add such a row meanwhile."""
    before = attempt.schema
    if attempt.settings.merge_schema:
        rows = attempt.read(())
        attempt = attempt.growing(grown_by_values(rows.alias(alias) if alias else rows, values, before))
    snapshot = attempt.tx.current()
    if condition is None:
        attempt.tx.reads(WholeTable())
        files = snapshot.files
    else:
        pruning = attempt.pruning(condition)
        attempt.tx.reads(RowsRead(condition, pruning, attempt.read))
        files = pruning.files_of(snapshot)
    if not files:
        return Written()
    same_rows = condition is None or condition.repeatable
    if not (same_rows and values_are_repeatable(attempt.spark, values, attempt.schema, alias)):
        attempt = attempt.forgetful()

    def changes(some: Sequence[DataFile]) -> DataFrame:
        rows = attempt.read(some).alias(alias) if alias else attempt.read(some)
        new, place = fitting_values(rows, values, attempt.schema), file_place(rows)
        chosen = rows if condition is None else rows.where(condition.on(rows))
        return chosen.select(
            place["file_name"].alias(FILE), place["row_index"].alias(ROW), F.lit(UPDATE).alias(ACTION),
            *[new[name].alias(name) for name in attempt.schema.names if name in new],
        )  # fmt: skip

    plan = ChangePlan(attempt.context(), tuple(files), tuple(values))
    return Written(write_changes(attempt, plan, plan.files, changes), attempt.schema if attempt.schema != before else None)
