"""What `sql` does not take, and what to type instead."""

from __future__ import annotations

from lakelock.errors import InputError

READ = "read with table.read(where), or table.read().createOrReplaceTempView('before') and then spark.sql"
METHODS = "table.update, table.delete, table.merge and table.insert take the same expressions, and Spark alone parses those"
_MERGE_UPDATE = "write MERGE INTO … USING … ON … WHEN MATCHED THEN UPDATE SET …"
_MERGE_DELETE = "write MERGE INTO … USING … ON … WHEN MATCHED THEN DELETE"
_CHOOSE = "choose the rows by a condition, or by a MERGE whose source has the LIMIT"
_WITHIN = "put it into the source: USING (WITH … SELECT …) AS s, or INSERT INTO … WITH … SELECT …"
_AS_IT_IS = "an older state cannot be changed: leave that out, or see table.restore"

_STATEMENTS = {
    **dict.fromkeys(("SELECT", "VALUES", "FROM", "TABLE", "("), READ),
    "WITH": f"{_WITHIN}; or {READ}",
    "TRUNCATE": "write DELETE FROM the table, without a condition",
    "CREATE": "make a table with LakeTable.create(spark, path, schema=..., key=...)",
    "REPLACE": "write INSERT OVERWRITE, or table.overwrite(df)",
    "COPY": "read the files with Spark, and table.insert(df)",
    "LOAD": "read the files with Spark, and table.insert(df)",
    "ALTER": "table.add_columns({...}) and table.widen_columns({...}); otherwise table.overwrite(df, overwrite_schema=True)",
    "DROP": "drop rows with DELETE FROM; a table ends with its folder",
    "OPTIMIZE": "table.optimize().execute()",
    "VACUUM": "table.vacuum()",
    "RESTORE": "table.restore(as_of)",
    "DESCRIBE": "table.schema, table.history()",
    "DESC": "table.schema, table.history()",
    "SHOW": "table.schema, table.history()",
    "CALL": "the procedures of Hudi have counterparts: table.optimize().execute(), table.vacuum(), table.savepoint(name)",
    "BEGIN": "run several statements as one with table.transaction() as tx: tx.sql(...)",
    "EXPLAIN": "run the statement; its result says what it did",
}

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
    "with_": ("WITH before the statement", _WITHIN),
    "with": ("WITH before the statement", _WITHIN),
    "returning": ("RETURNING", "read what has changed with table.changes(since=result.instant)"),
    "limit": ("LIMIT", _CHOOSE),
    "order": ("ORDER BY", _CHOOSE),
    "sample": ("TABLESAMPLE", "choose the rows by a condition"),
}


INSTEAD_OF = {
    "EVOLUTION": "leave WITH SCHEMA EVOLUTION out: new columns come with merge_schema=True of table.insert and table.upsert",
    "JOIN": "put the join into a query: USING (SELECT … FROM a JOIN b ON …) AS s",
    "IF": "leave IF NOT EXISTS out",
    "OPTIONS": "leave OPTIONS out: they belong into LakeTable.for_path(spark, path, options={...})",
}
"""What to type where sqlglot cannot read on, by the word there."""


def refused(what: str, instead: str) -> InputError:
    """The error for something that a statement may not have."""
    return InputError(f"sql() takes no {what}", hint=instead)


def refused_statement(first: str) -> InputError:
    """The error for a statement that begins with this word."""
    instead = _STATEMENTS.get(first, "it takes UPDATE, DELETE FROM, MERGE INTO and INSERT")
    return InputError(f"sql() runs UPDATE, DELETE, MERGE and INSERT, not {first}", hint=instead)


def refused_part(kind: str, part: str) -> InputError:
    """The error for a part of a node, by sqlglot's names for both."""
    told = _PARTS.get((kind, part)) or _ANYWHERE.get(part)
    if told is None:
        return refused(f"{part.strip('_').replace('_', ' ').upper()} in {kind.upper()}", METHODS)
    return refused(*told)
