"""Events: what a transaction does, reported as it happens. A listener that raises never fails a write."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from lakelock.texts import StrEnum

_log = logging.getLogger("lakelock")
_log.addHandler(logging.NullHandler())


class EventKind(StrEnum):
    """Names of events. Append only."""

    BEGAN = "began"
    WRITING = "writing"
    CLAIMED = "claimed"
    EARLY_CONFLICT = "early-conflict"
    CONFLICT = "conflict"
    WAITING_FOR_LOCK = "waiting-for-lock"
    LOCKED = "locked"
    LEASE_LOST = "lease-lost"
    DECIDED = "decided"
    PUBLISHED = "published"
    COMMITTED = "committed"
    REJECTED = "rejected"
    OUTCOME_UNKNOWN = "outcome-unknown"
    RETRY = "retry"
    FINISHED_FOR_ANOTHER = "finished-for-another"
    ROLLED_BACK = "rolled-back"
    COLLECTED = "collected"
    ALERT = "alert"
    DATA_LOCKED = "data-locked"
    CHECKPOINTED = "checkpointed"
    CLEANED = "cleaned"
    ARCHIVED = "archived"
    SET_ASIDE = "set-aside"
    RESERVED = "reserved"
    WAITING_FOR_RESERVATION = "waiting-for-reservation"
    PREPARED = "prepared"
    PHASE_DONE = "phase-done"
    NAMED = "named"
    LOCK_TIMED_OUT = "lock-timed-out"
    SLOW_READS = "slow-reads"


@dataclass(frozen=True)
class Event:
    """One thing that happened to one transaction, as plain values. `instant` is empty before there is one."""

    kind: EventKind
    table: str
    instant: str = ""
    operation: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        facts = " ".join(f"{name}={value}" for name, value in self.facts.items())
        return f"{self.operation} {self.instant} {self.kind} {facts}".strip()


Listener = Callable[[Event], None]

_WARNINGS = {
    EventKind.LEASE_LOST,
    EventKind.LOCK_TIMED_OUT,
    EventKind.RETRY,
    EventKind.EARLY_CONFLICT,
    EventKind.CONFLICT,
    EventKind.ALERT,
    EventKind.SLOW_READS,
}
_INFOS = {
    EventKind.BEGAN,
    EventKind.PHASE_DONE,
    EventKind.LOCKED,
    EventKind.COMMITTED,
    EventKind.FINISHED_FOR_ANOTHER,
    EventKind.ROLLED_BACK,
    EventKind.RESERVED,
    EventKind.WAITING_FOR_RESERVATION,
}


def log_event(event: Event) -> None:
    """The listener that is always there: one line per event in the `lakelock` logger, facts as `lakelock_*` fields."""
    level = logging.WARNING if event.kind in _WARNINGS else logging.INFO if event.kind in _INFOS else logging.DEBUG
    if event.kind is EventKind.OUTCOME_UNKNOWN:
        level = logging.ERROR
    if not _log.isEnabledFor(level):
        return
    _log.log(level, "%s", event, extra={f"lakelock_{name}": value for name, value in event.facts.items()})


class Events:
    """Sends each event to the log and to the listeners, in order; one that raises is reported, and the others still run."""

    def __init__(self, listeners: tuple[Listener, ...] = ()) -> None:
        self._listeners: tuple[Listener, ...] = (log_event, *listeners)

    @contextmanager
    def also(self, listener: Listener) -> Iterator[None]:
        """Send each event to one more listener during the block."""
        self._listeners = (*self._listeners, listener)
        try:
            yield
        finally:
            self._listeners = tuple(each for each in self._listeners if each is not listener)

    def emit(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:  # noqa: BLE001  whatever a listener raises must not fail the write
                _log.exception("an event listener failed; the write goes on")
