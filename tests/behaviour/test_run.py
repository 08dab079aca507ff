"""A transaction that reads, given as a function: run again from a new snapshot until nobody came between, and within bounds."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import AppTransaction, ArrowEngine, Committed, ConflictRule, LocalStorage, MemoryStorage, Transaction, layout
from tests.behaviour.tables import QUICK, SCHEMA, Recorder, leftovers, memory_table, new_table, writer
from tests.faulty_storage import Call, Fault, FaultyStorage, Rule

from lakelock.conflict import Conflict, Party
from lakelock.errors import CommitOutcomeUnknown, ConflictError, RolledBackError, TransactionStateError
from lakelock.settings import ConcurrencySettings, HeartbeatSettings, Settings

CALM = replace(QUICK, heartbeat=HeartbeatSettings(), lock=replace(QUICK.lock, lease_s=60, renew_s=15, wait_s=120))
"""On a busy machine nobody is taken for dead, so that only conflicts are reasons for another attempt."""
PATIENT = replace(CALM, retry=replace(CALM.retry, attempts=200))
PESSIMISTIC = replace(CALM, concurrency=ConcurrencySettings(mode="PESSIMISTIC"))
ROOT = Path(__file__).parents[2]
COUNTER = pc.field("id") == "hits"

Function = Callable[[Transaction], Committed]


def counter(value: int) -> pa.Table:
    return pa.table([["hits"], [value], ["1"]], schema=SCHEMA)


def increment(engine: ArrowEngine, seen: list[int]) -> Function:
    """A function that adds one to the counter, and notes what it read."""

    def function(tx: Transaction) -> Committed:
        seen.append(engine.read_in(tx, COUNTER)["v"][0].as_py())
        return engine.upsert_in(tx, counter(seen[-1] + 1))

    return function


def value(storage: MemoryStorage | LocalStorage) -> int:
    (found,) = ArrowEngine(writer(storage, CALM)).read(where=COUNTER)["v"].to_pylist()
    return int(found)


@pytest.fixture
def storage() -> MemoryStorage:
    made = memory_table()
    ArrowEngine(writer(made, CALM)).insert(counter(0))
    return made


@pytest.fixture
def engine(storage: MemoryStorage) -> ArrowEngine:
    return ArrowEngine(writer(storage, CALM, "mine"))


def other_table() -> MemoryStorage:
    made = MemoryStorage(name="there")
    new_table(made)
    return made


def elsewhere(function: Callable[[], object]) -> None:
    """Run it in another thread, as somebody else would."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(function).result(timeout=60)


def test_the_loser_reads_again_what_the_winner_wrote(storage: MemoryStorage) -> None:
    both_have_read, seen = Barrier(2), {"one": list[int](), "two": list[int]()}

    def work(name: str) -> Committed:
        engine = ArrowEngine(writer(storage, CALM, name))
        add_one = increment(engine, seen[name])

        def function(tx: Transaction) -> Committed:
            if not seen[name]:
                engine.read_in(tx, COUNTER)
                both_have_read.wait(timeout=60)
            return add_one(tx)

        return engine.run(function)

    with ThreadPoolExecutor(2) as pool:
        first, second = sorted(pool.map(work, seen), key=lambda done: done.completion)
    assert value(storage) == 2 and leftovers(storage) == []
    assert first.attempts == 1 and second.attempts == 2
    assert [conflict.other.instant for conflict in second.conflicts] == [first.instant]
    assert sorted(seen.values(), key=len) == [[0], [0, 1]]


def test_no_increment_of_many_threads_is_lost(storage: MemoryStorage) -> None:
    begin, threads, rounds = Barrier(5), 5, 4

    def work(number: int) -> list[int]:
        engine = ArrowEngine(writer(storage, PATIENT, name=f"w{number}"))
        begin.wait(timeout=60)
        committed = []
        for _ in range(rounds):
            seen: list[int] = []
            done = engine.run(increment(engine, seen))
            assert len(seen) == done.attempts == len(done.conflicts) + 1
            assert seen == sorted(seen), "each attempt reads a later state"
            committed.append(seen[-1])
        return committed

    with ThreadPoolExecutor(threads) as pool:
        read = [each for found in pool.map(work, range(threads)) for each in found]
    assert value(storage) == threads * rounds and leftovers(storage) == []
    assert sorted(read) == list(range(threads * rounds)), "each state was read by one increment that was committed"


WORKER = """
import sys
from lakelock.storage.local import LocalStorage
from tests.behaviour.test_run import PATIENT, ArrowEngine, increment, writer

engine = ArrowEngine(writer(LocalStorage(sys.argv[1]), PATIENT))
for _ in range(int(sys.argv[2])):
    print("ready", flush=True)
    sys.stdin.readline()
    engine.run(increment(engine, []))
"""
"""Increments the counter each time that it is told to go."""


def test_no_increment_of_many_processes_is_lost(tmp_path: Path) -> None:
    storage, processes, rounds = LocalStorage(str(tmp_path / "t")), 3, 4
    new_table(storage)
    ArrowEngine(writer(storage, CALM)).insert(counter(0))
    command = [sys.executable, "-c", WORKER, str(tmp_path / "t"), str(rounds)]
    with ExitStack() as stack:
        workers = [
            stack.enter_context(subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(processes)
        ]
        for _ in range(rounds):
            assert [each.stdout.readline() for each in workers if each.stdout] == ["ready\n"] * processes
            for each in workers:
                assert each.stdin is not None
                each.stdin.write("go\n")
                each.stdin.flush()
    assert [each.returncode for each in workers] == [0] * processes
    assert value(storage) == processes * rounds and leftovers(storage) == []


@pytest.mark.in_ci
def test_who_loses_every_attempt_is_told_both_sides_and_how_often_it_was_tried(storage: MemoryStorage) -> None:
    settings = replace(CALM, retry=replace(CALM.retry, attempts=3))
    mine, other = (ArrowEngine(writer(storage, settings, name)) for name in ("mine", "theirs"))
    seen: list[int] = []
    add_one = increment(mine, seen)

    def function(tx: Transaction) -> Committed:
        elsewhere(lambda: other.run(increment(other, [])))
        return add_one(tx)

    with pytest.raises(ConflictError) as caught:
        mine.run(function)
    error = pickle.loads(pickle.dumps(caught.value))
    assert seen == [0, 1, 2] and value(storage) == 3 and leftovers(storage) == []
    assert error.details["attempts"] == 3 and "mine" in str(error.conflict.mine) and "theirs" in str(error.conflict.other)


def test_an_error_of_the_function_passes_through_and_leaves_nothing(storage: MemoryStorage, engine: ArrowEngine) -> None:
    calls = []

    def function(tx: Transaction) -> Committed:
        calls.append(engine.read_in(tx, COUNTER))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        engine.run(function)
    assert len(calls) == 1 and value(storage) == 0 and leftovers(storage) == []


@pytest.mark.parametrize("kind", ["conflict", "same instant", "rolled back"])
def test_the_rejection_of_another_tables_write_is_the_functions_own_error(engine: ArrowEngine, kind: str) -> None:
    there = other_table()
    busy, calls = ArrowEngine(writer(there, replace(CALM, retry=replace(CALM.retry, attempts=1)))), []
    earlier = busy.insert(counter(0)).instant

    def meanwhile(tx: Transaction) -> Committed:
        if kind == "rolled back":
            raise RolledBackError("their heartbeat had stopped", hint="", instant=earlier)
        elsewhere(lambda: ArrowEngine(writer(there, CALM)).upsert(counter(7)))
        return increment(busy, [])(tx)

    def collides(tx: Transaction) -> Committed:
        """Even in the same millisecond: the instant alone does not tell whose conflict it is."""
        theirs = Party(tx.instant, "UPSERT", busy.coordinator.table.writer)
        raise ConflictError(Conflict.over(ConflictRule.FILE_GROUP, theirs, theirs, ["month=1/a"]))

    def function(tx: Transaction) -> Committed:
        calls.append(tx.instant)
        if kind == "same instant":
            collides(tx)
        busy.run(meanwhile)
        return engine.upsert_in(tx, counter(1))

    with pytest.raises(RolledBackError if kind == "rolled back" else ConflictError):
        engine.run(function)
    assert len(calls) == 1 and engine.read()["v"].to_pylist() == [0]


def test_what_is_committed_is_not_run_again_whatever_the_function_raises_then(
    storage: MemoryStorage, engine: ArrowEngine
) -> None:
    def function(tx: Transaction) -> Committed:
        increment(engine, [])(tx)
        raise RolledBackError(f"{tx.instant} was lost", hint="", instant=tx.instant)

    with pytest.raises(RolledBackError):
        engine.run(function)
    assert value(storage) == 1


@pytest.mark.parametrize("settings", [CALM, PESSIMISTIC], ids=["optimistic", "pessimistic"])
@pytest.mark.parametrize("opened_again", [False, True])
def test_a_function_begins_no_other_transaction_on_its_table(
    storage: MemoryStorage, settings: Settings, opened_again: bool
) -> None:
    mine = ArrowEngine(writer(storage, settings))
    inner = ArrowEngine(writer(storage, settings)) if opened_again else mine
    for name in ("a", "b"):  # small files, which an optimize joins
        mine.insert(pa.table([[name], [1], ["2"]], schema=SCHEMA))
    attempts: list[Callable[[], object]] = [
        lambda: inner.upsert(counter(5)),
        lambda: inner.insert(counter(5), partition="month=9"),
        lambda: inner.run(increment(inner, [])),
        lambda: inner.coordinator.begin("UPSERT"),
        lambda: inner.optimize(),
    ]
    told = []

    def function(tx: Transaction) -> Committed:
        for attempt in attempts:
            with pytest.raises(TransactionStateError, match="of its own") as caught:
                attempt()
            told.append(caught.value)
        return increment(mine, [])(tx)

    assert mine.run(function).attempts == 1 and len(told) == len(attempts)
    assert value(storage) == 1 and leftovers(storage) == []
    inner.upsert(counter(5))


def test_a_function_may_write_to_another_table(storage: MemoryStorage, engine: ArrowEngine) -> None:
    there = other_table()
    ArrowEngine(writer(there, CALM)).insert(counter(10))
    other = ArrowEngine(writer(there, CALM))

    def function(tx: Transaction) -> Committed:
        other.run(increment(other, []))
        return increment(engine, [])(tx)

    engine.run(function)
    assert (value(storage), value(there)) == (1, 11)


def test_a_function_that_commits_nothing_is_told_so(storage: MemoryStorage, engine: ArrowEngine) -> None:
    def function(tx: Transaction) -> Committed:
        return engine.read_in(tx, COUNTER)  # type: ignore[return-value]

    with pytest.raises(TransactionStateError, match="returned without a commit"):
        engine.run(function)
    assert leftovers(storage) == []


def test_a_version_is_applied_once_and_its_function_is_not_called_again(storage: MemoryStorage, engine: ArrowEngine) -> None:
    seen: list[int] = []
    first = engine.run(increment(engine, seen), application=AppTransaction("job", 7))
    again = engine.run(increment(engine, seen), application=AppTransaction("job", 7))
    assert seen == [0] and value(storage) == 1
    assert again.already_applied and again.instant == first.instant


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOST_REPLY])
def test_an_increment_whose_decision_got_no_reply_counts_once(storage: MemoryStorage, fault: Fault) -> None:
    faulty = FaultyStorage(storage, [Rule("put_if_absent", f"{layout.DECISIONS}/*", 1, fault)])
    mine = ArrowEngine(writer(faulty, CALM))
    mine.run(increment(mine, []))
    assert value(storage) == 1 and leftovers(storage) == []


def test_an_unknown_outcome_is_never_run_again(storage: MemoryStorage) -> None:
    """The decision is stored, its reply is lost, and from then on storage stays away."""
    decided, seen = [], list[int]()

    def stays_away(call: Call) -> Rule | None:
        if decided:
            return Rule()
        if call.op == "put_if_absent" and call.key.startswith(f"{layout.DECISIONS}/"):
            decided.append(call)
            return Rule(fault=Fault.LOST_REPLY)
        return None

    brief = replace(CALM, lock=replace(CALM.lock, lease_s=2, renew_s=0.5))
    mine = ArrowEngine(writer(FaultyStorage(storage, stays_away), brief))
    with pytest.raises(CommitOutcomeUnknown):
        mine.run(increment(mine, seen))
    assert seen == [0]
    with writer(storage, CALM).begin("INSERT"):  # publishes it, once the lock is free
        assert value(storage) == 1


def test_attempts_are_events_with_their_cause(storage: MemoryStorage) -> None:
    recorder = Recorder()
    mine, other = ArrowEngine(writer(storage, CALM, listener=recorder)), ArrowEngine(writer(storage, CALM, "theirs"))
    seen: list[int] = []

    def function(tx: Transaction) -> Committed:
        if not seen:
            elsewhere(lambda: other.run(increment(other, [])))
        return increment(mine, seen)(tx)

    assert mine.run(function, tag="nightly").attempts == 2
    (again,) = [event for event in recorder.events if event.kind.value == "retry"]
    assert again.facts["attempt"] == 1 and "rule file-group" in str(again.facts["cause"])
