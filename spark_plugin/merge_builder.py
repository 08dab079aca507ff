"""A merge as it is described: clause by clause in the style of PySpark, also by Delta's names, and what its condition says.

The sequences of clauses that make sense are checked without Spark. Of the condition Spark's own analysis tells the part about
the target alone, and which columns it equates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession

from lakelock.checked_calls import checked_calls
from lakelock.errors import InputError, SchemaError
from lakelock.spark_plugin.arguments import Assignments, require_mapping
from lakelock.spark_plugin.conditions import Condition, condition_text
from lakelock.spark_plugin.spark_session import alias_of, column_of, condition_of, quoted, require_batch, try_cast
from lakelock.table.rows import spelled
from lakelock.table.schema import TableSchema
from lakelock.texts import column_hint


class When(str, Enum):
    """The rows that a clause is about: pairs of a stored and a source row, source rows alone, stored rows alone."""

    MATCHED = "matched"
    NOT_MATCHED = "not_matched"
    NOT_MATCHED_BY_SOURCE = "not_matched_by_source"


class Then(str, Enum):
    """What a clause does with its rows."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True)
class Clause:
    """One clause. `values` are the assignments of an update or insert; None stands for all columns of the source.

    The condition is SQL text or a Column; None: the clause takes every row of its kind.
    """

    when: When
    then: Then
    values: Mapping[str, object] | None = None
    condition: Any = None

    @property
    def name(self) -> str:
        """As the method that adds it is called."""
        every = "_all" if self.values is None and self.then is not Then.DELETE else ""
        return f"when_{self.when.value}_{self.then.value}{every}"


def require_sensible(clauses: Sequence[Clause]) -> None:
    """`InputError` unless there is a clause and each can apply: of one kind only the last may have no condition."""
    if not clauses:
        raise InputError(
            "the merge has no clause, so it would change nothing",
            hint="add what it should do, such as .when_matched_update_all().when_not_matched_insert_all()",
        )
    catch_all: dict[When, Clause] = {}
    for clause in clauses:
        earlier = catch_all.get(clause.when)
        if earlier is not None:
            raise InputError(
                f"{clause.name} can never apply: {earlier.name} comes before it and has no condition",
                hint="the first clause of a kind whose condition holds applies: put the one without a condition last",
            )
        if clause.condition is None:
            catch_all[clause.when] = clause


def may_match_often(clauses: Sequence[Clause]) -> bool:
    """Whether several source rows may match one stored row: the merge then does the same, whichever of them counts."""
    matched = [clause for clause in clauses if clause.when is When.MATCHED]
    return [(clause.then, clause.condition is None) for clause in matched] == [(Then.DELETE, True)]


R = TypeVar("R")
Test = str | Column | None
"""A condition: SQL text, a Column, or None for every row."""

TARGET, SOURCE = "target", "source"
"""The names of the two sides unless the user gives others."""


@dataclass(frozen=True)
class MergeSpec:
    """What a merge is to do. `target_alias` and `source_alias` are the names of both sides in its expressions.

    `equal` are columns that both sides have: their equality is the condition, instead of `on`. With `merge_schema` the table
    gets the columns and fields of the source that it lacks and that a clause writes.
    """

    source: DataFrame
    on: str | Column
    target_alias: str = TARGET
    source_alias: str = SOURCE
    clauses: tuple[Clause, ...] = ()
    equal: tuple[str, ...] = ()
    merge_schema: bool = False

    @classmethod
    def of(
        cls, source: DataFrame, on: str | Column | Sequence[str], target_alias: str | None, source_alias: str | None
    ) -> MergeSpec:
        """From the arguments of a call: a condition, or columns. `InputError` if it is an empty list."""
        source = require_batch(source, "merge")
        aliases = target_alias or TARGET, source_alias or alias_of(source)
        if isinstance(on, str | Column):
            return cls(source, on, *aliases)
        if not on:
            raise InputError("merge: on is an empty list", hint='name the columns to be equal: table.merge(df, ["id", "day"])')
        return cls(source, "", *aliases, equal=tuple(on))

    def has(self, *whens: When) -> bool:
        """Whether it has a clause about such rows."""
        return any(clause.when in whens for clause in self.clauses)


@checked_calls
@dataclass(frozen=True)
class MergeBuilder(Generic[R]):
    """A merge that is being described: each method returns a new one, and `execute` runs it.

    For each pair of a stored and a source row that `on` accepts, for each source row without a partner and for each stored row
    without one, the first clause of its kind whose condition holds applies; without such a clause nothing happens to the row.
    Conditions and values are SQL texts or Columns that name the sides, `target.x` and `source.x`; values of other Python types
    are literals. The methods in camel case are Delta's, with its order of arguments.
    """

    spec: MergeSpec
    run: Callable[[MergeSpec], R]

    def when_matched_update(self, set: Assignments, condition: Test = None) -> MergeBuilder[R]:  # noqa: A002 - SQL's word
        """Give the stored row new values; not in key and partition columns."""
        return self._with(When.MATCHED, Then.UPDATE, require_mapping(set, "when_matched_update"), condition)

    def when_matched_update_all(self, condition: Test = None) -> MergeBuilder[R]:
        """Give every column of the stored row the value of the source row's column of this name."""
        return self._with(When.MATCHED, Then.UPDATE, None, condition)

    def when_matched_delete(self, condition: Test = None) -> MergeBuilder[R]:
        """Delete the stored row."""
        return self._with(When.MATCHED, Then.DELETE, None, condition)

    def when_not_matched_insert(self, values: Assignments, condition: Test = None) -> MergeBuilder[R]:
        """Insert a row with these values; other columns are null."""
        return self._with(When.NOT_MATCHED, Then.INSERT, require_mapping(values, "when_not_matched_insert"), condition)

    def when_not_matched_insert_all(self, condition: Test = None) -> MergeBuilder[R]:
        """Insert the source row's columns of the table's names."""
        return self._with(When.NOT_MATCHED, Then.INSERT, None, condition)

    def when_not_matched_by_source_update(
        self,
        set: Assignments,  # noqa: A002 - SQL's word
        condition: Test = None,
    ) -> MergeBuilder[R]:
        """Give the stored row that no source row matches new values."""
        values = require_mapping(set, "when_not_matched_by_source_update")
        return self._with(When.NOT_MATCHED_BY_SOURCE, Then.UPDATE, values, condition)

    def when_not_matched_by_source_delete(self, condition: Test = None) -> MergeBuilder[R]:
        """Delete the stored row that no source row matches."""
        return self._with(When.NOT_MATCHED_BY_SOURCE, Then.DELETE, None, condition)

    def with_schema_evolution(self) -> MergeBuilder[R]:
        """Add the source's columns and fields that the table lacks and a clause writes: `write.merge_schema` of this merge."""
        return replace(self, spec=replace(self.spec, merge_schema=True))

    def execute(self) -> R:
        """Run the merge, as one transaction (or as part of the one that it belongs to).

        Two source rows that would change one stored row are a `DuplicateKeyError`, and so are two new rows of one key:
        nothing is committed.
        """
        return self.run(self.spec)

    def whenMatchedUpdate(self, condition: Test = None, set: Assignments | None = None) -> MergeBuilder[R]:  # noqa: A002, N802
        return self.when_matched_update(set or {}, condition)

    def whenMatchedUpdateAll(self, condition: Test = None) -> MergeBuilder[R]:  # noqa: N802
        return self.when_matched_update_all(condition)

    def whenMatchedDelete(self, condition: Test = None) -> MergeBuilder[R]:  # noqa: N802
        return self.when_matched_delete(condition)

    def whenNotMatchedInsert(self, condition: Test = None, values: Assignments | None = None) -> MergeBuilder[R]:  # noqa: N802
        return self.when_not_matched_insert(values or {}, condition)

    def whenNotMatchedInsertAll(self, condition: Test = None) -> MergeBuilder[R]:  # noqa: N802
        return self.when_not_matched_insert_all(condition)

    def whenNotMatchedBySourceUpdate(  # noqa: N802
        self,
        condition: Test = None,
        set: Assignments | None = None,  # noqa: A002
    ) -> MergeBuilder[R]:
        return self.when_not_matched_by_source_update(set or {}, condition)

    def whenNotMatchedBySourceDelete(self, condition: Test = None) -> MergeBuilder[R]:  # noqa: N802
        return self.when_not_matched_by_source_delete(condition)

    def withSchemaEvolution(self) -> MergeBuilder[R]:  # noqa: N802
        return self.with_schema_evolution()

    def _with(self, when: When, then: Then, values: Assignments | None, condition: Test) -> MergeBuilder[R]:
        clause = Clause(when, then, values, condition)
        return replace(self, spec=replace(self.spec, clauses=(*self.spec.clauses, clause)))


_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")
_EXACT = (*_WHOLE_NUMBERS, "string", "boolean", "date", "timestamp", "timestamp_ntz")
"""Types of which two values are equal to Spark exactly if they make the same record key. Floating-point numbers are not."""
_EQUATIONS = ("EqualTo", "EqualNullSafe")


@dataclass(frozen=True)
class MergeCondition:
    """`of_target` is the part that stored rows decide alone, None if there is none or it asks for the time. `equated` says, by
    column of the table, which expression of the source it must equal, in the column's type: null where no value can.
    `same` has, by column of the table, the columns of the source that it must equal; `compared` also those that `<=>` equates.
    `only_equates`: the condition is nothing but such equations; `at_most_once`: no two of them are about one column.
    """

    of_target: Condition | None
    equated: Mapping[str, Column]
    same: Mapping[str, frozenset[str]]
    compared: Mapping[str, frozenset[str]]
    only_equates: bool
    at_most_once: bool

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
        only_equates = at_most_once = True
        for node in conjuncts:
            found = list(_keys(spark, node, sides[1], names))
            only_equates = only_equates and bool(found)
            for name, column, theirs in found:
                at_most_once = at_most_once and name not in compared
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
        return cls(watched, equated, same, compared, only_equates, at_most_once)


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
    equations = [f"{quoted(spec.target_alias, name)} = {quoted(spec.source_alias, name)}" for name in listed]
    return replace(spec, on=" AND ".join(equations)) if equations else spec


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
