"""What the actors of a run do: each operation knows how to run on an engine, and its effect on a table used serially."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from lakelock.errors import LakelockError
from lakelock.occ.retry import applied_instead
from tests.api import AppTransaction, Committed, WriteRequest
from tests.simulator.engine import Engine
from tests.simulator.rows import Row, Stored

State = dict[tuple[str, str], tuple[Stored, ...]]
"""The rows of a table by partition and key, in order. Blind inserts may store a key twice."""

TALLIES = "9"


def state_of(rows: Iterable[Row]) -> State:
    """The state that consists of these rows."""
    found: dict[tuple[str, str], list[Stored]] = {}
    for row in rows:
        found.setdefault((row.part, row.key), []).append(row.stored)
    return {place: _in_order(stored) for place, stored in found.items()}


def _in_order(stored: Iterable[Stored]) -> tuple[Stored, ...]:
    return tuple(sorted(stored, key=lambda one: (*one[:2], *((column is not None, column) for column in one[2:]))))


def _upserted(state: State, row: Row) -> None:
    place = row.part, row.key
    state[place] = _in_order(row.onto(one) for one in state[place]) if place in state else (row.stored,)


@dataclass(frozen=True)
class Operation:
    """One thing that an actor does, with a number that is unique in the run."""

    id: int

    @property
    def tag(self) -> str:
        return f"op-{self.id}"

    @property
    def writes(self) -> bool:
        return True

    @property
    def serial(self) -> bool:
        """Whether `apply` describes its effect."""
        return True

    @property
    def tells(self) -> bool:
        """Whether an error from it means that none of its effects is visible."""
        return True

    @property
    def repeats(self) -> bool:
        """Whether it may take several commits."""
        return False

    @property
    def undoes(self) -> bool:
        """Whether it undoes the work of others: what was appended to a row may then be gone."""
        return False

    def run(self, engine: Engine) -> Committed | None:
        """Do it, as a user would; raises what the engine raises."""
        raise NotImplementedError

    def apply(self, state: State) -> None:
        """Apply it to a table that nobody else uses."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{type(self).__name__} {self.id}"


@dataclass(frozen=True)
class Insert(Operation):
    """Append rows; keys are not looked up. With an application it is a micro-batch, as for `Upsert`."""

    rows: tuple[Row, ...]
    application: AppTransaction | None = None

    def run(self, engine: Engine) -> Committed | None:
        return engine.insert(self.rows, self.tag, self.application)

    def apply(self, state: State) -> None:
        for row in self.rows:
            place = row.part, row.key
            state[place] = _in_order([*state.get(place, ()), row.stored])


@dataclass(frozen=True)
class Upsert(Operation):
    """Write rows by key; columns that they lack keep what is stored.

    With an application it is a micro-batch, which is replayed until it has been applied, exactly once.
    """

    rows: tuple[Row, ...]
    application: AppTransaction | None = None

    def run(self, engine: Engine) -> Committed | None:
        return engine.upsert(self.rows, self.tag, self.application)

    def apply(self, state: State) -> None:
        for row in self.rows:
            _upserted(state, row)


@dataclass(frozen=True)
class Relay(Operation):
    """Append rows as Spark's data source does: one process begins, others commit, and abort when the commit failed.

    With an application it is a micro-batch, whose number only the committing process knows.
    """

    rows: tuple[Row, ...]
    application: AppTransaction | None = None

    def run(self, engine: Engine) -> Committed | None:
        begun, stats = engine.insert_detached(self.rows, self.tag)
        try:
            with engine.coordinator.adopt(replace(begun, application=self.application)) as tx:
                return tx.commit(stats)
        except LakelockError as error:
            applied = applied_instead(engine.coordinator, self.application, "INSERT", error)
            if applied is not None:
                return applied
            with suppress(LakelockError):
                engine.coordinator.abandon(begun, "the job failed")
            raise

    def apply(self, state: State) -> None:
        Insert(self.id, self.rows).apply(state)


@dataclass(frozen=True)
class DeleteKeys(Operation):
    part: str
    keys: tuple[str, ...]

    def run(self, engine: Engine) -> Committed | None:
        return engine.delete_keys(self.part, self.keys, self.tag)

    def apply(self, state: State) -> None:
        for key in self.keys:
            state.pop((self.part, key), None)


@dataclass(frozen=True)
class DeleteBelow(Operation):
    """Delete every row whose value is below a limit."""

    limit: int

    def run(self, engine: Engine) -> Committed | None:
        return engine.delete_below(self.limit, self.tag)

    def apply(self, state: State) -> None:
        for place, stored in list(state.items()):
            kept = tuple(one for one in stored if one[0] >= self.limit)
            if kept:
                state[place] = kept
            else:
                del state[place]


@dataclass(frozen=True)
class Overwrite(Operation):
    """Replace the whole content of the partitions that the rows are in."""

    rows: tuple[Row, ...]

    def run(self, engine: Engine) -> Committed | None:
        return engine.overwrite(self.rows, self.tag)

    def apply(self, state: State) -> None:
        parts = {row.part for row in self.rows}
        for place in [place for place in state if place[0] in parts]:
            del state[place]
        for row in self.rows:
            state[row.part, row.key] = (row.stored,)


@dataclass(frozen=True)
class Transfer(Operation):
    """Read two accounts, move money, write both: one transaction, not retried."""

    source: tuple[str, str]
    target: tuple[str, str]
    amount: int

    def run(self, engine: Engine) -> Committed | None:
        with engine.coordinator.begin(WriteRequest("UPSERT", tag=self.tag)) as tx:
            found = state_of(engine.read_in(tx, None, frozenset({self.source[1], self.target[1]})))
            return engine.upsert_in(tx, self._written(found))

    def apply(self, state: State) -> None:
        for row in self._written(state):
            _upserted(state, row)

    def _written(self, state: State) -> list[Row]:
        rows = []
        for place, change in ((self.source, -self.amount), (self.target, self.amount)):
            value, trail = state[place][0][:2] if place in state else (0, ())
            rows.append(Row(*place, value + change, (*trail, self.id)))
        return rows


@dataclass(frozen=True)
class Tally(Operation):
    """Count the rows of a partition and write the number into another one: one transaction, not retried."""

    part: str

    def run(self, engine: Engine) -> Committed | None:
        with engine.coordinator.begin(WriteRequest("UPSERT", tag=self.tag)) as tx:
            return engine.upsert_in(tx, [self._row(len(engine.read_in(tx, self.part, None)))])

    def apply(self, state: State) -> None:
        count = sum(len(stored) for (part, _), stored in state.items() if part == self.part)
        row = self._row(count)
        state[row.part, row.key] = (row.stored,)

    def _row(self, count: int) -> Row:
        return Row(TALLIES, f"tally-{self.part}", 1000 + count, (self.id,))


@dataclass(frozen=True)
class Look(Operation):
    """Read the whole table, outside any transaction."""

    @property
    def writes(self) -> bool:
        return False


@dataclass(frozen=True)
class LookBack(Look):
    """Read the whole table as of a few commits ago."""

    back: int = 1


@dataclass(frozen=True)
class Reap(Operation):
    """Finish or remove what dead writers left behind."""

    @property
    def writes(self) -> bool:
        return False

    def run(self, engine: Engine) -> Committed | None:
        engine.coordinator.reap()
        return None


@dataclass(frozen=True)
class Collect(Reap):
    """Delete decisions that nobody needs any longer."""

    def run(self, engine: Engine) -> Committed | None:
        engine.coordinator.collect()
        return None


@dataclass(frozen=True)
class BreakLock(Reap):
    """An operator takes the lock away from whoever holds it."""

    def run(self, engine: Engine) -> Committed | None:
        provider = engine.coordinator.table.provider
        if provider is not None:
            held = provider.inspect()
            if held.holder is not None:
                provider.break_lock(held.token, force=True)
        return None
