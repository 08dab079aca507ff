"""Statistics in Hudi's metadata table: Java finds the same rows with data skipping and without, whoever wrote them."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.behaviour.beside_java.test_metadata_statistics import replaced
from tests.behaviour.beside_java.test_metadata_table import Killed, killed_at
from tests.behaviour.cli.command_line import run
from tests.interop.conftest import FULL
from tests.interop.shared import FOUND_BY_STATISTICS, Layout, Shared, rows
from tests.sizes import in_ci
from tests.waiting import eventually

from lakelock.events import Step
from lakelock.table.schema import Alteration

Share = Callable[..., Shared]
UTC = {"hoodie__table__timeline__timezone": "UTC"}
SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("region", pa.string()), ("b", pa.bool_()), ("i", pa.int32()), ("v", pa.int64()),
        ("f", pa.float32()), ("d", pa.float64()), ("s", pa.string()), ("bytes", pa.binary()), ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")), ("small", pa.decimal128(7, 3)), ("exact", pa.decimal128(38, 10)),
    ]
)  # fmt: skip
TYPES = Layout("types", schema=SCHEMA, hudi_rs=False)
FLAT = replace(TYPES, name="flat", partitions=())
AT = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
OFTEN = {
    "hoodie__metadata__compact__max__delta__commits": "2", "hoodie__clean__commits__retained": "1",
    "hoodie__keep__min__commits": "2", "hoodie__keep__max__commits": "3",
}  # fmt: skip
KEPT = {"files", "column_stats", "partition_stats"}


def with_statistics(share: Share, layout: Layout) -> Shared:
    """A table that Java is about to make with its defaults."""
    table = share(layout, create=False)
    table.statistics = {}
    return table


def row(n: int, region: str = "eu", **changed: Any) -> tuple[Any, ...]:
    """A row whose values all grow with `n`; of every fifth one all are null."""
    values = {
        "b": n % 2 == 0, "i": n * 10, "v": n * 10**12, "f": n / 4, "d": n / 3, "s": f"ß{n:03d}",
        "bytes": b"\xff" * (n % 3) + bytes([n]),
        "day": dt.date(2026, 1, 1) + dt.timedelta(n), "at": AT + dt.timedelta(hours=n, microseconds=1),
        "small": Decimal(n - 5) / 8, "exact": Decimal(n - 5) * 10**12 / 4,
    }  # fmt: skip
    if n % 5 == 4:
        values = dict.fromkeys(values)  # type: ignore[assignment]
    values |= {"id": f"k{n:03d}", "region": region} | changed
    return tuple(values[name] for name in SCHEMA.names)


def literal(value: Any, arrow: pa.DataType) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, dt.datetime):
        return f"timestamp'{value:%Y-%m-%d %H:%M:%S.%f} UTC'"
    if isinstance(value, dt.date):
        return f"date'{value}'"
    if isinstance(value, float) and not math.isfinite(value):
        return f"double('{value}')"
    kinds = {pa.float32(): "float", pa.float64(): "double", pa.int64(): "bigint", pa.int32(): "int"}
    kind = kinds.get(arrow, str(arrow).replace("decimal128", "decimal").replace(" ", ""))
    return f"'{value}'" if isinstance(value, str) else f"cast('{value}' as {kind})"


def conditions(columns: Iterable[str], values_of: Mapping[str, list[Any]], schema: pa.Schema) -> list[str]:
    """Of one column and of two, with values that occur, the least and the greatest among them."""
    found = []
    for number, column in enumerate(columns):
        values = sorted({value for value in values_of[column] if value is not None and value == value})
        low, some, high = (literal(values[at], schema.field(column).type) for at in (0, len(values) // 2, -1))
        kinds = [
            f"{column} = {some}", f"{column} < {some}", f"{column} in ({low}, {high})", f"{column} is null",
            f"{column} = {high} and id > 'k'", f"{column} > {some}", f"{column} <= {low}", f"{column} >= {high}",
            f"{column} is not null", f"{column} is null and id = 'k009'", f"{column} = {low} or id = 'k001'",
        ]  # fmt: skip
        found += kinds if FULL else [kinds[number % 5], kinds[(number + 2) % 5]]
    return found


def agrees(table: Shared, columns: Iterable[str] = (), more: Iterable[str] = ()) -> dict[str, list[str]]:
    """Java's rows with data skipping are those without, which are those of lakelock."""
    seen = table.by_lakelock()
    # By a column of bytes Java 1.2 itself cannot skip: it fails with a ClassCastException.
    asked = [
        *conditions(columns or (name for name in seen.column_names if name != "bytes"), seen.to_pydict(), seen.schema),
        *more,
    ]
    plain = table.java.matches(table.path, "id", asked, skipping=False)
    skipping = table.java.matches(table.path, "id", asked, skipping=True)
    assert {each: skipping[each] for each in asked if skipping[each] != plain[each]} == {}
    assert set().union(*plain.values()) <= set(seen.column("id").to_pylist())
    return plain


def partitions(table: Shared) -> set[str]:
    found = {path.name for path in Path(table.path, ".hoodie/metadata").iterdir() if path.is_dir()}
    return found - {".hoodie"}


@pytest.mark.sampled(promise=FOUND_BY_STATISTICS)
@pytest.mark.parametrize(
    "layout", [TYPES, *in_ci(FLAT, replace(TYPES, name="version_8", version=8))], ids=lambda layout: layout.name
)
def test_java_finds_rows_of_every_type_by_its_statistics(share: Share, layout: Layout) -> None:
    table = with_statistics(share, layout)
    table.java_write("bulk_insert", *(row(n, ("eu", "us")[n % 2]) for n in range(8)), **UTC)
    kept = KEPT if layout.partitions else KEPT - {"partition_stats"}
    assert partitions(table) == kept
    engine = table.engine()
    engine.insert(table.rows(*(row(n, ("eu", "zz")[n % 2]) for n in range(20, 30))))
    engine.upsert(table.rows(row(3, "us", s="upserted", v=-5), row(31, "us")))
    assert partitions(table) == kept
    agrees(table)
    table.java_write("upsert", row(2, "eu", v=-7), row(32, "us"))
    engine.delete(pc.field("id") == "k021")
    assert partitions(table) == kept
    agrees(table, ["v", "s", "at"])


@pytest.mark.in_ci
@pytest.mark.sampled(promise=FOUND_BY_STATISTICS)
def test_java_finds_what_was_committed_in_another_order_than_it_began(share: Share, tmp_path: Path) -> None:
    """Java merges by instant, so its own bounds are hidden below a later instant until lakelock has committed, also where that
    has to finish the commit of a killed writer first.
    """
    table, gate = with_statistics(share, TYPES), tmp_path / "gate"
    table.java_write("bulk_insert", *(row(n, ("eu", "us")[n % 2]) for n in range(8)), **UTC)
    killed, other = table.engine(), table.engine()
    with suppress(Killed), killed.coordinator.begin("INSERT") as tx:
        late = table.begin_java("insert", row(60, "zz"), gate=gate)
        eventually(lambda: len(table.pending()) == 2, saying="the Java job has begun")
        other.insert(table.rows(row(20, "zz")))
        killed_at(Step.DECIDED, lambda: killed.insert_in(tx, table.rows(row(40, "zz"))))
        raise Killed
    gate.touch()
    late.result()
    asked = [f"v = {n}{12 * '0'}" for n in (20, 40, 60)]
    assert table.java.matches(table.path, "id", asked[2:], skipping=True) == {asked[2]: []}
    other.insert(table.rows(row(30, "eu")))
    assert list(agrees(table, ["v"], asked).values())[-3:] == [["k020"], ["k040"], ["k060"]]


@pytest.mark.in_ci
@pytest.mark.sampled(promise=FOUND_BY_STATISTICS)
def test_java_compacts_and_archives_what_was_written_once_more_at_a_time_between_two_milliseconds(share: Share) -> None:
    table = with_statistics(share, TYPES)
    table.java_write("bulk_insert", *(row(n, ("eu", "us")[n % 2]) for n in range(8)), **UTC)
    early, other = table.engine(), table.engine()
    with early.coordinator.begin("INSERT") as tx:
        other.insert(table.rows(row(20, "zz")))
        early.insert_in(tx, table.rows(row(40, "zz")))
    asked = [f"v = {n}{12 * '0'}" for n in (20, 40)]
    timeline = Path(table.path, ".hoodie/metadata/.hoodie/timeline")

    def between() -> list[str]:
        return [path.name for path in timeline.iterdir() if re.match("[0-9]{23}[._]", path.name)]

    assert len(between()) == 3, "the states of a delta commit"
    assert list(agrees(table, ["v"], asked).values())[-2:] == [["k020"], ["k040"]]
    for n in range(8):
        table.java_write("upsert", row(50 + n, "eu"), **OFTEN)
    assert between() == [], "archived, and so compacted"
    assert list(agrees(table, ["v"], asked).values())[-2:] == [["k020"], ["k040"]]
    other.insert(table.rows(row(30, "zz")))
    assert list(agrees(table, ["v"], asked).values())[-2:] == [["k020"], ["k040"]]


@pytest.mark.in_ci
@pytest.mark.sampled(promise=FOUND_BY_STATISTICS)
def test_java_finds_rows_by_columns_that_lakelock_added_and_widened(share: Share) -> None:
    narrow = pa.schema(
        [("id", pa.string()), ("region", pa.string()), ("i", pa.int32()), ("m", pa.int32()), ("f", pa.float32()),
         ("price", pa.decimal128(5, 2))]
    )  # fmt: skip
    wide = pa.schema(
        [("id", pa.string()), ("region", pa.string()), ("i", pa.int64()), ("m", pa.float64()), ("f", pa.float64()),
         ("price", pa.decimal128(25, 4)), ("note", pa.string())]
    )  # fmt: skip
    table = with_statistics(share, Layout("grown", schema=narrow))
    price = Decimal("-1.25")
    table.java_write("bulk_insert", *((f"k{n}", ("eu", "us")[n % 2], n, n, n / 4, price) for n in range(6)), **UTC)
    engine = table.engine()
    engine.upsert(table.rows(("k0", "eu", 7, 7, 0.5, price)))
    types = {name: wide.field(name).type for name in ("i", "m", "f", "price")}
    engine.alter(Alteration(add={"note": pa.string()}, widen=types))
    larger = Decimal("12345678901234567890.1234")
    new = [("k1", "us", 2**40, 0.5, 0.1, larger, "noted"), ("k9", "eu", 2**41, -0.5, 0.1, larger, "noted")]
    engine.upsert(rows(*new, schema=wide))
    more = ["note is null and id = 'k3'", "note = 'noted' and i > 5", "note is null and i = 2", "i = 2 and price < 0"]
    agrees(table, ["i", "m", "f", "price", "note"], more)
    table.java.write(table.path, rows(("k10", "us", 2**42, 9.5, 0.7, larger, "java"), schema=wide), table.java_options())
    agrees(table, ["i", "note"], more)
    engine.upsert(rows(("k11", "zz", 3, 9.5, 0.7, None, None), schema=wide))
    agrees(table, ["price", "note"], more)


@pytest.mark.in_ci
@pytest.mark.sampled(promise=FOUND_BY_STATISTICS)
def test_java_finds_rows_by_columns_that_were_dropped_and_added_again_or_made_anew(share: Share) -> None:
    columns = [("id", pa.string()), ("region", pa.string())]
    table = with_statistics(
        share, Layout("anew", schema=pa.schema([*columns, ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))]))
    )
    values = ((f"k{n}", ("eu", "us")[n % 2], 2**40 + n, AT + dt.timedelta(hours=n)) for n in range(6))
    table.java_write("bulk_insert", *values, **UTC)
    dates = pa.schema([*columns, ("at", pa.date32())])
    replaced(Path(table.path), rows(*((f"k{n}", ("eu", "us")[n % 2], dt.date(2026, 1, n + 1)) for n in range(6)), schema=dates))
    asked = ["at = date'2026-01-03'", "at < date'2026-01-02'", "at > date'2026-01-05' and id = 'k5'"]
    found = agrees(table, ["at"], asked)
    assert list(found.values())[-3:] == [["k2"], ["k0"], ["k5"]]
    table.engine().alter(Alteration(add={"v": pa.int64()}))
    agrees(table, ["at"], ["v is null", "v is null and id = 'k3'"])
    table.engine().insert(rows(("k6", "eu", dt.date(2026, 2, 1), 7), schema=dates.append(pa.field("v", pa.int64()))))
    found = agrees(table, ["v", "at"], ["v = 7", "v is null and id = 'k2'", "v < 8"])
    assert list(found.values())[-3:] == [["k6"], ["k2"], ["k6"]]


@pytest.mark.in_ci
@pytest.mark.sampled(promise=FOUND_BY_STATISTICS)
def test_java_finds_the_rows_of_a_file_with_a_nan_also_after_it_has_written_itself(share: Share) -> None:
    table = with_statistics(share, TYPES)
    table.java_write("bulk_insert", *(row(n, ("eu", "us")[n % 2]) for n in range(4)), **UTC)
    nan = {"d": math.nan, "f": math.nan}
    table.engine().insert(
        table.rows(row(20, "eu", **nan), row(21, "eu", d=1.0, f=1.0), row(22, "zz", **nan), row(23, "zz", d=5.0))
    )
    # Not `d = double('NaN')`: to Java no bounds have a NaN in them, so with data skipping it finds none of these rows.
    asked = ["d = 1", "d > 4", "isnan(d)", "d in (1, 5)", "f = 1 and id > 'k'", "f < 2", "d >= 5 and v > 0"]
    found = agrees(table, ["v"], asked)
    assert found["d = 1"] == ["k003", "k021"] and found["isnan(d)"] == ["k020", "k022"]
    # Java looks at the statistics of all files of the partition. In a file with a NaN of its own it finds nothing.
    table.java_write("upsert", row(2, "eu", d=7.0))
    assert "k002" in agrees(table, ["v"], asked)["d > 4"]


@pytest.mark.in_ci
@pytest.mark.sampled(promise=FOUND_BY_STATISTICS)
def test_java_finds_what_is_left_after_overwrites_deletes_and_cleans_by_lakelock(share: Share) -> None:
    table = with_statistics(share, TYPES)
    table.java_write("bulk_insert", *(row(n, ("eu", "us", "zz")[n % 3]) for n in range(9)), **UTC)
    engine = table.engine(**{"clean.readers_s": 0})
    for v in (1, 2, 3):
        engine.upsert(table.rows(row(0, "eu", v=v)))
    engine.overwrite_partitions(table.rows(row(50, "us", v=-5)))
    engine.delete(pc.field("region") == "zz")
    ended = run("clean", table.path, "--keep-versions", "1", "--config", str(table.hudi_file), "--set", "clean.readers_s=0")
    assert ended.code == 0, ended.err
    agrees(table, ["v", "s"])
    table.java_write("upsert", row(5, "zz", s="back"), hoodie__metadata__compact__max__delta__commits="2")
    engine.insert(table.rows(row(51, "zz"), row(52, "us")))
    agrees(table, ["v", "s"])
    assert partitions(table) == KEPT
