"""PESSIMISTIC writes as a whole on every lock service: data locks and the commit lock are not in each other's way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from tests.api import ArrowEngine, LocalStorage
from tests.behaviour.tables import SCHEMA, Recorder, leftovers, new_table, writer
from tests.integration.matrix import START_SOON, Services
from tests.over_engines import snapshot, transaction
from tests.servers import SERVICES, Service
from tests.sizes import but_in_ci

from lakelock.errors import LockTimeout
from lakelock.settings import Settings

tables = count()


@pytest.fixture(scope="module", params=but_in_ci(SERVICES, START_SOON))
def service(request: pytest.FixtureRequest, services: Services) -> Service:
    return services(request.param)


def rows(key: str, value: int, month: str) -> pa.Table:
    return pa.table([[key], [value], [month]], schema=SCHEMA)


def test_writers_of_one_row_take_turns_and_none_is_ever_rejected(service: Service, tmp_path: Path) -> None:
    storage, uri, writers, rounds = LocalStorage(tmp_path / "t"), service.url(f"pessimistic{next(tables)}"), 3, 3
    new_table(storage)
    options = {"lock.provider": uri, "concurrency.mode": "PESSIMISTIC", "retry.attempts": 1, **service.options}
    settings = Settings.resolve({**options, "data_locks.sleep_s": 0.1}).settings
    recorders = [Recorder() for _ in range(writers)]

    def work(number: int) -> int:
        with writer(storage, settings, f"writer-{number}", recorders[number]) as coordinator:
            engine = ArrowEngine(coordinator)
            for turn in range(rounds):
                engine.upsert(rows("a", 10 * number + turn, "1"), partition="month=1")
            return rounds

    with ThreadPoolExecutor(writers) as pool:
        assert list(pool.map(work, range(writers))) == [rounds] * writers
    kinds = [kind for recorder in recorders for kind in recorder.kinds()]
    assert kinds.count("committed") == kinds.count("data-locked") == writers * rounds
    assert not {"conflict", "early-conflict", "retry", "lease-lost", "alert"} & set(kinds)
    with writer(storage, settings) as coordinator:
        assert ArrowEngine(coordinator).read().num_rows == 1
        assert coordinator.data.locks.inspect() == ()
    assert leftovers(storage) == []


def test_a_read_with_locks_keeps_writers_of_its_partition_out_and_lets_others_commit(service: Service, tmp_path: Path) -> None:
    storage, uri = LocalStorage(tmp_path / "t"), service.url(f"pessimistic{next(tables)}")
    new_table(storage)
    options = {"lock.provider": uri, "concurrency.mode": "PESSIMISTIC", "data_locks.attempts": 1, **service.options}
    settings = Settings.resolve(options).settings
    with writer(storage, settings, "reader") as one, writer(storage, settings, "other") as two, ThreadPoolExecutor(1) as pool:
        reader, other = ArrowEngine(one), ArrowEngine(two)
        reader.insert(rows("a", 1, "1"))
        with reader.reading("month=1") as found:
            assert found.num_rows == 1
            with pytest.raises(LockTimeout, match="reader"):
                pool.submit(other.insert, rows("b", 1, "1"), partition="month=1").result(timeout=60)
            pool.submit(other.insert, rows("b", 1, "2"), partition="month=2").result(timeout=60)
        other.insert(rows("b", 1, "1"), partition="month=1")
        assert other.read().num_rows == 3


@pytest.mark.parametrize("mode", ["OPTIMISTIC", "PESSIMISTIC"])
def test_a_transaction_over_two_tables_that_share_one_lock_does_not_wait_for_itself(
    service: Service, tmp_path: Path, mode: str
) -> None:
    storages = [LocalStorage(tmp_path / name) for name in ("orders", "stock")]
    options = {
        "lock.provider": service.url(f"shared{next(tables)}"), "concurrency.mode": mode, "lock.wait_s": 10,
        "data_locks.attempts": 3, **service.options,
    }  # fmt: skip
    settings = Settings.resolve(options).settings
    recorder = Recorder()
    for storage in storages:
        new_table(storage)
    with writer(storages[0], settings, "one", recorder) as first, writer(storages[1], settings, "one", recorder) as second:
        orders, stock = ArrowEngine(first), ArrowEngine(second)
        for turn in range(2):
            with transaction(orders, stock) as tx:
                tx[orders].upsert(rows("a", turn, "1"))
                tx[stock].upsert(rows("b", turn, "2"))
        seen = snapshot(orders, stock)
        assert [seen[each].read().column("v").to_pylist() for each in (orders, stock)] == [[1], [1]]
        assert recorder.kinds().count("committed") == 4
        assert not {"lease-lost", "alert", "waiting-for-lock"} & set(recorder.kinds())
        assert [first.data.locks.inspect(), second.data.locks.inspect()] == [(), ()]
    assert [leftovers(storage) for storage in storages] == [[], []]
