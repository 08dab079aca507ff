"""The contract of data locks: requests for shared and exclusive locks, granted as a whole, in order, as leases.

Hive's model: two modes, where only shared goes with shared, and no intention modes. Instead a lock on a partition is
accompanied by a shared lock on each of its ancestors (the partition prefixes and the table), so an exclusive lock on any
of these keeps all others out below it. Two requests are in each other's way if both lock the same resource and one of
them does so exclusively; there is nothing else to compare.

The leases are of the same kind as those of the commit lock (`lakelock.providers.base.Lease`): owner, growing token,
deadline, loss with a reason. They are kept for a whole write, and renewed meanwhile by `lakelock.providers.renewing`.
Every service queues up, looks, waits and looks again, within the bound (`PollingDataLocks`).

Locks on several tables are had all or none, and nothing is held while waiting (`holding_several`). As in Hive, the tables
are asked one by one, in the order of their URIs, and each answers at once. When one refuses, all that was granted is
given back, and after a pause the whole list is asked again. So two statements over the same tables cannot hold each other
up forever, whatever the order in which they name them. For a single table, `DataLocks.acquire` is the better call: it
queues up, first come, first served.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import takewhile
from typing import Generic, TypeVar

from lakelock.clock import Runtime
from lakelock.errors import InputError, LakelockError, LockError, LockTimeout
from lakelock.events import Event, EventKind, Events
from lakelock.identity import WriterIdentity
from lakelock.providers.base import (
    DRIFT_MARGIN_S,
    NO_ANSWER,
    NO_SERVICE,
    Lease,
    LeaseService,
    LockClient,
    Opening,
    renewing,
    too_short,
)
from lakelock.providers.taking_back import TakingBack
from lakelock.settings.data_locks import DataLockSettings
from lakelock.texts import command


class Mode(str, Enum):
    """How a resource is locked. The values are Hive's names in SHOW LOCKS."""

    SHARED = "SHARED"
    EXCLUSIVE = "EXCLUSIVE"

    @property
    def short(self) -> str:
        return "S" if self is Mode.SHARED else "X"


@dataclass(frozen=True, order=True)
class Resource:
    """The table (no parts) or a partition or partition prefix of it: `("month=1", "day=2")`, as in the table's paths."""

    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: str) -> Resource:
        """From a partition path, `""` for the table. `ValueError` for a path that no partition can have."""
        parts = tuple(path.split("/")) if path else ()
        if any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"{path!r} is not a partition path")
        return cls(parts)

    @property
    def path(self) -> str:
        return "/".join(self.parts)

    @property
    def ancestors(self) -> tuple[Resource, ...]:
        """From the table down to the parent; empty for the table."""
        return tuple(Resource(self.parts[:depth]) for depth in range(len(self.parts)))

    def __str__(self) -> str:
        return self.path or "the table"


TABLE = Resource()


@dataclass(frozen=True, order=True)
class DataLock:
    """One lock on one resource."""

    resource: Resource
    mode: Mode

    def __str__(self) -> str:
        return f"{self.mode.short} on {self.resource}"


@dataclass(frozen=True)
class LockRequest:
    """All locks of one operation: each resource once, each ancestor with it, in the canonical order (by path, part by part).

    `about` says in a few words what they are for.
    """

    locks: tuple[DataLock, ...]
    about: str = ""

    @property
    def modes(self) -> Mapping[Resource, Mode]:
        return {lock.resource: lock.mode for lock in self.locks}

    @property
    def leaves(self) -> tuple[DataLock, ...]:
        """The locks that were asked for: all but the shared ones that only accompany another."""
        accompanied = {ancestor for lock in self.locks for ancestor in lock.resource.ancestors}
        return tuple(lock for lock in self.locks if lock.mode is Mode.EXCLUSIVE or lock.resource not in accompanied)

    def __str__(self) -> str:
        return ", ".join(map(str, self.locks))


def lock_request(
    shared: Iterable[Resource] = (), exclusive: Iterable[Resource] = (), *, about: str = "", escalate_above: int | None = None
) -> LockRequest:
    """The request for these resources: exclusive wins where one is named twice, and ancestors are shared.

    Resources below an exclusive lock need none. With more than `escalate_above` resources, one exclusive lock on what they
    have in common replaces them, even for a reader: a shared lock on the table does not keep out a writer of a partition.
    """
    modes = dict.fromkeys(shared, Mode.SHARED) | dict.fromkeys(exclusive, Mode.EXCLUSIVE)
    if not modes:
        raise ValueError("a request needs at least one resource")
    covered = {resource for resource in modes if any(modes.get(up) is Mode.EXCLUSIVE for up in resource.ancestors)}
    asked = {resource: mode for resource, mode in modes.items() if resource not in covered}
    if escalate_above is not None and len(asked) > escalate_above:
        asked = {_common(asked): Mode.EXCLUSIVE}
    accompanying = {ancestor: Mode.SHARED for resource in asked for ancestor in resource.ancestors}
    return LockRequest(tuple(DataLock(*each) for each in sorted((accompanying | asked).items())), about)


def _common(resources: Iterable[Resource]) -> Resource:
    """The deepest resource that is or contains each of these."""
    depths = zip(*(resource.parts for resource in resources), strict=False)
    return Resource(tuple(parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, depths)))


def collide(one: LockRequest, other: LockRequest) -> tuple[Resource, ...]:
    """The resources that keep the two apart, in canonical order; empty when both can be granted at once."""
    theirs = other.modes
    return tuple(
        lock.resource
        for lock in one.locks
        if (mode := theirs.get(lock.resource)) is not None and Mode.EXCLUSIVE in (mode, lock.mode)
    )


FIRST_TOKEN = 1
"""The least token of a request: 0 is none."""


@dataclass(frozen=True)
class LockedData:
    """A request as the service shows it, held or waiting. Times are for people: milliseconds, None if not known.

    `writer` is None for anybody but a lakelock writer; `owner` tells what is known. `blocked_by` are the tokens of the requests
    that have to go first.
    """

    token: int
    owner: str
    request: LockRequest
    held: bool
    writer: WriterIdentity | None = None
    lease_s: float | None = None
    since_ms: int | None = None
    acquired_ms: int | None = None
    renewed_ms: int | None = None
    blocked_by: tuple[int, ...] = ()

    def __str__(self) -> str:
        about = f", {self.request.about}" if self.request.about else ""
        return f"{self.writer or self.owner}{about} (token {self.token})"


class DataLease(Lease):
    """A granted request; all its locks are held until it is released, or lost."""

    def __init__(
        self,
        runtime: Runtime,
        owner: WriterIdentity,
        request: LockRequest,
        *,
        grant: str,
        token: int,
        lease_s: float,
        began_s: float,
    ) -> None:
        super().__init__(runtime, owner, grant=grant, token=token, lease_s=lease_s, began_s=began_s)
        self.request = request


class DataLocks(LeaseService):
    """The shared and exclusive locks of one table. A lease is for all locks of a request."""

    @abstractmethod
    def acquire(self, request: LockRequest, *, wait_s: float | None = None) -> DataLease:
        """Take all locks of the request within `wait_s` seconds (None: as configured), or take none and raise `LockTimeout`.

        Nothing is held while it waits. 0 asks once. A grant whose reply was lost is found again; giving up leaves nothing
        behind. Threads of one writer are different writers to each other.
        """

    def watch_s(self, lease_s: float) -> float:
        """As `LockProvider.watch_s`, for a holder of data locks."""
        return 0.0

    @abstractmethod
    def inspect(self) -> tuple[LockedData, ...]:
        """Who holds and who waits, in order of arrival."""

    def break_lock(self, token: int, *, force: bool = False) -> None:
        """Take the locks of the request with this `token` away, for an operator who knows that its holder is gone.

        Without `force` its lease is watched until it is over, and `LockError` raised as soon as it is renewed. Locks that are
        already gone are no error. `InputError` for a number that is no token.
        """
        if token < FIRST_TOKEN:
            raise InputError(
                f"{token} is not a token of data locks, which count from {FIRST_TOKEN}",
                hint="inspect() tells the tokens; break_all() takes all locks away from everybody",
            )
        self._break(token, force=force)

    @abstractmethod
    def _break(self, token: int, *, force: bool) -> None:
        """As `break_lock` promises."""

    @abstractmethod
    def break_all(self) -> None:
        """Take all locks of the table away from their holders and waiters, also what cannot be read: for an operator.

        Leases are not watched. A holder that is alive finds out when it renews, and its commit is checked in any case.
        """


def timeout(
    table: str, request: LockRequest, blockers: tuple[LockedData, ...], waited_s: float, watch_s: float = 0.0
) -> LockTimeout:
    """The error of a request that was not granted in time; names the holders in its way.

    `watch_s` is how long they have to be watched to tell whether they are dead.
    """
    who = "; ".join(map(str, blockers[:3])) or "somebody who has left since"
    more = f" and {len(blockers) - 3} more" if len(blockers) > 3 else ""
    return LockTimeout(
        f"data locks of {table} ({_short(request)}) are blocked by {who}{more}; gave up after {waited_s:g} s",
        hint=f"`{command('locks', 'ls', table)}` shows who blocks whom; raise data_locks.attempts if they are only slow"
        + too_short(watch_s, waited_s, "data_locks.attempts x data_locks.sleep_s"),
        blocked_by=[blocker.token for blocker in blockers],
        holders=[str(blocker) for blocker in blockers[:20]],
        waited_s=waited_s,
    )


def still_renewed(token: int, writer: WriterIdentity | None) -> LockError:
    """The error for breaking locks whose holder has just shown a sign of life."""
    return LockError(
        f"the data locks with token {token} are held by {writer}, which renewed them just now",
        hint="wait: a dead holder is replaced without your help; to break them anyway, use force",
        token=token,
    )


def _short(request: LockRequest) -> str:
    leaves = request.leaves
    more = f" and {len(leaves) - 3} more" if len(leaves) > 3 else ""
    return ", ".join(map(str, leaves[:3])) + more


_FIRST_PAUSE_S = 0.02
_PAUSE_GROWTH = 1.6
_GROWING_PAUSES = 30


@dataclass
class Waiting:
    """One `acquire`, and later the lease that it got; `grant` names it in the service.

    `until_s`: when the waiting or the lease ends, on the monotonic clock. `doubt`: a request got no answer, and may be carried
    out yet.
    """

    request: LockRequest
    grant: str
    until_s: float
    looks: int = field(default=0, kw_only=True)
    doubt: bool = field(default=False, kw_only=True)


W = TypeVar("W", bound=Waiting)


class PollingDataLocks(LockClient, DataLocks, Generic[W]):
    """Data locks that only need to say how to queue up, to look, to renew and to leave."""

    what = "the data locks"
    _held: dict[str, tuple[DataLease, W]]

    def __init__(self, opening: Opening) -> None:
        self._settings = opening.settings.data_locks
        super().__init__(opening, self._settings)

    @abstractmethod
    def _begin(self, request: LockRequest, grant: str, until_s: float) -> W:
        """The state of a request that is about to be made."""

    @abstractmethod
    def _look(self, waiting: W) -> DataLease | None:
        """Queue up, or see whether it is my turn: the lease if it is."""

    @abstractmethod
    def _blockers(self, waiting: W) -> tuple[LockedData, ...]:
        """The requests that were in the way at the latest look."""

    @abstractmethod
    def abandon(self, waiting: W) -> None:
        """Take the request out of the queue, held or not; nothing happens if it is not there."""

    def take_back(self, waiting: W) -> None:
        """Abandon it once more, in a thread of its own: a request may have been carried out since."""
        self.abandon(waiting)

    @abstractmethod
    def _extend(self, lease: Lease) -> str:
        """Renew in the service and call `lease.extend`, and return ""; or why the locks are no longer this lease's."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Close the connections. Never raises."""

    def acquire(self, request: LockRequest, *, wait_s: float | None = None) -> DataLease:
        self._notice_fork()
        wait_s = self._settings.wait_s if wait_s is None else wait_s
        began_s = self.runtime.monotonic_s()
        waiting = self._begin(request, self.runtime.uuid(), began_s + wait_s)
        try:
            lease = self._wait(waiting, began_s, wait_s)
        except BaseException:
            try:
                self.abandon(waiting)
            except LakelockError:
                waiting.doubt = True
            if waiting.doubt:
                self._taking_back.add(lambda: self.take_back(waiting), self._settings.lease_s, waiting.grant)
            if self._closed:  # another thread closed them while this one waited, and it may have connected since
                self._disconnect()
            raise
        self._held[lease.grant] = lease, waiting
        if self._closed:
            self.release(lease)
            self._disconnect()
            self._ensure_open()
        return lease

    def renew(self, lease: Lease) -> Lease:
        lease.ensure_not_lost()
        if gone := self._extend(lease):
            lease.lose("taken-over", gone)
            lease.ensure_not_lost()
        return lease

    def release(self, lease: Lease) -> None:
        if not lease.is_here:
            return
        _, waiting = self._held.pop(lease.grant, (None, None))
        if waiting is None:
            return
        try:
            waiting.until_s = lease.deadline_s
            self.abandon(waiting)
        except NO_SERVICE as error:
            self._warn(f"data locks were not given back; others wait up to {lease.lease_s:g} s: {error.message}")
        finally:
            lease.lose("released")

    def close(self) -> None:
        self._closed = True
        for lease, _ in tuple(self._held.values()):
            with suppress(LakelockError):
                self.release(lease)
        self._taking_back.end()
        self._disconnect()

    def _wait(self, waiting: W, began_s: float, wait_s: float) -> DataLease:
        told = False

        def pause(left_s: float) -> None:
            nonlocal told
            if not told and (blockers := self._blockers(waiting)):
                told = True
                self._tell(EventKind.WAITING_FOR_LOCK, holder="; ".join(map(str, blockers)), locks=str(waiting.request))
            self._pause(waiting, left_s)

        def look() -> DataLease | None:
            try:
                return self._look(waiting)
            except NO_ANSWER:
                waiting.doubt = True
                raise

        lease = self._wait_for(look, pause, began_s, wait_s)
        if lease is None:
            blockers = self._blockers(waiting)
            watch_s = max((self.watch_s(blocker.lease_s or 0.0) for blocker in blockers), default=0.0)
            raise timeout(self.table, waiting.request, blockers, wait_s, watch_s)
        return lease

    def _pause(self, waiting: W, at_most_s: float) -> None:
        """Pause until it is worth looking again; the pauses grow. A service that wakes its waiters ends them early."""
        pause_s = _FIRST_PAUSE_S * _PAUSE_GROWTH ** min(waiting.looks, _GROWING_PAUSES)
        waiting.looks += 1
        self.runtime.sleep(min(self._pause_s(pause_s), at_most_s))

    def _pause_s(self, wanted_s: float = float("inf")) -> float:
        """At most the configured pause, and never so long that my own request looks dead; different for every waiter."""
        return min(self._settings.sleep_s, self._settings.renew_s, wanted_s) * (0.5 + 0.5 * self.runtime.random())

    def _lease(self, waiting: W, token: int, began_s: float) -> DataLease:
        return DataLease(
            self.runtime,
            self.writer,
            waiting.request,
            grant=waiting.grant,
            token=token,
            lease_s=self._settings.lease_s,
            began_s=began_s,
        )

    def _outwait(
        self, token: int, writer: WriterIdentity | None, lease_s: float, seen: object, look: Callable[[], object]
    ) -> None:
        """Return once a holder has shown no sign of life for its whole lease, or has gone; `LockError` once it renewed.

        `look` returns a value that changes with each renewal, None once the holder is gone; `seen` is the latest value.
        """
        over_s = self.runtime.monotonic_s() + lease_s + DRIFT_MARGIN_S
        while self.runtime.monotonic_s() < over_s:
            self.runtime.sleep(min(self._settings.sleep_s, lease_s / 10))
            now = look()
            if now is None:
                return
            if now != seen:
                raise still_renewed(token, writer)

    def _start_afresh(self) -> None:
        super()._start_afresh()
        self._taking_back = TakingBack(self.runtime)
        self._held = {}


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

    `LockTimeout` names the holders in the way when `data_locks.attempts` are used up. Requests for one table become one, and
    so do those for tables that share one lock.
    """
    ordered = one_per_lock(wanted)
    leases = _all_acquired(ordered, settings, runtime)
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


def _all_acquired(ordered: Sequence[Wanted], settings: DataLockSettings, runtime: Runtime) -> tuple[DataLease, ...]:
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
