"""One JVM with Spark for many writers: `python -m tests.spark.writers_jvm` prints how to connect, and ends with its input.

Each writer is a Python driver of its own in it. Locks, heartbeats, claims and commits are all in the driver and in the Python
workers, so for lakelock these are separate writers; the JVM runs their jobs.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


class WritersJvm:
    """The JVM for the writers of this test process; started when it is first needed."""

    def __init__(self) -> None:
        self._env: dict[str, str] | None = None

    def env(self) -> dict[str, str]:
        """What a process needs in its environment to be a driver in the JVM."""
        if self._env is None:
            path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
            python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.writers_jvm"], cwd=ROOT, env={**os.environ, "PYTHONPATH": path, **python},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            atexit.register(process.kill)
            assert process.stdout is not None
            told = next(line for line in process.stdout if line.startswith("{"))
            self._env = {**python, **json.loads(told)}
        return self._env


WRITERS_JVM = WritersJvm()


def main() -> None:
    from tests.spark.writer_process import session

    parameters = session().sparkContext._gateway.gateway_parameters
    told = {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": parameters.auth_token}
    print(json.dumps(told), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
