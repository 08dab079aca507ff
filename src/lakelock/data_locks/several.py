"""Locks on several tables at once: all of them or none, and nothing is held while waiting.

As in Hive, the tables are asked one by one, in the order of their URIs, and each answers at once. When one refuses, all that
was granted is given back, and after a pause the whole list is asked again. So two statements over the same tables cannot hold
each other up forever, whatever the order in which they name them. For a single table, `DataLocks.acquire` is the better
call: it queues up, first come, first served.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from lakelock.clock import Runtime
from lakelock.data_locks.base import DataLease, DataLocks
from lakelock.data_locks.request import LockRequest, Mode, lock_request
from lakelock.errors import LockTimeout
from lakelock.events import Event, EventKind, Events
from lakelock.providers.heartbeat import renewing
from lakelock.settings.data_locks import DataLockSettings


@dataclass(frozen=True)
class Wanted:
    """The request for one table; `events` receives this table's events only, `renew_s` overrides that of the whole request."""

    locks: DataLocks
    request: LockRequest
    events: Events | None = None
    renew_s: float | None = None


@contextmanager
def holding_several(wanted: Sequence[Wanted], settings: DataLockSettings, runtime: Runtime) -> Iterator[tuple[DataLease, ...]]:
    """Hold all these locks while the block runs, renewed; the leases are in the order of the tables' URIs.

    `LockTimeout` names whoever was in the way when `data_locks.attempts` are used up. Requests for one table become one, and
    so do those for tables that share one lock.
    """
    ordered = one_per_lock(wanted)
    leases = _acquired(ordered, settings, runtime)
    with ExitStack() as stack:
        for each, lease in zip(ordered, leases, strict=True):
            stack.callback(each.locks.release, lease)
        for each, lease in zip(ordered, leases, strict=True):
            stack.enter_context(renewing(each.locks, lease, runtime, each.renew_s or settings.renew_s, each.events))
        yield leases


def one_per_lock(wanted: Sequence[Wanted]) -> list[Wanted]:
    """One request per lock, in the order of the tables: two requests of one statement would be in each other's way."""
    if not wanted:
        raise ValueError("there is no table to lock")
    by_lock: dict[str, list[Wanted]] = {}
    for each in sorted(wanted, key=lambda each: each.locks.table):
        by_lock.setdefault(each.locks.lock_name, []).append(each)
    return [_united(found) for found in by_lock.values()]


def _united(found: Sequence[Wanted]) -> Wanted:
    if len(found) == 1:
        return found[0]
    leaves = [lock for each in found for lock in each.request.leaves]
    by_mode = {mode: [lock.resource for lock in leaves if lock.mode is mode] for mode in Mode}
    about = ", ".join(dict.fromkeys(each.request.about for each in found if each.request.about))
    return replace(found[0], request=lock_request(by_mode[Mode.SHARED], by_mode[Mode.EXCLUSIVE], about=about))


def _acquired(ordered: Sequence[Wanted], settings: DataLockSettings, runtime: Runtime) -> tuple[DataLease, ...]:
    refusal: LockTimeout | None = None
    for attempt in range(settings.attempts):
        if attempt:
            runtime.sleep(settings.sleep_s * (0.5 + 0.5 * runtime.random()))
        granted: list[DataLease] = []
        try:
            # One by one, so that what was granted before a refusal is known.
            granted.extend(each.locks.acquire(each.request, wait_s=0) for each in ordered)
            for lease in granted:
                lease.ensure_not_lost()
            return tuple(granted)
        except BaseException as error:
            for each, lease in reversed(list(zip(ordered, granted, strict=False))):
                each.locks.release(lease)
            if not isinstance(error, LockTimeout):
                raise
            if refusal is None and settings.attempts > 1:
                _tell(ordered[len(granted)], error)
            refusal = error
    assert refusal is not None, "there is at least one attempt"
    raise LockTimeout(
        f"not all of {len(ordered)} tables could be locked at once in {settings.attempts} attempts: {refusal.message}",
        hint=refusal.hint,
        **refusal.details,
    )


def _tell(refused: Wanted, error: LockTimeout) -> None:
    """Say once which holders the request waits for."""
    holders = error.details.get("holders")
    holder = "; ".join(map(str, holders)) if isinstance(holders, list) else error.message
    facts = {"holder": holder, "locks": str(refused.request)}
    (refused.events or Events()).emit(Event(EventKind.WAITING_FOR_LOCK, refused.locks.table, facts=facts))
