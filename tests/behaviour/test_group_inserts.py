"""Small inserts that meet at the lock are committed together, each once or not at all (ADR 42)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count

import pyarrow as pa
import pytest
from tests.api import AppTransaction, ArrowEngine, MemoryStorage, Outcome, Storage, layout
from tests.behaviour.tables import QUICK, SCHEMA, leftovers, memory_table, new_table, writer
from tests.faulty_storage import CountingStorage, Fault, FaultyStorage, Rule

from lakelock.engine.group_commit import fingerprint
from lakelock.errors import CommitOutcomeUnknown, LockTimeout, SchemaError
from lakelock.occ.commit_keys import Member
from lakelock.occ.log import DecisionKind
from lakelock.occ.offers import Offer, oldest_ms, put_offer, settle
from lakelock.settings import ConcurrencySettings, Settings, WriteSettings
from lakelock.table.rewriting import ARROW
from lakelock.testing import ManualRuntime

numbers = count()


def rows(month: str = "1", amount: int = 1) -> pa.Table:
    keys = [f"k{next(numbers)}" for _ in range(amount)]
    return pa.table([keys, list(range(amount)), [month] * amount], schema=SCHEMA)


def crowded(storage: Storage, name: str, settings: Settings = QUICK) -> ArrowEngine:
    """A writer that has inserted one row and has met others since."""
    engine = ArrowEngine(writer(storage, settings=settings, name=name))
    engine.insert(rows())
    meets_others(engine)
    return engine


def meets_others(engine: ArrowEngine) -> None:
    table = engine.coordinator.table
    table.observed.crowded_until_s = table.runtime.monotonic_s() + 60


def on_offer(storage: Storage, name: str, month: str, amount: int, tag: str = "") -> Offer:
    """An offer whose owner is gone without a word, as after `kill -9`."""
    table = crowded(storage, name).coordinator.table
    schema = ArrowEngine(writer(storage)).coordinator.schema()
    member = Member(table.runtime.uuid(), table.writer, tag, amount, (f"month={month}",))
    offer = Offer(member, table.log.newest, fingerprint(schema), ARROW.packed(rows(month, amount)), "INSERT")
    put_offer(table, offer)
    return offer


def offers(storage: Storage) -> list[str]:
    return [item.key for item in storage.list(layout.OFFERS)]


def commits(engine: ArrowEngine) -> int:
    return len(engine.coordinator.table.timeline().commits)


def test_whoever_commits_takes_along_all_that_wait_and_history_names_the_members():
    storage = memory_table()
    on_offer(storage, "waiting", "2", 3, tag="theirs")
    leader = crowded(storage, "leader")
    before = commits(leader)
    done = leader.insert(rows("1", 2), tag="mine")
    assert commits(leader) == before + 1
    assert (done.rows_inserted, done.files) == (2, 1)
    newest = leader.coordinator.history(1)[0]
    assert newest.instant == done.instant and newest.rows_inserted == 5 and newest.partitions == 2
    assert {(member.tag, member.rows) for member in newest.members} == {("mine", 2), ("theirs", 3)}
    assert all("waiting" in m.writer or "leader" in m.writer for m in newest.members)
    assert offers(storage) == [] and leftovers(storage) == []


def test_an_insert_that_is_given_up_is_withdrawn_by_a_decision_and_never_committed():
    storage = memory_table()
    offer = on_offer(storage, "impatient", "2", 3)
    other = crowded(storage, "other")
    table = other.coordinator.table
    assert settle(table, offer.member.id, offer.since) is None
    newest = table.log.look().decisions[-1]
    assert (newest.kind, newest.instant) == (DecisionKind.ROLLBACK, offer.member.id)
    other.insert(rows())
    assert "2" not in other.read()["month"].to_pylist()
    assert other.coordinator.outcome(offer.member.id) is Outcome.REJECTED


def test_an_insert_that_is_committed_cannot_be_withdrawn_not_even_once_its_decision_is_collected():
    storage = memory_table()
    offer = on_offer(storage, "waiting", "2", 3)
    leader = crowded(storage, "leader")
    done = leader.insert(rows())
    for _ in range(3):
        leader.upsert(rows())
    table = leader.coordinator.table
    assert leader.coordinator.collect()
    assert table.log.boundary() > done.decision > offer.since
    found = settle(table, offer.member.id, offer.since)
    assert found is not None and found.instant == done.instant


def test_an_old_offer_of_a_dead_writer_is_removed_by_upkeep():
    runtime = ManualRuntime()
    storage = MemoryStorage(runtime.now_ms)
    new_table(storage)
    engine = ArrowEngine(writer(storage, runtime=runtime))
    engine.insert(rows())
    table = engine.coordinator.table
    put_offer(table, Offer(Member("11111111-1111-4111-8111-111111111111", None, "", 1, ()), 1, "", b"", "INSERT"))
    engine.coordinator.reap()
    assert offers(storage)
    runtime.advance(oldest_ms(table) / 1000 + 1)
    engine.coordinator.reap()
    assert offers(storage) == []


@pytest.mark.parametrize("month", ["one month", "a month each"])
def test_writers_that_meet_lose_nothing_and_need_fewer_commits_than_inserts(month: str):
    storage = memory_table()
    engines = [crowded(storage, f"w{number}") for number in range(6)]
    before = commits(engines[0])

    def work(number: int) -> None:
        for _ in range(5):
            meets_others(engines[number])
            done = engines[number].insert(rows("1" if month == "one month" else str(number), 2))
            assert done.rows_inserted == 2

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    found = engines[0].read()
    assert found.num_rows == 6 + 60 and len(set(found["id"].to_pylist())) == 66
    assert commits(engines[0]) < before + 30
    assert offers(storage) == [] and leftovers(storage) == []


def test_a_lost_answer_of_a_group_commit_commits_nothing_twice():
    storage = memory_table()
    on_offer(storage, "waiting", "2", 3)
    faulty = FaultyStorage(storage)
    leader = crowded(faulty, "leader")
    faulty.plan = [Rule("put_if_absent", layout.DECISIONS + "/*", fault=Fault.LATE, late_by=3)]
    done = leader.insert(rows("1", 2))
    faulty.deliver()
    found = leader.read()
    assert done.rows_inserted == 2
    assert found.num_rows == len(set(found["id"].to_pylist())) == 2 + 2 + 3


def test_an_insert_of_which_nothing_is_known_has_a_name_that_tells_later():
    storage = memory_table()
    faulty = FaultyStorage(storage)
    engine = crowded(faulty, "silenced", replace(QUICK, lock=replace(QUICK.lock, wait_s=0.5)))
    faulty.plan = [Rule("list", layout.OFFERS, nth=None), Rule("put_if_absent", layout.DECISIONS + "/*", nth=None)]
    with pytest.raises(CommitOutcomeUnknown) as unknown:
        engine.insert(rows("9"))
    faulty.plan = []
    name = str(unknown.value.details["instant"])
    assert engine.coordinator.outcome(name) is Outcome.REJECTED
    crowded(storage, "other").insert(rows())
    assert "9" not in engine.read()["month"].to_pylist()


def test_nobody_commits_while_the_lock_is_held_and_the_wait_ends_with_the_lock_s_own_error():
    storage = memory_table()
    engine = crowded(storage, "waiting", replace(QUICK, lock=replace(QUICK.lock, wait_s=1.5)))
    holder = writer(storage, name="holder")
    before = commits(engine)
    with holder.table.locked(), pytest.raises(LockTimeout):
        engine.insert(rows("7"))
    assert commits(engine) == before
    crowded(storage, "other").insert(rows())
    assert "7" not in engine.read()["month"].to_pylist()


def test_a_writer_that_meets_another_at_the_lock_puts_its_rows_on_offer():
    storage = CountingStorage(memory_table())
    engine = ArrowEngine(writer(storage, name="late"))
    engine.insert(rows())
    holder, timer = writer(storage.inner, name="holder"), threading.Event()

    def hold() -> None:
        with holder.table.locked():
            timer.wait(1.5)

    thread = threading.Thread(target=hold)
    thread.start()
    while holder.table.provider is not None and holder.table.provider.inspect().holder is None:
        timer.wait(0.01)
    storage.reset()
    engine.insert(rows())
    thread.join()
    assert any(op == "put_if_absent" and key.startswith(layout.OFFERS) for op, key in storage.calls)
    assert engine.read().num_rows == 2 and leftovers(storage.inner) == []


@pytest.mark.parametrize("kind", ["application", "large", "another profile", "switched off", "named partition"])
def test_other_inserts_are_committed_by_their_own_writers(kind: str):
    storage = CountingStorage(memory_table())
    settings = QUICK
    if kind == "another profile":
        settings = replace(QUICK, concurrency=ConcurrencySettings(profile="hive"))
    if kind == "switched off":
        settings = replace(QUICK, write=WriteSettings(group_commit=False))
    engine = crowded(storage, "w", settings)
    storage.reset()
    engine.insert(
        rows(amount=20_000 if kind == "large" else 1),
        application=AppTransaction("a", 1) if kind == "application" else None,
        partition="month=1" if kind == "named partition" else None,
    )
    assert not any(layout.OFFERS in key for _, key in storage.calls)


def test_rows_that_do_not_fit_are_refused_as_ever_and_offer_nothing():
    storage = memory_table()
    engine = crowded(storage, "w")
    with pytest.raises(SchemaError, match="other"):
        engine.insert(pa.table({"id": ["a"], "v": [1], "month": ["1"], "other": [1]}))
    assert offers(storage) == [] and leftovers(storage) == []


def test_offers_keep_the_decisions_that_tell_what_became_of_them():
    storage = memory_table()
    offer = on_offer(storage, "waiting", "2", 1)
    engine = ArrowEngine(writer(storage, name="collector"))
    for _ in range(20):
        engine.upsert(rows())
    engine.coordinator.collect()
    assert engine.coordinator.table.log.boundary() <= offer.since
