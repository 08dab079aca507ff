"""What a lock promises to writers of one process, in the time of the table's runtime."""

from __future__ import annotations

from typing import cast

import pytest

from lakelock.clock import Runtime, SystemRuntime
from lakelock.errors import LeaseLost, LockError, LockTimeout
from lakelock.events import EventKind, Events
from lakelock.providers import Holder, Lease, LockProvider, renewing
from lakelock.testing.lock_suite.arena import SLACK_S, Arena, Promises, column, not_for_this, taken

_ROUNDING_S = 1e-6


def take(provider: LockProvider) -> Lease:
    """Take the lock, which is free now."""
    return provider.acquire(wait_s=12)


class _WrongClock:
    """A runtime whose wall clock is wrong; everything else is right."""

    def __init__(self, runtime: Runtime, wrong_ms: int) -> None:
        self._runtime, self._wrong_ms = runtime, wrong_ms

    def now_ms(self) -> int:
        return self._runtime.now_ms() + self._wrong_ms

    def __getattr__(self, name: str) -> object:
        return getattr(self._runtime, name)


def only_leases(arena: Arena) -> None:
    if arena.table.sessions:
        not_for_this("a session holds the lock, and ends with its process: see crash and pause")


class OneProcessPromises(Promises):
    """Exclusion, tokens, leases, breaking and closing between the writers of one process."""

    def test_one_holds_the_lock_and_the_other_is_told_who(self, arena: Arena) -> None:
        first, second = arena.writer("stream", lease_s=15), arena.writer("backfill", lease_s=15)
        lease = take(first)
        began_s = arena.runtime.monotonic_s()
        with pytest.raises(LockTimeout, match="stream") as refused:
            second.acquire(wait_s=0.4)
        assert 0.4 <= arena.runtime.monotonic_s() - began_s + 0.001 < 0.4 + SLACK_S
        holder = refused.value.details["holder"]
        assert isinstance(holder, dict) and holder["writer"]["application"] == "stream"
        lease.ensure_active()
        first.release(lease)
        take(second).ensure_active()

    def test_no_time_to_wait_still_takes_a_free_lock(self, arena: Arena) -> None:
        first, second = arena.writer("first"), arena.writer("second")
        first.release(take(first))
        lease = second.acquire(wait_s=0)
        assert taken(first) is None
        second.release(lease)

    def test_waiting_is_told_with_the_holder_and_the_time(self, arena: Arena) -> None:
        holder, waiter = arena.writer("stream"), arena.writer("backfill", lease_s=15)
        lease = take(holder)
        with renewing(holder, lease, arena.runtime, arena.lease_s / 3), pytest.raises(LockTimeout):
            waiter.acquire(wait_s=2.2)
        waits = [event for event in arena.seen if event.kind is EventKind.WAITING_FOR_LOCK]
        assert 2 <= len(waits) <= 4
        assert "stream" in str(waits[-1].facts["holder"]) and float(str(waits[-1].facts["waited_s"])) >= 1

    def test_tokens_grow_across_releases(self, arena: Arena) -> None:
        tokens = []
        for name in ("a", "b", "a"):
            provider = arena.writer(name)
            lease = take(provider)
            tokens.append(lease.token)
            provider.release(lease)
        assert tokens == sorted(set(tokens)) and tokens[0] > 0

    @column("expiry")
    def test_a_silent_holder_is_replaced_after_its_lease_and_not_before(self, arena: Arena) -> None:
        only_leases(arena)
        silent, next_one = arena.writer("silent"), arena.writer("next")
        lease = take(silent)
        after = next_one.acquire(wait_s=arena.lease_s + SLACK_S)
        # Measured from the deadline, which the holder started before its request: nothing may make this come early.
        assert arena.runtime.monotonic_s() >= lease.deadline_s - 0.05 * arena.lease_s
        assert lease.lost is not None and after.lost is None and after.token > lease.token
        with pytest.raises(LeaseLost):
            silent.renew(lease)
        silent.release(lease)
        assert taken(silent) is None
        next_one.release(after)

    @column("expiry")
    def test_an_expired_lease_is_never_renewed_even_if_nobody_took_the_lock(self, arena: Arena) -> None:
        holder = arena.writer("holder")
        lease = take(holder)
        arena.runtime.sleep(arena.lease_s)
        with pytest.raises(LeaseLost) as lost:
            holder.renew(lease)
        assert lost.value.details["reason"] == "expired"
        assert lease.lost is not None and lease.remaining_s() == 0
        with pytest.raises(LeaseLost):
            lease.ensure_active()
        holder.release(lease)
        assert holder.acquire(wait_s=arena.lease_s + SLACK_S).token > lease.token

    @pytest.mark.parametrize("wrong_s", [0, 3600, -3600], ids=["right clock", "an hour ahead", "an hour behind"])
    def test_a_holder_is_replaced_when_it_stops_renewing_and_never_before_whatever_its_clock(
        self, arena: Arena, wrong_s: int
    ) -> None:
        lease_s = 2 * arena.lease_s  # so that a busy machine finds the time to renew it
        clock = cast(Runtime, _WrongClock(arena.runtime, wrong_s * 1000))
        holder, rival = arena.writer("holder", lease_s=lease_s, runtime=clock), arena.writer("rival", lease_s=15)
        lease = take(holder)
        with renewing(holder, lease, arena.runtime, lease_s / 6), pytest.raises(LockTimeout):
            rival.acquire(wait_s=1.25 * lease_s)
        lease.ensure_active()
        if arena.table.sessions:
            holder.release(lease)
        assert rival.acquire(wait_s=lease_s + SLACK_S).token > lease.token

    def test_the_deadline_counts_from_before_the_request(self, arena: Arena) -> None:
        holder = arena.writer("holder")
        before_s = arena.runtime.monotonic_s()
        lease = take(holder)
        after_s = arena.runtime.monotonic_s()
        assert before_s - _ROUNDING_S <= lease.deadline_s - arena.lease_s <= after_s + _ROUNDING_S
        with pytest.raises(LeaseLost):
            lease.ensure_active(margin_s=arena.lease_s + 1)
        assert lease.lost is None
        arena.runtime.sleep(arena.lease_s / 5)
        began_s = arena.runtime.monotonic_s()
        holder.renew(lease)
        assert began_s - _ROUNDING_S <= lease.deadline_s - arena.lease_s <= arena.runtime.monotonic_s() + _ROUNDING_S

    def test_release_may_be_called_twice_and_frees_nobody_elses_lock(self, arena: Arena) -> None:
        first, second, third = (arena.writer(name, lease_s=15) for name in ("first", "second", "third"))
        old = take(first)
        arena.writer("operator").break_lock(old.token, force=True)
        new = take(second)
        first.release(old)
        first.release(old)
        assert taken(third) is None
        second.renew(new)
        second.release(new)
        second.release(new)
        take(third)

    def test_a_released_lease_says_so_and_cannot_be_renewed(self, arena: Arena) -> None:
        provider = arena.writer("one", lease_s=15)
        lease = take(provider)
        provider.release(lease)
        assert lease.lost is not None and lease.lost.reason == "released"
        with pytest.raises(LeaseLost):
            provider.renew(lease)
        assert provider.inspect().holder is None

    def test_loss_is_an_event_told_once(self, arena: Arena) -> None:
        holder = arena.writer("holder", lease_s=6)
        lease = take(holder)
        with renewing(holder, lease, arena.runtime, 0.3, Events((arena.seen.append,))):
            arena.writer("operator").break_lock(lease.token, force=True)
            arena.until(lambda: lease.lost, within_s=5)
            assert lease.lost is not None and lease.lost.reason in ("taken-over", "session-lost")
            arena.runtime.sleep(1)
        assert arena.kinds().count(EventKind.LEASE_LOST) == 1

    def test_a_lock_that_was_given_back_in_time_tells_no_loss(self, arena: Arena) -> None:
        holder = arena.writer("holder")
        lease = take(holder)
        with renewing(holder, lease, arena.runtime, arena.lease_s / 3, Events((arena.seen.append,))):
            arena.runtime.sleep(arena.lease_s)
            holder.release(lease)
            arena.runtime.sleep(arena.lease_s)
        assert EventKind.LEASE_LOST not in arena.kinds()

    def test_inspect_shows_holder_and_token(self, arena: Arena) -> None:
        provider, other = arena.writer("one", lease_s=15), arena.writer("other", lease_s=15)
        assert other.inspect().holder is None
        lease = take(provider)
        state = other.inspect()
        assert state.holder is not None and state.holder.writer is not None and state.holder.writer.application == "one"
        assert state.token == state.holder.token == lease.token
        provider.release(lease)
        free = other.inspect()
        assert free.holder is None
        assert free.token == 0 or free.token >= lease.token, "0 where the service does not know it while the lock is free"

    def test_inspect_shows_since_when_and_how_much_longer_the_lease_runs_unless_it_is_renewed(self, arena: Arena) -> None:
        lease_s = 15.0
        provider, other = arena.writer("one", lease_s=lease_s), arena.writer("other", lease_s=lease_s)

        def seen() -> Holder:
            state = other.inspect()
            assert state.holder is not None
            return state.holder

        before_ms = arena.runtime.now_ms()
        lease = take(provider)
        after_ms, first = arena.runtime.now_ms(), seen()
        if arena.table.tells_left:
            left_s = first.left_s
            assert left_s is not None and 0 <= left_s <= lease_s
            arena.until(lambda: (seen().left_s or 0.0) < left_s)
        arena.runtime.sleep(0.3)
        provider.renew(lease)
        renewed = seen()
        if arena.table.tells_left:
            assert renewed.left_s is not None and 0 <= renewed.left_s <= lease_s
        if arena.table.tells_since:
            assert first.since_ms is not None and renewed.since_ms is not None
            assert before_ms - 1000 * SLACK_S <= first.since_ms <= after_ms + 1000 * SLACK_S
            assert abs(renewed.since_ms - first.since_ms) <= 100, "renewals do not change it"

    def test_breaking_wants_the_current_token_and_force_while_the_lease_runs(self, arena: Arena) -> None:
        holder, operator = arena.writer("holder", lease_s=10), arena.writer("operator", lease_s=10)
        lease = take(holder)
        for token, force in ((lease.token + 1, True), (lease.token, False)):
            # A service that cannot say how long the holder has been silent watches it, and sees it renew.
            with renewing(holder, lease, arena.runtime, 0.5), pytest.raises(LockError) as refused:
                operator.break_lock(token, force=force)
            assert refused.value.hint
        holder.renew(lease)
        operator.break_lock(lease.token, force=True)
        with pytest.raises(LeaseLost):
            holder.renew(lease)
        after = take(arena.writer("next", lease_s=10))
        assert after.token > lease.token
        with pytest.raises(LockError):
            operator.break_lock(lease.token, force=True)
        after.ensure_active()

    def test_breaking_a_free_lock_does_nothing(self, arena: Arena) -> None:
        provider, operator = arena.writer("one"), arena.writer("operator")
        operator.break_lock(0)
        lease = take(provider)
        provider.release(lease)
        operator.break_lock(lease.token)
        take(provider)

    def test_closing_gives_the_lock_back_and_never_raises(self, arena: Arena) -> None:
        provider = arena.writer("one")
        lease = take(provider)
        provider.close()
        provider.close()
        assert lease.lost is not None
        take(arena.writer("two"))

    def test_a_closed_lock_is_granted_to_nobody_not_even_to_a_thread_that_waits_for_it(self, arena: Arena) -> None:
        runtime = SystemRuntime()
        provider, other = arena.writer("one", lease_s=15, runtime=runtime), arena.writer("other", lease_s=15, runtime=runtime)
        provider.acquire(wait_s=12)

        def wait() -> None:
            with pytest.raises(LockError, match="closed"):
                provider.acquire(wait_s=60)

        def close() -> None:
            runtime.sleep(0.3)  # by then the other thread is waiting; if not, it is still refused
            provider.close()

        runtime.gather([wait, wait, close], limit=3)
        with pytest.raises(LockError, match="closed"):
            provider.acquire(wait_s=0)
        other.release(other.acquire(wait_s=12))

    def test_the_probe_passes_where_the_service_is_right(self, arena: Arena) -> None:
        provider = arena.writer("one")
        provider.probe()
        take(provider)

    def test_identity_is_the_same_for_all_writers_and_strength_is_declared(self, arena: Arena) -> None:
        one, two = arena.writer("one"), arena.writer("two")
        assert one.identity == two.identity and "@" not in one.identity
        assert all(vars(one.strength).values())

    @column("fairness")
    def test_threads_of_one_process_get_the_lock_in_order_of_arrival(self, arena: Arena) -> None:
        runtime = SystemRuntime()
        provider = arena.writer("one", lease_s=15, runtime=runtime)
        arrived: list[int] = []
        served: list[int] = []
        door = runtime.mutex()

        def work(number: int) -> None:
            runtime.sleep(0.1 * number)
            with door:
                arrived.append(number)
            lease = provider.acquire(wait_s=60)
            served.append(number)
            runtime.sleep(0.15)
            provider.release(lease)

        runtime.gather([lambda number=number: work(number) for number in range(5)], limit=5)  # type: ignore[misc]
        assert served == arrived
