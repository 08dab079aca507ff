"""The lock next to the table between real processes: they exclude each other, die, and are paused."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lakelock.clock import SystemRuntime
from lakelock.errors import LockTimeout
from lakelock.identity import WriterIdentity
from lakelock.providers import open_provider
from lakelock.settings import Settings
from lakelock.storage_local import LocalStorage
from lakelock.testing.servers import S3_OPTIONS
from tests.behaviour.lock_processes import Worker

LEASE_S = 1.5


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []
    (tmp_path / "count").write_text("0")

    def start_one(
        uri: str = str(tmp_path / "table"), options: dict[str, str] | None = None, lease_s: float = LEASE_S
    ) -> Worker:
        arena = {"uri": uri, "options": options or {}, "lease_s": lease_s, "renew_s": lease_s / 3, "folder": str(tmp_path)}
        workers.append(Worker(arena))
        return workers[-1]

    yield start_one
    for worker in workers:
        worker.process.kill()
        worker.process.communicate()


@pytest.mark.parametrize(("where", "rounds"), [("local disk", 50), ("S3", 15)])
def test_four_processes_never_hold_the_lock_at_once(
    start: Callable[..., Worker], tmp_path: Path, where: str, rounds: int, request: pytest.FixtureRequest
) -> None:
    table: dict[str, Any] = {"lease_s": 15.0}
    if where == "S3":
        endpoint = request.getfixturevalue("s3_endpoint")
        table |= {"uri": f"s3://lake/hammer-{os.getpid()}", "options": {**S3_OPTIONS, "endpoint": endpoint}}
    workers = [start(**table) for _ in range(4)]
    assert all(worker("ready") for worker in workers)
    for worker in workers:
        worker.ask(f"hammer {rounds}")
    assert [worker.answer() for worker in workers] == [{"overlaps": 0}] * 4
    assert (tmp_path / "count").read_text() == str(4 * rounds)
    grants = [line.split() for line in (tmp_path / "tokens").read_text().splitlines()]
    tokens = [int(token) for token, _ in grants]
    assert tokens == sorted(set(tokens)) and len(tokens) == 4 * rounds
    switches = sum(before[1] != after[1] for before, after in pairwise(grants))
    assert switches > len(tokens) / 10, "the processes ran one after the other: nothing was shown"


def test_the_overlap_detectors_notice_a_lock_that_keeps_nobody_out(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")
    arena = {"uri": str(tmp_path / "table"), "options": {}, "lease_s": 15, "renew_s": 5, "folder": str(tmp_path)}
    workers, rounds = [Worker(arena | {"settings": {"lock.provider": "memory:"}}) for _ in range(2)], 300
    try:
        assert all(worker("ready") for worker in workers)
        for worker in workers:
            worker.ask(f"hammer {rounds}")
        overlaps = 0
        for worker in workers:
            try:
                overlaps += worker.answer()["overlaps"]
            except AssertionError:  # it read the counter while the other one wrote it
                overlaps += 1
        assert overlaps > 0
    finally:
        for worker in workers:
            worker.end()


def test_a_killed_holder_is_replaced_after_its_lease(start: Callable[..., Worker]) -> None:
    first, second = start(), start()
    token = first("take 5")["token"]
    assert first("renew") and "held by worker-" in second("take 0.2")["timeout"]
    first.signal(signal.SIGKILL)
    took = second("take 20")
    assert took["token"] > token
    assert LEASE_S / 3 < took["took_s"] < 2 * LEASE_S + 5


def test_a_holder_that_renews_keeps_the_lock_beyond_its_lease(start: Callable[..., Worker]) -> None:
    first, second = start(lease_s=2 * LEASE_S), start(lease_s=2 * LEASE_S)
    first("take 5")
    first("renew")
    assert "timeout" in second(f"take {4 * LEASE_S}")
    assert first("check") == {"active": True}
    first("release")
    assert "token" in second("take 5")


def test_a_holder_that_was_paused_beyond_its_lease_finds_out_that_it_lost_it(start: Callable[..., Worker]) -> None:
    sleeper, other = start(), start()
    sleeper("take 5")
    sleeper("renew")
    sleeper.signal(signal.SIGSTOP)
    assert "token" in other("take 20")
    sleeper.signal(signal.SIGCONT)
    assert sleeper("check")["active"] is False
    sleeper("release")
    assert other("check") == {"active": True}, "the sleeper's release must not free the lock of its successor"
    assert "timeout" in sleeper("take 0.2")


def test_a_forked_child_does_not_hold_the_lock_of_its_parent(tmp_path: Path) -> None:
    runtime = SystemRuntime()
    writer = WriterIdentity.of_this_process(runtime)
    provider = open_provider(Settings(), LocalStorage(tmp_path), runtime, writer)
    lease = provider.acquire(wait_s=5)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # only plain calls here: a failure must end this process, not run the rest of the suite
        answers = []
        try:
            answers.append("holds" if lease.lost is None else lease.lost.reason)
            provider.release(lease)
            provider.close()
            try:
                provider.acquire(wait_s=0.1)
                answers.append("took it")
            except LockTimeout as error:
                answers.append(type(error).__name__)
        finally:
            os.write(writing, ",".join(answers).encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    assert told == "session-lost,LockTimeout"
    lease.ensure_active()
    provider.release(lease)


def test_threads_of_one_process_get_the_lock_in_order_of_arrival(tmp_path: Path) -> None:
    runtime = SystemRuntime()
    provider = open_provider(Settings(), LocalStorage(tmp_path), runtime, WriterIdentity.of_this_process(runtime))
    arrived: list[int] = []
    served: list[int] = []
    door = runtime.mutex()

    def work(number: int) -> None:
        runtime.sleep(0.05 * number)
        with door:
            arrived.append(number)
        lease = provider.acquire(wait_s=30)
        served.append(number)
        runtime.sleep(0.1)
        provider.release(lease)

    runtime.gather([lambda number=number: work(number) for number in range(6)], limit=6)  # type: ignore[misc]
    assert served == arrived
