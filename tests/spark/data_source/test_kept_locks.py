"""PESSIMISTIC writes through `format("lakelock")`: data locks for the whole write, though no Python process lives as long."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.api import Coordinator, StorageLocation
from tests.servers import SERVICES, Service
from tests.spark.processes import WriterProcess
from tests.spark.writer_process import COLUMNS, frame, gate
from tests.waiting import eventually

from lakelock.admin.shown_locks import LockRow, shown_locks
from lakelock.errors import LockTimeout
from lakelock.settings import Settings
from lakelock.spark_plugin import LakeTable, unregister

# A lease of ten minutes: what is free after seconds was given back.
PESSIMISTIC = {
    "concurrency.mode": "PESSIMISTIC", "data_locks.attempts": "4000", "data_locks.sleep_s": "0.05",
    "data_locks.lease_s": "600", "data_locks.renew_s": "0.5",
}  # fmt: skip
AT_ONCE = {**PESSIMISTIC, "data_locks.attempts": "1"}
BOUND_S = 200
pytestmark = pytest.mark.in_ci


@pytest.fixture(scope="module", params=["storage", "redis"])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with SERVICES[request.param](tmp_path_factory.mktemp(request.param)) as running:
        yield running


def made(spark: SparkSession, path: str, options: dict[str, str]) -> LakeTable:
    unregister(spark)
    schema = frame(spark, []).schema
    table = LakeTable.create(spark, path, schema=schema, key="id", partition_by="month", options=options, application="driver")
    table.insert(frame(spark, [["a", 10, "1"], ["b", 20, "2"]]))
    return table


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    return made(spark, path, PESSIMISTIC)


@pytest.fixture
def gated(tmp_path: Path) -> Path:
    folder = tmp_path / "gate"
    folder.mkdir()
    return folder


def save(spark: SparkSession, path: str, rows: list[list], options: dict, *, mode: str = "append", gated: Path | None = None):
    """Write through the data source; with `gated`, its task waits there."""
    # Made in the thread that saves: Spark finds the registered data source by the active session of its thread.
    made = frame(spark, rows).coalesce(1)
    held = made if gated is None else made.mapInArrow(gate(str(gated)), COLUMNS)
    held.write.format("lakelock").mode(mode).options(**options).option("application", "sink").save(path)


def shown(path: str, options: dict[str, str] = PESSIMISTIC) -> list[LockRow]:
    """What `lakelock locks ls` prints of the data locks."""
    settings = Settings.resolve(options).settings
    with Coordinator.open(StorageLocation.of(path), settings) as looking:
        return [row for row in shown_locks(looking, extended=False) if row.kind == "data"]


def states(path: str, options: dict[str, str]) -> list[str]:
    return [row.state for row in shown(path, options)]


def going_on(job: Future[None]) -> bool:
    """True while the job runs; raises its error."""
    return not job.done() or job.result() is not None


def ids(table: LakeTable) -> list[str]:
    return sorted(row.id for row in table.read().collect())


def test_a_write_waits_for_a_reader_holds_its_locks_while_it_runs_and_gives_them_back(
    spark: SparkSession, service: Service, path: str, gated: Path
) -> None:
    options = {**PESSIMISTIC, **service.options, "lock.provider": service.url("kept-locks")}
    table = made(spark, path, options)
    hasty = LakeTable.for_path(spark, path, options={**options, "data_locks.attempts": "1"})
    with ThreadPoolExecutor(1) as pool:
        with table.locks.reading(partition="month=1"):
            job = pool.submit(save, spark, path, [["c", 30, "1"]], {**options, "partition": "month=1"}, gated=gated)
            eventually(
                lambda: going_on(job) and [row.state for row in shown(path, options)] == ["ACQUIRED", "WAITING"], BOUND_S
            )
            assert not (gated / "reached").exists()
        eventually(lambda: going_on(job) and (gated / "reached").exists(), BOUND_S)
        (held,) = shown(path, options)
        assert (held.state, held.type, held.partition) == ("ACQUIRED", "EXCLUSIVE", "month=1")
        assert held.agent_info == "sink: INSERT" and held.instant
        with pytest.raises(LockTimeout, match="sink"):
            hasty.upsert(frame(spark, [["a", 11, "1"]]), partition="month=1")
        hasty.insert(frame(spark, [["d", 40, "2"]]), partition="month=2")
        (gated / "open").touch()
        job.result(timeout=BOUND_S)
    assert shown(path, options) == []
    assert ids(table) == ["a", "b", "c", "d"]


def test_a_write_that_cannot_have_its_locks_or_fails_leaves_neither_locks_nor_rows(
    spark: SparkSession, table: LakeTable, path: str
) -> None:
    with table.locks.reading(partition="month=1"), pytest.raises(Exception, match="X on the table.* are blocked by driver"):
        save(spark, path, [["c", 30, "2"]], AT_ONCE, mode="overwrite")
    with pytest.raises(Exception, match="key column id is null"):
        save(spark, path, [["c", 30, "1"], [None, 30, "1"]], PESSIMISTIC)
    assert shown(path) == []
    assert ids(table) == ["a", "b"]
    save(spark, path, [["c", 30, "2"]], AT_ONCE, mode="overwrite")
    assert shown(path) == []
    assert ids(table) == ["c"]


def test_a_write_whose_locks_nobody_keeps_any_more_is_committed_by_validation(
    spark: SparkSession, table: LakeTable, path: str, gated: Path
) -> None:
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(save, spark, path, [["c", 30, "1"]], PESSIMISTIC, gated=gated)
        eventually(lambda: going_on(job) and (gated / "reached").exists(), BOUND_S)
        (held,) = shown(path)
        os.kill(held.pid, signal.SIGKILL)
        (gated / "open").touch()
        job.result(timeout=BOUND_S)
    assert ids(table) == ["a", "b", "c"]


def test_the_locks_of_a_spark_that_is_killed_are_given_back_at_once(
    spark: SparkSession, table: LakeTable, path: str, gated: Path
) -> None:
    order = {"rows": [["c", 30, "1"]], "gate": str(gated), "path": path, "options": PESSIMISTIC}
    with WriterProcess(path, "save", order, options=PESSIMISTIC, own_jvm=True):
        eventually((gated / "reached").exists, BOUND_S)
        assert len(shown(path)) == 1
    eventually(lambda: shown(path) == [], BOUND_S)
    table.insert(frame(spark, [["d", 40, "1"]]))
    assert ids(table) == ["a", "b", "d"]


def test_each_micro_batch_of_a_stream_holds_the_locks_of_its_write(
    spark: SparkSession, table: LakeTable, path: str, tmp_path: Path
) -> None:
    for name in ("c", "d"):
        frame(spark, [[name, 30, "1"]]).coalesce(1).write.mode("append").parquet(str(tmp_path / "source"))
    source = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "source"))
    stream = source.writeStream.format("lakelock").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with table.locks.reading(partition="month=2"):
        query = stream.options(**AT_ONCE).trigger(availableNow=True).start(path)
        with pytest.raises(Exception, match="are blocked by driver"):
            query.awaitTermination(BOUND_S)
    stream.options(**AT_ONCE).trigger(availableNow=True).start(path).awaitTermination(BOUND_S)
    assert ids(table) == ["a", "b", "c", "d"]
    assert shown(path) == []
