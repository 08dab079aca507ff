"""`register` and `unregister`: which calls of Spark's writers they change, and what a user reads of an error."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.errors import ParseException, PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, DataFrameWriterV2, SparkSession
from pyspark.sql.catalog import Catalog
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.api import Coordinator, StorageLocation
from tests.sizes import in_ci

from lakelock.errors import InputError, LakelockError, SettingsError
from lakelock.spark_plugin import LakeTable, register, unregister
from lakelock.spark_plugin.source_overwrites import PAGE, ReadBefore, note_first_read, note_query

COLUMNS = "id long, day string, v long"
METHODS: list[tuple[type, str]] = [
    (SparkSession, "sql"),
    (SparkSession, "table"),
    (DataFrameWriter, "save"),
    (DataFrameWriter, "saveAsTable"),
    (DataFrameWriter, "insertInto"),
    (DataFrameWriterV2, "using"),
    (Catalog, "createTable"),
    (Catalog, "createExternalTable"),
    (DataStreamWriter, "start"),
    (DataStreamWriter, "toTable"),
]


@pytest.fixture(params=[False, *in_ci(True)], ids=["not registered", "registered"])
def registered(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[bool]:
    (register if request.param else unregister)(spark)
    yield request.param
    unregister(spark)


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    return LakeTable.create(spark, path, schema=COLUMNS, key="id", partition_by="day")


def rows(spark: SparkSession, *values: tuple[object, ...]) -> DataFrameWriter:
    return spark.createDataFrame(list(values or [(1, "a", 1)]), COLUMNS).coalesce(1).write


def streamed(spark: SparkSession, folder: Path) -> DataStreamWriter:
    rows(spark, (1, "a", 1), (2, "b", 2)).mode("overwrite").parquet(str(folder / "source"))
    writer = spark.readStream.schema(COLUMNS).parquet(str(folder / "source")).writeStream
    return writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)


def test_unregister_gives_sparks_writers_their_own_methods_back_and_both_may_be_called_twice(spark: SparkSession) -> None:
    unregister(spark)
    own = [getattr(writer, name) for writer, name in METHODS]
    for _ in range(2):
        register(spark)
    assert all(getattr(writer, name) is not method for (writer, name), method in zip(METHODS, own, strict=True))
    for _ in range(2):
        unregister(spark)
    assert [getattr(writer, name) for writer, name in METHODS] == own


def test_writers_of_other_formats_get_sparks_own_calls(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unregister(spark)
    seen: list[tuple[object, ...]] = []
    for writer, name in METHODS:
        if name == "table":  # by which the others look for views
            continue
        monkeypatch.setattr(writer, name, lambda self, *args, _name=name, **more: seen.append((_name, args, more)))
    register(spark)
    try:
        rows(spark).save("p", "parquet", "append", "day", compression="gzip")
        rows(spark).format("orc").save("p")
        rows(spark).format("orc").saveAsTable("t", mode="append")
        rows(spark).insertInto("t", overwrite=True)
        spark.catalog.createTable("t", source="orc", owner="me")
        spark.range(1).writeTo("t").using("parquet")
        streamed_to = spark.readStream.format("rate").load().writeStream
        streamed_to.format("console").start("p", outputMode="append")
        streamed_to.format("parquet").toTable("t", queryName="q")
    finally:
        unregister(spark)
    assert seen == [
        ("save", ("p", "parquet", "append", "day"), {"compression": "gzip"}),
        ("save", ("p",), {}),
        ("saveAsTable", ("t",), {"mode": "append"}),
        ("insertInto", ("t", True), {}),
        ("createTable", ("t", None, "orc"), {"owner": "me"}),
        ("using", ("parquet",), {}),
        ("start", ("p",), {"outputMode": "append"}),
        ("toTable", ("t",), {"queryName": "q"}),
    ]


def test_a_stream_partitions_the_table_that_it_makes_or_makes_none(spark: SparkSession, path: str, tmp_path: Path) -> None:
    register(spark)
    streamed(spark, tmp_path).partitionBy("day").format("lakelock").option("key", "id").start(path).awaitTermination(120)
    unregister(spark)
    with LakeTable.for_path(spark, path) as table:
        assert table.detail().head()["partition_by"] == ["day"]
        assert table.read("day = 'a'").count() == 1
    other = str(tmp_path / "other")
    writer = streamed(spark, tmp_path / "2").format("lakelock").option("key", "id")
    with pytest.raises(Exception, match=r"Spark does not pass on partitionBy(?s:.*)partition_by") as told:
        writer.partitionBy("day").start(other).awaitTermination(120)
    assert "Traceback" not in str(told.value)
    assert not LakeTable.exists(spark, other)


@pytest.mark.in_ci
def test_what_partition_by_says_of_a_stream_must_be_true_of_a_table_that_is_there(
    spark: SparkSession, table: LakeTable, tmp_path: Path
) -> None:
    register(spark)
    try:
        with pytest.raises(LakelockError, match="partition_by: v was given, the table has day"):
            streamed(spark, tmp_path).format("lakelock").partitionBy("v").start(table.path)
        streamed(spark, tmp_path).format("lakelock").partitionBy("day").start(table.path).awaitTermination(120)
        streamed(spark, tmp_path / "2").format("lakelock").start(table.path).awaitTermination(120)
    finally:
        unregister(spark)
    assert table.read().count() == 4


def test_no_call_that_gives_a_table_a_name_in_sparks_catalog_leaves_one_that_nobody_can_read(
    spark: SparkSession, path: str, tmp_path: Path
) -> None:
    register(spark)
    calls: list[Callable[[], object]] = [
        lambda: rows(spark).format("lakelock").option("path", path).mode("overwrite").saveAsTable("goods"),
        lambda: rows(spark).option("path", path).saveAsTable("goods", "lakelock", "append", "day", key="id"),
        lambda: spark.range(1).writeTo("default.goods").using("lakelock").option("path", path).create(),
        lambda: streamed(spark, tmp_path).format("lakelock").option("path", path).toTable("goods"),
        lambda: streamed(spark, tmp_path).option("path", path).toTable("goods", "lakelock", "append"),
    ]
    for call in calls:
        with pytest.raises(
            InputError, match=r"it could not be read as (default\.)?goods(?s:.*)createOrReplaceTempView\('goods'\)"
        ):
            call()
        assert [table.name for table in spark.catalog.listTables() if not table.isTemporary] == []
    statements = [
        f"CREATE TABLE goods (id long) USING lakelock LOCATION '{path}'",
        f"CREATE TABLE IF NOT EXISTS goods (id long) USING /* ours */ `LakeLock` OPTIONS (path '{path}')",
        f"CREATE TABLE goods USING lakelock LOCATION '{path}'",
        f"CREATE TABLE goods USING lakelock LOCATION '{path}' AS SELECT 1 AS id",
        "CREATE OR REPLACE TABLE goods (id long) USING lakelock",
    ]
    makers: list[Callable[[], object]] = [
        *(partial(spark.sql, statement) for statement in statements),
        lambda: spark.catalog.createTable("goods", path=path, source="lakelock", schema=spark.range(1).schema),
        lambda: spark.catalog.createExternalTable("goods", path, "LakeLock", spark.range(1).schema),
    ]
    for maker in makers:
        with pytest.raises(InputError, match="keeps no path for a table"):
            maker()
        assert [table.name for table in spark.catalog.listTables() if not table.isTemporary] == []
    unregister(spark)
    with pytest.raises(Exception, match="Spark's catalog keeps neither path nor options"):
        spark.sql(f"create table goods using lakelock location '{path}'")
    assert [table.name for table in spark.catalog.listTables() if not table.isTemporary] == []
    assert not Path(path).exists()


@pytest.mark.parametrize(
    "make",
    [
        lambda spark: spark.sql("CREATE TABLE goods (id long)"),
        lambda spark: spark.sql("create or replace table goods (id long)"),
        lambda spark: spark.sql("CREATE TABLE goods AS SELECT 1 AS id"),
        lambda spark: spark.catalog.createTable("goods", schema=spark.range(1).schema),
        lambda spark: spark.range(1).write.saveAsTable("goods"),
        lambda spark: spark.range(1).writeTo("goods").create(),
    ],
    ids=["CREATE", "REPLACE", "AS SELECT", "catalog", "saveAsTable", "writeTo"],
)
def test_no_name_is_made_where_the_session_s_own_format_is_lakelock(
    spark: SparkSession, make: Callable[[SparkSession], object]
) -> None:
    confs = {"spark.sql.sources.default": "lakelock", "spark.sql.legacy.createHiveTableByDefault": "false"}
    for name, value in confs.items():
        spark.conf.set(name, value)
    register(spark)
    try:
        with pytest.raises(InputError, match="keeps no path for a table"):
            make(spark)
    finally:
        unregister(spark)
        for name in confs:
            spark.conf.unset(name)
    assert [table.name for table in spark.catalog.listTables() if not table.isTemporary] == []


def test_an_overwrite_by_a_frame_that_reads_its_own_table_is_refused(spark: SparkSession, table: LakeTable) -> None:
    def frame(*values: tuple[object, ...]) -> DataFrame:
        return spark.createDataFrame(list(values), COLUMNS).coalesce(1)

    table.insert(frame((1, "a", 1)))
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW here USING lakelock OPTIONS (path '{table.path}')")
    here = spark.table("here")
    assert here.count() == 1
    table.insert(frame((2, "b", 2)))  # what the view does not show
    mine = {"format": "lakelock", "path": table.path}
    calls: list[Callable[[], object]] = [
        lambda: here.write.insertInto("here", overwrite=True),
        lambda: here.where("v > 0").write.mode("overwrite").insertInto("here"),
        lambda: here.write.save(mode="overwrite", **mine),
        lambda: here.write.save(mode="overwrite", overwrite="partitions", **mine),
        lambda: here.write.save(mode="append", operation="insert_overwrite", **mine),
        lambda: table.read().write.save(mode="overwrite", **mine),
    ]
    register(spark)
    try:
        for call in calls:
            with pytest.raises(InputError, match="the source reads the table that the statement changes"):
                call()
            assert table.read().count() == 2
        with table.transaction() as tx:  # as the error says
            rows_there = tx.read().selectExpr("id", "day", "v + 1 as v")
            tx.delete()
            tx.insert(rows_there)
        assert sorted(row["v"] for row in table.read().collect()) == [2, 3]
        frame((3, "a", 3)).write.insertInto("here", overwrite=True)
        assert [row["id"] for row in table.read().collect()] == [3]
        here.write.insertInto("here")  # appends what it showed
        assert table.read().count() == 2
    finally:
        unregister(spark)
        spark.catalog.dropTempView("here")


@pytest.mark.parametrize(
    "query",
    [
        "INSERT OVERWRITE here SELECT * FROM here",
        *in_ci(
            "INSERT OVERWRITE here SELECT id, day, max(v) FROM here GROUP BY id, day",
            "INSERT OVERWRITE here SELECT * FROM fine WHERE id NOT IN (SELECT id FROM here)",
            "INSERT OVERWRITE here SELECT * FROM fine UNION ALL SELECT * FROM here",
        ),
    ],
)
def test_without_register_an_overwrite_that_reads_its_own_table_of_before_is_refused(
    spark: SparkSession, table: LakeTable, query: str
) -> None:
    unregister(spark)
    table.insert(spark.createDataFrame([(1, "a", 1)], COLUMNS).coalesce(1))
    spark.createDataFrame([(3, "c", 3)], COLUMNS).coalesce(1).createOrReplaceTempView("fine")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW here USING lakelock OPTIONS (path '{table.path}')")
    try:
        assert spark.table("here").count() == 1
        table.insert(spark.createDataFrame([(2, "b", 2)], COLUMNS).coalesce(1))
        with pytest.raises(PySparkException, match="the overwrite reads the table that it replaces"):
            spark.sql(query)
        assert sorted(row["id"] for row in table.read().collect()) == [1, 2]
        assert not [entry for entry in table.history().collect() if entry["operation"] == "INSERT_OVERWRITE_TABLE"]
        spark.sql("INSERT OVERWRITE here SELECT * FROM fine")
        assert [row["id"] for row in table.read().collect()] == [3]
    finally:
        for name in ("here", "fine"):
            spark.catalog.dropTempView(name)


def test_without_register_an_overwrite_by_the_rows_that_are_there_runs(spark: SparkSession, table: LakeTable) -> None:
    unregister(spark)
    table.insert(spark.createDataFrame([(1, "a", 1)], COLUMNS).coalesce(1))
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW here USING lakelock OPTIONS (path '{table.path}')")
    spark.sql("INSERT OVERWRITE here SELECT id, day, v + 1 FROM here")
    assert [row["v"] for row in table.read().collect()] == [2]
    spark.catalog.dropTempView("here")


def test_without_register_an_overwrite_in_a_cluster_is_refused_once_the_table_has_changed_since_the_application_read_it(
    spark: SparkSession, table: LakeTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There a read of the same query may have run on another machine. Notes are kept for each application and table."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "driver"))
    (tmp_path / "driver").mkdir()
    with Coordinator.open(StorageLocation(table.path)) as coordinator:
        shown = coordinator.shown()
        assert ReadBefore.found(table.path, shown) is None
        note_first_read(table.path, shown)
        assert ReadBefore.found(table.path, shown) is None
        table.insert(spark.createDataFrame([(1, "a", 1)], COLUMNS).coalesce(1))
        found = ReadBefore.found(table.path, coordinator.shown())
    assert found is not None
    assert ReadBefore.found(f"{table.path}/other", shown) is None
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "executor"))
    with pytest.raises(InputError, match=r"read the table before it last changed(?s:.*)register\(spark\) once"):
        found.refuse_rows_of_it()


def test_notes_of_queries_are_few_and_a_query_that_is_older_than_them_counts_as_one_that_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    found = ReadBefore("file:///t", str(tmp_path))

    class Task:
        def __init__(self, number: int) -> None:
            self.number = number

        def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's word
            return str(self.number) if name == "spark.sql.execution.id" else None

    def run(number: int, call: Callable[[], None]) -> None:
        monkeypatch.setattr(TaskContext, "get", lambda: Task(number))
        call()

    run(7, found.refuse_rows_of_it)
    for number in (5, PAGE, 2 * PAGE):
        run(number, lambda: note_query("file:///t"))
        run(number + 1, found.refuse_rows_of_it)
        for refused in {5, number}:
            with pytest.raises(InputError, match="reads the table that it replaces"):
                run(refused, found.refuse_rows_of_it)
    assert len([each for each in tmp_path.rglob("*") if each.is_file()]) == 2


def test_without_register_a_write_that_would_leave_such_a_name_fails_in_its_first_task(
    spark: SparkSession, table: LakeTable, tmp_path: Path
) -> None:
    unregister(spark)
    mine, frame = {"path": table.path}, spark.createDataFrame([(1, "a", 1)], COLUMNS)
    before = table.history().count()
    calls: list[Callable[[], object]] = [
        lambda: rows(spark).format("lakelock").options(**mine).mode("append").saveAsTable("goods"),
        lambda: rows(spark).format("lakelock").options(**mine).mode("overwrite").saveAsTable("goods"),
        lambda: rows(spark).format("lakelock").options(**mine).saveAsTable("goods"),
        lambda: frame.writeTo("goods").using("lakelock").options(**mine).create(),
        lambda: frame.writeTo("goods").using("lakelock").options(**mine).createOrReplace(),
    ]
    for call in calls:
        with pytest.raises(Exception, match=r"it could not be read by its name(?s:.*)\.save\(path\)") as told:
            call()
        assert "Traceback" not in str(told.value)
        assert [found.name for found in spark.catalog.listTables() if not found.isTemporary] == []
    assert table.history().count() == before
    rows(spark).format("lakelock").mode("append").save(table.path)

    def each(batch: DataFrame, _: int) -> None:
        batch.write.format("lakelock").mode("append").save(table.path)

    streamed(spark, tmp_path).foreachBatch(each).start().awaitTermination(120)
    assert table.history().count() == before + 2


@pytest.mark.in_ci
def test_without_register_two_calls_leave_a_name_and_write_nothing(
    spark: SparkSession, table: LakeTable, tmp_path: Path
) -> None:
    """Spark asks the source for nothing when it makes them: `docs/reference-catalogs.md` says so."""
    unregister(spark)
    before = table.history().count()

    def create() -> None:
        spark.sql(f"CREATE TABLE goods (id long, day string, v long) USING lakelock LOCATION '{table.path}'")

    def stream() -> None:
        query = streamed(spark, tmp_path).format("lakelock").option("path", table.path).toTable("goods")
        with pytest.raises(PySparkException, match=r"it could not be read by its name(?s:.*)\.start\(path\); DROP TABLE"):
            query.awaitTermination(120)

    for call in (create, stream):
        call()
        assert [found.name for found in spark.catalog.listTables() if not found.isTemporary] == ["goods"]
        with pytest.raises(Exception, match=r"needs a path(?s:.*)DROP TABLE"):
            spark.table("goods").collect()
        spark.sql("DROP TABLE goods")
    assert table.history().count() == before, "dropping a name deletes nothing, either"
    assert table.read().count() == 0


def test_an_error_begins_with_the_sentence_that_helps(
    spark: SparkSession, table: LakeTable, registered: bool, tmp_path: Path
) -> None:
    path = table.path
    append = {"mode": "append", "path": path, "format": "lakelock"}
    told = {
        'unknown option "mergeshema"; did you mean "mergeSchema"?': lambda: rows(spark).save(**append, mergeShema="true"),
        "the key column id is null in 1 row": lambda: rows(spark, (None, "a", 1)).save(**append),
        "file:": lambda: rows(spark).save(**append, index="bucket:2"),
        "lakelock does not write the table": lambda: rows(spark).save(**append, **{"hoodie.index.type": "BUCKET"}),
        "lakelock does not take Delta's option versionAsOf": lambda: spark.read.load(path, "lakelock", versionAsOf=1),
        "'soon' is neither": lambda: streamed_from(spark, path, tmp_path),
    }
    rows(spark, (7, "b", 1)).save(**append)
    for sentence, call in told.items():
        with pytest.raises(Exception) as caught:  # noqa: PT011 - ours in the driver, Spark's from elsewhere
            call()
        text = str(caught.value)
        where = text.find(sentence)
        assert "Traceback" not in text and "File " not in text, text
        # Spark's own words before it: what failed, which query it was, and the class of the error.
        assert 0 <= where < 330, text
        assert not registered or text.startswith(sentence) or not isinstance(caught.value, SettingsError)
    assert "SPARK_HIDE_TRACEBACK" not in os.environ, "only processes of Spark's that end with the error hide tracebacks"
    assert table.read().count() == 1


def streamed_from(spark: SparkSession, path: str, folder: Path) -> None:
    stream = spark.readStream.format("lakelock").option("since", "soon").load(path).writeStream.format("noop")
    query = stream.option("checkpointLocation", str(folder / "from")).trigger(availableNow=True).start()
    query.awaitTermination(120)
    if query.exception() is not None:
        raise query.exception()


def test_a_view_shows_the_table_as_it_is_now(spark: SparkSession, table: LakeTable) -> None:
    views = ["CREATE OR REPLACE TEMPORARY VIEW Here", "CREATE OR REPLACE GLOBAL TEMPORARY VIEW everywhere"]
    queries = ["SELECT sum(v) FROM here", "FROM global_temp.everywhere SELECT sum(v)", "SELECT (SELECT sum(v) FROM `HERE`)"]
    queries += ["WITH it AS (TABLE here) SELECT it.v FROM range(1), it", "SELECT sum(v) FROM `in two words`"]
    register(spark)
    try:
        table.insert(spark.createDataFrame([(1, "a", 1)], COLUMNS))
        for view in views:
            spark.sql(f"{view} USING lakelock OPTIONS (path '{table.path}')")
        spark.read.format("lakelock").load(table.path).createOrReplaceTempView("`in two words`")
        first = table.history(1).head()["instant"]
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW then USING lakelock OPTIONS (path '{table.path}', as_of '{first}')")
        for v in (1, 2, 3):
            table.upsert(spark.createDataFrame([(1, "a", v)], COLUMNS))
            assert [spark.sql(query).head()[0] for query in queries] == [v] * 5
            assert spark.sql("TABLE here").head()["v"] == v
            table.upsert(spark.createDataFrame([(1, "a", v + 1)], COLUMNS))
            assert [spark.table(name).head()["v"] for name in ("here", "`global_temp`.everywhere", "then")] == [v + 1, v + 1, 1]
        spark.sql("UPDATE here SET v = v * 10")
        assert spark.sql("SELECT here.v FROM here JOIN then USING (id)").count() == 1
        assert [spark.sql(query).head()[0] for query in [*queries, "SELECT v FROM then"]] == [*[40] * 5, 1]
    finally:
        unregister(spark)
        for name in ("here", "then", "in two words"):
            spark.catalog.dropTempView(name)
        spark.catalog.dropGlobalTempView("everywhere")


def test_a_view_of_a_table_that_is_gone_can_be_dropped_and_made_again(spark: SparkSession, table: LakeTable, path: str) -> None:
    register(spark)
    try:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW here USING lakelock OPTIONS (path '{table.path}')")
        shutil.rmtree(path)
        with pytest.raises(Exception, match="is not a Hudi table"):
            spark.sql("SELECT * FROM here")
        assert spark.sql("SELECT nowhere FROM VALUES (1) AS t (nowhere)").count() == 1, "which names another"
        other = LakeTable.create(spark, f"{path}-other", schema=COLUMNS, key="id")
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW here USING lakelock OPTIONS (path '{other.path}')")
        assert spark.sql("SELECT * FROM here").count() == 0
        shutil.rmtree(f"{path}-other")
        spark.sql("DROP VIEW here")
    finally:
        unregister(spark)
        spark.catalog.dropTempView("here")


def test_what_spark_cannot_read_at_all_is_sparks_error_as_before(spark: SparkSession) -> None:
    register(spark)
    try:
        for text in ("SELECT 'open", "SELECT /* open"):
            with pytest.raises(ParseException):
                spark.sql(text)
    finally:
        unregister(spark)


def test_an_error_that_is_not_lakelocks_keeps_its_traceback(spark: SparkSession) -> None:
    from pyspark.sql.functions import udf

    broken = udf(lambda value: 1 / value, "double")
    with pytest.raises(Exception, match="(?s)Traceback.*ZeroDivisionError"):
        spark.range(1).select(broken("id")).collect()


def test_a_client_of_spark_connect_is_told_that_there_is_nothing_to_register() -> None:
    class Client:
        """As a session of Spark Connect: it has no JVM."""

    with pytest.raises(InputError, match="Spark Connect client"):
        register(Client())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "query",
    [
        "INSERT OVERWRITE here SELECT id, day, v + 1 FROM here",
        "WITH s AS (SELECT * FROM here) INSERT OVERWRITE TABLE here SELECT * FROM s",
        "insert overwrite here select * from fine where id in (select id from over_it)",
        *in_ci(
            "INSERT /* all of it */ OVERWRITE here SELECT * FROM here",
            "INSERT OVERWRITE here TABLE here",
            "FROM here INSERT OVERWRITE TABLE here SELECT *",
            "INSERT OVERWRITE IDENTIFIER('here') SELECT * FROM here",
            "INSERT INTO here REPLACE WHERE id > 0 SELECT * FROM here",
        ),
    ],
)
def test_an_overwrite_in_sql_that_reads_its_own_table_is_refused(spark: SparkSession, table: LakeTable, query: str) -> None:
    table.insert(spark.createDataFrame([(1, "a", 1)], COLUMNS).coalesce(1))
    spark.createDataFrame([(2, "b", 2)], COLUMNS).coalesce(1).createOrReplaceTempView("fine")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW here USING lakelock OPTIONS (path '{table.path}')")
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW over_it AS SELECT id FROM here")
    register(spark)
    try:
        with pytest.raises(InputError, match="the source reads the table that the statement changes"):
            spark.sql(query)
        assert table.read().count() == 1
        spark.sql("INSERT OVERWRITE here SELECT * FROM fine")
        assert [row["id"] for row in table.read().collect()] == [2]
    finally:
        unregister(spark)
        for name in ("here", "fine", "over_it"):
            spark.catalog.dropTempView(name)
