"""In PESSIMISTIC mode a transaction over several tables locks all of them before it reads, so that none is ever rejected."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import ArrowEngine, MemoryStorage
from tests.behaviour.tables import QUICK, SCHEMA, Recorder, leftovers, new_table, writer
from tests.over_engines import snapshot, transaction

from lakelock.errors import LockTimeout
from lakelock.settings import ConcurrencySettings, RetrySettings
from lakelock.settings.sections import DataLockSettings

LOCKED = replace(
    QUICK,
    concurrency=ConcurrencySettings(mode="PESSIMISTIC"),
    data_locks=DataLockSettings(attempts=600, sleep_s=0.05, lease_s=30, renew_s=10),
    retry=RetrySettings(attempts=1),
)
ONCE = replace(LOCKED, data_locks=replace(LOCKED.data_locks, attempts=1))
Pair = tuple[MemoryStorage, MemoryStorage]


@pytest.fixture
def tables() -> Pair:
    """Two tables, each with an account of 100."""
    made = MemoryStorage(name="t1"), MemoryStorage(name="t2")
    for storage in made:
        new_table(storage)
        ArrowEngine(writer(storage)).insert(account(100))
    return made


def account(value: int) -> pa.Table:
    return pa.table([["a"], [value], ["1"]], schema=SCHEMA)


def value(table: pa.Table) -> int:
    return int(table.column("v")[0].as_py())


def test_transactions_over_the_same_tables_take_turns_in_whatever_order_they_name_them(tables: Pair) -> None:
    rounds, recorders, begin = 3, (Recorder(), Recorder()), Barrier(2)

    def move(number: int) -> int:
        source, target = (ArrowEngine(writer(storage, LOCKED, f"w{number}", recorders[number])) for storage in tables)
        engines = (source, target) if number else (target, source)
        for _ in range(rounds):
            begin.wait(timeout=60)
            with transaction(*engines) as tx:
                left, right = value(tx[source].read()), value(tx[target].read())
                tx[source].upsert(account(left - 1))
                tx[target].upsert(account(right + 1))
        return rounds

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(move, range(2))) == [rounds] * 2
    kinds = {kind for recorder in recorders for kind in recorder.kinds()}
    assert not {"conflict", "early-conflict", "retry", "alert", "lease-lost"} & kinds
    engines = [ArrowEngine(writer(storage)) for storage in tables]
    seen = snapshot(*engines)
    assert [value(seen[engine].read()) for engine in engines] == [100 - 2 * rounds, 100 + 2 * rounds]
    assert [leftovers(storage) for storage in tables] == [[], []]


def test_another_writer_of_one_of_the_tables_waits_until_the_block_ends(tables: Pair) -> None:
    one, two = (ArrowEngine(writer(storage, LOCKED, "mine")) for storage in tables)
    other = ArrowEngine(writer(tables[1], ONCE, "other"))
    with ThreadPoolExecutor(1) as pool:
        with transaction(one, two) as tx:
            tx[one].upsert(account(1))
            with pytest.raises(LockTimeout, match="are blocked by mine"):
                pool.submit(other.upsert, account(2)).result(timeout=60)
        # The table that the block did not touch was locked all the same: nobody knows before its end.
        pool.submit(other.upsert, account(3)).result(timeout=60)
    assert [value(engine.read()) for engine in (one, two)] == [1, 3]


def test_a_write_of_its_own_within_the_block_does_not_wait_for_the_locks_of_the_block(tables: Pair) -> None:
    one, two = (ArrowEngine(writer(storage, LOCKED)) for storage in tables)
    with transaction(one, two) as tx:
        tx[one].upsert(account(1))
        two.delete(pc.field("id") == "nobody")
    assert value(one.read()) == 1


@pytest.mark.parametrize("how", ["an error in the block", "a table that cannot be locked"])
def test_nothing_stays_locked_and_nothing_is_begun_after(tables: Pair, how: str) -> None:
    one, two = (ArrowEngine(writer(storage, ONCE)) for storage in tables)
    holder = writer(tables[1], LOCKED, "holder").data
    if how == "an error in the block":
        with pytest.raises(ZeroDivisionError), transaction(one, two) as tx:
            tx[one].upsert(account(100 // 0))
    else:
        with (
            ThreadPoolExecutor(1) as pool,
            holder.holding(holder.request("UPSERT")),
            pytest.raises(LockTimeout, match="not all of 2 tables"),
        ):
            pool.submit(transaction(one, two).__enter__).result(timeout=60)
    assert [engine.coordinator.data.locks.inspect() for engine in (one, two)] == [(), ()]
    assert [leftovers(storage) for storage in tables] == [[], []]
    assert value(one.read()) == 100
