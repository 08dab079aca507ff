"""The contract of lock providers: one exclusive lock per table, granted as leases with growing tokens, and renewed meanwhile.

A lease protects nothing by itself: a paused holder learns too late that it lost it. The decision log makes commits safe;
the lock makes them cheap and fair, and keeps Java Hudi writers out.

`LockClient` is what lock providers and data locks have in common: one writer's access to the locks of one table. Waiting
within a bound, closing, forks and events are the same under both contracts. The pauses between two checks are not: a
waiter for the table lock is one of many that poll a lock held for milliseconds, and spreads out with the crowd; a waiter
for data locks waits for a whole write, and shows a sign of life meanwhile.

Tokens grow forever, at no cost per grant. A lock record carries the token of the latest grant, and the next grant adds
one. But Java Hudi drops foreign fields when it writes the record, so the number would start over. Therefore tokens come
from blocks (`reserve_block`): a separate object holds the end of the latest block, this end is advanced *before* a token
of the new block is granted, and the lock record carries the block's end next to the token. Where the number is missing,
or its block is used up, a new block is taken. Every token ever granted is at most the object's number at that time, and
every later block begins above it. A block that two writers race for is lost to one of them: numbers may be skipped, but
are never used twice.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

from lakelock.clock import Repeating, Runtime
from lakelock.errors import (
    CorruptTableError,
    LakelockError,
    LeaseLost,
    LockError,
    ProviderRefused,
    ProviderUnavailable,
    StorageUnavailable,
)
from lakelock.events import Event, EventKind, Events
from lakelock.identity import OTHER_ENGINE, WriterIdentity
from lakelock.storage import Storage
from lakelock.table import layout

if TYPE_CHECKING:
    from lakelock.settings import Settings


_YEAR_10000_MS = 253_402_300_800_000
"""Python's `datetime` ends there."""

DRIFT_MARGIN_S = 0.5
"""Allowance for differing clock rates while a silent holder is watched: Hudi's own drift buffer."""

_LOOKS_S = 1.0
"""What a wait needs beyond the time in which a silent holder is watched: to look before it and after it."""

LossReason = Literal["expired", "taken-over", "unreachable", "session-lost", "released"]


@dataclass(frozen=True)
class Strength:
    """What one provider guarantees, in words: the source of the guarantee table in the documents."""

    exclusion: str
    token: str
    crash_release: str
    failover: str
    clock_assumption: str
    fairness: str
    cost: str


@dataclass(frozen=True)
class Holder:
    """Who holds or waits for a lock. `writer` is None for foreign writers.

    By the lock service's clock: `renewed_ms` is when the holder last renewed, `since_ms` when it arrived; None if not known.
    Where the service records no such time, `since_ms` is by the holder's own clock. Both are for people; no decision depends
    on them.

    `left_s` is how much longer the lease runs unless it is renewed, 0 when it is over. None where only watching the holder
    for a while can tell: ZooKeeper does not say when it last heard from a session, and a DynamoDB item has a version and no
    time.
    """

    owner: str
    writer: WriterIdentity | None = None
    token: int = 0
    lease_s: float | None = None
    renewed_ms: int | None = None
    since_ms: int | None = None
    left_s: float | None = None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)

    @property
    def lease_text(self) -> str:
        """When another writer can have the lock if this holder is dead, for the message of a refusal; empty if unknown."""
        if self.left_s is not None:
            return f", whose lease runs {for_up_to(self.left_s)} unless it is renewed"
        return "" if self.lease_s is None else f", whose lease ends {self.lease_s:g} s after its last renewal"

    def __str__(self) -> str:
        return str(self.writer) if self.writer else f"{OTHER_ENGINE} (lock owner {self.owner})"


def past_ms(value: object) -> int | None:
    """A time that a writer recorded for people; None for a value that no clock can have shown."""
    return value if type(value) is int and 0 < value < _YEAR_10000_MS else None


def for_up_to(left_s: float) -> str:
    """How much longer a lease runs, for the message of a refusal: rounded up, so never 0 s."""
    return f"for up to {max(1, math.ceil(left_s))} s more"


def wait_to_tell(watch_s: float, wait_s: float) -> float | None:
    """The wait in which a dead holder is recognised, where `wait_s` is too short for that; None where it is not."""
    return math.ceil(watch_s) + _LOOKS_S if wait_s < watch_s else None


def too_short(watch_s: float, wait_s: float, setting: str) -> str:
    """For the hint of a wait that ended without the lock: if it could not tell a dead holder, the `setting` to raise."""
    least_s = wait_to_tell(watch_s, wait_s)
    if least_s is None:
        return ""
    return f"; a dead holder is only recognised by a wait of {least_s:g} s: if it may be dead, give {setting} at least that"


@dataclass(frozen=True)
class LockState:
    """The lock as the service shows it: `holder` is None when it is free; `token` is that of the latest grant."""

    holder: Holder | None
    token: int
    queue: tuple[Holder, ...] = ()


@dataclass(frozen=True)
class LeaseLoss:
    """Why a lease ended: it was lost before its holder gave it back, or it was given back."""

    reason: LossReason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class Lease:
    """A granted lock. It ends at its deadline unless renewed in time, and it never comes back once it has ended.

    The deadline is on this process's monotonic clock and was started before the request that granted or renewed it was
    sent. Another process (a fork) that has a copy of the lease does not hold the lock.
    """

    def __init__(
        self, runtime: Runtime, owner: WriterIdentity, *, grant: str, token: int, lease_s: float, began_s: float
    ) -> None:
        self.owner, self.grant, self.token = owner, grant, token
        self.lease_s, self.began_s = lease_s, began_s
        self._runtime, self._deadline_s, self._pid = runtime, began_s + lease_s, os.getpid()
        self._loss: LeaseLoss | None = None
        self.follows = ""
        """The release that directly preceded this grant, as the provider's `last_release` named it; empty if unknown."""
        self.awaited = False
        """Whether another holder was met before it was granted."""
        self.trouble = ""
        """Why the latest renewal got no answer; empty while renewals succeed."""

    @property
    def deadline_s(self) -> float:
        """When the lease ends, on the monotonic clock."""
        return self._deadline_s

    @property
    def lost(self) -> LeaseLoss | None:
        """Why the lock is no longer held, or None while it is."""
        if self._loss is None and self._runtime.monotonic_s() >= self._deadline_s:
            self.lose("unreachable" if self.trouble else "expired", self.trouble or f"not renewed within {self.lease_s:g} s")
        if self._loss is None and self._pid != os.getpid():
            return LeaseLoss("session-lost", "a forked process does not hold the locks of its parent")
        return self._loss

    @property
    def is_here(self) -> bool:
        """Whether this is the process that was granted the lease."""
        return self._pid == os.getpid()

    def lose(self, reason: LossReason, detail: str = "") -> None:
        """Record that the lock is no longer held. The first reason stays."""
        if self._loss is None:
            self._loss = LeaseLoss(reason, detail)

    def extend(self, began_s: float) -> None:
        """Move the deadline to one lease after `began_s`, when the renewing request was about to be sent."""
        self.ensure_not_lost()
        self._deadline_s = max(self._deadline_s, began_s + self.lease_s)
        self.trouble = ""

    def remaining_s(self) -> float:
        """Seconds until the deadline, 0 when the lock is no longer held."""
        return 0.0 if self.lost else max(0.0, self._deadline_s - self._runtime.monotonic_s())

    def ensure_active(self, margin_s: float = 0.0) -> None:
        """Raise `LeaseLost` unless the lock is held, for at least `margin_s` more seconds.

        A provider whose connection was interrupted may ask its service first, within that time.
        """
        self.ensure_not_lost(margin_s)

    def ensure_not_lost(self, margin_s: float = 0.0) -> None:
        """As `ensure_active`, but from local knowledge alone: sends no request and never waits."""
        loss = self.lost
        if loss is None and self.remaining_s() >= margin_s:
            return
        reason = loss or LeaseLoss("expired", f"less than {margin_s:g} s are left")
        raise LeaseLost(
            f"the table lock (token {self.token}) is no longer held: {reason}",
            hint="run the operation again; if it happens often, raise lock.lease_s or look for long pauses of this process",
            reason=reason.reason,
            token=self.token,
        )


AnyLease = TypeVar("AnyLease", bound=Lease)


def granted_as(kind: type[AnyLease], lease: Lease) -> AnyLease:
    """`lease` as its provider's own class; `LockError` if another provider granted it."""
    if not isinstance(lease, kind):
        raise foreign_lease()
    return lease


def foreign_lease() -> LockError:
    return LockError("this lease was granted by another provider", hint="give it to the provider that granted it")


class LeaseService(ABC):
    """A service that grants leases for one table: a lock provider, or data locks. One instance may be used by many threads."""

    table: str
    """The URI of the guarded table, for events and messages."""
    lies_in_table: bool = False
    """Whether it lies in the table's own folder: then tables whose locks have the same `identity` have different locks."""

    @property
    def lock_name(self) -> str:
        """Names the lock among those of all tables. Tables whose locks have the same name share one lock."""
        return f"{self.identity} of {self.table}" if self.lies_in_table else self.identity

    @property
    @abstractmethod
    def identity(self) -> str:
        """Names the lock: the same for all writers that it keeps apart. Holds no secret. A table records its provider's."""

    @abstractmethod
    def renew(self, lease: Lease) -> Lease:
        """Move the deadline to one lease from now; raises `LeaseLost` after the deadline, even if the lock was not taken."""

    @abstractmethod
    def release(self, lease: Lease) -> None:
        """Give back whatever this lease still holds; may be called twice, and never raises for an unreachable service."""

    @abstractmethod
    def close(self) -> None:
        """Give back everything held and close all connections, permanently. Never raises.

        Nothing is granted afterwards: `acquire` raises `LockError`, also in threads that are already waiting in it.
        """


class LockProvider(LeaseService):
    """The lock of one table. Threads that share an instance queue up in order of arrival."""

    @property
    def last_release(self) -> str:
        """Names the latest release by this process, if the lock was probably not taken since; else empty.

        A provider may always say so. One that can tell whether a grant came directly after that release also says so in the
        lease, which saves a commit one look at the table.
        """
        return ""

    between_processes: bool = True
    """Whether it keeps writers in different processes apart."""

    def watch_s(self, lease_s: float) -> float:
        """How long a waiter has to watch a silent holder with this lease before it may replace it; 0 where the service does.

        Each process begins to watch anew, so one that waits for less never gets past a holder that died long ago.
        """
        return 0.0

    @property
    @abstractmethod
    def strength(self) -> Strength:
        """What this provider guarantees."""

    @abstractmethod
    def acquire(self, *, wait_s: float) -> Lease:
        """Take the lock within `wait_s` seconds, or raise `LockTimeout` that names the holder.

        A grant whose reply was lost is found again. The token is greater than that of every earlier grant.
        """

    @abstractmethod
    def inspect(self) -> LockState:
        """Who holds the lock now, since when, and how much longer the lease runs, as far as the service can tell."""

    @abstractmethod
    def break_lock(self, token: int, *, force: bool = False) -> None:
        """Take the lock with this `token` away from its holder, for an operator who knows that the holder is gone.

        Refused with `LockError` when another grant has followed, and, without `force`, while its lease still runs.
        """

    @abstractmethod
    def probe(self) -> None:
        """Check that the service does what this provider needs, or raise an error that says what is missing."""


@dataclass(frozen=True)
class Opening:
    """Everything that a provider is opened with; `uri` is the setting `lock.provider`, which may hold a password."""

    uri: str = field(repr=False)
    settings: Settings
    storage: Storage
    runtime: Runtime
    writer: WriterIdentity
    events: Events


OpenProvider = Callable[[Opening], LockProvider]
"""What an entry point in the group `lakelock.lock_providers` names."""

NO_ANSWER = (StorageUnavailable, ProviderUnavailable)
NO_SERVICE = (*NO_ANSWER, ProviderRefused)

_SHORTEST_WAIT_S = 1e-6
"""A clock may be too coarse to measure less than this, and a wait for it would never end."""

L = TypeVar("L", bound=Lease)


_AGAIN_S = 0.25
"""What got no answer is taken back again after this, then after twice as long, and so on."""
_MOST = 8
"""How many are taken back at a time; of more the latest."""


@dataclass
class _Unanswered:
    """Taken back at `next_s`, then after `wait_s`, until `until_s`."""

    take_back: Callable[[], object]
    until_s: float
    next_s: float
    wait_s: float = _AGAIN_S


class TakingBack:
    """Requests that were given up without an answer: taken back again and again, since a slow service may carry them out yet.

    One thread for all requests of one writer, as long as there are some. No caller waits for it. Without it a grant that no
    writer knows of would keep all others out for a lease.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._mutex = runtime, runtime.mutex()
        self._unanswered: list[_Unanswered] = []
        self._thread: Repeating | None = None
        self._ended = False

    def add(self, take_back: Callable[[], object], for_s: float, name: str) -> None:
        """Call `take_back` now and then, for as long as the grant would last; its errors mean nothing."""
        now_s = self._runtime.monotonic_s()
        with self._mutex:
            self._unanswered = [*self._unanswered[1 - _MOST :], _Unanswered(take_back, now_s + for_s, now_s + _AGAIN_S)]
            if self._thread is None and not self._ended:
                self._thread = self._runtime.every(_AGAIN_S, self._look, name=f"take-back-{name}")

    def end(self) -> None:
        """From now on nothing is taken back."""
        self._ended = True
        self._stop()

    def _look(self) -> None:
        for found in self._unanswered:
            if self._runtime.monotonic_s() < found.next_s:
                continue
            with suppress(Exception):  # one that escapes would end all that is taken back
                found.take_back()
            found.wait_s *= 2
            found.next_s = self._runtime.monotonic_s() + found.wait_s
        with self._mutex:
            self._unanswered = [found for found in self._unanswered if found.next_s < found.until_s]
            # In one step with the look: what is added from now on has a thread of its own.
            thread, self._thread = (None, self._thread) if self._unanswered else (self._thread, None)
        if thread is not None:
            thread.stop()

    def _stop(self) -> None:
        with self._mutex:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()


class LockClient:
    """One writer in one process, which waits for locks of one table. A forked process is another writer."""

    what: ClassVar[str]
    """`the lock` or `the data locks`, for messages."""

    def __init__(self, opening: Opening) -> None:
        self.table = opening.storage.uri
        self.runtime, self.writer, self._events = opening.runtime, opening.writer, opening.events
        self._start_afresh()

    def _wait_for(
        self, look: Callable[[], L | None], pause: Callable[[float], None], began_s: float, wait_s: float
    ) -> L | None:
        """Look, pause and look again until there is a lease; None when the time is over.

        `pause` is given the seconds left. `ProviderUnavailable` if the last look got no answer; `LockError` once closed.
        """
        failure: LakelockError | None = None
        while True:
            self._ensure_open()
            try:
                lease, failure = look(), None
                if lease is not None:
                    return lease
            except NO_ANSWER as error:
                failure = error
            left_s = wait_s - (self.runtime.monotonic_s() - began_s)
            if left_s < _SHORTEST_WAIT_S:
                break
            pause(left_s)
        if failure is not None:
            raise ProviderUnavailable(
                f"{self.what} of {self.table} could not be taken within {wait_s:g} s: {failure.message}", hint=failure.hint
            ) from failure
        return None

    def _ensure_open(self) -> None:
        if self._closed:
            raise LockError(
                f"{self.what} of {self.table} can no longer be taken: the table was closed in this process",
                hint="open the table again; close it only after every thread has finished with it",
            )

    def _tell(self, kind: EventKind, **facts: object) -> None:
        self._events.emit(Event(kind, self.table, facts=facts))

    def _warn(self, problem: str) -> None:
        self._tell(EventKind.ALERT, problem=problem)

    def _start_afresh(self) -> None:
        """Begin with nothing held, connected or closed: at the start, and in a forked process."""
        self._pid, self._closed = os.getpid(), False
        self._taking_back = TakingBack(self.runtime)

    def _notice_fork(self) -> None:
        """A forked process holds nothing, must not wait for threads that it does not have, and is another writer."""
        if self._pid != os.getpid():
            self._start_afresh()
            self.writer = replace(self.writer, writer_id=self.runtime.uuid(), pid=self._pid)


_MOST_SHOWN = 200


@contextmanager
def renewing(
    provider: LeaseService, lease: Lease, runtime: Runtime, interval_s: float, events: Events | None = None
) -> Iterator[Lease]:
    """Renew `lease` every `interval_s` seconds while the block runs, and report once if it is lost.

    An unreachable service, or a driver with a bug, is tried again until the deadline; then, and never before, the lease counts
    as lost. Nothing is raised in the block: it asks `lease.ensure_active()` where it matters.
    """
    heartbeat = _Heartbeat(provider, lease, events or Events())
    repeating = runtime.every(interval_s, heartbeat.beat, name="lease")
    try:
        yield lease
    finally:
        repeating.stop()
        heartbeat.tell_loss()


class _Heartbeat:
    def __init__(self, provider: LeaseService, lease: Lease, events: Events) -> None:
        self._provider, self._lease, self._events = provider, lease, events
        self._loss_reported = False

    def beat(self) -> None:
        if self._lease.lost is None:
            try:
                self._provider.renew(self._lease)
            except LeaseLost:
                pass
            except LakelockError as error:
                self._lease.trouble = error.message
            except Exception as error:  # noqa: BLE001 one that escapes would end the renewals in silence
                self._lease.trouble = f"{type(error).__name__}: {error}"[:_MOST_SHOWN]
        self.tell_loss()

    def tell_loss(self) -> None:
        """Send the event if the lease was lost other than by giving it back."""
        loss = self._lease.lost
        if loss is None or loss.reason == "released" or self._loss_reported:
            return
        self._loss_reported = True
        facts = {"reason": loss.reason, "detail": loss.detail, "token": self._lease.token}
        self._events.emit(Event(EventKind.LEASE_LOST, self._provider.table, facts=facts))


BLOCK = 1_000_000
_ATTEMPTS = 20
_LARGEST = 2**62


def reserve_block(storage: Storage, *, expect_new: bool) -> tuple[int, int]:
    """First and last token of a new block. `expect_new`: try to create the object before reading it."""
    if expect_new and storage.put_if_absent(layout.LOCK_TOKEN, str(BLOCK).encode()) is not None:
        return 1, BLOCK
    for _ in range(_ATTEMPTS):
        found = storage.get(layout.LOCK_TOKEN)
        if found is None:
            if storage.put_if_absent(layout.LOCK_TOKEN, str(BLOCK).encode()) is not None:
                return 1, BLOCK
            continue
        used = _parse(found.data)
        if storage.put_if_match(layout.LOCK_TOKEN, str(used + BLOCK).encode(), found.etag) is not None:
            return used + 1, used + BLOCK
    raise StorageUnavailable(
        f"{layout.LOCK_TOKEN} changed at each of {_ATTEMPTS} attempts to write it", hint="run the operation again"
    )


def _parse(data: bytes) -> int:
    try:
        number = int(data)
        if not 0 <= number <= _LARGEST:
            raise ValueError("no sum of blocks")
        return number
    except ValueError as error:
        raise CorruptTableError(
            f"{layout.LOCK_TOKEN} does not hold a number of tokens",
            hint="put a number into it that is greater than every token seen so far",
            key=layout.LOCK_TOKEN,
        ) from error
