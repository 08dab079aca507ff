"""The crew: the demo's processes. Each is a session of its own, which can be ended together with everything that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tests.api import Runtime
from tests.demo.flights import DemoError
from tests.demo.plan import AGENCY, KILLED_AT

LOG_TAIL = 15
END_S = 5.0
"""How long to wait for killed processes to be gone."""


@dataclass
class Crew:
    """Starts writers and knows how they ended; on exit none is left running, whatever happened."""

    work: Path
    runtime: Runtime
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, writer: str) -> int:
        """Start a writer's process; its process id. What it prints goes to `logs/` in the work folder."""
        (self.work / "logs").mkdir(exist_ok=True)
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONUNBUFFERED": "1"}
        if writer in KILLED_AT:
            environment["LAKELOCK_CRASH_AT"] = KILLED_AT[writer]
        module = "tests.demo.bookings.agents" if writer in AGENCY else "tests.demo.writers"
        command = [sys.executable, "-m", module, writer, str(self.work)]
        with (self.work / "logs" / f"{writer}.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        self.processes[writer] = process
        return process.pid

    def ended(self) -> dict[str, int]:
        """The exit code of each writer that has ended; minus the signal for one that was killed."""
        codes = {writer: process.poll() for writer, process in self.processes.items()}
        return {writer: code for writer, code in codes.items() if code is not None}

    def is_running(self, writers: Iterable[str]) -> bool:
        ended = self.ended()
        return any(writer not in ended for writer in writers)

    def check(self) -> None:
        """Raise if a writer failed, or one that was to be killed survived."""
        for writer, code in self.ended().items():
            expected = -signal.SIGKILL if writer in KILLED_AT else 0
            if code != expected:
                log = (self.work / "logs" / f"{writer}.log").read_text(errors="replace").splitlines()
                fate = (
                    f"ended with {code} instead of being killed at '{KILLED_AT[writer]}'" if expected else f"failed with {code}"
                )
                raise DemoError("\n".join([f"{writer} {fate}; the end of its log:", *log[-LOG_TAIL:]]))

    def sweep(self, writer: str) -> None:
        """End whatever a dead writer left running: its JVM, which is in the writer's own process group."""
        self._signal(writer, signal.SIGKILL)

    def _signal(self, writer: str, number: int) -> bool:
        """Signal all processes of a writer; False when there is none."""
        try:
            os.killpg(self.processes[writer].pid, number)
        except ProcessLookupError:
            return False
        return True

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for writer in self.processes:
            self.sweep(writer)
        deadline_s = self.runtime.monotonic_s() + END_S
        while self.runtime.monotonic_s() < deadline_s:
            # Reap our own children first: a dead one that nobody has waited for still counts as a process.
            self.ended()
            if not any(self._signal(writer, 0) for writer in self.processes):
                return
            self.runtime.sleep(0.05)
