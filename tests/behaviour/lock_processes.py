"""Writer processes that a test commands; see `lock_worker` for what they understand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("lock_worker.py")


class Worker:
    """One writer process; `ask` sends a command, `answer` waits for its reply."""

    def __init__(self, arena: dict[str, Any], program: Path = WORKER) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(program), json.dumps(arena)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
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
