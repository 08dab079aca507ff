"""A function over several tables runs again by the rules of a write of one table: `run_over`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.api import WriteRequest
from tests.behaviour.multi_table.shop import SETTINGS, Shop
from tests.behaviour.tables import put_file

from lakelock.errors import ConflictError, EarlyConflictError
from lakelock.occ.footprint import CLUSTER
from lakelock.occ.retry import run_over

HOLDER_WAIT_S = 5.0
TWICE = replace(SETTINGS, retry=replace(SETTINGS.retry, attempts=2, holder_wait_s=HOLDER_WAIT_S))
ONCE = replace(SETTINGS, retry=replace(SETTINGS.retry, attempts=1))


@pytest.fixture
def shop() -> Shop:
    return Shop()


def group(shop, tx, file_id):
    return next(file.group for file in tx.snapshot().files if file.file_id == file_id)


def test_it_waits_for_the_transaction_that_is_in_the_way_in_one_of_the_tables(shop):
    holder = shop.coordinator("stock").begin("UPSERT")
    holder.claim([group(shop, holder, "a")])
    began = []

    def work(tx):
        began.append(shop.runtime.monotonic_s())
        for name in shop.names:
            shop.write(tx, name)

    with pytest.raises(EarlyConflictError) as lost:
        run_over([shop.coordinator(name, settings=TWICE) for name in shop.names], work)
    assert lost.value.details["attempts"] == 2
    assert began[1] - began[0] >= HOLDER_WAIT_S
    holder.abort()
    assert not any(shop.seen())


def test_a_service_that_was_faster_does_not_count_as_an_attempt(shop):
    service = shop.coordinator("stock").begin(WriteRequest(CLUSTER, overwrites=True))
    storage, calls = shop.table("stock"), []

    def work(tx):
        calls.append(tx)
        if len(calls) == 1:
            joined = [put_file(service, storage, "month=1", "joined")]
            service.commit(joined, replaced={"month=1": ["b"]})
        for name in shop.names:
            shop.write(tx, name, rewrites="ab" if len(calls) == 1 else "a")

    run_over([shop.coordinator(name, settings=ONCE) for name in shop.names], work)
    assert len(calls) == 2
    assert shop.seen() == {True}


def test_a_conflict_of_another_transaction_that_the_function_ran_into_is_no_reason_to_run_it_again(shop):
    other = Shop(("returns", "spare"))
    first, second = other.begin(), other.begin()
    other.write(first, "returns")
    calls = []

    def work(tx):
        calls.append(tx)
        other.write(second, "returns")

    with pytest.raises(ConflictError):
        run_over([shop.coordinator(name, settings=TWICE) for name in shop.names], work)
    assert len(calls) == 1
    first.abort()
    second.abort()
