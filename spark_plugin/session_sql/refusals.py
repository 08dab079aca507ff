"""Statements about lake tables that `sql` does not run, and what to type instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelock.errors import InputError

if TYPE_CHECKING:
    from lakelock.spark_plugin.statements.words import Words

_VIEW = "CREATE TEMPORARY VIEW t USING lakelock OPTIONS (path '...'), which UPDATE, MERGE and the others take by its name"
_FROM_FRAME = (
    "lakelock.spark_plugin.sql(spark, 'SELECT ...').createOrReplaceTempView('v'), or CREATE TEMPORARY VIEW v USING lakelock"
)
_INSTEAD = {
    "CREATE": _FROM_FRAME,
    "CACHE": "lakelock.spark_plugin.sql(spark, 'SELECT ...').cache()",
    "DROP": "DELETE FROM removes the rows; a table ends with its folder",
    "TRUNCATE": "DELETE FROM the table, without a condition",
    "REFRESH": "leave it out: each read sees the newest commit",
    "ANALYZE": "leave it out: each commit records the statistics of its files",
    "WITH": "put WITH into the source: INSERT INTO ... WITH ... SELECT, or USING (WITH ... SELECT ...) AS s",
    "FROM": "write INSERT INTO ... SELECT ... FROM",
    "SHOW": "DESCRIBE DETAIL, DESCRIBE HISTORY, or SELECT DISTINCT and the partition columns",
    "GENERATE": "leave it out: engines that read Hudi read this table as it is",
    "CONVERT": "LakeTable.from_parquet(spark, path, folder=..., key=...)",
    "FSCK": "lakelock doctor PATH checks the table and its files",
    "REORG": "OPTIMIZE the table",
    "COPY": "read the files with Spark, and table.insert(df)",
}
BEFORE_TABLE = {
    "ANALYZE": ("TABLE",),
    "CONVERT": ("DELTA",),
    "COPY": ("INTO",),
    "CREATE": ("CLONE",),
    "FSCK": ("TABLE",),
    "GENERATE": ("TABLE",),
    "REORG": ("TABLE",),
    "SHOW": ("PARTITIONS", "TBLPROPERTIES"),
    "TRUNCATE": ("TABLE",),
}
"""Statements that are refused if their table is a lake table, by path or by a view: after which word it stands."""
_TAKES = (
    "it takes SELECT with TIMESTAMP or VERSION AS OF, UPDATE, DELETE FROM, MERGE INTO, INSERT, DESCRIBE HISTORY and DETAIL, "
    "VACUUM, OPTIMIZE, RESTORE and ALTER TABLE"
)


def refused(first: str) -> InputError:
    """The error for a statement about a lake table that begins with this word."""
    return InputError(f"sql() runs no {first} of a lake table", hint=_INSTEAD.get(first, _TAKES))


def refuse_alteration(words: Words, at: int) -> None:
    """`InputError` for a part of ALTER TABLE that Delta has, and that these tables do not."""
    two = (words[at], words[at + 1])
    if "CONSTRAINT" in two:
        raise InputError("lake tables have no constraints", hint="look at the rows before the write: df.where('not (...)')")
    if "TBLPROPERTIES" in two:
        raise InputError(
            "lake tables have no properties to set",
            hint="settings are options, Spark confs or a file; `lakelock config explain PATH` lists them",
        )
    if words[at] == "CLUSTER BY":
        raise InputError("lake tables keep no clustering columns", hint="OPTIMIZE the table ZORDER BY (columns) sorts the rows")
    placed = next((words[n] for n in range(at, len(words)) if words[n] in ("FIRST", "AFTER")), None)
    if words[at] == "ADD" and placed:
        raise InputError(
            f"ADD COLUMN takes no {placed}: new columns come last",
            hint=f"ADD COLUMN name type, and then ALTER COLUMN name {placed}{' other' if placed == 'AFTER' else ''}",
        )


def refuse_catalog(words: Words) -> None:
    """`InputError` for a table `USING lakelock` in Spark's catalog, which keeps no path for it."""
    if words[0] not in ("CREATE", "REPLACE"):
        return
    makes_table = "TABLE" in (words[1], words[2], words[3]) and "VIEW" not in (words[1], words[2], words[3], words[4])
    named = words.find(0, len(words), "TABLE") + 1
    if makes_table and (words[named], words[named + 1]) == ("LAKELOCK", "."):
        hint = "LakeTable.create(spark, path, schema=..., key=..., if_not_exists=True)"
        raise InputError("sql() makes no lake table", hint=hint)
    if makes_table and any((words[at], words[at + 1]) == ("USING", "LAKELOCK") for at in range(1, len(words))):
        raise InputError(
            "Spark's catalog keeps no path for a table USING lakelock, so nobody could read it by its name",
            hint=f"LakeTable.create(spark, path, schema=..., key=...) makes a table; for a name, {_VIEW}",
        )


def unreadable(form: str, at: str = "") -> InputError:
    """The error for a statement that is not as it should be."""
    where = f" at {at}" if at else ""
    return InputError(f"sql() cannot read this statement{where}", hint=f"write {form}")


def no_version(value: str) -> InputError:
    """The error for a version number."""
    return InputError(
        f"VERSION AS OF {value}: tables have instants, not version numbers",
        hint="DESCRIBE HISTORY lists them: VERSION AS OF '20261120120000000'",
    )
