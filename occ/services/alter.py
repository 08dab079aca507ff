"""Changing a table's columns and nothing else: a commit without files, as Hudi's ALTER TABLE writes it.

It meets nobody but whoever changes the columns in a way that does not go together with it (`occ/committing/schemas.py`).
"""

from __future__ import annotations

from lakelock.occ.attempts.retrying import with_retries
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.outcomes.committed import Committed
from lakelock.occ.request import WriteRequest
from lakelock.occ.transaction import Transaction
from lakelock.table.schema_changes import Alteration

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
