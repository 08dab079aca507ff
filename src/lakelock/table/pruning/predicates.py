"""The known part of a condition on rows, and its possible answers for rows of which only value ranges are known.

The logic is SQL's: a condition is true, false or null. For a file it is only known which of the three are possible; a file
may be left out if "true" is not among them. Whatever a predicate does not understand can answer all three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Flag
from functools import reduce
from typing import Literal, Protocol

from lakelock.table.statistics import ColumnRange, Value

Operator = Literal["=", "<", "<=", ">", ">="]
_MIRRORED: Mapping[Operator, Operator] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Answers(Flag):
    """Which answers are possible."""

    NONE = 0
    TRUE = 1
    FALSE = 2
    NULL = 4
    ANY = 7


@dataclass(frozen=True)
class Known:
    """What is known about one column in some rows: one of `values` if they are given, otherwise within `range`.

    `values` lists every value that may occur, None for null. `rows` is how many rows the range is about.
    """

    values: tuple[Value | None, ...] | None = None
    range: ColumnRange = field(default_factory=ColumnRange)
    rows: int | None = None

    @property
    def all_null(self) -> bool:
        return self.rows is not None and self.range.nulls == self.rows


NOTHING_KNOWN = Known()
Knowledge = Callable[[str], Known]
"""Returns what is known about a column."""


class Predicate(Protocol):
    """A condition as far as it is understood."""

    def answers(self, known: Knowledge) -> Answers:
        """The answers that it can give for a row about which this is known; too many rather than too few."""
        ...


@dataclass(frozen=True)
class Anything:
    """A part of a condition that is not understood."""

    def answers(self, known: Knowledge) -> Answers:
        return Answers.ANY


@dataclass(frozen=True)
class Constant:
    """The same answer for every row."""

    value: bool | None

    def answers(self, known: Knowledge) -> Answers:
        return _answer(self.value)


@dataclass(frozen=True)
class Comparison:
    """`column op value`; the value is not null and of the column's type."""

    column: str
    op: Operator
    value: Value

    @classmethod
    def mirrored(cls, column: str, op: Operator, value: Value) -> Comparison:
        """`value op column`."""
        return cls(column, _MIRRORED[op], value)

    def answers(self, known: Knowledge) -> Answers:
        about = known(self.column)
        if about.values is not None:
            return _union(self._of(each) for each in about.values)
        if about.all_null:
            return Answers.NULL
        null = Answers.NONE if about.range.nulls == 0 else Answers.NULL
        return null | self._within(about.range)

    def _of(self, value: Value | None) -> Answers:
        if value is None:
            return Answers.NULL
        return _answer(_holds(value, self.op, self.value)) if _comparable(value, self.value) else Answers.ANY

    def _within(self, bounds: ColumnRange) -> Answers:
        """The answers for values between the two ends, an unknown end is infinitely far away."""
        least = bounds.least if bounds.least is not None and _comparable(bounds.least, self.value) else None
        greatest = bounds.greatest if bounds.greatest is not None and _comparable(bounds.greatest, self.value) else None
        below = least is None or least < self.value  # type: ignore[operator]
        above = greatest is None or greatest > self.value  # type: ignore[operator]
        inside = (least is None or least <= self.value) and (greatest is None or greatest >= self.value)  # type: ignore[operator]
        places = [(below, _holds(0, self.op, 1)), (inside, _holds(0, self.op, 0)), (above, _holds(1, self.op, 0))]
        return _union(_answer(holds) for possible, holds in places if possible)


@dataclass(frozen=True)
class IsNull:
    """`column is null`; never null itself."""

    column: str

    def answers(self, known: Knowledge) -> Answers:
        about = known(self.column)
        if about.values is not None:
            return _union(_answer(each is None) for each in about.values)
        if about.all_null:
            return Answers.TRUE
        return Answers.FALSE if about.range.nulls == 0 else Answers.TRUE | Answers.FALSE


@dataclass(frozen=True)
class BeginsWith:
    """`column like 'prefix%'`."""

    column: str
    prefix: str

    def answers(self, known: Knowledge) -> Answers:
        about = known(self.column)
        if about.values is not None:
            return _union(self._of(each) for each in about.values)
        if about.all_null:
            return Answers.NULL
        null = Answers.NONE if about.range.nulls == 0 else Answers.NULL
        least, greatest = about.range.least, about.range.greatest
        # Texts with the prefix are never less than it; a text is beyond all of them if its own beginning is greater.
        before = isinstance(greatest, str) and greatest < self.prefix
        beyond = isinstance(least, str) and least[: len(self.prefix)] > self.prefix
        return null | (Answers.FALSE if before or beyond else Answers.TRUE | Answers.FALSE)

    def _of(self, value: Value | None) -> Answers:
        if value is None:
            return Answers.NULL
        return _answer(value.startswith(self.prefix)) if isinstance(value, str) else Answers.ANY


@dataclass(frozen=True)
class Not:
    """The opposite; null stays null."""

    part: Predicate

    def answers(self, known: Knowledge) -> Answers:
        found = self.part.answers(known)
        swapped = Answers.NULL & found
        swapped |= Answers.FALSE if Answers.TRUE in found else Answers.NONE
        return swapped | (Answers.TRUE if Answers.FALSE in found else Answers.NONE)


@dataclass(frozen=True)
class And:
    """True where all parts are, false where one is."""

    parts: tuple[Predicate, ...]

    def answers(self, known: Knowledge) -> Answers:
        return reduce(_both, (part.answers(known) for part in self.parts), Answers.TRUE)


@dataclass(frozen=True)
class Or:
    """False where all parts are, true where one is."""

    parts: tuple[Predicate, ...]

    def answers(self, known: Knowledge) -> Answers:
        return Not(And(tuple(Not(part) for part in self.parts))).answers(known)


def may_hold(predicate: Predicate, known: Knowledge) -> bool:
    """Whether a row about which this is known can satisfy the condition."""
    return Answers.TRUE in predicate.answers(known)


def _answer(value: bool | None) -> Answers:
    if value is None:
        return Answers.NULL
    return Answers.TRUE if value else Answers.FALSE


def _union(found: Iterable[Answers]) -> Answers:
    return reduce(Answers.__or__, found, Answers.NONE)


def _both(one: Answers, other: Answers) -> Answers:
    """Every answer of an AND whose sides answer independently."""
    result = Answers.FALSE & (one | other)
    if Answers.TRUE in one and Answers.TRUE in other:
        result |= Answers.TRUE
    if (Answers.NULL in one and other & ~Answers.FALSE) or (Answers.NULL in other and one & ~Answers.FALSE):
        result |= Answers.NULL
    return result


def _comparable(one: Value, other: Value) -> bool:
    """Whether Python compares these two as Spark does. Not for floats: Spark has an order of NaN and -0.0 among them."""
    if type(one) is not type(other) or isinstance(one, float):
        return False
    return not isinstance(one, datetime) or (one.tzinfo is None) == (other.tzinfo is None)  # type: ignore[union-attr]


def _holds(one: Value, op: Operator, other: Value) -> bool:
    if op == "=":
        return one == other
    if op == "<":
        return bool(one < other)  # type: ignore[operator]
    if op == "<=":
        return bool(one <= other)  # type: ignore[operator]
    return bool(one > other) if op == ">" else bool(one >= other)  # type: ignore[operator]
