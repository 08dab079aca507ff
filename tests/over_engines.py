"""Transactions over several tables, and reads of several tables at one moment, by their engines."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType

import pyarrow as pa

from lakelock.engine.arrow import ArrowEngine
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.committed import Committed
from lakelock.occ.multi_table import MultiTableTransaction, timelines_of_one_moment, transaction_over
from lakelock.occ.open_table import retry_if_overtaken
from lakelock.occ.request import WriteRequest
from lakelock.table.rewriting import Condition
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import Snapshot
from lakelock.tables import TableTransaction


class ArrowTransaction:
    """`with transaction(orders, stock) as tx:` reads and writes `tx[orders]` and `tx[stock]`, and commits at its end.

    Everything becomes visible in all tables, or nothing in any. What the commit raises is in `MultiTableTransaction.commit`. An
    exception in the block rolls everything back. In PESSIMISTIC mode all tables are locked from the beginning, together.
    `committed`: what each table's write did, once the block has ended.
    """

    def __init__(self, engines: tuple[ArrowEngine, ...], request: WriteRequest) -> None:
        self._engines, self._request = engines, request
        self._held = ExitStack()
        self._tx: MultiTableTransaction | None = None
        self._blocks: tuple[TableTransaction, ...] = ()
        self.committed: tuple[Committed, ...] = ()

    def __enter__(self) -> ArrowTransaction:
        coordinators = [engine.coordinator for engine in self._engines]
        self._tx = self._held.enter_context(transaction_over(coordinators, self._request))
        pairs = zip(self._engines, self._tx.parts, strict=True)
        self._blocks = tuple(TableTransaction(engine, part) for engine, part in pairs)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._tx is not None
        with self._held:
            if error is None:
                for block in self._blocks:
                    if block.wrote:
                        block.committed()
                self.committed = self._tx.commit()

    def __getitem__(self, engine: ArrowEngine) -> TableTransaction:
        """The part of one of the tables that the transaction was begun with."""
        return self._blocks[self._engines.index(engine)]


class ArrowSnapshot:
    """Several tables as of one moment: `snapshot(orders, stock)[orders].read()`. Later commits do not show."""

    def __init__(self, engines: tuple[ArrowEngine, ...]) -> None:
        self._engines = engines
        self._readers = retry_if_overtaken(partial(_readers, engines))

    def __getitem__(self, engine: ArrowEngine) -> ReadOnlyTable:
        return self._readers[self._engines.index(engine)]


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
