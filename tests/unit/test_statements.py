"""What a statement in SQL asks for: its pieces are the user's own text, and what has no exact counterpart is refused."""

from __future__ import annotations

import re
import sys

import pytest

from lakelock.errors import InputError
from lakelock.spark_plugin.merge_builder import Then, When
from lakelock.spark_plugin.sql_changes import LONGEST, statement_of
from lakelock.spark_plugin.sql_operations import (
    Assignment,
    Delete,
    Insert,
    Merge,
    MergeClause,
    Statement,
    Target,
    Update,
    text_of,
)
from lakelock.spark_plugin.sql_planning import StatementPlanner
from lakelock.spark_plugin.sql_words import filled_in, marked

GOODS = Target(("goods",))
G = Target(("goods",), "g")


def sets(**values: str) -> tuple[Assignment, ...]:
    return tuple(Assignment((name,), value) for name, value in values.items())


READ: dict[str, Statement] = {
    "UPDATE goods SET price = price * 2": Update(GOODS, sets(price="price * 2")),
    "update goods g set g.price=g.price*2,note = 'it''s; -- no comment' where g.shop='a' and x": Update(
        G, (Assignment(("g", "price"), "g.price*2"), Assignment(("note",), "'it''s; -- no comment'")), "g.shop='a' and x"
    ),
    "UPDATE lake.goods AS `g` SET ok = a > 1 AND b = 2, `a``b` = NOT c WHERE (d)": Update(
        Target(("lake", "goods"), "g"), sets(**{"ok": "a > 1 AND b = 2", "a`b": "NOT c"}), "(d)"
    ),
    "UPDATE goods SET a = b = c, d == e": Update(GOODS, sets(a="b = c", d="e")),
    "UPDATE goods SET a = CASE WHEN b THEN 1 ELSE 2 END, c = `case`.`end` WHERE CASE x WHEN 1 THEN y END": Update(
        GOODS, sets(a="CASE WHEN b THEN 1 ELSE 2 END", c="`case`.`end`"), "CASE x WHEN 1 THEN y END"
    ),
    "UPDATE goods SET a = transform(xs, x -> x + 1), b = m['k, l'], c = struct(1 AS d, 2 AS e), f = r'\\', g = 1.5BD": Update(
        GOODS, sets(a="transform(xs, x -> x + 1)", b="m['k, l']", c="struct(1 AS d, 2 AS e)", f="r'\\'", g="1.5BD")
    ),
    "UPDATE goods SET a = date'2020-01-01' + interval 1 day, b = x::int, c = data:price.eur, d = \"double\"": Update(
        GOODS, sets(a="date'2020-01-01' + interval 1 day", b="x::int", c="data:price.eur", d='"double"')
    ),
    "UPDATE goods SET a = 'ü😀', b = 2 -- the end": Update(GOODS, sets(a="'ü😀'", b="2")),
    "/* first */ UPDATE goods -- the table\nSET a = 1 /* , b = 2 */ + /* nested /* twice */ */ 3 ;;": Update(
        GOODS, sets(a="1 /* , b = 2 */ + /* nested /* twice */ */ 3")
    ),
    "DELETE FROM goods": Delete(GOODS),
    "DELETE FROM goods WHERE id IN (SELECT id FROM d) OR a = (FROM lake.e SELECT max(b))": Delete(
        GOODS, "id IN (SELECT id FROM d) OR a = (FROM lake.e SELECT max(b))", (("d",), ("lake", "e"))
    ),
    "DELETE FROM goods WHERE a = (VALUES 1)": Delete(GOODS, "a = (VALUES 1)"),
    "UPDATE goods SET a = 1 WHERE EXISTS (WITH c AS (SELECT * FROM d) SELECT 1 FROM c WHERE c.id = goods.id)": Update(
        GOODS,
        (Assignment(("a",), "1"),),
        "EXISTS (WITH c AS (SELECT * FROM d) SELECT 1 FROM c WHERE c.id = goods.id)",
        (("d",),),
    ),
    "DELETE FROM goods AS g WHERE g.id IN (1, 2) OR extract(year FROM at) < 2000;": Delete(
        G, "g.id IN (1, 2) OR extract(year FROM at) < 2000"
    ),
    "DELETE FROM lakelock.`/lake/my goods` WHERE exists(xs, x -> x > 1)": Delete(
        Target(("lakelock", "/lake/my goods")), "exists(xs, x -> x > 1)"
    ),
    "INSERT INTO goods SELECT * FROM delivery": Insert(GOODS, "SELECT * FROM delivery", reads=(("delivery",),)),
    "INSERT INTO TABLE goods VALUES (1, 'a'), (2, NULL)": Insert(GOODS, "VALUES (1, 'a'), (2, NULL)"),
    "INSERT INTO goods (id, `p q`) VALUES (1, 'a')": Insert(GOODS, "VALUES (1, 'a')", (("id",), ("p q",))),
    "INSERT INTO goods (SELECT 1)": Insert(GOODS, "(SELECT 1)"),
    "INSERT INTO goods (id) (SELECT 1)": Insert(GOODS, "(SELECT 1)", (("id",),)),
    "INSERT INTO goods BY NAME WITH d AS (SELECT * FROM a.b) SELECT * FROM d JOIN e USING (id)": Insert(
        GOODS, "WITH d AS (SELECT * FROM a.b) SELECT * FROM d JOIN e USING (id)", by_name=True, reads=(("e",), ("a", "b"))
    ),
    "INSERT INTO goods TABLE delivery": Insert(GOODS, "TABLE delivery", reads=(("delivery",),)),
    "INSERT INTO goods FROM delivery SELECT a, b": Insert(GOODS, "FROM delivery SELECT a, b", reads=(("delivery",),)),
    "INSERT INTO goods SELECT 1 UNION ALL SELECT 2 ORDER BY 1 LIMIT 1": Insert(
        GOODS, "SELECT 1 UNION ALL SELECT 2 ORDER BY 1 LIMIT 1"
    ),
    "INSERT OVERWRITE goods SELECT 1": Insert(GOODS, "SELECT 1", overwrite=True),
    "INSERT OVERWRITE TABLE goods PARTITION (day = date'2020-01-01', `h r`) (id) SELECT 1": Insert(
        GOODS, "SELECT 1", (("id",),), overwrite=True, partition=((("day",), "date'2020-01-01'"), (("h r",), None))
    ),
    "INSERT INTO goods PARTITION (p='a') BY NAME SELECT 1": Insert(
        GOODS, "SELECT 1", by_name=True, partition=((("p",), "'a'"),)
    ),
    "INSERT INTO goods REPLACE WHERE month = 1 AND a IS DISTINCT FROM b SELECT * FROM x": Insert(
        GOODS, "SELECT * FROM x", replace_where="month = 1 AND a IS DISTINCT FROM b", reads=(("x",),)
    ),
    "MERGE INTO goods USING delivery ON goods.id = delivery.id WHEN MATCHED THEN DELETE": Merge(
        GOODS, "delivery", "delivery", "goods.id = delivery.id", (MergeClause(When.MATCHED, Then.DELETE),), (("delivery",),)
    ),
    (
        "MERGE INTO goods g USING (SELECT 1 AS id, 'WHEN' AS w) AS s ON g.id = s.id AND CASE WHEN s.w THEN 1 END "
        "WHEN MATCHED AND s.w = 'x' AND CASE WHEN s.w THEN true END THEN UPDATE SET g.a = s.a AND s.b, b = 1 "
        "WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED AND s.id > 1 THEN INSERT (id, g.a) VALUES (s.id, (1 + 2)) "
        "WHEN NOT MATCHED BY TARGET THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND g.p = 'a' THEN UPDATE SET a = 0 "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE"
    ): Merge(
        G, "(SELECT 1 AS id, 'WHEN' AS w) AS s", "s", "g.id = s.id AND CASE WHEN s.w THEN 1 END",
        (
            MergeClause(
                When.MATCHED, Then.UPDATE, "s.w = 'x' AND CASE WHEN s.w THEN true END",
                (Assignment(("g", "a"), "s.a AND s.b"), Assignment(("b",), "1")),
            ),
            MergeClause(When.MATCHED, Then.UPDATE),
            MergeClause(
                When.NOT_MATCHED, Then.INSERT, "s.id > 1", (Assignment(("id",), "s.id"), Assignment(("g", "a"), "(1 + 2)"))
            ),
            MergeClause(When.NOT_MATCHED, Then.INSERT),
            MergeClause(When.NOT_MATCHED_BY_SOURCE, Then.UPDATE, "g.p = 'a'", sets(a="0")),
            MergeClause(When.NOT_MATCHED_BY_SOURCE, Then.DELETE),
        ),
    ),
    "MERGE INTO goods USING lake.d ON x WHEN NOT MATCHED THEN INSERT (id) VALUES (d.id)": Merge(
        GOODS, "lake.d", "d", "x", (MergeClause(When.NOT_MATCHED, Then.INSERT, None, sets(id="d.id")),), (("lake", "d"),)
    ),
    "MERGE INTO goods AS source USING (VALUES (1)) ON id = col1 WHEN MATCHED THEN DELETE": Merge(
        Target(("goods",), "source"), "(VALUES (1))", "given", "id = col1", (MergeClause(When.MATCHED, Then.DELETE),)
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", READ)
def test_a_statement_is_cut_into_pieces_of_its_own_text(text: str) -> None:
    assert statement_of(text) == READ[text]


def bare(text: str) -> str:
    """A text without the parentheses and line ends that `text_of` puts around pieces."""
    return re.sub(r"[()\s]", "", text)


@pytest.mark.parametrize("text", READ)
def test_a_statement_put_together_from_its_pieces_is_the_same_statement(text: str) -> None:
    statement = READ[text]
    again = statement_of(text_of(statement))
    assert bare(repr(again)).replace("\\n", "") == bare(repr(statement)).replace("\\n", "")


REFUSED = {
    # other statements
    "SELECT * FROM goods": ("not SELECT", "table.read"),
    "FROM goods": ("not FROM", "table.read"),
    "(SELECT 1)": (r"not \(", "table.read"),
    "WITH a AS (SELECT 1) INSERT INTO goods SELECT * FROM a": ("not WITH", "INSERT INTO … WITH"),
    "TRUNCATE TABLE goods": ("not TRUNCATE", "DELETE FROM"),
    "CREATE TABLE goods AS SELECT 1": ("not CREATE", "LakeTable.create"),
    "OPTIMIZE goods": ("not OPTIMIZE", r"table.optimize\(\)"),
    "EXPLAIN DELETE FROM goods": ("not EXPLAIN", "run the statement"),
    "GRANT ALL": ("not GRANT", "UPDATE, DELETE FROM, MERGE INTO and INSERT"),
    "BEGIN DELETE FROM goods; END": ("more than one", r"tx.sql\(...\)"),
    "DELETE FROM goods; DELETE FROM goods": ("more than one", r"table.transaction\(\)"),
    "": ("1 to 1,048,576 characters", "data frame"),
    "--": ("empty", "UPDATE"),
    ";": ("empty", "UPDATE"),
    # what is open or cannot be read
    "DELETE FROM goods WHERE a = 'b": ("not closed", "quote"),
    "DELETE FROM goods WHERE a = `b": ("not closed", "quote"),
    "DELETE FROM goods /* where": ("not closed", "quote"),
    "DELETE FROM goods WHERE (a": ("cannot read", "table.delete"),
    "DELETE FROM goods WHERE a) OR (b": (r"at '\)'", "table.delete"),
    "UPDATE goods SET a": ("SET|cannot", "value|table.update"),
    "UPDATE goods SET a = 1,": ("cannot", "table.update"),
    "UPDATE goods WHERE a": ("no SET", "SET column = value"),
    "UPDATE goods SET a = x::STRUCT<b INT, c INT>": ("where the parts of this statement end", "put parentheses"),
    "DELETE FROM goods WHERE " + "(" * 9999 + ")" * 9999: ("nested too deeply", "table.delete"),
    "DELETE FROM goods WHERE " + "a" * LONGEST: ("1 to 1,048,576 characters", "data frame"),
    # parts without a counterpart
    "DELETE FROM goods g USING other WHERE g.id = other.id": ("DELETE … USING", "WHEN MATCHED THEN DELETE"),
    "DELETE FROM goods, other": ("second table", "MERGE INTO"),
    "DELETE goods WHERE a": ("DELETE without FROM", "DELETE FROM"),
    "DELETE FROM goods WHERE a LIMIT 5": ("no LIMIT", "condition"),
    "DELETE FROM goods WHERE a ORDER BY b": ("no ORDER BY", "condition"),
    "DELETE FROM goods WHERE a RETURNING b": ("no RETURNING", "table.changes"),
    "DELETE FROM goods VERSION AS OF 3": ("no version of the target", "table.restore"),
    "DELETE FROM goods TIMESTAMP AS OF '2020-01-01'": ("no version of the target", "table.restore"),
    "DELETE FROM goods TABLESAMPLE (1 PERCENT)": ("no TABLESAMPLE", "condition"),
    "DELETE FROM goods AS g (a, b)": ("no names of columns after an alias", "in a query"),
    "MERGE INTO goods USING (VALUES (1)) AS s (id) ON a WHEN MATCHED THEN DELETE": ("no names of columns", "SELECT x AS a"),
    "DELETE FROM IDENTIFIER('goods')": ("no name such as IDENTIFIER", "plainly"),
    "UPDATE goods SET a = 1 FROM other WHERE goods.id = other.id": ("UPDATE … FROM", "WHEN MATCHED THEN UPDATE"),
    "UPDATE goods SET a = DEFAULT": ("no DEFAULT", "NULL"),
    "UPDATE goods SET (a, b) = (1, 2)": (r"no name such as \(a, b\)", "plainly"),
    "UPDATE goods SET a[0] = 1": ("no name such as a", "plainly"),
    "UPDATE goods SET *": (r"no \* after SET", "column = value"),
    "INSERT OVERWRITE DIRECTORY '/x' SELECT 1": ("DIRECTORY", "spark.sql"),
    "INSERT OVERWRITE goods PARTITION (month = 1) IF NOT EXISTS SELECT 1": ("cannot read", "leave IF NOT EXISTS out"),
    "INSERT INTO goods IF NOT EXISTS SELECT 1": ("cannot read", "leave IF NOT EXISTS out"),
    "INSERT INTO goods OPTIONS ('a' = 'b') SELECT 1": ("cannot read", "leave OPTIONS out"),
    "INSERT INTO goods AS g SELECT 1": ("no alias for the target of an INSERT", "leave it out"),
    "INSERT INTO goods DEFAULT VALUES": ("no DEFAULT VALUES", "null"),
    "INSERT INTO goods VALUES (1, DEFAULT)": ("no DEFAULT", "NULL"),
    "INSERT INTO goods REPLACE USING (id) SELECT 1": ("no REPLACE USING", "REPLACE WHERE"),
    "INSERT INTO goods SELECT 1 ON CONFLICT DO NOTHING": ("no ON CONFLICT", "table.upsert"),
    "INSERT goods SELECT 1": ("where the parts", "table.insert"),
    # subqueries
    "DELETE FROM goods WHERE a IN (TABLE d)": ("cannot read", "table.delete"),
    "UPDATE goods SET a = (SELECT max(b) FROM d)": ("no subquery", "MERGE INTO"),
    "INSERT INTO goods REPLACE WHERE a IN (SELECT 1) SELECT 1": ("no subquery", "MERGE INTO"),
    "MERGE INTO goods USING d ON goods.id IN (SELECT 1) WHEN MATCHED THEN DELETE": ("no subquery", "MERGE INTO"),
    "MERGE INTO goods USING d ON a WHEN MATCHED AND EXISTS (SELECT 1) THEN DELETE": ("no subquery", "MERGE INTO"),
    "MERGE INTO goods USING d ON a WHEN MATCHED THEN UPDATE SET a = (SELECT 1)": ("no subquery", "MERGE INTO"),
    "MERGE INTO goods USING d ON a WHEN NOT MATCHED THEN INSERT (a) VALUES ((SELECT 1))": ("no subquery", "MERGE INTO"),
    # merges
    "MERGE INTO goods USING d ON a": ("no WHEN clause", "WHEN MATCHED"),
    "MERGE WITH SCHEMA EVOLUTION INTO goods USING d ON a WHEN MATCHED THEN DELETE": ("cannot read", "with_schema_evolution"),
    "MERGE INTO goods USING d JOIN e ON d.a = e.a ON b WHEN MATCHED THEN DELETE": ("cannot read", "USING .SELECT"),
    "MERGE INTO goods USING d USING (id) WHEN MATCHED THEN DELETE": (r"no USING \(column\)", "ON target.column"),
    "MERGE INTO goods USING d ON a WHEN MATCHED THEN INSERT *": ("INSERT cannot follow WHEN MATCHED", "UPDATE or DELETE"),
    "MERGE INTO goods USING d ON a WHEN NOT MATCHED THEN DELETE": ("DELETE cannot follow WHEN NOT MATCHED", "INSERT"),
    "MERGE INTO goods USING d ON a WHEN NOT MATCHED BY SOURCE THEN INSERT *": ("cannot follow", "UPDATE or DELETE"),
    "MERGE INTO goods USING d ON a WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *": (r"no UPDATE SET \*", "name the columns"),
    "MERGE INTO goods USING d ON a WHEN MATCHED THEN DO NOTHING": ("no DO NOTHING", "DELETE or INSERT"),
    "MERGE INTO goods USING d ON a WHEN MATCHED THEN UPDATE SET a = 1 WHERE b": ("no WHERE in a clause", "WHEN MATCHED AND"),
    "MERGE INTO goods USING d ON a WHEN MATCHED THEN UPDATE SET * EXCEPT (a)": (r"no \* EXCEPT", "name the columns"),
    "MERGE INTO goods USING d ON a WHEN NOT MATCHED THEN INSERT VALUES (1)": ("without columns", "INSERT .a, b."),
    "MERGE INTO goods USING d ON a WHEN NOT MATCHED THEN INSERT (a, b) VALUES (1)": ("2 columns and 1 values", "one value"),
    "MERGE INTO goods USING d ON a WHEN MATCHED THEN DELETE RETURNING a": ("no RETURNING", "table.changes"),
    # markers
    "DELETE FROM goods WHERE a = :price": ("no value for :price", 'args={"price": ...}'),
    "INSERT INTO goods SELECT :a": ("no value for :a", "args="),
    "DELETE FROM goods WHERE a = ?": ("markers other than :name", "name them"),
    "DELETE FROM goods WHERE a = ${a}": ("markers other than :name", "name them"),
    "DELETE FROM goods WHERE a = {a}": ("markers other than :name", "name them"),
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:80])
def test_what_has_no_exact_counterpart_is_refused_with_what_to_type_instead(text: str) -> None:
    problem, instead = REFUSED[text]
    with pytest.raises(InputError, match=problem) as caught:
        statement_of(text)
    assert re.search(instead, caught.value.hint), caught.value.hint
    assert "\x1b" not in str(caught.value) and len(str(caught.value)) < 700


@pytest.mark.parametrize("given", [None, 5, b"DELETE FROM goods", ["DELETE FROM goods"]])
def test_only_a_text_is_a_statement(given: object) -> None:
    with pytest.raises(InputError, match="a text of 1 to"):
        statement_of(given)


def test_markers_are_replaced_where_they_are_markers() -> None:
    text = "UPDATE goods SET a = :a, b=:b_2+:a, c = ':a', d = data:a, e = `x :a`, f = x::int -- :a\nWHERE g IN (:c,:a)"
    assert marked(text) == ("a", "b_2", "c")
    assert filled_in(text, {"a": "1", "b_2": "(-2)", "c": "'x'", "unused": "9"}) == (
        "UPDATE goods SET a = 1, b=(-2)+1, c = ':a', d = data:a, e = `x :a`, f = x::int -- :a\nWHERE g IN ('x',1)"
    )


@pytest.mark.parametrize(("values", "hint"), [({}, 'args={"price": ...}'), ({"prise": "1"}, "did you mean 'prise'")])
def test_a_marker_without_a_value_is_refused(values: dict[str, str], hint: str) -> None:
    with pytest.raises(InputError, match="no value for :price") as caught:
        filled_in("DELETE FROM goods WHERE a > :price", values)
    assert hint in caught.value.hint


def test_without_sqlglot_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "lakelock.spark_plugin.sql_changes")
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    planner = StatementPlanner(None, None, None, "file:///t", tuple)
    with pytest.raises(InputError, match="needs sqlglot, which is not installed") as caught:
        planner.plan("DELETE FROM goods")
    assert caught.value.hint == "pip install 'lakelock[sql]'"
