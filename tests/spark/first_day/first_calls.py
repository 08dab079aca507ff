"""What an engineer who knows Delta and Hudi typed in the first week, and what it does here: data for `test_first_day.py`.

The numbers are those of the calls as they were tried: 68, each of which is here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tests.spark.first_day.calls import HUDI, OURS, Day, Elsewhere, Told, Works, by_view, soon
from typer.testing import CliRunner

from lakelock.cli.main import app
from lakelock.spark_plugin import LakeTable, WriteResult, sql


def _new(day: Day, mode: str = "append", **options: str) -> list[tuple[object, ...]]:
    day.one.write.format("lakelock").mode(mode).options(**options).save(day.new)
    return [tuple(row) for row in LakeTable.for_path(day.spark, day.new).read().collect()]


def _files(day: Day) -> int:
    frame = day.spark.range(100).selectExpr("id + 100 AS id", "'z' AS month", "id AS v").coalesce(1)
    frame.write.format("lakelock").mode("append").option("maxRecordsPerFile", "25").save(day.path)
    return len(day.table.read("month = 'z'").inputFiles())


def _narrow(day: Day) -> int:
    day.one.selectExpr("cast(id AS int) id", "month", "v").write.format("lakelock").mode("append").save(day.path)
    return day.table.read("id = 9").count()


def _by_name(day: Day, statement: str) -> list[tuple[object, ...]]:
    sql(day.spark, f"CREATE OR REPLACE TEMPORARY VIEW first_calls USING lakelock OPTIONS (path '{day.path}')")
    day.one.createOrReplaceTempView("first_source")
    try:
        sql(day.spark, statement)
    finally:
        day.spark.catalog.dropTempView("first_calls")
        day.spark.catalog.dropTempView("first_source")
    return sorted(tuple(row) for row in day.table.read().collect())


MERGE = """MERGE INTO first_calls t
USING (SELECT 1L id, 'a' month, 10L v UNION ALL SELECT 2L, 'b', 0L UNION ALL SELECT 8L, 'c', 8L) s
ON t.id = s.id AND t.month = s.month
WHEN MATCHED AND s.v = 0 THEN DELETE
WHEN MATCHED THEN UPDATE SET v = s.v
WHEN NOT MATCHED THEN INSERT *
WHEN NOT MATCHED BY SOURCE AND t.v > 100 THEN DELETE
WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = t.v + 100"""


def _dynamic(day: Day) -> list[tuple[object, ...]]:
    day.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        return _by_name(day, "INSERT OVERWRITE first_calls SELECT 7L, 'a', 7L")
    finally:
        day.spark.conf.unset("spark.sql.sources.partitionOverwriteMode")


def _altered(day: Day) -> list[str]:
    for statement in (
        "ADD COLUMNS (x int)",
        "ADD COLUMN y int",
        "ALTER COLUMN x TYPE bigint",
        "RENAME COLUMN y TO z",
        "DROP COLUMN z",
    ):
        sql(day.spark, f"ALTER TABLE lakelock.`{day.path}` {statement}")
    return [f"{field.name} {field.dataType.simpleString()}" for field in day.table.read().schema]


def _built(day: Day) -> list[tuple[object, ...]]:
    merge = day.table.alias("t").merge(
        day.rows((1, "a", 10), (8, "c", 8)).alias("s"), F.expr("t.id = s.id AND t.month = s.month")
    )
    merge = merge.whenMatchedUpdate(set={"v": "s.v"}).whenNotMatchedInsert(values={"id": "s.id", "month": "s.month"})
    merge.whenNotMatchedBySourceUpdate(set={"v": F.lit(0)}).execute()
    return sorted(tuple(row) for row in day.table.read().collect())


def _merged_on(day: Day, on: object) -> int:
    day.table.merge(day.rows((1, "a", 10), (8, "c", 8)), on).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    return int(day.table.read().agg(F.sum("v")).head()[0])


def _not_executed(day: Day) -> int:
    day.table.merge(day.one, "target.id = source.id").whenNotMatchedInsertAll()
    return day.table.read().count()


def _duplicated(day: Day) -> object:
    source = day.rows((1, "a", 77)).alias("s")
    return day.table.alias("t").merge(source, "t.v = s.v").whenNotMatchedInsertAll().execute()


def _optimized(day: Day, chain: Callable[[LakeTable], object]) -> tuple[str, int]:
    day.table.insert(day.rows((4, "a", 4)))
    chain(day.table)
    first = day.table.history(1).head()
    return first["operation"], len(day.table.read("month = 'a'").inputFiles())


def _upserted(day: Day, **options: str) -> list[tuple[object, ...]]:
    day.rows((1, "a", 10), (9, "c", 9)).write.format("lakelock").mode("append").options(**HUDI, **options).save(day.path)
    return sorted(tuple(row) for row in day.table.read().collect())


def _with_operation(operation: str) -> dict[str, str]:
    return {"hoodie.datasource.write.operation": operation}


def _streamed(day: Day) -> object:
    source = str(day.folder / "stream")
    day.one.write.parquet(source)
    stream = day.spark.readStream.schema(day.one.schema).parquet(source).writeStream.format("lakelock")
    writer = stream.option("key", "id").partitionBy("month").option("checkpointLocation", str(day.folder / "checkpoint"))
    writer.trigger(availableNow=True).start(day.new).awaitTermination(120)
    return LakeTable.for_path(day.spark, day.new).detail().head()["partition_by"]


def _updating(day: Day) -> object:
    source = str(day.folder / "stream")
    day.one.write.parquet(source)
    counts = day.spark.readStream.schema(day.one.schema).parquet(source).groupBy("month").count()
    writer = counts.writeStream.format("lakelock").outputMode("update")
    query = writer.option("checkpointLocation", str(day.folder / "checkpoint")).start(day.path)
    return query.awaitTermination(60)


def _to_table(day: Day) -> object:
    source = str(day.folder / "stream")
    day.one.write.parquet(source)
    stream = day.spark.readStream.schema(day.one.schema).parquet(source).writeStream.format("lakelock")
    try:
        return stream.option("checkpointLocation", str(day.folder / "checkpoint")).toTable("first_calls_tt")
    finally:
        assert "first_calls_tt" not in [table.name for table in day.spark.catalog.listTables()]


def _by_all_names(day: Day) -> list[str]:
    module = import_module("lakelock.spark_plugin")
    return [name for name in ("LakeTable", "register", "sql", "transaction") if name not in dir(module)]


def _evolved(day: Day) -> list[str]:
    source = day.rows((1, "a", 10)).withColumn("w", F.lit(7))
    merge = day.table.merge(source, ["id", "month"]).withSchemaEvolution()
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    return day.table.read().columns


def _in_batches(day: Day) -> list[tuple[str, int, int]]:
    source, results, table = str(day.folder / "stream"), list[WriteResult](), day.table
    day.rows((1, "a", 10), (9, "c", 9)).write.parquet(source)

    def write(batch: DataFrame, number: int) -> None:
        results.append(table.upsert_batch(batch, number))

    writer = day.spark.readStream.schema(day.one.schema).parquet(source).writeStream.foreachBatch(write)
    checkpoint = str(day.folder / "checkpoint")
    writer.trigger(availableNow=True).option("checkpointLocation", checkpoint).start().awaitTermination(120)
    return [(each.operation, each.rows_inserted, each.rows_updated) for each in results]


def _called(day: Day, procedure: str) -> object:
    return day.spark.sql(f"CALL {procedure}".replace("PATH", day.path)).head()[0]


def _shown_history(day: Day) -> bool:
    with redirect_stdout(StringIO()) as shown:
        day.table.history().show()
    row = day.table.history().head()
    assert (row["operation"], row["rows"], row["retries"]) == ("INSERT", 3, 0), row
    return 60 < max(map(len, shown.getvalue().splitlines())) <= 120


def _told_by_the_command(day: Day, *command: str) -> tuple[int, bool]:
    done = CliRunner().invoke(app, [*command, day.path])
    return done.exit_code, "INSERT" in done.output


FIRST_CALLS: tuple[Works | Told | Elsewhere, ...] = (
    Works(1, "from lakelock import LakeTable", lambda d: import_module("lakelock").LakeTable is LakeTable, True, writes=False),
    Works(1, "dir(lakelock.spark_plugin)", _by_all_names, [], writes=False),
    Works(2, 'df.write.format("lakelock").save(p), new path', lambda d: d.one.write.format("lakelock").save(d.new), None),
    Works(
        2,
        '.mode("ignore"), existing path',
        lambda d: (d.one.write.format("lakelock").mode("ignore").save(d.path), d.table.read().count())[1],
        3,
        writes=False,
    ),
    Told(
        2,
        'df.write.format("lakelock").save(p), existing path',
        lambda d: d.one.write.format("lakelock").save(d.path),
        r'\.mode\("append"\) adds the rows',
    ),
    # Spark alone answers: no code of lakelock's has run in the driver by then. The how-to explains the message.
    Told(
        5,
        '.partitionBy("month"), no register(spark)',
        lambda d: d.one.write.format("lakelock").mode("append").partitionBy("month").save(d.new + "5"),
        "The provided partitioning or clustering columns do not match",
        sparks=True,
        registers=False,
    ),
    Works(3, 'mode("append"), new path, no key', _new, [(9, "c", 9)]),
    Works(3, 'mode("overwrite"), new path, no key', lambda d: _new(d, "overwrite"), [(9, "c", 9)]),
    Works(
        4,
        '.partitionBy("month"), new path, after register(spark)',
        lambda d: (
            d.one.write.format("lakelock").option("key", "id").partitionBy("month").mode("append").save(d.new),
            LakeTable.for_path(d.spark, d.new).detail().head()["partition_by"],
        )[1],
        ["month"],
    ),
    Works(6, 'writeStream.partitionBy("month"), new path', _streamed, ["month"]),
    Works(7, "int into a long column", _narrow, 1),
    Works(8, '.option("maxRecordsPerFile", 25), 100 rows', _files, 4),
    Works(
        9,
        '.option("partitionOverwriteMode", "dynamic")',
        lambda d: d.write("overwrite", partitionOverwriteMode="dynamic"),
        4,
    ),
    Told(
        10,
        '.option("replaceWhere", c)',
        lambda d: d.write("overwrite", replaceWhere="month = 'c'"),
        rf"{OURS}\.overwrite\(df, where=",
    ),
    Works(11, '.option("optimizeWrite", "true")', lambda d: d.write(optimizeWrite="true"), 4),
    Told(12, '.option("mergeShema", "true")', lambda d: d.write(mergeShema="true"), 'did you mean "mergeSchema"'),
    Told(
        13,
        "a new column",
        lambda d: d.one.withColumn("w", F.lit(1)).write.format("lakelock").mode("append").save(d.path),
        r"\bw\b",
    ),
    Told(
        13,
        "a wrong type",
        lambda d: d.one.selectExpr("id", "month", "'x' AS v").write.format("lakelock").mode("append").save(d.path),
        r"\bv\b.*string",
    ),
    Told(14, '.option("ignoreChanges", "true")', lambda d: d.read(ignoreChanges="true").count(), "skip_change_commits"),
    Told(15, '.option("timestampAsOf", "2036-…Z")', lambda d: d.read(timestampAsOf="2036-01-01T00:00:00Z").count(), "to come"),
    Told(16, 'load(p + "@v0")', lambda d: d.spark.read.format("lakelock").load(d.path + "@v0").count(), "is not a Hudi table"),
    Told(
        16, "load(a missing path)", lambda d: d.spark.read.format("lakelock").load(d.new + "x").count(), "is not a Hudi table"
    ),
    Told(
        17,
        'df.write.saveAsTable("t")',
        lambda d: d.one.write.format("lakelock").mode("append").saveAsTable("first_calls_s"),
        r"\.save\(path\), and then",
    ),
    Told(
        17,
        'df.writeTo("t").using("lakelock").create()',
        lambda d: d.one.writeTo("first_calls_n").using("lakelock").create(),
        r"\.save\(path\), and then",
    ),
    Told(
        18,
        "saveAsTable and a path, no register(spark)",
        lambda d: (
            d.one.write.format("lakelock").option("path", d.path).mode("append").saveAsTable("first_calls_s"),
            d.spark.table("first_calls_s").count(),
        ),
        r"\.save\(path\)",
        registers=False,
    ),
    Told(19, 'writeStream.toTable("t")', _to_table, r"start\(path\)"),
    Works(
        20,
        'spark.sql("SELECT … FROM lakelock.`p`")',
        lambda d: d.spark.sql(f"SELECT sum(v) FROM lakelock.`{d.path}`").head()[0],
        6,
        writes=False,
    ),
    Works(
        21,
        "sql(spark, INSERT with columns)",
        lambda d: len(_by_name(d, "INSERT INTO first_calls (v, id, month) SELECT v, id, month FROM first_source")),
        4,
    ),
    Works(
        22,
        "sql(spark, MERGE with all five clauses)",
        lambda d: _by_name(d, MERGE),
        [(1, "a", 10), (3, "a", 103), (8, "c", 8)],
    ),
    Works(
        23,
        "sql(spark, INSERT OVERWRITE)",
        lambda d: _by_name(d, "INSERT OVERWRITE first_calls SELECT 7L, 'a', 7L"),
        [(7, "a", 7)],
    ),
    Works(23, "sql(spark, INSERT OVERWRITE), dynamic", _dynamic, [(2, "b", 2), (7, "a", 7)]),
    Works(
        24,
        "sql(spark, INSERT OVERWRITE … PARTITION)",
        lambda d: _by_name(d, "INSERT OVERWRITE first_calls PARTITION (month = 'a') SELECT 7L, 7L"),
        [(2, "b", 2), (7, "a", 7)],
    ),
    Works(
        25,
        "sql(spark, DESCRIBE DETAIL)",
        lambda d: sql(d.spark, f"DESCRIBE DETAIL lakelock.`{d.path}`").head()["key"],
        ["id"],
        writes=False,
    ),
    Works(
        25,
        "sql(spark, DESCRIBE HISTORY … LIMIT 1)",
        lambda d: sql(d.spark, f"DESCRIBE HISTORY lakelock.`{d.path}` LIMIT 1").count(),
        1,
        writes=False,
    ),
    Works(
        26,
        "sql(spark, OPTIMIZE … WHERE, ZORDER BY)",
        lambda d: _optimized(d, lambda t: sql(d.spark, f"OPTIMIZE lakelock.`{t.path}` WHERE month = 'a' ZORDER BY (v)")),
        ("CLUSTER", 1),
    ),
    Works(
        26,
        "sql(spark, VACUUM … RETAIN … DRY RUN)",
        lambda d: sql(d.spark, f"VACUUM lakelock.`{d.path}` RETAIN 168 HOURS DRY RUN").count(),
        1,
        writes=False,
    ),
    Works(27, "sql(spark, ALTER TABLE …)", _altered, ["id bigint", "month string", "v bigint", "x bigint"]),
    *(
        Told(number, f"sql(spark, {statement})", lambda d, text=statement: _by_name(d, text), answer)
        for number, statement, answer in (
            (28, "ALTER TABLE first_calls ADD COLUMN c string AFTER id", "and then ALTER COLUMN name AFTER"),
            (29, "ALTER TABLE first_calls ADD CONSTRAINT positive CHECK (v > 0)", "before the write"),
            (29, "ALTER TABLE first_calls SET TBLPROPERTIES ('a' = 'b')", "lakelock config explain"),
            (29, "ALTER TABLE first_calls CLUSTER BY (v)", "ZORDER BY"),
            (30, "SHOW TBLPROPERTIES first_calls", "DESCRIBE DETAIL"),
            (31, "GENERATE symlink_format_manifest FOR TABLE first_calls", "as it is"),
            (31, "CREATE TABLE t SHALLOW CLONE first_calls", "createOrReplaceTempView"),
            (31, "REORG TABLE first_calls APPLY (PURGE)", "OPTIMIZE"),
            (31, "FSCK REPAIR TABLE first_calls", "lakelock doctor"),
            (31, "CONVERT TO DELTA parquet.`/tmp/x`", r"LakeTable\.from_parquet"),
            (31, "COPY INTO first_calls FROM '/tmp/x' FILEFORMAT = CSV", r"table\.insert"),
            (31, "SELECT * FROM table_changes('first_calls', 1)", r"\.changes\(since\)"),
            (32, "TRUNCATE TABLE first_calls", "DELETE FROM"),
            (32, "SHOW PARTITIONS first_calls", "SELECT DISTINCT"),
            (34, "CREATE TABLE t (a int) USING lakelock", r"LakeTable\.create"),
            (34, "CREATE TABLE t USING lakelock LOCATION '/tmp/x' AS SELECT 1 a", r"LakeTable\.create"),
            (35, "CREATE OR REPLACE TABLE lakelock.`/tmp/t` (a int)", r"LakeTable\.create"),
        )
    ),
    Told(
        29,
        "spark.sql(ADD CONSTRAINT)",
        lambda d: by_view(d, "ALTER TABLE first_day ADD CONSTRAINT a CHECK (v > 0)"),
        "the write",
    ),
    Told(30, "spark.sql(SHOW TBLPROPERTIES)", lambda d: by_view(d, "SHOW TBLPROPERTIES first_day"), "DESCRIBE DETAIL"),
    Told(
        33,
        "sql(spark, VERSION AS OF 1)",
        lambda d: sql(d.spark, f"SELECT * FROM lakelock.`{d.path}` VERSION AS OF 1"),
        "HISTORY",
    ),
    Told(
        33,
        "sql(spark, RESTORE … VERSION AS OF 1)",
        lambda d: sql(d.spark, f"RESTORE TABLE lakelock.`{d.path}` TO VERSION AS OF 1"),
        "HISTORY",
    ),
    Works(
        36,
        "forPath, alias, toDF, detail, history, update with the condition first, delete()",
        lambda d: (
            LakeTable.forPath(d.spark, d.path).alias("t").toDF().select("t.v").count(),
            d.table.update("id = 1", {"v": "20"}).rows_updated,
            d.table.update({"v": F.lit(7)}, F.col("id") == 2).rows_updated,
            d.table.delete().rows_deleted,
            d.table.history().count(),
        ),
        (3, 1, 1, 3, 4),
    ),
    *(
        Told(37, f"LakeTable.{name}", lambda d, name=name: getattr(LakeTable, name), answer)
        for name, answer in (
            ("createIfNotExists", "if_not_exists=True"),
            ("isDeltaTable", r"LakeTable\.exists"),
            ("convertToDelta", r"LakeTable\.from_parquet"),
        )
    ),
    *(
        Told(37, f"table.{name}", lambda d, name=name: getattr(d.table, name), answer)
        for name, answer in (
            ("generate", "as it is"),
            ("clone", r"insert\(table\.read\(\)\)"),
            ("restoreToVersion", r"table\.restore\(instant\)"),
            ("addFeatureSupport", "protocol|readers"),
        )
    ),
    Told(38, "LakeTable.create(spark, p, df)", lambda d: LakeTable.create(d.spark, d.new, d.one), r"\*, schema"),
    *(
        Told(39, f"table.{name}()", lambda d, name=name: getattr(d.table, name)(), r"table\.read\(\)")
        for name in ("count", "show", "df", "where")
    ),
    Told(39, "table.write()", lambda d: d.table.write(), r"table\.(insert|upsert)\(df\)"),
    Told(39, "table.append(df)", lambda d: d.table.append(d.one), r"table\.insert\(df\)"),
    Works(
        40,
        "merge builder: Column, dictionaries, a partial insert",
        _built,
        [(1, "a", 10), (2, "b", 0), (3, "a", 0), (8, "c", None)],
    ),
    Works(41, 'table.merge(df, "id")', lambda d: _merged_on(d, "id"), 23),
    Works(42, 'table.merge(df, ["id", "month"])', lambda d: _merged_on(d, ["id", "month"]), 23),
    Told(
        43,
        "merge, two rows of the source match one",
        lambda d: (
            d.table.alias("t")
            .merge(d.rows((1, "a", 5), (1, "a", 6)).alias("s"), "t.id = s.id AND t.month = s.month")
            .whenMatchedUpdateAll()
            .execute()
        ),
        r"\b1\b",
    ),
    Works(44, "merge(…).withSchemaEvolution()", _evolved, ["id", "month", "v", "w"]),
    Told(45, "merge inserts a key that exists", _duplicated, "upsert"),
    Works(46, "merge without execute()", _not_executed, 3),
    Works(
        47,
        "optimize().where(...).executeCompaction()",
        lambda d: _optimized(d, lambda t: t.optimize().where("month = 'a'").executeCompaction()),
        ("CLUSTER", 1),
    ),
    Works(
        47,
        "optimize().executeZOrderBy(...)",
        lambda d: _optimized(d, lambda t: t.optimize().executeZOrderBy("v")),
        ("CLUSTER", 1),
    ),
    Works(
        47,
        "optimize().where(...) alone rewrites nothing",
        lambda d: _optimized(d, lambda t: t.optimize().where("month = 'a'")),
        ("INSERT", 2),
    ),
    Works(48, "table.vacuum(168), table.vacuum(0)", lambda d: [d.table.vacuum(h).files for h in (168, 0)], [0, 0]),
    *(
        Told(49, f"table.{name}({value!r})", run, r"history\(\)|instant")
        for name, value, run in (
            ("restore", 1, lambda d: d.table.restore(1)),
            ("read", 1, lambda d: d.table.read(as_of=1)),
        )
    ),
    *(
        Told(50, f"table.read({value!r})", lambda d, value=value: d.table.read(as_of=value), r"history\(\)|instant")
        for value in (0, "")
    ),
    Told(
        49,
        "table.read(as_of=a date without a time)",
        lambda d: d.table.read(as_of=dt.date(2026, 11, 20)),
        "time|datetime|instant",
    ),
    Works(51, "table.changes(0)", lambda d: d.table.changes(0).count(), 3, writes=False),
    Works(51, 'table.changes(0, feed="commits")', lambda d: d.table.changes(0, feed="commits").count(), 3, writes=False),
    Told(51, 'table.changes("earliest")', lambda d: d.table.changes("earliest"), "changes|since|instant"),
    Told(52, "table.changes()", lambda d: d.table.changes(), "since"),
    Told(52, "table.read(version=1)", lambda d: d.table.read(version=1), "as_of"),
    Told(53, "upsert, a key twice", lambda d: d.table.upsert(d.rows((1, "a", 5), (1, "a", 6))), "duplicates|order_by"),
    Told(53, "upsert, a key that is null", lambda d: d.table.upsert(d.rows((None, "a", 5))), r"\bid\b"),
    Told(53, "update of a key column", lambda d: d.table.update({"id": "id + 1"}), r"\bid\b"),
    Told(53, "update of a partition column", lambda d: d.table.update({"month": "'x'"}), r"\bmonth\b"),
    Works(
        54,
        "a partition value with é, /, %, : and =",
        lambda d: (d.table.insert(d.rows((9, "é/ %:=a", 9))), d.table.read("month = 'é/ %:=a'").count())[1],
        1,
    ),
    Told(55, "table.insert(a pandas frame)", lambda d: d.table.insert(d.one.toPandas()), "createDataFrame|data frame"),
    Told(
        55,
        "an unknown setting",
        lambda d: LakeTable.for_path(d.spark, d.path, options={"lock.wait": 1}),
        'did you mean "lock.wait_s"',
    ),
    Told(
        55,
        "an unknown lock provider",
        lambda d: LakeTable.for_path(d.spark, d.path, options={"lock.provider": "zoo://h"}),
        "zookeeper",
    ),
    Works(56, "writeStream.foreachBatch, and what upsert_batch returns", _in_batches, [("UPSERT", 1, 1)]),
    Elsewhere(56, "writeStream, readStream, the change feed", "tests/spark/first_day/calls.py", "_streamed"),
    Told(57, 'writeStream.outputMode("update")', _updating, "upsert_batch"),
    Works(
        58,
        ".options(**hudi_options) without an operation: upsert",
        _upserted,
        [(1, "a", 10), (2, "b", 2), (3, "a", 3), (9, "c", 9)],
    ),
    Works(
        59,
        "operation upsert",
        lambda d: _upserted(d, **_with_operation("upsert")),
        [(1, "a", 10), (2, "b", 2), (3, "a", 3), (9, "c", 9)],
    ),
    Works(59, "operation delete", lambda d: _upserted(d, **_with_operation("delete")), [(2, "b", 2), (3, "a", 3)]),
    Works(
        59,
        "operation insert_overwrite",
        lambda d: _upserted(d, **_with_operation("insert_overwrite")),
        [(1, "a", 10), (2, "b", 2), (9, "c", 9)],
    ),
    Works(
        59,
        "operation insert_overwrite_table",
        lambda d: _upserted(d, **_with_operation("insert_overwrite_table")),
        [(1, "a", 10), (9, "c", 9)],
    ),
    Works(60, "operation bulk_insert", lambda d: len(_upserted(d, **_with_operation("bulk_insert"))), 5),
    Works(
        61,
        "tuning options of Hudi's",
        lambda d: len(
            _upserted(
                d,
                **{
                    "hoodie.upsert.shuffle.parallelism": "2",
                    "hoodie.clean.automatic": "true",
                    "hoodie.cleaner.commits.retained": "3",
                },
            )
        ),
        4,
    ),
    Told(
        62,
        "index.type=BUCKET on a table without",
        lambda d: _upserted(d, **{"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "256"}),
        "buckets",
    ),
    Told(
        63,
        "begin.instanttime",
        lambda d: d.read(**{"hoodie.datasource.read.begin.instanttime": "0"}).count(),
        rf"{OURS}\.changes\(since",
    ),
    Works(64, '.option("as.of.instant", t)', lambda d: d.read(**{"as.of.instant": soon()}).count(), 3, writes=False),
    Works(
        65, "hoodie.metadata.enable on a read", lambda d: d.read(**{"hoodie.metadata.enable": "true"}).count(), 3, writes=False
    ),
    *(
        Works(66, f"spark.sql(CALL {text})", lambda d, text=text: _called(d, text), result)
        for text, result in (
            ("run_clustering(path => 'PATH', predicate => \"month = 'a'\", order => 'v')", "run_clustering"),
            ("system.run_clean(path => 'PATH', hours_retained => 24)", "run_clean"),
            ("create_savepoint(path => 'PATH', name => 'monday')", "create_savepoint"),
        )
    ),
    Works(66, "CALL show_commits", lambda d: d.spark.sql(f"CALL show_commits(path => '{d.path}')").count(), 1, writes=False),
    Told(66, "CALL show_commits of a table of no view", lambda d: _called(d, "show_commits(table => 't')"), "path => "),
    Told(
        66, "CALL, a wrong argument", lambda d: _called(d, "show_commits(path => 'PATH', limits => 1)"), 'did you mean "limit"'
    ),
    Told(66, "CALL rollback_to_instant", lambda d: _called(d, "rollback_to_instant(path => 'PATH')"), r"table\.restore"),
    Told(
        66,
        "hudi_table_changes(…)",
        lambda d: d.spark.sql("SELECT * FROM hudi_table_changes('t', 'latest_state', '0')"),
        r"\.changes\(since\)",
    ),
    Works(
        67,
        "table.read().select(_hoodie_commit_time)",
        lambda d: (
            d.table.read().columns,
            d.table.read().where("_hoodie_record_key = '1'").select("id", "_hoodie_partition_path").collect(),
        ),
        (["id", "month", "v"], [(1, "month=a")]),
        writes=False,
    ),
    Works(
        67,
        "SELECT _hoodie_commit_time FROM lakelock.`p`",
        lambda d: d.spark.sql(f"SELECT DISTINCT _hoodie_commit_time FROM lakelock.`{d.path}`").count(),
        1,
        writes=False,
    ),
    Works(
        67,
        'option("include_meta", "true")',
        lambda d: d.read(include_meta="true").columns[0],
        "_hoodie_commit_time",
        writes=False,
    ),
    Works(68, "table.history().show() fits 120 columns", _shown_history, True, writes=False),
    Works(68, "lakelock history", lambda d: _told_by_the_command(d, "history"), (0, True), writes=False),
    Works(68, "lakelock commits ls", lambda d: _told_by_the_command(d, "commits", "ls"), (0, True), writes=False),
)
