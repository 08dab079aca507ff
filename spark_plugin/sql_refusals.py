"""Statements, and parts of them, that `sql` does not take, and what to type instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelock.errors import InputError

if TYPE_CHECKING:
    from lakelock.spark_plugin.sql_words import Words


FOR_A_NAME = "CREATE TEMPORARY VIEW t USING lakelock OPTIONS (path '...')"
_VIEW = f"{FOR_A_NAME}, which UPDATE, MERGE and the others take by its name"
_FROM_FRAME = (
    "lakelock.spark_plugin.sql(spark, 'SELECT ...').createOrReplaceTempView('v'), or CREATE TEMPORARY VIEW v USING lakelock"
)
_INSTEAD = {
    "CREATE": _FROM_FRAME,
    "CACHE": "lakelock.spark_plugin.sql(spark, 'SELECT ...').cache()",
    "DROP": "drop rows with DELETE FROM; a table ends with its folder",
    "TRUNCATE": "write DELETE FROM the table, without a condition",
    "REFRESH": "leave it out: each read sees the newest commit",
    "ANALYZE": "leave it out: each commit records the statistics of its files",
    "WITH": "put WITH into the source: INSERT INTO … WITH … SELECT …, or USING (WITH … SELECT …) AS s",
    "FROM": "write INSERT INTO ... SELECT ... FROM",
    "SHOW": "DESCRIBE DETAIL, DESCRIBE HISTORY, or SELECT DISTINCT and the partition columns",
    "GENERATE": "leave it out: engines that read Hudi read this table as it is",
    "CONVERT": "LakeTable.from_parquet(spark, path, folder=..., key=...)",
    "FSCK": "lakelock doctor PATH checks the table and its files",
    "REORG": "OPTIMIZE the table",
    **dict.fromkeys(("COPY", "LOAD"), "read the files with Spark, and table.insert(df)"),
    "REPLACE": "write INSERT OVERWRITE, or table.overwrite(df)",
    "CALL": "sql(spark, \"CALL run_clean(table => 'a view')\") takes procedures of Hudi; or call table.optimize().execute()",
    "DELETE": "write DELETE FROM the table WHERE condition",
    "BEGIN": "run several statements as one with table.transaction() as tx: tx.sql(...)",
}
"""Statements that neither `table.sql` nor the `sql` of a session runs for a lake table, and what to type."""
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


def refused_command(first: str) -> InputError:
    """The error for a statement about a lake table that begins with this word, and that a session is to run."""
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
            "Spark's catalog keeps no path for a table USING lakelock, so it could not be read by its name",
            hint=f"LakeTable.create(spark, path, schema=..., key=...) makes a table; for a name, {_VIEW}",
        )


CHANGES = ("TABLE_CHANGES", "HUDI_TABLE_CHANGES", "HUDI_QUERY", "HUDI_FILESYSTEM_VIEW")
"""Functions of Delta and Hudi that give the changes of a table, and others of Hudi about it."""


def refused_function(name: str) -> InputError:
    """The error for such a function, which Spark has not found."""
    changes = "CHANGES" in name
    return InputError(
        f"there is no function {name.lower()} here",
        hint="LakeTable.for_path(spark, path).changes(since) gives what changed, and history() the instants"
        if changes
        else "SELECT … FROM lakelock.`path`, with TIMESTAMP or VERSION AS OF",
    )


def unreadable(form: str, at: str = "") -> InputError:
    """The error for a statement that is not as it should be."""
    where = f" at {at}" if at else ""
    return InputError(f"sql() cannot read this statement{where}", hint=f"write {form}")


def no_version(value: str) -> InputError:
    return InputError(
        f"VERSION AS OF {value}: tables have instants, not version numbers",
        hint="DESCRIBE HISTORY lists them: VERSION AS OF '20261120120000000'",
    )


READ = "read with table.read(where), or table.read().createOrReplaceTempView('before') and then spark.sql"
METHODS = "table.update, table.delete, table.merge and table.insert take the same expressions, and Spark alone parses those"
_MERGE_UPDATE = "write MERGE INTO … USING … ON … WHEN MATCHED THEN UPDATE SET …"
_MERGE_DELETE = "write MERGE INTO … USING … ON … WHEN MATCHED THEN DELETE"
_CHOOSE = "choose the rows by a condition, or by a MERGE whose source has the LIMIT"
_AS_IT_IS = "an older state cannot be changed: leave that out, or see table.restore"

_BY_METHODS = {
    **dict.fromkeys(("SELECT", "VALUES", "FROM", "TABLE", "("), READ),
    "CREATE": "make a table with LakeTable.create(spark, path, schema=..., key=...)",
    "ALTER": "table.columns.add({...}) and table.columns.widen({...}); otherwise table.overwrite(df, overwrite_schema=True)",
    "OPTIMIZE": "table.optimize().execute()",
    "VACUUM": "table.vacuum()",
    "RESTORE": "table.restore(as_of)",
    **dict.fromkeys(("DESCRIBE", "DESC", "SHOW"), "table.schema, table.history()"),
    "EXPLAIN": "run the statement; its result says what it did",
}
"""Statements that are methods of one table, or that the `sql` of a session runs."""

_PARTS = {
    ("Update", "from_"): ("UPDATE … FROM", _MERGE_UPDATE),
    ("Update", "from"): ("UPDATE … FROM", _MERGE_UPDATE),
    ("Delete", "using"): ("DELETE … USING", _MERGE_DELETE),
    ("Delete", "tables"): ("DELETE without FROM", "write DELETE FROM the table WHERE …"),
    ("Insert", "default"): ("DEFAULT VALUES", "name the columns and their values; columns without one are null"),
    ("Insert", "using"): ("REPLACE USING", "write MERGE, or REPLACE WHERE and a condition"),
    ("Insert", "exists"): ("IF NOT EXISTS", "leave it out"),
    ("Insert", "conflict"): ("ON CONFLICT", "write MERGE, or use table.upsert(df)"),
    ("Merge", "using_cond"): ("USING (column)", "write ON target.column = source.column"),
    ("Table", "version"): ("version of the target", _AS_IT_IS),
    ("Table", "when"): ("version of the target", _AS_IT_IS),
    ("Table", "system_time"): ("version of the target", _AS_IT_IS),
    ("Table", "joins"): ("second table beside the target", f"{_MERGE_UPDATE}, or THEN DELETE"),
    ("TableAlias", "columns"): ("names of columns after an alias", "name them in a query: (SELECT x AS a, y AS b FROM …) AS s"),
    ("Update", "where"): ("WHERE in a clause of MERGE", "write WHEN MATCHED AND condition THEN …"),
    ("Insert", "where"): ("WHERE in a clause of MERGE", "write WHEN NOT MATCHED AND condition THEN …"),
    ("Star", "except_"): ("* EXCEPT", "name the columns to set"),
    ("Star", "except"): ("* EXCEPT", "name the columns to set"),
}
_ANYWHERE = {
    "with_": ("WITH before the statement", _INSTEAD["WITH"]),
    "with": ("WITH before the statement", _INSTEAD["WITH"]),
    "returning": ("RETURNING", "read what has changed with table.changes(since=result.instant)"),
    "limit": ("LIMIT", _CHOOSE),
    "order": ("ORDER BY", _CHOOSE),
    "sample": ("TABLESAMPLE", "choose the rows by a condition"),
}

INSTEAD_OF = {
    "EVOLUTION": "leave it out: write.merge_schema=true for the statement, or table.merge(…).with_schema_evolution()",
    "JOIN": "put the join into a query: USING (SELECT … FROM a JOIN b ON …) AS s",
    "IF": "leave IF NOT EXISTS out",
    "OPTIONS": "leave OPTIONS out: they belong into LakeTable.for_path(spark, path, options={...})",
}
"""What to type where sqlglot cannot read on, by the word there."""


def refused(what: str, instead: str) -> InputError:
    """The error for something that a statement may not have."""
    return InputError(f"sql() takes no {what}", hint=instead)


def refused_statement(first: str) -> InputError:
    """The error for a statement that begins with this word, and that one table is to run."""
    instead = _BY_METHODS.get(first) or _INSTEAD.get(first, "it takes UPDATE, DELETE FROM, MERGE INTO and INSERT")
    return InputError(f"sql() runs UPDATE, DELETE, MERGE and INSERT, not {first}", hint=instead)


def refused_part(kind: str, part: str) -> InputError:
    """The error for a part of a node, by sqlglot's names for both."""
    refusal = _PARTS.get((kind, part)) or _ANYWHERE.get(part)
    if refusal is None:
        return refused(f"{part.strip('_').replace('_', ' ').upper()} in {kind.upper()}", METHODS)
    return refused(*refusal)
