"""Whoever meets an undecided prepare ends it, within a bound, and the writer that comes back is told the truth."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.api import Outcome, layout, read_timeline
from tests.behaviour.multi_table.shop import SETTINGS, Shop
from tests.behaviour.tables import new_table
from tests.faulty_storage import FaultyStorage, Rule

from lakelock.errors import InputError, LockTimeout, RolledBackError, StorageUnavailable, TableError
from lakelock.events import EventKind
from lakelock.occ.history import why_rejected
from lakelock.occ.log import DecisionKind, Verdict, read_outcome
from lakelock.occ.multi_table import settle_without_home
from lakelock.occ.recovery import collect_outcomes
from lakelock.settings import HeartbeatSettings

OUTCOME = f"{layout.OUTCOMES}/*"
BORN_TO_LIVE = replace(SETTINGS, heartbeat=HeartbeatSettings(interval_s=60.0, tolerable_misses=3))


class Killed(BaseException):
    """The process died."""


def stopped_at(shop: Shop, op: str, key: str, table: str = "orders", then=None) -> None:
    """Run a transaction whose process dies before the first request to a table that fits; `then` runs just before."""

    def stop():
        if then is not None:
            then()
        raise Killed

    tables = dict(shop.tables)
    tables[f"memory://{table}"] = FaultyStorage(shop.table(table), [Rule(op, key, meanwhile=stop)])
    with pytest.raises(Killed):
        shop.rewrite(tables)


def prepare_of(shop: Shop, name: str):
    return next(d for d in shop.coordinator(name).table.log.peek(after=0) if d.kind is DecisionKind.PREPARE)


@pytest.mark.parametrize("name", ["orders", "stock"])
def test_a_writer_that_is_paused_before_its_outcome_is_aborted_by_the_next_one_and_told_so(name):
    shop = Shop()

    def meanwhile():
        shop.runtime.stop_repeating()
        shop.insert(name, "next", "month=2")

    tables = {**shop.tables, "memory://orders": FaultyStorage(
        shop.table("orders"), [Rule("put_if_absent", OUTCOME, meanwhile=meanwhile, fault=None)]
    )}  # fmt: skip
    with pytest.raises(RolledBackError, match="aborted it"):
        shop.rewrite(tables)
    assert shop.seen() == {False}
    assert "next" in shop.shown(name)
    shop.settle()
    assert shop.left() == []


def test_an_owner_that_lives_is_waited_for_no_longer_than_a_lease():
    shop, waited_s = Shop(), []

    def meanwhile():
        shop.runtime.stop_repeating()
        shop.runtime.advance(SETTINGS.lock.lease_s + 1)
        before_s = shop.runtime.monotonic_s()
        with shop.coordinator("stock", settings=BORN_TO_LIVE).begin("INSERT") as other:
            other.commit([])
        waited_s.append(shop.runtime.monotonic_s() - before_s)

    tables = {**shop.tables, "memory://orders": FaultyStorage(
        shop.table("orders"), [Rule("put_if_absent", OUTCOME, meanwhile=meanwhile, fault=None)]
    )}  # fmt: skip
    with pytest.raises(RolledBackError):
        shop.rewrite(tables, settings=BORN_TO_LIVE)
    # The other one also waits for the lock, whose lease has just run out.
    assert SETTINGS.lock.lease_s <= waited_s[0] <= 2 * SETTINGS.lock.lease_s
    assert shop.seen() == {False}


def test_the_outcome_of_a_dead_writer_can_be_asked_for_in_each_of_its_tables():
    shop = Shop()
    stopped_at(shop, "put_if_absent", OUTCOME)
    assert shop.coordinator("stock").outcome(prepare_of(shop, "stock").instant) is Outcome.PENDING
    shop.runtime.stop_repeating()
    shop.runtime.advance(30)
    shop.insert("stock", "next", "month=2")
    instant = prepare_of(shop, "orders").instant
    assert shop.coordinator("orders").outcome(instant) is Outcome.REJECTED
    assert "did not decide in time" in why_rejected(shop.coordinator("orders").table, instant).detail


def test_a_part_whose_writer_takes_it_back_and_cannot_record_that_is_removed_to_the_end():
    shop = Shop()
    orders, stock = (FaultyStorage(shop.table(name)) for name in shop.names)
    fails = [Rule("list", layout.TIMELINE, nth=None)]
    orders.plan = [
        Rule("put_if_absent", f"{layout.DECISIONS}/*", meanwhile=lambda: setattr(stock, "plan", fails), fault=None),
        Rule("delete", "*.commit.requested", meanwhile=lambda: setattr(orders, "plan", fails), fault=None),
    ]
    with pytest.raises(StorageUnavailable):
        shop.rewrite({"memory://orders": orders, "memory://stock": stock})
    left = [item.key.rpartition("/")[2] for item in shop.table("orders").list(layout.HEARTBEATS)]
    assert left == [prepare_of(shop, "orders").instant] and not read_timeline(shop.table("orders")).pending
    shop.recorder.events.clear()
    shop.settle()
    assert (shop.left(), shop.seen()) == ([], {False})
    assert not [event for event in shop.recorder.events if event.kind is EventKind.ALERT]


def test_asking_for_the_outcome_of_a_commit_that_is_visible_in_one_table_publishes_it_in_the_other():
    shop = Shop()
    stopped_at(shop, "put_if_absent", f"{layout.TIMELINE}/*_*.commit", "stock")
    assert (shop.has("orders"), shop.has("stock")) == (True, False)
    shop.runtime.stop_repeating()
    shop.runtime.advance(30)
    assert shop.coordinator("stock").outcome(prepare_of(shop, "stock").instant) is Outcome.COMMITTED
    assert shop.seen() == {True}


def test_the_outcome_stays_as_long_as_one_of_its_tables_shows_the_transaction_as_pending():
    shop = Shop()
    stopped_at(shop, "put_if_absent", f"{layout.TIMELINE}/*_*.commit", "stock")
    home = shop.coordinator("orders").table
    assert collect_outcomes(home) == 0
    shop.settle(("stock",))
    assert shop.seen() == {True}
    assert [*home.storage.list(layout.OUTCOMES)] == []


def test_the_outcome_stays_while_one_of_its_tables_is_not_where_it_was():
    shop = Shop()
    stopped_at(shop, "put_if_absent", f"{layout.TIMELINE}/*_*.commit", "stock")
    moved = shop.table("stock")
    key = layout.PROPERTIES
    kept = moved.get(key)
    moved.delete([key])
    home = shop.coordinator("orders").table
    assert collect_outcomes(home) == 0
    moved.put(key, kept.data)
    shop.settle()
    assert shop.seen() == {True}


def test_a_table_whose_home_is_gone_says_which_and_decides_nothing():
    shop = Shop()
    stopped_at(shop, "put_if_absent", OUTCOME)
    shop.runtime.stop_repeating()
    shop.runtime.advance(30)
    home = shop.table("orders")
    properties = home.get(layout.PROPERTIES)
    home.delete([layout.PROPERTIES, layout.PROPERTIES_BACKUP])
    with pytest.raises(TableError, match="belongs to the table memory://orders, and there is no such table any more"):
        shop.insert("stock", "next", "month=2")
    assert [*home.list(layout.OUTCOMES)] == []
    home.put(layout.PROPERTIES, properties.data)
    shop.settle()
    assert shop.seen() == {False}
    assert shop.left() == []


def dropped(shop: Shop) -> str:
    """Drop the home for good; the instant that waits for it in the other table."""
    shop.runtime.stop_repeating()
    shop.runtime.advance(30)
    shop.table("orders").delete_folder(".hoodie")
    return prepare_of(shop, "stock").instant


def test_whoever_says_that_the_home_is_gone_ends_what_no_other_table_shows():
    shop = Shop()
    stopped_at(shop, "put_if_absent", OUTCOME)
    instant = dropped(shop)
    stock = shop.coordinator("stock")
    assert settle_without_home(stock.table, instant).verdict is Verdict.ABORTED
    assert stock.outcome(instant) is Outcome.REJECTED
    shop.insert("stock", "next", "month=2")
    assert not shop.has("stock") and "next" in shop.shown("stock")


@pytest.mark.parametrize("commits", [0, 2])
def test_another_table_that_was_made_where_the_home_was_decides_nothing(commits):
    """It had no outcome, so the transaction was aborted in one table although another showed it."""
    shop = Shop(("orders", "returns", "stock"))
    stopped_at(shop, "put_if_absent", f"{layout.TIMELINE}/*_*.commit", "stock")
    assert shop.has("returns")
    instant = dropped(shop)
    home = shop.table("orders")
    home.delete([item.key for item in home.list("")])
    new_table(home)
    for number in range(commits):
        shop.insert("orders", f"new{number}")
    with pytest.raises(TableError, match="to a table that was at memory://orders, and another one was made there since"):
        shop.insert("stock", "next", "month=2")
    settle_without_home(shop.coordinator("stock").table, instant)
    shop.insert("stock", "next", "month=2")
    assert shop.has("stock") and shop.has("returns")


@pytest.mark.parametrize("published", [True, False])
def test_a_home_that_is_gone_ends_the_transaction_in_all_other_tables_alike(published):
    shop = Shop(("orders", "returns", "stock"))
    if published:
        stopped_at(shop, "put_if_absent", f"{layout.TIMELINE}/*_*.commit", "stock")
    else:
        stopped_at(shop, "put_if_absent", OUTCOME)
    assert shop.has("returns") is published
    instant = dropped(shop)
    settle_without_home(shop.coordinator("stock").table, instant)
    for name in ("stock", "returns"):
        shop.runtime.advance(30)
        shop.insert(name, "next", "month=2")
        assert shop.has(name) is published
    with pytest.raises(InputError, match="waits for no outcome"):
        settle_without_home(shop.coordinator("stock").table, instant)


def test_a_home_that_is_there_or_a_writer_that_lives_is_not_overruled():
    shop = Shop()
    stopped_at(shop, "put_if_absent", OUTCOME)
    stock = shop.coordinator("stock", settings=BORN_TO_LIVE).table
    instant = prepare_of(shop, "stock").instant
    with pytest.raises(InputError, match="that table is there"):
        settle_without_home(stock, instant)
    shop.table("orders").delete([layout.PROPERTIES, layout.PROPERTIES_BACKUP])
    with pytest.raises(InputError, match="is alive"):
        settle_without_home(stock, instant)
    assert [*shop.table("orders").list(layout.OUTCOMES)] == []


def test_a_home_that_cannot_be_reached_is_named():
    shop = Shop()
    stopped_at(shop, "put_if_absent", OUTCOME)
    shop.runtime.stop_repeating()
    shop.runtime.advance(30)
    alone = {"memory://stock": shop.table("stock")}
    other = shop.coordinator("stock", alone).begin("INSERT")
    with pytest.raises(StorageUnavailable, match="memory://orders"):
        other.commit([])


def test_a_late_abort_after_the_outcome_was_used_and_removed_voids_nothing():
    shop = Shop()
    stopped_at(shop, "put_if_absent", f"{layout.TIMELINE}/*_*.commit", "stock")
    home = shop.table("orders")
    outcome = read_outcome(home, prepare_of(shop, "stock").transaction.id)
    shop.settle()
    assert shop.seen() == {True}
    late = replace(outcome, verdict=Verdict.ABORTED, write_id="late")
    home.put(layout.outcome(outcome.name.id), late.to_bytes())
    shop.settle()
    assert shop.seen() == {True}
    assert shop.left() == []


def test_a_lock_that_cannot_be_had_rejects_the_whole_before_anything_is_decided():
    shop = Shop()
    holder = shop.coordinator("stock").table.provider
    lease = holder.acquire(wait_s=1)

    def renew():
        holder.renew(lease)

    shop.runtime.every(0.5, renew, name="holder")
    with pytest.raises(LockTimeout):
        shop.rewrite()
    assert shop.seen() == {False}
    assert shop.left() == []
