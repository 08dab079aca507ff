"""Java changes the table's columns while lakelock writes: no column is lost, and no value."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import ConflictRule
from tests.interop.shared import CHANGED_COLUMNS, SCHEMA, Layout, Row, Shared, as_rows, rows
from tests.interop.witness import JavaError

from lakelock.errors import ConflictError, TableError
from lakelock.table.schema import Alteration

Share = Callable[..., Shared]

NOTED = SCHEMA.append(pa.field("note", pa.string()))
BOTH = NOTED.append(pa.field("count", pa.int64()))


@pytest.fixture
def table(share: Share) -> Shared:
    """A table with two rows in two file groups."""
    found = share()
    found.engine().insert(found.rows(("a", 1, "eu"), ("b", 2, "us")))
    return found


def java_adds(table: Shared, *values: Row, **options: str) -> None:
    table.java.write(table.path, rows(*values, schema=NOTED), table.java_options("upsert", **options))


def altered(table: Shared, change: str = "add columns (note string)", **options: str) -> None:
    """Spark SQL's ALTER TABLE, under these options of the session."""
    name, told = table.name, {"hoodie.metadata.enable": "false", **{k.replace("__", "."): v for k, v in options.items()}}
    table.java.sql(f"create table {name} using hudi location '{table.path}'")
    for key, value in told.items():
        table.java.sql(f"set {key}={value}")
    try:
        table.java.sql(f"alter table {name} {change}")
    finally:
        for key in told:
            table.java.sql(f"reset {key}")


def seen(table: Shared, schema: pa.Schema = NOTED) -> list[Row]:
    """The rows as all three readers see them."""
    found = {reader.__name__: as_rows(reader(), schema) for reader in (table.by_lakelock, table.by_hudi_rs, table.by_java)}
    assert found["by_lakelock"] == found["by_hudi_rs"] == found["by_java"]
    return found["by_lakelock"]


@pytest.mark.in_ci
@pytest.mark.sampled(promise=CHANGED_COLUMNS)
@pytest.mark.parametrize("how", ["append", "reconcile", "alter", "alter with schema on read"])
def test_a_column_that_java_adds_under_a_transaction_keeps_its_values(table: Shared, how: str) -> None:
    engine, coordinator = table.engine(), table.coordinator()
    with coordinator.begin("UPSERT") as tx:
        if how == "append":
            java_adds(table, ("n", 3, "ap", "noted"))
        elif how == "reconcile":
            java_adds(table, ("n", 3, "ap", "noted"), hoodie__datasource__write__reconcile__schema="true")
        else:
            altered(table, **({"hoodie__schema__on__read__enable": "true"} if how != "alter" else {}))
            java_adds(table, ("n", 3, "ap", "noted"))
        engine.upsert_in(tx, table.rows(("a", 10, "eu"), ("c", 4, "eu")))
    assert sorted(table.coordinator().schema().names) == sorted(NOTED.names)
    engine.upsert(rows(("m", 5, "ap", None), schema=NOTED))
    assert seen(table) == [("a", 10, "eu", None), ("b", 2, "us", None), ("c", 4, "eu", None), ("m", 5, "ap", None),
                           ("n", 3, "ap", "noted")]  # fmt: skip
    java_adds(table, ("a", 11, "eu", "x"), ("m", 6, "ap", "y"))
    engine.delete(pc.field("id") == "c")
    assert seen(table) == [("a", 11, "eu", "x"), ("b", 2, "us", None), ("m", 6, "ap", "y"), ("n", 3, "ap", "noted")]


def test_columns_that_java_and_lakelock_add_at_the_same_time_are_both_kept(table: Shared) -> None:
    """Java takes the columns from the commit of the latest instant, which is its own: so mine begins again."""
    coordinator = table.coordinator()
    engine = table.engine(**{"write.merge_schema": True})
    mine = rows(("a", 10, "eu", 7), schema=SCHEMA.append(pa.field("count", pa.int64())))
    with coordinator.begin("UPSERT") as tx:
        java_adds(table, ("n", 3, "ap", "noted"))
        with pytest.raises(ConflictError, match="readers take the columns"):
            engine.upsert_in(tx, mine)
    engine.upsert(mine.append_column("note", pa.nulls(1, pa.string())))
    assert seen(table, BOTH) == [("a", 10, "eu", None, 7), ("b", 2, "us", None, None), ("n", 3, "ap", "noted", None)]


def test_java_reads_and_writes_columns_in_another_order(table: Shared) -> None:
    table.engine().alter(Alteration(first=("region", "v")))
    assert table.coordinator().schema().names == ["region", "v", "id"]
    assert seen(table, SCHEMA) == [("a", 1, "eu"), ("b", 2, "us")]
    table.java.write(table.path, rows(("a", 10, "eu"), ("c", 3, "us")), table.java_options("upsert"))
    table.engine().upsert(rows(("b", 20, "us")))
    assert seen(table, SCHEMA) == [("a", 10, "eu"), ("b", 20, "us"), ("c", 3, "us")]


@pytest.mark.in_ci
@pytest.mark.sampled(promise=CHANGED_COLUMNS)
def test_a_column_of_another_type_that_java_adds_rejects_mine(table: Shared) -> None:
    coordinator = table.coordinator()
    engine = table.engine(**{"write.merge_schema": True})
    numbers = SCHEMA.append(pa.field("note", pa.int64()))
    with coordinator.begin("UPSERT") as tx:
        java_adds(table, ("n", 3, "ap", "noted"))
        with pytest.raises(ConflictError) as caught:
            engine.upsert_in(tx, rows(("a", 10, "eu", 7), schema=numbers))
    assert caught.value.conflict.rule is ConflictRule.METADATA
    assert caught.value.conflict.overlap == ("note: string there, int64 here",)
    assert seen(table) == [("a", 1, "eu", None), ("b", 2, "us", None), ("n", 3, "ap", "noted")]


@pytest.mark.in_ci
@pytest.mark.sampled(promise=CHANGED_COLUMNS)
def test_java_reads_and_writes_fields_of_a_column_in_another_order(share: Share) -> None:
    def schema(*names: str) -> pa.Schema:
        types = {"x": pa.int32(), "y": pa.string()}
        inside = pa.struct([(name, types[name]) for name in names])
        return pa.schema([("id", pa.string()), ("region", pa.string()), ("place", inside), ("stops", pa.list_(inside))])

    first, then = schema("x", "y"), schema("y", "x")
    table = share(Layout("inside", schema=first))
    a, b, c = ((key, "eu", {"x": 1, "y": key}, [{"x": 2, "y": key}]) for key in "abc")
    table.engine().insert(rows(a, b, schema=first))
    table.engine().alter(Alteration(first=("place.y", "stops.element.y")))
    assert table.coordinator().schema().arrow.field("place").type.field(0).name == "y"
    assert seen(table, then) == [(key, "eu", {"y": key, "x": 1}, [{"y": key, "x": 2}]) for key in "ab"]
    table.java.write(table.path, rows(a, c, schema=then), table.java_options("upsert"))
    table.engine().upsert(rows(b, schema=first))
    assert seen(table, then) == [(key, "eu", {"y": key, "x": 1}, [{"y": key, "x": 2}]) for key in "abc"]


PLACE = pa.struct([("x", pa.int32())])
NARROW = pa.schema(
    [("id", pa.string()), ("n", pa.int32()), ("m", pa.int32()), ("ratio", pa.float32()), ("price", pa.decimal128(5, 2)),
     ("region", pa.string()), ("place", PLACE)]
)  # fmt: skip
WIDE = pa.schema(
    [("id", pa.string()), ("n", pa.int64()), ("m", pa.float64()), ("ratio", pa.float64()), ("price", pa.decimal128(25, 4)),
     ("region", pa.string()), ("place", pa.struct([("x", pa.int32()), ("y", pa.string())])), ("note", pa.string())]
)  # fmt: skip


@pytest.mark.in_ci
@pytest.mark.sampled(promise=CHANGED_COLUMNS)
def test_columns_that_lakelock_adds_and_widens_are_read_and_written_by_all(share: Share) -> None:
    table = share(Layout("grown", schema=NARROW))
    engine, price, place = table.engine(), Decimal("1.25"), {"x": 1}
    engine.insert(rows(*((key, 1, 1, 0.5, price, "eu", place) for key in "abc"), schema=NARROW))
    types = {name: WIDE.field(name).type for name in ("n", "m", "ratio", "price")}
    engine.alter(Alteration(add={"note": pa.string(), "place.y": pa.string()}, widen=types))
    before, larger = (1, 1.0, 0.5, Decimal("1.2500"), "eu", {"x": 1, "y": None}, None), Decimal("12345678901234567890.1234")
    new = (2**40, 0.5, 0.1, larger, "eu", {"x": 2, "y": "y"}, "noted")
    assert seen(table, WIDE) == [("a", *before), ("b", *before), ("c", *before)]
    table.java.write(table.path, rows(("a", *new), schema=WIDE), table.java_options())
    engine.upsert(rows(("b", *new), ("d", *new), schema=WIDE))
    assert seen(table, WIDE) == [("a", *new), ("b", *new), ("c", *before), ("d", *new)]
    # A Java job that still has the old types, too; it must know the columns.
    old_types = pa.schema([WIDE.field(f.name) if f.name in ("place", "note") else f for f in [*NARROW, WIDE.field("note")]])
    table.java.write(table.path, rows(("e", 1, 1, 0.5, price, "eu", before[5], None), schema=old_types), table.java_options())
    assert seen(table, WIDE)[4] == ("e", *before)


@pytest.mark.in_ci
@pytest.mark.sampled(promise=CHANGED_COLUMNS)
def test_java_reads_fields_that_became_wider_without_its_vectorized_reader(share: Share) -> None:
    table = share(Layout("fields", schema=NARROW))
    engine = table.engine()
    engine.insert(rows(("a", 1, 1, 0.5, None, "eu", {"x": 1}), schema=NARROW))
    engine.alter(Alteration(widen={"place.x": pa.int64()}))
    wide = NARROW.set(6, pa.field("place", pa.struct([("x", pa.int64())])))
    table.java.sql("set spark.sql.parquet.enableVectorizedReader=true")  # Hudi turns it off by itself for some tables
    with pytest.raises(JavaError, match="spark.sql.parquet.enableVectorizedReader=false"):
        table.by_java()
    table.java.sql("set spark.sql.parquet.enableVectorizedReader=false")
    try:
        assert seen(table, wide) == [("a", 1, 1, 0.5, None, "eu", {"x": 1})]
    finally:
        table.java.sql("reset spark.sql.parquet.enableVectorizedReader")
    engine.upsert(rows(("a", 1, 1, 0.5, None, "eu", {"x": 2**40}), schema=wide))
    assert seen(table, wide) == [("a", 1, 1, 0.5, None, "eu", {"x": 2**40})]


@pytest.mark.in_ci
@pytest.mark.sampled(promise=CHANGED_COLUMNS)
def test_a_table_with_a_column_that_java_has_renamed_without_writing_its_files_is_refused(table: Shared) -> None:
    by_ids = {"hoodie__schema__on__read__enable": "true"}
    altered(table, **by_ids)
    assert table.engine().read().num_rows == 2
    dropped = {"hoodie__datasource__write__schema__allow__auto__evolution__column__drop": "true"}
    table.java.sql(f"drop table {table.name}")
    altered(table, "rename column v to w", **by_ids, **dropped)
    with pytest.raises(TableError, match="columns of it were renamed.*: v, w"):
        table.engine().read()
    with pytest.raises(TableError, match="columns of it were renamed.*: v, w"):
        table.engine().upsert(table.rows(("a", 10, "eu")))
