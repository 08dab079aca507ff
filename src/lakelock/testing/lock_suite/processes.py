"""What a lock promises between processes: real ones, in real time, that hammer, die, pause and fork."""

from __future__ import annotations

import os
import select
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise

import pytest

from lakelock.clock import SystemRuntime
from lakelock.errors import LockTimeout
from lakelock.testing.lock_processes import Worker
from lakelock.testing.lock_suite.arena import SLACK_S, Arena, Promises, column, not_for_this, taken

_CHILD_WITHIN_S = 20.0
_LOOKS = 20
_MEETINGS = 5
"""How often all begin at once, until they meet: on busy cores some may be done before others have begun."""


def _hammer_together(arena: Arena, workers: list[Worker], rounds: int) -> None:
    """Let each of them take the lock `rounds` times; where there is a queue, none begins before all are in it."""
    runtime = SystemRuntime()
    assert all(worker("ready") for worker in workers)
    gate = arena.writer("gate", lease_s=2 * _CHILD_WITHIN_S, runtime=runtime)
    lease = gate.acquire(wait_s=_CHILD_WITHIN_S)
    for worker in workers:
        worker.ask(f"hammer {rounds}")
    until_s = runtime.monotonic_s() + _CHILD_WITHIN_S / 2
    while arena.table.queues and len(gate.inspect().queue) < len(workers) and runtime.monotonic_s() < until_s:
        runtime.sleep(0.02)
    gate.release(lease)


def _only_queues(arena: Arena) -> None:
    if not arena.table.queues:
        not_for_this("waiters look again from time to time, in no order; only threads of one process are served in order")


class ProcessPromises(Promises):
    """Exclusion with two independent overlap detectors, death and pause of the holder, and fairness to waiters."""

    @column("exclusion")
    def test_processes_never_hold_the_lock_at_once_and_tokens_grow(self, arena: Arena) -> None:
        workers, rounds = [arena.worker(lease_s=15) for _ in range(3)], 40
        for meeting in range(1, _MEETINGS + 1):
            _hammer_together(arena, workers, rounds)
            assert [worker.answer() for worker in workers] == [{"overlaps": 0}] * 3
            assert (arena.folder / "count").read_text() == str(3 * rounds * meeting)
            tokens = [token for token, _ in arena.grants()]
            assert tokens == sorted(set(tokens)) and len(tokens) == 3 * rounds * meeting
            met = arena.grants()[-3 * rounds :]
            if sum(before[1] != after[1] for before, after in pairwise(met)) >= 4:
                return
        pytest.fail("the processes ran one after the other: nothing was shown")

    @column("crash")
    def test_a_killed_holder_is_replaced_after_its_lease(self, arena: Arena) -> None:
        first, second = arena.worker(), arena.worker()
        assert second("ready")
        token = first("take 5")["token"]
        assert first("renew") and "held by worker-" in second("take 0.1")["timeout"]
        first.signal(signal.SIGKILL)
        took = second("take 20")
        assert took["token"] > token
        assert arena.lease_s / 3 < took["took_s"] < arena.lease_s + SLACK_S

    @column("pause")
    def test_a_frozen_holder_is_replaced_finds_out_and_disturbs_nobody(self, arena: Arena) -> None:
        sleeper, other = arena.worker(), arena.worker()
        assert other("ready")
        token = sleeper("take 5")["token"]
        sleeper("renew")
        sleeper.signal(signal.SIGSTOP)
        assert other("take 20")["token"] > token
        other("renew")
        sleeper.signal(signal.SIGCONT)
        assert sleeper("check")["active"] is False
        sleeper("release")
        assert other("check") == {"active": True}
        assert "timeout" in sleeper("take 0.1")

    @column("fairness")
    def test_none_of_three_processes_starves(self, arena: Arena) -> None:
        _only_queues(arena)
        workers, rounds = [arena.worker(lease_s=15) for _ in range(3)], 60
        _hammer_together(arena, workers, rounds)
        assert all(worker.answer() == {"overlaps": 0} for worker in workers)
        # All three want the lock from when the last has arrived, which a busy machine may delay, until the first has finished.
        served: Counter[str] = Counter()
        shares: Counter[str] = Counter()
        for _, pid in arena.grants():
            served[pid] += 1
            if len(served) == 3:
                shares[pid] += 1
            if served[pid] == rounds:
                break
        assert len(served) == 3, f"one was not served until another was through: {served}"
        assert max(shares.values()) <= 6 * min(shares[pid] for pid in served) + 6, shares

    @column("fairness")
    def test_waiting_writers_are_shown_and_served_in_order_of_arrival(self, arena: Arena) -> None:
        _only_queues(arena)
        names, served = ["one", "two", "three", "four", "five", "six"], []
        holder, looking = arena.writer("holder", lease_s=30), arena.writer("looks", lease_s=30)
        lease = holder.acquire(wait_s=12)

        def work(name: str) -> None:
            waiter = arena.writer(name, lease_s=30)
            mine = waiter.acquire(wait_s=60)
            served.append(name)
            waiter.release(mine)

        with ThreadPoolExecutor(len(names)) as pool:
            working = []
            for number, name in enumerate(names, start=1):
                working.append(pool.submit(work, name))
                arena.until(lambda number=number: len(looking.inspect().queue) == number)  # type: ignore[misc]
            state = looking.inspect()
            holder.release(lease)
            for each in working:
                each.result(60)
        assert served == names
        assert state.holder is not None and state.holder.writer is not None and state.holder.writer.application == "holder"
        assert (state.holder.owner, state.holder.token, state.holder.lease_s) == (lease.grant, lease.token, lease.lease_s)
        assert [waiting.writer and waiting.writer.application for waiting in state.queue] == names
        tokens = [waiting.token for waiting in state.queue]
        assert tokens == sorted(tokens) and all(token == 0 or token > lease.token for token in tokens)
        state = looking.inspect()
        assert state.holder is None and state.queue == ()

    @column("fairness")
    def test_a_waiter_that_gives_up_leaves_the_queue(self, arena: Arena) -> None:
        _only_queues(arena)
        holder, waiter = arena.writer("holder", lease_s=15), arena.writer("waiter", lease_s=15)
        lease = holder.acquire(wait_s=12)
        assert taken(waiter, wait_s=0.3) is None
        assert holder.inspect().queue == ()
        holder.release(lease)

    def test_a_forked_child_does_not_hold_the_lock_of_its_parent(self, arena: Arena) -> None:
        provider = arena.writer("one", lease_s=10, runtime=SystemRuntime())
        lease = provider.acquire(wait_s=12)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # only plain calls here: a failure must end this process, not run the rest of the suite
            answers: list[str] = []
            try:
                answers.append("holds" if lease.lost is None else lease.lost.reason)
                provider.release(lease)
                if arena.table.forks:
                    try:
                        provider.acquire(wait_s=0.2)
                        answers.append("took it")
                    except LockTimeout as error:
                        answers.append(type(error).__name__)
                    provider.close()
            finally:
                os.write(writing, ",".join(answers).encode())
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            readable, _, _ = select.select([pipe], [], [], _CHILD_WITHIN_S)
            if not readable:
                os.kill(child, signal.SIGKILL)
            output = pipe.read()
        os.waitpid(child, 0)
        assert output == ("session-lost,LockTimeout" if arena.table.forks else "session-lost")
        lease.ensure_active()
        provider.renew(lease)
        provider.release(lease)

    def test_a_forked_child_that_looks_at_the_lock_leaves_its_parents_lease_alone(self, arena: Arena) -> None:
        """Both would hear each other's answers on one connection, and a mutex that was locked at the fork stays locked."""
        if not arena.table.forks:
            return
        provider = arena.writer("one", lease_s=10, runtime=SystemRuntime())
        lease = provider.acquire(wait_s=12)
        child = os.fork()
        if child == 0:
            status = 1
            with suppress(BaseException):
                for _ in range(_LOOKS):
                    provider.inspect()
                status = 0
            os._exit(status)
        for _ in range(_LOOKS):
            provider.renew(lease)
        lease.ensure_active()
        provider.release(lease)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
