"""A read, a delete or an overwrite opens only files that may have its rows; and gives what it gave without pruning."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.api import ArrowEngine, Coordinator, DataFile, StorageLocation
from tests.sizes import but, in_ci
from tests.spark.sparks import to_arrow

from lakelock.spark_plugin import LakeTable, reading
from lakelock.spark_plugin.reading import read_files
from lakelock.table.partitions import PartitionValues

COLUMNS = "id int, month int, who string, day date, v long"
NAMES = ["a", "b/c", "%41", "x=y", " ", None, "null"]
FIRST, SECOND = date(2026, 1, 1), date(2026, 12, 31)


def explained(frame: DataFrame) -> str:
    with redirect_stdout(io.StringIO()) as shown:
        frame.explain()
    return shown.getvalue()


@pytest.fixture(params=[True, *in_ci(False)], ids=["hive", "plain"])
def table(spark: SparkSession, path: str, request: pytest.FixtureRequest) -> LakeTable:
    """Three partition columns, nulls and odd names in them, and two files in most partitions."""
    keys = [
        (month, NAMES[(number + (month or 0)) % 7], day)
        for number, month in enumerate([1, 2, None] * 4)
        for day in (FIRST, None)
    ]
    rows = [(2 * n + twice, *key, n % 5) for n, key in enumerate(keys) for twice in (0, 1)]
    made = LakeTable.create(
        spark,
        path,
        schema=spark.createDataFrame([], COLUMNS),
        key="id",
        partition_by=["month", "who", "day"],
        hive_style=request.param,
    )
    rows = [(number, month, who, SECOND if number % 3 == 0 else day, v) for number, month, who, day, v in rows]
    for remainder in (0, 1):
        fill(made, [row for row in rows if row[0] % 2 == remainder])
    return made


def fill(table: LakeTable, rows: list[tuple[object, ...]]) -> None:
    """Insert rows without Spark, which is quicker."""
    beside = Coordinator.open(StorageLocation(table.path))
    schema = beside.schema().arrow
    ArrowEngine(beside).insert(pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema))


def unpruned(table: LakeTable) -> DataFrame:
    """The same files by their names, all values from the files."""
    files = Coordinator.open(StorageLocation(table.path)).snapshot().files
    return reading.read_files_by_name(SparkSession.active(), table.path.replace("file://", "file:"), files, table.schema)


def conditions(seed: int, count: int) -> list[str]:
    chance = random.Random(seed)
    leaves = [
        "month = 1", "month <> 1", "month in (1, 2)", "month in (2, null)", "month is null", "month > 1", "month <=> null",
        "month between 0 and 1", "cast(month as string) = '2'", "month + 1 = 2", "month = v", "who = 'a'", "who = ''",
        "who is null", "who <> 'b/c'", "who like 'b%'", "who > 'a'", "who in ('', '%41')", "coalesce(who, 'x') = 'x'",
        "who <=> '__HIVE_DEFAULT_PARTITION__'", "day = '2026-12-31'", "day < date'2026-06-01'", "year(day) = 2026",
        "day is not null", "day > timestamp'2026-01-01 00:00:00'", "v > 2", "v % 2 = 0", "id < 20", "true",
        "cast(null as boolean)",
    ]  # fmt: skip

    def grown(depth: int) -> str:
        if depth == 0 or chance.random() < 0.3:
            return chance.choice(leaves)
        kind = chance.choice(["and", "or", "not"])
        if kind == "not":
            return f"not ({grown(depth - 1)})"
        return f"({grown(depth - 1)}) {kind} ({grown(depth - 1)})"

    return [grown(3) for _ in range(count)]


@pytest.mark.in_ci
def test_a_pruned_read_gives_what_an_unpruned_one_gives(spark: SparkSession, table: LakeTable) -> None:
    whole, before = table.read(), unpruned(table)
    assert whole.schema == before.schema
    assert sorted(map(str, whole.collect())) == sorted(map(str, before.collect()))
    asked = conditions(seed=14, count=16)
    truths = before.select(
        "id", *[F.expr(f"({condition}) is true").alias(f"c{n}") for n, condition in enumerate(asked)]
    ).collect()
    chosen = [
        frame.select(F.lit(n).alias("n"), F.lit(how).alias("how"), "id")
        for n, condition in enumerate(asked)
        for how, frame in (("read", table.read(condition)), ("where", whole.where(condition)))
    ]
    found = {tuple(row) for row in reduce(DataFrame.union, chosen).collect()}
    expected = {(n, how, row["id"]) for n in range(len(asked)) for how in ("read", "where") for row in truths if row[f"c{n}"]}
    assert found == expected


def test_a_later_filter_shows_as_a_partition_filter_and_opens_no_other_partition(spark: SparkSession, table: LakeTable) -> None:
    chosen = table.read().where("month = 1 and v >= 0")
    assert "PartitionFilters: [isnotnull(month" in explained(chosen)
    expected = sorted(row.id for row in unpruned(table).where("month = 1").collect())
    assert len(expected) == 16
    with only_readable(table, "1"):
        assert sorted(row.id for row in chosen.collect()) == expected


def damaged(table: LakeTable, month: str) -> dict[Path, bytes]:
    """Damage the files of all other months, so that whoever opens one fails; what was in them."""
    root, kept = Path(table.path.removeprefix("file://")), (month, f"month={month}")
    others = [file for file in root.glob("*/*/*/*.parquet") if file.relative_to(root).parts[0] not in kept]
    contents = {file: file.read_bytes() for file in others}
    assert others
    for file, data in contents.items():
        file.write_bytes(b"x" * len(data))
    return contents


@contextmanager
def only_readable(table: LakeTable, month: str) -> Iterator[None]:
    """In the block only the files of this month can be opened."""
    contents = damaged(table, month)
    try:
        yield
    finally:
        for file, data in contents.items():
            file.write_bytes(data)


def test_no_operation_with_a_condition_opens_a_file_of_another_partition(spark: SparkSession, table: LakeTable) -> None:
    begin = table.history(full=True).collect()[-1]["completion"]
    mine = table.read("month = 1 and day is not null").count()
    one = table.read("month = 1").limit(1).collect()
    with only_readable(table, "1"):
        assert table.read("month = 1").count() > mine
        assert table.changes(begin, where="month = 1").count() == table.read("month = 1").count() // 2
        with table.transaction() as tx:
            assert tx.read("month = 1").where("day is null").count() > 0
            tx.insert(spark.createDataFrame([(1000, 1, "new", FIRST, 0)], COLUMNS))
        replacing = spark.createDataFrame(one, COLUMNS)
        table.overwrite(replacing.withColumn("v", F.lit(77).cast("long")), where=f"month = 1 and id = {one[0].id}")
        assert table.read("month = 1 and v = 77").count() == 1
        assert table.delete("month = 1 and day is not null").rows_deleted in range(mine, mine + 2)
    assert table.read("month = 1 and day is not null").count() == 0
    assert table.read("month = 2").count() > 0


def test_another_writer_in_another_partition_is_not_looked_at(spark: SparkSession, table: LakeTable) -> None:
    other = LakeTable.for_path(spark, table.path)
    with table.transaction() as tx:
        tx.read("month = 1 and v = 4").count()
        fill(other, [(2000, 2, "a", FIRST, 4)])
        damaged(table, "1")
        tx.insert(spark.createDataFrame([(2001, 1, "a", FIRST, 0)], COLUMNS))
    assert tx.result is not None and tx.result.rows_inserted == 1


def test_two_states_of_a_table_are_two_frames_to_spark(spark: SparkSession, table: LakeTable) -> None:
    before = table.read()
    before.createOrReplaceTempView("before")
    count = before.count()
    gone = table.read("id = 3").collect()
    table.delete("id = 3")
    after = table.read()
    assert before.exceptAll(after).collect() == gone
    assert before.join(after, "id", "left_anti").count() == 1
    before.persist()
    assert (before.count(), table.read().count()) == (count, count - 1)
    spark.catalog.refreshByPath(table.path)
    spark.sql("refresh table before")
    assert (before.count(), spark.table("before").count(), table.read().count()) == (count, count, count - 1)
    before.unpersist()


KINDS = {
    "boolean": [True, False, None],
    "date": [FIRST, date(1600, 2, 29), None],
    "timestamp": [
        datetime(2026, 3, 8, 7, 30, 0, 123456, tzinfo=timezone.utc),
        datetime(1969, 12, 31, 1, tzinfo=timezone.utc),
        None,
    ],
    "timestamp_ntz": [datetime(2026, 7, 8, 2, 30, 0, 1), None],
    "decimal(12,10)": [Decimal("1E-10"), Decimal("-1.5"), None],
    "long": [2**62, -1, None],
}


@pytest.mark.parametrize("kind", but(KINDS, {"date", "timestamp"}))
def test_partition_values_of_every_type_are_those_in_the_files(spark: SparkSession, path: str, kind: str) -> None:
    frame = spark.createDataFrame(list(enumerate(KINDS[kind])), f"id int, p {kind}")
    table = LakeTable.create(spark, path, schema=frame, key="id", partition_by="p")
    fill(table, [(number, value) for number, value in enumerate(KINDS[kind])])
    expected = frame.orderBy("id").collect()
    found = table.read()
    assert found.orderBy("id").collect() == unpruned(table).orderBy("id").collect() == expected
    # PySpark takes a time without a zone for one of this machine's zone.
    literals = [F.lit(str(row.p) if row.p and kind == "timestamp_ntz" else row.p).cast(kind) for row in expected]
    same = [found.where(F.col("p").eqNullSafe(literal)) for literal in literals]
    assert "PartitionFilters: [" in explained(same[0]) and "PartitionFilters: []" not in explained(same[0])
    assert reduce(DataFrame.union, same).orderBy("id").collect() == expected


def test_planning_asks_storage_for_nothing(spark: SparkSession) -> None:
    files = [DataFile(f"month={n % 12}", f"f{n}", "0-0-0", "20260101000000000", 1000) for n in range(500)]
    schema = spark.createDataFrame([], "id int, month int").schema
    values = PartitionValues({"month": pa.int32()}, hive_style=True, url_encode=True)
    frame = read_files(spark, "file:/no/such/folder", files, schema, values).where("month = 3")
    assert "(month" in explained(frame)
    assert len(read_files(spark, "file:/no/such/folder", files, schema).inputFiles()) == 500


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.collect())


VALUES = {
    **{kind: [value for value in values if value is not None] for kind, values in KINDS.items()},
    "string": ["a", "b" * 40, "b" * 39 + "c", "é\U0001f600", ""],
    "double": [-0.0, 1.5, float("nan"), float("-inf")],
    "binary": [bytearray(b"a"), bytearray(b"\xff")],
}


@pytest.mark.parametrize("kind", but(VALUES, {"string"}, {"timestamp", "decimal(12,10)"}))
def test_a_condition_on_any_column_gives_all_its_rows_and_opens_only_files_whose_range_fits(
    spark: SparkSession, path: str, kind: str
) -> None:
    frame = spark.createDataFrame(list(enumerate([*VALUES[kind], None])), f"id int, p {kind}")
    table = LakeTable.create(spark, path, schema=frame, key="id")
    for row in to_arrow(frame).to_pylist():
        fill(table, [(row["id"], row["p"])])  # each in a file of its own
    before = unpruned(table)
    for number in range(len(VALUES[kind])):
        value = frame.where(f"id = {number}").first().p
        literal = F.lit(str(value) if kind == "timestamp_ntz" else value).cast(kind)
        for condition in (F.col("p") == literal, F.col("p") > literal, F.col("p") <= literal, ~(F.col("p") == literal)):
            assert ids(table.read(condition)) == ids(before.where(condition))
        opened = len(table.read(F.col("p") == literal).inputFiles())
        # Long texts are recorded by their beginnings. NaN has no place in a range, and of binary values none is recorded.
        assert opened <= (2 if kind == "string" else 1) or kind in ("double", "binary")
    assert [row.p for row in table.read("p is null").collect()] == [None]
    assert len(table.read("p is null").inputFiles()) == 1
    assert len(table.read("id >= 1").inputFiles()) == len(VALUES[kind])


def test_a_delete_and_an_overwrite_open_only_files_whose_range_fits(spark: SparkSession, path: str) -> None:
    frame = spark.createDataFrame([(number, 10 * number) for number in range(4)], "id int, v long")
    table = LakeTable.create(spark, path, schema=frame, key="id")
    for number in range(4):
        fill(table, [(number, 10 * number)])
    others = {Path(file.removeprefix("file:")) for file in table.read("v <> 20").inputFiles()}
    contents = {file: file.read_bytes() for file in others}
    assert len(others) == 3
    for file in others:
        file.write_bytes(b"x")
    assert table.overwrite(spark.createDataFrame([(2, 21)], frame.schema), where="v > 15 and v < 25").rows_inserted == 1
    assert table.delete("v = 21").rows_deleted == 1
    for file, data in contents.items():
        file.write_bytes(data)
    assert sorted(row.v for row in table.read().collect()) == [0, 10, 30]
