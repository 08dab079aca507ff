"""Merges through real Spark: every clause, what they read, and what cannot be merged."""

# ruff: noqa: PT012 - a transaction is a block

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.sizes import but, in_ci
from tests.spark.without_jobs import content, fill

from lakelock.errors import ConflictError, DuplicateKeyError, InputError, SchemaError, WriteFailed
from lakelock.spark_plugin import LakeTable, changing
from lakelock.spark_plugin.transactions import LakeTransaction

COLUMNS = "id long, p string, v long, note string"
ON = "target.id = source.id and target.p = source.p"

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("both_ways")]


def rows(spark: SparkSession, *values: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS)


def filled(spark: SparkSession, path: str) -> LakeTable:
    once = {"retry.attempts": 1}
    made = LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p", order_by="v", options=once)
    fill(made, (1, "a", 10, "one"), (2, "a", 20, "two"), (3, "b", 30, "three"))
    return made


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    return filled(spark, path)


def test_the_first_clause_of_its_kind_whose_condition_holds_applies(spark: SparkSession, table: LakeTable) -> None:
    source = rows(spark, (1, "a", 1, "x"), (2, "a", -1, "x"), (3, "b", 3, "gone"), (4, "c", 4, "new"), (5, "c", 5, "skip"))
    merge = (
        table.merge(source, ON)
        .when_matched_delete("source.note = 'gone'")
        .when_matched_update({"v": "target.v + source.v"}, "source.v > 0")
        .when_matched_update({"note": F.lit("negative")})
        .when_not_matched_insert({"id": "source.id", "p": "source.p", "v": 0}, F.col("source.note") == "new")
    )
    result = merge.execute()
    assert content(table) == [(1, "a", 11, "one"), (2, "a", 20, "negative"), (4, "c", 0, None)]
    assert (result.operation, result.rows_updated, result.rows_deleted, result.rows_inserted) == ("MERGE", 2, 1, 1)


def test_update_all_and_insert_all_take_the_columns_of_the_source(spark: SparkSession, table: LakeTable) -> None:
    source = rows(spark, (1, "a", 1, "new"), (9, "z", 9, "nine")).withColumn("more", F.lit(1))
    table.merge(source, ON).when_matched_update_all().when_not_matched_insert_all().execute()
    assert content(table) == [(1, "a", 1, "new"), (2, "a", 20, "two"), (3, "b", 30, "three"), (9, "z", 9, "nine")]


def test_rows_that_the_source_does_not_match_are_updated_or_deleted(spark: SparkSession, table: LakeTable) -> None:
    done = (
        table.merge(rows(spark, (1, "a", 0, None), (7, "a", 7, None)), ON)
        .when_not_matched_by_source_update({"v": "target.v * 2"}, "target.p = 'a'")
        .when_not_matched_by_source_delete()
        .when_not_matched_insert_all()
        .execute()
    )
    assert content(table) == [(1, "a", 10, "one"), (2, "a", 40, "two"), (7, "a", 7, None)]
    assert (done.rows_inserted, done.rows_updated, done.rows_deleted) == (1, 1, 1)


def test_deltas_names_and_aliases_of_ones_own_mean_the_same(spark: SparkSession, table: LakeTable) -> None:
    source = rows(spark, (1, "a", 1, "x"), (2, "a", 2, "x"), (8, "a", 8, "x"))
    (
        table.merge(source, "t.id = s.id and t.p = s.p", target_alias="t", source_alias="s")
        .whenMatchedUpdate("s.id = 1", {"t.v": "s.v"})
        .whenMatchedDelete("s.id = 99")
        .whenMatchedUpdateAll()
        .whenNotMatchedInsert("s.id = 77", {"id": "s.id", "p": "s.p", "v": "s.v"})
        .whenNotMatchedInsertAll()
        .whenNotMatchedBySourceUpdate("t.id = 3", {"note": "'left'"})
        .whenNotMatchedBySourceDelete()
        .execute()
    )
    assert content(table) == [(1, "a", 1, "one"), (2, "a", 2, "x"), (3, "b", 30, "left"), (8, "a", 8, "x")]


def test_a_condition_over_other_columns_matches_rows_too(spark: SparkSession, table: LakeTable) -> None:
    source = spark.createDataFrame([("two", 5), ("none", 6)], "word string, more int")
    table.merge(source, "target.note = source.word").when_matched_update({"v": "target.v + source.more"}).execute()
    assert content(table) == [(1, "a", 10, "one"), (2, "a", 25, "two"), (3, "b", 30, "three")]


def test_keys_of_another_whole_number_type_are_looked_up(spark: SparkSession, path: str) -> None:
    made = LakeTable.create(spark, path, schema=spark.createDataFrame([], "id int, v long"), key="id")
    made.insert(spark.createDataFrame([(1, 1), (2, 2)], "id int, v long"))
    source = spark.createDataFrame([(1, 10), (2**40 + 2, 20), (None, 30)], "id long, v long")
    with made.transaction() as tx:
        tx.merge(source, "target.id = source.id").when_matched_update({"v": "source.v"}).execute()
        made.insert(spark.createDataFrame([(3, 3)], "id int, v long"))
    assert sorted(tuple(row) for row in made.read().collect()) == [(1, 10), (2, 2), (3, 3)]


def test_rows_of_a_table_with_buckets_are_merged_in_their_buckets(spark: SparkSession, path: str) -> None:
    made = LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p", index="bucket:2")
    made.insert(rows(spark, *[(n, "a", n, "x") for n in range(6)]))
    source = rows(spark, *[(n, p, -n, "y") for n in range(4, 9) for p in "ab"])
    merge = made.merge(source, ON).when_matched_update_all().when_not_matched_insert_all()
    merge.execute()
    merge.execute()
    assert content(made) == sorted(
        [*[(n, "a", n, "x") for n in range(4)], *[(n, p, -n, "y") for n in range(4, 9) for p in "ab"]]
    )
    assert len({row.f for row in made.read().select(F.input_file_name().alias("f")).collect()}) <= 4


@pytest.mark.usefixtures("untouched")
def test_a_source_that_lacks_a_column_is_an_error_that_names_those_of_the_source_and_no_others(
    spark: SparkSession, table: LakeTable
) -> None:
    lacking = rows(spark, (9, "a", 1, "x")).drop("v")
    with pytest.raises(SchemaError, match="the source has no column 'v'") as refused:
        table.merge(lacking, ON).when_not_matched_insert_all().execute()
    assert refused.value.hint == f"columns: {', '.join(lacking.columns)}; or name the columns to set"


@pytest.mark.usefixtures("untouched")
def test_two_source_rows_that_would_change_one_row_are_an_error_that_names_its_key(
    spark: SparkSession, table: LakeTable
) -> None:
    source = rows(spark, (2, "a", 1, "x"), (2, "a", 2, "y"), (3, "b", 1, "z"), (4, "c", 1, "z"))
    with pytest.raises(DuplicateKeyError, match="several source rows match the row with the key 2 of partition p=a"):
        table.merge(source, ON).when_matched_update_all().when_not_matched_insert_all().execute()


@pytest.mark.usefixtures("untouched")
def test_two_new_rows_of_one_key_are_an_error(spark: SparkSession, table: LakeTable) -> None:
    twins = rows(spark, (7, "a", 1, "x"), (7, "a", 2, "y"))
    for on in (ON, "target.v = source.v"):
        with pytest.raises(DuplicateKeyError, match="same key: 7") as raised:
            table.merge(twins, on).when_not_matched_insert_all().execute()
        assert "table.upsert(df)" in raised.value.hint


@pytest.mark.usefixtures("untouched")
def test_a_new_row_whose_key_is_stored_is_an_error_that_names_the_key(spark: SparkSession, table: LakeTable) -> None:
    for on in ("target.v = source.v", "target.note = source.note", ON + " and target.v = source.v"):
        with pytest.raises(DuplicateKeyError, match="whose key the table has already: p=a: 2") as raised:
            table.merge(rows(spark, (2, "a", 999, "x")), on).when_not_matched_insert_all().execute()
        assert "table.upsert(df)" in raised.value.hint
        assert "table.insert(df)" in raised.value.hint
    with pytest.raises(DuplicateKeyError, match="whose key the table has already: p=a: 2"):  # the key inserted is another
        values = {"id": F.lit(2), "p": "source.p", "v": "source.v"}
        table.merge(rows(spark, (9, "a", 1, "x")), ON).when_not_matched_insert(values).execute()


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("inserted", ["id", "other"])
def test_a_new_row_that_on_compares_with_two_columns_may_have_a_stored_key(
    spark: SparkSession, table: LakeTable, inserted: str
) -> None:
    source = spark.createDataFrame([(2, 9, "a") if inserted == "id" else (9, 2, "a")], "id long, other long, p string")
    values = {"id": f"source.{inserted}", "p": "source.p", "v": 1}
    with pytest.raises(DuplicateKeyError, match="whose key the table has already: p=a: 2"):
        table.merge(source, f"{ON} and target.id = source.other").when_not_matched_insert(values).execute()


def test_a_key_that_the_partition_lacks_is_inserted_on_any_condition(spark: SparkSession, table: LakeTable) -> None:
    source = rows(spark, (2, "b", 999, "elsewhere"), (4, "a", 998, "new"), (5, None, 997, "none"))
    table.merge(source, "target.v = source.v").when_not_matched_insert_all().execute()
    assert content(table)[1:] == [
        (2, "a", 20, "two"), (2, "b", 999, "elsewhere"), (3, "b", 30, "three"), (4, "a", 998, "new"), (5, None, 997, "none"),
    ]  # fmt: skip
    with pytest.raises(DuplicateKeyError, match="whose key the table has already.*: 5"):  # a null equals none, and is stored
        table.merge(rows(spark, (5, None, 1, "x")), ON).when_not_matched_insert_all().execute()


def test_a_stored_key_may_be_inserted_where_the_setting_says_so(spark: SparkSession, table: LakeTable) -> None:
    source = rows(spark, (2, "a", 999, "x"), (7, "a", 998, "y"), (7, "a", 997, "z"))
    may = LakeTable.for_path(spark, table.path, options={"write.merge_may_duplicate_keys": True})
    may.merge(source, "target.v = source.v").when_not_matched_insert_all().execute()
    assert [row[0] for row in content(table)] == [1, 2, 2, 3, 7, 7]


@pytest.mark.in_ci
@pytest.mark.sampled
@pytest.mark.parametrize("index", ["bucket:4", "global"])
def test_a_stored_key_is_not_inserted_again_beside_an_index(spark: SparkSession, path: str, index: str) -> None:
    table = LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p", index=index)
    fill(table, (1, "a", 10, "one"))
    where = "b" if index == "global" else "a"
    with pytest.raises(DuplicateKeyError, match="whose key the table has already: p=a: 1"):
        table.merge(rows(spark, (1, where, 1, "x")), "target.v = source.v").when_not_matched_insert_all().execute()
    table.merge(rows(spark, (2, where, 1, "x")), "target.v = source.v").when_not_matched_insert_all().execute()
    assert [row[:2] for row in content(table)] == [(1, "a"), (2, where)]


def test_an_insert_of_the_key_of_a_new_row_rejects_the_merge(spark: SparkSession, table: LakeTable, other: LakeTable) -> None:
    with pytest.raises(ConflictError), table.transaction() as tx:
        tx.merge(
            rows(spark, (9, "a", 99, "x")), "target.v = source.v and target.v < 50"
        ).when_not_matched_insert_all().execute()
        other.insert(rows(spark, (9, "a", 77, "other")))
    assert [row for row in content(table) if row[0] == 9] == [(9, "a", 77, "other")]


def test_a_merge_on_the_key_looks_up_no_keys_of_new_rows(
    spark: SparkSession, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(changing, "require_new_keys", lambda *_: asked.append(on))
    null_safe = "target.id <=> source.id and target.p <=> source.p"
    for number, on in enumerate((ON, "source.id = target.id", null_safe, "target.v = source.v", ON + " and target.v > 0")):
        table.merge(rows(spark, (100 + number, "c", 100 + number, "new")), on).when_not_matched_insert_all().execute()
    assert asked == ["target.v = source.v", ON + " and target.v > 0"]


def test_several_source_rows_may_delete_one_row_and_only_one_of_them_may_change_it(
    spark: SparkSession, table: LakeTable
) -> None:
    twice = rows(spark, (2, "a", 1, "x"), (2, "a", 2, "y"))
    table.merge(twice, ON).when_matched_update({"v": "source.v"}, "source.note = 'y'").execute()
    assert content(table)[1] == (2, "a", 2, "two")
    table.merge(twice, ON).when_matched_delete().execute()
    assert content(table) == [(1, "a", 10, "one"), (3, "b", 30, "three")]


@pytest.mark.parametrize(
    ("on", "clauses", "error", "problem"),
    [
        (ON, lambda m: m, InputError, "no clause"),
        (ON, lambda m: m.when_matched_delete().when_matched_update_all(), InputError, "can never apply"),
        (ON, lambda m: m.when_matched_update({"nte": "1"}), SchemaError, "no column 'nte'.*did you mean 'note'"),
        (ON, lambda m: m.when_matched_update({"id": "source.id"}), SchemaError, "id is a record key column"),
        (ON, lambda m: m.when_matched_update({"v": "source.note"}), SchemaError, "v: string does not fit int64"),
        (ON, lambda m: m.when_matched_update({"v": "source.nope"}), AnalysisException, "nope"),
        (ON, lambda m: m.when_matched_delete("source.nope = 1"), AnalysisException, "nope"),
        (ON, lambda m: m.when_matched_delete("rand() < 0.5"), InputError, "different answer each time"),
        (ON, lambda m: m.when_not_matched_insert({"id": "source.id"}), SchemaError, "partition column 'p' is missing"),
        (ON, lambda m: m.when_not_matched_insert({"id": "target.id", "p": "'a'", "v": 1}), AnalysisException, "target"),
        (ON, lambda m: m.when_not_matched_by_source_delete("source.v = 1"), AnalysisException, "source"),
        ("target.v > source.v", lambda m: m.when_matched_delete(), InputError, "does not equate anything"),
        ("target.id = source.id and rand() < 1", lambda m: m.when_matched_delete(), InputError, "different answer"),
        ("target.idd = source.id", lambda m: m.when_matched_delete(), AnalysisException, "idd"),
    ],
)
def test_a_merge_that_cannot_be_is_refused_before_any_work(
    spark: SparkSession, settled: LakeTable, on: str, clauses: Callable, error: type, problem: str
) -> None:
    broken = F.when(F.col("id") == 1, F.raise_error("somebody has computed the source")).otherwise(1).cast("long")
    source = rows(spark, (1, "a", 1, "x")).withColumn("v", broken)
    with pytest.raises(error, match=f"(?s){problem}"):
        clauses(settled.merge(source, on)).execute()


def test_update_all_does_not_change_a_key_unseen(spark: SparkSession, settled: LakeTable) -> None:
    with pytest.raises(SchemaError, match="another value of p"):
        settled.merge(rows(spark, (2, "b", 1, "x")), "target.id = source.id").when_matched_update_all().execute()


@pytest.mark.usefixtures("untouched")
def test_a_source_that_fails_leaves_no_file(spark: SparkSession, table: LakeTable) -> None:
    bad = F.when(F.col("id") == 3, F.raise_error("no such rate")).otherwise(F.lit(5)).cast("long")
    source = rows(spark, (1, "a", 1, "x"), (3, "b", 1, "y")).withColumn("v", bad)
    with pytest.raises(WriteFailed, match="no such rate"):
        table.merge(source, ON).when_matched_update_all().execute()


@pytest.mark.usefixtures("on_executors")
@pytest.mark.parametrize("how", ["merge", *in_ci("upsert", "delete")])
def test_what_a_write_keeps_stays_when_another_write_of_the_same_frame_ends(spark: SparkSession, path: str, how: str) -> None:
    index = None if how == "merge" else "global"
    one, two = (
        LakeTable.create(spark, f"{path}-{n}", schema=rows(spark), key="id", partition_by="p", index=index) for n in (1, 2)
    )
    source = rows(spark, (1, "a", 1, "x"), (2, "b", 2, "y"))
    for table in (one, two):
        fill(table, (1, "a", 10, "one"), (2, "a", 20, "two"))

    def write(to: LakeTable | LakeTransaction) -> None:
        if how == "merge":
            to.merge(source, "id").when_matched_update({"v": "source.v"}).execute()
        else:
            getattr(to, how)(source)

    def kept() -> int:
        return int(spark.sparkContext._jsc.getPersistentRDDs().size())

    before = kept()
    with one.transaction() as tx:
        write(tx)
        held = kept()
        write(two)
        assert kept() == held > before
    assert kept() == before


def test_the_source_is_computed_once(spark: SparkSession, table: LakeTable) -> None:
    counted = spark.sparkContext.accumulator(0)

    def count(value: int) -> int:
        counted.add(1)
        return value

    source = rows(spark, (1, "a", 1, "x"), (8, "a", 8, "new")).withColumn("v", F.udf(count, "long")("v"))
    table.merge(source, ON).when_matched_update_all().when_not_matched_insert_all().execute()
    assert counted.value == 2
    assert content(table)[0] == (1, "a", 1, "x")


INSERTING = [
    # a merge that equates the keys reads these keys only
    (ON, lambda m: m.when_matched_update_all().when_not_matched_insert_all(), (8, "a", 0, "x"), (9, "a", 0, "x")),
    # otherwise what the part about the target selects
    (
        "target.note = source.note and target.p = 'a'",
        lambda m: m.when_matched_update({"v": 0}),
        (50, "a", 0, "eight"),
        (50, "b", 0, "eight"),
    ),
    # and the conditions about rows without a source row
    (ON, lambda m: m.when_not_matched_by_source_delete("target.p = 'a'"), (50, "a", 0, "x"), (50, "b", 0, "x")),
]


@pytest.mark.parametrize(("on", "clauses", "concerned", "unconcerned"), but(INSERTING, INSERTING[:1]))
def test_a_row_that_is_added_meanwhile_rejects_the_merge_exactly_if_the_merge_would_have_read_it(
    spark: SparkSession, table: LakeTable, other: LakeTable, on: str, clauses: Callable, concerned: tuple, unconcerned: tuple
) -> None:
    source = rows(spark, (1, "a", 1, "one"), (8, "a", 8, "eight"))
    with table.transaction() as tx:
        clauses(tx.merge(source, on)).execute()
        other.insert(rows(spark, unconcerned))
    assert tx.result is not None and unconcerned in content(table)
    with pytest.raises(ConflictError) as caught, table.transaction() as tx:
        clauses(tx.merge(source.withColumn("v", F.lit(2).cast("long")), on)).execute()
        other.insert(rows(spark, concerned))
    assert caught.value.conflict.retry_helps
    assert concerned in content(table)


def oracle(stored: list[tuple], source: list[tuple], bound: int) -> list[tuple]:
    """What the merge of the next test does, row by row."""
    given = {(row[0], row[1]): row for row in source}
    result = []
    for id_, p, v, note in stored:
        new = given.pop((id_, p), None)
        if new is None:
            if v < bound:
                continue
            result.append((id_, p, v, "alone" if p == "a" else note))
        elif new[2] == v:
            continue
        elif new[2] > v:
            result.append((id_, p, new[2], new[3]))
        else:
            result.append((id_, p, v, "older"))
    return sorted([*result, *(row for row in given.values() if row[2] >= bound)])


@pytest.mark.parametrize("seed", but(range(4), range(1), range(2)))
def test_a_merge_does_what_a_loop_over_the_rows_would_do(spark: SparkSession, path: str, seed: int) -> None:
    chosen = random.Random(seed)

    def some(count: int) -> list[tuple]:
        keys = chosen.sample([(n, p) for n in range(30) for p in "abc"], count)
        return [(n, p, chosen.randrange(6), f"{n}{p}") for n, p in keys]

    stored, source = some(40), some(40)
    made = LakeTable.create(
        spark, path, schema=rows(spark), key="id", partition_by="p", index="bucket:3" if seed == 3 else None
    )
    made.insert(rows(spark, *stored[:25]))
    made.insert(rows(spark, *stored[25:]))
    (
        made.merge(rows(spark, *source), ON if seed % 2 else "source.id = target.id and source.p <=> target.p")
        .when_matched_delete("source.v = target.v")
        .when_matched_update_all("source.v > target.v")
        .when_matched_update({"note": F.lit("older")})
        .when_not_matched_insert_all("source.v >= 3")
        .when_not_matched_by_source_delete("target.v < 3")
        .when_not_matched_by_source_update({"note": "'alone'"}, "target.p = 'a'")
        .execute()
    )
    assert content(made) == oracle(stored, source, 3)


def test_a_row_with_a_null_in_its_key_equals_none_and_is_inserted(spark: SparkSession, table: LakeTable) -> None:
    merge = table.merge(rows(spark, (1, "a", 11, "x"), (7, None, 70, "new")), ON)
    result = merge.when_matched_update({"v": "source.v"}).when_not_matched_insert_all().execute()
    assert (result.rows_updated, result.rows_inserted) == (1, 1)
    assert (7, None, 70, "new") in content(table)
