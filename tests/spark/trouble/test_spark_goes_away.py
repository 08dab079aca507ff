"""Spark goes away under a write: the user hears what became of it, and the table is as if it had never begun."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession
from tests.sizes import long
from tests.spark.processes import PATIENT, QUICK, WriterProcess
from tests.spark.writer_process import COLUMNS, frame
from tests.waiting import eventually

from lakelock.spark_plugin import LakeTable

STORED = [["a", 1, "1"], ["b", 2, "1"], ["c", 3, "2"]]
NEW = [["a", 10, "1"], ["d", 40, "2"]]
WHAT_BECAME_OF_IT = "whatever ends Spark under a write, the error says what became of it"


class DoomedWriter(WriterProcess):
    """A driver whose Spark goes away once a task of its write has begun."""

    module = "tests.spark.doomed_writer"

    def __init__(self, table: str, folder: Path, what: str, **order: object):
        self.folder = folder
        folder.mkdir()
        orders = {
            "table": table,
            "folder": str(folder),
            "what": what,
            "rows": NEW,
            "options": {**PATIENT, "write.driver_rows": 0},
            **order,
        }
        self.start([sys.executable, "-m", self.module, json.dumps(orders)])

    def wait_for_a_task(self) -> int:
        """Return the id of the JVM once a task of the write runs."""
        eventually(lambda: (self.folder / "reached").exists() or self.process.poll() is not None, saying="a task begins")
        assert (self.folder / "reached").exists(), self.process.communicate()
        return int((self.folder / "pid").read_text())


@pytest.fixture
def path(spark: SparkSession, path: str) -> str:
    made = LakeTable.create(spark, path, schema=spark.createDataFrame([], COLUMNS), key="id", partition_by="month")
    made.insert(frame(spark, STORED))
    return path


@contextmanager
def unharmed(spark: SparkSession, path: str) -> Iterator[None]:
    """After the block one write was rolled back to the end, the table has its rows, and the next write meets nothing."""
    files = set(Path(path).rglob("*.parquet"))
    timeline = {file.name for file in Path(path, ".hoodie/timeline").glob("*.*")}
    yield
    table = LakeTable.for_path(spark, path, options=QUICK)
    assert sorted([*row] for row in table.read().select("id", "v", "month").collect()) == STORED
    assert list(Path(path, ".hoodie/.heartbeat").glob("*")) == []
    assert [file for file in Path(path, ".hoodie/.lakelock/claims").rglob("*") if file.is_file()] == []
    added = [file.name for file in Path(path, ".hoodie/timeline").glob("*.*") if file.name not in timeline]
    assert sorted(name.partition(".")[2] for name in added) == ["rollback", "rollback.inflight", "rollback.requested"]
    assert set(Path(path).rglob("*.parquet")) == files
    assert table.upsert(frame(spark, NEW)).attempts == 1


@pytest.mark.in_ci
@pytest.mark.sampled(promise=WHAT_BECAME_OF_IT, one_in=2)
@pytest.mark.parametrize("what", ["upsert", *long("transaction", "computing")])
def test_a_jvm_that_dies_under_a_write_is_an_error_that_says_what_became_of_it(
    spark: SparkSession, path: str, tmp_path: Path, what: str
) -> None:
    with unharmed(spark, path), DoomedWriter(path, tmp_path / "order", what) as writer:
        os.kill(writer.wait_for_a_task(), signal.SIGKILL)
        answer = writer.answer()
        assert answer["type"] == "SparkGone", answer["trace"]
    assert "Spark's JVM does not answer: it has ended or was killed; UPSERT 2" in answer["text"]
    assert "was rolled back, nothing of it is in the table" in answer["text"]
    assert "start a new Spark session" in answer["text"]
    for later in answer["later"]:
        assert later["type"] == "SparkGone" and "does not answer" in later["text"], later["trace"]


@pytest.mark.in_ci
@pytest.mark.sampled(promise=WHAT_BECAME_OF_IT, one_in=2)
def test_a_session_that_is_stopped_under_a_write_is_an_error_that_says_what_became_of_it(
    spark: SparkSession, path: str, tmp_path: Path
) -> None:
    with unharmed(spark, path), DoomedWriter(path, tmp_path / "order", "upsert", stops=True) as writer:
        answer = writer.answer()
        assert answer["type"] == "SparkGone", answer["trace"]
    assert "the Spark session was stopped; UPSERT 2" in answer["text"]
    assert "was rolled back, nothing of it is in the table" in answer["text"]
    for later in answer["later"]:
        assert later["type"] == "SparkGone" and "was stopped" in later["text"], later["trace"]


@pytest.mark.in_ci
@pytest.mark.sampled(promise=WHAT_BECAME_OF_IT, one_in=2)
def test_an_interruption_from_the_keyboard_stays_one_and_says_what_became_of_the_write(
    spark: SparkSession, path: str, tmp_path: Path
) -> None:
    with unharmed(spark, path), DoomedWriter(path, tmp_path / "order", "upsert", **{"runs on": True}) as writer:
        writer.wait_for_a_task()
        os.kill(writer.process.pid, signal.SIGINT)
        answer = writer.answer()
    if pyspark.__version__.startswith(("4.0.", "4.1.")) and answer["type"] == "WriteFailed":
        # There PySpark's own handler may break off the call that it interrupts, and the interruption is lost in py4j.
        assert "An error occurred while calling" in answer["text"]
        return
    assert answer["type"] == "KeyboardInterrupt", answer["trace"]
    (note,) = answer["notes"]
    assert note.startswith("lakelock: UPSERT 2") and note.endswith("was rolled back, nothing of it is in the table")
