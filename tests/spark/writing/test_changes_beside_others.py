"""Updates and merges beside other writers: what they read, what rejects them, by which name, and what running again does."""

# ruff: noqa: PT012 - a transaction is a block

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.api import CommitMetadata, ConflictRule
from tests.sizes import but, in_ci
from tests.spark import without_jobs

from lakelock import errors
from lakelock.errors import ConflictError
from lakelock.spark_plugin import LakeTable, inserting, merging
from lakelock.spark_plugin.merging import MergePlan
from lakelock.spark_plugin.write_attempt import Attempt

COLUMNS = "id long, p string, v long"
KEYS = "target.id = source.id and target.p = source.p"
ONCE = {"retry.attempts": 1}
DELTA = {**ONCE, "concurrency.profile": "delta", "concurrency.isolation": "Serializable"}
BLIND_APPENDS_PASS = {**DELTA, "concurrency.isolation": "WriteSerializable"}

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("both_ways")]


def rows(spark: SparkSession, *values: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS)


def content(table: LakeTable) -> list[tuple[object, ...]]:
    return without_jobs.content(table, "id", "p", "v")


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    made = LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p")
    without_jobs.fill(made, (1, "a", 10), (2, "a", 20), (3, "b", 30))
    return made


def opened(spark: SparkSession, table: LakeTable, **options: object) -> LakeTable:
    """The same table, opened by one more writer."""
    return LakeTable.for_path(spark, table.path, options=options, application="another")


def update(to, spark: SparkSession):
    """Change the partition a, in a table or a transaction."""
    return to.update({"v": "v + 1"}, "p = 'a'")


def merge_by_key(to, spark: SparkSession):
    source = rows(spark, (1, "a", 100), (2, "a", 200), (9, "a", 900))
    return to.merge(source, KEYS).when_matched_update_all().when_not_matched_insert_all().execute()


def merge_by_condition(to, spark: SparkSession):
    source = rows(spark, (10, "a", 10), (20, "a", 20))
    on = "target.v = source.id and target.p = 'a'"
    return to.merge(source, on).when_matched_update({"v": "source.v"}).execute()


CHANGES = [update, merge_by_key, merge_by_condition]
changing = pytest.mark.parametrize("change", but(CHANGES, [merge_by_key]), ids=lambda change: change.__name__)


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (update, ["rows"]),
        (merge_by_key, ["keys"]),
        *in_ci(
            (merge_by_condition, ["rows"]),
            (lambda to, spark: to.update({"v": 0}), ["rows"]),
            (lambda to, spark: to.merge(rows(spark, (7, "c", 7)), KEYS).when_not_matched_insert_all().execute(), ["keys"]),
        ),
        (
            lambda to, spark: (
                to.merge(rows(spark, (1, "a", 1)), KEYS)
                .when_matched_delete()
                .when_not_matched_by_source_delete("target.v = 30")
                .execute()
            ),
            ["keys", "rows"],
        ),
    ],
    ids=["update", "merge by key", "merge by condition", "update of all", "merge that inserts", "merge of both sides"],
)
def test_a_commit_says_what_was_read_in_the_kinds_that_the_conflict_page_goes_by(
    spark: SparkSession, table: LakeTable, change: Callable, kinds: list[str]
) -> None:
    result = change(table, spark)
    (commit,) = Path(table.path.removeprefix("file://"), ".hoodie/timeline").glob(f"{result.instant}_*.commit")
    read = json.loads(CommitMetadata.from_bytes(commit.read_bytes()).extra["lakelock.reads"])
    assert [each["kind"] for each in read] == kinds


@pytest.mark.in_ci
@pytest.mark.parametrize("change", but(CHANGES, CHANGES[:1]), ids=lambda change: change.__name__)
def test_in_the_profile_delta_a_change_is_rejected_by_deltas_names(
    spark: SparkSession, table: LakeTable, change: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = opened(spark, table, **DELTA), opened(spark, table, **DELTA)
    inserted = rows(spark, (7, "a", 10))

    with pytest.raises(errors.ConcurrentAppendException) as appended, mine.transaction() as tx:
        change(tx, spark)
        other.insert(inserted)
    assert appended.value.conflict.rule in (ConflictRule.APPEND, ConflictRule.KEY) and not appended.value.conflict.early

    # As in Delta, what another change rewrote is first of all a new file that should have been read.
    with pytest.raises(errors.ConcurrentAppendException) as early, mine.transaction() as tx:
        change(other, spark)
        change(tx, spark)
    assert early.value.conflict.early

    with pytest.raises(errors.ConcurrentDeleteReadException) as early, mine.transaction() as tx:
        change(tx, spark)
        change(other, spark)
    assert early.value.conflict.early

    with pytest.raises(errors.ProtocolChangedException), mine.transaction() as tx:
        change(tx, spark)
        properties = Path(table.path.removeprefix("file://"), ".hoodie/hoodie.properties")
        before = properties.read_text()
        properties.write_text(f"{before}hoodie.table.of.another.release=true\n")
    properties.write_text(before)

    insert = inserting.insert

    def overtaken(*given, **named):
        written = insert(*given, **named)
        change(other, spark)
        return written

    with monkeypatch.context() as patched, pytest.raises(errors.ConcurrentDeleteDeleteException):
        patched.setattr(inserting, "insert", overtaken)
        mine.overwrite_partitions(rows(spark, (1, "a", 0)))

    with pytest.raises(errors.MetadataChangedException), mine.transaction() as tx:
        change(tx, spark)
        other.insert(inserted.selectExpr("8L as id", "'z' as p", "v", "'new' as more"), merge_schema=True)


@pytest.mark.in_ci
@changing
def test_with_write_serializable_a_blind_append_passes_and_another_change_does_not(
    spark: SparkSession, table: LakeTable, change: Callable
) -> None:
    mine, other = opened(spark, table, **BLIND_APPENDS_PASS), opened(spark, table, **ONCE)
    with mine.transaction() as tx:
        change(tx, spark)
        other.insert(rows(spark, (7, "a", 10)))
    assert tx.result is not None and (7, "a", 10) in content(table)
    with pytest.raises(errors.ConcurrentAppendException), mine.transaction() as tx:
        other.upsert(rows(spark, (2, "a", 20)))
        change(tx, spark)


@pytest.mark.in_ci
@changing
def test_a_version_of_an_application_is_applied_once(spark: SparkSession, table: LakeTable, change: Callable) -> None:
    class Numbered:
        """The table, to which the application writes its seventh version."""

        update = staticmethod(lambda *given: table.update(*given, txn_app_id="job", txn_version=7))
        merge = staticmethod(lambda *given: table.merge(*given, txn_app_id="job", txn_version=7))

    first = change(Numbered, spark)
    after = content(table)
    again = change(Numbered, spark)
    assert not first.already_applied and first.rows_updated == 2
    assert again.already_applied and content(table) == after
    with table.transaction(txn_app_id="job", txn_version=7) as tx:
        assert tx.already_applied
        change(tx, spark)
    assert content(table) == after


@pytest.fixture
def overtaken(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[MergePlan]]:
    """Let something happen while the first attempt of a merge writes. The list is of the plan of each attempt."""

    def during_the_first(happens: Callable[[], object]) -> list[MergePlan]:
        write, plan_now, plans = merging.write_changes, MergePlan.now, []

        def written(*given, **named):
            done = write(*given, **named)
            if len(plans) == 1:
                happens()
            return done

        def noted(*given):
            plans.append(plan_now(*given))
            return plans[-1]

        monkeypatch.setattr(merging, "write_changes", written)
        monkeypatch.setattr(MergePlan, "now", noted)
        return plans

    return during_the_first


def test_a_merge_that_has_lost_runs_again_on_what_the_other_left_and_is_not_analysed_again(
    spark: SparkSession, table: LakeTable, overtaken: Callable[..., list[MergePlan]]
) -> None:
    plans = overtaken(lambda: table.insert(rows(spark, (9, "a", 50))))
    patient = opened(spark, table, **{"retry.attempts": 3, "retry.first_wait_s": 0.01})
    source = rows(spark, (1, "a", 1), (9, "a", 1))
    merge = patient.merge(source, KEYS).when_matched_update({"v": "target.v + source.v"}).when_not_matched_insert_all()
    result = merge.execute()
    assert (result.attempts, result.rows_updated, result.rows_inserted) == (2, 2, 0)
    assert content(table) == [(1, "a", 11), (2, "a", 20), (3, "b", 30), (9, "a", 51)]
    assert len(plans) == 2 and plans[0] is plans[1]


def test_a_merge_that_has_lost_to_whoever_added_a_column_runs_again_with_it(
    spark: SparkSession, table: LakeTable, overtaken: Callable[..., list[MergePlan]]
) -> None:
    def add() -> None:
        table.columns.add({"note": "string"})
        table.insert(rows(spark, (9, "a", 50)).withColumn("note", F.lit("mine")))

    plans = overtaken(add)
    patient = opened(spark, table, **{"retry.attempts": 3, "retry.first_wait_s": 0.01})
    values = {name: f"source.{name}" for name in ("id", "p", "v")}
    merge = patient.merge(rows(spark, (8, "a", 1), (9, "a", 1)), KEYS).when_matched_update({"v": "target.v + source.v"})
    assert merge.when_not_matched_insert(values).execute().attempts == 2
    assert [tuple(row) for row in table.read().where("id > 7").orderBy("id").collect()] == [
        (8, "a", 1, None),
        (9, "a", 51, "mine"),
    ]
    assert [plan.schema.names[3:] for plan in plans] == [[], ["note"]]


@pytest.mark.usefixtures("on_executors")
@pytest.mark.in_ci
def test_in_buckets_a_merge_by_key_reads_only_the_files_that_hold_keys_of_it(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p", index="bucket:4")
    made.insert(rows(spark, *[(n, p, n) for n in range(40) for p in "abc"]))
    read, seen = Attempt.placed, []

    def noted(attempt, files, **how):
        seen.append([file.partition for file in files])
        return read(attempt, files, **how)

    monkeypatch.setattr(Attempt, "placed", noted)
    source = rows(spark, (5, "b", -5), (100, "b", -100))
    result = made.merge(source, KEYS).when_matched_update_all().when_not_matched_insert_all().execute()
    assert seen == [["p=b"]] and (result.rows_updated, result.rows_inserted) == (1, 1)
    assert [row for row in content(made) if row[2] < 0] == [(5, "b", -5), (100, "b", -100)]


@changing
def test_without_a_conflict_both_commit(spark: SparkSession, table: LakeTable, change: Callable) -> None:
    other = opened(spark, table, **ONCE)
    with table.transaction() as tx:
        change(tx, spark)
        other.update({"v": "v * 2"}, "p = 'b'")
        other.insert(rows(spark, (7, "c", 70)))
    assert {row for row in content(table) if row[1] != "a"} == {(3, "b", 60), (7, "c", 70)}


def test_two_updates_of_one_file_group_are_not_both_committed(spark: SparkSession, table: LakeTable) -> None:
    other = opened(spark, table, **ONCE)
    with pytest.raises(ConflictError) as caught, table.transaction() as tx:
        tx.update({"v": 0}, "id = 1")
        other.update({"v": 0}, "id = 2")
    assert caught.value.conflict.rule is ConflictRule.FILE_GROUP
    assert content(table)[:2] == [(1, "a", 10), (2, "a", 20)]
