"""The parts that statements have in common: names, conditions, values, sources. `node` is a part of sqlglot's tree."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from lakelock.spark_plugin.statements.operations import Assignment, Name, Target
from lakelock.spark_plugin.statements.refusals import refused, refused_part
from lakelock.spark_plugin.statements.words import DIALECT, Unclear, Words, shown


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
    """The name of a column by its parts."""
    return _plain(node.parts if isinstance(node, exp.Column) else [node], node)


def _plain(parts: Sequence[object], whole: exp.Expression) -> Name:
    names = tuple(part.name for part in parts if isinstance(part, exp.Identifier) and part.name)
    if len(names) < len(parts):
        raise refused(f"name such as {shown(whole.sql(DIALECT))}", "write names plainly, or in backquotes: `a name`")
    return names


def piece_of(node: exp.Expression, words: Words, start: int, stop: int) -> str:
    """The text of a condition or value, which may look at nothing but its row."""
    piece = words.piece(start, stop)
    if node.find(exp.Query) is not None:
        raise refused(
            f"subquery in a condition or value: {shown(piece)}",
            "write MERGE INTO … USING (the subquery) AS s ON …, which says what it reads",
        )
    require_no_default(piece)
    return piece


def require_no_default(piece: str) -> None:
    """Refuse the word DEFAULT as a value."""
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
