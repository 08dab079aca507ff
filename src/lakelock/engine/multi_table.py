"""Transactions over several tables, and reads of several tables at one moment, without Spark."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType

import pyarrow as pa
import pyarrow.compute as pc

from lakelock.engine.arrow import ArrowEngine
from lakelock.engine.batch import AttemptCache
from lakelock.errors import InputError, TransactionStateError
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.committed import Committed
from lakelock.occ.data_locking import block_of
from lakelock.occ.multi_table import MultiTableTransaction, locked_for_writes, timelines_of_one_moment
from lakelock.occ.open_table import retry_if_overtaken
from lakelock.occ.participant import Participant
from lakelock.occ.request import WriteRequest
from lakelock.settings import MissingColumns
from lakelock.table.rewriting import Condition
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import Snapshot


class TableOfTransaction:
    """One table within a transaction over several: reads of what was there at the beginning, and then writes.

    A write sees the ones before it.
    """

    def __init__(self, engine: ArrowEngine, tx: Participant) -> None:
        self._engine, self._tx = engine, tx

    def read(self, where: Condition | None = None) -> pa.Table:
        """The rows; the commit is rejected if another commits what this read would have seen."""
        return self._engine.read_in(self._tx, where)

    def insert(self, rows: pa.Table) -> None:
        """Append the rows; keys are not looked up."""
        self._tx.continues()
        self._engine.insert_in(self._tx, rows)

    def upsert(self, rows: pa.Table, missing_columns: MissingColumns | None = None) -> None:
        """Insert the rows whose keys the table lacks and replace the others."""
        self._tx.continues()
        self._engine.upsert_in(self._tx, rows, missing_columns, AttemptCache())

    def delete(self, what: pc.Expression | pa.Table) -> None:
        """Delete the rows that satisfy a condition, or those whose key and partition columns are in a table."""
        self._tx.continues()
        if isinstance(what, pa.Table):
            self._engine.delete_keys_in(self._tx, what, AttemptCache())
        else:
            self._engine.delete_where_in(self._tx, what, AttemptCache())


class ArrowTransaction:
    """`with transaction(orders, stock) as tx:` reads and writes `tx[orders]` and `tx[stock]`, and commits at its end.

    Everything becomes visible in all tables, or nothing in any. What the commit raises is in `MultiTableTransaction.commit`. An
    exception in the block rolls everything back. In PESSIMISTIC mode all tables are locked from the beginning, together.
    `committed`: what each table's write did, once the block has ended.
    """

    def __init__(self, engines: tuple[ArrowEngine, ...], request: WriteRequest) -> None:
        self._engines, self._request = engines, request
        self._tx: MultiTableTransaction | None = None
        self._held = ExitStack()
        self.committed: tuple[Committed, ...] = ()

    def __enter__(self) -> ArrowTransaction:
        if self._tx is not None:
            raise TransactionStateError("this transaction was used before", hint="call transaction(...) for a new one")
        coordinators = [engine.coordinator for engine in self._engines]
        with ExitStack() as stack:
            stack.enter_context(locked_for_writes(coordinators))
            self._tx = MultiTableTransaction.begin(coordinators, self._request)
            for part in self._tx.parts:
                stack.enter_context(block_of(part.instant))
            self._held = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._tx is not None
        with self._held, self._tx as tx:
            if error is None:
                self.committed = tx.commit()

    def __getitem__(self, engine: ArrowEngine) -> TableOfTransaction:
        """The part of one of the tables that the transaction was begun with."""
        return TableOfTransaction(engine, self.part(engine))

    def part(self, engine: ArrowEngine) -> Participant:
        """The transaction in one of the tables."""
        place = next((at for at, each in enumerate(self._engines) if each is engine), None)
        if place is None or self._tx is None:
            raise InputError("this table is not part of the transaction", hint="name it in transaction(...)")
        return self._tx.parts[place]


class ArrowSnapshot:
    """Several tables as of one moment: `snapshot(orders, stock)[orders].read()`. Later commits do not show."""

    def __init__(self, engines: tuple[ArrowEngine, ...]) -> None:
        self._engines = engines
        self._readers = retry_if_overtaken(partial(_readers, engines))

    def __getitem__(self, engine: ArrowEngine) -> ReadOnlyTable:
        place = next((at for at, each in enumerate(self._engines) if each is engine), None)
        if place is None:
            raise InputError("this table is not part of the snapshot", hint="name it in snapshot(...)")
        return self._readers[place]


def _readers(engines: tuple[ArrowEngine, ...]) -> tuple[ReadOnlyTable, ...]:
    timelines = timelines_of_one_moment([engine.coordinator.table for engine in engines])
    pairs = zip(engines, timelines, strict=True)
    return tuple(ReadOnlyTable(engine, *engine.coordinator.state_at(timeline)) for engine, timeline in pairs)


@dataclass(frozen=True)
class ReadOnlyTable:
    """One table as of a moment."""

    engine: ArrowEngine
    snapshot: Snapshot
    schema: TableSchema

    def read(self, where: Condition | None = None) -> pa.Table:
        """The rows, without the meta columns."""
        return self.engine.read_files(self.snapshot.files, self.schema, where)


def snapshot(*engines: ArrowEngine) -> ArrowSnapshot:
    """The tables of these engines as of one moment: each transaction over several of them shows in all, or in none."""
    return ArrowSnapshot(engines)


def transaction(*engines: ArrowEngine, application: AppTransaction | None = None, tag: str = "") -> ArrowTransaction:
    """One transaction over the tables of these engines, see `ArrowTransaction`. It is not run again after a conflict.

    `application`: it is applied at most once by this `(app id, version)`; the block is not entered again: `ConflictError`.
    """
    return ArrowTransaction(engines, WriteRequest("UPSERT", application=application, tag=tag))
