"""What actors do to several tables at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakelock.occ.multi_table import MultiTableTransaction, timelines_of_one_moment
from tests.api import Committed, WriteRequest
from tests.simulator.engine import Engine
from tests.simulator.operations import Operation, State, state_of
from tests.simulator.rows import Row

Place = tuple[str, str]


@dataclass(frozen=True)
class Leg(Operation):
    """One table's part of a transaction over several: it reads an account, changes it, and writes it."""

    table: int
    place: Place
    change: int

    def written(self, state: State) -> Row:
        value, trail = state[self.place][0][:2] if self.place in state else (0, ())
        return Row(*self.place, value + self.change, (*trail, self.id))

    def apply(self, state: State) -> None:
        row = self.written(state)
        state[self.place] = (row.stored,)


@dataclass(frozen=True)
class Move:
    """Move money between accounts of several tables, and read accounts of others: one transaction, not retried."""

    id: int
    legs: tuple[Leg, ...]
    reads: tuple[tuple[int, Place], ...] = ()

    def run(self, engines: Sequence[Engine], noted: dict[str, tuple[int, ...]]) -> tuple[Committed, ...]:
        """Do it as a user would. `noted`: the trails of the accounts that were only read."""
        coordinators = [engine.coordinator for engine in engines]
        with MultiTableTransaction.begin(coordinators, WriteRequest("UPSERT", tag=f"op-{self.id}")) as tx:
            for table, place in self.reads:
                found = state_of(engines[table].read_in(tx.parts[table], None, frozenset({place[1]})))
                noted[account(table, place)] = found[place][0][1] if place in found else ()
            for leg in self.legs:
                engine, part = engines[leg.table], tx.parts[leg.table]
                found = state_of(engine.read_in(part, None, frozenset({leg.place[1]})))
                engine.upsert_in(part, [leg.written(found)])
            return tx.commit()

    def __str__(self) -> str:
        return f"Move {self.id}"


@dataclass(frozen=True)
class Cut:
    """Read all tables as of one moment."""

    id: int

    def run(self, engines: Sequence[Engine]) -> tuple[State, ...]:
        """The rows of each table."""
        timelines = timelines_of_one_moment([engine.coordinator.table for engine in engines])
        return tuple(state_of(engine.read_at(timeline)) for engine, timeline in zip(engines, timelines, strict=True))

    def __str__(self) -> str:
        return f"Cut {self.id}"


@dataclass
class Noted:
    """What transactions over several tables read without writing, and what readers of one moment saw."""

    read: dict[int, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    cuts: dict[int, tuple[State, ...]] = field(default_factory=dict)


def account(table: int, place: Place) -> str:
    """The name of an account among all tables."""
    return f"{table}/{place[1]}"
