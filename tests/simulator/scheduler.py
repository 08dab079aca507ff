"""One thing runs at a time, on virtual time: tasks are greenlets, and the seed alone decides which one continues when.

A task runs until it waits (for a request, a sleep, another task); then the earliest waiter continues. Processes group tasks: a
process can be paused or killed with all its tasks, and a killed one runs nothing further, not even a `finally`.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

from greenlet import getcurrent, greenlet


class Dead(BaseException):
    """Raised in the tasks of a process that was killed, when they are disposed of."""


class Process:
    """One simulated process: its clock, whether it is alive, and until when it is paused."""

    def __init__(self, name: str, number: int, *, skew_ms: int = 0, rate: float = 1.0) -> None:
        self.name, self.number = name, number
        self.foreign = name.startswith("foreign")
        self.straggles = name.startswith("straggler")
        self.skew_ms, self.rate = skew_ms, rate
        self.dead = False
        self.paused_until_s = 0.0
        self.paused_s = 0.0

    def __repr__(self) -> str:
        return self.name


class Task:
    """One thread of a process. `label` and `random` belong to what it is doing now, so a part can be left out of a run."""

    def __init__(self, hub: Hub, process: Process, action: Callable[[], None], label: str) -> None:
        self.greenlet = greenlet(self.run, hub.root)
        self.hub, self.process, self.action = hub, process, action
        self.turn = 0
        self.repeats = 0
        self.relabel(label)

    def relabel(self, label: str) -> None:
        """Start the task's next activity: its random numbers do not depend on what it did before."""
        self.label = label
        self.random = Random(f"{self.hub.seed}/{label}")
        self.requests = 0

    def run(self) -> None:
        try:
            self.action()
        except Dead:
            pass
        except Exception as error:  # noqa: BLE001  an error ends the run as a violation; an interruption ends it at once
            self.hub.failed_task(self, error)


class Hub:
    """The scheduler and its clock."""

    def __init__(self, seed: int, *, most_steps: int) -> None:
        self.seed = seed
        self.now_s = 0.0
        self.steps = 0
        self.stopped = False
        self.root = getcurrent()
        self._running: Task | None = None
        self.errors: list[tuple[Task, Exception]] = []
        self.on_death: Callable[[Process], None] = lambda process: None
        self._most_steps = most_steps
        self._heap: list[tuple[float, int, Task, int]] = []
        self._tasks: list[Task] = []
        self._number = 0

    @property
    def current(self) -> Task:
        """The running task."""
        assert self._running is not None
        return self._running

    @property
    def out_of_steps(self) -> bool:
        return self.steps >= self._most_steps

    def spawn(self, process: Process, action: Callable[[], None], label: str, *, after_s: float = 0.0) -> Task:
        """A new task of `process`, which begins after `after_s` seconds."""
        task = Task(self, process, action, label)
        self._tasks.append(task)
        self._push(self.now_s + after_s, task)
        return task

    def wait(self, seconds: float) -> None:
        """Let the running task wait while others run."""
        task = self.current
        if task.process.dead:
            raise Dead
        self.steps += 1
        at = self.now_s + max(0.0, seconds)
        alone = not self._heap or at < self._heap[0][0]
        if alone and task.process.paused_until_s <= at and not self.stopped and not self.out_of_steps:
            self.now_s = at
            return
        task.turn += 1
        self._push(at, task)
        self._to_root(task)

    def park(self, timeout_s: float) -> None:
        """Wait for `wake` or until the time is over, whichever comes first."""
        self.wait(timeout_s)

    def wake(self, task: Task) -> None:
        """End the wait of a parked task now."""
        if not task.greenlet.dead and task.greenlet is not getcurrent():
            task.turn += 1
            self._push(self.now_s, task)

    def run(self) -> None:
        """Run until nobody is waiting, `stop` was called, or the steps are used up."""
        while self._heap and not self.stopped and self.steps < self._most_steps:
            at, _, task, turn = heappop(self._heap)
            if turn != task.turn or task.process.dead or task.greenlet.dead:
                continue
            if task.process.paused_until_s > at:
                self._push(task.process.paused_until_s, task)
                continue
            self.now_s, self._running = max(self.now_s, at), task
            task.greenlet.switch()

    def stop(self) -> None:
        """End the run after the current step."""
        self.stopped = True

    def kill(self, process: Process) -> None:
        """Kill the process: none of its tasks runs again. If the running task is one of them, this call never returns."""
        process.dead = True
        self.on_death(process)
        if getcurrent() is not self.root and self.current.process is process:
            self._to_root(self.current)

    def pause(self, process: Process, seconds: float) -> None:
        """Pause the process: none of its tasks runs for that long."""
        until_s = max(process.paused_until_s, self.now_s + seconds)
        process.paused_s += until_s - max(process.paused_until_s, self.now_s)
        process.paused_until_s = until_s

    def dispose(self) -> None:
        """Unwind the tasks that never ended, without any effect: requests of dead processes go nowhere."""
        for task in self._tasks:
            task.process.dead = True
        for task in self._tasks:
            if task.greenlet:  # it has begun and not ended
                task.greenlet.throw(Dead())
        self._tasks.clear()
        self._heap.clear()

    def failed_task(self, task: Task, error: Exception) -> None:
        """An unexpected error ended a task."""
        if not task.process.dead:
            self.errors.append((task, error))
            self.stop()

    def _push(self, at: float, task: Task) -> None:
        self._number += 1
        heappush(self._heap, (at, self._number, task, task.turn))

    def _to_root(self, task: Task) -> None:
        self.root.switch()
        if task.process.dead:
            raise Dead
