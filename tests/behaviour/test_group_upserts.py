"""Small upserts and deletes that meet are committed together, and do what they would have done one after the other (ADR 54)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.api import ArrowEngine, Committed, MemoryStorage, Storage, SystemRuntime, TableProperties, TableSchema, layout
from tests.behaviour.tables import QUICK, SCHEMA, leftovers, new_table, writer
from tests.faulty_storage import CountingStorage

from lakelock.engine.batch import AttemptCache, Batch
from lakelock.engine.group_commit import NotTogether, fingerprint
from lakelock.engine.small_writes import SmallWrites
from lakelock.errors import ConflictError, DuplicateKeyError, InputError
from lakelock.occ.commit_keys import Member
from lakelock.occ.create import create_table
from lakelock.occ.data_locking import block_of
from lakelock.occ.offers import Offer, put_offer
from lakelock.table.rewriting import ARROW, Kernels

TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]
Given = Sequence[tuple[str, int]]


def rows(pairs: Given, month: str = "1") -> pa.Table:
    return pa.table([[key for key, _ in pairs], [value for _, value in pairs], [month] * len(pairs)], schema=SCHEMA)


def keys(names: Sequence[str], month: str = "1") -> pa.Table:
    return rows([(name, 0) for name in names], month).select(["id", "month"])


def table_with(pairs: Given, table_type: str, *, ordered: bool = False) -> MemoryStorage:
    storage = MemoryStorage()
    if ordered:
        schema = TableSchema.from_arrow(SCHEMA).to_avro_json("t")
        properties = TableProperties.new("t", ["id"], ["month"], "v", create_schema=schema, table_type=table_type)
        create_table(storage, properties, SystemRuntime())
    else:
        new_table(storage, table_type=table_type)
    ArrowEngine(writer(storage)).insert(rows(pairs))
    return storage


def crowded(storage: Storage, name: str = "leader") -> ArrowEngine:
    """A writer that has begun a transaction, and has met others since."""
    engine = ArrowEngine(writer(storage, name=name))
    with suppress(ZeroDivisionError), engine.coordinator.begin("UPSERT"):
        raise ZeroDivisionError
    meets_others(engine)
    return engine


def meets_others(engine: ArrowEngine) -> None:
    table = engine.coordinator.table
    table.observed.meets_others(table.runtime.monotonic_s())


def on_offer(storage: Storage, given: pa.Table, operation: str, tag: str) -> None:
    """An offer whose owner is gone without a word, as after `kill -9`."""
    engine = crowded(storage, tag)
    put_offer(engine.coordinator.table, offer_of(engine, given, operation, tag))


def offer_of(engine: ArrowEngine, given: pa.Table, operation: str, tag: str) -> Offer:
    table, schema = engine.coordinator.table, engine.coordinator.schema()
    member = Member(table.runtime.uuid(), table.writer, tag, given.num_rows, ("month=1",))
    return Offer(member, table.log.newest, fingerprint(schema), ARROW.packed(given), operation)


def content(storage: Storage) -> dict[str, int]:
    found = ArrowEngine(writer(storage)).read()
    pairs = [*zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)]
    assert len(dict(pairs)) == len(pairs), "a key stands twice"
    return dict(pairs)


def members(engine: ArrowEngine) -> dict[str, tuple[int, int, int]]:
    """By tag what became of the rows of each member of the newest commit: inserted, updated, deleted."""
    return {each.tag: (each.inserted, each.updated, each.deleted) for each in engine.coordinator.history(1)[0].members}


def counts(done: Committed) -> tuple[int, int, int]:
    return done.rows_inserted, done.rows_updated, done.rows_deleted


@pytest.mark.parametrize("table_type", TYPES)
def test_upserts_that_wait_are_one_commit_and_each_is_told_what_became_of_its_rows(table_type: str):
    storage = table_with([("a", 1), ("b", 1)], table_type)
    on_offer(storage, rows([("a", 2), ("c", 2)]), "UPSERT", "first")
    on_offer(storage, rows([("c", 3), ("b", 3)]), "UPSERT", "second")
    engine = crowded(storage)
    done = engine.upsert(rows([("d", 4)]), tag="mine")
    assert content(storage) == {"a": 2, "b": 3, "c": 3, "d": 4}
    assert members(engine) == {"mine": (1, 0, 0), "first": (1, 1, 0), "second": (0, 2, 0)}
    assert counts(done) == (1, 0, 0) and done.rows_written == 1
    assert not [*storage.list(layout.OFFERS)] and not leftovers(storage)


@pytest.mark.parametrize("table_type", TYPES)
def test_deletes_that_wait_are_one_commit_and_a_row_is_deleted_once(table_type: str):
    storage = table_with([("a", 1), ("b", 1), ("c", 1), ("d", 1)], table_type)
    on_offer(storage, keys(["a", "b", "x"]), "DELETE", "first")
    on_offer(storage, keys(["b", "c"]), "DELETE", "second")
    engine = crowded(storage)
    done = engine.delete(keys(["c", "y"]), tag="mine")
    assert content(storage) == {"d": 1}
    assert members(engine) == {"mine": (0, 0, 1), "first": (0, 0, 2), "second": (0, 0, 0)}
    assert counts(done) == (0, 0, 1) and done.rows_written == 0


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("in_two_files", [False, True])
def test_a_key_that_is_stored_twice_is_counted_as_ever(table_type: str, in_two_files: bool):
    found = []
    for crowd in (False, True):
        storage = table_with([("a", 1), *([] if in_two_files else [("a", 1)]), ("b", 1)], table_type)
        if in_two_files:
            ArrowEngine(writer(storage, QUICK)).insert(rows([("a", 1)]))
        if crowd:
            on_offer(storage, rows([("c", 2)]), "UPSERT", "first")
            on_offer(storage, keys(["x"]), "DELETE", "first")
        engine = crowded(storage) if crowd else ArrowEngine(writer(storage))
        done = [counts(engine.upsert(rows([("a", 3)])))]
        if crowd:
            meets_others(engine)
        found.append([*done, counts(engine.delete(keys(["a"])))])
    assert found[0] == found[1] == [(0, 2, 0), (0, 0, 2)]


def test_each_kind_of_write_is_committed_with_its_own():
    storage = table_with([("a", 1)], "COPY_ON_WRITE")
    on_offer(storage, rows([("b", 2)]), "INSERT", "insert")
    on_offer(storage, keys(["a"]), "DELETE", "delete")
    engine = crowded(storage)
    engine.upsert(rows([("c", 3)]), tag="upsert")
    assert members(engine) == {}
    assert content(storage) == {"a": 1, "c": 3}
    meets_others(engine)
    engine.delete(keys(["c"]), tag="more")
    assert set(members(engine)) == {"delete", "more"} and content(storage) == {}


@pytest.mark.parametrize(
    ("condition", "offered"),
    [
        ((pc.field("id") == "a") & (pc.field("month") == "1"), True),
        (pc.field("id").isin(["a", "x"]) & (pc.field("month") == "1"), True),
        (pc.field("id") == "a", False),
        ((pc.field("id") == "a") & (pc.field("month") == "1") & (pc.field("v") == 1), False),
        ((pc.field("id") == "a") | (pc.field("month") == "2"), False),
        (pc.field("v") == 1, False),
    ],
    ids=str,
)
def test_a_condition_that_names_nothing_but_keys_is_a_delete_by_key(condition: pc.Expression, offered: bool):
    storage = CountingStorage(table_with([("a", 1), ("b", 2)], "COPY_ON_WRITE"))
    engine = crowded(storage)
    storage.reset()
    done = engine.delete(condition)
    assert any(key.startswith(layout.OFFERS) for op, key in storage.calls if op == "put_if_absent") == offered
    assert done.rows_deleted == 1 and content(storage.inner) == {"b": 2}


def test_where_a_stored_row_is_newer_each_does_its_own_write():
    storage = table_with([("a", 5), ("b", 1)], "COPY_ON_WRITE", ordered=True)
    on_offer(storage, rows([("b", 3)]), "UPSERT", "other")
    engine = crowded(storage)
    done = engine.upsert(rows([("a", 4), ("c", 4)]), tag="mine")
    assert counts(done) == (1, 0, 0) and members(engine) == {}
    assert content(storage) == {"a": 5, "b": 1, "c": 4}
    meets_others(engine)
    engine.upsert(rows([("d", 1)]))
    assert content(storage) == {"a": 5, "b": 3, "c": 4, "d": 1}


def test_a_row_that_is_too_old_is_not_told_as_updated_where_another_s_key_is_stored_twice():
    storage = table_with([("a", 5), ("b", 1), ("b", 2)], "COPY_ON_WRITE", ordered=True)
    on_offer(storage, rows([("b", 6)]), "UPSERT", "other")
    engine = crowded(storage)
    assert counts(engine.upsert(rows([("a", 4)]))) == (0, 0, 0) and members(engine) == {}


def test_what_is_wrong_with_rows_is_told_as_ever_and_offers_nothing():
    storage = CountingStorage(table_with([("a", 1)], "COPY_ON_WRITE"))
    engine = crowded(storage)
    storage.reset()
    with pytest.raises(DuplicateKeyError):
        engine.upsert(rows([("b", 1), ("b", 2)]))
    with pytest.raises(InputError):
        engine.upsert(rows([("b", 1)]).drop_columns(["id"]))
    engine.upsert(rows([("a", 1)]).drop_columns(["v"]), missing_columns="keep")
    assert not any(layout.OFFERS in key for _, key in storage.calls)


@pytest.mark.parametrize("table_type", TYPES)
def test_writers_of_one_hot_file_group_lose_nothing_and_share_commits(table_type: str):
    storage = table_with([(f"k{number}", 0) for number in range(6)], table_type)
    engines = [crowded(storage, f"w{number}") for number in range(6)]
    before = len(engines[0].coordinator.table.timeline().commits)

    def work(number: int) -> None:
        for value in range(1, 6):
            meets_others(engines[number])
            assert counts(engines[number].upsert(rows([(f"k{number}", value), ("shared", 10 * number + value)]))) != (0, 0, 0)
        meets_others(engines[number])
        assert engines[number].delete(keys([f"k{number}"])).rows_deleted == 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    found = content(storage)
    assert found.keys() == {"shared"} and found["shared"] % 10 == 5
    assert len(engines[0].coordinator.table.timeline().commits) - before < 30
    assert not [*storage.list(layout.OFFERS)] and not leftovers(storage)


@pytest.mark.parametrize("meets", ["the offer of another", "its own rows"])
def test_a_writer_does_not_wait_for_a_block_of_its_own_thread(meets: str):
    storage = table_with([("a", 1)], "COPY_ON_WRITE")
    ArrowEngine(writer(storage)).insert(rows([("x", 1)], "2"))
    engine = crowded(storage)
    if meets == "the offer of another":
        on_offer(storage, rows([("a", 3)]), "UPSERT", "other")
    runtime, tx = engine.coordinator.table.runtime, engine.coordinator.begin("UPSERT")
    with block_of(tx.instant), tx:
        engine.upsert_in(tx, rows([("a", 2)]), end=lambda stats, **_: tx.wrote(stats))
        began_s = runtime.monotonic_s()
        if meets == "its own rows":
            with pytest.raises(ConflictError, match="a block of this very thread"):
                engine.upsert(rows([("a", 4)]))
        else:
            assert engine.upsert(rows([("x", 2)], "2")).rows_updated == 1
        assert runtime.monotonic_s() - began_s < QUICK.retry.holder_wait_s


class Overtaken(Kernels):
    """Whenever keys are looked up, another is faster, until there is nothing left to do."""

    def __init__(self, *others: Callable[[], object]) -> None:
        self.others = [*others]

    def tag(self, keyed, files, storage):
        if self.others:
            self.others.pop(0)()
        return super().tag(keyed, files, storage)


def test_a_writer_that_loses_twice_to_its_kind_puts_its_rows_on_offer():
    storage = CountingStorage(table_with([("a", 1)], "COPY_ON_WRITE"))
    other = ArrowEngine(writer(storage.inner, name="other"))
    kernels = Overtaken(*(partial(other.upsert, rows([("a", value)])) for value in (2, 3)))
    ArrowEngine(writer(storage, name="slow"), kernels).upsert(rows([("a", 4)]))
    assert content(storage.inner) == {"a": 4} and not kernels.others
    assert any(key.startswith(layout.OFFERS) for op, key in storage.calls if op == "put_if_absent")


PAIRS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)), min_size=1, max_size=3, unique_by=lambda pair: pair[0])


@given(st.lists(PAIRS, min_size=2, max_size=4), st.sampled_from([("COPY_ON_WRITE", True), *((each, False) for each in TYPES)]))
@settings(max_examples=40, deadline=None)
def test_a_group_is_what_its_members_would_be_one_after_the_other(writes: list[Given], kind: tuple[str, bool]):
    table_type, ordered = kind
    together, one_by_one = (table_with([("a", 1), ("b", 2)], table_type, ordered=ordered) for _ in range(2))
    leader, alone = (ArrowEngine(writer(storage)) for storage in (together, one_by_one))
    offers = [offer_of(leader, rows(each), "UPSERT", str(number)) for number, each in enumerate(writes)]
    batch_of = partial(Batch, leader.coordinator, ARROW, memory=AttemptCache())
    small = SmallWrites(leader.coordinator, ARROW, batch_of).upsert(
        rows(writes[0]), "0", leader.coordinator.table.settings.write
    )
    assert small is not None
    try:
        with leader.coordinator.begin("UPSERT") as tx:
            small.commit(tx, offers, [rows(each) for each in writes])
    except NotTogether:
        assert ordered
        return
    told = [(each.inserted, each.updated, each.deleted) for each in leader.coordinator.history(1)[0].members]
    assert told == [counts(alone.upsert(rows(each))) for each in writes]
    assert content(together) == content(one_by_one)
