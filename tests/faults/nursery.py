"""Writer processes that start at once: a process that has imported everything, and forks one for each order.

`python -m tests.faults.nursery MODULE` reads one line of JSON per request on its standard input and answers with one line:
`{"order": .., "environment": .., "out": .., "err": ..}` with the id of a new process, `{"poll": id}` with its exit status or
null. Nothing has run in it before a fork but imports, so a child is like a process of its own. What it does is
`answer_of(order)` of the module.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from tests.crashing import arm

ROOT = Path(__file__).parents[2]
POLL_S = 0.01


class Nursery:
    """The forking process of this test process; started when it is first needed."""

    def __init__(self, module: str) -> None:
        self._module = module
        self.process: subprocess.Popen[str] | None = None
        self._folder = tempfile.TemporaryDirectory()
        self._children = 0

    def ask(self, request: dict[str, object]) -> int | None:
        if self.process is None:
            path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.nursery", self._module], cwd=ROOT, env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            atexit.register(self.process.kill)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer: int | None = json.loads(self.process.stdout.readline())
        return answer

    def start(self, order: dict[str, object], steps: dict[str, str]) -> Child:
        self._children += 1
        out, err = (Path(self._folder.name) / f"{self._children}.{kind}" for kind in ("out", "err"))
        # As of now: a test may have set credentials since the first order.
        environment = {**os.environ, **steps}
        pid = self.ask({"order": order, "environment": environment, "out": str(out), "err": str(err)})
        assert pid is not None
        return Child(self, pid, out, err)


@dataclass
class Child:
    """As much of `subprocess.Popen` as tests need."""

    nursery: Nursery
    pid: int
    out: Path
    err: Path
    returncode: int | None = field(default=None)

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self.nursery.ask({"poll": self.pid})
        return self.returncode

    def communicate(self, timeout: float = 60.0) -> tuple[str, str]:
        """What it wrote, once it has ended."""
        deadline_s = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline_s:
                raise subprocess.TimeoutExpired("a forked writer", timeout)
            time.sleep(POLL_S)
        return self.out.read_text(), self.err.read_text()


NURSERY = Nursery("tests.faults.worker")


def _become_writer(request: dict[str, object], worker: ModuleType) -> None:
    """Runs in the child; never returns."""
    status = 1
    try:
        os.setsid()
        for stream, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(str(request[name]), os.O_WRONLY | os.O_CREAT, 0o600), stream)
        os.environ.clear()
        os.environ.update(request["environment"])  # type: ignore[call-overload]
        arm()
        random.seed()
        print(json.dumps(worker.answer_of(request["order"]), default=str), flush=True)
        status = 0
    finally:
        if status:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(status)


def main() -> None:
    worker = importlib.import_module(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if answer == 0:
                _become_writer(request, worker)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
