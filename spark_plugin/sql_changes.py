"""From the text of an UPDATE, DELETE, MERGE or INSERT to its operation, or to an error before any work that says what to type.

sqlglot says what the statement is; its pieces are cut out of the text itself. The pieces go to Spark as they are: nothing is
translated. A part that is not known here to have an exact counterpart is refused. Spark's own parser has the last word: the
pieces of a statement are where it would have cut them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import SparkSession
from sqlglot import Dialect, exp
from sqlglot.errors import ParseError

from lakelock.errors import InputError
from lakelock.spark_plugin.merge_builder import Then, When
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
    text_of,
)
from lakelock.spark_plugin.sql_refusals import INSTEAD_OF, METHODS, refused, refused_part, refused_statement
from lakelock.spark_plugin.sql_words import DIALECT, Unclear, Words, shown


def require_only(node: exp.Expression, *known: str) -> None:
    """Refuse a node that has any part but these."""
    for part, value in node.args.items():
        if part not in known and value is not None and value is not False and value != []:
            raise refused_part(type(node).__name__, part)


def part_of(node: exp.Expression, name: str) -> exp.Expression:
    """A part that the node must have."""
    found = optional_part(node, name)
    if found is None:
        raise Unclear(name)
    return found


def optional_part(node: exp.Expression, name: str) -> exp.Expression | None:
    """A part that the node may have; where it has none, sqlglot may say so by another value than None."""
    found = node.args.get(name)
    return found if isinstance(found, exp.Expression) else None


def target_of(node: exp.Expression) -> Target:
    """The table to change."""
    if not isinstance(node, exp.Table):
        raise refused(f"target such as {shown(node.sql(DIALECT))}", "write the table's name")
    require_only(node, "this", "db", "catalog", "alias")
    alias = optional_part(node, "alias")
    if alias is not None:
        require_only(alias, "this")
    return Target(_plain(node.parts, node), node.alias)


def name_of(node: exp.Expression) -> Name:
    return _plain(node.parts if isinstance(node, exp.Column) else [node], node)


def _plain(parts: Sequence[object], whole: exp.Expression) -> Name:
    names = tuple(part.name for part in parts if isinstance(part, exp.Identifier) and part.name)
    if len(names) < len(parts):
        raise refused(f"name such as {shown(whole.sql(DIALECT))}", "write names plainly, or in backquotes: `a name`")
    return names


def piece_of(node: exp.Expression, words: Words, start: int, stop: int) -> str:
    """The text of a value, or of a condition of a merge or an insert, which may look at nothing but its row."""
    piece = words.piece(start, stop)
    if node.find(exp.Query) is not None:
        raise refused(
            f"subquery in a condition or value: {shown(piece)}",
            "write MERGE INTO … USING (the subquery) AS s ON …",
        )
    require_no_default(piece)
    return piece


def require_no_default(piece: str) -> None:
    if piece.upper() == "DEFAULT":
        raise refused("DEFAULT", "columns have no default values: write the value, or NULL")


def assignments_of(nodes: Sequence[exp.Expression], words: Words, start: int, stop: int) -> tuple[Assignment, ...]:
    """What stands after SET."""
    ranges = list(words.parts(start, stop))
    if not nodes or len(nodes) != len(ranges):
        raise Unclear(start)
    found = []
    for node, (begin, end) in zip(nodes, ranges, strict=True):
        equals = words.find(begin, end, "=", "==")
        if not isinstance(node, exp.EQ) or equals == end:
            raise refused(f"{shown(words.piece(begin, end))} after SET", "write column = value")
        found.append(Assignment(name_of(node.this), piece_of(node.expression, words, equals + 1, end)))
    return tuple(found)


def relations_of(source: exp.Expression) -> tuple[Name, ...]:
    """The relations that a source names, but for those that it defines itself."""
    own = {each.alias.lower() for each in source.find_all(exp.CTE)}
    named = [table.parts for table in source.find_all(exp.Table)]
    names = [tuple(part.name for part in parts) for parts in named if all(isinstance(part, exp.Identifier) for part in parts)]
    return tuple(dict.fromkeys(name for name in names if not (len(name) == 1 and name[0].lower() in own)))


_SENSIBLE = {
    When.MATCHED: (Then.UPDATE, Then.DELETE),
    When.NOT_MATCHED: (Then.INSERT,),
    When.NOT_MATCHED_BY_SOURCE: (Then.UPDATE, Then.DELETE),
}


def merge_of(tree: exp.Expression, words: Words) -> Merge:
    """The merge; `Unclear` if its clauses are not where they should be."""
    require_only(tree, "this", "using", "on", "whens")
    target, using = target_of(tree.this), words.find(1, len(words), "USING")
    on = words.find(using, len(words), "ON")
    starts = list(words.every(on, len(words), "WHEN"))
    nodes = part_of(tree, "whens").expressions
    if not starts or len(nodes) != len(starts):
        raise Unclear(on)
    ends = [*starts[1:], len(words)]
    clauses = tuple(_clause(node, words, start, end) for node, start, end in zip(nodes, starts, ends, strict=True))
    source = part_of(tree, "using")
    named = optional_part(source, "alias")
    if named is not None:
        require_only(named, "this")
    free = "source" if target.qualifier.lower() != "source" else "given"
    alias = source.alias or (source.name if isinstance(source, exp.Table) else "") or free
    condition = piece_of(part_of(tree, "on"), words, on + 1, starts[0])
    return Merge(target, words.piece(using + 1, on), alias, condition, clauses, relations_of(source))


def _clause(node: exp.Expression, words: Words, start: int, stop: int) -> MergeClause:
    require_only(node, "matched", "source", "condition", "then")
    when = When.MATCHED
    if not node.args.get("matched"):
        when = When.NOT_MATCHED_BY_SOURCE if node.args.get("source") else When.NOT_MATCHED
    does = words.find(start, stop, "THEN")
    given = optional_part(node, "condition")
    condition = None if given is None else piece_of(given, words, words.find(start, does, "AND") + 1, does)
    then, assignments = _action(part_of(node, "then"), words, does + 1, stop)
    if then not in _SENSIBLE[when]:
        expected = " or ".join(each.value.upper() for each in _SENSIBLE[when])
        kind = when.value.replace("_", " ").upper()
        raise InputError(f"{then.value.upper()} cannot follow WHEN {kind}", hint=f"for such rows there is {expected}")
    if assignments is None and (when, then) == (When.NOT_MATCHED_BY_SOURCE, Then.UPDATE):
        raise refused("UPDATE SET * of rows without a source row", "name the columns and their values")
    return MergeClause(when, then, condition, assignments)


def _action(node: exp.Expression, words: Words, start: int, stop: int) -> tuple[Then, tuple[Assignment, ...] | None]:
    """What stands after THEN; no assignments for `*`."""
    if isinstance(node, exp.Update):
        require_only(node, "expressions")
        if len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Star):
            require_only(node.expressions[0])
            return Then.UPDATE, None
        return Then.UPDATE, assignments_of(node.expressions, words, start + 2, stop)
    if isinstance(node, exp.Insert):
        require_only(node, "this", "expression")
        if isinstance(node.this, exp.Star):
            require_only(node.this)
            return Then.INSERT, None
        if optional_part(node, "this") is None:
            raise refused("INSERT without columns in a MERGE", "write INSERT (a, b) VALUES (source.a, source.b), or INSERT *")
        return Then.INSERT, _inserted(node, words, start, stop)
    if words[start] == "DELETE" and start + 1 == stop:
        return Then.DELETE, None
    raise refused(f"{shown(words.piece(start, stop))} in a MERGE", "write UPDATE SET …, DELETE or INSERT")


def _inserted(node: exp.Expression, words: Words, start: int, stop: int) -> tuple[Assignment, ...]:
    """The columns and values of `INSERT (…) VALUES (…)`."""
    _, close = words.group(start + 1)
    first, end = words.group(close + 2)
    names, values = _members(node.this), _members(part_of(node, "expression"))
    ranges = list(words.parts(first, end))
    if words[close + 1] != "VALUES" or end + 1 != stop or len(values) != len(ranges):
        raise Unclear(start)
    if len(names) != len(values):
        raise InputError(
            f"INSERT has {len(names)} columns and {len(values)} values: {shown(words.piece(start, stop))}",
            hint="give every column one value",
        )
    found = zip(names, values, ranges, strict=True)
    return tuple(Assignment(name_of(name), piece_of(value, words, *ends)) for name, value, ends in found)


def _members(node: exp.Expression) -> list[exp.Expression]:
    """The members of a list in parentheses, for which sqlglot has another node if there is only one."""
    return list(node.expressions) if isinstance(node, exp.Tuple) else [node.this]


LONGEST = 1 << 20
"""Characters of a statement. Rows belong into a data frame."""
_STARTS_QUERY = ("SELECT", "WITH", "VALUES", "FROM", "TABLE")


def statement_of(statement: object) -> Statement:
    """The operation that a statement asks for; `InputError` names what it has that `sql` does not take, and what to type."""
    text = statement.text if isinstance(statement, Words) else statement
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST:
        raise InputError(
            f"a statement in SQL is a text of 1 to {LONGEST:,} characters, not {shown(repr(text))}",
            hint="put many rows into a data frame, and use table.insert(df) or table.merge(df, on)",
        )
    words = statement if isinstance(statement, Words) else Words.of(text)
    _require_one(words)
    if words[0] not in _READERS:
        raise refused_statement(words[0])
    kind, read = _READERS[words[0]]
    tree = _tree(words)
    if not isinstance(tree, kind):
        raise InputError(f"sql() cannot read this statement: {shown(text)}", hint=METHODS)
    _require_values(tree)
    try:
        return read(tree, words)
    except Unclear:
        raise InputError(
            f"sql() cannot tell where the parts of this statement end: {shown(text)}",
            hint=f"put parentheses around each value and condition; or {METHODS}",
        ) from None


def _require_one(words: Words) -> None:
    if not len(words):
        raise InputError("the statement is empty", hint="it takes UPDATE, DELETE FROM, MERGE INTO and INSERT")
    if any(words[at] == ";" for at in range(len(words))):
        hint = "call it for each; as one: with table.transaction() as tx: tx.sql(...)"
        raise InputError("sql() takes one statement, and this is more than one", hint=hint)


def _tree(words: Words) -> object:
    if words[0] == "MERGE" and "WHEN" not in map(words.__getitem__, range(len(words))):
        raise InputError("the merge has no WHEN clause", hint="say what it should do, such as WHEN MATCHED THEN UPDATE SET *")
    try:
        (tree,) = Dialect.get_or_raise(DIALECT).parser().parse(list(words.tokens), words.text)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        at = str(first.get("highlight", ""))
        where = f" at line {first['line']}, at {at!r}" if at else ""
        hint = INSTEAD_OF.get(at.upper(), f"correct it; or {METHODS}")
        raise InputError(f"sql() cannot read this statement{where}: {shown(words.text)}", hint=hint) from error
    except RecursionError:
        raise InputError("the statement is nested too deeply", hint=METHODS) from None
    return tree


def _require_values(tree: exp.Expression) -> None:
    """Every marker must have got its value before."""
    for node in tree.find_all(exp.Placeholder, exp.Parameter):
        name = node.name
        if isinstance(node, exp.Placeholder) and name.isidentifier() and not node.args.get("widget"):
            raise InputError(f"the statement has no value for :{name}", hint=f'pass args={{"{name}": ...}}')
        raise refused("markers other than :name", 'name them, such as :price, and pass args={"price": 5}')


def _update(tree: exp.Expression, words: Words) -> Update:
    require_only(tree, "this", "expressions", "where")
    setting = words.find(1, len(words), "SET")
    if setting == len(words):
        raise InputError("the UPDATE has no SET", hint="write UPDATE the table SET column = value WHERE condition")
    where = words.find(setting, len(words), "WHERE")
    assigned = assignments_of(tree.expressions, words, setting + 1, where)
    return Update(target_of(tree.this), assigned, *_where(tree, words, where))


def _delete(tree: exp.Expression, words: Words) -> Delete:
    require_only(tree, "this", "where")
    return Delete(target_of(tree.this), *_where(tree, words, words.find(1, len(words), "WHERE")))


def _where(tree: exp.Expression, words: Words, at: int) -> tuple[str | None, tuple[Name, ...]]:
    """The condition, and the relations that its subqueries name."""
    where = optional_part(tree, "where")
    if (where is None) is not (at == len(words)):
        raise Unclear(at)
    return (None, ()) if where is None else (words.piece(at + 1, len(words)), relations_of(where))


def _insert(tree: exp.Expression, words: Words) -> Insert:
    require_only(tree, "this", "expression", "source", "overwrite", "by_name", "where")
    into, columns = tree.this, None
    if isinstance(into, exp.Directory):
        raise refused("INSERT OVERWRITE DIRECTORY", "it does not write to the table: use spark.sql")
    if isinstance(into, exp.Schema):
        columns = tuple(name_of(column) for column in into.expressions)
        into = into.this
    at = _after_name(words, 3 if words[2] == "TABLE" else 2)
    partition, at = _partition(into, words, at)
    target = target_of(into)
    if target.alias:
        raise refused("alias for the target of an INSERT", "leave it out")
    if columns is not None:
        at = words.group(at)[1] + 1
    by_name = bool(tree.args.get("by_name"))
    if by_name:
        at += 2
    replaced, where = None, optional_part(tree, "where")
    if where is not None:
        if (words[at], words[at + 1]) != ("REPLACE", "WHERE"):
            raise Unclear(at)
        start = _query_start(words, at + 2)
        replaced, at = piece_of(where, words, at + 2, start), start
    query = optional_part(tree, "expression") or optional_part(tree, "source")
    if query is None or words[at] not in (*_STARTS_QUERY, "("):
        raise Unclear(at)
    for value in query.find_all(exp.Var):
        if isinstance(value.parent, exp.Tuple):
            require_no_default(value.name)
    overwrite = bool(tree.args.get("overwrite"))
    return Insert(target, words.piece(at, len(words)), columns, by_name, overwrite, replaced, partition, relations_of(query))


def _partition(into: exp.Expression, words: Words, at: int) -> tuple[tuple[tuple[Name, str | None], ...], int]:
    """The columns of `PARTITION (…)`, which is taken off the target, and the word after it."""
    node = optional_part(into, "partition")
    if node is None:
        return (), at
    into.set("partition", None)
    start, stop = words.group(at + 1)
    parts = list(words.parts(start, stop))
    if words[at] != "PARTITION" or len(parts) != len(node.expressions):
        raise Unclear(at)
    found: list[tuple[Name, str | None]] = []
    for each, (begin, end) in zip(node.expressions, parts, strict=True):
        if isinstance(each, exp.EQ):
            equals = words.find(begin, end, "=")
            found.append((name_of(each.this), piece_of(each.expression, words, equals + 1, end)))
        else:
            found.append((name_of(each), None))
    return tuple(found), stop + 1


def _after_name(words: Words, at: int) -> int:
    while words[at + 1] == ".":
        at += 2
    return at + 1


def _query_start(words: Words, start: int) -> int:
    found = words.every(start, len(words), *_STARTS_QUERY)
    # As in `a IS DISTINCT FROM b`.
    return next((at for at in found if (words[at - 1], words[at]) != ("DISTINCT", "FROM")), len(words))


_READERS: dict[str, tuple[type[exp.Expression], Callable[[exp.Expression, Words], Statement]]] = {
    "UPDATE": (exp.Update, _update),
    "DELETE": (exp.Delete, _delete),
    "INSERT": (exp.Insert, _insert),
    "MERGE": (exp.Merge, merge_of),
}

_EXPRESSION_ID = re.compile(r"#\d+L?")


def require_same_reading(spark: SparkSession, text: str, statement: Statement) -> None:
    """Raise unless Spark reads the user's text and the statement put together from its pieces as the same plan.

    Spark's ParseException says what Spark itself does not accept.
    """
    parser: Any = spark._jsparkSession.sessionState().sqlParser()  # type: ignore[attr-defined]
    given, cut = parser.parsePlan(text), parser.parsePlan(text_of(statement))
    alike = given.getClass().equals(cut.getClass()) and given.productArity() == cut.productArity()
    if alike and all(_same(given.productElement(at), cut.productElement(at)) for at in range(given.productArity())):
        return
    raise InputError(
        f"Spark reads this statement in another way than sql(): {shown(text)}",
        hint=f"put parentheses around each value and condition, and leave comments out; or {METHODS}",
    )


def _same(one: Any, other: Any) -> bool:
    """Aliases in a query get a new number each time that they are parsed."""
    return bool(one == other) or _EXPRESSION_ID.sub("", str(one)) == _EXPRESSION_ID.sub("", str(other))
