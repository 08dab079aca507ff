"""A transaction over several tables meets a fault, or dies, at each request in turn: all of it or nothing, truthfully."""

from __future__ import annotations

import contextlib
from itertools import permutations

import pytest
from tests.api import Outcome, layout
from tests.behaviour.multi_table.shop import Shop
from tests.faulty_storage import CountingStorage, Fault, FaultyStorage, Rule, Wrapped
from tests.sizes import but_in_ci, in_ci

from lakelock.errors import CommitOutcomeUnknown, LakelockError

LAST_REQUEST = 95


class Killed(BaseException):
    """The process died; nothing of it runs any more."""


class Life:
    """How many requests a process has left, over all of its tables."""

    def __init__(self, requests: int, *, sent: bool) -> None:
        self.left, self.sent = requests, sent


class Dying(Wrapped):
    """The last request kills the process; it still goes through if `sent`."""

    def __init__(self, inner, life: Life) -> None:
        super().__init__(inner)
        self.life = life

    def carry(self, op, key, request, *, weight=1):
        self.life.left -= 1
        if self.life.left <= 0:
            if self.life.left == 0 and self.life.sent:
                request()
            raise Killed
        return request()


def test_the_requests_of_a_transaction_are_as_many_as_are_tried_here():
    shop = Shop()
    counted = {uri: CountingStorage(storage) for uri, storage in shop.tables.items()}
    shop.rewrite(counted)
    assert LAST_REQUEST - 15 <= sum(sum(storage.requests.values()) for storage in counted.values()) < LAST_REQUEST


@pytest.mark.parametrize("sent", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", but_in_ci(range(1, LAST_REQUEST), range(1, LAST_REQUEST, 4)))
def test_a_writer_may_die_at_any_request_and_each_table_alone_comes_to_the_same_end(number, sent):
    for order in permutations(("orders", "stock")):
        shop = Shop()
        life = Life(number, sent=sent)
        with contextlib.suppress(Killed):
            shop.rewrite({uri: Dying(storage, life) for uri, storage in shop.tables.items()})
        shown_before = any(shop.has(name) for name in shop.names)
        shop.settle(order)
        assert len(shop.seen()) == 1
        assert shop.seen() == {True} or not shown_before
        assert shop.left() == []


@pytest.mark.parametrize("number", but_in_ci(range(30, LAST_REQUEST, 5), range(30, LAST_REQUEST, 20)))
def test_a_writer_over_three_tables_may_die_at_any_request(number):
    for order in permutations(("bills", "orders", "stock")):
        shop = Shop(order)
        life = Life(number, sent=True)
        with contextlib.suppress(Killed):
            shop.rewrite({uri: Dying(storage, life) for uri, storage in shop.tables.items()})
        shop.settle(order)
        assert len(shop.seen()) == 1
        assert shop.left() == []


ONCE = [(number, False) for number in range(1, LAST_REQUEST)]
FROM_THEN_ON = [(number, True) for number in range(1, LAST_REQUEST, 4)]


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize(("number", "lasting"), [*but_in_ci(ONCE, ONCE[::4]), *in_ci(*FROM_THEN_ON)])
def test_the_outcome_is_told_truthfully_whatever_request_fails(number, fault, lasting):
    shop, sent = Shop(), 0

    def plan(call):
        nonlocal sent
        sent += 1
        return Rule(fault=fault, late_by=3) if (sent >= number if lasting else sent == number) else None

    faulty = {uri: FaultyStorage(storage, plan) for uri, storage in shop.tables.items()}
    instant = ""
    try:
        shop.rewrite(faulty)
        told = "committed"
    except CommitOutcomeUnknown as error:
        told, instant = "unknown", str(error.details["instant"])
    except LakelockError:
        told = "rejected"
    at_once = shop.seen()
    for storage in faulty.values():
        storage.deliver()
    shop.settle()
    assert len(shop.seen()) == 1
    if told == "unknown":
        outcome = shop.coordinator("orders").outcome(instant)
        assert outcome is (Outcome.COMMITTED if shop.seen() == {True} else Outcome.REJECTED)
    else:
        assert at_once == shop.seen() == {told == "committed"}
    assert [found for found in shop.left() if layout.OUTCOMES not in found] == []
