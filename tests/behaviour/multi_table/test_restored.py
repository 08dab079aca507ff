"""A table that is restored while a transaction over several tables has not ended there: it ends first, in all of them alike."""

from __future__ import annotations

import pytest
from tests.api import Outcome, layout
from tests.behaviour.multi_table.shop import Shop
from tests.behaviour.multi_table.test_settling import OUTCOME, prepare_of, stopped_at
from tests.behaviour.tables import QUICK, put_file

from lakelock.occ.restore import restore


def restored(shop: Shop, name: str, as_of: str) -> None:
    """Restore one of the tables; its writers of before are dead."""
    shop.runtime.stop_repeating()
    shop.runtime.advance(30)
    storage = shop.table(name)

    def copied(tx, copies, _):
        return [put_file(tx, storage, copy.source.partition, copy.source.file_id) for copy in copies]

    assert restore(shop.coordinator(name, settings=QUICK), as_of, copied).operation == "RESTORE"


@pytest.mark.parametrize("name", ["orders", "stock"])
def test_what_is_undecided_is_rejected_in_every_table_before_one_is_restored(name):
    shop = Shop()
    before = max(shop.shown(name).values())
    stopped_at(shop, "put_if_absent", OUTCOME)
    instant = prepare_of(shop, name).instant
    restored(shop, name, before)
    assert shop.coordinator(name).outcome(instant) is Outcome.REJECTED
    shop.settle()
    assert shop.seen() == {False}
    assert shop.left() == []


def test_what_is_committed_and_not_published_yet_is_published_and_then_undone_in_the_restored_table_alone():
    shop = Shop()
    before = max(shop.shown("stock").values())
    stopped_at(shop, "put_if_absent", f"{layout.TIMELINE}/*_*.commit", "stock")
    instant = prepare_of(shop, "stock").instant
    restored(shop, "stock", before)
    assert shop.coordinator("stock").outcome(instant) is Outcome.COMMITTED
    told = [(entry.operation, entry.transaction != "") for entry in shop.coordinator("stock").history(2)]
    assert told == [("RESTORE", False), ("UPSERT", True)]
    assert "c" in shop.shown("orders") and "c" not in shop.shown("stock")
    shop.settle()
    assert shop.left() == []
