"""A reader of several tables at one moment sees each transaction over them in all, or in none."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest
from tests.api import ArrowEngine, MemoryStorage
from tests.behaviour.multi_table.shop import Shop
from tests.behaviour.multi_table.test_every_fault import LAST_REQUEST, Dying, Killed, Life
from tests.behaviour.tables import SCHEMA, new_table, writer
from tests.faulty_storage import CountingStorage, Wrapped
from tests.over_engines import snapshot, transaction

import lakelock
from lakelock.errors import InputError
from lakelock.occ.multi_table import timelines_of_one_moment
from lakelock.tables import Table


class Looking(Wrapped):
    """Looks at all tables before each request of a writer."""

    def __init__(self, inner, look) -> None:
        super().__init__(inner)
        self.look = look

    def carry(self, op, key, request, *, weight=1):
        self.look()
        return request()


def shown(shop: Shop) -> set[bool]:
    """Whether a reader of one moment sees the file group that a transaction adds to each table."""
    coordinators = [shop.coordinator(name) for name in shop.names]
    timelines = timelines_of_one_moment([each.table for each in coordinators])
    found = zip(coordinators, timelines, strict=True)
    return {"c" in {file.file_id for file in each.state_at(timeline)[0].files} for each, timeline in found}


@pytest.mark.parametrize("names", [("orders", "stock"), ("bills", "orders", "stock")], ids=["two", "three"])
def test_whenever_it_looks_it_sees_all_or_nothing(names):
    shop, views = Shop(names), []
    shop.rewrite({uri: Looking(storage, lambda: views.append(shown(shop))) for uri, storage in shop.tables.items()})
    assert all(len(view) == 1 for view in views)
    assert views[0] == {False} and views[-1] == {True}


def test_it_sees_a_commit_that_its_dead_writer_did_not_publish_everywhere():
    halves = 0
    for number in range(1, LAST_REQUEST):
        shop, life = Shop(), Life(number, sent=True)
        with contextlib.suppress(Killed):
            shop.rewrite({uri: Dying(storage, life) for uri, storage in shop.tables.items()})
        halves += len(shop.seen()) == 2
        before = shown(shop)
        assert len(before) == 1
        shop.settle()
        assert before == {False} or shop.seen() == {True}
    assert halves > 0


def test_it_writes_nothing_and_takes_no_lock():
    shop = Shop()
    counted = {uri: CountingStorage(storage) for uri, storage in shop.tables.items()}
    tables = [shop.coordinator(name, counted).table for name in shop.names]
    for storage in counted.values():
        storage.reset()
    timelines_of_one_moment(tables)
    assert {op for storage in counted.values() for op in storage.requests} == {"list", "get"}
    assert sum(storage.requests["list"] for storage in counted.values()) == 3 * len(tables)


def test_a_table_that_is_named_twice_is_refused():
    shop = Shop()
    table = shop.coordinator("stock").table
    with pytest.raises(InputError, match="different tables"):
        timelines_of_one_moment([table, table])


def rows(*values: tuple[str, int, str]) -> pa.Table:
    return pa.table([list(column) for column in zip(*values, strict=True)], schema=SCHEMA)


def test_the_engine_moves_rows_between_tables_and_reads_them_at_one_moment():
    storages = [MemoryStorage(name=name) for name in ("orders", "stock")]
    for storage in storages:
        new_table(storage)
    orders, stock = (ArrowEngine(writer(storage)) for storage in storages)
    stock.insert(rows(("chair", 5, "1"), ("table", 2, "1")))
    with transaction(orders, stock) as tx:
        left = tx[stock].read().to_pydict()["v"]
        tx[orders].insert(rows(("order 1", 2, "1")))
        tx[stock].upsert(rows(("chair", left[0] - 2, "1")))
    seen = snapshot(orders, stock)
    with transaction(orders, stock) as tx:
        tx[stock].delete(rows(("table", 0, "1")))
        tx[orders].upsert(rows(("order 1", 3, "1")))
    assert [c.operation for c in tx.committed] == ["UPSERT", "UPSERT"]
    assert sorted(seen[stock].read().column("v").to_pylist()) == [2, 3]
    assert seen[orders].read().column("v").to_pylist() == [2]
    assert orders.read().column("v").to_pylist() == [3]
    assert stock.read().column("v").to_pylist() == [3]


def test_a_table_that_is_not_part_of_a_transaction_is_refused():
    storages = [MemoryStorage(name=name) for name in ("orders", "stock", "other")]
    for storage in storages:
        new_table(storage)
    orders, stock, other = (Table(writer(storage)) for storage in storages)
    with lakelock.transaction(orders, stock) as tx, pytest.raises(InputError, match="not part of the transaction"):
        tx[other].read()
