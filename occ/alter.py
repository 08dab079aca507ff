"""Changing a table's columns and nothing else: a commit without files, as Hudi's ALTER TABLE writes it.

It conflicts only with incompatible changes of the same columns (`lakelock.occ.schema`).
"""

from __future__ import annotations

from lakelock.occ.committed import Committed
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.request import WriteRequest
from lakelock.occ.retry import with_retries
from lakelock.occ.transaction import Transaction
from lakelock.table.schema import Alteration

ALTER_SCHEMA = "ALTER_SCHEMA"
"""Hudi's name for it."""


def alter(coordinator: Coordinator, alteration: Alteration, *, tag: str = "") -> Committed:
    """Commit the table's columns as changed; `SchemaError`, before any work, for a change that files could not follow."""
    alteration.applied(coordinator.schema(), coordinator.properties)

    def work(tx: Transaction) -> Committed:
        return tx.commit([], schema=alteration.applied(tx.schema, tx.baseline.properties))

    committed = with_retries(coordinator, WriteRequest(ALTER_SCHEMA, tag=tag), work)
    coordinator.know_columns()
    return committed
