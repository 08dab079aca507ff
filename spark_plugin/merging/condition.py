"""What the condition of a merge says, by Spark's own analysis: about the target alone, and which columns it equates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession

from lakelock.errors import InputError, SchemaError
from lakelock.spark_plugin.conditions import Condition, condition_text
from lakelock.spark_plugin.merging.builder import MergeSpec
from lakelock.spark_plugin.session.versions import column_of, condition_of, try_cast
from lakelock.table.rows import spelled
from lakelock.table.schema import TableSchema
from lakelock.texts import column_hint

_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")
_EXACT = (*_WHOLE_NUMBERS, "string", "boolean", "date", "timestamp", "timestamp_ntz")
"""Types of which two values are equal to Spark exactly if they make the same record key. Floating-point numbers are not."""
_EQUATIONS = ("EqualTo", "EqualNullSafe")


@dataclass(frozen=True)
class MergeCondition:
    """`of_target` is the part that stored rows decide alone, None if there is none or it asks for the time. `equated` says, by
    column of the table, which expression of the source it must equal, in the column's type: null where no value can.
    `same` has, by column of the table, the columns of the source that it must equal; `compared` also those that `<=>` equates.
    `only_equates`: the condition is nothing but such equations.
    """

    of_target: Condition | None
    equated: Mapping[str, Column]
    same: Mapping[str, frozenset[str]]
    compared: Mapping[str, frozenset[str]]
    only_equates: bool

    @classmethod
    def of(cls, target: DataFrame, source: DataFrame, on: str | Column) -> MergeCondition:
        """The analysis of `on`; both frames have their aliases. `InputError` if its answers may vary, or if it equates nothing:
        to find the partners of a row, all rows would have to be compared with all.
        """
        spark = target.sparkSession
        # Spark refuses such a condition of a join, in words of its own; a filter takes it.
        try:
            condition = _plan(target.crossJoin(source).where(on)).condition()
        except AnalysisException as error:
            if condition_of(error) != "AMBIGUOUS_REFERENCE":
                raise
            raise InputError(
                f"the condition {condition_text(on)} does not say whose column it means: {str(error).splitlines()[0]}",
                hint='name the side, "target.id = source.id", or the columns that are equal: table.merge(df, "id")',
            ) from None
        if not condition.deterministic():
            raise InputError(
                f"the condition {condition_text(on)} may give a different answer each time it is evaluated",
                hint="compute such values in the source, and persist it",
            )
        conjuncts = list(_conjuncts(condition))
        stored, given, names = _plan(target).outputSet(), _plan(source).outputSet(), target.columns
        sides = [_Side(stored), _Side(given)]
        if not any(_equates(node, sides[0], sides[1]) for node in conjuncts):
            raise InputError(
                f"the condition {condition_text(on)} does not equate anything of the table with anything of the source",
                hint="say which rows belong together, such as target.id = source.id",
            )
        equated: dict[str, Column] = {}
        same: dict[str, frozenset[str]] = {}
        compared: dict[str, frozenset[str]] = {}
        only_equates = True
        for node in conjuncts:
            found = list(_keys(spark, node, sides[1], names))
            only_equates = only_equates and bool(found)
            for name, column, theirs in found:
                compared[name] = compared.get(name, frozenset()) | theirs
                if node.nodeName() == "EqualTo":
                    equated.setdefault(name, column)
                    same[name] = same.get(name, frozenset()) | theirs
        alone = [node for node in conjuncts if sides[0].has(node)]
        watched = None
        if alone:
            text = " AND ".join(node.sql() for node in alone)
            both = column_of(spark, alone[0])
            for node in alone[1:]:
                both = both & column_of(spark, node)
            watched = Condition.of_filter(spark, target.where(both), text)
        return cls(watched, equated, same, compared, only_equates)


def with_columns_equated(spec: MergeSpec, schema: TableSchema) -> MergeSpec:
    """The spec with a condition, where it is about columns by their names: `"id"`, of both sides, or a list of these.

    `SchemaError` for a listed column that a side lacks.
    """
    of_source, listed = spec.source.columns, spec.equal
    if not listed and isinstance(spec.on, str):
        name = spec.on.strip().strip("`")
        both = spelled(name, schema.names) is not None and spelled(name, of_source) is not None
        listed = (name,) if both else ()
    for name in listed:
        for side, there in (("table", schema.names), ("source", of_source)):
            if spelled(name, there) is None:
                raise SchemaError(f"merge: the {side} has no column {name!r}", hint=column_hint(name, there), column=name)
    equations = [f"{_quoted(spec.target_alias, name)} = {_quoted(spec.source_alias, name)}" for name in listed]
    return replace(spec, on=" AND ".join(equations)) if equations else spec


def _quoted(*parts: str) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


@dataclass(frozen=True)
class _Side:
    """The columns of one side of the merge."""

    columns: Any

    def has(self, node: Any) -> bool:
        """Whether an expression is about this side only."""
        references = node.references()
        return not references.isEmpty() and references.subsetOf(self.columns)


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _conjuncts(node: Any) -> Iterator[Any]:
    if node.nodeName() == "And":
        yield from _conjuncts(node.left())
        yield from _conjuncts(node.right())
    else:
        yield node


def _equates(node: Any, one: _Side, other: _Side) -> bool:
    """Whether the part is an equation between both sides, by which Spark can bring their rows together."""
    if node.nodeName() not in _EQUATIONS:
        return False
    left, right = node.left(), node.right()
    return (one.has(left) and other.has(right)) or (one.has(right) and other.has(left))


def source_column(side: DataFrame, value: Column, source: DataFrame) -> str | None:
    """The name of the column of the source that a value on the rows of a side is, if it is nothing more."""
    plan = _plan(side.select(value))
    if plan.nodeName() != "Project":
        return None
    node = plan.projectList().apply(0)
    named = _Side(_plan(source).outputSet()).has(node) and node.nodeName() == "AttributeReference"
    return str(node.name()) if named else None


def _keys(spark: SparkSession, node: Any, source: _Side, names: Sequence[str]) -> Iterator[tuple[str, Column, frozenset[str]]]:
    """A column of the target, which has these `names`, that the part equates with an expression of the source, and which
    column that is, if it is one."""
    if node.nodeName() not in _EQUATIONS:
        return
    for mine, theirs in ((node.left(), node.right()), (node.right(), node.left())):
        widened = mine.nodeName() == "Cast"
        column = mine.child() if widened else mine
        if column.nodeName() != "AttributeReference" or source.has(column) or not source.has(theirs):
            continue
        stored, compared = column.dataType().simpleString(), mine.dataType().simpleString()
        exact = stored in _EXACT or stored.startswith("decimal(")
        if theirs.dataType().simpleString() != compared or not exact:
            continue
        given = _without_widening(theirs)
        named = frozenset({str(given.name())}) if given.nodeName() == "AttributeReference" else frozenset[str]()
        # An analysed column has the name as its user has spelled it.
        name = spelled(column.name(), names) or column.name()
        if not widened:
            yield name, column_of(spark, theirs), named
        elif stored in _WHOLE_NUMBERS and compared in _WHOLE_NUMBERS:
            # A greater number than the column can hold equals none of its values.
            yield name, try_cast(spark, theirs, column.dataType()), named


def _without_widening(node: Any) -> Any:
    """The whole number that the node only has in a wider type; any other node as it is."""
    if node.nodeName() != "Cast":
        return node
    to, of = node.dataType().simpleString(), node.child().dataType().simpleString()
    whole = to in _WHOLE_NUMBERS and of in _WHOLE_NUMBERS and _WHOLE_NUMBERS.index(of) < _WHOLE_NUMBERS.index(to)
    return node.child() if whole else node
