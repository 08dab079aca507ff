"""A redo meets a fault, or dies, at each of its storage requests in turn: its rows are there whole or not at all, once.

Time is simulated, so that leases and heartbeats run out at once. Another writer then goes on, and nothing may be left behind.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.api import ArrowEngine, Coordinator, MemoryStorage, Outcome, StorageLocation
from tests.behaviour.redo.test_redo import Watched
from tests.behaviour.tables import QUICK, SCHEMA, leftovers, new_table
from tests.behaviour.test_every_fault import Dying, Killed
from tests.faulty_storage import Call, Fault, FaultyStorage, Rule
from tests.sizes import but_in_ci

from lakelock.errors import CommitOutcomeUnknown, LakelockError
from lakelock.settings import ConcurrencySettings
from lakelock.testing import ManualRuntime

SETTINGS = replace(
    QUICK,
    concurrency=ConcurrencySettings(early_conflict_detection=False),
    retry=replace(QUICK.retry, attempts=2, redo_attempts=1),
)
START = [("a", 1, "1"), ("b", 1, "1"), ("c", 1, "2")]
OTHERS = [("a", 1, "1"), ("b", 7, "1"), ("c", 1, "2")]
DONE = [("a", 2, "1"), ("b", 7, "1"), ("c", 2, "2"), ("n", 2, "3")]
LAST_REQUEST = 110


def rows(values: list[tuple[str, int, str]]) -> pa.Table:
    return pa.table([list(column) for column in zip(*values, strict=True)], schema=SCHEMA)


class World:
    """One table on simulated time; whoever writes to it loses one of three file groups to another writer."""

    def __init__(self) -> None:
        self.runtime = ManualRuntime()
        self.storage = MemoryStorage(self.runtime.now_ms)
        new_table(self.storage)
        self.engine().insert(rows(START))

    def engine(self, storage=None, kernels=None) -> ArrowEngine:
        storage = storage or self.storage
        coordinator = Coordinator.open(StorageLocation(storage.uri), SETTINGS, runtime=self.runtime, storage=storage)
        return ArrowEngine(coordinator, *([kernels] if kernels else []))

    def redo(self, storage):
        """An upsert over three file groups that collides in one, and does that one again."""
        kernels = Watched(written_2=lambda: self.engine().upsert(rows([("b", 7, "1")])))
        return self.engine(storage, kernels).upsert(rows([("a", 2, "1"), ("c", 2, "2"), ("n", 2, "3")]))

    def shown(self) -> list[tuple[str, int, str]]:
        found = self.engine().read()
        return sorted(zip(*(found.column(name).to_pylist() for name in SCHEMA.names), strict=True))

    def settle(self) -> None:
        """Let leases and heartbeats run out, let another writer pass, and sweep."""
        self.runtime.advance(30)
        self.engine().upsert(rows([("next", 0, "9")]))
        self.runtime.advance(30)
        self.engine().coordinator.reap()
        assert leftovers(self.storage) == []


def without_next(found: list[tuple[str, int, str]]) -> list[tuple[str, int, str]]:
    return [row for row in found if row[0] != "next"]


def test_an_undisturbed_redo_keeps_two_of_three_files():
    world = World()
    counted = FaultyStorage(world.storage, lambda call: None)
    done = world.redo(counted)
    assert (done.attempts, done.files, done.files_kept) == (2, 3, 2)
    assert world.shown() == DONE
    world.settle()


@pytest.mark.parametrize("sent", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", but_in_ci(range(1, LAST_REQUEST), range(1, LAST_REQUEST, 4)))
def test_a_redoing_writer_may_die_at_any_request_and_others_finish_or_remove_its_work(number, sent):
    world = World()
    with contextlib.suppress(Killed):
        world.redo(Dying(world.storage, number, sent=sent))
    world.runtime.stop_repeating()
    before = world.shown()
    assert before in (START, OTHERS, DONE)
    world.settle()
    after = without_next(world.shown())
    assert after == before or (before == OTHERS and after == DONE)


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("number", but_in_ci(range(40, LAST_REQUEST, 3), range(40, LAST_REQUEST, 12)))
def test_the_outcome_of_a_redo_is_told_truthfully_whatever_request_fails(number, fault, lasting):
    def plan(call: Call) -> Rule | None:
        fails = call.number >= number if lasting else call.number == number
        return Rule(fault=fault, late_by=3) if fails else None

    world, instant = World(), ""
    faulty = FaultyStorage(world.storage, plan)
    try:
        instant, told = world.redo(faulty).instant, "committed"
    except CommitOutcomeUnknown as error:
        instant, told = str(error.details["instant"]), "unknown"
    except LakelockError:
        told = "rejected"
    at_once = world.shown() == DONE
    faulty.deliver()
    world.settle()
    shown = without_next(world.shown())
    assert shown in (START, OTHERS, DONE)
    if told == "unknown":
        outcome = world.engine().coordinator.outcome(instant)
        assert outcome is (Outcome.COMMITTED if shown == DONE else Outcome.REJECTED)
    else:
        assert (at_once, shown == DONE) == (told == "committed", told == "committed")
