"""One line on the terminal while a write takes long: what it is doing, how far Spark is, since when, and how much is left."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TextIO

from py4j.protocol import Py4JError
from pyspark import SparkContext

from lakelock.clock import Runtime
from lakelock.texts import counted

SHOWN_AFTER_S = 1.0
"""How long a transaction has gone on before it has a line."""
_COLUMNS = 80


@dataclass(frozen=True)
class Tasks:
    """The newest stage that is running: its number, and how many of its tasks are done."""

    stage: int
    done: int
    total: int


@dataclass(frozen=True)
class Step:
    """What a write is doing: `UPSERT 2026…: rewriting 12 file groups`, and how many rows it has for it, 0 if nobody knows."""

    text: str
    rows: int = 0


class ProgressLine:
    """The line of one step of a transaction that began `began_s` ago. Anything that cannot be shown is left out."""

    def __init__(self, stream: TextIO, step: Step, runtime: Runtime, began_s: float) -> None:
        self._stream, self._step, self._runtime = stream, step, runtime
        self._began_s = runtime.monotonic_s() - began_s
        self._stage, self._stage_s = -1, 0.0
        self._shown = False

    def show(self, tasks: Tasks | None) -> None:
        """Draw the line anew, once the transaction has gone on for a while."""
        now_s = self._runtime.monotonic_s()
        if tasks is not None and tasks.stage != self._stage:
            self._stage, self._stage_s = tasks.stage, now_s
        if now_s - self._began_s < SHOWN_AFTER_S:
            return
        self._draw(line(self._step, tasks, now_s - self._began_s, now_s - self._stage_s))
        self._shown = True

    def clear(self) -> None:
        """Take the line away, so that nothing is left of it."""
        if self._shown:
            self._draw("")
            self._shown = False

    def _draw(self, text: str) -> None:
        with suppress(OSError, ValueError):  # the terminal is gone, or the stream is closed
            width = _width(self._stream)
            self._stream.write(f"\r{text[: width - 1]:<{width - 1}}\r")
            self._stream.flush()


def line(step: Step, tasks: Tasks | None, took_s: float, stage_s: float) -> str:
    """The text, what changes first, for a narrow terminal: `stage_s` is how long the stage of these tasks has been seen."""
    told = [f"{took_s:.0f} s"]
    if tasks is not None and tasks.total:
        told.append(f"{tasks.done} of {counted(tasks.total, 'task')}")
        if tasks.done:
            told.append(f"about {stage_s * (tasks.total - tasks.done) / tasks.done:.0f} s left")
    rows = f", {counted(step.rows, 'row')}" if step.rows else ""
    return f"lakelock: {', '.join(told)}: {step.text}{rows}"


@contextmanager
def progress_line(step: Step, runtime: Runtime, began_s: float, *, wanted: bool) -> Iterator[ProgressLine | None]:
    """A line on standard error, cleared at the end; None unless it is `wanted` and standard error is a terminal."""
    if not (wanted and _is_terminal(sys.stderr)):
        yield None
        return
    shown = ProgressLine(sys.stderr, step, runtime, began_s)
    try:
        yield shown
    finally:
        shown.clear()


def tasks_of(context: SparkContext, tag: str) -> Tasks | None:
    """The newest running stage of the jobs with a tag; None if none is running, or this Spark does not tell (before 4.0)."""
    inside: Any = context._jsc
    with suppress(Py4JError, OSError, AttributeError):
        tracker, told = context.statusTracker(), inside.sc().statusTracker()
        jobs = [tracker.getJobInfo(job) for job in told.getJobIdsForTag(tag)]
        stages = {stage for job in jobs if job is not None for stage in job.stageIds}
        for stage in sorted(stages, reverse=True):
            found = tracker.getStageInfo(stage)
            if found is not None and found.numActiveTasks:
                return Tasks(stage, found.numCompletedTasks, found.numTasks)
    return None


def _is_terminal(stream: object) -> bool:
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return False


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS
