"""Everything that Java Hudi offers to readers works on a table that lakelock wrote."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import ArrowEngine
from tests.behaviour.placement.test_keyless import keys_of
from tests.behaviour.redo.test_redo import Watched
from tests.interop.shared import CHANGED_IN_SPARK, Layout, Shared, as_rows
from tests.spark.processes import PATIENT, WriterProcess

from lakelock.settings import Settings
from lakelock.table import base_files

Share = Callable[..., Shared]

# Two are left to tests and documents of their own: times without a zone, which hudi-rs cannot read, and null elements of lists,
# which Java's Parquet writer refuses by default.
EVERY_TYPE = pa.schema(
    [
        ("id", pa.string()),
        ("region", pa.string()),
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("big", pa.int64()),
        ("ratio", pa.float32()),
        ("exact", pa.float64()),
        ("price", pa.decimal128(12, 2)),
        ("huge", pa.decimal128(30, 10)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("place", pa.struct([("x", pa.float64()), ("name", pa.string())])),
    ]
)
NOON = datetime(2026, 11, 21, 12, 0, 0, 123456)
FULL_ROW = (
    "a", "eu", True, -7, 2**40, 0.5, 0.1, Decimal("12345.67"), Decimal("12345678901234567890.0123456789"), date(1969, 7, 20),
    NOON.replace(tzinfo=timezone.utc), b"\x00\xff", ["x", "y"], [("k", 1), ("l", None)], {"x": 1.5, "name": "Ø"},
)  # fmt: skip
EMPTY_ROW = ("b", "eu", *[None] * (len(EVERY_TYPE) - 2))


@pytest.mark.parametrize("apart_rows", [base_files.APART_ROWS, 1])
def test_values_of_every_type_come_through_both_ways(share: Share, apart_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from row groups that are put together from chunks, as those of many rows are."""
    monkeypatch.setattr(base_files, "APART_ROWS", apart_rows)
    table = share(Layout("types", schema=EVERY_TYPE))
    table.engine().insert(table.rows(FULL_ROW, EMPTY_ROW))
    table.put(FULL_ROW, EMPTY_ROW)
    table.agree()
    again = ("c", "eu", *FULL_ROW[2:])
    table.java_write("upsert", again, ("a", "eu", False, *FULL_ROW[3:]))
    table.put(again, ("a", "eu", False, *FULL_ROW[3:]))
    table.agree()
    table.engine().upsert(table.rows(("c", "eu", *EMPTY_ROW[2:]), ("b", "eu", *FULL_ROW[2:])))
    table.put(("c", "eu", *EMPTY_ROW[2:]), ("b", "eu", *FULL_ROW[2:]))
    table.agree()


def test_times_without_a_zone_come_through_both_ways(share: Share) -> None:
    """hudi-rs 0.5 cannot read a table with such a column, whoever wrote it."""
    schema = pa.schema([("id", pa.string()), ("region", pa.string()), ("at", pa.timestamp("us"))])
    table = share(Layout("local_times", schema=schema, hudi_rs=False))
    table.engine().insert(table.rows(("a", "eu", NOON), ("b", "eu", None)))
    table.put(("a", "eu", NOON), ("b", "eu", None))
    table.agree()
    table.java_write("upsert", ("b", "eu", NOON), ("c", "eu", NOON.replace(year=1969)))
    table.put(("b", "eu", NOON), ("c", "eu", NOON.replace(year=1969)))
    table.agree()


def test_a_table_without_a_key_is_read_by_all_and_appended_by_both(share: Share) -> None:
    table = share(Layout("keyless", keys=()))
    engine, row = table.engine(), ("a", 1, "eu")
    engine.insert(table.rows(row, row, ("b", 2, "us")))
    table.java_write("insert", row)
    engine.delete(pc.field("v") == 2)
    engine.insert(table.rows(row))
    for reader in (table.by_lakelock, table.by_hudi_rs, table.by_java):
        assert as_rows(reader(), table.layout.schema) == [row] * 4, reader.__name__
    keys = set(keys_of(engine))
    assert len(keys) == 4
    assert all(re.fullmatch(r"\d{17}_\d+_\d+", key) for key in keys), keys


@pytest.mark.in_ci
def test_java_travels_in_time_reads_increments_and_queries_by_sql(share: Share) -> None:
    table = share()
    engine = table.engine()
    first = engine.insert(table.rows(("a", 1, "eu"), ("b", 2, "us")))
    second = engine.upsert(table.rows(("a", 10, "eu")))
    schema = table.layout.schema

    def seen(**options: str) -> list[tuple[object, ...]]:
        named = {key.replace("__", "."): value for key, value in options.items()}
        return as_rows(table.java.read(table.path, options=named), schema)

    assert seen() == [("a", 10, "eu"), ("b", 2, "us")]
    for moment in (first.instant, first.completion, as_java_writes(first.completion)):
        assert seen(as__of__instant=moment) == [("a", 1, "eu"), ("b", 2, "us")], moment
    increment = {"hoodie__datasource__query__type": "incremental"}
    since = "hoodie__datasource__read__begin__instanttime"
    until = "hoodie__datasource__read__end__instanttime"
    assert seen(**increment, **{since: first.completion}) == [("a", 10, "eu")]
    assert seen(**increment, **{since: first.instant, until: first.completion}) == [("a", 1, "eu"), ("b", 2, "us")]
    assert seen(**increment, **{since: second.completion}) == []

    name = table.name
    table.java.sql(f"create table {name} using hudi location '{table.path}'")
    assert as_rows(table.java.read(query=f"select * from {name} where region = 'eu'"), schema) == [("a", 10, "eu")]
    past = f"select * from {name} timestamp as of '{first.instant}' where id = 'a'"
    assert as_rows(table.java.read(query=past), schema) == [("a", 1, "eu")]


def test_javas_procedures_tell_of_commits_of_lakelock(share: Share) -> None:
    table = share()
    engine = table.engine()
    first, second = engine.insert(table.rows(("a", 1, "eu"))), engine.upsert(table.rows(("a", 2, "eu"), ("b", 3, "us")))
    engine.delete(table.rows(("b", 0, "us")))
    name, sql = table.name, table.java.sql
    sql(f"create table {name} using hudi location '{table.path}'")
    commits = sql(f"call show_commits(table => '{name}', limit => 10)")
    assert [c["commit_time"] for c in commits][-2:] == [second.instant, first.instant]
    assert commits[-1]["total_records_written"] == 1 and commits[-2]["total_update_records_written"] == 1
    assert {row["instant_time"] for row in sql(f"call show_timeline(table => '{name}')")} >= {first.instant, second.instant}
    assert len(sql(f"call show_commit_files(table => '{name}', instant_time => '{second.instant}')")) == 2
    extra = sql(f"call show_commit_extra_metadata(table => '{name}', instant_time => '{first.instant}')")
    assert "lakelock.write_id" in {row["metadata_key"] for row in extra}
    of_second = f"table => '{name}', instant_time => '{second.instant}'"
    partitions = sql(f"call show_commit_partitions({of_second})")
    assert {row["partition_path"]: row["total_records_updated"] for row in partitions} == {"region=eu": 1, "region=us": 0}
    (written,) = sql(f"call show_commit_write_stats({of_second})")
    assert written["total_records_written"] == 2 and written["total_bytes_written"] > 0
    properties = {row["key"]: row["value"] for row in sql(f"call show_table_properties(path => '{table.path}', limit => 100)")}
    assert properties.items() >= {"hoodie.table.name": name, "hoodie.table.recordkey.fields": "id"}.items()
    assert sql(f"call show_invalid_parquet(path => '{table.path}')") == []
    view = sql(f"call show_fsview_all(table => '{name}')")
    assert {row["base_instant"] for row in view} >= {second.instant}, view


@pytest.mark.in_ci
@pytest.mark.sampled(promise=CHANGED_IN_SPARK)
def test_java_reads_and_writes_what_an_update_and_a_merge_of_lakelock_left(share: Share) -> None:
    by_month = pa.schema([("id", pa.string()), ("v", pa.int64()), ("month", pa.string())])
    table = share(Layout("changed", partitions=("month",), schema=by_month))
    table.engine().insert(table.rows(("a", 1, "1"), ("b", 2, "1"), ("c", 3, "2")))
    table.put(("a", 1, "1"), ("b", 2, "1"), ("c", 3, "2"))
    options = {**PATIENT, "lock.provider": Settings.resolve({}, file=table.hudi_file).settings.lock.provider}

    def changed(operation: str, argument: object) -> str:
        with WriterProcess(table.path, operation, argument, options=options) as writer:
            answer = writer.answer()
        assert answer["outcome"] == "committed", answer
        return str(answer["instant"])

    before = changed("update", [{"v": "v * 10"}, "id = 'b'"])
    table.put(("b", 20, "1"))
    table.agree()
    changed("merge", [["a", 7, "1"], ["d", 4, "2"]])
    table.put(("a", 7, "1"), ("d", 4, "2"))
    table.agree()

    increment = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": before}
    assert as_rows(table.java.read(table.path, options=increment), by_month) == [("a", 7, "1"), ("b", 20, "1"), ("d", 4, "2")]
    table.java_write("upsert", ("b", 21, "1"), ("e", 5, "2"))
    table.put(("b", 21, "1"), ("e", 5, "2"))
    table.agree()
    changed("update", [{"v": "v + 1"}, "id in ('a', 'e')"])
    table.put(("a", 8, "1"), ("e", 6, "2"))
    table.agree()


@pytest.mark.in_ci
def test_java_reads_and_writes_what_a_redo_of_lakelock_left(share: Share) -> None:
    """Files that a redo took over bear its instant in their name and rows, so that Java's increments find them."""
    table = share()
    regions = ("eu", "us", "asia")
    stored = [(key, 1, region) for region in regions for key in "ab"]
    table.engine().insert(table.rows(*stored))
    table.put(*stored)
    late: dict[str, object] = {"concurrency.early_conflict_detection": False}
    other = table.engine(**late)

    def meanwhile() -> None:
        before.append(other.upsert(table.rows(("a", 7, "us"))).instant)

    before: list[str] = []
    mine = ArrowEngine(table.coordinator(**late), Watched(written_2=meanwhile))
    brought = [(key, 2, region) for region in regions for key in "bn"]
    done = mine.upsert(table.rows(*brought))
    assert (done.attempts, done.files_kept) == (2, done.files - 1)
    table.put(("a", 7, "us"), *brought)
    table.agree()
    increment = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": before[0]}
    found = as_rows(table.java.read(table.path, options=increment), table.layout.schema)
    assert found == sorted([("a", 7, "us"), *brought], key=repr)
    again = [("a", 8, "eu"), ("n", 8, "asia"), ("z", 8, "us")]
    table.java_write("upsert", *again)
    table.put(*again)
    table.agree()
    table.engine().upsert(table.rows(("b", 9, "eu"), ("z", 9, "us")))
    table.put(("b", 9, "eu"), ("z", 9, "us"))
    table.agree()


def as_java_writes(instant: str) -> str:
    return f"{datetime.strptime(instant + '000', '%Y%m%d%H%M%S%f'):%Y-%m-%d %H:%M:%S.%f}"[:-3]
