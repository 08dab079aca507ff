"""Small writes by Spark that meet others at the lock are committed together with theirs, as those without Spark (ADR 54)."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from typing import TypeVar

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.api import ArrowEngine, Coordinator, LocalStorage, StorageLocation, layout
from tests.behaviour.tables import leftovers
from tests.sizes import but, in_ci
from tests.spark import without_jobs
from tests.spark.processes import PATIENT, WriterProcess

from lakelock import WriteResult
from lakelock.engine.group_commit import HURRY_S, fingerprint
from lakelock.errors import DuplicateKeyError, SchemaError
from lakelock.occ.commit_keys import Member
from lakelock.occ.offers import Offer, put_offer
from lakelock.spark_plugin import LakeTable
from lakelock.table.rewriting import ARROW

COLUMNS = "id long, v long, p string"
START = [(1, 1, "a"), (2, 2, "a"), (3, 3, "a"), (4, 4, "a")]
OPTIONS = {**PATIENT, "retry.attempts": 10}
Done = TypeVar("Done")
LIMIT_S = 120


def frame(spark: SparkSession, *values: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS)


def made(spark: SparkSession, path: str, options: dict[str, object] | None = None, **more: object) -> LakeTable:
    """A table with four rows."""
    given = {"key": "id", "partition_by": "p", **more}
    table = LakeTable.create(
        spark, path, schema=frame(spark), options={**OPTIONS, **(options or {})}, **given,  # type: ignore[arg-type]
    )  # fmt: skip
    table.insert(frame(spark, *START))
    return table


def engine_of(path: str) -> ArrowEngine:
    return ArrowEngine(Coordinator.open(StorageLocation(path)))


def offers(path: str) -> list[str]:
    return [item.key for item in LocalStorage(path.removeprefix("file://")).list(layout.OFFERS)]


@contextmanager
def lock_held(path: str, until: Callable[[], bool]) -> Iterator[None]:
    """Another holds the lock from the beginning of the block until something has come true."""
    table, held, give_up = engine_of(path).coordinator.table, threading.Event(), time.monotonic() + LIMIT_S

    def hold() -> None:
        with table.locked():
            held.set()
            while not until() and time.monotonic() < give_up:
                time.sleep(0.02)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(LIMIT_S)
    yield
    holder.join()


def meeting(table: LakeTable, write: Callable[[LakeTable], Done]) -> Done:
    """The write finds the lock taken until it is on offer, beside what is there already."""
    before = len(offers(table.path))
    with lock_held(table.path, until=lambda: len(offers(table.path)) > before):
        return write(table)


def on_offer(path: str, operation: str, given: pa.Table, tag: str) -> None:
    """An offer whose owner is gone without a word, as after `kill -9`."""
    coordinator = engine_of(path).coordinator
    table, schema = coordinator.table, coordinator.schema()
    coordinator.table.log.look()
    member = Member(table.runtime.uuid(), table.writer, tag, given.num_rows, ("p=a",))
    put_offer(table, Offer(member, table.log.newest, fingerprint(schema), ARROW.packed(given), operation))


def arrow(*values: tuple[object, ...]) -> pa.Table:
    columns = [[*column] for column in zip(*values, strict=True)]
    return pa.table(columns, schema=pa.schema([("id", pa.int64()), ("v", pa.int64()), ("p", pa.string())]))


def content(table: LakeTable) -> list[tuple[object, ...]]:
    return sorted(without_jobs.content(table))


def members(table: LakeTable) -> dict[str, int]:
    """By tag the rows of each member of the newest commit."""
    return {each.tag: each.rows for each in table.history(1, full=True).collect()[0].members or []}


def ran_on(table: LakeTable) -> str:
    return str(table.history(1, full=True).collect()[0].ran_on)


def keys(spark: SparkSession, *ids: int) -> DataFrame:
    return frame(spark, *((number, 0, "a") for number in ids)).select("id", "p")


WRITES: dict[str, Callable[[LakeTable], WriteResult]] = {
    "insert": lambda t: t.insert(frame(spark_of(t), (7, 7, "a")), tag="mine"),
    "insert in SQL": lambda t: t.sql(f"INSERT INTO lakelock.`{t.path}` VALUES (7, 7, 'a')", tag="mine"),
    "upsert": lambda t: t.upsert(frame(spark_of(t), (1, 9, "a"), (7, 7, "a")), tag="mine"),
    "delete": lambda t: t.delete(keys(spark_of(t), 1, 50), tag="mine"),
    "delete where": lambda t: t.delete("id IN (1, 50) AND p = 'a'", tag="mine"),
    "delete in SQL": lambda t: t.sql(f"DELETE FROM lakelock.`{t.path}` AS x WHERE x.P = 'a' AND 1 = x.id", tag="mine"),
    "upsert by merge": lambda t: upserting(t, frame(spark_of(t), (1, 9, "a"), (7, 7, "a")), tag="mine"),
    "upsert by MERGE": lambda t: t.sql(f"{MERGE.format(t.path)} WHEN MATCHED THEN UPDATE SET * {OR_INSERT}", tag="mine"),
    "delete by merge": lambda t: deleting(t, keys(spark_of(t), 1, 50), tag="mine"),
}
MERGE = """MERGE INTO lakelock.`{}` AS t USING (SELECT 1L AS ID, 9L AS v, 'a' AS p UNION ALL SELECT 7L, 7L, 'a') AS s
ON s.p = t.p AND t.id = s.id"""
OR_INSERT = "WHEN NOT MATCHED THEN INSERT *"


def upserting(table: LakeTable, rows: DataFrame, on: object = ("id", "p"), **more: str) -> WriteResult:
    found = table.merge(rows, on, **more).when_not_matched_insert_all().when_matched_update_all()  # type: ignore[arg-type]
    return found.execute()


def deleting(table: LakeTable, rows: DataFrame, on: object = ("id", "p"), **more: str) -> WriteResult:
    return table.merge(rows, on, **more).when_matched_delete().execute()  # type: ignore[arg-type]


COUNTS = {"insert": (1, 0, 0), "upsert": (1, 1, 0), "delete": (0, 0, 1)}
"""Of each operation the rows inserted, updated, and deleted."""


def spark_of(_: LakeTable) -> SparkSession:
    return SparkSession.builder.getOrCreate()


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", *in_ci("MERGE_ON_READ")])
@pytest.mark.parametrize("kind", but(WRITES, ("upsert", "delete in SQL", "upsert by merge"), WRITES))
def test_a_small_write_takes_along_those_of_its_kind_that_wait(
    spark: SparkSession, path: str, kind: str, table_type: str
) -> None:
    operation = kind.split()[0]
    deletes = operation == "delete"
    with made(spark, path, table_type=table_type) as table:
        theirs = arrow((2, 0, "a")).select(["id", "p"]) if deletes else arrow((8, 8, "a"))
        on_offer(path, operation.upper(), theirs, "theirs")
        done = meeting(table, WRITES[kind])
        assert (done.rows_inserted, done.rows_updated, done.rows_deleted) == COUNTS[operation]
        assert members(table).keys() == {"mine", "theirs"} and ran_on(table) == "driver"
        assert table.history(1).collect()[0].operation == operation.upper()
        assert {row[0] for row in content(table)} == ({3, 4} if deletes else {1, 2, 3, 4, 7, 8})
        assert offers(path) == [] and leftovers(LocalStorage(path)) == []


@pytest.mark.parametrize("kind", ["upsert", *in_ci("insert", "delete")])
def test_processes_that_meet_are_fewer_commits_than_writes(spark: SparkSession, path: str, kind: str) -> None:
    columns = "id string, v bigint, month string"
    schema = spark.createDataFrame([], columns)
    with LakeTable.create(spark, path, schema=schema, key="id", partition_by="month", options=OPTIONS) as table:
        table.insert(spark.createDataFrame([(name, 0, "1") for name in "abcx"], columns))
        with lock_held(path, until=lambda: len(offers(path)) == 3):
            rows = [["d" + name if kind == "insert" else name, 1, "1"] for name in "abc"]
            # The first offers its row and waits for the lock until the last has started.
            patient = {**OPTIONS, "lock.wait_s": 2 * LIMIT_S}
            writers = [WriterProcess(path, kind, [row], name=f"writer {row[0]}", options=patient) for row in rows]
        try:
            answers = [each.answer() for each in writers]
        finally:
            for each in writers:
                each.__exit__()
        assert [answer["outcome"] for answer in answers] == ["committed"] * 3
        assert len({answer["instant"] for answer in answers}) < 3
        left = {row["id"]: row["v"] for row in table.read().collect()}
        expected = {"insert": dict.fromkeys("abcx", 0) | {"da": 1, "db": 1, "dc": 1}, "delete": {"x": 0}}
        assert left == expected.get(kind, {"a": 1, "b": 1, "c": 1, "x": 0})
        history = table.history(3, full=True).collect()
        assert {row.ran_on for row in history if row.instant in {answer["instant"] for answer in answers}} == {"driver"}


TYPES = "id long, p string, s struct<d: date, t: timestamp>, m map<string, decimal(10, 2)>, b array<binary>, n timestamp_ntz"


def test_all_types_of_spark_are_the_same_in_a_group(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    day, moment = dt.date(2026, 11, 29), dt.datetime(2026, 11, 29, 1, 2, 3, 4)
    first = (1, "a", (day, moment), {"k": Decimal("1.50")}, [b"x", None], moment)
    second = (1, "a", (None, moment), {"k": None}, [], None)
    found = []
    for group_commit in (False, True):
        path = str(tmp_path_factory.mktemp("table") / "table")
        options = {**OPTIONS, "write.group_commit": group_commit}
        with LakeTable.create(
            spark, path, schema=spark.createDataFrame([], TYPES), key="id", partition_by="p", options=options
        ) as table:
            for rows, write in (([first, (3, *second[1:])], table.insert), ([second, (2, *first[1:])], table.upsert)):
                written = spark.createDataFrame(rows, TYPES)
                if group_commit:
                    meeting(table, lambda _, write=write, written=written: write(written))
                else:
                    write(written)
            found.append(table.read().orderBy("id").collect())
    assert found[0] == found[1] and len(found[0]) == 3


def test_rows_are_computed_once_whichever_way_they_go(spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = spark.sparkContext.accumulator(0)

    def counted(number: int) -> tuple[int, int, str]:
        computed.add(1)
        return (number, number, "a")

    with made(spark, path) as table:
        numbers = spark.createDataFrame(spark.sparkContext.parallelize(range(10, 12), 2).map(counted), COLUMNS)
        table.upsert(numbers)
        assert computed.value == 2
        on_offer(path, "UPSERT", arrow((20, 0, "a")), "theirs")
        meeting(table, lambda table: table.upsert(numbers, tag="mine"))
        assert computed.value == 4 and members(table) == {"mine": 2, "theirs": 1}
        monkeypatch.setattr("lakelock.spark_plugin.stage_rows.DRIVER_BYTES", 100)
        on_offer(path, "UPSERT", arrow((20, 0, "a")), "theirs")
        table.upsert(numbers)
        assert computed.value == 6 and members(table) == {}


APART: dict[str, tuple[dict[str, object], Callable[[LakeTable], WriteResult]]] = {
    "executors": ({"options": {"write.driver_rows": 0}}, lambda t: t.upsert(frame(spark_of(t), (1, 9, "a")))),
    "more rows than the driver takes": (
        {"options": {"write.driver_rows": 4}},
        lambda t: t.upsert(frame(spark_of(t), *((n, 9, "a") for n in range(1, 6)))),
    ),
    "switched off": ({"options": {"write.group_commit": False}}, lambda t: t.upsert(frame(spark_of(t), (1, 9, "a")))),
    "another profile": ({"options": {"concurrency.profile": "hive"}}, lambda t: t.upsert(frame(spark_of(t), (1, 9, "a")))),
    "a named partition": ({}, lambda t: t.upsert(frame(spark_of(t), (1, 9, "a")), partition="p=a")),
    "an application": ({}, lambda t: t.upsert(frame(spark_of(t), (1, 9, "a")), txn_app_id="job", txn_version=1)),
    "kept columns": ({}, lambda t: t.upsert(frame(spark_of(t), (1, 9, "a")).drop("v"), missing_columns="keep")),
    "new columns": ({}, lambda t: t.upsert(frame(spark_of(t), (1, 9, "a")).selectExpr("*", "1 AS n"), merge_schema=True)),
    "buckets": ({"index": "bucket:2"}, lambda t: t.upsert(frame(spark_of(t), (1, 9, "a")))),
    "global keys": ({"index": "global"}, lambda t: t.upsert(frame(spark_of(t), (1, 9, "b")))),
    "a condition on other columns": ({}, lambda t: t.delete("id = 1 AND p = 'a' AND v = 1")),
    "a condition without the partition": ({}, lambda t: t.delete("id = 1")),
    "a merge without new rows": (
        {},
        lambda t: t.merge(frame(spark_of(t), (1, 9, "a")), ["id", "p"]).when_matched_update_all().execute(),
    ),
    "a merge by an ordering column": ({"order_by": "v"}, lambda t: upserting(t, frame(spark_of(t), (1, 0, "a")))),
    "a merge with another condition": (
        {},
        lambda t: upserting(
            t, frame(spark_of(t), (1, 9, "a")), "target.id = source.id AND target.p = source.p AND target.v < 5"
        ),
    ),
    "a merge of keys that are computed": (
        {},
        lambda t: deleting(t, frame(spark_of(t), (0, 9, "a")), "target.id = source.id + 1 AND target.p = source.p"),
    ),
    "a merge that equates a column twice": (
        {},
        lambda t: deleting(
            t, frame(spark_of(t), (1, 1, "a")), "target.id = source.id AND target.id = source.v AND target.p = source.p"
        ),
    ),
    "a merge by a part of the key": ({}, lambda t: deleting(t, frame(spark_of(t), (1, 9, "a")), "id")),
    "a merge of narrower values": (
        {},
        lambda t: upserting(t, frame(spark_of(t), (1, 9, "a")).selectExpr("id", "int(v) AS v", "p")),
    ),
    "a merge of a clause with a condition": (
        {},
        lambda t: t.merge(frame(spark_of(t), (1, 9, "a")), ["id", "p"]).when_matched_delete("target.v = 1").execute(),
    ),
}


@pytest.mark.parametrize("kind", but(APART, ("executors", "global keys"), APART))
def test_other_writes_are_committed_by_themselves(spark: SparkSession, path: str, kind: str) -> None:
    given, write = APART[kind]
    with made(spark, path, **given) as table:  # type: ignore[arg-type]
        on_offer(path, "UPSERT", arrow((20, 0, "a")), "theirs")
        on_offer(path, "DELETE", arrow((2, 0, "a")).select(["id", "p"]), "theirs")
        released = time.monotonic() + 2 * HURRY_S
        with lock_held(path, until=lambda: time.monotonic() > released):
            done = write(table)
        assert members(table) == {} and len(offers(path)) == 2
        assert done.rows_updated + done.rows_deleted + done.rows_inserted >= 1


STRANGE: dict[str, Callable[[LakeTable], WriteResult]] = {
    "of a null that equals nothing": lambda t: upserting(t, frame(spark_of(t), (1, 9, None), (1, 8, "a"))),
    "that deletes where nothing is null": lambda t: deleting(t, frame(spark_of(t), (1, 9, None), (2, 9, "a"), (2, 8, "a"))),
    "of two rows for one": lambda t: upserting(t, frame(spark_of(t), (1, 9, "a"), (1, 8, "a"))),
    "of two new rows of one key": lambda t: upserting(t, frame(spark_of(t), (7, 9, "a"), (7, 9, "a"))),
    "of a key that is stored twice": lambda t: upserting(t, frame(spark_of(t), (3, 9, "b"))),
    "of no rows": lambda t: upserting(t, frame(spark_of(t))),
}


@pytest.mark.parametrize("kind", but(STRANGE, ("of two rows for one", "of a key that is stored twice"), STRANGE))
def test_a_merge_does_the_same_beside_others_as_alone(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    found = []
    for beside in (False, True):
        path = str(tmp_path_factory.mktemp("table") / "table")
        with made(spark, path, {"write.duplicates": "any"}) as table:
            for value in (5, 6):
                table.insert(frame(spark, (3, value, "b")))
            table.insert(frame(spark, (1, 1, None)))
            if beside:
                on_offer(path, "UPSERT", arrow((20, 0, "a")), "theirs")
                meeting(table, lambda table: table.upsert(frame(spark, (21, 0, "a"))))
            else:
                table.upsert(frame(spark, (20, 0, "a"), (21, 0, "a")))
            try:
                done = STRANGE[kind](table)
                told: object = (done.rows_written, done.rows_inserted, done.rows_updated, done.rows_deleted)
            except DuplicateKeyError as error:
                told = str(error)
            found.append((told, sorted(without_jobs.content(table), key=str)))
    assert found[0] == found[1]


def test_a_row_that_an_ordering_column_makes_too_old_is_left_out_as_ever(spark: SparkSession, path: str) -> None:
    with made(spark, path, order_by="v") as table:
        on_offer(path, "UPSERT", arrow((20, 0, "a")), "theirs")
        meeting(table, lambda table: table.upsert(frame(spark, (4, 1, "a"), (5, 5, "a"))))
        assert [row for row in content(table) if row[0] in (4, 5)] == [(4, 4, "a"), (5, 5, "a")]


def test_rows_that_do_not_fit_are_refused_and_offer_nothing(spark: SparkSession, path: str) -> None:
    with made(spark, path) as table:
        on_offer(path, "INSERT", arrow((20, 0, "a")), "theirs")
        meeting(table, lambda table: table.insert(frame(spark, (7, 7, "a"))))
        with pytest.raises(SchemaError, match="other"):
            table.insert(frame(spark, (7, 7, "a")).selectExpr("*", "1 AS other"))
        with pytest.raises(SchemaError, match="v"):
            table.upsert(frame(spark, (7, 7, "a")).drop("v"))
        with pytest.raises(DuplicateKeyError):
            table.upsert(frame(spark, (7, 7, "a"), (7, 8, "a")))
        assert offers(path) == [] and leftovers(LocalStorage(path)) == []


def test_a_group_whose_files_are_many_for_a_driver_is_done_one_by_one(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made(spark, path) as table:
        on_offer(path, "UPSERT", arrow((20, 0, "a")), "theirs")
        meeting(table, lambda table: table.upsert(frame(spark, (1, 8, "a"))))
        monkeypatch.setattr("lakelock.spark_plugin.stage_rows.DRIVER_FILES", 0)
        on_offer(path, "UPSERT", arrow((21, 0, "a")), "theirs")
        table.upsert(frame(spark, (1, 9, "a")))
        assert members(table) == {} and ran_on(table) == "executors" and (1, 9, "a") in content(table)
        assert 21 not in {row[0] for row in content(table)}


def test_threads_of_one_handle_lose_nothing(spark: SparkSession, path: str) -> None:
    with made(spark, path) as table:

        def work(number: int) -> Sequence[int]:
            return [table.upsert(frame(spark, (number, value, "a"))).rows_updated for value in range(10, 13)]

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(work, range(1, 5))) == [[1, 1, 1]] * 4
        assert content(table) == [(number, 12, "a") for number in range(1, 5)]
