"""Which lock guards a table: recorded in the table by its first writer, so that no two writers rely on different locks."""

from __future__ import annotations

import json

from lakelock.errors import ProviderMismatch, StorageError
from lakelock.json_object import JsonObject
from lakelock.providers import LockProvider
from lakelock.storage import Storage, probe
from lakelock.table import layout

FORMAT = 1


def recorded_provider(storage: Storage) -> str | None:
    """The identity of the lock that guards the table, None when no writer has recorded one yet."""
    stored = storage.get(layout.LOCK_IDENTITY)
    return None if stored is None else _parse(stored.data)


def ensure_recorded(storage: Storage, provider: LockProvider, write_id: str) -> None:
    """Record `provider` as the table's lock, or raise `ProviderMismatch` if another is recorded.

    The first of all writers also checks that the storage honours conditional writes (`StorageUnsafe`), since a table that
    Java Hudi made may lie on one that does not, and that the lock service does what is needed. `write_id` is random.
    """
    identity = provider.identity
    recorded = recorded_provider(storage)
    if recorded is None:
        probe(storage, layout.probe(write_id), write_id)
        provider.probe()
    mine = json.dumps({"format": FORMAT, "provider": identity}).encode()
    if recorded is None and storage.put_if_absent(layout.LOCK_IDENTITY, mine) is None:
        recorded = recorded_provider(storage)
    if recorded is not None and recorded != identity:
        raise ProviderMismatch(
            f"{storage.uri} is guarded by the lock {recorded}, but this writer uses {identity}",
            hint=f'set lock.provider to "{recorded}" here, or change all writers to the same',
            recorded=recorded,
            configured=identity,
        )


def _parse(data: bytes) -> str:
    try:
        return JsonObject.parse(data).text("provider")
    except ValueError as error:
        raise StorageError(f"{layout.LOCK_IDENTITY} is not readable", hint="delete it while no writer is live") from error
