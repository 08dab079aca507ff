"""Waiting for the table lock: threads take turns, and one at a time tries, waits and tries again, within a bound.

The threads of one process queue up, so that only one of them at a time contends for the remote lock (`Turnstile`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

from lakelock.clock import Flag, Runtime
from lakelock.errors import LakelockError, LeaseLost, LockError, LockTimeout
from lakelock.events import EventKind
from lakelock.providers.base import NO_ANSWER, NO_SERVICE, Holder, Lease, LockClient, LockProvider, Opening, too_short
from lakelock.texts import command


class Turnstile:
    """Lets one in at a time, in order of arrival."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._mutex = runtime.mutex()
        self._taken = False
        self._waiting: deque[Flag] = deque()

    @property
    def is_taken(self) -> bool:
        """Whether one that came now would have to wait."""
        return self._taken

    def enter(self, wait_s: float) -> bool:
        """Go in within `wait_s` seconds; False if our turn did not come in that time."""
        with self._mutex:
            if not self._taken:
                self._taken = True
                return True
            turn = self._runtime.flag()
            self._waiting.append(turn)
        try:
            turn.wait(wait_s)
        except BaseException:
            if not self._withdraws(turn):
                self.leave()  # it had come: the next one would wait for ever
            raise
        return not self._withdraws(turn)

    def _withdraws(self, turn: Flag) -> bool:
        """Stop waiting for this turn; False if it has come."""
        with self._mutex:
            if turn.is_set():
                return False
            self._waiting.remove(turn)
            return True

    def leave(self) -> None:
        """Let the next one in."""
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._taken = False


_FIRST_POLL_S = 0.004
_POLL_GROWTH = 1.6
_GROWING_POLLS = 30
_SHARE_IN_A_CROWD = 1 / 8
"""Share of the time waited so far or of the time left, whichever is less. Requests then grow with the number of waiters, hardly
with the time that a crowd takes; the last one is an eighth late, and a waiter that is short of time looks often again."""
_LOOKS_PER_PAUSE = 4
"""A service that answers slowly is asked less often: the longest pause is at least as long as this many answers took."""
_FIRST_TRY_S, _LAST_LOOK_S, _CLEAN_UP_S = 1.0, 0.5, 0.25
"""What a silent service may cost. All tries together get at least the first, even without any wait; a try at the end of the
wait gets at least the second; taking back a request gets the third. So waits end at most 0.75 s late, and the
shortest after 1.25 s."""
_LATER_LOOK_S = 1.0
"""What a later try to take a request back may cost, for which no caller waits."""
_SHORTEST_REQUEST_S = 0.001
_REPORT_EVERY_S = 1.0
_LONGEST_REST_S = 0.05


@dataclass
class Attempt:
    """One `acquire`: `grant` names it in the service, so that a grant whose reply was lost is recognised as ours.

    `until_s`: when it gives up, on the monotonic clock; `answer_by_s`: how long it waits for an answer. `sent` maps what
    each request wrote (see the provider) to when it was about to be sent; `doubt`: one got no reply. `took_s`: how long the
    latest answer took, except the first, which may have had to connect; `in_crowd`: the lock has passed between others since
    `began_s`.
    """

    grant: str
    until_s: float
    answer_by_s: float
    began_s: float
    sent: dict[object, float] = field(default_factory=dict)
    doubt: bool = False
    pauses: int = 0
    answers: int = 0
    took_s: float = 0.0
    in_crowd: bool = False
    seen: str = ""

    def saw(self, holder: Holder | None, took_s: float) -> None:
        """Learn who holds the lock, where that is known."""
        self.took_s = took_s if self.answers else 0.0
        self.answers += 1
        if holder is not None:
            self.in_crowd = self.in_crowd or self.seen not in ("", holder.owner)
            self.seen = holder.owner


class PollingProvider(LockClient, LockProvider):
    """A provider that only needs to say how to try once, extend and give back."""

    what = "the lock"

    def __init__(self, opening: Opening) -> None:
        self._settings = opening.settings.lock
        self._held: Lease | None = None
        super().__init__(opening)

    @abstractmethod
    def attempt(self, attempt: Attempt) -> Lease | Holder | None:
        """Try once: the lease, or the holder of the lock, or None if the holder is not known. Bounded by `within_s`."""

    @abstractmethod
    def extend(self, lease: Lease) -> None:
        """Renew in the service and call `lease.extend`; `LeaseLost` when the lock is no longer this lease's."""

    @abstractmethod
    def give_back(self, lease: Lease) -> None:
        """Release in the service if the lock is still this lease's."""

    def pause(self, attempt: Attempt, at_most_s: float) -> None:
        """Wait until it is worth trying again; a provider whose service notifies its waiters ends this early."""
        now_s, poll_s = self.runtime.monotonic_s(), self._settings.poll_s
        longest_s = max(poll_s, _LOOKS_PER_PAUSE * min(attempt.took_s, poll_s))
        if attempt.in_crowd:
            longest_s = max(longest_s, _SHARE_IN_A_CROWD * min(now_s - attempt.began_s, attempt.until_s - now_s))
        first_s = max(_FIRST_POLL_S, attempt.took_s)
        pause_s = min(longest_s, first_s * _POLL_GROWTH ** min(attempt.pauses, _GROWING_POLLS))
        attempt.pauses += 1
        self.runtime.sleep(min(pause_s * (0.5 + 0.5 * self.runtime.random()), at_most_s))

    def abandon(self, attempt: Attempt) -> None:
        """Leave the queue, if there is one, and take back a grant that may have been made unnoticed (`attempt.doubt`).

        Bounded by `within_s`, which starts over.
        """

    def take_back(self, attempt: Attempt) -> None:
        """Abandon it once more, in a thread of its own: the request may have been carried out since. Bounded by `within_s`."""
        self.abandon(attempt)

    def disconnect(self) -> None:
        """Close the connections, if there are any. Never raises."""

    def within_s(self, attempt: Attempt) -> float:
        """How long the next request of this attempt may take, where the service's driver takes a limit."""
        return max(_SHORTEST_REQUEST_S, attempt.answer_by_s - self.runtime.monotonic_s())

    def new_lease(self, attempt: Attempt, token: int, began_s: float) -> Lease:
        """The lease of a grant. `began_s` is when the request that got it was about to be sent, by the monotonic clock."""
        lease_s = self._settings.lease_s
        return Lease(self.runtime, self.writer, grant=attempt.grant, token=token, lease_s=lease_s, began_s=began_s)

    def taken_over(
        self, lease: Lease, how: str, hint: str = "run the operation again; if it happens often, raise lock.lease_s"
    ) -> LeaseLost:
        """For `extend`: the error of a lease that the service no longer knows. `how` completes "the lock of ..."."""
        return LeaseLost(f"the lock of {self.table} {how}", hint=hint, reason="taken-over", token=lease.token)

    def ensure_latest(self, token: int, latest: int) -> None:
        """For `break_lock`: `LockError` unless `token`, which an operator saw, is that of the latest grant."""
        if token != latest:
            raise LockError(
                f"the lock of {self.table} has token {latest}, not {token}: another grant has followed",
                hint=f"look again with `{command('locks', 'ls', self.table)}`",
                token=latest,
            )

    def still_held(self, holder: Holder, by: str, hint: str = "wait: a dead holder is replaced without your help") -> LockError:
        """For `break_lock`: the error of a lock whose holder may be alive. `by` says what shows it: "whose lease runs ..."."""
        return LockError(
            f"the lock of {self.table} is held by {holder}, {by}",
            hint=f"{hint}; to break it anyway, use force",
            holder=holder.as_dict(),
        )

    def acquire(self, *, wait_s: float) -> Lease:
        self._notice_fork()
        began_s, is_queue = self.runtime.monotonic_s(), self._turnstile.is_taken
        if not self._turnstile.enter(wait_s):
            raise self._no_turn(wait_s)
        try:
            self._ensure_open()
            self._rest(wait_s)
            lease = self._held = self._poll(began_s, wait_s)
            lease.awaited = lease.awaited or is_queue
        except BaseException:
            self._turnstile.leave()
            self._stay_closed()
            raise
        if self._closed:
            self.release(lease)
            self._stay_closed()
            self._ensure_open()
        return lease

    def renew(self, lease: Lease) -> Lease:
        with self._mutex:
            lease.ensure_not_lost()
            try:
                self.extend(lease)
            except LeaseLost as error:
                lease.lose("taken-over", error.message)
                raise
            return lease

    def release(self, lease: Lease) -> None:
        if not lease.is_here or self._held is not lease:
            return
        with self._mutex:
            if self._held is not lease:  # `close` in another thread came first
                return
            try:
                self.give_back(lease)
            except NO_SERVICE as error:
                self._warn(f"the lock was not given back; others wait up to {lease.lease_s:g} s: {error}")
            finally:
                lease.lose("released")
                self._held = None
                now_s = self.runtime.monotonic_s()
                self._rested_at_s = now_s + min(_LONGEST_REST_S, (now_s - lease.began_s) / 2)
                self._turnstile.leave()

    def close(self) -> None:
        self._closed = True
        held = self._held
        if held is not None:
            with suppress(LakelockError):
                self.release(held)
        self._taking_back.end()
        self.disconnect()

    def _stay_closed(self) -> None:
        """Disconnect again, for a thread that was waiting when another one closed the provider: it may have connected since."""
        if self._closed:
            self.disconnect()

    def _rest(self, wait_s: float) -> None:
        """Stay away for half as long as we last held the lock: a process in a loop would leave pollers no gap to find."""
        rest_s = self._rested_at_s - self.runtime.monotonic_s()
        if rest_s > 0:
            self.runtime.sleep(min(rest_s, wait_s))

    def _poll(self, began_s: float, wait_s: float) -> Lease:
        until_s = began_s + wait_s
        answer_by_s = max(self.runtime.monotonic_s() + _FIRST_TRY_S, until_s + _LAST_LOOK_S)
        attempt = Attempt(self.runtime.uuid(), until_s, answer_by_s, began_s)
        try:
            return self._tried(attempt, began_s, wait_s)
        except BaseException:
            attempt.answer_by_s = self.runtime.monotonic_s() + _CLEAN_UP_S
            try:
                self.abandon(attempt)
            except LakelockError:
                attempt.doubt = True
            if attempt.doubt:
                self._take_back_later(attempt)
            raise

    def _take_back_later(self, attempt: Attempt) -> None:
        def take_back() -> None:
            attempt.answer_by_s = self.runtime.monotonic_s() + _LATER_LOOK_S
            self.take_back(attempt)

        self._taking_back.add(take_back, self._settings.lease_s, attempt.grant)

    def _tried(self, attempt: Attempt, began_s: float, wait_s: float) -> Lease:
        holder: Holder | None = None
        reported_s = began_s - _REPORT_EVERY_S

        def look() -> Lease | None:
            nonlocal holder
            tried_s = self.runtime.monotonic_s()
            try:
                result = self.attempt(attempt)
            except BaseException as error:
                # Ctrl-C, too, leaves open what became of the request; only an error of the service's own is an answer.
                attempt.doubt = attempt.doubt or isinstance(error, NO_ANSWER) or not isinstance(error, LakelockError)
                raise
            if isinstance(result, Lease):
                return result
            holder = result or holder
            attempt.saw(result, self.runtime.monotonic_s() - tried_s)
            return None

        def pause(left_s: float) -> None:
            nonlocal reported_s
            now_s = self.runtime.monotonic_s()
            if now_s - reported_s >= _REPORT_EVERY_S:
                reported_s = now_s
                self._tell(EventKind.WAITING_FOR_LOCK, holder=str(holder or "unknown"), waited_s=round(wait_s - left_s, 3))
            self.pause(attempt, left_s)

        lease = self._wait_for(look, pause, began_s, wait_s)
        if lease is None:
            raise self._timeout(holder, wait_s)
        lease.awaited = holder is not None
        return lease

    def _no_turn(self, wait_s: float) -> LockTimeout:
        held = self._held
        over = "" if held is None or held.lost is None else f", which has lost it since ({held.lost})"
        who = f"held or waited for by another thread of this process{over}"
        return LockTimeout(
            f"the lock of {self.table} is {who}; gave up after {wait_s:g} s",
            hint=f"`{command('locks', 'ls', self.table)}` shows who holds it; raise lock.wait_s if that is only slow. A thread "
            "that hangs keeps its turn until this process ends",
            holder=Holder("", self.writer).as_dict(),
            waited_s=wait_s,
        )

    def _timeout(self, holder: Holder | None, wait_s: float) -> LockTimeout:
        who = f"held by {holder}{holder.lease_text}" if holder else "contended"
        look = f"`{command('locks', 'ls', self.table)}` shows the holder; raise lock.wait_s if it is only slow"
        if holder and holder.token:
            take = command("locks", "break", self.table, "--token", holder.token)
            look += f"; if it is gone and its lease does not end: `{take}`"
        look += too_short(self.watch_s(holder.lease_s or 0.0) if holder else 0.0, wait_s, "lock.wait_s")
        return LockTimeout(
            f"the lock of {self.table} is {who}; gave up after {wait_s:g} s",
            hint=look,
            holder=holder.as_dict() if holder else None,
            waited_s=wait_s,
        )

    def _start_afresh(self) -> None:
        super()._start_afresh()
        self._turnstile, self._mutex, self._held = Turnstile(self.runtime), self.runtime.mutex(), None
        self._rested_at_s = self.runtime.monotonic_s()
