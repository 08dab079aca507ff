"""Keeping a lease alive while work goes on, in the same way for every service that grants leases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakelock.clock import Runtime
from lakelock.errors import LakelockError, LeaseLost
from lakelock.events import Event, EventKind, Events
from lakelock.providers.base import Lease, LeaseService

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
        self._told = False

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
        if loss is None or loss.reason == "released" or self._told:
            return
        self._told = True
        facts = {"reason": loss.reason, "detail": loss.detail, "token": self._lease.token}
        self._events.emit(Event(EventKind.LEASE_LOST, self._provider.table, facts=facts))
