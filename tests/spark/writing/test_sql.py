"""Statements in SQL through real Spark: each does what the operation of its name does, or is refused before any work."""

# ruff: noqa: PT012 - a transaction is a block

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.property.statements import gaps, statements, written
from tests.sizes import but, but_in_ci, in_ci
from tests.spark import without_jobs
from tests.spark.sparks import HAS_DATA_SOURCES

from lakelock.errors import ConflictError, InputError, LakelockError, SchemaError
from lakelock.spark_plugin import LakeTable
from lakelock.spark_plugin.merge_builder import When
from lakelock.spark_plugin.sql_changes import require_same_reading, statement_of
from lakelock.spark_plugin.sql_operations import Insert, Merge, Statement

COLUMNS = "id long, p string, v long, note string"
SOURCE = [(1, "a", 1, "x"), (2, "a", -1, "x"), (3, "b", 3, "gone"), (4, "c", 4, "new"), (5, "c", 5, "skip")]
ON = "target.id = d.id and target.p = d.p"

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("both_ways")]


def rows(spark: SparkSession, *values: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS)


def content(table: LakeTable) -> list[tuple[object, ...]]:
    return sorted(without_jobs.content(table, "id", "p", "v", "note"), key=repr)


def filled(spark: SparkSession, path: str) -> LakeTable:
    once = {"retry.attempts": 1}
    made = LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p", name="goods", options=once)
    without_jobs.fill(made, (1, "a", 10, "one"), (2, "a", 20, None), (3, "b", 30, "three"))
    return made


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    return filled(spark, path)


@pytest.fixture
def twin(spark: SparkSession, path: str) -> LakeTable:
    """Another table of the same content."""
    return filled(spark, f"{path}-twin")


@pytest.fixture(autouse=True)
def delivery(spark: SparkSession) -> DataFrame:
    frame = rows(spark, *SOURCE)
    frame.createOrReplaceTempView("delivery")
    return frame


SAME: dict[str, Callable[[LakeTable, DataFrame], object]] = {
    "UPDATE goods SET v = v - 15, note = concat('was; ''', v) WHERE v >= 20 -- all": (
        lambda t, _: t.update({"v": "v - 15", "note": "concat('was; \\'', v)"}, "v >= 20")
    ),
    "update GOODS as g set G.V = g.v + 1, `note` = CASE WHEN g.p = 'a' THEN upper(g.note) END": (
        lambda t, _: t.update({"v": "v + 1", "note": "CASE WHEN p = 'a' THEN upper(note) END"})
    ),
    "UPDATE goods SET v = NULL, note = goods.note || date'2020-01-01' WHERE goods.p = 'a' AND id < year(current_date())": (
        lambda t, _: t.update({"v": None, "note": "note || '2020-01-01'"}, "p = 'a'")
    ),
    "DELETE FROM goods WHERE note IS NULL OR v > 25;": lambda t, _: t.delete("note IS NULL OR v > 25"),
    "DELETE FROM goods AS g WHERE g.p = 'a'": lambda t, _: t.delete("p = 'a'"),
    "DELETE FROM goods": lambda t, _: t.delete("true"),
    "DELETE FROM goods WHERE id IN (SELECT id FROM delivery WHERE v > 0)": lambda t, _: t.delete("id IN (1, 3)"),
    "DELETE FROM goods g WHERE EXISTS (SELECT 1 FROM delivery d WHERE d.id = g.id AND d.v > g.v - 10)": (
        lambda t, _: t.delete("id = 1")
    ),
    "UPDATE goods SET v = 0 WHERE v > (SELECT avg(v) FROM delivery) AND id NOT IN (SELECT id FROM delivery WHERE id > 2)": (
        lambda t, _: t.update({"v": 0}, "id IN (1, 2)")
    ),
    "INSERT INTO goods SELECT id + 10, p, v, note FROM delivery WHERE v > 0": (
        lambda t, d: t.insert(d.where("v > 0").withColumn("id", F.col("id") + 10))
    ),
    "INSERT INTO goods (P, id, note) VALUES ('a', 7, 'se;ven'), ('z', 8, NULL)": (
        lambda t, d: t.insert(
            d.sparkSession.createDataFrame([("a", 7, "se;ven"), ("z", 8, None)], "p string, id int, note string")
        )
    ),
    "INSERT INTO goods BY NAME WITH c AS (SELECT *, 1 AS one FROM delivery) SELECT note AS NOTE, p, id + one AS id FROM c": (
        lambda t, d: t.insert(d.select("note", "p", (F.col("id") + 1).alias("id")))
    ),
    "INSERT INTO goods TABLE delivery": lambda t, d: t.insert(d),
    "INSERT OVERWRITE TABLE goods SELECT * FROM delivery": lambda t, d: t.overwrite(d),
    "INSERT INTO goods PARTITION (p = 'z') (note, id) SELECT note, id + 20 FROM delivery": (
        lambda t, d: t.insert(d.selectExpr("id + 20 AS id", "'z' AS p", "note"))
    ),
    "INSERT OVERWRITE TABLE goods PARTITION (p = 'a') SELECT id, v, note FROM delivery WHERE p = 'a'": (
        lambda t, d: t.overwrite(d.where("p = 'a'"), "p = 'a'")
    ),
    "INSERT OVERWRITE goods PARTITION (P) BY NAME SELECT * FROM delivery": lambda t, d: t.overwrite(d),
    "INSERT INTO goods REPLACE WHERE p = 'a' SELECT * FROM delivery WHERE p = 'a'": (
        lambda t, d: t.overwrite(d.where("p = 'a'"), "p = 'a'")
    ),
    "INSERT INTO goods (id, p) REPLACE WHERE note IS NULL AND goods.p < 'b' VALUES (9, 'a')": (
        lambda t, d: t.overwrite(rows(d.sparkSession, (9, "a", None, None)), "note IS NULL AND p < 'b'")
    ),
    (
        "MERGE INTO goods AS target USING (SELECT * FROM delivery) AS d ON target.id = d.id AND target.p = d.p "
        "WHEN MATCHED AND d.note = 'gone' THEN DELETE "
        "WHEN MATCHED AND d.v > 0 THEN UPDATE SET target.v = target.v + d.v "
        "WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED AND d.note = 'new' THEN INSERT (ID, p, v) VALUES (d.id, d.p, CASE WHEN d.v > 1 THEN 0 END) "
        "WHEN NOT MATCHED THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE"
    ): lambda t, d: (
        t.merge(d, ON, source_alias="d")
        .when_matched_delete("d.note = 'gone'")
        .when_matched_update({"v": "target.v + d.v"}, "d.v > 0")
        .when_matched_update_all()
        .when_not_matched_insert({"id": "d.id", "p": "d.p", "v": "CASE WHEN d.v > 1 THEN 0 END"}, "d.note = 'new'")
        .when_not_matched_insert_all()
        .when_not_matched_by_source_delete()
        .execute()
    ),
    (
        "MERGE INTO goods USING delivery ON goods.id = delivery.id AND goods.p = delivery.p "
        "WHEN MATCHED THEN UPDATE SET v = 0 WHEN NOT MATCHED BY SOURCE AND goods.p = 'a' THEN UPDATE SET note = 'alone'"
    ): lambda t, d: (
        t.merge(d, ON, source_alias="d")
        .when_not_matched_by_source_update({"note": "'alone'"}, "target.p = 'a'")
        .when_matched_update({"v": 0})
        .execute()
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "statement", but(SAME, list(SAME)[:1], [*list(SAME)[:2], *list(SAME)[::2]]), ids=lambda statement: statement[:60]
)
def test_a_statement_does_what_the_operation_of_its_name_does(
    table: LakeTable, twin: LakeTable, delivery: DataFrame, statement: str
) -> None:
    result, wanted = table.sql(statement), SAME[statement](twin, delivery)
    assert content(table) == content(twin)

    def counts(done: object) -> list[object]:
        names = ("operation", "rows_inserted", "rows_updated", "rows_deleted", "files")
        return [getattr(done, name) for name in names]

    assert counts(result) == counts(wanted)


def test_an_overwrite_replaces_the_partitions_that_the_session_asks_for(spark: SparkSession, table: LakeTable) -> None:
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        table.sql("INSERT OVERWRITE goods PARTITION (p) SELECT * FROM delivery WHERE p = 'a'")
        assert content(table) == [(1, "a", 1, "x"), (2, "a", -1, "x"), (3, "b", 30, "three")]
        table.sql("INSERT OVERWRITE goods PARTITION (p = 'a') SELECT 7, 0, 'all'")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert content(table) == [(3, "b", 30, "three"), (7, "a", 0, "all")]


@pytest.mark.parametrize("ansi", ["true", *in_ci("false")])
def test_a_number_in_partition_names_one_partition_of_a_column_of_texts(spark: SparkSession, path: str, ansi: str) -> None:
    table = LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p", name="goods")
    without_jobs.fill(table, (1, "1", 10, "one"), (2, "01", 20, "another"), (3, "x", 30, "no number"))
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        table.sql("INSERT OVERWRITE goods PARTITION (p = 1) SELECT 7, 0, 'new'")
        with pytest.raises(InputError, match="PARTITION gives p the value 1.5, which is no int"):
            whole = LakeTable.create(spark, f"{path}-whole", schema="id long, p int", key="id", partition_by="p", name="whole")
            whole.sql("INSERT INTO whole PARTITION (p = 1.5) SELECT 7")
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    assert content(table) == [(2, "01", 20, "another"), (3, "x", 30, "no number"), (7, "1", 0, "new")]


def test_a_partition_of_an_insert_must_be_one_of_the_tables(table: LakeTable) -> None:
    before = content(table)
    for statement, problem in {
        "INSERT OVERWRITE goods PARTITION (v = 1) SELECT 7, 'a', 'x'": "PARTITION names v, which is no partition column",
        "INSERT OVERWRITE goods PARTITION (p = 'a') SELECT 7, 'a', 1, 'x'": "4 columns for the 3 columns id, v, note",
        "INSERT INTO goods PARTITION (p = 'a') (id, p) SELECT 7, 'a'": "gives p two values",
        "INSERT INTO goods PARTITION (p = 'a') BY NAME SELECT 7 AS id, 'b' AS p": "gives p two values",
    }.items():
        with pytest.raises(InputError, match=problem):
            table.sql(statement)
    assert content(table) == before


VALUES = [
    ("long", 5), ("long", -7), ("long", -(2**63)), ("long", None), ("boolean", True), ("double", -0.1), ("double", 1e300),
    ("string", "it's; -- `x` \\ \" :a /*"), ("string", ""), ("string", "ü😀\n\t\0"), ("binary", b"\0'\\"),
    ("decimal(20,4)", Decimal("-12.3400")), ("date", date(1582, 10, 4)),
    # The clocks of New York are set back here, so two moments have this local time.
    ("timestamp", datetime(2025, 11, 2, 6, 30, 0, 123456, tzinfo=timezone.utc)),
    ("timestamp", datetime(2025, 11, 2, 5, 30, tzinfo=timezone.utc)),
]  # fmt: skip


@pytest.mark.in_ci
def test_a_marker_stands_for_exactly_its_value(spark: SparkSession, path: str) -> None:
    columns = ", ".join(["id long", *[f"x{at} {type_}" for at, (type_, _) in enumerate(VALUES)]])
    args = {f"x{at}": value for at, (_, value) in enumerate(VALUES)}
    names = list(args)
    given, equal = ",".join(f":{name}" for name in names), " AND ".join(f"{name} <=>:{name}" for name in names)
    made = LakeTable.create(spark, path, schema=spark.createDataFrame([], columns), key="id", name="goods")
    made.sql(f"INSERT INTO goods VALUES (:id, {given})", {"id": 1, **args})
    made.sql("INSERT INTO goods (id) VALUES (2)", {"unused": 5})
    sets = ",".join(f"{name} =:{name}" for name in names)
    assert made.sql(f"UPDATE goods SET {sets} WHERE id -:zero -:minus = :three", {"zero": 0, "minus": -1, "three": 3, **args})
    done = made.sql(
        f"MERGE INTO goods USING (SELECT :id AS id, {given}) AS s ON goods.id = s.id "
        f"WHEN NOT MATCHED THEN INSERT (id, {','.join(names)}) VALUES (s.id, {given})",
        {"id": 3, **args},
    )
    assert done.rows_inserted == 1
    assert made.sql(f"DELETE FROM goods WHERE id = 3 AND {equal}", args).rows_deleted == 1
    wanted = spark.createDataFrame([(number, *args.values()) for number in (1, 2)], columns)
    assert sorted(map(tuple, made.read().collect())) == sorted(map(tuple, wanted.collect()))


@pytest.mark.parametrize("value", [[1], {"a": 1}, 5 + 3j, F, Decimal("NaN")], ids=str)
def test_a_value_that_no_literal_is_exactly_is_refused(settled: LakeTable, value: object) -> None:
    with pytest.raises(InputError, match="no literal in SQL is exactly"):
        settled.sql("UPDATE goods SET v = :v", {"v": F.col("v") if value is F else value})


def test_a_statement_names_the_table_by_its_name_or_its_path(table: LakeTable, path: str) -> None:
    names = ["goods", "GOODS", "`Goods`", "goods AS mine", f"lakelock.`{path}`", f"LakeLock.`file:{path}/` AS mine"]
    for name in names:
        qualifier = "mine." if name.endswith("mine") else ""
        assert table.sql(f"UPDATE {name} SET v = {qualifier}v + 1 WHERE {qualifier}id = 1").rows_updated == 1
    assert content(table)[0] == (1, "a", 10 + len(names), "one")


REFUSED = [
    ("DELETE FROM users WHERE id = 1", InputError, "changes `users`, but this table is goods.*write `goods`"),
    ("DELETE FROM lake.goods WHERE id = 1", InputError, "changes `lake`.`goods`"),
    ("DELETE FROM lakelock.`/tmp/other` WHERE id = 1", InputError, "but this table is goods"),
    ("DELETE FROM goods WHERE nope = 1", AnalysisException, "nope"),
    ("DELETE FROM goods WHERE other.id = 1", AnalysisException, "other"),
    ("DELETE FROM goods AS g WHERE goods.id = 1", AnalysisException, "goods"),
    ("DELETE FROM goods WHERE rand() < 0.5", InputError, "different answer each time"),
    ("DELETE FROM goods WHERE id IN (SELECT id FROM goods)", InputError, "source reads `goods`, the table.*tx.read"),
    ("DELETE FROM goods WHERE id IN (SELECT id FROM before)", InputError, "source reads the table.*tx.read"),
    (
        "UPDATE goods SET v = 1 WHERE EXISTS (SELECT 1 FROM before b WHERE b.id = goods.id)",
        InputError,
        "source reads the table",
    ),
    ("UPDATE goods SET v = (SELECT max(v) FROM delivery)", InputError, "no subquery"),
    ("UPDATE goods SET nte = 1", SchemaError, "no column 'nte'.*did you mean 'note'"),
    ("UPDATE goods SET id = 1", SchemaError, "id is a record key column"),
    ("UPDATE goods SET v = 'text'", SchemaError, "v: string does not fit int64"),
    ("UPDATE goods SET v = 1, V = 2", InputError, "gives v two values"),
    ("UPDATE goods SET goods.v.x = 1", InputError, "not a column of goods.*named_struct"),
    ("UPDATE goods SET note.x = 1", InputError, "not a column of goods.*named_struct"),
    ("UPDATE goods SET v = :v", InputError, "no value for :v"),
    ("INSERT INTO goods SELECT id, p, v FROM delivery", InputError, "3 columns for the 4 columns id, p, v, note.*BY NAME"),
    ("INSERT INTO goods (id, p) SELECT * FROM delivery", InputError, "4 columns for the 2 columns id, p"),
    ("INSERT INTO goods (id, q) SELECT 1, 'a'", SchemaError, "no column 'q'"),
    ("INSERT INTO goods (id, ID) SELECT 1, 2", InputError, "gives id two values"),
    ("INSERT INTO goods (p, v) SELECT 'a', 1", SchemaError, "key column 'id' is missing"),
    ("INSERT INTO goods BY NAME SELECT 1 AS id, 'a' AS p, 2 AS q", SchemaError, "q: not a column"),
    ("INSERT INTO goods SELECT * FROM nowhere", AnalysisException, "nowhere"),
    ("INSERT INTO goods SELECT * FROM goods", InputError, "source reads `goods`, the table.*tx.read"),
    ("INSERT INTO goods SELECT * FROM before", InputError, "source reads the table.*tx.read"),
    ("INSERT INTO goods SELECT * FROM delivery WHERE id IN (SELECT id FROM before)", InputError, "source reads the table"),
    ("INSERT INTO goods SELECT * FROM foreign_read", InputError, "source reads the table"),
    *([("INSERT INTO goods SELECT * FROM by_format", InputError, "source reads the table")] if HAS_DATA_SOURCES else []),
    ("MERGE INTO goods USING goods AS s ON goods.id = s.id WHEN MATCHED THEN DELETE", InputError, "source reads `goods`"),
    ("MERGE INTO goods USING before ON goods.id = before.id WHEN MATCHED THEN DELETE", InputError, "source reads the table"),
    ("MERGE INTO goods USING delivery d ON goods.v > d.v WHEN MATCHED THEN DELETE", InputError, "does not equate"),
    # Spark itself does not accept these, or reads them in another way than sqlglot.
    ("DELETE FROM goods WHERE", LakelockError, "cannot read"),
    ("INSERT goods SELECT 1", InputError, "parts of this statement"),
    ("MERGE goods USING delivery d ON goods.id = d.id WHEN MATCHED THEN DELETE", ParseException, "MERGE"),
    ("INSERT INTO goods (id) BY NAME SELECT 1 AS id", ParseException, "BY"),
    ("UPDATE goods SET v = 1 -- \\\n WHERE id = 1", InputError, "reads this statement in another way"),
    ("UPDATE goods SET v = 1 -- \\\n , note = 'x'", InputError, "reads this statement in another way"),
]


@pytest.fixture(scope="module")
def views(spark: SparkSession, settled: LakeTable) -> None:
    """Reads of the table, under names."""
    settled.read().where("id > 0").createOrReplaceTempView("before")
    spark.read.parquet(f"{settled.path}/p=a").selectExpr("id", "'a' AS p", "v", "note").createOrReplaceTempView("foreign_read")
    if HAS_DATA_SOURCES:
        spark.read.format("lakelock").load(settled.path).createOrReplaceTempView("by_format")


@pytest.mark.usefixtures("views")
@pytest.mark.parametrize(("statement", "error", "problem"), REFUSED, ids=[statement[:70] for statement, _, _ in REFUSED])
def test_a_statement_that_cannot_be_is_refused_before_any_work(
    settled: LakeTable, statement: str, error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=f"(?is){problem}"):
        settled.sql(statement)


def test_a_literal_with_a_point_is_a_value_of_a_double_column(spark: SparkSession, path: str) -> None:
    table = LakeTable.create(spark, path, schema=spark.createDataFrame([], "id long, price double"), key="id", name="goods")
    table.sql("INSERT INTO goods VALUES (1, 1.5), (2, 2.25)")
    table.sql("UPDATE goods SET price = 30.0 WHERE id = 1")
    assert sorted((row.id, row.price) for row in table.read().collect()) == [(1, 30.0), (2, 2.25)]


def test_a_source_is_read_only_by_the_write(spark: SparkSession, settled: LakeTable) -> None:
    broken = F.when(F.col("id") > 0, F.raise_error("somebody has computed the source")).otherwise(1).cast("long")
    rows(spark, *SOURCE).withColumn("v", broken).createOrReplaceTempView("broken")
    with pytest.raises(SchemaError, match="no column 'nope'"):
        settled.sql("MERGE INTO goods USING broken AS s ON goods.id = s.id WHEN MATCHED THEN UPDATE SET nope = s.v")


def test_columns_are_told_apart_as_the_session_does(spark: SparkSession, table: LakeTable) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(SchemaError, match="no column 'V'"):
            table.sql("UPDATE goods SET V = 1")
        with pytest.raises(SchemaError, match="no column 'V'|V: not a column"):
            table.sql("INSERT INTO goods BY NAME SELECT 9 AS id, 'a' AS p, 1 AS V")
        with pytest.raises(SchemaError, match="no column 'V'"):
            table.sql("INSERT INTO goods (id, p, V) VALUES (9, 'a', 1)")
        with pytest.raises(SchemaError, match="no column 'V'"):
            table.update({"V": 1})
        source = rows(spark, *SOURCE)
        by_key = "target.id = source.id and target.p = source.p"
        with pytest.raises(SchemaError, match="no column 'V'"):
            table.merge(source, by_key).when_matched_update({"V": "source.v"}).execute()
        with pytest.raises(SchemaError, match="no column 'v'"):
            table.merge(source.withColumnRenamed("v", "V"), by_key).when_matched_update_all().execute()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    with table.transaction() as tx:
        tx.update({"V": "v + 0"}, "P = 'a'")


def test_statements_of_a_transaction_are_committed_as_one(table: LakeTable) -> None:
    with table.transaction() as tx:
        tx.read("p = 'a'").createOrReplaceTempView("before")
        tx.sql("UPDATE goods SET v = :v WHERE p = 'b'", {"v": 0})
        tx.sql("INSERT INTO goods SELECT id + 100, 'z', v, note FROM before WHERE id = 1")
        assert content(table)[0] == (1, "a", 10, "one") and len(content(table)) == 3
    assert content(table) == [(1, "a", 10, "one"), (101, "z", 10, "one"), (2, "a", 20, None), (3, "b", 0, "three")]
    for replacing in ("INSERT OVERWRITE goods", "INSERT INTO goods REPLACE WHERE p = 'a'"):
        with pytest.raises(InputError, match="a transaction takes no INSERT OVERWRITE"), table.transaction() as tx:
            tx.sql(f"{replacing} SELECT * FROM delivery WHERE p = 'a'")
    with table.transaction() as tx:
        tx.sql("INSERT INTO goods VALUES (201, 'z', 1, 'soon gone')")
        tx.sql("DELETE FROM goods WHERE id > 100")
    assert len(content(table)) == 3


MEETINGS = [
    "DELETE FROM goods AS g WHERE g.p = 'a' AND g.v > 15",
    "UPDATE goods SET note = goods.p WHERE goods.p = 'a' AND v > 15",
    "MERGE INTO goods g USING delivery d ON g.note = d.note AND g.p = 'a' AND g.v > 15 WHEN MATCHED THEN DELETE",
]


@pytest.mark.parametrize("statement", but_in_ci(MEETINGS, MEETINGS[2:]))
def test_a_statement_meets_exactly_the_rows_that_it_reads(
    spark: SparkSession, table: LakeTable, other: LakeTable, statement: str
) -> None:
    with table.transaction() as tx:
        tx.sql(statement)
        other.upsert(rows(spark, (3, "b", 99, "x"), (50, "b", 99, "x")))
        other.insert(rows(spark, (51, "a", 0, "x")))
    assert tx.result is not None
    table.insert(rows(spark, (60, "a", 70, "skip")))
    with pytest.raises(ConflictError), table.transaction() as tx:
        tx.sql(statement)
        other.insert(rows(spark, (52, "a", 99, "x")))
    assert (52, "a", 99, "x") in content(table)


def test_a_statement_is_applied_once(table: LakeTable) -> None:
    done = [table.sql("UPDATE goods SET v = v + 1", txn_app_id="job", txn_version=1, tag="t") for _ in range(2)]
    assert [result.already_applied for result in done] == [False, True]
    assert [row[2] for row in content(table)] == [11, 21, 31]
    with pytest.raises(InputError, match="takes no partition"):
        table.sql("INSERT OVERWRITE goods SELECT * FROM delivery", partition="p=a")


def orderly(statement: Statement) -> Statement:
    """The statement with the clauses of a merge as Spark wants them: kind by kind, each with a condition."""
    if not isinstance(statement, Merge):
        return statement
    clauses = (replace(clause, condition=clause.condition or "true") for clause in statement.clauses)
    return replace(statement, clauses=tuple(sorted(clauses, key=lambda clause: list(When).index(clause.when))))


def is_sparks(statement: Statement) -> bool:
    """Whether every Spark 4 has such a statement: some have no BY NAME with REPLACE WHERE."""
    return not (isinstance(statement, Insert) and statement.by_name and statement.replace_where is not None)


@given(statements.filter(is_sparks).map(orderly), gaps)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_spark_reads_a_statement_of_any_shape_as_its_pieces(spark: SparkSession, statement: Statement, gap: str) -> None:
    text = written(statement, gap)
    require_same_reading(spark, text, statement_of(text))
