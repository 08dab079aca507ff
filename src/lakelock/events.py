"""Events: what a transaction does, reported as it happens. A listener that raises never fails a write.

`shown` draws the progress of a long write from them, on a terminal or in a notebook: what it does, how far it is, whom it
waits for. Nothing is shown of a write that is short, where standard error is neither a terminal nor a notebook's, with
`LAKELOCK_PROGRESS=0`, and with `write.progress=false`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

from lakelock.clock import Runtime
from lakelock.texts import StrEnum, counted

if TYPE_CHECKING:
    from IPython.display import DisplayHandle


_log = logging.getLogger("lakelock")
_log.addHandler(logging.NullHandler())


class EventKind(StrEnum):
    """Names of events. Append only."""

    BEGAN = "began"
    WRITING = "writing"
    CLAIMED = "claimed"
    EARLY_CONFLICT = "early-conflict"
    CONFLICT = "conflict"
    WAITING_FOR_LOCK = "waiting-for-lock"
    LOCKED = "locked"
    LEASE_LOST = "lease-lost"
    DECIDED = "decided"
    PUBLISHED = "published"
    COMMITTED = "committed"
    REJECTED = "rejected"
    OUTCOME_UNKNOWN = "outcome-unknown"
    RETRY = "retry"
    FINISHED_FOR_ANOTHER = "finished-for-another"
    ROLLED_BACK = "rolled-back"
    COLLECTED = "collected"
    ALERT = "alert"
    DATA_LOCKED = "data-locked"
    CHECKPOINTED = "checkpointed"
    CLEANED = "cleaned"
    ARCHIVED = "archived"
    SET_ASIDE = "set-aside"
    RESERVED = "reserved"
    WAITING_FOR_RESERVATION = "waiting-for-reservation"
    PREPARED = "prepared"
    PHASE_DONE = "phase-done"
    NAMED = "named"
    LOCK_TIMED_OUT = "lock-timed-out"
    SLOW_READS = "slow-reads"
    ZONE_RECORDED = "zone-recorded"


@dataclass(frozen=True)
class Event:
    """One thing that happened to one transaction, as plain values. `instant` is empty before there is one."""

    kind: EventKind
    table: str
    instant: str = ""
    operation: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        facts = " ".join(f"{name}={value}" for name, value in self.facts.items())
        return f"{self.operation} {self.instant} {self.kind} {facts}".strip()


Listener = Callable[[Event], None]

_WARNINGS = {
    EventKind.LEASE_LOST,
    EventKind.LOCK_TIMED_OUT,
    EventKind.RETRY,
    EventKind.EARLY_CONFLICT,
    EventKind.CONFLICT,
    EventKind.ALERT,
    EventKind.SLOW_READS,
}
_INFOS = {
    EventKind.BEGAN,
    EventKind.PHASE_DONE,
    EventKind.LOCKED,
    EventKind.COMMITTED,
    EventKind.FINISHED_FOR_ANOTHER,
    EventKind.ROLLED_BACK,
    EventKind.RESERVED,
    EventKind.WAITING_FOR_RESERVATION,
    EventKind.ZONE_RECORDED,
}


def log_event(event: Event) -> None:
    """The listener that is always there: one line per event in the `lakelock` logger, facts as `lakelock_*` fields."""
    level = logging.WARNING if event.kind in _WARNINGS else logging.INFO if event.kind in _INFOS else logging.DEBUG
    if event.kind is EventKind.OUTCOME_UNKNOWN:
        level = logging.ERROR
    if not _log.isEnabledFor(level):
        return
    _log.log(level, "%s", event, extra={f"lakelock_{name}": value for name, value in event.facts.items()})


class Events:
    """Sends each event to the log and to the listeners, in order; one that raises is reported, and the others still run."""

    def __init__(self, listeners: tuple[Listener, ...] = ()) -> None:
        self._listeners: tuple[Listener, ...] = (log_event, *listeners)

    @contextmanager
    def also(self, listener: Listener) -> Iterator[None]:
        """Send each event to one more listener during the block."""
        self._listeners = (*self._listeners, listener)
        try:
            yield
        finally:
            self._listeners = tuple(each for each in self._listeners if each is not listener)

    def emit(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:  # noqa: BLE001  whatever a listener raises must not fail the write
                _log.exception("an event listener failed; the write goes on")


class Step(StrEnum):
    """Points of a transaction at which tests stop or kill a process, each named after what has just happened, in that order."""

    HEARTBEAT_STARTED = "heartbeat-started"
    REQUESTED = "requested"
    INFLIGHT = "inflight"
    FINISHED_FOR_ANOTHER = "finished-for-another"
    ABORTED_FOR_ANOTHER = "aborted-for-another"
    GIVEN_UP = "given-up"
    BEGUN = "begun"
    CLAIMED = "claimed"
    MARKED = "marked"
    FILE_OPENED = "file-opened"
    FILE_WRITTEN = "file-written"
    DATA_WRITTEN = "data-written"
    RECONCILED = "reconciled"
    LOCKED = "locked"
    SET_ASIDE = "set-aside"
    RESERVED = "reserved"
    VALIDATED = "validated"
    PREPARED = "prepared"
    OUTCOME_PUT = "outcome-put"
    DECIDED = "decided"
    METADATA_LOGGED = "metadata-logged"
    METADATA_KEPT = "metadata-kept"
    PUBLISHED = "published"
    UNLOCKED = "unlocked"
    CLEANED = "cleaned"
    ROLLBACK_DECIDED = "rollback-decided"
    ROLLBACK_DATA_DELETED = "rollback-data-deleted"
    ROLLBACK_MARKERS_DELETED = "rollback-markers-deleted"
    ROLLBACK_INFLIGHT_DELETED = "rollback-inflight-deleted"
    ROLLBACK_PENDING_DELETED = "rollback-pending-deleted"
    ROLLBACK_PLANNED = "rollback-planned"
    ROLLBACK_RECORDED = "rollback-recorded"
    BOUNDARY_RAISED = "boundary-raised"
    COLLECTED = "collected"
    CLEAN_PLANNED = "clean-planned"
    CLEAN_DELETED = "clean-deleted"
    CLEAN_COMPLETED = "clean-completed"
    SAVEPOINT_SHOWN = "savepoint-shown"
    SAVEPOINT_TAKEN = "savepoint-taken"
    METADATA_PLANNED = "metadata-planned"
    METADATA_COMPACTED = "metadata-compacted"
    HISTORY_WRITTEN = "history-written"
    HISTORY_SHOWN = "history-shown"
    ARCHIVED = "archived"


_hook: Callable[[Step], object] | None = None


def at_each_step(hook: Callable[[Step], object]) -> None:
    """Have `hook` called at each step that this process reaches from now on, and nothing else."""
    global _hook
    _hook = hook


def reached(step: Step) -> None:
    """Mark that this process has reached `step`."""
    if _hook is not None:
        _hook(step)


SHOWN_AFTER_S = 2.0
"""How long a write has gone on before it is shown."""
INTERVAL_S = 0.5
VARIABLE = "LAKELOCK_PROGRESS"
_OFF = ("0", "false", "no", "off")


@dataclass(frozen=True)
class Tasks:
    """The newest stage that is running: its number, how many of its tasks are done, and what a task is."""

    stage: int
    done: int
    total: int
    each: str = "task"


@dataclass(frozen=True)
class Doing:
    """What a write does since `since_s`: with how many rows, if known, and how far its tasks are. `waits`: for another one."""

    text: str
    since_s: float
    rows: int = 0
    tasks: Tasks | None = None
    waits: bool = False

    def line(self, operation: str, took_s: float, now_s: float) -> str:
        """The line of a write that has taken so long; the times come first, so that a narrow terminal has them."""
        parts = [self.text]
        if self.waits:
            parts.append(f"{now_s - self.since_s:.0f} s")
        if self.tasks is not None and self.tasks.total:
            parts.append(f"{self.tasks.done} of {counted(self.tasks.total, self.tasks.each)}")
        if self.rows:
            parts.append(counted(self.rows, "row"))
        if self.tasks is not None and self.tasks.done:
            left_s = (now_s - self.since_s) * (self.tasks.total - self.tasks.done) / self.tasks.done
            parts.append(f"about {left_s:.0f} s left")
        return f"lakelock: {operation} {took_s:.0f} s: {', '.join(parts)}"


def text_of(event: Event) -> str | None:
    """What a write does from this event on; None if it still does what it did. What waits begins with `waiting`."""
    match event.kind:
        case EventKind.BEGAN:
            return "reading the table's state"
        case EventKind.WRITING:
            return "writing"
        case EventKind.WAITING_FOR_LOCK:
            return f"waiting for the lock of {_job(event.facts)}"
        case EventKind.WAITING_FOR_RESERVATION:
            return f"waiting for the turn of {_job(event.facts)}"
        case EventKind.LOCKED:
            return "comparing with what others have committed"
        case EventKind.DECIDED:
            return "publishing"
        case EventKind.RETRY:
            number, most, cause = (event.facts.get(name) for name in ("attempt", "of", "cause"))
            return f"trying again after attempt {number} of {most}: {cause}"
    return None


def _job(facts: Mapping[str, object]) -> str:
    """The job that holds what is waited for, without the rest of its identity."""
    return f"job {str(facts.get('holder') or 'unknown').partition(' (')[0]}"


class Progress:
    """One write, as it is shown. `tell` takes its events, `step` and `tasks` what an engine says of its work."""

    def __init__(self, called: str, runtime: Runtime, operations: Container[str]) -> None:
        self._called, self._runtime, self._operations = called, runtime, operations
        self._began_s = runtime.monotonic_s()
        self._doing = Doing("beginning", self._began_s)
        self._screen: Screen | None = None

    def tell(self, event: Event) -> None:
        """An event of the table; those of no operation are those of its locks."""
        text = text_of(event) if not event.operation or event.operation in self._operations else None
        if text is not None and text != self._doing.text:
            self._doing = Doing(text, self._runtime.monotonic_s(), waits=text.startswith("waiting"))

    def step(self, text: str, rows: int = 0) -> None:
        """The write does this from now on, with so many rows if that is known."""
        self._doing = Doing(text, self._runtime.monotonic_s(), rows)

    def tasks(self, tasks: Tasks | None) -> None:
        """How far the step is; times count from the beginning of a stage."""
        before = self._doing.tasks
        if tasks is not None and (before is None or before.stage != tasks.stage):
            self._doing = replace(self._doing, since_s=self._runtime.monotonic_s())
        self._doing = replace(self._doing, tasks=tasks)

    def draw(self) -> None:
        """Show the write as it is now, once it has gone on for a while."""
        now_s, doing = self._runtime.monotonic_s(), self._doing
        if now_s - self._began_s < SHOWN_AFTER_S:
            return
        if self._screen is None:
            self._screen = Notebook() if _in_notebook() else Terminal()
        self._screen.show(doing.line(self._called, now_s - self._began_s, now_s), doing.tasks)

    def close(self) -> None:
        """Take it away, so that nothing is left of it."""
        if self._screen is not None:
            self._screen.close()


class Screen(Protocol):
    """Where one write is shown: a line, and a bar where its tasks are known."""

    def show(self, line: str, tasks: Tasks | None) -> None: ...

    def close(self) -> None: ...


_GAUGE = 16


class Terminal:
    """The last line of the terminal, while the write runs, and a bar if there are tasks to count and room beside the line."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar
        from rich.table import Column

        whole = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        self._line = TextColumn("{task.description}", markup=False, table_column=whole)
        self._gauge = BarColumn(bar_width=_GAUGE)
        console = Console(stderr=True, highlight=False)
        self._bar = Bar(self._line, console=console, transient=True, auto_refresh=False, expand=True)
        self._task = self._bar.add_task("", total=None)
        self._bar.start()

    def show(self, line: str, tasks: Tasks | None) -> None:
        total, done = (tasks.total or None, tasks.done) if tasks is not None else (None, 0)
        fits = len(line) + _GAUGE + 1 <= self._bar.console.width
        self._bar.columns = (self._line, self._gauge) if total and fits else (self._line,)
        self._bar.update(self._task, description=line, total=total, completed=done, refresh=True)

    def close(self) -> None:
        self._bar.stop()


class Notebook:
    """An output of the cell, which IPython updates. For the same, rich wants ipywidgets, and shows a warning without them."""

    def __init__(self) -> None:
        self._handle: DisplayHandle | None = None

    def show(self, line: str, tasks: Tasks | None) -> None:
        known = f' max="{tasks.total}" value="{tasks.done}"' if tasks is not None and tasks.total else ""
        self._put({"text/plain": line, "text/html": f"<progress{known}></progress> {escape(line)}"})

    def close(self) -> None:
        self._put({"text/plain": "", "text/html": ""})

    def _put(self, shown: dict[str, Any]) -> None:
        if self._handle is not None:
            self._handle.update(shown, raw=True)  # type: ignore[no-untyped-call]
        else:
            from IPython.display import display

            self._handle = display(shown, raw=True, display_id=True)  # type: ignore[no-untyped-call]


_current: ContextVar[Progress | None] = ContextVar("lakelock_progress", default=None)


def current() -> Progress | None:
    """The progress of the write that this thread runs, None if it is not shown."""
    return _current.get()


@contextmanager
def shown(called: str, runtime: Runtime, events: Events, *, wanted: bool, operations: tuple[str, ...] = ()) -> Iterator[None]:
    """Show the write of the block, if that is `wanted` and there is where to show it. A write within a write is not shown.

    `called`: what the user called. Its transactions are of these `operations`; by default the one that was called.
    """
    if not wanted or _current.get() is not None or not _has_screen(os.environ):
        yield
        return
    progress = Progress(called, runtime, operations or (called,))
    token = _current.set(progress)
    drawing = runtime.every(INTERVAL_S, progress.draw, name="progress")
    try:
        tell = progress.tell  # each look-up of a method makes another object
        with events.also(tell):
            yield
    finally:
        drawing.stop()
        progress.close()
        _current.reset(token)


def _has_screen(environment: Mapping[str, str]) -> bool:
    if environment.get(VARIABLE, "").strip().lower() in _OFF:
        return False
    try:
        return sys.stderr.isatty() or _in_notebook()
    except (AttributeError, ValueError):
        return False


def _in_notebook() -> bool:
    """Whether this is the process of a kernel of Jupyter, which shows more than text."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
