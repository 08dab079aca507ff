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
    "SHOW": "DESCRIBE HISTORY, DESCRIBE DETAIL, or DESCRIBE",
}
_TAKES = (
    "it takes SELECT with TIMESTAMP or VERSION AS OF, UPDATE, DELETE FROM, MERGE INTO, INSERT, DESCRIBE HISTORY and DETAIL, "
    "VACUUM, OPTIMIZE, RESTORE and ALTER TABLE"
)


def refuse_with_path(first: str) -> InputError:
    """The error for a statement about a path that begins with this word."""
    return InputError(f"sql() runs no {first} of a lake table by its path", hint=_INSTEAD.get(first, _TAKES))


def refuse_catalog(words: Words) -> None:
    """`InputError` for a table `USING lakelock` in Spark's catalog, which keeps no path for it."""
    if words[0] not in ("CREATE", "REPLACE"):
        return
    makes_table = "TABLE" in (words[1], words[2], words[3]) and "VIEW" not in (words[1], words[2], words[3], words[4])
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
