"""Moving a table to another lock while nobody writes, so that no two writers ever rely on different ones.

The old lock and the new one are held while compare-and-swap changes the record. A writer that had read the record before
cannot slip through: the boundary of the decision log, which each commit reads under its lock, then names the new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lakelock.admin.audit import audited
from lakelock.admin.live_users import live_users, refuse_live, users_but_the_dead
from lakelock.errors import LockError, ProviderMismatch, SettingsError
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.open_table import OpenTable
from lakelock.occ.records.lock import ensure_recorded, move_recorded, recorded_provider
from lakelock.providers import LockProvider, renewing
from lakelock.providers.base import Lease
from lakelock.texts import command

_OF_ONE_PROCESS = "memory://"
_UNCHANGED = "its lock cannot be changed"


@dataclass(frozen=True)
class Migration:
    """What a migration does or would do. `live` names everybody who must end first; it is empty if nobody must.

    A plan may name locks of writers that were killed; the migration itself watches whoever has locks, and drops the dead.
    """

    table: str
    recorded: str | None
    to: str
    live: tuple[str, ...]
    done: bool = False

    @property
    def needed(self) -> bool:
        return self.recorded != self.to


def plan_migration(coordinator: Coordinator, new: LockProvider) -> Migration:
    """What moving the table to the lock `new` would do; changes nothing in the table.

    The errors of `migrate` that need no change: settings that are not those of the old lock, a new one that cannot be used.
    """
    table = coordinator.table
    recorded = recorded_provider(table.storage)
    if recorded == new.identity:
        return Migration(table.storage.uri, recorded, new.identity, ())
    _check(table, recorded, new)
    return Migration(table.storage.uri, recorded, new.identity, live_users(coordinator, held_by_me=False))


def migrate(coordinator: Coordinator, new: LockProvider, *, reason: str = "") -> Migration:
    """Make `new` the table's lock. `LockError` names every live writer; locks of the dead are dropped after one lease.

    `ProviderMismatch` unless the coordinator was opened with the settings that the writers have had until now.
    """
    table = coordinator.table
    recorded = recorded_provider(table.storage)
    if recorded == new.identity:
        return Migration(table.storage.uri, recorded, new.identity, ())
    old = _check(table, recorded, new)
    ensure_recorded(table.storage, old, table.runtime.uuid())
    refuse_live(table, users_but_the_dead(coordinator), _UNCHANGED)
    act = audited(table.storage, table.runtime, table.writer, f"migrate lock to {new.identity}", old.identity, reason=reason)
    with act, table.locked(operation="migrate lock") as lease, _holding(table, new, lease):
        refuse_live(table, live_users(coordinator, held_by_me=True), _UNCHANGED)
        if lease is not None:
            lease.ensure_active()
        if not move_recorded(table.storage, table.log, old.identity, new.identity):
            raise LockError(
                f"the lock of {table.storage.uri} was changed by somebody else meanwhile",
                hint=command("locks", "ls", table.storage.uri),
            )
    table.observed.same_lock = False
    return Migration(table.storage.uri, old.identity, new.identity, (), done=True)


def _check(table: OpenTable, recorded: str | None, new: LockProvider) -> LockProvider:
    """The old lock, if it is the recorded one and `new` can be used; an error otherwise."""
    old = table.provider
    if old is None or (recorded is not None and recorded != old.identity):
        raise ProviderMismatch(
            f"{table.storage.uri} is guarded by the lock {recorded}, but these settings name "
            f"{old.identity if old else 'no lock'}: the old lock must be held while it is changed",
            hint="run it with the settings that the writers have had until now, and name the new lock by --to",
            recorded=recorded,
            configured=old.identity if old else "",
        )
    if not new.between_processes and not table.storage.uri.startswith(_OF_ONE_PROCESS):
        raise SettingsError(
            f"the lock {new.identity} keeps no two processes apart ({new.strength.exclusion}), and every process can write "
            f"{table.storage.uri}",
            hint="choose a lock that all writers reach, such as --to storage:",
            key="lock.provider",
        )
    new.probe()
    return old


@contextmanager
def _holding(table: OpenTable, new: LockProvider, old: Lease | None) -> Iterator[Lease]:
    """Hold the new lock, too, after waiting for whoever uses it already. It is held if it is `old`, spelled otherwise."""
    if old is not None and _is_granted(new, old):
        yield old
        return
    lease = new.acquire(wait_s=table.settings.lock.wait_s)
    try:
        with renewing(new, lease, table.runtime, table.settings.lock.renew_s, table.events):
            yield lease
    finally:
        new.release(lease)


def _is_granted(provider: LockProvider, lease: Lease) -> bool:
    """Whether this grant holds that lock: nobody but its owner has its grant there."""
    holder = provider.inspect().holder
    return (
        holder is not None
        and holder.writer is not None
        and (holder.writer.writer_id, holder.token) == (lease.owner.writer_id, lease.token)
    )
