"""Transactions over several tables whose writers die: rollbacks that are old, void, or not recorded yet."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from tests.api import read_timeline
from tests.behaviour.foreign import Peer
from tests.behaviour.multi_table.shop import Shop
from tests.behaviour.multi_table.test_settling import OUTCOME, dropped, stopped_at
from tests.behaviour.tables import QUICK, ScriptedRead, put_file
from tests.faulty_storage import FaultyStorage, Rule

from lakelock.errors import CommitOutcomeUnknown, ConflictError
from lakelock.occ.log import Verdict
from lakelock.occ.multi_table import settle_without_home
from lakelock.settings import ArchiveSettings, CleanSettings


def test_a_rollback_that_is_older_than_the_archive_does_not_commit_a_transaction_whose_home_is_gone():
    """One table has rolled it back, and archived what came after; the other still waits for the outcome."""
    shop = Shop(("orders", "returns", "stock"))
    stopped_at(shop, "put_if_absent", OUTCOME)
    shop.runtime.stop_repeating()
    shop.runtime.advance(30)
    for number in range(4):
        shop.insert("returns", f"next{number}", "month=2")
    shop.runtime.advance(30)
    shop.coordinator("returns").reap()
    assert not shop.has("returns")
    returns = shop.table("returns")
    done = [i.requested for i in read_timeline(returns).commits]
    Peer(returns).archive(*done[:-1])
    assert not shop.has("returns")
    instant = dropped(shop)
    verdict = settle_without_home(shop.coordinator("stock").table, instant).verdict
    assert verdict is Verdict.ABORTED


def test_a_void_prepare_that_is_older_than_the_archive_is_in_nobodys_way():
    """It is the head of the log, so it is in the window of everybody who begins, until somebody commits."""
    shop = Shop()
    few = replace(QUICK, archive=ArchiveSettings(min_commits=2, max_commits=2, min_age_s=0), clean=CleanSettings(readers_s=0))

    def meanwhile():
        for number in range(8):
            shop.insert("stock", f"next{number}", "month=2")

    tables = {**shop.tables, "memory://orders": FaultyStorage(shop.table("orders"), [Rule("put_if_absent", OUTCOME, nth=None)])}
    with pytest.raises(CommitOutcomeUnknown):
        shop.rewrite(tables, meanwhile)
    shop.runtime.stop_repeating()
    shop.runtime.advance(30)
    shop.coordinator("stock").reap()
    shop.runtime.advance(30)
    shop.coordinator("stock").reap()
    shop.runtime.advance(30)
    assert shop.coordinator("stock", settings=few).archive().instants
    assert not shop.has("stock")
    for _ in range(3):
        with shop.coordinator("stock").begin("UPSERT") as tx:
            tx.commit([put_file(tx, shop.table("stock"), "month=1", "a")])


def test_a_home_whose_rollback_is_not_recorded_yet_does_not_stop_the_other_tables():
    """The writer was killed while it took its transaction back: in its home all is removed, and the record is missing."""
    shop = Shop(("orders", "stock", "zones"))

    dead = []

    def plan(call):
        if call.key.endswith(".rollback.requested"):
            dead.append(call)
        return Rule() if dead else None  # nothing that it asks for is done any more

    tables = {uri: FaultyStorage(table, plan) for uri, table in shop.tables.items()}
    with suppress(ConflictError), shop.begin(tables) as tx:
        tx.parts[2].reads(ScriptedRead({"new"}))
        shop.write(tx, "orders")
        shop.write(tx, "stock")
        shop.insert("zones", "new")
        tx.commit()
    assert dead
    shop.runtime.stop_repeating()
    shop.runtime.advance(30)
    shop.insert("stock", "next", "month=2")
    assert not shop.has("stock")
