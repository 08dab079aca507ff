"""Real Spark processes write one table at the same time. One of them stops itself at a named step, so every race is exact."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pyarrow as pa
import pytest
from tests.api import EventKind, LocalStorage
from tests.behaviour.tables import leftovers
from tests.sizes import in_ci
from tests.spark.processes import PATIENT, QUICK, WriterProcess
from tests.spark.writer_process import COLUMNS, frame

from lakelock.errors import EarlyConflictError
from lakelock.spark_plugin import LakeTable

WRITERS = 16
START = [["a", 1, "1"], ["b", 2, "1"], ["c", 3, "2"], ["d", 4, "3"]]


@pytest.fixture
def table(spark, path) -> LakeTable:
    """A table with three partitions of one file group each."""
    schema = spark.createDataFrame([], COLUMNS).schema
    made = LakeTable.create(spark, path, schema=schema, key="id", partition_by="month", options=PATIENT, application="here")
    made.insert(frame(spark, START))
    return made


def content(table: LakeTable) -> list[tuple]:
    return sorted(tuple(row) for row in table.read().collect())


def hudi_content(path: str) -> list[tuple]:
    """The rows as hudi-rs reads them."""
    from hudi import HudiTable

    rows = pa.Table.from_batches(HudiTable(path).read()).select(["id", "v", "month"]).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def check(table: LakeTable, expected: list[tuple]) -> None:
    assert content(table) == sorted(expected)
    assert hudi_content(table.path.removeprefix("file://")) == sorted(expected)


def with_rows(*changed: tuple) -> list[tuple]:
    """The start with some rows put in place of those of the same key."""
    return sorted({row[0]: tuple(row) for row in [*START, *changed]}.values())


def test_writers_of_disjoint_partitions_all_commit(spark, table, path):
    """The writers of this test, each with a JVM of its own, are as separate as they can be on one machine."""
    one = WriterProcess(path, "upsert", [["a", 10, "1"]], own_jvm=True)
    two = WriterProcess(path, "upsert", [["c", 30, "2"]], own_jvm=True)
    with one, two:
        table.upsert(frame(spark, [["d", 40, "3"]]))
        assert [one.answer()["outcome"], two.answer()["outcome"]] == ["committed", "committed"]
    check(table, with_rows(("a", 10, "1"), ("c", 30, "2"), ("d", 40, "3")))


@pytest.mark.in_ci
def test_the_second_writer_of_a_file_group_is_rejected_early_with_both_sides_named(spark, table, path):
    with WriterProcess(path, "upsert", [["a", 10, "1"]], name="first", options=PATIENT, stop_at="claimed") as first:
        first.wait_until_stopped()
        with pytest.raises(EarlyConflictError) as caught:
            table.upsert(frame(spark, [["b", 20, "1"]]))
        conflict = caught.value.conflict
        assert conflict.early and conflict.rule.value == "file-group" and conflict.retry_helps
        assert conflict.other.writer.application == "first" and conflict.mine.writer.application == "here"
        assert conflict.overlap[0].startswith("month=1/")
        first.go_on()
        assert first.answer()["outcome"] == "committed"
    check(table, with_rows(("a", 10, "1")))


def test_a_rejected_upsert_waits_for_the_other_and_its_retry_succeeds(spark, table, path):
    with WriterProcess(path, "upsert", [["a", 10, "1"]], name="first", options=PATIENT, stop_at="claimed") as first:
        first.wait_until_stopped()
        seen = []

        def let_the_first_go_on(event) -> None:
            seen.append(event.kind)
            if event.kind is EventKind.RETRY:
                first.go_on()

        patient = LakeTable.for_path(spark, path, options={**PATIENT, "retry.attempts": 4}, listeners=[let_the_first_go_on])
        result = patient.upsert(frame(spark, [["b", 20, "1"]]))
        assert first.answer()["outcome"] == "committed"
    assert result.attempts == 2 and EventKind.EARLY_CONFLICT in seen
    check(table, with_rows(("a", 10, "1"), ("b", 20, "1")))


@pytest.mark.parametrize("attempts", [3, *in_ci(1)])
def test_of_two_upserts_of_one_new_key_one_is_rejected_and_its_retry_updates(spark, table, path, attempts):
    options = {**PATIENT, "retry.attempts": attempts}
    with WriterProcess(path, "upsert", [["new", 1, "1"]], options=options, stop_at="data-written") as first:
        first.wait_until_stopped()
        table.upsert(frame(spark, [["new", 2, "1"]]))
        first.go_on()
        answer = first.answer()
    if attempts == 1:
        assert answer["outcome"] in ("conflict", "early-conflict") and answer["conflict"]["rule"] in ("key", "file-group")
        check(table, with_rows(("new", 2, "1")))
    else:
        assert answer["outcome"] == "committed" and answer["attempts"] == 2
        check(table, with_rows(("new", 1, "1")))


def test_blind_appends_never_conflict(spark, table, path):
    with WriterProcess(path, "insert", [["x", 1, "1"]], options=PATIENT, stop_at="reconciled") as first:
        first.wait_until_stopped()
        assert table.insert(frame(spark, [["y", 2, "1"]])).attempts == 1
        first.go_on()
        answer = first.answer()
    assert answer["outcome"] == "committed" and answer["attempts"] == 1
    check(table, with_rows(("x", 1, "1"), ("y", 2, "1")))


def of_log_files(spark, path) -> LakeTable:
    """A merge-on-read table with one file group, and all settings by default."""
    schema = spark.createDataFrame([], COLUMNS).schema
    made = LakeTable.create(spark, path, schema=schema, key="id", partition_by="month", table_type="MERGE_ON_READ")
    made.insert(frame(spark, [[f"k{number:02}", 0, "1"] for number in range(4 * WRITERS)]))
    return made


def answers(jobs: list[WriterProcess]) -> list[dict]:
    with ExitStack() as running:
        return [job.answer() for job in [running.enter_context(job) for job in jobs]]


def test_sixteen_writers_of_rows_of_one_file_group_need_one_attempt_each(spark, path):
    table = of_log_files(spark, path)
    told = answers(
        [WriterProcess(path, "upsert", [[f"k{n:02}", 1 + n, "1"]], name=f"w{n}", options={}) for n in range(WRITERS)]
    )
    assert [(each["outcome"], each["attempts"]) for each in told] == [("committed", 1)] * WRITERS
    check(table, [(f"k{n:02}", 1 + n if n < WRITERS else 0, "1") for n in range(4 * WRITERS)])
    assert leftovers(LocalStorage(path)) == []


def test_sixteen_writers_that_count_one_row_up_lose_no_update(spark, path):
    table = of_log_files(spark, path)
    order = {"id": "k00", "month": "1", "times": 1}
    told = answers([WriterProcess(path, "count_up", order, name=f"w{n}", options={}) for n in range(WRITERS)])
    assert [each["outcome"] for each in told] == ["committed"] * WRITERS
    check(table, [(f"k{n:02}", 0 if n else WRITERS, "1") for n in range(4 * WRITERS)])
    assert leftovers(LocalStorage(path)) == []


@pytest.mark.parametrize("appended", [["x", 1, "2"], ["x", 99, "2"]], ids=["matching", "harmless"])
def test_an_erasure_by_condition_meets_an_append_only_if_a_row_matches(spark, table, path, appended):
    with WriterProcess(path, "delete_where", "v = 1", options=PATIENT, stop_at="reconciled") as erasure:
        erasure.wait_until_stopped()
        table.insert(frame(spark, [appended]))
        erasure.go_on()
        answer = erasure.answer()
    rest = [row for row in with_rows() if row[0] != "a"]
    if appended[1] == 1:
        assert answer["outcome"] == "conflict" and answer["conflict"]["rule"] == "append"
        check(table, [*with_rows(), tuple(appended)])
    else:
        assert answer["outcome"] == "committed"
        check(table, [*rest, tuple(appended)])


def test_an_insert_that_commits_after_an_overwrite_of_its_partition_adds_to_what_it_left(spark, table, path):
    with WriterProcess(path, "insert", [["x", 1, "1"]], options=PATIENT, stop_at="reconciled") as insert:
        insert.wait_until_stopped()
        table.overwrite_partitions(frame(spark, [["only", 7, "1"]]))
        insert.go_on()
        answer = insert.answer()
    assert answer["outcome"] == "committed" and answer["attempts"] == 1
    check(table, [("only", 7, "1"), ("x", 1, "1"), ("c", 3, "2"), ("d", 4, "3")])


def test_an_overwrite_that_commits_after_an_insert_into_its_partition_is_rejected(spark, table, path):
    with WriterProcess(path, "overwrite", [["only", 7, "1"]], options=PATIENT, stop_at="reconciled") as overwrite:
        overwrite.wait_until_stopped()
        table.insert(frame(spark, [["x", 1, "1"]]))
        overwrite.go_on()
        answer = overwrite.answer()
    assert answer["outcome"] == "conflict" and answer["conflict"]["rule"] == "partition-overwrite"
    check(table, with_rows(("x", 1, "1")))


def test_a_transaction_that_read_what_another_changed_is_rejected(spark, table, path):
    order = {"from": "a", "to": "c", "month": "2"}
    with WriterProcess(path, "transfer", order, options=PATIENT, stop_at="reconciled") as transfer:
        transfer.wait_until_stopped()
        table.upsert(frame(spark, [["a", 100, "1"]]))
        transfer.go_on()
        answer = transfer.answer()
    assert answer["outcome"] == "conflict" and answer["conflict"]["rule"] == "delete-read"
    check(table, with_rows(("a", 100, "1")))


def test_a_sleeper_beyond_lease_and_heartbeat_does_not_commit_and_its_files_do_not_show(spark, path, table):
    with WriterProcess(path, "upsert", [["a", 10, "1"]], options=QUICK, stop_at="validated") as sleeper:
        sleeper.wait_until_stopped()
        awake = LakeTable.for_path(spark, path, options=QUICK, application="awake")
        time.sleep(3.5)  # longer than its lease and than its heartbeat's limit
        awake.upsert(frame(spark, [["b", 20, "1"]]))
        sleeper.go_on()
        answer = sleeper.answer()
    assert answer["outcome"] in ("rolled-back", "lease-lost", "conflict")
    check(table, with_rows(("b", 20, "1")))
    assert leftovers(LocalStorage(path)) == []


def test_a_lock_that_grants_everybody_loses_no_update(spark, table, path):
    with WriterProcess(path, "upsert", [["a", 10, "1"]], options=PATIENT, grants_everybody=True, stop_at="validated") as first:
        first.wait_until_stopped()
        with WriterProcess(path, "upsert", [["b", 20, "1"]], options={**PATIENT, "concurrency.early_conflict_detection": False},
                           grants_everybody=True) as second:  # fmt: skip
            assert second.answer()["outcome"] == "committed"
        first.go_on()
        answer = first.answer()
    assert answer["outcome"] == "conflict" and answer["conflict"]["rule"] == "file-group"
    check(table, with_rows(("b", 20, "1")))
