"""Which lock guards a table: recorded in the table by its first writer, so that no two writers rely on different locks."""

from __future__ import annotations

import json

from lakelock.errors import ProviderMismatch, StorageError
from lakelock.json_object import JsonObject
from lakelock.occ.records.decisions import DecisionLog
from lakelock.providers import LockProvider
from lakelock.storage import Storage, probe
from lakelock.table import layout

FORMAT = 1
_MOVES = 20
"""How often the boundary may be moved by a collector while a lock is being recorded there."""


def recorded_provider(storage: Storage) -> str | None:
    """The identity of the lock that guards the table, None when no writer has recorded one yet."""
    stored = storage.get(layout.LOCK_IDENTITY)
    return None if stored is None else _parse(stored.data)


def ensure_recorded(storage: Storage, provider: LockProvider, write_id: str, *, record: bool = True) -> bool:
    """Record `provider` as the table's lock, or raise `ProviderMismatch` if another is recorded.

    The first of all writers also checks that the storage honours conditional writes (`StorageUnsafe`), since a table that
    Java Hudi made may lie on one that does not, and that the lock service does what is needed. `write_id` is random.
    Without `record`, a table that has no lock on record is left as it is, and the answer is False.
    """
    identity = provider.identity
    recorded = recorded_provider(storage)
    if recorded is None:
        probe(storage, layout.probe(write_id), write_id)
        if not record:
            return False
        provider.probe()
    if recorded is None and storage.put_if_absent(layout.LOCK_IDENTITY, _bytes(identity)) is None:
        recorded = recorded_provider(storage)
    compare_locks(storage, recorded, identity)
    return True


def move_recorded(storage: Storage, log: DecisionLog, before: str, after: str) -> bool:
    """Record another lock, under the old one; False if what is recorded is not `before`, or changes meanwhile.

    The boundary of the decision log, which every transaction reads, names it first: from then on nobody commits under the old
    lock. The record follows. After a crash between the two nobody can commit until the move is repeated.
    """
    stored = storage.get(layout.LOCK_IDENTITY)
    if stored is None or _parse(stored.data) != before:
        return False
    moved = any(log.move_lock(after) for _ in range(_MOVES))
    if moved and storage.put_if_match(layout.LOCK_IDENTITY, _bytes(after), stored.etag) is not None:
        return True
    if moved:
        log.move_lock(recorded_provider(storage) or before)
    return False


def compare_locks(storage: Storage, recorded: str | None, identity: str) -> None:
    """`ProviderMismatch` with both shown, if the table has a lock and it is not `identity`."""
    if recorded is None or recorded == identity:
        return
    raise ProviderMismatch(
        f"{storage.uri} is guarded by the lock {recorded}, but this writer uses {identity}",
        hint=f'set lock.provider to "{recorded}" here; to move the table to another lock, stop its writers and run '
        f"`lakelock locks migrate {storage.uri} --to URI` with the settings of the recorded one",
        recorded=recorded,
        configured=identity,
    )


def _bytes(identity: str) -> bytes:
    return json.dumps({"format": FORMAT, "provider": identity}).encode()


def _parse(data: bytes) -> str:
    try:
        return JsonObject.parse(data).text("provider")
    except ValueError as error:
        raise StorageError(f"{layout.LOCK_IDENTITY} is not readable", hint="delete it while no writer is live") from error
