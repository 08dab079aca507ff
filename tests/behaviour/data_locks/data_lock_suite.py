"""What all data locks promise, for any service: subclass it and say how a writer opens them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from random import Random
from time import monotonic, sleep

import pytest
from tests.api import DataLocks, Resource, lock_request
from tests.waiting import Stopwatch, eventually

from lakelock.data_locks import DataLease, LockRequest
from lakelock.errors import InputError, LeaseLost, LockError, LockTimeout

LEASE_S = 1.5
SLACK_S = 5.0
"""What a slow machine and a service that counts in ticks may add to a lease."""

P1, P2, P = Resource.of("month=1"), Resource.of("month=2"), Resource.of("year=1")
PQ, PR = Resource.of("year=1/month=1"), Resource.of("year=1/month=2")
TABLE = Resource()


def share(*resources: Resource) -> LockRequest:
    return lock_request(shared=resources, about="read")


def own(*resources: Resource) -> LockRequest:
    return lock_request(exclusive=resources, about="write")


@dataclass
class Writers:
    """Opens writers of one table; `open` takes a name and a lease."""

    open: Callable[[str, float], DataLocks]
    opened: list[DataLocks] = field(default_factory=list)
    names: Iterator[int] = field(default_factory=count)

    def __call__(self, lease_s: float = 30.0) -> DataLocks:
        self.opened.append(self.open(f"writer-{next(self.names)}", lease_s))
        return self.opened[-1]


def granted(locks: DataLocks, request: LockRequest) -> DataLease | None:
    try:
        return locks.acquire(request, wait_s=0)
    except LockTimeout:
        return None


class Later:
    """An `acquire` in a thread of its own, known to be in the queue."""

    def __init__(self, locks: DataLocks, request: LockRequest, wait_s: float = 20.0) -> None:
        before = len(locks.inspect())
        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(locks.acquire, request, wait_s=wait_s)
        eventually(lambda: len(locks.inspect()) > before or self._future.done())

    @property
    def done(self) -> bool:
        return self._future.done()

    def lease(self) -> DataLease:
        try:
            return self._future.result(timeout=30)
        finally:
            self._pool.shutdown()


class DataLockSuite:
    """The promises. `writers` is the only fixture that a subclass provides."""

    @pytest.fixture
    def writers(self) -> Writers:
        raise NotImplementedError("say how a writer opens the data locks")

    @pytest.mark.parametrize(
        ("held", "asked", "both"),
        [
            (share(P1), share(P1), True),
            (share(P1), own(P1), False),
            (own(P1), share(P1), False),
            (own(P1), own(P1), False),
            (own(P1), own(P2), True),
            (own(P1), share(P2), True),
            (own(TABLE), share(P1), False),
            (own(P1), own(TABLE), False),
            (share(P1), own(TABLE), False),
            (own(P1), share(TABLE), True),
            (own(PQ), own(PR), True),
            (own(P), own(PQ), False),
            (own(PQ), own(P), False),
            (share(PQ), own(PR), True),
        ],
        ids=lambda value: str(value),
    )
    def test_two_requests_are_granted_together_as_hives_model_says(
        self, writers: Writers, held: LockRequest, asked: LockRequest, both: bool
    ) -> None:
        one, two = writers(), writers()
        first = one.acquire(held, wait_s=12)
        second = granted(two, asked)
        assert (second is not None) is both
        one.release(first)
        if second is None:
            second = granted(two, asked)
        assert second is not None
        two.release(second)
        assert one.inspect() == ()

    def test_a_request_is_granted_as_a_whole_or_not_at_all(self, writers: Writers) -> None:
        one, two, three = writers(), writers(), writers()
        first = one.acquire(own(P2), wait_s=12)
        assert granted(two, own(P1, P2)) is None
        alone = granted(three, own(P1))
        assert alone is not None, "a request that was refused keeps nothing"
        one.release(first)
        three.release(alone)

    def test_a_writer_waits_behind_readers_and_later_readers_wait_behind_it(self, writers: Writers) -> None:
        reader, writer, late = writers(), writers(), writers()
        reading = reader.acquire(share(P1), wait_s=12)
        waiting = Later(writer, own(P1))
        assert granted(late, share(P1)) is None, "readers that keep coming would starve the writer"
        behind = Later(late, share(P1))
        reader.release(reading)
        written = waiting.lease()
        assert not behind.done
        writer.release(written)
        late.release(behind.lease())
        assert late.inspect() == ()

    def test_readers_that_wait_are_served_together_and_before_a_later_writer(self, writers: Writers) -> None:
        first, readers, last = writers(), [writers(), writers()], writers()
        writing = first.acquire(own(P1), wait_s=12)
        waiting = [Later(reader, share(P1)) for reader in readers]
        late = Later(last, own(P1))
        first.release(writing)
        leases = [each.lease() for each in waiting]
        assert not late.done
        for reader, lease in zip(readers, leases, strict=True):
            reader.release(lease)
        last.release(late.lease())

    def test_a_waiter_holds_nothing_but_its_place(self, writers: Writers) -> None:
        one, two, three = writers(), writers(), writers()
        first = one.acquire(own(P1), wait_s=12)
        waiting = Later(two, own(P1, P2))
        assert granted(three, own(PQ)) is not None
        shown = {locked.token: locked for locked in one.inspect()}
        assert [locked.held for locked in shown.values()] == [True, False, True]
        (waits,) = [locked for locked in shown.values() if not locked.held]
        assert waits.blocked_by == (first.token,)
        one.release(first)
        two.release(waiting.lease())

    def test_a_waiter_that_gives_up_names_the_holder_in_its_way_and_leaves_nothing_behind(self, writers: Writers) -> None:
        one, two, three = writers(), writers(), writers()
        first = one.acquire(own(P1), wait_s=12)
        with Stopwatch() as watch, pytest.raises(LockTimeout, match="writer-0") as refused:
            two.acquire(share(P1), wait_s=0.3)
        assert watch.wall_s >= 0.3 and watch.took_s < 0.3 + SLACK_S
        assert refused.value.details["blocked_by"] == [first.token]
        assert [locked.token for locked in three.inspect()] == [first.token]
        one.release(first)
        assert three.inspect() == ()

    def test_tokens_grow_from_grant_to_grant(self, writers: Writers) -> None:
        one, two = writers(), writers()
        tokens = []
        for locks in (one, two, one, two):
            lease = locks.acquire(own(P1), wait_s=12)
            tokens.append(lease.token)
            locks.release(lease)
        assert tokens == sorted(set(tokens))

    def test_a_silent_holder_is_replaced_after_its_lease_finds_out_and_never_gets_it_back(self, writers: Writers) -> None:
        silent, next_one = writers(LEASE_S), writers(LEASE_S)
        asked_s = monotonic()
        lease = silent.acquire(own(P1), wait_s=12)
        self.fall_silent(silent)
        with Stopwatch() as watch:
            after = next_one.acquire(own(P1), wait_s=LEASE_S + 2 * SLACK_S)
        assert monotonic() - asked_s > LEASE_S / 3 and watch.took_s < LEASE_S + SLACK_S
        eventually(lambda: lease.lost is not None)
        with pytest.raises(LeaseLost):
            silent.renew(lease)
        silent.release(lease)
        assert [locked.token for locked in next_one.inspect() if locked.held] == [after.token]
        next_one.release(after)

    def fall_silent(self, locks: DataLocks) -> None:
        """Make this writer silent; one that is not renewed is. Where a session renews by itself, end it."""

    def test_a_dead_waiter_keeps_nobody_waiting_for_longer_than_its_lease(self, writers: Writers) -> None:
        holder, dead, behind = writers(LEASE_S), writers(LEASE_S), writers(LEASE_S)
        lease = holder.acquire(share(P1), wait_s=12)
        self.die_waiting(dead, own(P1))
        began_s = monotonic()
        waiting = Later(behind, share(P1), wait_s=LEASE_S + 2 * SLACK_S)
        while not waiting.done:
            holder.renew(lease)
            sleep(0.05)
        behind.release(waiting.lease())
        assert monotonic() - began_s < LEASE_S + SLACK_S
        holder.release(lease)

    def die_waiting(self, locks: DataLocks, request: LockRequest) -> None:
        """Queue up and vanish without leaving."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(locks, "abandon", lambda grant: None)
            assert granted(locks, request) is None
        assert len(locks.inspect()) == 2

    def test_a_holder_that_renews_keeps_its_locks_beyond_many_leases(self, writers: Writers) -> None:
        holder, rival = writers(LEASE_S), writers(LEASE_S)
        lease = holder.acquire(own(P1), wait_s=12)
        waiting = Later(rival, own(P1))
        until_s = monotonic() + 2 * LEASE_S
        while monotonic() < until_s:
            holder.renew(lease)
            sleep(0.1)
        lease.ensure_active()
        assert not waiting.done
        holder.release(lease)
        rival.release(waiting.lease())

    def test_a_holder_is_shown_with_its_token_and_its_locks(self, writers: Writers) -> None:
        one = writers()
        lease = one.acquire(lock_request([P1], [PQ], about="INSERT"), wait_s=12)
        (shown,) = one.inspect()
        assert (shown.token, shown.held, shown.blocked_by) == (lease.token, True, ())
        assert shown.request.locks == lease.request.locks
        assert "writer-0" in str(shown)
        one.release(lease)

    def test_a_lease_is_broken_by_force_only_while_its_holder_renews(self, writers: Writers) -> None:
        one, operator = writers(LEASE_S), writers(LEASE_S)
        lease = one.acquire(own(P1), wait_s=12)
        stop = threading.Event()

        def beat() -> None:
            while not stop.wait(0.1):
                one.renew(lease)

        beating = threading.Thread(target=beat)
        beating.start()
        try:
            with pytest.raises(LockError, match="token"):
                operator.break_lock(lease.token)
        finally:
            stop.set()
            beating.join()
        operator.break_lock(lease.token, force=True)
        with pytest.raises(LeaseLost):
            one.renew(lease)
        after = granted(operator, own(P1))
        assert after is not None and after.token > lease.token
        operator.break_lock(lease.token)
        after.ensure_active()
        operator.renew(after)
        operator.release(after)

    def test_all_locks_are_taken_away_at_once_and_a_number_below_the_first_token_takes_none(self, writers: Writers) -> None:
        one, two, operator = writers(), writers(), writers()
        leases = [one.acquire(own(P1), wait_s=12), two.acquire(own(P2), wait_s=12)]
        for number in (0, -1):
            for force in (False, True):
                with pytest.raises(InputError, match="not a token"):
                    operator.break_lock(number, force=force)
        assert {shown.token for shown in operator.inspect()} == {lease.token for lease in leases}
        operator.break_all()
        assert operator.inspect() == ()
        for holder, lease in zip((one, two), leases, strict=True):
            with pytest.raises(LeaseLost):
                holder.renew(lease)
        after = granted(operator, own(P1, P2))
        assert after is not None
        operator.release(after)
        operator.break_all()

    def test_a_release_happens_once_and_only_for_its_own_lease(self, writers: Writers) -> None:
        one, two = writers(), writers()
        lease = one.acquire(own(P1), wait_s=12)
        one.release(lease)
        assert lease.lost is not None and lease.lost.reason == "released"
        after = granted(two, own(P1))
        assert after is not None
        one.release(lease)
        assert granted(one, own(P1)) is None
        two.release(after)

    def test_closed_locks_are_granted_to_nobody_not_even_to_a_thread_that_waits_for_them(self, writers: Writers) -> None:
        one, other = writers(), writers()
        one.acquire(own(P1))
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(one.acquire, own(P1), wait_s=60)
            eventually(lambda: len(other.inspect()) == 2)
            one.close()
            with pytest.raises(LockError, match="closed"):
                waiting.result()
        with pytest.raises(LockError, match="closed"):
            one.acquire(own(P2), wait_s=0)
        other.release(other.acquire(own(P1), wait_s=LEASE_S + SLACK_S))

    def test_a_thousand_partitions_are_one_request(self, writers: Writers) -> None:
        one, two = writers(), writers()
        many = [Resource.of(f"day={day}") for day in range(1000)]
        lease = one.acquire(own(*many), wait_s=10)
        assert granted(two, own(many[500])) is None
        one.release(lease)
        assert two.inspect() == ()

    def test_random_requests_of_many_writers_never_overlap_and_all_get_through(self, writers: Writers) -> None:
        resources = [P1, P2, P, PQ, PR, TABLE]
        holders: dict[Resource, list[str]] = {resource: [] for resource in resources}
        mutex, overlaps, rounds = threading.Lock(), [], 8

        def work(number: int) -> int:
            random, locks = Random(number), writers()
            for turn in range(rounds):
                wanted = random.sample(resources, random.randint(1, 3))
                split = random.randint(0, len(wanted))
                request = lock_request(wanted[:split], wanted[split:])
                lease = locks.acquire(request, wait_s=60)
                me = f"{number}.{turn}"
                with mutex:
                    for lock in request.locks:
                        if holders[lock.resource] and (lock.mode.short == "X" or "X" in holders[lock.resource][0]):
                            overlaps.append((me, lock, list(holders[lock.resource])))
                        holders[lock.resource].append(f"{lock.mode.short}{me}")
                sleep(random.random() / 500)
                with mutex:
                    for lock in request.locks:
                        holders[lock.resource].remove(f"{lock.mode.short}{me}")
                locks.release(lease)
            return rounds

        with ThreadPoolExecutor(5) as pool:
            assert list(pool.map(work, range(5))) == [rounds] * 5
        assert overlaps == []
