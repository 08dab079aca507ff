"""What befalls one attempt of a Spark task at a named step of its writing: it waits, is stopped, or loses its executor.

The first attempt that gets to the step is chosen, and it alone. What the attempts do is told by files in a folder, for
tasks run in other processes than the test: `chosen`, `killed`, `passed` (another attempt of the same task has done all its
work), `over` (the chosen one has ended, too) and, from the test, `committed`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark import TaskContext

from lakelock.engine import file_tasks
from lakelock.events import Step

LIMIT_S = 120
BEGUN = "begun"
"""Before the first marker; no step of the transaction itself."""
ACTS = {
    "wait": "passed",  # until its copy has done all its work
    "stop": "",  # the Python process is stopped, until somebody continues or kills it
    "lose-executor": "",  # the executor's JVM is killed, the Python process writes on as long as it lives
    "outlive-executor": "committed",  # the same, but the Python process lives and wakes up after the commit
}


@dataclass(frozen=True)
class Trouble:
    """Something that happens to one attempt, at `step`."""

    folder: str
    step: str
    act: str

    def around(self, work: Callable[[], object]) -> object:
        """Do the work of a task with this trouble in it."""
        original = file_tasks.reached

        def reached(step: Step) -> None:
            self._strike(step.value)
            original(step)

        file_tasks.reached = reached  # type: ignore[attr-defined]
        try:
            self._strike(BEGUN)
            done = work()
        finally:
            file_tasks.reached = original  # type: ignore[attr-defined]
            if self._chosen_is_me():
                self._tell("over", "")
        if self._told("chosen").partition(" ")[0] == _task() and not self._chosen_is_me():
            self._tell("passed", "")
        return done

    def _strike(self, step: str) -> None:
        if step != self.step or TaskContext.get() is None or not self._tell("chosen", f"{_task()} {os.getpid()}"):
            return
        if self.act.endswith("executor"):
            self._kill_executor(leave_alone=self.act.startswith("outlive"))
        if self.act == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        wanted = ACTS[self.act]
        deadline_s = time.monotonic() + LIMIT_S
        while wanted and not (Path(self.folder) / wanted).exists():
            if time.monotonic() > deadline_s:
                raise AssertionError(f"nobody has {wanted}")
            time.sleep(0.02)

    def _kill_executor(self, *, leave_alone: bool) -> None:
        """Kill the JVM that is the executor; its daemon of Python processes, too, if that shall not end this process."""
        daemon = os.getppid()
        executor = _parent(daemon)
        if leave_alone:
            os.setpgid(0, 0)
            os.kill(daemon, signal.SIGKILL)
        self._tell("killed", "")
        os.kill(executor, signal.SIGKILL)

    def _chosen_is_me(self) -> bool:
        return self._told("chosen").partition(" ")[2] == str(os.getpid())

    def _told(self, name: str) -> str:
        file = Path(self.folder) / name
        return file.read_text() if file.exists() else ""

    def _tell(self, name: str, text: str) -> bool:
        """Make a file, whole at once; False if it is there."""
        mine = Path(self.folder) / f".{name}.{os.getpid()}"
        mine.write_text(text)
        try:
            os.link(mine, Path(self.folder) / name)
        except FileExistsError:
            return False
        finally:
            mine.unlink()
        return True


def troubled(stage: Callable[..., Iterator[object]], trouble: Trouble) -> Callable[..., Iterator[object]]:
    """A stage of tasks, one of which meets the trouble."""

    def run(plan: object, batches: Iterator[object]) -> Iterator[object]:
        received = list(batches)  # an executor that is gone sends nothing any more
        yield from trouble.around(lambda: list(stage(plan, iter(received))))  # type: ignore[misc]

    return run


def _task() -> str:
    context = TaskContext.get()
    assert context is not None
    return str(context.partitionId())


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
