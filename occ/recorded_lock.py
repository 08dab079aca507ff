"""What a table has on record for its writers: its lock, so that no two rely on different ones, and the profile they need."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from lakelock.errors import ProviderMismatch, StorageError, TableError
from lakelock.occ.log import DecisionLog
from lakelock.parsing import JsonObject
from lakelock.providers import LockProvider
from lakelock.providers.registry import as_settings
from lakelock.storage import Storage, probe
from lakelock.table import layout
from lakelock.texts import command

FORMAT = 1
_MOVES = 20
"""How often the boundary may be moved by a collector while a lock is being recorded there."""


@dataclass(frozen=True)
class TableGuard:
    """The identity of the lock, recorded by the first writer. `profile` and `isolation` are empty if any will do."""

    provider: str
    profile: str = ""
    isolation: str = ""


def recorded_guard(storage: Storage) -> TableGuard | None:
    """What is on record, None when no writer has recorded anything yet."""
    stored = storage.get(layout.LOCK_IDENTITY)
    return None if stored is None else _parse(stored.data)


def recorded_provider(storage: Storage) -> str | None:
    """The identity of the lock that guards the table, None when no writer has recorded one yet."""
    guard = recorded_guard(storage)
    return None if guard is None else guard.provider


def ensure_recorded(storage: Storage, provider: LockProvider, write_id: str, *, record: bool = True) -> TableGuard | None:
    """Record `provider` as the table's lock if none is; what is on record. `ProviderMismatch` if that is another lock.

    The first of all writers also checks that the storage honours conditional writes (`StorageUnsafe`), since a table that
    Java Hudi made may lie on one that does not, and that the lock service does what is needed. `write_id` is random.
    Without `record`, a table that has no lock on record is left as it is, and the answer is None.
    """
    mine = TableGuard(provider.identity)
    recorded = recorded_guard(storage)
    if recorded is None:
        probe(storage, layout.probe(write_id), write_id)
        if not record:
            return None
        provider.probe()
        if storage.put_if_absent(layout.LOCK_IDENTITY, _bytes(mine)) is None:
            recorded = recorded_guard(storage)
    recorded = recorded or mine
    compare_locks(storage, recorded.provider, mine.provider)
    return recorded


def require_profile(storage: Storage, profile: str, isolation: str) -> bool:
    """Record the weakest profile that writers may have; empty for any. False if the record changes meanwhile or is missing."""
    stored = storage.get(layout.LOCK_IDENTITY)
    if stored is None:
        return False
    wanted = replace(_parse(stored.data), profile=profile, isolation=isolation)
    return storage.put_if_match(layout.LOCK_IDENTITY, _bytes(wanted), stored.etag) is not None


def move_recorded(storage: Storage, log: DecisionLog, before: str, after: str) -> bool:
    """Replace the recorded lock; hold the old one. False if the record is not `before`, or changed meanwhile.

    First the boundary of the decision log, which every transaction reads, names the new lock: from then on none commits under
    the old one. Then the record is replaced. After a crash in between no writer can commit until the move is repeated.
    """
    stored = storage.get(layout.LOCK_IDENTITY)
    guard = None if stored is None else _parse(stored.data)
    if stored is None or guard is None or guard.provider != before:
        return False
    wanted = replace(guard, provider=after)
    moved = any(log.move_lock(after) for _ in range(_MOVES))
    if moved and storage.put_if_match(layout.LOCK_IDENTITY, _bytes(wanted), stored.etag) is not None:
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
        hint=f"set {as_settings(recorded)} here; to move the table to another lock, stop its writers and run "
        f"`{command('locks', 'migrate', storage.uri, '--to', 'URI')}` with the settings of the recorded one",
        recorded=recorded,
        configured=identity,
    )


def _bytes(guard: TableGuard) -> bytes:
    fields = {name: value for name, value in asdict(guard).items() if value or name == "provider"}
    return json.dumps({"format": FORMAT, **fields}).encode()


def _parse(data: bytes) -> TableGuard:
    try:
        found = JsonObject.parse(data)
        version = found.integer("format") if "format" in found.fields else FORMAT
        optional = {name: found.text(name) for name in ("profile", "isolation") if name in found.fields}
        guard = TableGuard(found.text("provider"), **optional)
    except ValueError as error:
        raise StorageError(f"{layout.LOCK_IDENTITY} is not readable", hint="delete it while no writer is live") from error
    if version > FORMAT:
        raise TableError("the record of the table's lock is of a newer lakelock", hint="pip install --upgrade lakelock")
    return guard
