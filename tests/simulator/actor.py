"""One user of a simulated table, who works on through crashes, and is told what became of each operation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from lakelock.errors import CommitOutcomeUnknown, CommitUndone, CorruptTableError, LakelockError
from tests.api import Committed
from tests.simulator.engine import Engine
from tests.simulator.looking import look
from tests.simulator.operations import Insert, Look, Operation, Relay, Upsert
from tests.simulator.scenarios.scenario import ActorPlan
from tests.simulator.scheduler import Process
from tests.simulator.trace import Answer, Answered
from tests.simulator.world import World

LONGEST_OPERATION_S = 240.0
LONGEST_WORK_S = 3_000.0
REPLAYS = 8


@contextmanager
def within_bound(world: World, process: Process, what: object) -> Iterator[None]:
    """The block is one operation of a process: it must not take too long, pauses of the process not counted."""
    began_s, paused_s = world.hub.now_s, process.paused_s
    yield
    took_s = world.hub.now_s - began_s - (process.paused_s - paused_s)
    if took_s > LONGEST_OPERATION_S:
        world.checker.fail("every wait ends within its bound", f"{what} took {took_s:.0f} s")


class Working(Protocol):
    """One who works through a plan, in one process after the other."""

    processes: list[Process]

    @property
    def finished(self) -> bool: ...


def all_finished(world: World, actors: Sequence[Working]) -> bool:
    """Wait until all have finished. False, and a violation, if one works for longer than any history takes.

    The time for which its processes stand still is no work: where pauses outlast heartbeats, each attempt ends in time with a
    rejection, and the weather alone says how many follow.
    """
    hub = world.hub
    while waiting := [actor for actor in actors if not actor.finished]:
        hub.wait(1.0)
        for actor in waiting:
            worked_s = hub.now_s - sum(process.paused_s for process in actor.processes)
            if not actor.finished and worked_s > LONGEST_WORK_S:
                detail = f"{actor.processes[0]} has not finished after {worked_s:.0f} s of work"
                world.checker.fail("every wait ends within its bound", detail)
                return False
    return True


class Actor:
    """One user: does its operations one after the other, in a new process after each crash."""

    def __init__(self, world: World, plan: ActorPlan) -> None:
        self.world, self.plan = world, plan
        self.processes: list[Process] = []
        self._left = list(plan.operations)
        self._lives = 0
        self._tries = 0
        self._began_s = 0.0
        if not self.finished:
            self._be_born()

    @property
    def finished(self) -> bool:
        return not self._left

    def _be_born(self) -> None:
        self._lives += 1
        name = self.plan.name if self._lives == 1 else f"{self.plan.name}.{self._lives}"
        process = self.world.process(name, skew_ms=self.plan.skew_ms, rate=self.plan.rate)
        self.processes.append(process)
        self.world.when_dead(process, self._reborn)
        self.world.hub.spawn(process, lambda: self._live(process), name)

    def _reborn(self) -> None:
        operation = self._left[0]
        self._tell(operation, Answer.DIED)
        self._done_with(operation, again=True)
        if self._left:
            self._be_born()

    def _live(self, process: Process) -> None:
        hub = self.world.hub
        engine = self.world.engine(process)
        while self._left:
            operation = self._left[0]
            task = hub.current
            task.relabel(f"{operation.tag}/{self.plan.name}" + (f"/{self._tries}" if self._tries else ""))
            hub.wait(task.random.expovariate(1 / self.plan.think_s))
            self._began_s = hub.now_s
            with within_bound(self.world, process, operation):
                again = self._do(engine, operation)
            self._done_with(operation, again=again)

    def _done_with(self, operation: Operation, *, again: bool) -> None:
        batch = isinstance(operation, Insert | Upsert | Relay) and operation.application is not None
        if again and batch and self._tries < REPLAYS:
            self._tries += 1
            return
        if again and batch:  # a stream does not go on without a batch: it stops
            self._left.clear()
        else:
            self._left.pop(0)
        self._tries = 0

    def _do(self, engine: Engine, operation: Operation) -> bool:
        """Run an operation and check the answer; True if a replay of it is due."""
        published = self.world.checker.published
        if isinstance(operation, Look):
            self._look(engine, operation)
            return False
        try:
            committed = operation.run(engine)
        except CommitOutcomeUnknown as error:
            self._tell(operation, Answer.UNKNOWN, str(error.details.get("instant", "")), error.message)
            return True
        except CommitUndone as error:
            instant = str(error.details["instant"])
            if instant not in self.world.checker.undone:
                self.world.checker.fail("nobody is told of what did not happen", f"{operation} was told {error.message}")
            self._tell(operation, Answer.UNKNOWN, instant, error.message)
            return True
        except LakelockError as error:
            answer = Answer.REJECTED if operation.tells else Answer.UNKNOWN
            if isinstance(error, CorruptTableError) and not self.world.checker.undone:
                self.world.checker.fail("no healthy table is called damaged", f"{operation} was told {error.message}")
            self._tell(operation, answer, detail=f"{type(error).__name__}: {error.message}")
            return True
        if committed is None:
            self._tell(operation, Answer.DONE)
            return False
        self._tell(operation, Answer.COMMITTED, committed.instant)
        if self.world.checker.is_untold(committed.instant):
            self.world.checker.fail("what is undone is told", f"{operation} was told {committed.instant}")
        if not any(p.operation == operation.id and _matches(p.instant, committed) for p in published):
            self.world.checker.fail("what is acknowledged is visible", f"{operation} was told {committed.instant}")
        return False

    def _look(self, engine: Engine, operation: Look) -> None:
        try:
            seen = look(self.world.checker, engine, operation, self._began_s)
        except LakelockError as error:
            self._tell(operation, Answer.REJECTED, detail=f"{type(error).__name__}: {error.message}")
            return
        self._tell(operation, Answer.DONE)
        if seen is not None:
            self.world.trace.reads[operation.id] = seen

    def _tell(self, operation: Operation, answer: Answer, instant: str = "", detail: str = "") -> None:
        now_s = self.world.hub.now_s
        self.world.trace.answered.append(
            Answered(
                operation.id, self.plan.name, answer, instant, self._began_s, now_s, detail.splitlines()[0] if detail else ""
            )
        )


def _matches(instant: str, committed: Committed) -> bool:
    return instant == committed.instant or committed.already_applied
