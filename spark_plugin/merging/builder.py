"""A merge, clause by clause: in the style of PySpark, and by Delta's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from pyspark.sql import Column, DataFrame

from lakelock.checked_calls import checked_calls
from lakelock.errors import InputError
from lakelock.spark_plugin.changing.assignments import Assignments, require_mapping
from lakelock.spark_plugin.frames import alias_of, require_batch
from lakelock.spark_plugin.merging.clauses import Clause, Then, When

R = TypeVar("R")
Test = str | Column | None
"""A condition: SQL text, a Column, or None for every row."""


TARGET, SOURCE = "target", "source"
"""What the two sides are called where nobody gives them another name."""


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
