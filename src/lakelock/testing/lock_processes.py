"""Writer processes that a test commands; see `lock_worker` for the commands."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

_ANSWER_WITHIN_S = 150.0


class Worker:
    """One writer process; `ask` sends a command, `answer` waits for its reply, a call does both."""

    def __init__(self, arena: dict[str, Any], program: Path | None = None) -> None:
        """`program` replaces `lock_worker`; it must take the arena and obey commands in the same way."""
        command = [sys.executable, *([str(program)] if program else ["-m", "lakelock.testing.lock_worker"])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ask(json.dumps(arena))  # not an argument: arguments are visible to all users

    def ask(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def answer(self, within_s: float = _ANSWER_WITHIN_S) -> dict[str, Any]:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], within_s)
        assert readable, f"the worker did not answer within {within_s:g} s"
        line = self.process.stdout.readline()
        assert line, "the worker died"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __call__(self, command: str) -> dict[str, Any]:
        self.ask(command)
        return self.answer()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
