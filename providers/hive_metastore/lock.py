"""The table lock as an EXCLUSIVE lock in a Hive metastore: the one that Java Hudi's HiveMetastoreBasedLockProvider takes.

The metastore queues the requests itself, first come, first served; its lock ids grow and are the tokens. It never pushes: a
waiter keeps asking, which also keeps its place. There are two things that it does not say: that a lock had expired when
it is unlocked (the lease's own deadline and the heartbeats notice it), and whether a request arrived whose reply was lost
(its agent info names the grant, so it is found in the queue and taken over instead of made twice).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace

from lakelock.errors import ProviderRefused
from lakelock.providers.base import NO_ANSWER, NO_SERVICE, Holder, Lease, LockState, Opening, Strength, for_up_to, foreign_lease
from lakelock.providers.hive_metastore.client import ACQUIRED, WAITING, LockAnswer, LockRow
from lakelock.providers.hive_metastore.requests import (
    Agent,
    LockCalls,
    NoSuchLock,
    Place,
    Progress,
    Request,
    holder_of,
    holding,
    is_of,
    watch_s,
)
from lakelock.providers.polling import Attempt, PollingProvider

STRENGTH = Strength(
    exclusion="as safe as the metastore's database",
    token="the lock id, which grows for all locks of a metastore; not known while the lock is free",
    crash_release="after the holder's lease, for a waiter of a third of it; a shorter `lock.wait_s` never gets past it; "
    "a Java holder's, after hive.txn.timeout of the server (300 s)",
    failover="several metastores on one database are one lock; with the database, locks and ids survive",
    clock_assumption="equal rates; no two machines' clocks are compared, heartbeats are timed by the metastore's database",
    fairness="in order of arrival, waiters poll; Java writers do not queue",
    cost="two calls to take and release; a waiter some four a second when it is next, and fewer the further back it is",
)

_LEAST_S = 1.0
"""Minimum time for a release, even for that of a lease that is over."""

_LOOK_EVERY_S = 1.0


@dataclass
class _Request(Request):
    """`checked_s`: when the metastore last answered that we wait, which keeps the place; `looked_s`: when we last looked."""

    looked_s: float = float("-inf")
    holder: Holder | None = None
    checked_s: float = float("-inf")
    progress: Progress = field(default_factory=Progress)


class HiveMetastoreLockProvider(PollingProvider):
    """The table lock in the metastore's lock table. Database and table of the lock need not exist."""

    strength = STRENGTH
    _request: _Request | None
    _left_behind: list[int]

    def __init__(self, opening: Opening) -> None:
        self._place = Place.of(opening.uri, opening.settings.hive_metastore.uris, opening.storage.uri)
        super().__init__(opening)
        self._opening = opening
        self._calls = LockCalls(opening, self._place, self._warn)
        self._call_s = self._calls.call_s
        self._last_token = 0

    def watch_s(self, lease_s: float) -> float:
        return watch_s(lease_s)

    @property
    def identity(self) -> str:
        return self._place.identity

    def attempt(self, attempt: Attempt) -> Lease | Holder | None:
        request = self._request
        if request is None or request.grant != attempt.grant:
            self._calls.ensure_lease_fits(self._settings.lease_s, self.within_s(attempt))
            self._clear_up(attempt)
            request = self._request = _Request(attempt.grant)
        if request.is_lost:
            request.find(self._calls, self.within_s(attempt))
        began_s = self.runtime.monotonic_s()
        if request.lock_id is not None and request.progress.ahead > 1 and began_s - request.checked_s < self._look_in_s:
            return self._look(attempt, request, request.lock_id)
        try:
            answer = self._ask(request, self.within_s(attempt))
        except NoSuchLock:
            request.start_again()
            return request.holder
        if answer.state == WAITING:
            request.checked_s = self.runtime.monotonic_s()
            if request.checked_s - request.looked_s < min(_LOOK_EVERY_S, self._look_in_s):
                return request.holder
            return self._look(attempt, request, answer.lock_id)
        if answer.state == ACQUIRED:
            lease = self.new_lease(attempt, answer.lock_id, began_s)
            if lease.lost is None:
                self._last_token = max(self._last_token, lease.token)
                return lease
        # An answer that took longer than a lease, or a state that no lock outside a transaction has.
        self._calls.unlock(answer.lock_id, self.within_s(attempt))
        request.start_again()
        return request.holder

    def extend(self, lease: Lease) -> None:
        if lease is not self._held:
            raise foreign_lease()
        began_s = self.runtime.monotonic_s()
        try:
            self._calls.heartbeat(lease.token, lease.remaining_s())
        except NoSuchLock:
            raise self.taken_over(lease, "expired in the metastore, or was broken") from None
        lease.extend(began_s)

    def give_back(self, lease: Lease) -> None:
        request, self._request = self._request, None
        within_s = max(_LEAST_S, min(lease.remaining_s(), self._call_s))
        try:
            self._calls.unlock(lease.token, within_s)
        except NO_ANSWER:
            self._left_behind.append(lease.token)
            raise
        if request is not None and request.doubted:
            self._calls.remove(request.grant, within_s)

    def pause(self, attempt: Attempt, at_most_s: float) -> None:
        """The next in the queue keeps asking; the others see how the queue moves, and look less often the longer it is."""
        request = self._request
        wanted_s = 0.0 if request is None else request.progress.pause_s(attempt.took_s, self._settings.poll_s)
        # A waiter that does not ask for a while is presumed dead, as a holder is.
        at_most_s = min(at_most_s, self._settings.lease_s / 3)
        if wanted_s:
            self.runtime.sleep(min(wanted_s, at_most_s))
        else:
            attempt.in_crowd = False  # the queue says more
            super().pause(attempt, at_most_s)

    def abandon(self, attempt: Attempt) -> None:
        request, self._request = self._request, None
        if request is None or request.grant != attempt.grant:
            return
        try:
            request.leave(self._calls, lambda: self.within_s(attempt))
        except NO_ANSWER:
            if request.lock_id is not None:
                self._left_behind.append(request.lock_id)
            raise

    def take_back(self, attempt: Attempt) -> None:
        calls = LockCalls(self._opening, self._place, self._warn)  # with a connection of its own: no caller waits for this one
        try:
            calls.remove(attempt.grant, self.within_s(attempt))
        finally:
            calls.close()

    def inspect(self) -> LockState:
        rows = self._calls.rows(self._call_s)
        held = holding(rows)
        queue = tuple(holder_of(row) for row in rows if row.state == WAITING)
        if held is None:
            return LockState(None, self._last_token, queue)
        self._last_token = max(self._last_token, held.lock_id)
        holder = holder_of(held)
        with suppress(*NO_SERVICE):  # a user who may only look sees the rest
            holder = replace(holder, left_s=self._left_s(held))
        return LockState(holder, held.lock_id, queue)

    def break_lock(self, token: int, *, force: bool = False) -> None:
        rows = self._calls.rows(self._call_s)
        row = next((each for each in rows if each.lock_id == token), None)
        if row is None:
            held = holding(rows)
            if held is not None:
                self.ensure_latest(token, held.lock_id)
            return
        if not force and (left_s := self._left_s(row)):
            raise self.still_held(holder_of(row), f"whose lease runs {for_up_to(left_s)}")
        self._calls.unlock(row.lock_id, self._call_s)

    def probe(self) -> None:
        self._calls.ensure_lease_fits(self._settings.lease_s, self._call_s)
        with self._calls.trial(self.writer, self._agent(self.runtime.uuid()), self._call_s) as row:
            if row is None or Agent.of(row.agent) is None:
                raise ProviderRefused(
                    "the metastore does not keep the agent info of a lock, so a request whose reply is lost could not be found",
                    hint="use a metastore of Hive 1.3 or later",
                )
            self._calls.heartbeat(row.lock_id, self._call_s)

    def disconnect(self) -> None:
        self._calls.close()

    @property
    def _look_in_s(self) -> float:
        """How soon after the latest answer a waiter keeps its place, and looks at the queue again if it is next."""
        return self._settings.lease_s / 6

    def _start_afresh(self) -> None:
        super()._start_afresh()
        self._request, self._left_behind = None, []

    def _rest(self, wait_s: float) -> None:
        """No need to stay away: other waiters are in the metastore's queue, ahead of our next request."""

    def _ask(self, request: _Request, within_s: float) -> LockAnswer:
        """Queue up, or ask again whether it is our turn."""
        if request.lock_id is not None:
            return self._calls.check(request.lock_id, within_s)
        return request.enter(self._calls, self.writer, self._agent(request.grant), within_s)

    def _look(self, attempt: Attempt, request: _Request, lock_id: int) -> Holder | None:
        """See who is before us, and remove the dead."""
        request.looked_s = self.runtime.monotonic_s()
        rows = self._calls.rows(self.within_s(attempt))
        request.progress.saw(rows, lock_id, self.runtime.monotonic_s())
        held = holding(rows) or next((row for row in rows if row.lock_id < lock_id), None)
        request.holder = None if held is None else holder_of(held)
        away = request.watch.dead(rows, lock_id, self.runtime.monotonic_s())
        if request.doubted:
            away += [row for row in rows if row.lock_id != lock_id and is_of(row, request.grant)]
        for row in away:
            self._calls.unlock(row.lock_id, self.within_s(attempt))
            attempt.pauses = 0
        return request.holder

    def _clear_up(self, attempt: Attempt) -> None:
        """Unlock the requests that could not be unlocked when they should have been."""
        while self._left_behind:
            self._calls.unlock(self._left_behind[-1], self.within_s(attempt))
            self._left_behind.pop()

    def _left_s(self, row: LockRow) -> float:
        """How much longer its lease runs: its heartbeat compared with one made now, both timed by the metastore's database."""
        agent = Agent.of(row.agent)
        lease_s = agent.lease_s if agent else self._calls.timeout_s(self._call_s)
        with self._calls.trial(self.writer, self._agent(self.runtime.uuid()), self._call_s) as now:
            age_s = (now.heartbeat_ms - row.heartbeat_ms) / 1000 if now else 0.0
        return max(0.0, lease_s - age_s)

    def _agent(self, grant: str) -> Agent:
        return Agent.by(self.writer, grant, self._settings.lease_s)
