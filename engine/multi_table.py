"""Transactions over several tables without Spark."""

from __future__ import annotations

from types import TracebackType

import pyarrow as pa
import pyarrow.compute as pc

from lakelock.engine.arrow import ArrowEngine
from lakelock.engine.memory import Memory
from lakelock.errors import InputError
from lakelock.occ.multi_table.participant import Participant
from lakelock.occ.multi_table.transaction import MultiTableTransaction
from lakelock.occ.outcomes.committed import Committed
from lakelock.occ.records.commit_keys import AppTransaction
from lakelock.settings import MissingColumns
from lakelock.table.rewriting.kernels import Condition


class TableOfTransaction:
    """One table within a transaction over several: reads of what was there at the beginning, and at most one write."""

    def __init__(self, engine: ArrowEngine, tx: Participant) -> None:
        self._engine, self._tx = engine, tx

    def read(self, where: Condition | None = None) -> pa.Table:
        """The rows; the commit is rejected if somebody commits what this read would have seen."""
        return self._engine.read_in(self._tx, where)

    def insert(self, rows: pa.Table) -> None:
        """Append the rows; keys are not looked up."""
        self._engine.insert_in(self._tx, rows)

    def upsert(self, rows: pa.Table, missing_columns: MissingColumns | None = None) -> None:
        """Insert the rows whose keys the table lacks and replace the others."""
        self._engine.upsert_in(self._tx, rows, missing_columns, Memory())

    def delete(self, what: pc.Expression | pa.Table) -> None:
        """Delete the rows that satisfy a condition, or those whose key and partition columns are in a table."""
        if isinstance(what, pa.Table):
            self._engine.delete_keys_in(self._tx, what, Memory())
        else:
            self._engine.delete_where_in(self._tx, what, Memory())


class ArrowTransaction:
    """`with transaction(orders, stock) as tx:` reads and writes `tx[orders]` and `tx[stock]`, and commits at its end.

    Everything becomes visible in all tables, or nothing in any. What the commit raises is in `MultiTableTransaction.commit`. An
    exception in the block rolls everything back. `committed`: what each table's write did, once the block has ended.
    """

    def __init__(self, engines: tuple[ArrowEngine, ...], application: AppTransaction | None, tag: str) -> None:
        self._engines, self._application, self._tag = engines, application, tag
        self._tx: MultiTableTransaction | None = None
        self.committed: tuple[Committed, ...] = ()

    def __enter__(self) -> ArrowTransaction:
        coordinators = [engine.coordinator for engine in self._engines]
        self._tx = MultiTableTransaction.begin(coordinators, application=self._application, tag=self._tag)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._tx is not None
        with self._tx as tx:
            if error is None:
                self.committed = tx.commit()

    def __getitem__(self, engine: ArrowEngine) -> TableOfTransaction:
        """The part of one of the tables that the transaction was begun with."""
        place = next((at for at, each in enumerate(self._engines) if each is engine), None)
        if place is None or self._tx is None:
            raise InputError("this table is not part of the transaction", hint="name it in transaction(...)")
        return TableOfTransaction(engine, self._tx.parts[place])


def transaction(*engines: ArrowEngine, application: AppTransaction | None = None, tag: str = "") -> ArrowTransaction:
    """One transaction over the tables of these engines, see `ArrowTransaction`. It is not run again after a conflict.

    `application`: it is applied at most once by this `(app id, version)`; the block is not entered again: `ConflictError`.
    """
    return ArrowTransaction(engines, application, tag)
