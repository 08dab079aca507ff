"""`lakelock.spark_plugin.sql`: statements about lake tables by path or by the name of a view, and Spark's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from tests.sizes import in_ci
from tests.spark.sparks import since_spark_4

from lakelock.errors import InputError, LakelockError, SchemaError
from lakelock.spark_plugin import LakeTable, register, sql

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROWS = [(1, "berlin", 10.0), (2, "paris", 20.0), (3, "rome", 30.0)]
COLUMNS = "id long, shop string, price double"


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakeTable:
    register(spark)
    frame = spark.createDataFrame(ROWS, COLUMNS).coalesce(1)
    table = LakeTable.create(spark, tmp_path_factory.mktemp("sql") / "goods", schema=frame, key="id")
    table.insert(frame)
    return table


@pytest.fixture
def table(spark: SparkSession, made: LakeTable) -> Iterator[LakeTable]:
    """The table with `ROWS`, also as the temporary view `goods`."""
    made.overwrite(spark.createDataFrame(ROWS, COLUMNS).coalesce(1))
    spark.sql(f"create or replace temporary view goods using lakelock options (path '{made.path}')")
    yield made
    assert [row for row in spark.catalog.listTables() if row.name.startswith("_lakelock")] == []


def prices(table: LakeTable) -> list[float]:
    return sorted(row["price"] for row in table.read().collect())


def test_statements_change_a_table_by_its_path_and_by_the_name_of_a_view(spark: SparkSession, table: LakeTable) -> None:
    path = f"lakelock.`{table.path}`"
    done = sql(spark, f"UPDATE {path} SET price = price * 2 WHERE shop = :shop", {"shop": "berlin"}).head()
    assert (done["operation"], done["rows_updated"]) == ("UPDATE", 1)
    assert "1 updated" in done["summary"]
    sql(spark, "DELETE FROM goods WHERE goods.id = 2")
    sql(spark, f"INSERT INTO {path} VALUES (4, 'oslo', 40D)")
    spark.createDataFrame([(3, 31.0), (5, 50.0)], "id long, price double").createOrReplaceTempView("news")
    sql(
        spark,
        "MERGE INTO goods USING news ON goods.id = news.id WHEN MATCHED THEN UPDATE SET price = news.price "
        "WHEN NOT MATCHED THEN INSERT (id, price) VALUES (news.id, news.price)",
    )
    assert prices(table) == [20.0, 31.0, 40.0, 50.0]
    with pytest.raises(InputError, match="the source reads the table that the statement changes"):
        sql(spark, f"INSERT INTO goods SELECT * FROM {path}")
    assert prices(table) == [20.0, 31.0, 40.0, 50.0]


@pytest.mark.in_ci
def test_a_moment_is_read_and_restored_and_what_happened_is_described(spark: SparkSession, table: LakeTable) -> None:
    path = f"lakelock.`{table.path}`"
    before = table.history(1).head()["instant"]
    sql(spark, f"DELETE FROM {path}")
    assert sql(spark, f"SELECT count(*) FROM {path}").head()[0] == 0
    assert (
        sql(spark, f"SELECT sum(g.price) FROM {path} VERSION AS OF '{before}' g WHERE g.id > :id", {"id": 1}).head()[0] == 50.0
    )
    assert sql(spark, f"SELECT * FROM goods VERSION AS OF {before}").count() == 3
    with pytest.raises(InputError, match="which is still to come"):
        sql(spark, "SELECT * FROM goods TIMESTAMP AS OF '2099-01-01 12:00'")
    assert sql(spark, f"DESCRIBE HISTORY {path} LIMIT 1").head()["operation"] == "DELETE"
    assert sql(spark, "DESCRIBE DETAIL goods").head()["key"] == ["id"]
    assert sql(spark, f"RESTORE TABLE {path} TO VERSION AS OF '{before}'").head()["rows_inserted"] is not None
    assert len(prices(table)) == 3
    assert "OPTIMIZE" in sql(spark, f"OPTIMIZE {path} ZORDER BY (shop)").head()["summary"]
    assert sql(spark, f"VACUUM {path} RETAIN 1000 HOURS DRY RUN").head()["operation"] == "VACUUM"


@pytest.mark.in_ci
def test_columns_are_altered(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(1, "berlin", 10)], "id long, shop string, n int")
    path = f"lakelock.`{LakeTable.create(spark, tmp_path / 'altered', schema=rows, key='id').path}`"
    sql(spark, f"INSERT INTO {path} VALUES (1, 'berlin', 10)")
    sql(spark, f"ALTER TABLE {path} ADD COLUMNS (note string, gone decimal(5, 2))")
    sql(spark, f"ALTER TABLE {path} ALTER COLUMN n TYPE bigint")
    sql(spark, f"ALTER TABLE {path} ALTER COLUMN note AFTER id")
    sql(spark, f"ALTER TABLE {path} ALTER COLUMN n FIRST")
    assert sql(spark, f"ALTER TABLE {path} RENAME COLUMN shop TO store").head()["rows_inserted"] == 1
    assert sql(spark, f"ALTER TABLE {path} DROP COLUMN gone").head()["operation"] == "INSERT_OVERWRITE_TABLE"
    found = sql(spark, f"SELECT * FROM {path}")
    assert dict(found.dtypes) == {"n": "bigint", "id": "bigint", "note": "string", "store": "string"}
    assert [*found.columns, *found.head()] == ["n", "id", "note", "store", 10, 1, None, "berlin"]
    with pytest.raises(SchemaError, match="no column 'nowhere'"):
        sql(spark, f"ALTER TABLE {path} ALTER COLUMN n AFTER nowhere")
    sql(spark, f"ALTER TABLE {path} ADD COLUMNS (place struct<street: string, zip: string, floor: int>)")
    sql(spark, f"ALTER TABLE {path} ALTER COLUMN place.floor FIRST")
    sql(spark, f"ALTER TABLE {path} ALTER COLUMN place.street AFTER zip")
    assert dict(sql(spark, f"SELECT * FROM {path}").dtypes)["place"] == "struct<floor:int,zip:string,street:string>"
    with pytest.raises(SchemaError, match="no column 'place.nowhere'"):
        sql(spark, f"ALTER TABLE {path} ALTER COLUMN place.zip AFTER nowhere")


def test_a_time_is_one_of_the_sessions_zone(spark: SparkSession, table: LakeTable) -> None:
    then = table.history(1, full=True).head()["timestamp"]
    shown = spark.sql(f"SELECT timestamp_micros({int(then.timestamp() * 1_000_000) + 1_000}) + interval 1 second AS t")
    text = shown.selectExpr("date_format(t, 'yyyy-MM-dd HH:mm:ss.SSS')").head()[0]
    sql(spark, "UPDATE goods SET price = 0D")
    rows = sql(spark, f"SELECT price FROM goods TIMESTAMP AS OF '{text}'").collect()
    assert sorted(row["price"] for row in rows) in ([10.0, 20.0, 30.0], [0.0] * 3)
    assert sql(spark, "SELECT * FROM goods TIMESTAMP AS OF (current_timestamp() + interval 30 seconds)").count() == 3


@since_spark_4
def test_a_view_shows_its_table_as_it_is_now(spark: SparkSession, table: LakeTable, tmp_path: Path) -> None:
    copy = LakeTable.create(spark, tmp_path / "copy", schema=COLUMNS, key="id")
    spark.sql(f"create or replace temporary view few (price double, id long) using lakelock options (path '{table.path}')")
    spark.read.format("lakelock").load(table.path).createOrReplaceGlobalTempView("everywhere")
    then = table.history(1).head()["instant"]
    spark.sql(f"create or replace temporary view past using lakelock options (path '{table.path}', as_of '{then}')")
    assert sql(spark, "SELECT * FROM goods JOIN few USING (id)").count() == 3

    spark.sql("INSERT INTO goods VALUES (4, 'oslo', 40D)")
    assert sql(spark, "SELECT goods.id, count(*) AS goods FROM goods GROUP BY goods.id").count() == 4
    assert sql(spark, "WITH dear AS (SELECT * FROM goods) SELECT * FROM dear WHERE price > 30").head()["shop"] == "oslo"
    assert sql(spark, "SELECT max(e.price), count(*) FROM global_temp.everywhere e, few s WHERE e.id = s.id").head()[0] == 40.0
    assert sql(spark, "SELECT * FROM few").columns == ["price", "id"]
    assert sql(spark, "SELECT * FROM past").count() == 3
    sql(spark, f"INSERT INTO lakelock.`{copy.path}` SELECT * FROM goods")
    assert prices(copy) == [10.0, 20.0, 30.0, 40.0]
    with pytest.raises(InputError, match="the source reads `goods`, the table that the statement changes"):
        sql(spark, "INSERT OVERWRITE goods SELECT * FROM goods")

    spark.sql("CACHE TABLE goods")
    table.delete("id = 4")
    assert sql(spark, "SELECT * FROM goods").count() == 4, "whoever caches a view wants it to stay"
    spark.catalog.uncacheTable("goods")
    for name in ("few", "past"):
        spark.catalog.dropTempView(name)
    spark.catalog.dropGlobalTempView("everywhere")


@since_spark_4
def test_a_statement_takes_the_options_of_the_view_that_it_names(spark: SparkSession, tmp_path: Path) -> None:
    table = LakeTable.create(spark, tmp_path / "parts", schema=COLUMNS, key="id", partition_by="shop")
    table.insert(spark.createDataFrame(ROWS, COLUMNS).coalesce(1))
    then = table.history(1).head()["instant"]
    view = "create or replace temporary view some using lakelock options"
    spark.sql(f"{view} (path '{table.path}', partition 'shop=rome', 'retry.attempts' '3')")
    try:
        assert [row["id"] for row in sql(spark, f"SELECT id FROM some VERSION AS OF '{then}'").collect()] == [3]
        for text in ("DELETE FROM some", "UPDATE some SET price = 0D", "INSERT INTO some VALUES (4, 'oslo', 4D)"):
            with pytest.raises(InputError, match="shop="):
                sql(spark, text)
        sql(spark, "UPDATE some SET price = 31D WHERE shop = 'rome'")
        assert prices(table) == [10.0, 20.0, 31.0]
        spark.sql(f"{view} (path '{table.path}', 'hoodie.datasource.query.type' 'read_optimized')")
        with pytest.raises(InputError, match="the view `some` has the option query_type=read_optimized"):
            sql(spark, "DELETE FROM some")
        spark.sql(f"{view} (path '{table.path}', 'lock.provider' 'redis://nowhere.invalid:6379')")
        with pytest.raises(LakelockError, match=r"nowhere\.invalid|lock"):
            sql(spark, "DELETE FROM some")
        assert prices(table) == [10.0, 20.0, 31.0]
    finally:
        spark.catalog.dropTempView("some")


def test_every_other_statement_is_sparks(spark: SparkSession, table: LakeTable) -> None:
    assert sql(spark, "SELECT :a + 1", {"a": 1}).head()[0] == 2
    assert sql(spark, "SELECT sum(price) FROM goods").head()[0] == 60.0
    for text in ("DELETE FROM nobody WHERE a = 1", "DESCRIBE HISTORY nobody", "SELEC 1"):
        with pytest.raises(AnalysisException):
            sql(spark, text)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("SELECT * FROM goods VERSION AS OF 3", "DESCRIBE HISTORY lists them"),
        ("UPDATE goods SET id = 7", "record key"),
        *in_ci(
            ("SELECT * FROM goods TIMESTAMP AS OF 'soon'", "is no time"),
            ("CREATE TABLE t USING lakelock AS SELECT 1 a", "catalog keeps no path"),
            ("", "statement is an empty text"),
        ),
    ],
)
def test_what_cannot_be_run_is_refused_before_any_work(spark: SparkSession, table: LakeTable, text: str, answer: str) -> None:
    before = table.history().count()
    with pytest.raises(InputError) as caught:
        sql(spark, text)
    assert answer in str(caught.value)
    assert table.history().count() == before


@pytest.mark.in_ci
def test_a_cell_of_a_notebook_runs_a_statement(
    spark: SparkSession, table: LakeTable, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = InteractiveShell(user_ns={"spark": spark})
    try:
        shell.run_line_magic("load_ext", "lakelock.spark_plugin.jupyter")
        assert shell.run_cell(f"%%lakelock rows\nSELECT shop FROM lakelock.`{table.path}` WHERE id = 3").success
        assert "rome" in capsys.readouterr().out
        assert shell.user_ns["rows"].count() == 1
        assert shell.run_cell("%%lakelock\nDELETE FROM goods WHERE id = 3").success
        assert "1 deleted" in capsys.readouterr().out
        refused = shell.run_cell("%%lakelock two words\nSELECT 1")
        assert isinstance(refused.error_in_exec, InputError)
    finally:
        InteractiveShell.clear_instance()
