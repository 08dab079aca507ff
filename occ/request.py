"""What a write asks of a table, in one value that goes from the call to the commit."""

from __future__ import annotations

from dataclasses import dataclass

from lakelock.data_locks import Resource
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.targets import Targets
from lakelock.table.layout import FileGroupId


@dataclass(frozen=True)
class WriteRequest:
    """One write of a table. `operation` is Hudi's name for it (INSERT, UPSERT, DELETE, INSERT_OVERWRITE, …).

    `partition` names what may be written: anything else is an `InputError` at the commit. In PESSIMISTIC mode it is locked for
    all attempts together; where it is not named, what is `likely`, else the table. `tag` is kept in the commit. The write of an
    `application` is applied once by its version. `overwrites` lets it replace whole partitions (default: by the operation's
    name).

    `redoes`: an attempt takes over what it can of the one that `tx.redo` names, up to `RetrySettings.redo_attempts` times.
    Without `records_lock` the table's first writer does not record its lock yet, and removes nothing under it: for a job that
    cannot be sure of its settings before its tasks run. It calls `ensure_same_provider` before it commits.
    `new_group`: one that is sure to get its first file, which is announced without a request of its own to wait for.
    """

    operation: str
    partition: Targets = None
    tag: str = ""
    application: AppTransaction | None = None
    likely: tuple[Resource, ...] = ()
    overwrites: bool | None = None
    redoes: bool = False
    records_lock: bool = True
    new_group: FileGroupId | None = None

    @classmethod
    def of(cls, request: WriteRequest | str) -> WriteRequest:
        """The request; the mere name of an operation is one that asks for nothing else."""
        return cls(request) if isinstance(request, str) else request
