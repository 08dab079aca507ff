"""The writes of a transaction are applied one after the other: each sees those before it, and all are one commit."""

# ruff: noqa: PT012 - a transaction is a block

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import (
    ArrowEngine,
    BucketIndex,
    ConflictRule,
    LocalStorage,
    MemoryStorage,
    SystemRuntime,
    TableProperties,
    TableSchema,
    create_table,
)
from tests.behaviour.tables import QUICK, SCHEMA, leftovers, new_table, writer
from tests.over_engines import ArrowTransaction, transaction
from tests.sizes import but_in_ci

from lakelock.errors import ConflictError
from lakelock.settings import WriteSettings

INDEXES = [None, BucketIndex(3, ("id",))]
Rows = list[tuple[str, int, str]]
Statement = tuple[str, object]


def new(index: BucketIndex | None) -> tuple[MemoryStorage, ArrowEngine]:
    storage, schema = MemoryStorage(), TableSchema.from_arrow(SCHEMA).to_avro_json("t")
    properties = TableProperties.new("t", ("id",), ("month",), create_schema=schema)
    create_table(storage, properties.indexed(index), SystemRuntime())
    return storage, ArrowEngine(writer(storage, replace(QUICK, write=WriteSettings(target_file_rows=4))))


def table(rows: Rows) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA)


def content(engine: ArrowEngine) -> Rows:
    return sorted(zip(*(engine.read().column(name).to_pylist() for name in SCHEMA.names), strict=True))


def run(statement: Statement, write) -> None:
    what, given = statement
    if what == "below":
        write.delete(pc.field("v") < given)
    else:
        {"insert": write.insert, "upsert": write.upsert, "delete": write.delete}[what](table(given))


def statements(random: Random) -> list[Statement]:
    keys = [(f"k{number}", month) for number in range(8) for month in ("1", "2", "3")]
    found: list[Statement] = []
    for number in range(random.randint(2, 5)):
        what = random.choice(["upsert", "upsert", "delete", "below", "insert"])
        mine = [(key, random.randrange(100), month) for key, month in random.sample(keys, random.randint(1, 6))]
        if what == "insert":
            mine = [(f"new{number}-{key}", v, month) for key, v, month in mine]
        found.append((what, random.randrange(40) if what == "below" else mine))
    return found


@pytest.mark.parametrize("index", INDEXES, ids=str)
@pytest.mark.parametrize("seed", but_in_ci(range(14), range(4)))
def test_they_leave_what_they_would_leave_as_transactions_of_their_own(seed: int, index: BucketIndex | None) -> None:
    random = Random(seed)
    (storage, engine), (_, plain) = new(index), new(index)
    start: Rows = [(f"k{number}", number * 10, "1") for number in range(5)] + [("k1", 5, "2")]
    plan = statements(random)
    engine.insert(table(start))
    plain.insert(table(start))
    with transaction(engine) as tx:
        for statement in plan:
            run(statement, tx[engine])
    for statement in plan:
        run(statement, plain)
    assert content(engine) == content(plain), plan
    groups = [(file.partition, file.file_id) for file in engine.coordinator.snapshot().files]
    assert len(groups) == len(set(groups)) and leftovers(storage) == []
    stored = {item.key for item in storage.list("") if item.key.endswith(".parquet")}
    instant = tx.committed[0].instant
    shown = {file.key for file in engine.coordinator.snapshot().files}
    assert {key for key in stored if instant in key} == {key for key in shown if instant in key}


@pytest.mark.parametrize("index", INDEXES, ids=str)
def test_a_later_write_applies_to_what_the_earlier_left(index: BucketIndex | None) -> None:
    """A delete after an upsert of the same key deletes it, and an upsert after a delete stores it."""
    _, engine = new(index)
    engine.insert(table([("a", 1, "1"), ("b", 2, "1")]))
    with transaction(engine) as tx:
        write = tx[engine]
        write.upsert(table([("a", 10, "1"), ("n", 3, "1")]))
        write.delete(table([("a", 0, "1")]))
        write.delete(table([("b", 0, "1")]))
        write.upsert(table([("b", 20, "1")]))
        write.delete(pc.field("v") == 3)
    assert content(engine) == [("b", 20, "1")]
    assert len(engine.coordinator.table.timeline().commits) == 2
    history = engine.changes(since=engine.coordinator.table.timeline().commits[0].completion)
    assert sorted(history.column("id").to_pylist()) == ["a", "b", "b"]


def mirrors(orders: ArrowEngine, stock: ArrowEngine) -> ArrowTransaction:
    with transaction(orders, stock) as tx:
        for engine in (orders, stock):
            tx[engine].upsert(table([("a", 10, "1")]))
            tx[engine].delete(table([("b", 0, "1")]))
    return tx


def test_over_several_tables_they_are_one_commit_in_each(tmp_path: Path) -> None:
    made = [LocalStorage(tmp_path / name) for name in ("orders", "stock")]
    for each in made:
        new_table(each)
    orders, stock = (ArrowEngine(writer(each)) for each in made)
    for engine in (orders, stock):
        engine.insert(table([("a", 1, "1"), ("b", 2, "1")]))
    tx = mirrors(orders, stock)
    assert content(orders) == content(stock) == [("a", 10, "1")]
    assert [(each.rows_updated, each.rows_deleted) for each in tx.committed] == [(1, 1)] * 2
    assert [leftovers(each) for each in made] == [[], []]


def test_what_others_change_meanwhile_is_seen_by_the_later_write_as_by_the_first() -> None:
    storage, engine = new(None)
    other = ArrowEngine(writer(storage))
    engine.insert(table([("a", 1, "1"), ("b", 2, "2")]))
    with pytest.raises(ConflictError) as caught, transaction(engine) as tx:
        tx[engine].upsert(table([("a", 10, "1")]))
        tx[engine].delete(table([("c", 0, "2")]))
        other.insert(table([("c", 3, "2")]))
    assert caught.value.conflict.rule is ConflictRule.KEY
    assert content(engine) == [("a", 1, "1"), ("b", 2, "2"), ("c", 3, "2")] and leftovers(storage) == []


def test_an_error_in_the_block_leaves_nothing_of_any_write() -> None:
    storage, engine = new(None)
    engine.insert(table([("a", 1, "1")]))
    with pytest.raises(RuntimeError, match="enough"), transaction(engine) as tx:
        tx[engine].upsert(table([("a", 10, "1"), ("b", 1, "1")]))
        tx[engine].delete(table([("b", 0, "1")]))
        raise RuntimeError("enough")
    assert content(engine) == [("a", 1, "1")] and leftovers(storage) == []


def test_columns_that_a_write_adds_are_there_for_the_next() -> None:
    storage, _ = new(None)
    engine = ArrowEngine(writer(storage, replace(QUICK, write=WriteSettings(merge_schema=True))))
    engine.insert(table([("a", 1, "1"), ("b", 2, "1")]))
    wider = table([("a", 10, "1")]).append_column("w", pa.array(["x"]))
    with transaction(engine) as tx:
        tx[engine].upsert(wider)
        tx[engine].delete(table([("b", 0, "1")]))
        tx[engine].delete(pc.field("w") == "y")
    assert engine.read().to_pylist() == [{"id": "a", "v": 10, "month": "1", "w": "x"}]
