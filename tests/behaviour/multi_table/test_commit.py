"""A transaction over several tables: all of it or nothing, validated in each table by that table's own rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.api import AppTransaction, layout, read_timeline
from tests.behaviour.multi_table.shop import SETTINGS, Shop
from tests.behaviour.tables import ScriptedRead, light_commits, put_file
from tests.faulty_storage import CountingStorage

from lakelock.errors import ConflictError, InputError, TableError, TransactionStateError
from lakelock.occ import commit_keys as keys
from lakelock.occ.log import DecisionKind, TransactionName
from lakelock.settings import TransactionSettings
from lakelock.table.archive import read_commit


@pytest.mark.parametrize("names", [("orders", "stock"), ("bills", "orders", "stock")], ids=["two", "three"])
def test_what_is_written_to_several_tables_becomes_visible_in_all_and_leaves_nothing_behind(names):
    shop = Shop(names)
    transaction = shop.rewrite()
    assert shop.seen() == {True}
    assert shop.left() == []
    for name in names:
        storage = shop.table(name)
        newest = max(read_timeline(storage).commits, key=lambda instant: instant.requested)
        named = TransactionName.parse(read_commit(storage, newest).extra[keys.TRANSACTION])
        assert named is not None and named.id == transaction
        assert [each.uri for each in named.tables] == sorted(f"memory://{name}" for name in names)


def test_a_conflict_in_one_table_rejects_the_whole_and_names_that_table():
    shop = Shop()

    def meanwhile():
        with shop.coordinator("stock").begin("UPSERT") as other:
            other.commit([put_file(other, shop.table("stock"), "month=1", "a")])

    with pytest.raises(ConflictError, match="in memory://stock: ") as caught:
        shop.rewrite(meanwhile=meanwhile)
    assert caught.value.details["table"] == "memory://stock"
    assert shop.seen() == {False} or not shop.has("orders")
    assert shop.left() == []


def test_an_error_in_the_block_rolls_back_every_table():
    shop = Shop()

    def fail():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        shop.rewrite(meanwhile=fail)
    assert shop.seen() == {False}
    assert shop.left() == []


def test_a_table_that_is_only_read_is_validated_and_gets_no_record():
    shop = Shop()
    with shop.begin() as tx:
        tx.parts[1].reads(ScriptedRead({"a"}))
        shop.write(tx, "orders")
        tx.commit()
    assert (shop.has("orders"), shop.has("stock")) == (True, False)
    log = shop.coordinator("stock").table.log
    assert {decision.kind for decision in log.peek(after=0)} == {DecisionKind.COMMIT}
    assert shop.left() == []


def test_what_was_read_in_one_table_must_not_change_before_the_other_is_written():
    shop = Shop()
    with shop.begin() as tx:
        tx.parts[1].reads(ScriptedRead({"new"}))
        shop.write(tx, "orders")
        shop.insert("stock", "new")
        with pytest.raises(ConflictError, match="in memory://stock: "):
            tx.commit()
    assert not shop.has("orders")
    assert shop.left() == []


def test_two_transactions_of_which_each_reads_what_the_other_writes_do_not_both_commit():
    shop = Shop()
    first, second = shop.begin(), shop.begin()
    first.parts[0].reads(ScriptedRead({"c"}))
    second.parts[1].reads(ScriptedRead({"c"}))
    shop.write(first, "stock")
    shop.write(second, "orders")
    first.commit()
    with pytest.raises(ConflictError), second:
        second.commit()
    assert (shop.has("orders"), shop.has("stock")) == (False, True)
    assert shop.left() == []


def test_a_transaction_that_touches_one_of_its_tables_is_a_plain_commit():
    shop = Shop()
    with shop.begin() as tx:
        shop.write(tx, "stock")
        (committed,) = tx.commit()
    assert committed.decision > 0
    assert {d.kind for d in shop.coordinator("stock").table.log.peek(after=0)} == {DecisionKind.COMMIT}
    assert shop.left() == []


def test_a_transaction_that_writes_nothing_commits_nothing():
    shop = Shop()
    with shop.begin() as tx:
        assert tx.commit() == ()
    assert shop.left() == []


def test_a_table_is_written_once_in_a_transaction():
    shop = Shop()
    with shop.begin() as tx:
        shop.write(tx, "stock")
        with pytest.raises(TransactionStateError, match="is written"):
            shop.write(tx, "stock", adds="d")


def test_a_transaction_over_a_table_that_is_named_twice_is_refused():
    shop = Shop()
    with pytest.raises(InputError, match="needs different ones"):
        shop.begin(names=("stock", "stock"))
    assert shop.left() == []


def test_an_application_applies_a_version_once_in_all_tables():
    shop = Shop()
    application = AppTransaction("batches", 7)
    shop.rewrite(application=application)
    before = [shop.shown(name) for name in shop.names]
    with pytest.raises(ConflictError, match="already applied") as caught:
        shop.rewrite(application=application)
    assert not caught.value.conflict.retry_helps
    assert [shop.shown(name) for name in shop.names] == before


def test_a_table_that_another_engine_writes_is_refused_unless_that_is_allowed():
    shop = Shop()
    light_commits(shop.table("stock"), 1, 2)
    with pytest.raises(TableError, match="memory://stock is written by another Hudi engine"):
        shop.rewrite()
    assert shop.left() == []
    shop.rewrite(settings=replace(SETTINGS, transaction=TransactionSettings(allow_foreign=True)))
    assert shop.seen() == {True}


@pytest.mark.parametrize("names", [("orders", "stock"), ("bills", "orders", "stock")], ids=["two", "three"])
def test_n_tables_take_one_conditional_write_one_listing_and_a_look_at_each_more_than_n_commits(names):
    shop = Shop(names)
    single = {uri: CountingStorage(storage) for uri, storage in shop.tables.items()}
    for name in names:
        with shop.coordinator(name, single).begin("INSERT") as tx:
            stats = [put_file(tx, single[f"memory://{name}"], "month=1", "d")]
            single[f"memory://{name}"].reset()
            tx.commit(stats)
    counted = {uri: CountingStorage(storage) for uri, storage in shop.tables.items()}
    with shop.begin(counted) as tx:
        for name in names:
            shop.write(tx, name, rewrites="", adds="e")
        for storage in counted.values():
            storage.reset()
        tx.commit()

    def sent(counts, op):
        return sum(storage.requests[op] for storage in counts.values())

    def puts(counts):
        of_protocol = (layout.DECISIONS, layout.OUTCOMES, layout.TIMELINE)
        calls = [call for storage in counts.values() for call in storage.calls]
        return sum(op == "put_if_absent" and key.startswith(of_protocol) for op, key in calls)

    assert (puts(single), puts(counted)) == (2 * len(names), 2 * len(names) + 1)
    assert sent(counted, "list") - sent(single, "list") == 1
    assert sum(s.total for s in counted.values()) - sum(s.total for s in single.values()) == 2 + len(names)
