"""The clauses of a merge, and which sequences of them make sense. Nothing here needs Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from lakelock.errors import InputError


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
