"""Which statements of a session are about lake tables, and what they ask for; all others are left to Spark."""

from __future__ import annotations

import re
import sys

import pytest

from lakelock.errors import InputError
from lakelock.spark_plugin.session_sql import sql
from lakelock.spark_plugin.sql_commands import command_of
from lakelock.spark_plugin.sql_operations import (
    PROCEDURES,
    Alter,
    By,
    Change,
    ColumnChange,
    Command,
    Describe,
    Moment,
    Optimize,
    Query,
    Relation,
    Restore,
    Unreadable,
    Vacuum,
)

P = "lakelock.`/lake/goods`"
NOON = Moment(By.TIME, "'2026-11-20 12:00'")


def at(text: str, named: str = P, moment: Moment | None = None, whole: str = "") -> Relation:
    """The relation where the text has it."""
    name = tuple(part.strip("`") for part in named.split(".", 1)) if "`" in named else tuple(named.split("."))
    start = text.index(named)
    return Relation(name, start, start + len(whole or named), moment)


KNOWN = [
    (f"DESCRIBE HISTORY {P} LIMIT 3;", lambda t: Describe(at(t), True, 3)),
    ("desc detail goods", lambda t: Describe(at(t, "goods"), False)),
    (f"VACUUM {P}", lambda t: Vacuum(at(t))),
    (f"/* nightly */ VACUUM {P} RETAIN 24 HOURS DRY RUN", lambda t: Vacuum(at(t), 24.0, True)),
    (f"OPTIMIZE {P} WHERE month = '1' ZORDER BY (a, `b c`)", lambda t: Optimize(at(t), "month = '1'", ("a", "b c"))),
    ("OPTIMIZE shop.goods", lambda t: Optimize(at(t, "shop.goods"))),
    (f"RESTORE TABLE {P} TO TIMESTAMP AS OF '2026-11-20 12:00'", lambda t: Restore(at(t), NOON)),
    ("RESTORE goods VERSION AS OF '2026'", lambda t: Restore(at(t, "goods"), Moment(By.INSTANT, "'2026'"))),
    (
        f"ALTER TABLE {P} ADD COLUMNS (note string, `a b`.zip decimal(5, 2))",
        lambda t: Alter(at(t), ColumnChange.ADD, (("note", "string"), ("a b.zip", "decimal(5, 2)"))),
    ),
    ("alter table goods add column n bigint", lambda t: Alter(at(t, "goods"), ColumnChange.ADD, (("n", "bigint"),))),
    (
        f"ALTER TABLE {P} ADD COLUMNS (a map<string, array<int>>, b struct<c: int, d: int>)",
        lambda t: Alter(at(t), ColumnChange.ADD, (("a", "map<string, array<int>>"), ("b", "struct<c: int, d: int>"))),
    ),
    (f"ALTER TABLE {P} DROP COLUMNS (a, `b`)", lambda t: Alter(at(t), ColumnChange.DROP, (("a", ""), ("b", "")))),
    (f"ALTER TABLE {P} DROP COLUMN a.`b`", lambda t: Alter(at(t), ColumnChange.DROP, (("a.b", ""),))),
    (f"ALTER TABLE {P} DROP COLUMN a", lambda t: Alter(at(t), ColumnChange.DROP, (("a", ""),))),
    (f"ALTER TABLE {P} RENAME COLUMN a.b TO c", lambda t: Alter(at(t), ColumnChange.RENAME, (("a.b", "c"),))),
    (f"ALTER TABLE {P} RENAME COLUMN a TO `b c`", lambda t: Alter(at(t), ColumnChange.RENAME, (("a", "b c"),))),
    (f"ALTER TABLE {P} ALTER COLUMN a.b TYPE bigint", lambda t: Alter(at(t), ColumnChange.WIDEN, (("a.b", "bigint"),))),
    (f"ALTER TABLE {P} CHANGE COLUMN a FIRST", lambda t: Alter(at(t), ColumnChange.PLACE, (("a", ""),))),
    (f"ALTER TABLE {P} ALTER COLUMN a AFTER b", lambda t: Alter(at(t), ColumnChange.PLACE, (("a", "b"),))),
    (f"ALTER TABLE {P} ALTER a DROP NOT NULL", lambda t: Alter(at(t), ColumnChange.RELAX, (("a", ""),))),
    (f"UPDATE {P} SET v = 1", lambda t: Change(at(t))),
    (f"DELETE FROM {P} AS g WHERE g.v = 1", lambda t: Change(at(t))),
    (f"INSERT INTO {P} SELECT * FROM news", lambda t: Change(at(t))),
    (f"INSERT OVERWRITE TABLE {P} VALUES (1)", lambda t: Change(at(t))),
    (
        f"MERGE INTO goods USING {P} s ON goods.id = s.id WHEN MATCHED THEN DELETE",
        lambda t: Change(at(t, "goods"), (at(t),)),
    ),
    (f"SELECT * FROM {P}", lambda t: Query((at(t),))),
    (
        f"SELECT * FROM {P} TIMESTAMP AS OF '2026-11-20 12:00' a JOIN goods VERSION AS OF '20261120120000000' ON true",
        lambda t: Query(
            (
                at(t, P, NOON, f"{P} TIMESTAMP AS OF '2026-11-20 12:00'"),
                at(
                    t,
                    "goods VERSION",
                    Moment(By.INSTANT, "'20261120120000000'"),
                    "goods VERSION AS OF '20261120120000000'",
                ),
            )
        ),
    ),
    (
        f"EXPLAIN SELECT * FROM {P} TIMESTAMP AS OF (current_timestamp() - interval 1 day)",
        lambda t: Query(
            (at(t, P, Moment(By.TIME, "(current_timestamp() - interval 1 day)"), t[t.index(P) :]),),
        ),
    ),
    (f"DESCRIBE {P}", lambda t: Query((at(t),))),
]
SPARKS = [
    "SELECT lakelock.`v` FROM goods lakelock",
    "SHOW TABLES",
    "CREATE TEMPORARY VIEW g USING lakelock OPTIONS (path '/lake/goods')",
    "SELECT 'lakelock.`/lake/goods`' AS text -- lakelock.`/lake/goods`",
    "CREATE TABLE t (a int) USING parquet",
    "SELECT timestamp FROM version",
    "SELECT * FROM delta.`/lake/goods`",
    "SET x.y = 1",
]
REFUSED = [
    (f"CREATE VIEW v AS SELECT * FROM {P}", "createOrReplaceTempView"),
    ("CREATE TABLE t (a int) USING lakelock LOCATION '/lake/goods'", "catalog keeps no path"),
    ("CREATE OR REPLACE TABLE t USING lakelock AS SELECT 1", "catalog keeps no path"),
    (f"DROP TABLE {P}", "a table ends with its folder"),
    (f"ALTER TABLE {P} ADD COLUMNS (a int COMMENT 'x')", "ADD COLUMNS (name type, …)"),
    (f"ALTER TABLE {P} DROP PARTITION (day = 1)", "at DROP"),
    (f"ALTER TABLE {P} SET TBLPROPERTIES ('a' = 'b')", "no properties to set"),
    (f"ALTER TABLE {P} ADD CONSTRAINT c CHECK (a > 0)", "no constraints"),
    (f"ALTER TABLE {P} CLUSTER BY (a)", "ZORDER BY"),
    (f"ALTER TABLE {P} ADD COLUMN a string AFTER b", "and then ALTER COLUMN name AFTER other"),
    (f"CREATE OR REPLACE TABLE {P} (a int)", "LakeTable.create"),
    (f"CREATE TABLE t SHALLOW CLONE {P}", "createOrReplaceTempView"),
    ("TRUNCATE TABLE goods", "DELETE FROM"),
    ("SHOW PARTITIONS goods", "SELECT DISTINCT"),
    ("SHOW TBLPROPERTIES goods", "DESCRIBE DETAIL"),
    ("GENERATE symlink_format_manifest FOR TABLE goods", "as it is"),
    ("COPY INTO goods FROM 's3://x' FILEFORMAT = CSV", "table.insert"),
    ("FSCK REPAIR TABLE goods", "lakelock doctor"),
    ("REORG TABLE goods APPLY (PURGE)", "OPTIMIZE"),
    (f"ALTER TABLE {P} ALTER COLUMN a SET NOT NULL", "at ALTER"),
    (f"ALTER TABLE {P} RENAME TO shop.other", "at RENAME"),
    (f"TRUNCATE TABLE {P}", "DELETE FROM"),
    (f"WITH s AS (SELECT 1) INSERT INTO {P} SELECT * FROM s", "put WITH into the source"),
    (f"VACUUM {P} FULL", "at FULL"),
    (f"OPTIMIZE {P} CLUSTER", "at CLUSTER"),
    (f"DESCRIBE HISTORY {P} WHERE true", "at WHERE"),
    (f"RESTORE TABLE {P}", "VERSION AS OF 'instant'"),
    (f"SELECT * FROM {P} TIMESTAMP AS OF current_timestamp() - interval 1 day", "parentheses"),
    ("VACUUM", "the name of a table"),
    *(
        (f"CALL {name}(table => 'goods', {argument} => {value})", f"as {argument}, not")
        for name, arguments in PROCEDURES.items()
        for argument in ("table", *arguments)
        for value in ("''", "'  '", *(("'x'", "-1", "1e999") if argument in ("limit", "hours_retained") else ("0", "7.5")))
    ),
    ("CALL show_commits(table => 'goods', limit => 2.5)", "as limit, not 2.5"),
    ("CALL run_compaction(table => 'goods', op => false)", "cannot read this call"),
    ("CALL run_clean(table => 'goods', hours_retained => date'2026-11-20')", "cannot read this call"),
]


@pytest.mark.parametrize(("text", "command"), KNOWN, ids=lambda value: value if isinstance(value, str) else "")
def test_a_statement_about_a_lake_table_is_told_by_its_words(text, command):
    found: Command | None = command_of(text)
    wanted = command(text)
    if "JOIN goods VERSION" in text:  # the helper finds the name by the words around it
        assert isinstance(found, Query)
        assert [r.moment for r in found.relations] == [r.moment for r in wanted.relations]
        assert [text[r.start : r.stop] for r in found.relations] == [text[r.start : r.stop] for r in wanted.relations]
        assert found.relations[1].name == ("goods",)
    else:
        assert found == wanted


@pytest.mark.parametrize("text", SPARKS)
def test_any_other_statement_is_sparks(text):
    assert command_of(text) is None


@pytest.mark.parametrize(("text", "answer"), REFUSED, ids=lambda value: value[:40])
def test_a_statement_about_a_lake_table_that_nobody_could_run_says_what_to_type(text, answer):
    assert answer in str(error_of(text))


def error_of(text: str) -> InputError:
    try:
        found = command_of(text)
    except InputError as error:
        return error
    assert isinstance(found, Unreadable)
    return found.error


def test_a_statement_that_only_another_format_may_know_is_wrong_only_if_its_target_is_a_lake_table():
    found = command_of("VACUUM sales LITE")
    assert isinstance(found, Unreadable)
    assert found.target.path is None
    assert command_of("SELECT * FROM sales TIMESTAMP AS OF now() - interval 1 day") is None


def test_without_sqlglot_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    monkeypatch.delitem(sys.modules, "lakelock.spark_plugin.sql_commands")
    with pytest.raises(InputError, match=re.escape("pip install 'lakelock[sql]'")):
        sql(None, "SELECT 1")
