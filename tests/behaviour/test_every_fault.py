"""A transaction meets a fault, or dies, at each of its storage requests in turn: what it says must be what the table shows.

Time is simulated, so that leases and heartbeats run out at once. Another writer then goes on, and nothing may be left behind.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pyarrow as pa
import pytest
from tests.api import (
    ArrowEngine,
    Coordinator,
    MemoryStorage,
    Outcome,
    StorageLocation,
    TableIO,
    layout,
    read_snapshot,
    read_timeline,
)
from tests.behaviour.tables import QUICK, SCHEMA, new_table, put_file
from tests.faulty_storage import Call, Fault, FaultyStorage, Rule, Wrapped
from tests.sizes import but_in_ci, in_ci

from lakelock.errors import CommitOutcomeUnknown, LakelockError
from lakelock.testing import ManualRuntime

SETTINGS = replace(QUICK, retry=replace(QUICK.retry, attempts=1))
LAST_REQUEST = 45


class Killed(BaseException):
    """The process died; nothing of it runs any more."""


class Dying(Wrapped):
    """Every request from number `last` on kills the process; that request itself still goes through if `sent`."""

    def __init__(self, inner, last: int, *, sent: bool) -> None:
        super().__init__(inner)
        self.left, self.sent = last, sent

    def carry(self, op, key, request, *, weight=1):
        self.left -= 1
        if self.left <= 0:
            if self.left == 0 and self.sent:
                request()
            raise Killed
        return request()


class World:
    """One table on simulated time, with two file groups that are there already."""

    def __init__(self) -> None:
        self.runtime = ManualRuntime()
        self.storage = MemoryStorage(self.runtime.now_ms)
        new_table(self.storage)
        for file_id in "ab":
            with self.coordinator().begin("INSERT") as tx:
                tx.commit([put_file(tx, self.storage, "month=1", file_id)])

    def coordinator(self, storage=None, settings=SETTINGS) -> Coordinator:
        storage = storage or self.storage
        return Coordinator.open(StorageLocation(storage.uri), settings, runtime=self.runtime, storage=storage)

    def ready(self, storage) -> Callable[[], str]:
        """A writer that is about to rewrite group a and to add group c. It tells its instant once it has committed."""

        def rewrite() -> str:
            with self.coordinator(storage).begin("UPSERT") as tx:
                tx.claim([f.group for f in tx.snapshot().files if f.file_id == "a"])
                tx.commit([put_file(tx, storage, "month=1", "a"), put_file(tx, storage, "month=1", "c")])
            return tx.instant

        return rewrite

    def is_written(self, shown: dict[str, str]) -> bool:
        """Whether both files of the rewrite are shown, and not one without the other."""
        new = shown.get("c")
        assert (new is None) == (shown["a"] == min(shown["a"], shown["b"])) and (new is None or shown["a"] == new)
        return new is not None

    def shown(self) -> dict[str, str]:
        return {f.file_id: f.instant for f in read_snapshot(TableIO(self.storage), read_timeline(self.storage)).files}

    def settle(self) -> None:
        """Let leases and heartbeats run out, let another writer pass, and sweep."""
        self.runtime.advance(30)
        other = self.coordinator()
        with other.begin("INSERT") as tx:
            tx.commit([put_file(tx, self.storage, "month=2", "next")])
        self.runtime.advance(30)
        other.reap()

    def check_tidy(self) -> None:
        timeline = read_timeline(self.storage)
        committed = timeline.completed_instants
        assert timeline.pending == ()
        assert [i.key for i in self.storage.list(".hoodie/.temp")] == []
        assert [i.key for i in self.storage.list(".hoodie/.heartbeat")] == []
        assert [i.key for i in self.storage.list(".hoodie/.lakelock/claims")] == []
        strays = [i.key for i in self.storage.list("") if i.key.endswith(".parquet") and i.key[-25:-8] not in committed]
        assert strays == []


class SmallInserts(World):
    """The writer has inserted before, and is about to insert one row, which it writes while it takes the lock (ADR 38)."""

    def ready(self, storage) -> Callable[[], str]:
        engine = ArrowEngine(self.coordinator(storage))
        first, second = (pa.table([[key], [1], ["1"]], schema=SCHEMA) for key in ("first", "second"))
        engine.insert(first)
        self.runtime.sleep(1)
        return lambda: engine.insert(second).instant

    def is_written(self, shown: dict[str, str]) -> bool:
        new = [file_id for file_id in shown if file_id not in ("a", "b", "next")]
        assert len(new) in (1, 2)
        return len(new) == 2


def check_truthful(world: World, plan: Callable[[Call], Rule | None]) -> None:
    """What the writer is told under these faults is what the table shows, at once and when all is quiet; then all is tidy."""
    faulty = FaultyStorage(world.storage)
    write = world.ready(faulty)
    numbers = count(1)
    faulty.plan = lambda call: plan(replace(call, number=next(numbers)))
    told: str
    try:
        instant, told = write(), "committed"
    except CommitOutcomeUnknown as error:
        instant, told = str(error.details["instant"]), "unknown"
    except LakelockError:
        instant, told = "", "rejected"
    at_once = world.is_written(world.shown())
    faulty.deliver()
    world.settle()
    there = world.is_written(world.shown())
    if told == "committed":
        assert at_once and there
    elif told == "rejected":
        assert not at_once and not there
    else:
        outcome = world.coordinator().outcome(instant)
        assert outcome is (Outcome.COMMITTED if there else Outcome.REJECTED)
    world.check_tidy()


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", but_in_ci(range(1, LAST_REQUEST), range(1, LAST_REQUEST, 3)))
@pytest.mark.parametrize("world", [World, SmallInserts])
def test_the_outcome_is_told_truthfully_whatever_request_fails(world, number, fault, lasting):
    def plan(call: Call) -> Rule | None:
        fails = call.number >= number if lasting else call.number == number
        return Rule(fault=fault, late_by=3) if fails else None

    check_truthful(world(), plan)


PATTERNS = [format(n, "07b") for n in range(64, 128)]


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("pattern", but_in_ci(PATTERNS, PATTERNS[::5]))
@pytest.mark.parametrize("world", [World, *in_ci(SmallInserts)])
def test_the_outcome_is_told_truthfully_whichever_requests_fail_after_the_decision(world, pattern, fault):
    decided: list[int] = []

    def plan(call: Call) -> Rule | None:
        if call.op == "put_if_absent" and call.key.startswith(layout.DECISIONS):
            decided.append(call.number)
        since = call.number - decided[0] if decided else -1
        return Rule(fault=fault, late_by=3) if 0 <= since < len(pattern) and pattern[since] == "1" else None

    check_truthful(world(), plan)


@pytest.mark.parametrize("sent", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", but_in_ci(range(1, LAST_REQUEST), range(1, LAST_REQUEST, 3)))
@pytest.mark.parametrize("kind", [World, SmallInserts])
def test_a_writer_may_die_at_any_request_and_others_finish_or_remove_its_work(kind, number, sent):
    world = kind()
    dying = Dying(world.storage, sys.maxsize, sent=sent)
    write = world.ready(dying)
    dying.left = number
    with contextlib.suppress(Killed):
        write()
    world.runtime.stop_repeating()
    world.is_written(world.shown())
    before = world.shown()
    world.settle()
    after = world.shown()
    world.is_written(after)
    assert before.items() <= after.items() or world.is_written(after)
    world.check_tidy()


@pytest.mark.parametrize("sent", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", but_in_ci(range(1, 40), range(1, 40, 3)))
def test_whoever_cleans_up_may_die_at_any_request_and_the_next_goes_on(number, sent):
    world = World()
    with contextlib.suppress(Killed):
        tx = world.coordinator().begin("UPSERT")
        put_file(tx, world.storage, "month=1", "a")
        raise Killed
    world.runtime.stop_repeating()
    world.runtime.advance(30)
    with contextlib.suppress(Killed):
        world.coordinator(Dying(world.storage, number, sent=sent)).reap()
    world.runtime.stop_repeating()
    world.settle()
    shown = world.shown()
    assert sorted(shown) == ["a", "b", "next"] and shown["a"] < shown["b"]
    world.check_tidy()
