"""From the text of a statement to its operation. sqlglot says what the statement is; its pieces are cut out of the text itself.

The pieces go to Spark as they are: nothing is translated. What is not known here to have an exact counterpart is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import Dialect, exp
from sqlglot.errors import ParseError

from lakelock.errors import InputError
from lakelock.spark_plugin.statements.merges import merge_of
from lakelock.spark_plugin.statements.operations import Delete, Insert, Name, Statement, Update
from lakelock.spark_plugin.statements.pieces import (
    assignments_of,
    name_of,
    optional_part,
    piece_of,
    relations_of,
    require_no_default,
    require_only,
    target_of,
)
from lakelock.spark_plugin.statements.refusals import INSTEAD_OF, METHODS, refused, refused_statement
from lakelock.spark_plugin.statements.words import DIALECT, Unclear, Words, shown

LONGEST = 1 << 20
"""Characters of a statement. Rows belong into a data frame."""
_STARTS_QUERY = ("SELECT", "WITH", "VALUES", "FROM", "TABLE")


def statement_of(text: object) -> Statement:
    """The operation that a statement asks for; `InputError` names what it has that `sql` does not take, and what to type."""
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST:
        raise InputError(
            f"a statement in SQL is a text of 1 to {LONGEST:,} characters, not {shown(repr(text))}",
            hint="put many rows into a data frame, and use table.insert(df) or table.merge(df, on)",
        )
    words = _one_statement(Words.of(text))
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


def _one_statement(words: Words) -> Words:
    end = len(words)
    while end and words[end - 1] == ";":
        end -= 1
    if not end:
        raise InputError("the statement is empty", hint="it takes UPDATE, DELETE FROM, MERGE INTO and INSERT")
    kept = Words(words.text, words.tokens[:end], words.depths[:end])
    if any(kept[at] == ";" for at in range(end)):
        raise refused("several statements", "call it for each; as one: with table.transaction() as tx: tx.sql(...)")
    return kept


def _tree(words: Words) -> object:
    if words[0] == "MERGE" and "WHEN" not in map(words.__getitem__, range(len(words))):
        raise InputError("the merge has no WHEN clause", hint="say what it should do, such as WHEN MATCHED THEN UPDATE SET *")
    try:
        (tree,) = Dialect.get_or_raise(DIALECT).parser().parse(list(words.tokens), words.text)
    except ParseError as error:
        told = error.errors[0] if error.errors else {}
        at = str(told.get("highlight", ""))
        where = f" at line {told['line']}, at {at!r}" if at else ""
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
    return Update(target_of(tree.this), assigned, _where(tree, words, where))


def _delete(tree: exp.Expression, words: Words) -> Delete:
    require_only(tree, "this", "where")
    return Delete(target_of(tree.this), _where(tree, words, words.find(1, len(words), "WHERE")))


def _where(tree: exp.Expression, words: Words, at: int) -> str | None:
    where = optional_part(tree, "where")
    if (where is None) is not (at == len(words)):
        raise Unclear(at)
    return None if where is None else piece_of(where, words, at + 1, len(words))


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
