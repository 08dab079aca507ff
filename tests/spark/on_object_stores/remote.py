"""A driver process of its own, from the side of the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
EVERY_WRITE = "every write on a store is read by Spark's own client"
DATA_SOURCE = "the data source works on a store"
"""What more than one store shows: a build samples them."""

SMALL = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "768m"}


class Remote:
    """A driver process; a call of a method is a command."""

    def __init__(self, conf: dict[str, str], environment: dict[str, str]) -> None:
        away = ("AWS_", "HADOOP_CONF_DIR", "SPARK_CONF_DIR")
        env = {key: value for key, value in os.environ.items() if not key.startswith(away)}
        path = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
        env |= {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, **environment}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.on_object_stores.driver", json.dumps(conf)], cwd=ROOT, env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        assert self._answer()["value"] == "ready"

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "Ended", "message": f"exit status {self.process.wait(60)}"}

    def ask(self, do: str, **what: object) -> dict[str, Any]:
        """The answer, which may be an error."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **what}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def __getattr__(self, do: str) -> Callable[..., Any]:
        def call(**what: object) -> Any:
            answer = self.ask(do, **what)
            assert "value" in answer, answer
            return answer["value"]

        return call

    def close(self) -> None:
        """End it and its JVM."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def assert_every_write_is_read(driver: Remote, path: str) -> None:
    """Write the new table at `path` in each way, and read it as it is, with a condition and as it was."""
    assert driver.write(path=path, how="insert", rows=[["a", 1, "1"], ["b", 2, "1"], ["c", 3, "2"]]) == [3, 0, 0]
    assert driver.write(path=path, how="upsert", rows=[["a", 10, "1"], ["d", 4, "3"]]) == [1, 1, 0]
    assert driver.merge(path=path, rows=[["c", 30, "2"], ["e", 5, "2"]]) == [1, 1]
    assert driver.delete(path=path, where="id = 'd'") == 1
    assert driver.read(path=path) == [["a", 10, "1"], ["b", 2, "1"], ["c", 30, "2"], ["e", 5, "2"]]
    assert driver.read(path=path, where="month = '1' and v > 3") == [["a", 10, "1"]]
    ((_, _), (first, _), *_) = reversed(driver.history(path=path))
    assert driver.read(path=path, as_of=first) == [["a", 10, "1"], ["b", 2, "1"], ["c", 3, "2"], ["d", 4, "3"]]
    assert driver.upkeep(path=path) == []
