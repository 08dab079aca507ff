"""Bad input is one clear error, raised before any work, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.without_jobs import content, fill

from lakelock.errors import (
    InputError,
    ProviderMismatch,
    SchemaError,
    SettingsError,
    TableError,
    TransactionStateError,
    WriteFailed,
)
from lakelock.spark_plugin import LakeTable

COLUMNS = "id long, p string, v long, ts long"


def rows(spark: SparkSession, *values: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS)


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    made = LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p", order_by="ts")
    fill(made, (1, "a", 10, 5))
    return made


@pytest.fixture
def untouched(table: LakeTable) -> object:
    """After the test the table is as it was, with nothing pending and no stray file."""
    folder = Path(table.path.removeprefix("file://"))
    before = set(folder.rglob("*.parquet"))
    yield
    assert set(folder.rglob("*.parquet")) == before
    assert content(table) == [(1, "a", 10, 5)]
    assert list((folder / ".hoodie/.heartbeat").glob("*")) == []


def test_no_table_there(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"not a Hudi table.*hoodie.properties"):
        LakeTable.for_path(spark, tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_table_is_not_made_twice(spark: SparkSession, table: LakeTable) -> None:
    with pytest.raises(TableError, match="is a table already"):
        LakeTable.create(spark, table.path, schema=rows(spark), key="id")


def test_a_table_that_is_there_is_opened_on_demand_unless_it_is_another(spark: SparkSession, table: LakeTable) -> None:
    same = {"schema": rows(spark), "partition_by": "p", "order_by": "ts", "if_not_exists": True}
    with LakeTable.create(spark, table.path, key="id", **same) as again:  # type: ignore[arg-type]
        assert [tuple(row) for row in again.read().collect()] == [(1, "a", 10, 5)]
    with pytest.raises(TableError, match="key: id, p was given, the table has id"):
        LakeTable.create(spark, table.path, key=["id", "p"], **same)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"key": "idd"}, r"key column 'idd'.*did you mean 'id'"),
        ({"key": None, "order_by": "v"}, "table without a key has no order_by"),
        ({"key": []}, "key is an empty list"),
        ({"partition_by": "q"}, "partition column 'q'"),
        ({"order_by": "t"}, "ordering column 't'"),
        ({"options": {"lock.wait": 5}}, r'unknown setting.*did you mean "lock.wait_s"'),
    ],
)
def test_a_table_with_a_wrong_definition_is_not_made(
    spark: SparkSession, tmp_path: Path, change: dict[str, object], problem: str
) -> None:
    arguments: dict[str, object] = {"schema": rows(spark), "key": "id", **change}
    with pytest.raises(InputError, match=f"(?s){problem}"):
        LakeTable.create(spark, tmp_path / "new", **arguments)  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("verb", ["insert", "upsert", "overwrite_partitions"])
@pytest.mark.parametrize(
    ("select", "problem"),
    [
        ("p, v, ts", "key column 'id' is missing"),
        ("id, v, ts", "partition column 'p' is missing"),
        ("id, p, v", "ordering column 'ts' is missing"),
        ("id, p, v, ts, v extra", "extra: not a column of the table"),
        ("id, p, cast(v as string) v, ts", "v: string does not fit int64"),
        ("id, p, v, ts, 1 V", "cannot tell apart"),
    ],
)
def test_rows_that_do_not_fit_are_refused(spark: SparkSession, table: LakeTable, verb: str, select: str, problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        getattr(table, verb)(rows(spark, (2, "a", 1, 1)).selectExpr(*select.split(", ")))


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("verb", ["insert", "upsert", "overwrite_partitions"])
def test_a_row_without_its_key_is_refused(spark: SparkSession, table: LakeTable, verb: str) -> None:
    with pytest.raises(SchemaError, match="key column id is null in 1 row"):
        getattr(table, verb)(rows(spark, (5, "a", 1, 1), (None, "b", 1, 1)))


@pytest.mark.usefixtures("untouched")
def test_an_error_in_the_users_own_computation_is_told_in_one_line(spark: SparkSession, table: LakeTable) -> None:
    broken = rows(spark, (2, "a", 1, 1)).withColumn("v", F.raise_error("the rate is missing").cast("long"))
    with pytest.raises(WriteFailed, match="the rate is missing") as caught:
        table.insert(broken)
    assert len(str(caught.value)) < 1000
    assert caught.value.__cause__ is not None


@pytest.mark.usefixtures("untouched")
def test_a_condition_that_spark_does_not_understand_stays_sparks_error(spark: SparkSession, table: LakeTable) -> None:
    with pytest.raises(AnalysisException, match="nope"):
        table.delete("nope = 1")


@pytest.mark.usefixtures("untouched")
def test_what_is_no_batch_frame_is_refused(spark: SparkSession, table: LakeTable) -> None:
    with pytest.raises(InputError, match="needs a DataFrame of Spark, not list"):
        table.insert([(1, "a", 1, 1)])  # type: ignore[arg-type]
    stream = spark.readStream.format("rate").load()
    with pytest.raises(InputError, match="foreachBatch"):
        table.upsert(stream)
    for given, said in ((table, r"table\.read\(\)"), ("orders", r"spark\.table\(name\)")):
        with pytest.raises(InputError, match=said):
            table.upsert(given)
    for given in (True, [1]):
        with pytest.raises(InputError, match="or a data frame of Spark with the keys"):
            table.delete(given)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="without either every row is deleted"):
        table.delete("")
    with pytest.raises(InputError, match="for foreachBatch there is table.upsert_batch"):
        table.upsert(rows(spark, (3, "a", 1, 1)), 0)  # type: ignore[misc]
    with pytest.raises(InputError, match="limit is -1"):
        table.history(-1)
    with pytest.raises(SchemaError, match="leave out NOT NULL"):
        table.columns.add({"more": "string not null"})
    with pytest.raises(InputError, match=r'\{"note": "string"\}'):
        table.columns.add(["more string"])  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match=r"as a list: \['id', 'v'\]"):
        LakeTable.create(spark, f"{table.path}-new", schema="id int, v int", key="id, v")
    with pytest.raises(InputError, match="duplicates"):
        table.upsert(rows(spark), duplicates="first")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not running inside foreachBatch"):
        table.upsert_batch(rows(spark, (3, "a", 1, 1)), 0)


def test_two_writers_with_different_locks_are_kept_apart(spark: SparkSession, table: LakeTable) -> None:
    other = LakeTable.for_path(spark, table.path, options={"lock.provider": "memory:"})
    with pytest.raises(ProviderMismatch, match=r"guarded by the lock .*this writer"):
        other.insert(rows(spark, (2, "a", 1, 1)))
    assert table.read().count() == other.read().count() == 1


def test_a_transaction_is_used_once_and_inside_its_block(spark: SparkSession, table: LakeTable) -> None:
    tx = table.transaction()
    with pytest.raises(TransactionStateError, match="not begun"):
        tx.insert(rows(spark))
    with tx:
        tx.insert(rows(spark, (2, "a", 1, 1)))
    with pytest.raises(TransactionStateError, match="used before"), tx:
        pass
    with pytest.raises(TransactionStateError):
        tx.read()


def test_settings_come_from_options_then_spark_then_a_file(spark: SparkSession, path: str, tmp_path: Path) -> None:
    file = tmp_path / "lakelock.toml"
    file.write_text("[write]\ntarget_file_rows = 10\nrow_group_rows = 7\n")
    frame = spark.range(100)
    spark.conf.set("spark.lakelock.write.target_file_rows", "50")
    try:
        table = LakeTable.create(spark, path, schema=frame, key="id", config=file)
        assert table.insert(frame.coalesce(1)).files == 2
        other = LakeTable.for_path(spark, path, config=file, options={"write.target_file_rows": 20})
        assert other.insert(frame.coalesce(1)).files == 5
        spark.conf.set("spark.lakelock.write.targetrows", "50")
        with pytest.raises(SettingsError, match="spark conf"):
            LakeTable.for_path(spark, path)
    finally:
        for key in ("target_file_rows", "targetrows"):
            spark.conf.unset(f"spark.lakelock.write.{key}")


def test_the_columns_of_a_new_table_may_be_a_text_as_spark_takes_it(spark: SparkSession, path: str) -> None:
    table = LakeTable.create(spark, path, schema="id long not null, place struct<x: double, y: double>", key="id")
    assert table.schema.simpleString() == "struct<id:bigint,place:struct<x:double,y:double>>"


@pytest.mark.parametrize("schema", [["id", "v"], {"id": "long"}, None], ids=["a list", "a dict", "nothing"])
def test_a_schema_of_another_type_is_refused_before_anything_is_made(spark: SparkSession, path: str, schema: object) -> None:
    with pytest.raises(InputError, match="id bigint, name string"):
        LakeTable.create(spark, path, schema=schema, key="id")
    assert not Path(path).exists()
