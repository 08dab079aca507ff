"""Starting, stopping, continuing and killing writer processes; waiting is bounded and looks at the process itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.faults.nursery import Child, Nursery
from tests.servers.jvm import SHORT_LIVED
from tests.spark.class_archive import jvm_options
from tests.spark.writers_jvm import WRITERS_JVM

ROOT = Path(__file__).parents[2]
QUICK = {
    "heartbeat.interval_s": 1, "heartbeat.tolerable_misses": 2, "lock.lease_s": 3, "lock.renew_s": 1, "lock.poll_s": 0.05,
    "retry.attempts": 1, "retry.first_wait_s": 0.05, "retry.longest_wait_s": 0.5,
}  # fmt: skip
PATIENT = {**QUICK, "heartbeat.interval_s": 60}
LIMIT_S = 180
EXECUTOR_KILLED = "an executor that is killed while it writes leaves nothing"
"""In one process with its driver, whose write fails, and in a cluster, which repeats its task."""
SPARK_WRITERS = "tests.spark.writer_process"
_NURSERY = Nursery(SPARK_WRITERS)


def named(steps: dict[str, str]) -> dict[str, str]:
    """The environment that makes a process die (`crash_at`) or stop (`stop_at`) at a step."""
    return {f"LAKELOCK_{kind.upper()}": step for kind, step in steps.items()}


def short_lived_jvms() -> None:
    """Have each JVM that is started from now on spend less on itself: it ends before thorough compilation would pay."""
    given = os.environ.get("JDK_JAVA_OPTIONS", "")
    if not set(SHORT_LIVED).issubset(given.split()):
        os.environ["JDK_JAVA_OPTIONS"] = f"{given} {jvm_options()}".strip()


class WriterProcess:
    """One writer process. It is killed at the end of the `with` block if it still runs.

    To start a JVM and to warm it up takes longer than any write here, so writers share that of `writers_jvm`, and are forks of
    a process that has imported PySpark; what kills or stops a writer leaves the JVM alone. A writer with `own_jvm`, or with an
    environment or limits of its own, starts from nothing.
    """

    module = SPARK_WRITERS
    process: subprocess.Popen[str] | Child

    def __init__(
        self, table: str, operation: str, argument, *, name="writer", options=QUICK, grants_everybody=False,
        limits: dict | None = None, env: dict | None = None, own_jvm: bool = False, **steps: str,
    ):  # fmt: skip
        order = {"table": table, "operation": operation, "argument": argument, "name": name, "options": options}
        order.update(grants_everybody=grants_everybody, limits=limits or {})
        if self.module == SPARK_WRITERS and not own_jvm and limits is None and env is None:
            self.process = _NURSERY.start(order, {**WRITERS_JVM.env(), **named(steps)})
            return
        self.start([sys.executable, "-m", self.module, json.dumps(order)], env, **steps)

    def start(self, command: list[str], env: dict | None = None, **steps: str) -> None:
        """Start the process; `crash_at` and `stop_at` name a step."""
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        ours = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        ours.update(named(steps))
        self.process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **(env or {}), **ours}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> WriterProcess:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def wait_until_stopped(self) -> None:
        """Return once the process has stopped itself at its step; fail if it ends or never gets there."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the writer ended instead of stopping: {self.process.communicate()}")
            state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "T":
                return
            time.sleep(0.02)
        raise AssertionError("the writer never reached its step")

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def answer(self) -> dict:
        """What became of its operation."""
        out, err = self.process.communicate(timeout=LIMIT_S)
        lines = [line for line in out.splitlines() if line.startswith("{")]
        assert lines, f"no answer; exit status {self.process.returncode}\n{out}\n{err[-3000:]}"
        return json.loads(lines[-1])

    def died(self) -> bool:
        """Wait for the end; True if it was killed."""
        self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode == -signal.SIGKILL
