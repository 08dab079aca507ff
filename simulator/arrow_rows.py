"""The production engine on a simulated table."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakelock.occ.committed import Committed
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.engine import ArrowEngine
from lakelock.occ.file_tasks import TaskToken, write_new_files
from lakelock.occ.footprint import AppTransaction
from lakelock.occ.transaction import Detached, Transaction
from lakelock.simulator.rows import SCHEMA, Row, partition_of
from lakelock.table.commit_metadata import WriteStat


class ArrowRows:
    """Implements `Rows` with Parquet files."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self._engine = ArrowEngine(coordinator)

    def insert(self, rows: Sequence[Row], tag: str, application: AppTransaction | None = None) -> Committed:
        return self._engine.insert(_table(rows), application=application, tag=tag)

    def insert_detached(self, rows: Sequence[Row], tag: str) -> tuple[Detached, list[WriteStat]]:
        table, stats = self.coordinator.table, []
        with self.coordinator.begin("INSERT", tag=tag) as tx:
            context = tx.write_context()
            for number, part in enumerate(sorted({row.part for row in rows})):
                mine, task = _table([row for row in rows if row.part == part]), TaskToken(number, 0, 0)
                stats += write_new_files(
                    context, partition_of(part), [mine], task, storage=table.storage, runtime=table.runtime
                )
            return tx.detach(), stats

    def upsert(self, rows: Sequence[Row], tag: str, application: AppTransaction | None = None) -> Committed:
        return self._engine.upsert(_table(rows), application=application, tag=tag)

    def delete_keys(self, part: str, keys: Sequence[str], tag: str) -> Committed:
        return self._engine.delete(_table([Row(part, key, 0, ()) for key in keys]), tag=tag)

    def delete_below(self, value: int, tag: str) -> Committed:
        return self._engine.delete(pc.field("v") < value, tag=tag)

    def overwrite(self, rows: Sequence[Row], tag: str) -> Committed:
        return self._engine.overwrite_partitions(_table(rows), tag=tag)

    def read(self) -> list[Row]:
        return _from_table(self._engine.read())

    def read_in(self, tx: Transaction, part: str | None, keys: frozenset[str] | None) -> list[Row]:
        where = pc.field("part") == part if keys is None else pc.field("id").isin(sorted(keys))
        return _from_table(self._engine.read_in(tx, where))

    def upsert_in(self, tx: Transaction, rows: Sequence[Row]) -> Committed:
        return self._engine.upsert_in(tx, _table(rows))


def _table(rows: Sequence[Row]) -> pa.Table:
    columns = [[r.key for r in rows], [r.value for r in rows], [json.dumps(r.trail) for r in rows], [r.part for r in rows]]
    return pa.table(columns, schema=SCHEMA)


def _from_table(table: pa.Table) -> list[Row]:
    return [Row(row["part"], row["id"], row["v"], tuple(json.loads(row["trail"]))) for row in table.to_pylist()]
