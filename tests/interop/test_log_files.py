"""Log files that lakelock writes, read by Java Hudi and hudi-rs, written on by Java, and compacted by it."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.api import FileGroupId, TableSchema
from tests.hand_made import HandMade
from tests.interop.shared import LOGGED, Layout, Row, Shared
from tests.sizes import but

from lakelock.table.log_writing import BasePositions, LogChanges

Share = Callable[..., Shared]
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64()), ("region", pa.string())])
TYPES = pa.schema(
    [
        ("id", pa.string()), ("v", pa.int64()), ("region", pa.string()), ("i", pa.int32()), ("f", pa.float32()),
        ("d", pa.float64()), ("ok", pa.bool_()), ("raw", pa.binary()), ("price", pa.decimal128(12, 2)), ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")), ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.int32()), ("y", pa.string())])), ("counts", pa.map_(pa.string(), pa.int64())),
    ]
)  # fmt: skip
EU, US = (
    FileGroupId("region=eu", "11111111-1111-4111-8111-111111111111-0"),
    FileGroupId("region=us", "22222222-2222-4222-8222-222222222222-0"),
)
NEW = FileGroupId("region=eu", "33333333-3333-4333-8333-333333333333-0")
JAVA = {
    "hoodie__datasource__write__table__type": "MERGE_ON_READ", "hoodie__compact__inline": "false",
    "hoodie__parquet__small__file__limit": "0",
}  # fmt: skip

BY_KEYS = {"hoodie.merge.use.record.positions": "false"}


def T(second: int, ms: int = 0) -> str:  # noqa: N802
    return f"202606010000{second:02d}{ms:03d}"


def typed(key: str, value: int, *, empty: bool = False) -> Row:
    if empty:
        return (key, value, "eu", *[None] * (len(TYPES) - 3))
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 600_000 + value, tzinfo=datetime.timezone.utc)
    day, price = datetime.date(2026, 2, value + 1), Decimal(value) / 4
    numbers = (value, value + 0.5, value / 3, value % 2 == 0, bytes([value]), price)
    return (key, value, "eu", *numbers, day, when, [key, None, "x"], {"x": value, "y": key}, [(key, value)])


def keys(rows: pa.Table) -> list[str]:
    return sorted(rows.column("id").to_pylist())


def hand_made(table: Shared) -> HandMade:
    layout = table.layout
    return HandMade(Path(table.path), layout.properties(table.name), TableSchema.from_arrow(layout.schema)).create()


def wrote(made: HandMade, table: Shared, second: int, group: FileGroupId, *rows: Row, gone: tuple[str, ...] = ()) -> None:
    """A deltacommit of one log file."""
    changes = LogChanges(made.keyed(table.rows(*rows)) if rows else None, gone)
    made.commit(T(second), T(second, 500), logs={group: changes})
    table.put(*rows)
    table.drop(*((group.partition.partition("=")[2], key) for key in gone))


@pytest.mark.in_ci
@pytest.mark.parametrize(("version", "positions"), but([(9, True), (8, True), (9, False)], [(9, True)]))
def test_java_and_hudi_rs_read_log_files_of_lakelock_and_java_writes_on_and_compacts_them(
    share: Share, version: int, positions: bool
) -> None:
    table = share(Layout("mor", schema=SCHEMA, version=version), create=False)
    made = hand_made(table)
    made.positions = positions
    first = [[(key, 0, "eu") for key in "abcd"], [(key, 0, "us") for key in "xyz"]]
    made.commit(T(1), T(1, 500), bases={EU: table.rows(*first[0]), US: table.rows(*first[1])})
    table.put(*first[0], *first[1])
    table.agree()
    wrote(made, table, 2, EU, ("a", 1, "eu"), ("b", 1, "eu"))
    wrote(made, table, 3, EU, gone=("c",))
    table.agree()
    wrote(made, table, 4, EU, ("b", 2, "eu"), gone=("d",))
    wrote(made, table, 5, US, ("x", 2, "us"))
    made.commit(T(6), T(6, 500), bases={NEW: table.rows(("n", 6, "eu"))})
    table.put(("n", 6, "eu"))
    table.agree()

    table.java_write("upsert", ("a", 10, "eu"), ("y", 10, "us"), ("m", 10, "eu"), **JAVA)
    table.put(("a", 10, "eu"), ("y", 10, "us"), ("m", 10, "eu"))
    table.java_write("delete", ("x", 0, "us"), **JAVA)
    table.drop(("us", "x"))
    table.agree()

    (plan,) = table.java.sql(f"CALL run_compaction(op => 'schedule', path => '{table.path}')")
    table.agree()
    table.java.sql(f"CALL run_compaction(op => 'execute', path => '{table.path}', timestamp => {plan['timestamp']})")
    table.agree()
    assert table.coordinator().shown().logged == ()


@pytest.mark.in_ci
@pytest.mark.sampled(promise=LOGGED)
def test_every_type_comes_through_a_log_file_of_lakelock(share: Share) -> None:
    table = share(Layout("mor", schema=TYPES), create=False)
    made = hand_made(table)
    rows = [typed("a", 1), typed("b", 2), typed("c", 3)]
    made.commit(T(1), T(1, 500), bases={EU: table.rows(*rows)})
    table.put(*rows)
    wrote(made, table, 2, EU, typed("a", 4), typed("b", 5, empty=True))
    table.agree()


@pytest.mark.in_ci
@pytest.mark.sampled(promise=LOGGED)
def test_java_and_lakelock_go_by_the_positions_that_a_log_file_names_and_java_by_its_keys_if_asked(share: Share) -> None:
    """Rows are in another order than that of their keys; last, a log file names wrong positions, which shows who uses them."""
    table = share(Layout("mor", schema=SCHEMA), create=False)
    made = hand_made(table)
    first = [(key, 0, "eu") for key in ["d", "a", "f", "c", "b", "e"]]
    made.commit(T(1), T(1, 500), bases={EU: table.rows(*first)})
    table.put(*first)
    wrote(made, table, 2, EU, ("a", 2, "eu"), ("d", 2, "eu"), ("e", 2, "eu"), gone=("b", "f"))
    wrote(made, table, 3, EU, ("f", 3, "eu"), ("e", 3, "eu"), gone=("c", "a"))
    table.agree()
    assert keys(table.java.read(table.path, options=BY_KEYS)) == keys(table.by_java()) == ["d", "e", "f"]

    wrong = BasePositions(T(1), np.array([5]), np.array([0]))  # those of e and d
    made.commit(T(4), T(4, 500), logs={EU: LogChanges(made.keyed(table.rows(("f", 4, "eu"))), ["e"], wrong)})
    assert keys(table.by_java()) == keys(table.by_lakelock()) == ["f", "f"]
    assert keys(table.java.read(table.path, options=BY_KEYS)) == ["d", "f"]
