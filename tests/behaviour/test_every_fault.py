"""A transaction meets a fault, or dies, at each of its storage requests in turn: what it says must be what the table shows.

Time is simulated, so that leases and heartbeats run out at once. Another writer then goes on, and nothing may be left behind.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from lakelock.errors import CommitOutcomeUnknown, LakelockError
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.outcomes.history import Outcome
from lakelock.storage.location import StorageLocation
from lakelock.storage.memory import MemoryStorage
from lakelock.table import layout
from lakelock.table.snapshot import read_snapshot
from lakelock.table.timeline import read_timeline
from lakelock.testing import ManualRuntime
from tests.behaviour.tables import QUICK, new_table, put_file
from tests.faulty_storage import Call, Fault, FaultyStorage, Rule, Wrapped
from tests.sizes import but_in_ci

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

    def rewrite(self, storage) -> str:
        """Rewrite group a and add group c; the instant, also when the commit is not known to have happened."""
        tx = self.coordinator(storage).begin("UPSERT")
        with tx:
            tx.claim([f.group for f in tx.snapshot().files if f.file_id == "a"])
            stats = [put_file(tx, storage, "month=1", "a"), put_file(tx, storage, "month=1", "c")]
            tx.commit(stats)
        return tx.instant

    def shown(self) -> dict[str, str]:
        return {f.file_id: f.instant for f in read_snapshot(self.storage, read_timeline(self.storage)).files}

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


def check_all_or_nothing(shown: dict[str, str]) -> bool:
    """Both files of the rewrite or none; True if both."""
    new = shown.get("c")
    assert (new is None) == (shown["a"] == min(shown["a"], shown["b"])) and (new is None or shown["a"] == new)
    return new is not None


def check_truthful(world: World, plan: Callable[[Call], Rule | None]) -> None:
    """What the writer is told under these faults is what the table shows, at once and when all is quiet; then all is tidy."""
    faulty = FaultyStorage(world.storage, plan)
    told: str
    try:
        instant, told = world.rewrite(faulty), "committed"
    except CommitOutcomeUnknown as error:
        instant, told = str(error.details["instant"]), "unknown"
    except LakelockError:
        instant, told = "", "rejected"
    at_once = check_all_or_nothing(world.shown())
    faulty.deliver()
    world.settle()
    there = check_all_or_nothing(world.shown())
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
def test_the_outcome_is_told_truthfully_whatever_request_fails(number, fault, lasting):
    def plan(call: Call) -> Rule | None:
        fails = call.number >= number if lasting else call.number == number
        return Rule(fault=fault, late_by=3) if fails else None

    check_truthful(World(), plan)


PATTERNS = [format(n, "07b") for n in range(64, 128)]


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("pattern", but_in_ci(PATTERNS, PATTERNS[::5]))
def test_the_outcome_is_told_truthfully_whichever_requests_fail_after_the_decision(pattern, fault):
    decided: list[int] = []

    def plan(call: Call) -> Rule | None:
        if call.op == "put_if_absent" and call.key.startswith(layout.DECISIONS):
            decided.append(call.number)
        since = call.number - decided[0] if decided else -1
        return Rule(fault=fault, late_by=3) if 0 <= since < len(pattern) and pattern[since] == "1" else None

    check_truthful(World(), plan)


@pytest.mark.parametrize("sent", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", but_in_ci(range(1, LAST_REQUEST), range(1, LAST_REQUEST, 3)))
def test_a_writer_may_die_at_any_request_and_others_finish_or_remove_its_work(number, sent):
    world = World()
    with contextlib.suppress(Killed):
        world.rewrite(Dying(world.storage, number, sent=sent))
    world.runtime.stop_repeating()
    check_all_or_nothing(world.shown())
    before = world.shown()
    world.settle()
    after = world.shown()
    check_all_or_nothing(after)
    assert before.items() <= after.items() or "c" in after
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
