"""What the model of transactions over several tables is made of: tables with their logs and timelines, and outcome records.

Each function is one request to storage. What its caller saw before may be old by then.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

COMMIT, ROLLBACK, PREPARE = "C", "R", "P"
Entry = tuple[str, int] | None
Log = tuple[Entry, ...]

ABSENT, PENDING, EMPTIED, COMPLETED, GONE, VOIDED, RUINED = "-pecgv!"
"""What a timeline shows of a transaction. EMPTIED: pending, with its files deleted. VOIDED: gone, by another engine.

RUINED is never right: visible, and its files are deleted.
"""
NO_OUTCOME, COMMITTED, ABORTED = "-ca"


@dataclass(frozen=True)
class Transaction:
    """The tables that it writes, in canonical order (the first is its home), and those that it only reads."""

    writes: tuple[int, ...]
    reads: tuple[int, ...] = ()

    @cached_property
    def tables(self) -> tuple[int, ...]:
        return tuple(sorted(self.writes + self.reads))

    @cached_property
    def is_joint(self) -> bool:
        """Whether it touches several tables, so that it needs prepares and an outcome."""
        return len(self.tables) > 1


class Table(NamedTuple):
    """`shown` has a letter for each transaction. `order`, the decisions that count, is what an observer knows."""

    log: Log
    boundary: int
    shown: str
    order: tuple[int, ...] = ()

    @property
    def head(self) -> int:
        return max(self.boundary, next((n for n in range(len(self.log), 0, -1) if self.log[n - 1] is not None), 0))

    @property
    def newest(self) -> Entry:
        """The record of the head."""
        head = self.head
        return self.log[head - 1] if head else None

    @property
    def completed(self) -> frozenset[int]:
        return frozenset(who for who, letter in enumerate(self.shown) if letter in (COMPLETED, RUINED))

    def is_pending(self, who: int) -> bool:
        return self.shown[who] in (PENDING, EMPTIED)

    def is_completed(self, who: int) -> bool:
        return self.shown[who] in (COMPLETED, RUINED)


class World(NamedTuple):
    """Everything there is. `decided` has each transaction's first outcome, as an observer knows it.

    `late`: requests whose reply got lost, and that are still under way. `losses`: how many replies may yet get lost.
    """

    tables: tuple[Table, ...]
    outcomes: str
    decided: str
    losses: int
    late: tuple[tuple[Any, ...], ...]
    agents: tuple[Any, ...]


def as_agent(world: World, me: int, agent: object) -> World:
    agents = world.agents
    return World(*world[:5], (*agents[:me], agent, *agents[me + 1 :]))


def with_table(world: World, at: int, table: Table) -> World:
    tables = world.tables
    return World((*tables[:at], table, *tables[at + 1 :]), *world[1:])


def show(world: World, at: int, who: int, letter: str) -> World:
    """Change what the timeline shows of a transaction."""
    table = world.tables[at]
    shown = table.shown
    return with_table(world, at, Table(table.log, table.boundary, shown[:who] + letter + shown[who + 1 :], table.order))


def publish(world: World, at: int, who: int) -> World:
    """Make it visible. What another engine has rolled back stays as it is, since the lock keeps that one out."""
    letter = world.tables[at].shown[who]
    if letter in (COMPLETED, VOIDED):
        return world
    return show(world, at, who, COMPLETED if letter == PENDING else RUINED)


def put_decision(world: World, at: int, number: int, entry: tuple[str, int]) -> tuple[World, bool] | None:
    """If absent: the world, and whether it was. None where the log has no such number, so nothing is known beyond it."""
    table = world.tables[at]
    if number > len(table.log):
        return None
    if table.log[number - 1] is not None:
        return world, False
    kind, who = entry
    log = (*table.log[: number - 1], entry, *table.log[number:])
    counts = number > table.boundary
    order = (*table.order, who) if counts and kind != ROLLBACK else table.order
    world = with_table(world, at, Table(log, table.boundary, table.shown, order))
    if counts and kind == COMMIT:
        world = world._replace(decided=world.decided[:who] + COMMITTED + world.decided[who + 1 :])
    return world, True


def set_outcome(world: World, who: int, outcome: str) -> World:
    decided = world.decided
    if decided[who] == NO_OUTCOME != outcome:
        decided = decided[:who] + outcome + decided[who + 1 :]
    outcomes = world.outcomes[:who] + outcome + world.outcomes[who + 1 :]
    return World(world.tables, outcomes, decided, *world[3:])


def put_outcome(world: World, who: int, outcome: str) -> tuple[World, str]:
    """If absent: the world, and which outcome is there now."""
    there = world.outcomes[who]
    return (world, there) if there != NO_OUTCOME else (set_outcome(world, who, outcome), outcome)
