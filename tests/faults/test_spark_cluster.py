"""Executors of a Spark cluster as processes: copies of slow tasks, killed executors, and tasks that outlive their executor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue

import pytest

pytest.importorskip("pyspark")

from tests.api import CommitMetadata, LocalStorage
from tests.faults.world import BEFORE, Row, check_settled, read_by_all
from tests.sizes import long
from tests.spark.processes import EXECUTOR_KILLED, ROOT, short_lived_jvms
from tests.waiting import eventually

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: /proc, and a host name for each executor"),
]
ANSWER_S = 240
NEW: list[Row] = [(f"n{i}", i, str(i % 2 + 1)) for i in range(8)]
AFTER = {
    "insert": sorted([*BEFORE, *NEW]),
    "upsert": sorted([("a", 10, "1"), ("b", 2, "1"), ("c", 30, "2"), *NEW]),
}


class Cluster:
    """The process with the cluster's driver; it does one write after the other."""

    def __init__(self, folder: Path) -> None:
        short_lived_jvms()
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        self._err = (folder / "err").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.cluster", str(folder)], cwd=ROOT, env=env, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._err, text=True, start_new_session=True,
        )  # fmt: skip
        self._lines: Queue[str] = Queue()
        threading.Thread(target=self._receive, daemon=True).start()
        self.answer()

    def _receive(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self._lines.put(line)

    def order(self, path: str, way: str, folder: Path, step: str, act: str) -> None:
        assert self.process.stdin is not None
        trouble = {"folder": str(folder), "step": step, "act": act}
        self.process.stdin.write(json.dumps({"table": path, "way": way, "trouble": trouble}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, object]:
        try:
            answer: dict[str, object] = json.loads(self._lines.get(timeout=ANSWER_S))
        except Empty:
            raise AssertionError(f"the cluster does not answer: {Path(self._err.name).read_text()[-3000:]}") from None
        return answer

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
        self._err.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "trouble"
    made.mkdir()
    return made


def chosen(folder: Path) -> int:
    """The process that met the trouble."""
    return int((folder / "chosen").read_text().split()[1])


def is_over(folder: Path) -> bool:
    """Whether that process has ended, or waits for its next task."""
    return not Path(f"/proc/{chosen(folder)}").exists() or (folder / "over").exists()


def check(path: str, way: str) -> None:
    """The rows are right, and the commit names exactly the files that are there, one per file group."""
    assert read_by_all(path) == AFTER[way]
    timeline = sorted(Path(path).glob(".hoodie/timeline/*_*.commit"))
    instant, data = timeline[-1].name.partition("_")[0], timeline[-1].read_bytes()
    named = [stat.path for stat in CommitMetadata.from_bytes(data, timeline[-1].name).stats]
    there = [str(file.relative_to(path)) for file in Path(path).glob(f"month=*/*_{instant}.parquet")]
    assert sorted(map(str, named)) == sorted(there)
    groups = [(Path(key).parent, Path(key).name.partition("_")[0]) for key in there]
    assert len(set(groups)) == len(groups)
    check_settled(path, AFTER[way])
    assert LocalStorage(path).get(f".hoodie/.heartbeat/{instant}") is None


@pytest.mark.in_ci
@pytest.mark.parametrize(("way", "step"), [("insert", "file-opened"), *long(("upsert", "begun"), ("upsert", "file-written"))])
def test_of_a_slow_attempt_and_its_speculative_copy_one_counts(cluster, path, folder, way, step):
    cluster.order(path, way, folder, step, "wait")
    answer = cluster.answer()
    assert answer["outcome"] == "committed", answer["message"]
    assert (folder / "passed").exists()
    eventually(lambda: is_over(folder))
    check(path, way)


@pytest.mark.in_ci
def test_a_stopped_attempt_is_killed_by_spark_and_leaves_nothing(cluster, path, folder):
    cluster.order(path, "insert", folder, "file-opened", "stop")
    answer = cluster.answer()
    assert answer["outcome"] == "committed", answer["message"]
    assert (folder / "passed").exists()
    eventually(lambda: is_over(folder))
    check(path, "insert")


@pytest.mark.in_ci
@pytest.mark.sampled(promise=EXECUTOR_KILLED, one_in=2)
@pytest.mark.parametrize(("way", "step"), [*long(("insert", "marked")), ("upsert", "file-written")])
def test_an_executor_killed_while_it_writes_leaves_nothing_beside_the_attempt_that_follows(cluster, path, folder, way, step):
    cluster.order(path, way, folder, step, "lose-executor")
    answer = cluster.answer()
    assert answer["outcome"] == "committed", answer["message"]
    assert (folder / "killed").exists() and (folder / "passed").exists()
    eventually(lambda: is_over(folder))
    check(path, way)


@pytest.mark.in_ci
@pytest.mark.parametrize(("way", "step"), [("insert", "marked"), *long(("upsert", "begun"), ("upsert", "file-opened"))])
def test_a_task_that_outlives_its_executor_and_wakes_up_after_the_commit_leaves_nothing(cluster, path, folder, way, step):
    cluster.order(path, way, folder, step, "outlive-executor")
    answer = cluster.answer()
    assert answer["outcome"] == "committed", answer["message"]
    assert (folder / "passed").exists() and not is_over(folder)
    (folder / "committed").touch()
    eventually(lambda: is_over(folder))
    check(path, way)
