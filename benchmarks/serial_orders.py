"""Would a serial order have allowed a transaction? Answered from rows alone: no file, no profile and no rule is asked.

A transaction is what it observed and what it wrote. It *observes* what its result depends on: which of its keys an upsert
found, which rows matched a delete, the rows themselves if it computed from them, nothing if it only appended. A serial order
allows it if there is a place among the committed ones at which it observes the same again, and all that come after it still
observe what they did. Two restrictions make the answer mean what users mean: the place is not before a transaction that
had committed when it began, and the order of the others is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

State = Mapping[str, Mapping[str, int]]
"""The rows of a table: partition, key, value. Never changed in place."""


class Kind(str, Enum):
    """What a transaction does."""

    INSERT = "insert"
    UPSERT = "upsert"
    DELETE = "delete"
    UPDATE = "update"
    REPORT = "report"
    OVERWRITE = "overwrite"


@dataclass(frozen=True)
class Operation:
    """One transaction on a partition. DELETE, UPDATE and REPORT are about its values from `low` to below `high`."""

    number: int
    kind: Kind
    part: str
    rows: tuple[tuple[str, int], ...] = ()
    low: int = 0
    high: int = 0

    def observed(self, state: State) -> frozenset[Any]:
        """What its result depends on."""
        there = state.get(self.part, {})
        if self.kind is Kind.UPSERT:
            return frozenset(key for key, _ in self.rows if key in there)
        if self.kind is Kind.OVERWRITE:
            return frozenset(there)
        if self.kind is Kind.INSERT:
            return frozenset()
        matching = {key: value for key, value in there.items() if self.low <= value < self.high}
        return frozenset(matching if self.kind is Kind.DELETE else matching.items())


@dataclass(frozen=True)
class Executed:
    """An operation, what it observed, and the rows that it wrote into partitions; None deletes a row."""

    operation: Operation
    seen: frozenset[Any]
    writes: Mapping[str, Mapping[str, int | None]]

    def applied(self, state: State) -> State:
        """The table after it."""
        after = dict(state)
        for part, changes in self.writes.items():
            rows = {**after.get(part, {}), **changes}
            after[part] = {key: value for key, value in rows.items() if value is not None}
        return after


@dataclass(frozen=True)
class _Committed:
    executed: Executed
    number: int
    """Counts commits from 1."""


class SerialOrder:
    """The committed transactions in an order that explains them, as long as there is one."""

    def __init__(self, state: State) -> None:
        self._order: list[_Committed] = []
        self._states: list[State] = [state]
        """The table before each of them, and after the last."""

    @property
    def commits(self) -> int:
        return len(self._order)

    @property
    def state(self) -> State:
        """The table after all of them."""
        return self._states[-1]

    def place(self, executed: Executed, seen_commits: int) -> int | None:
        """The latest place that explains a transaction which began after so many commits; None if there is none."""
        earliest = max((at + 1 for at, one in enumerate(self._order) if one.number <= seen_commits), default=0)
        places = range(len(self._order), earliest - 1, -1)
        return next((at for at in places if self._fits(executed, at)), None)

    def _fits(self, executed: Executed, at: int) -> bool:
        state = self._states[at]
        if executed.operation.observed(state) != executed.seen:
            return False
        state = executed.applied(state)
        for one, before in zip(self._order[at:], self._states[at:], strict=False):
            operation = one.executed.operation
            if operation.observed(state) != operation.observed(before):
                return False
            state = one.executed.applied(state)
        return True

    def commit(self, executed: Executed, at: int | None = None) -> None:
        """Add it at a place that explains it; without one, as the last."""
        at = len(self._order) if at is None else at
        self._order.insert(at, _Committed(executed, len(self._order) + 1))
        del self._states[at + 1 :]
        for one in self._order[at:]:
            self._states.append(one.executed.applied(self._states[-1]))
