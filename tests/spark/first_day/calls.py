"""The calls that a user of Delta or Hudi tries on the first day, and what each does here: data for `test_first_day.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.spark.without_jobs import content, fill

from lakelock.spark_plugin import LakeTable, sql

COLUMNS = "id long, month string, v long"
ROWS = [(1, "a", 1), (2, "b", 2), (3, "a", 3)]
HUDI = {
    "hoodie.table.name": "table",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "month",
}


class Day:
    """A session, and a table with `ROWS` that is made when a call first asks for it."""

    def __init__(self, spark: SparkSession, folder: Path, made: str = "") -> None:
        self.spark, self.folder, self._made = spark, folder, made

    def rows(self, *values: tuple[object, ...]) -> DataFrame:
        return self.spark.createDataFrame(list(values), COLUMNS).coalesce(1)

    @property
    def one(self) -> DataFrame:
        return self.rows((9, "c", 9))

    @property
    def table(self) -> LakeTable:
        if not self._made:
            self._made = str(self.folder / "table")
            schema = self.rows(*ROWS)
            fill(LakeTable.create(self.spark, self._made, schema=schema, key="id", partition_by="month"), *ROWS)
        return LakeTable.for_path(self.spark, self._made)

    @property
    def path(self) -> str:
        return self.table.path

    @property
    def new(self) -> str:
        return str(self.folder / "table")

    def read(self, **options: str) -> DataFrame:
        return self.spark.read.format("lakelock").options(**options).load(self.path)

    def write(self, mode: str = "append", path: str = "", **options: str) -> int:
        """The rows that the table has after one row was written."""
        self.one.write.format("lakelock").mode(mode).options(**options).save(path or self.path)
        return len(content(LakeTable.for_path(self.spark, path or self.path)))


Run = Callable[[Day], object]


@dataclass(frozen=True)
class Works:
    """The call gives `result`. `writes`: it changes the table, and gets one of its own."""

    number: int
    call: str
    run: Run
    result: object
    writes: bool = True


@dataclass(frozen=True)
class Told:
    """The call does nothing, and its error has the `answer`, a pattern of one line. `sparks`: the error is Spark's own.

    `registers`: after `register(spark)`, which the README asks for.
    """

    number: int
    call: str
    run: Run
    answer: str
    sparks: bool = False
    registers: bool = True


@dataclass(frozen=True)
class Elsewhere:
    """Tested elsewhere, because it needs another environment, or already: file and test."""

    number: int
    call: str
    file: str
    test: str


def _stream(day: Day) -> DataStreamWriter:
    source = str(day.folder / "source")
    day.one.write.parquet(source)
    writer = day.spark.readStream.schema(COLUMNS).parquet(source).writeStream.format("lakelock").trigger(availableNow=True)
    return writer.option("checkpointLocation", str(day.folder / "checkpoint"))


def _streamed(day: Day) -> int:
    _stream(day).start(day.path).awaitTermination(120)
    return day.table.read().count()


def _foreach_batch(day: Day) -> int:
    source, table = str(day.folder / "source"), day.table
    day.one.write.parquet(source)
    writer = day.spark.readStream.schema(COLUMNS).parquet(source).writeStream.foreachBatch(table.upsert_batch)
    writer.trigger(availableNow=True).option("checkpointLocation", str(day.folder / "checkpoint")).start().awaitTermination(120)
    return table.read().count()


def _stream_from(day: Day) -> int:
    frame, counts = day.spark.readStream.format("lakelock").load(day.path), []
    writer = frame.writeStream.foreachBatch(lambda batch, _: counts.append(batch.count()))
    query = writer.option("checkpointLocation", str(day.folder / "from")).trigger(availableNow=True).start()
    query.awaitTermination(120)
    return sum(counts)


def by_view(day: Day, sql: str) -> object:
    day.spark.sql(f"create or replace temporary view first_day using lakelock options (path '{day.path}')")
    try:
        return day.spark.sql(sql).head()[0]
    finally:
        day.spark.catalog.dropTempView("first_day")


def _made_by_another_session(day: Day, statement: str) -> None:
    """A name in the catalog that lakelock would refuse: made where `register` was not called."""
    day.spark._jsparkSession.sql(statement)


def _in_catalog(day: Day, sql: str) -> object:
    _made_by_another_session(
        day, f"create table first_day_t (id long, month string, v long) using lakelock location '{day.path}'"
    )
    try:
        return day.spark.sql(sql).collect()
    finally:
        day.spark.sql("drop table first_day_t")


def _written_to(day: Day) -> int:
    _made_by_another_session(day, "create table first_day_w (id long, month string, v long) using lakelock")
    try:
        day.one.writeTo("first_day_w").option("path", day.path).append()
    finally:
        day.spark.sql("drop table first_day_w")
    return day.table.read().count()


def _twice(day: Day, once: Callable[[], object]) -> int:
    once()
    once()
    return day.table.read().count()


def _session_conf(day: Day) -> object:
    day.spark.conf.set("spark.lakelock.lock.wait_s", "7")
    try:
        return day.write()
    finally:
        day.spark.conf.unset("spark.lakelock.lock.wait_s")


def _user_metadata(day: Day) -> object:
    day.write(userMetadata="nightly")
    return day.table.history(1, full=True).head()["tag"]


def _merge_schema(day: Day) -> object:
    frame = day.one.withColumn("w", F.lit(5))
    frame.write.format("lakelock").mode("append").option("mergeSchema", "true").save(day.path)
    return day.table.read("w = 5").count()


def _overwrite_schema(day: Day) -> object:
    frame = day.one.selectExpr("id", "month", "'x' as w")
    frame.write.format("lakelock").mode("overwrite").option("overwriteSchema", "true").save(day.path)
    return day.table.read().columns


def _history(day: Day) -> object:
    first = day.table.history(10, full=True).head()
    return first["operation"], first["rows_inserted"], first["timestamp"] is not None


def _detail(day: Day) -> object:
    row = day.table.detail().head()
    return row["name"], row["key"], row["partition_by"], row["files"], row["size_bytes"] > 0


def _made_by(day: Day, **options: str) -> object:
    return _made(day, day.write(path=day.new, **options))


def _made(day: Day, count: int) -> object:
    row = LakeTable.forPath(day.spark, day.new).detail().head()
    return count, row["key"], row["partition_by"], row["order_by"]


def _saved(day: Day, writer: DataFrameWriter, path: str) -> int:
    writer.format("lakelock").save(path)
    return LakeTable.for_path(day.spark, path).read().count()


def _made_by_arguments(day: Day) -> object:
    day.one.write.save(day.new, "lakelock", "append", "month", key="id", order_by="v")
    return _made(day, 1)


def _inserted_by_view(day: Day) -> int:
    day.spark.sql(f"create or replace temporary view first_day_i using lakelock options (path '{day.path}')")
    try:
        day.spark.sql("insert into first_day_i values (9, 'c', 9)")
    finally:
        day.spark.catalog.dropTempView("first_day_i")
    return day.table.read().count()


def _merged(day: Day) -> object:
    source = day.rows((1, "a", 10), (9, "c", 9)).alias("s")
    merge = day.table.alias("t").merge(source, condition="t.id = s.id and t.month = s.month")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    return sorted(row["v"] for row in day.table.toDF().collect())


def _merged_on(day: Day, on: str | list[str]) -> object:
    source = day.rows((1, "a", 9), (4, "b", 10))
    day.table.merge(source, on).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    return sorted(row.v for row in day.table.read().collect())


def _sum(day: Day, write: Callable[[LakeTable], object]) -> int:
    write(day.table)
    return int(day.table.read().agg(F.sum("v")).head()[0] or 0)


def _restored(day: Day) -> int:
    then = day.table.history(1).head()["instant"]
    day.table.delete()
    day.table.restore(then)
    return day.table.read().count()


def soon() -> str:
    """A time with a zone, after all that the table has, and not so late that it is refused as still to come."""
    return (datetime.now(timezone.utc) + timedelta(seconds=30)).isoformat(timespec="seconds")


MERGE = """MERGE INTO lakelock.`{path}` t USING (SELECT 1L id, 'a' month, 10L v) s ON t.id = s.id AND t.month = s.month
WHEN MATCHED THEN UPDATE SET *"""
OURS = r"LakeTable\.for_path\(spark, path\)"
SQL = "does not support|INVALID_SYNTAX|PARSE_SYNTAX_ERROR|UNSUPPORTED|not supported|UNRESOLVED_ROUTINE|TABLE_OR_VIEW_NOT_FOUND"

CALLS: tuple[Works | Told | Elsewhere, ...] = (
    Works(1, 'spark.read.format("lakelock").load(p)', lambda d: d.read().count(), 3, writes=False),
    Works(2, '.option("timestampAsOf", t with a zone)', lambda d: d.read(timestampAsOf=soon()).count(), 3, writes=False),
    Told(2, '.option("timestampAsOf", t)', lambda d: d.read(timestampAsOf="2026-11-20 12:00"), r'option\("as_of", .* in UTC'),
    Works(
        2,
        "table.read(options={timestampAsOf})",
        lambda d: d.table.read(options={"timestampAsOf": soon()}).count(),
        3,
        writes=False,
    ),
    Told(3, '.option("versionAsOf", 3)', lambda d: d.read(versionAsOf="3"), r'option\("as_of", instant\); table\.history\(\)'),
    Works(4, '.option("as.of.instant", t)', lambda d: d.read(**{"as.of.instant": soon()}).count(), 3, writes=False),
    Works(
        5,
        '.option("readChangeFeed", "true").option("since", ...)',
        lambda d: d.read(readChangeFeed="true", since="2020-01-01").where("_change_type = 'insert'").count(),
        3,
        writes=False,
    ),
    Told(
        5, '.option("readChangeFeed", "true")', lambda d: d.read(readChangeFeed="true").count(), r'option\("since", instant\)'
    ),
    Told(5, '.option("startingVersion", 1)', lambda d: d.read(startingVersion="1"), r'option\("since", instant\)'),
    Told(
        6,
        '.option("hoodie.datasource.query.type", "incremental")',
        lambda d: d.read(**{"hoodie.datasource.query.type": "incremental"}),
        rf"{OURS}\.changes\(since",
    ),
    Works(
        6,
        '.option("hoodie.datasource.query.type", "snapshot")',
        lambda d: d.read(**{"hoodie.datasource.query.type": "snapshot"}).count(),
        3,
        writes=False,
    ),
    Elsewhere(7, 'spark.read.format("hudi").load(p)', "tests/interop/test_java_reads.py", "test_"),
    Works(8, 'spark.readStream.format("lakelock").load(p)', _stream_from, 3, writes=False),
    Told(
        9,
        'spark.sql("select * from lakelock.`p`"), no register(spark)',
        lambda d: d.spark.sql(f"select * from lakelock.`{d.path}`"),
        SQL,
        sparks=True,
        registers=False,
    ),
    Works(
        9,
        'sql(spark, "select * from lakelock.`p`")',
        lambda d: sql(d.spark, f"select * from lakelock.`{d.path}`").count(),
        3,
        writes=False,
    ),
    Told(
        10,
        'spark.table("t"), made USING lakelock LOCATION',
        lambda d: _in_catalog(d, "select * from first_day_t"),
        r"a temporary view USING lakelock",
    ),
    Told(
        10,
        "CREATE TABLE t USING lakelock LOCATION, no columns",
        lambda d: d.spark.sql(f"create table first_day_u using lakelock location '{d.path}'"),
        "CREATE TEMPORARY VIEW t USING lakelock",
    ),
    Works(11, "temporary view USING lakelock, SELECT", lambda d: by_view(d, "select sum(v) from first_day"), 6, writes=False),
    Told(
        12,
        "SELECT ... TIMESTAMP AS OF, no register(spark)",
        lambda d: by_view(d, "select * from first_day timestamp as of '2026-11-20'"),
        SQL,
        sparks=True,
        registers=False,
    ),
    Works(
        12,
        "SELECT ... TIMESTAMP AS OF",
        lambda d: by_view(d, f"select sum(v) from first_day timestamp as of '{soon()}'"),
        6,
        writes=False,
    ),
    Works(
        12,
        'sql(spark, "SELECT ... TIMESTAMP AS OF")',
        lambda d: sql(d.spark, f"select * from lakelock.`{d.path}` timestamp as of '{soon()}'").count(),
        3,
        writes=False,
    ),
    Works(13, "table.read(as_of=t)", lambda d: d.table.read(as_of=soon()).count(), 3, writes=False),
    *(
        Told(13, f"table.read(as_of={moment!r})", lambda d, m=moment: d.table.read(as_of=m), r"as_of takes an instant")
        for moment in (0, "", 1, date(2026, 11, 20))
    ),
    Told(13, "table.read(version=1)", lambda d: d.table.read(version=1), r"as_of takes an instant"),
    Told(13, "table.changes()", lambda d: d.table.changes(), r'table\.changes\(0, feed="commits"\)'),
    Told(
        13, 'table.changes("yesterday")', lambda d: d.table.changes("yesterday"), "neither an instant time nor a date and time"
    ),
    *(
        Told(14, f"table.{name}", lambda d, name=name: getattr(d.table, name), rf"LakeTable has no '{name}'; next: table\.")
        for name in ("count", "show", "df", "where", "write", "append")
    ),
    Works(14, "table.read().where(\"month = 'a'\")", lambda d: d.table.read().where("month = 'a'").count(), 2, writes=False),
    Elsewhere(14, "table.read().where(...) prunes", "tests/spark/reading/test_pruned_reads.py", "test_"),
    Told(
        15,
        'df.write.format("lakelock").save(p), no register(spark)',
        lambda d: d.one.write.format("lakelock").save(d.path),
        '"Append" or "Overwrite"',
        sparks=True,
        registers=False,
    ),
    Told(
        15,
        'df.write.format("lakelock").save(existing)',
        lambda d: d.one.write.format("lakelock").save(d.path),
        r'\.mode\("append"\) adds the rows',
    ),
    Works(15, 'df.write.format("lakelock").save(new_path)', lambda d: _saved(d, d.one.write, d.new), 1),
    Works(15, '.mode("ignore").save(existing)', lambda d: _saved(d, d.one.write.mode("ignore"), d.path), 3, writes=False),
    Works(15, '.save(p, mode="append", key="id")', lambda d: _made_by_arguments(d), (1, ["id"], ["month"], "v")),
    Works(16, '.mode("append").save(new_path): a table without a key', _made_by, (1, [], [], None)),
    Works(
        16,
        '.option("key", "id").mode("append").save(new_path)',
        lambda d: _made_by(d, key="id", partition_by="month", order_by="v"),
        (1, ["id"], ["month"], "v"),
    ),
    Works(17, '.mode("append").save(existing)', lambda d: d.write(), 4),
    Works(18, '.mode("overwrite").save(existing)', lambda d: d.write("overwrite"), 1),
    Works(
        19, '.option("partitionOverwriteMode", "dynamic")', lambda d: d.write("overwrite", partitionOverwriteMode="dynamic"), 4
    ),
    Told(
        20,
        '.option("replaceWhere", c)',
        lambda d: d.write("overwrite", replaceWhere="month = 'c'"),
        rf"{OURS}\.overwrite\(df, where=",
    ),
    Works(21, '.option("overwriteSchema", "true")', _overwrite_schema, ["id", "month", "w"]),
    Works(22, '.option("mergeSchema", "true")', _merge_schema, 1),
    Works(
        23,
        '.option("txnAppId", a).option("txnVersion", n), twice',
        lambda d: _twice(d, lambda: d.write(txnAppId="job", txnVersion="1")),
        4,
    ),
    Works(24, '.option("userMetadata", x)', _user_metadata, "nightly"),
    Told(
        25,
        '.partitionBy("month")',
        lambda d: d.one.write.format("lakelock").mode("append").partitionBy("month").save(d.path),
        "partitioning",
        sparks=True,
        registers=False,
    ),
    Works(
        25,
        '.partitionBy("month"), true of the table',
        lambda d: _saved(d, d.one.write.mode("append").partitionBy("month"), d.path),
        4,
    ),
    Told(
        25,
        '.partitionBy("v"), not true of the table',
        lambda d: d.one.write.format("lakelock").mode("append").partitionBy("v").save(d.path),
        "partition_by: v was given, the table has month",
    ),
    Told(
        25,
        '.bucketBy(4, "id")',
        lambda d: d.one.write.format("lakelock").mode("append").bucketBy(4, "id").save(d.path),
        r'option\("index", "bucket:16"\)',
    ),
    Works(
        26,
        ".options(**hudi_options), operation insert",
        lambda d: d.write(**HUDI, **{"hoodie.datasource.write.operation": "insert"}),
        4,
    ),
    Works(26, ".options(**hudi_options), twice", lambda d: _twice(d, lambda: d.write(**HUDI)), 4),
    Told(26, ".options(**hudi_options), no register(spark)", lambda d: d.write(**HUDI), r"register\(spark\)", registers=False),
    Told(
        26,
        ".options(**hudi_options) of another table",
        lambda d: d.write(**{**HUDI, "hoodie.table.name": "other"}),
        "name: other was given, the table has table",
    ),
    Works(26, ".options(**hudi_options), new path", lambda d: _made_by(d, **HUDI), (1, ["id"], ["month"], None)),
    Works(
        27,
        '.option("hoodie.write.lock.provider", ...)',
        lambda d: d.write(**{"hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"}),
        4,
    ),
    Told(
        28,
        'spark.conf.set("spark.lakelock...") without register',
        _session_conf,
        r"call lakelock\.spark_plugin\.register\(spark\)",
    ),
    Told(
        29,
        'df.write.saveAsTable("t"), no register(spark)',
        lambda d: d.one.write.format("lakelock").mode("append").saveAsTable("first_day_s"),
        "needs a path",
        registers=False,
    ),
    Told(
        29,
        'df.write.option("path", p).saveAsTable("t")',
        lambda d: d.one.write.format("lakelock").mode("append").option("path", d.path).saveAsTable("first_day_s"),
        r"\.save\(path\), and then",
    ),
    Told(
        29,
        "CREATE TABLE t USING lakelock AS SELECT",
        lambda d: d.spark.sql(f"create table first_day_c using lakelock location '{d.path}' as select 1 id"),
        r"LakeTable\.create",
    ),
    Told(
        29,
        "INSERT INTO t, made USING lakelock LOCATION",
        lambda d: _in_catalog(d, "insert into first_day_t values (9, 'c', 9)"),
        "a temporary view USING lakelock",
    ),
    Works(29, "INSERT INTO a temporary view", _inserted_by_view, 4),
    Told(
        30,
        'df.writeTo("t").using("lakelock").create()',
        lambda d: d.one.writeTo("first_day_n").using("lakelock").option("path", d.path).create(),
        r"\.save\(path\), and then",
    ),
    Works(30, 'df.writeTo("t").option("path", p).append()', _written_to, 4),
    Works(31, 'df.writeStream.format("lakelock").start(p)', _streamed, 4),
    Told(
        31,
        'df.writeStream.outputMode("update")',
        lambda d: _stream(d).outputMode("update").start(d.path),
        r"foreachBatch\(table\.upsert_batch\)",
    ),
    Told(31, 'df.writeStream.toTable("t")', lambda d: _stream(d).toTable("first_day_t"), r"\.start\(path\), and then"),
    Works(32, "foreachBatch(table.upsert_batch)", _foreach_batch, 4),
    *(
        Told(33, f"{text}, no register(spark)", lambda d, text=text: by_view(d, text), SQL, sparks=True, registers=False)
        for text in ("update first_day set v = 1", "delete from first_day")
    ),
    Works(33, 'spark.sql("UPDATE a view ...")', lambda d: by_view(d, "update first_day set v = 1"), "UPDATE"),
    Works(33, 'spark.sql("DELETE FROM a view")', lambda d: by_view(d, "delete from first_day where v = 1"), "DELETE"),
    Works(33, 'table.sql("DELETE FROM table")', lambda d: _sum(d, lambda t: t.sql("DELETE FROM table WHERE v = 3")), 3),
    Works(
        33,
        'sql(spark, "MERGE ...")',
        lambda d: _sum(d, lambda t: sql(d.spark, MERGE.format(path=t.path))),
        15,
    ),
    Works(
        34,
        'sql(spark, "DESCRIBE HISTORY ...")',
        lambda d: sql(d.spark, f"DESCRIBE HISTORY lakelock.`{d.path}`").head()["operation"],
        "INSERT",
        writes=False,
    ),
    Elsewhere(
        34,
        'sql(spark, "VACUUM, OPTIMIZE, RESTORE ...")',
        "tests/spark/session_sql/test_session_sql.py",
        "test_a_moment_is_read_and_restored",
    ),
    *(
        Told(34, f"{text}, no register(spark)", lambda d, text=text: by_view(d, text), SQL, sparks=True, registers=False)
        for text in ("VACUUM first_day", "CALL run_clean(table => 'first_day')", "DESCRIBE HISTORY first_day")
    ),
    *(
        Works(34, f"spark.sql({text!r})", lambda d, text=text: by_view(d, text), result, writes=False)
        for text, result in (
            ("VACUUM first_day DRY RUN", "VACUUM"),
            ("CALL run_clean(table => 'first_day')", "run_clean"),
            ("DESCRIBE DETAIL first_day", "table"),
        )
    ),
    Works(35, "LakeTable.forPath(spark, p)", lambda d: LakeTable.forPath(d.spark, d.path).read().count(), 3, writes=False),
    Told(36, 'LakeTable.forName(spark, "db.t")', lambda d: LakeTable.forName(d.spark, "db.t"), OURS),
    Works(
        37,
        "LakeTable.exists(spark, p)",
        lambda d: (LakeTable.exists(d.spark, d.path), LakeTable.exists(d.spark, d.new + "x")),
        (True, False),
        writes=False,
    ),
    Told(
        37,
        "LakeTable.isDeltaTable(spark, p)",
        lambda d: LakeTable.isDeltaTable(d.spark, d.path),
        r"LakeTable\.exists\(spark, path\)",
    ),
    Told(37, "LakeTable.createIfNotExists(spark)", lambda d: LakeTable.createIfNotExists(d.spark), "if_not_exists=True"),
    Told(
        37,
        "LakeTable.create(spark, p, df)",
        lambda d: LakeTable.create(d.spark, d.new, d.one),
        r"name the arguments after the first: create\(spark, path, \*, schema, key",
    ),
    Works(
        38,
        'table.toDF(), table.alias("t")',
        lambda d: (d.table.toDF().count(), d.table.alias("t").toDF().select("t.v").count()),
        (3, 3),
        writes=False,
    ),
    Works(39, "table.merge(src, c).whenMatchedUpdateAll()...", _merged, [2, 3, 9, 10]),
    *(
        Works(39, f"table.merge(src, {on!r})", lambda d, on=on: _merged_on(d, on), [2, 3, 9, 10])
        for on in ("id", ["id"], ["id", "month"])
    ),
    Told(
        39,
        "table.merge(src, without aliases)",
        lambda d: d.table.merge(d.one, "id = id").when_matched_delete().execute(),
        r'"target\.id = source\.id", or the columns that are equal: table\.merge\(df, "id"\)',
    ),
    Told(
        39,
        'table.merge(src, ["colour"])',
        lambda d: d.table.merge(d.one, ["colour"]).when_matched_delete().execute(),
        "columns: id, month, v",
    ),
    Told(
        40,
        'df.mergeInto("t", c)',
        lambda d: d.one.mergeInto("first_day_m", F.lit(True)).whenNotMatched().insertAll().merge(),
        SQL,
        sparks=True,
    ),
    Works(41, 'table.update("id = 1", {"v": "2"})', lambda d: _sum(d, lambda t: t.update("id = 1", {"v": "20"})), 25),
    Works(
        41,
        "table.update(condition=..., set=...)",
        lambda d: _sum(d, lambda t: t.update(condition="id = 1", set={"v": "20"})),
        25,
    ),
    Told(
        42,
        "table.upsert(df_with_some_columns)",
        lambda d: d.table.upsert(d.one.select("id", "month")),
        r'write\.missing_columns.*"keep"',
    ),
    Works(43, 'table.delete("c")', lambda d: _sum(d, lambda t: t.delete("v = 3")), 3),
    Works(43, "table.delete(keys_df)", lambda d: _sum(d, lambda t: t.delete(d.rows((1, "a", 0)).select("id", "month"))), 5),
    Works(44, "table.delete()", lambda d: (_sum(d, lambda t: t.delete()), d.table.read().count()), (0, 0)),
    Told(44, "table.delete(None)", lambda d: d.table.delete(None), r"table\.delete\(\) deletes every row"),
    Works(45, "table.history(10)", _history, ("INSERT", 3, True), writes=False),
    Works(46, "table.detail()", _detail, ("table", ["id"], ["month"], 2, True), writes=False),
    Works(47, "table.vacuum(168)", lambda d: d.table.vacuum(168) is not None, True),
    Works(47, "table.optimize(sort_by=...).execute()", lambda d: d.table.optimize(sort_by="v").execute() is not None, True),
    Works(
        47,
        "table.optimize().where(...).executeCompaction()",
        lambda d: d.table.optimize().where("month = 'a'").executeCompaction() is not None,
        True,
    ),
    Works(47, 'table.optimize().executeZOrderBy("v")', lambda d: d.table.optimize().executeZOrderBy("v") is not None, True),
    *(
        Told(48, f"table.restore({moment!r})", lambda d, m=moment: d.table.restore(m), "as_of takes an instant")
        for moment in (0, "", 1)
    ),
    Told(48, "table.restoreToVersion(1)", lambda d: d.table.restoreToVersion(1), r"table\.restore\(instant\)"),
    Works(48, "table.restore(instant)", _restored, 3),
    Told(
        49,
        "LakeTable.convertToDelta(...)",
        lambda d: LakeTable.convertToDelta(d.spark, "parquet.`x`"),
        r"LakeTable\.from_parquet",
    ),
    Told(49, "table.clone(...)", lambda d: d.table.clone("x"), r"insert\(table\.read\(\)\)"),
    Told(49, "table.generate(...)", lambda d: d.table.generate("symlink_format_manifest"), "read this table as it is"),
    Works(50, "table.insert(df) twice: an append looks up no key", lambda d: _twice(d, lambda: d.table.insert(d.one)), 5),
    Works(50, "table.upsert(df) twice", lambda d: _twice(d, lambda: d.table.upsert(d.one)), 4),
    Told(
        51,
        'LakeTable.for_path(spark, "hdfs://...")',
        lambda d: LakeTable.for_path(d.spark, "hdfs:///t"),
        "names no name node or name service",
    ),
    Elsewhere(
        52,
        'LakeTable.for_path(spark, "s3a://...")',
        "tests/spark/trouble/test_file_systems.py",
        "test_a_table_on_s3_is_not_made_where_spark_could_not_read_it",
    ),
    Elsewhere(
        53, "Spark Connect session", "tests/spark/data_source/test_connect.py", "test_the_data_source_works_on_spark_connect"
    ),
    Elsewhere(54, "PySpark 3.5", "tests/interop/test_pyspark_3_5.py", "test_"),
    Elsewhere(55, "existing Hudi table, default options", "tests/interop/existing/test_java_made.py", "test_"),
    Works(
        56,
        "table.run(lambda tx: ...), again after a conflict",
        lambda d: (d.table.run(lambda tx: tx.delete("v = 3")), d.table.read().count())[1],
        2,
    ),
    Elsewhere(56, "with table.transaction() as tx, rejected", "tests/spark/writing/test_transactions.py", "test_"),
)
