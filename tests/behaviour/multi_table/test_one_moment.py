"""What a transaction over several tables reads is of one moment, or its end says that it was not."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.api import AppTransaction, ArrowEngine, EventKind, MemoryStorage, WriteRequest
from tests.behaviour.tables import SCHEMA, leftovers, new_table, writer
from tests.over_engines import transaction

import lakelock
from lakelock.errors import ConflictError, EarlyConflictError, InputError, TransactionStateError
from lakelock.occ.multi_table import CUT_ROUNDS, MultiTableTransaction
from lakelock.occ.retry import run_over
from lakelock.tables import Table

BATCH = AppTransaction("stream", 7)


def account(value: int, key: str = "a") -> pa.Table:
    return pa.table([[key], [value], ["1"]], schema=SCHEMA)


def value(table: pa.Table) -> int:
    return int(table.column("v")[0].as_py())


class Mover:
    """Moves 1 from the first table to the second in one transaction, whenever somebody begins on the first, `times` at most."""

    def __init__(self, tables: list[MemoryStorage], times: int) -> None:
        self.engines, self.left = [ArrowEngine(writer(storage)) for storage in tables], times

    def __call__(self, event) -> None:
        if event.kind is EventKind.BEGAN and self.left > 0:
            self.left -= 1
            one, two = self.engines
            with transaction(one, two) as tx:
                left, right = value(tx[one].read()), value(tx[two].read())
                tx[one].upsert(account(left - 1))
                tx[two].upsert(account(right + 1))


@pytest.fixture
def tables() -> list[MemoryStorage]:
    """Three tables, each with an account of 100."""
    made = [MemoryStorage(name=f"t{number}") for number in range(3)]
    for storage in made:
        new_table(storage)
        ArrowEngine(writer(storage)).insert(account(100))
    return made


def reader(tables: list[MemoryStorage], times: int) -> tuple[ArrowEngine, ArrowEngine]:
    """Engines of a transaction beside which money is moved, after it has begun in the first table and not in the second."""
    moves = Mover(tables[:2], times)
    return ArrowEngine(writer(tables[0], listener=moves)), ArrowEngine(writer(tables[1]))


@pytest.mark.parametrize("times", [1, CUT_ROUNDS - 1])
def test_money_that_is_moved_while_it_begins_is_seen_in_both_tables(tables, times):
    one, two = reader(tables, times)
    with transaction(one, two) as tx:
        seen = value(tx[one].read()), value(tx[two].read())
    assert seen == (100 - times, 100 + times)
    assert [leftovers(storage) for storage in tables] == [[], [], []]


@pytest.mark.parametrize("writes", [False, True])
def test_if_others_never_stop_the_end_of_the_block_says_so(tables, writes):
    one, two = reader(tables, 100)

    def block():
        with transaction(one, two) as tx:
            assert value(tx[one].read()) + value(tx[two].read()) != 200
            if writes:
                tx[two].upsert(account(0, "b"))

    with pytest.raises(ConflictError) as caught:
        block()
    assert caught.value.details["table"] == tables[0].uri
    assert [leftovers(storage) for storage in tables] == [[], [], []]


def test_a_block_that_is_entered_twice_is_refused_and_leaves_nothing(tables):
    one, two = (Table(writer(storage)) for storage in tables[:2])
    again = lakelock.transaction(one, two)
    with again as tx:
        tx[one].upsert(account(1))
        with pytest.raises(TransactionStateError, match="was used before"):
            again.__enter__()
    assert value(one.read()) == 1
    assert [leftovers(storage) for storage in tables] == [[], [], []]


def test_an_error_that_the_block_caught_is_told_at_its_end(tables):
    one, two = (ArrowEngine(writer(storage)) for storage in tables[:2])
    with MultiTableTransaction.begin([one.coordinator, two.coordinator]) as tx:
        one.upsert_in(tx.parts[0], account(1))
        tx.parts[1].abort("the money is gone")
        with pytest.raises(TransactionStateError, match="the money is gone"):
            tx.commit()
    assert value(one.read()) == 100


def test_another_write_in_the_block_that_collides_with_it_does_not_wait_for_the_end_of_the_block(tables):
    one, two = (ArrowEngine(writer(storage)) for storage in tables[:2])
    with transaction(one, two) as tx:
        tx[one].upsert(account(1))
        with pytest.raises(EarlyConflictError) as refused:
            one.upsert(account(2))
        assert "would wait for its own end" in refused.value.hint and refused.value.details["attempts"] == 1
        two.upsert(account(3))  # nothing in the way
    assert [value(engine.read()) for engine in (one, two)] == [1, 3]


class TestOneBatchForSeveralTables:
    """`run_over`, which makes micro-batches for several tables."""

    def test_a_function_that_writes_to_one_of_the_tables_by_itself_is_refused(self, tables):
        one, two = (ArrowEngine(writer(storage)) for storage in tables[:2])

        def work(tx):
            two.insert(account(1, "b"))

        with pytest.raises(TransactionStateError, match="of its own within the function"):
            run_over([one.coordinator, two.coordinator], work)
        assert two.read().num_rows == 1
        two.insert(account(1, "b"))
        assert two.read().num_rows == 2

    @pytest.mark.parametrize("writes_to", [[0], [0, 1]], ids=["one of its tables", "both"])
    def test_a_second_function_over_other_tables_is_not_taken_for_a_repetition(self, tables, writes_to):
        engines = [ArrowEngine(writer(storage)) for storage in tables]
        coordinators = [engine.coordinator for engine in engines]

        def write(*places):
            def work(tx):
                for place in places:
                    part = next(part for part in tx.parts if part.uri == tables[place].uri)
                    engines[place].insert_in(part, account(1, "b"))

            return work

        run_over(coordinators[:2], write(*writes_to), WriteRequest("UPSERT", application=BATCH))
        run_over(coordinators[:2], write(*writes_to), WriteRequest("UPSERT", application=BATCH))
        assert [engine.read().num_rows for engine in engines] == [2, 1 + (1 in writes_to), 1]
        with pytest.raises(InputError, match="would be taken for the same, and skipped") as refused:
            run_over([coordinators[0], coordinators[2]], write(2), WriteRequest("UPSERT", application=BATCH))
        assert all(storage.uri in str(refused.value) for storage in tables)
        assert engines[2].read().num_rows == 1
