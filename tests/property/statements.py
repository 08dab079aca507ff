"""Statements in SQL of any shape, and how a user writes them, whatever stands between the words."""

from __future__ import annotations

from hypothesis import strategies as st

from lakelock.spark_plugin.merge_builder import Then, When
from lakelock.spark_plugin.spark_session import quoted
from lakelock.spark_plugin.sql_operations import (
    Assignment,
    Delete,
    Insert,
    Merge,
    MergeClause,
    Name,
    Statement,
    Target,
    Update,
)

plain_names = st.sampled_from(["a", "price", "g", "Größe", "_x1"])
odd_names = st.text("ab `.,;'\"()-ü:?", min_size=1, max_size=6).filter(lambda name: name.strip() == name)
names = plain_names | odd_names
texts = st.text("ab ,;()'`=:?-ü\n", max_size=8).map(lambda text: "'" + text.replace("'", "''") + "'")
atoms = (
    st.sampled_from(["1", "2.5", "1L", "null", "true", "g.a", "`x y`", "m['k']", "xs[0]", "date'2020-01-01'", "current_date()"])
    | st.integers(0, 99).map(str)
    | texts
)


def wrapped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(inner, inner)
    return (
        pairs.map(lambda two: f"{two[0]} + {two[1]}")
        | pairs.map(lambda two: f"f({two[0]}, {two[1]})")
        | pairs.map(lambda two: f"CASE WHEN {two[0]} THEN {two[1]} END")
        | pairs.map(lambda two: f"{two[0]}\n/* , = WHERE */ * {two[1]}")
        | pairs.map(lambda two: f"{two[0]} -- WHEN THEN, ' (\n || {two[1]}")
        | pairs.map(lambda two: f"{two[0]} AND {two[1]}")
        | inner.map(lambda one: f"({one})")
        | inner.map(lambda one: f"(({one}) IN (1, {one}))")
    )


expressions = st.recursive(atoms, wrapped, max_leaves=5)
conditions = st.none() | expressions
columns = st.tuples(names) | st.tuples(st.just("g"), names)
targets = st.builds(Target, st.tuples(names) | st.tuples(names, names), st.just("") | names)
assignments = st.lists(st.builds(Assignment, columns, expressions), min_size=1, max_size=3).map(tuple)
queries = st.sampled_from(
    ["SELECT 1, 'SELECT'", "VALUES (1, ')'), (2, 'b')", "WITH c AS (SELECT 1) SELECT * FROM c", "TABLE `x y`"]
)
clauses = st.one_of(
    st.builds(MergeClause, st.just(When.MATCHED), st.just(Then.DELETE), conditions),
    st.builds(MergeClause, st.just(When.MATCHED), st.just(Then.UPDATE), conditions, st.none() | assignments),
    st.builds(MergeClause, st.just(When.NOT_MATCHED), st.just(Then.INSERT), conditions, st.none() | assignments),
    st.builds(MergeClause, st.just(When.NOT_MATCHED_BY_SOURCE), st.just(Then.UPDATE), conditions, assignments),
    st.builds(MergeClause, st.just(When.NOT_MATCHED_BY_SOURCE), st.just(Then.DELETE), conditions),
)
inserts = st.builds(
    Insert,
    st.builds(Target, st.tuples(names)),
    queries,
    st.none() | st.lists(st.tuples(names), min_size=1, max_size=3).map(tuple),
    overwrite=st.booleans(),
) | st.builds(Insert, st.builds(Target, st.tuples(names)), queries, by_name=st.just(True), replace_where=conditions)
merges = st.builds(
    Merge,
    targets,
    st.sampled_from(["d AS s", "(SELECT 'ON' AS x) s", "(VALUES (1, 2)) AS s", "lake.`d` AS `s`"]),
    st.just("s"),
    expressions,
    st.lists(clauses, min_size=1, max_size=3).map(tuple),
)
statements = st.builds(Update, targets, assignments, conditions) | st.builds(Delete, targets, conditions) | inserts | merges
gaps = st.sampled_from([" ", "\n", "\t ", " /* SET; '*/ ", " -- it's (\n"])


def one(name: Name) -> str:
    return name[0] if name in (("a",), ("price",), ("_x1",)) else quoted(*name)


def assigned(values: tuple[Assignment, ...], gap: str) -> str:
    return f",{gap}".join(f"{one(each.column)}{gap}={gap}{each.value}" for each in values)


def where(keyword: str, condition: str | None) -> list[str]:
    return [] if condition is None else [keyword, condition]


def clause_of(clause: MergeClause, gap: str) -> list[str]:
    values, start = clause.assignments, [f"WHEN {clause.when.value}".upper().replace("_", " "), *where("AND", clause.condition)]
    if clause.then is Then.DELETE:
        return [*start, "THEN", "DELETE"]
    if clause.then is Then.UPDATE:
        return [*start, "THEN UPDATE", "SET", "*" if values is None else assigned(values, gap)]
    if values is None:
        return [*start, "THEN INSERT", "*"]
    named, given = (f",{gap}".join(each) for each in ([one(v.column) for v in values], [v.value for v in values]))
    return [*start, "THEN INSERT", f"({named}{gap})", "VALUES", f"({given}{gap})"]


def written(statement: Statement, gap: str) -> str:
    """The statement as a user writes it, with its pieces as they are."""
    target = [one(statement.target.name)]
    if statement.target.alias:
        target += ["AS", quoted(statement.target.alias)]
    match statement:
        case Update():
            found = ["UPDATE", *target, "SET", assigned(statement.assignments, gap), *where("WHERE", statement.where)]
        case Delete():
            found = ["DELETE", "FROM", *target, *where("WHERE", statement.where)]
        case Insert():
            named = [] if statement.columns is None else [f"({f',{gap}'.join(map(one, statement.columns))})"]
            kind = ["INSERT", "OVERWRITE" if statement.overwrite else "INTO"]
            how = ["BY", "NAME"] if statement.by_name else []
            found = [*kind, *target, *named, *how, *where("REPLACE WHERE", statement.replace_where), statement.query]
        case Merge():
            found = ["MERGE", "INTO", *target, "USING", statement.source, "ON", statement.on]
            found += [word for clause in statement.clauses for word in clause_of(clause, gap)]
    return gap.join([*found, ""])
