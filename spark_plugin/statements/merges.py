"""MERGE INTO, clause by clause."""

from __future__ import annotations

from sqlglot import exp

from lakelock.errors import InputError
from lakelock.spark_plugin.merging.clauses import Then, When
from lakelock.spark_plugin.statements.operations import Assignment, Merge, MergeClause
from lakelock.spark_plugin.statements.pieces import (
    assignments_of,
    name_of,
    optional_part,
    part_of,
    piece_of,
    relations_of,
    require_only,
    target_of,
)
from lakelock.spark_plugin.statements.refusals import refused
from lakelock.spark_plugin.statements.words import Unclear, Words, shown

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
