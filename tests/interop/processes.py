"""lakelock writers as processes of their own, which may be stopped or killed at a step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.interop.shared import Row, Shared
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
END_WITHIN_S = 240.0


class Writer:
    """One process that carries out one order."""

    def __init__(self, table: Shared, order: dict[str, Any], **environment: str) -> None:
        order = {"table": table.path, "file": str(table.hudi_file), **order}
        command = [sys.executable, "-m", "tests.interop.lakelock_writer", json.dumps(order)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT, env={**os.environ, **environment}
        )

    def until_stopped(self) -> None:
        eventually(lambda: self._state() in "TZ", saying="the writer comes to the step where it stops")
        assert self._state() == "T", self.end()

    def go_on(self) -> dict[str, Any]:
        self.process.send_signal(signal.SIGCONT)
        return self.end()

    def end(self, within_s: float = END_WITHIN_S) -> dict[str, Any]:
        """What it printed last; empty when it was killed."""
        told, _ = self.process.communicate(timeout=within_s)
        return json.loads(told.splitlines()[-1]) if told.strip() else {}

    def _state(self) -> str:
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2][0]


@contextmanager
def ending(writers: Sequence[Writer]) -> Iterator[Sequence[Writer]]:
    """Writers none of which outlives the block."""
    try:
        yield writers
    finally:
        for writer in writers:
            writer.process.kill()
            writer.process.communicate()


@contextmanager
def lakelock_writer(table: Shared, *values: Row, stop_at: str = "", crash_at: str = "") -> Iterator[Writer]:
    """An upsert by another process that stops or dies at a step; waits until it has."""
    steps = {"LAKELOCK_STOP_AT": stop_at, "LAKELOCK_CRASH_AT": crash_at}
    writer = Writer(table, {"rows": [list(row) for row in values]}, **{k: v for k, v in steps.items() if v})
    with ending([writer]):
        if stop_at:
            writer.until_stopped()
        if crash_at:
            assert writer.process.wait(END_WITHIN_S) == -signal.SIGKILL
        yield writer
