"""Manual changes of a table's locks: the record of each, the check for live users, and moving the table to another lock.

There is one record before the act, one after it, and neither is ever changed. A record without its second half means that
the act was begun, and that its end is unknown.

A table moves to another lock while no writer is live, so that no two writers ever rely on different ones. The old lock
and the new one are held while compare-and-swap changes the record. A writer that had read the record before cannot slip
through: the boundary of the decision log, which each commit reads under its lock, then names the new one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial

from lakelock.clock import Runtime
from lakelock.errors import LakelockError, LockError, ProviderMismatch, SettingsError
from lakelock.identity import WriterIdentity
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.foreign import live_others
from lakelock.occ.open_table import OpenTable
from lakelock.occ.recorded_lock import ensure_recorded, move_recorded, recorded_provider
from lakelock.parsing import JsonObject
from lakelock.providers import LockProvider, renewing
from lakelock.providers.base import Lease
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.table.instants import format_instant
from lakelock.texts import command

FORMAT = 1
_BEGUN, _ENDED = "begun", "ended"


@dataclass(frozen=True)
class AuditRecord:
    """One act: who did what to which lock, and why. Times are milliseconds by the clock of the person who acted.

    `outcome` is empty while the act is under way, and stays so when its end could not be recorded.
    """

    id: str
    at_ms: int
    action: str
    by: WriterIdentity
    lock: str
    token: int = 0
    holder: str = ""
    forced: bool = False
    reason: str = ""
    outcome: str = ""
    ended_ms: int | None = None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


@contextmanager
def audited(
    storage: Storage,
    runtime: Runtime,
    by: WriterIdentity,
    action: str,
    lock: str,
    *,
    token: int = 0,
    holder: str = "",
    forced: bool = False,
    reason: str = "",
) -> Iterator[AuditRecord]:
    """Record the act in the block, before and after it. An act that cannot be recorded is not begun."""
    now_ms = runtime.now_ms()
    name = f"{format_instant(now_ms)}-{runtime.uuid()[:8]}"
    record = AuditRecord(name, now_ms, action, by, lock, token, holder, forced, reason)
    _put(storage, record, _BEGUN)
    try:
        yield record
    except BaseException as error:
        what = error.message if isinstance(error, LakelockError) else type(error).__name__
        with suppress(LakelockError):
            _put(storage, replace(record, outcome=f"failed: {what}", ended_ms=runtime.now_ms()), _ENDED)
        raise
    with suppress(LakelockError):
        _put(storage, replace(record, outcome="done", ended_ms=runtime.now_ms()), _ENDED)


def read_audit(storage: Storage, limit: int = 100) -> list[AuditRecord]:
    """The newest records, newest first; what cannot be read is shown as such."""
    keys = [item.key for item in storage.list(layout.AUDIT)]
    names = sorted({key.rpartition("/")[2].rpartition(".")[0] for key in keys}, reverse=True)[:limit]
    known = set(keys)
    found = []
    for name in names:
        ended = _key(name, _ENDED)
        found.append(_read(storage, ended if ended in known else _key(name, _BEGUN), name))
    return found


def _put(storage: Storage, record: AuditRecord, half: str) -> None:
    fields = {"format": FORMAT, **asdict(record)}
    storage.put_if_absent(_key(record.id, half), json.dumps(fields, ensure_ascii=False).encode())


def _key(name: str, half: str) -> str:
    return f"{layout.AUDIT}/{name}.{half}"


def _read(storage: Storage, key: str, name: str) -> AuditRecord:
    stored = storage.get(key)
    try:
        fields = JsonObject.parse(stored.data if stored else b"")
        ended = fields.get("ended_ms")
        return AuditRecord(
            id=name,
            at_ms=fields.integer("at_ms", at_least=0),
            action=fields.text("action"),
            by=WriterIdentity.from_dict(fields.child("by").fields),
            lock=fields.text("lock"),
            token=fields.integer("token"),
            holder=fields.text("holder"),
            forced=fields.get("forced") is True,
            reason=fields.text("reason"),
            outcome=fields.text("outcome"),
            ended_ms=None if ended is None else fields.integer("ended_ms", at_least=0),
        )
    except ValueError:
        unknown = WriterIdentity("", "", "", 0, "")
        return AuditRecord(name, 0, "unreadable record", unknown, "", outcome=f"{key} cannot be read")


def live_users(coordinator: Coordinator, *, held_by_me: bool) -> tuple[str, ...]:
    """All that rely on the table's lock now: running transactions, its holder and queue, data locks.

    Writers that were killed with a lock may be among them: only watching for a lease tells.
    """
    found = _running(coordinator)
    provider = coordinator.table.provider
    state = provider.inspect() if provider is not None and not held_by_me else None
    if state is not None:
        found += [f"{holder}, who holds the lock" for holder in (state.holder,) if holder]
        found += [f"{holder}, waiting for the lock" for holder in state.queue]
    return (*found, *_with_data_locks(coordinator))


def users_but_the_dead(coordinator: Coordinator) -> tuple[str, ...]:
    """Running transactions; where there are none, the writers that renew their data locks while watched for one lease.

    Data locks of the dead are dropped, as any waiter would do. The lock's own holder is not watched: taking the
    lock waits for it, or replaces it.
    """
    running = _running(coordinator)
    if running:
        return tuple(running)
    locks = coordinator.data.locks
    watched: list[Callable[[], None]] = [partial(locks.break_lock, seen.token) for seen in locks.inspect()]
    coordinator.table.runtime.gather([partial(_dropped_if_dead, each) for each in watched], limit=len(watched))
    return tuple(_with_data_locks(coordinator))


def refuse_live(table: OpenTable, live: tuple[str, ...], so: str = "it is not changed") -> None:
    """`LockError` if live writers use the table; it names them, and what follows: `so`."""
    if live:
        raise LockError(
            f"{table.storage.uri} is being used, so {so}: {'; '.join(live[:5])}",
            hint="stop these writers, or wait until they have ended, and run it again",
            live=list(live[:20]),
        )


def _dropped_if_dead(drop: Callable[[], None]) -> None:
    with suppress(LockError):  # a writer that renews is alive, and is found afterwards
        drop()


def _running(coordinator: Coordinator) -> list[str]:
    table = coordinator.table
    return [str(party) for party in live_others(table, table.timeline())]


def _with_data_locks(coordinator: Coordinator) -> list[str]:
    return [f"{seen}, with data locks" for seen in coordinator.data.locks.inspect()]


_OF_ONE_PROCESS = "memory://"
_UNCHANGED = "its lock cannot be changed"


@dataclass(frozen=True)
class Migration:
    """What a migration does or would do. `live` names the writers that must end first; it is empty if there are none.

    A plan may name locks of writers that were killed; the migration itself watches the holders, and drops the dead.
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
                f"the lock of {table.storage.uri} was changed by another process meanwhile",
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
    """Hold the new lock, too, after waiting for its present holder. It is held if it is `old`, spelled otherwise."""
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
    """Whether this grant holds that lock: only its owner has its grant there."""
    holder = provider.inspect().holder
    return (
        holder is not None
        and holder.writer is not None
        and (holder.writer.writer_id, holder.token) == (lease.owner.writer_id, lease.token)
    )
