"""One run of the demo: the plan, the writers, the agents beside them, and the three readers against the serial replay."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from tests.api import Runtime
from tests.demo.crew import Crew
from tests.demo.feed import Feed, FeedReader, Line
from tests.demo.flights import DemoError, load
from tests.demo.lanes import View, open_view
from tests.demo.lock_service import LockService
from tests.demo.plan import AGENCY, AUDITOR, KILLED_AT, LOADER, STREAM, WRITERS, Plan, make_plan
from tests.demo.signals import Signals
from tests.demo.store import MERGE_ON_READ, Store
from tests.demo.story import Cast
from tests.demo.verdict import Verdict, judge, note_snapshot

LOOK_S = 0.12
STAGGER_S = 0.4
LIMIT_S = 600.0
"""The whole run is given up after this long; on two idle cores the demo takes less than three minutes."""

OPTIONS: Mapping[str, str] = {
    # A writer is dead after 4.5 silent seconds: nobody should have to wait long for the two that are killed.
    "heartbeat.interval_s": "1.5",
    "heartbeat.tolerable_misses": "3",
    # The one that is killed while it holds the lock blocks the others for six seconds at most.
    "lock.lease_s": "6",
    "lock.renew_s": "1.5",
    # Seven writers on one small table collide more than any real ones.
    "retry.attempts": "15",
    "retry.longest_wait_s": "2",
}


@dataclass(frozen=True)
class Request:
    """What the user asked for. `work` is the folder of everything but the tables."""

    seed: int
    size: int
    work: Path
    plain: bool
    type: str = "cow"


@dataclass
class Run:
    """A run in progress. Every wait ends with the run's own limit."""

    request: Request
    plan: Plan
    crew: Crew
    signals: Signals
    reader: FeedReader
    cast: Cast
    runtime: Runtime
    began_s: float
    lines: list[Line] = field(default_factory=list)
    reported: set[str] = field(default_factory=set)

    @property
    def elapsed_s(self) -> float:
        return self.runtime.monotonic_s() - self.began_s


def run_demo(request: Request, store: Store, lock: LockService, console: Console, runtime: Runtime) -> Verdict:
    """Let the writers write the table at once, then compare; the verdict says what happened and whether it is right."""
    began_s, began_ms = runtime.monotonic_s(), runtime.now_ms()
    plan = make_plan(load(request.size), request.seed, request.work)
    options = {**store.options, **lock.options, **OPTIONS, "lock.provider": lock.provider}
    told = {"store": store.told(), "options": options, "bookings_lock": lock.bookings or lock.provider}
    told["type"] = request.type
    (request.work / "run.json").write_text(json.dumps(told))
    abouts = {**{name: plan.operations[name].about for name in WRITERS}, **AGENCY}
    with Crew(request.work, runtime) as crew, open_view(console, abouts, plain=request.plain) as view:
        run = Run(
            request,
            plan,
            crew,
            Signals(request.work / "signals", runtime),
            FeedReader(request.work / "feed"),
            Cast(began_ms),
            runtime,
            began_s,
        )
        starts = [*WRITERS, *AGENCY]
        while not _all_written(run, starts):
            _tick(run, view, "start" if not run.signals.given("loaded") else "all write at once")
            _direct(run)
        note_snapshot(store, request.work, "all-written")
        run.signals.give("all-written")
        while crew.is_running([LOADER, AUDITOR]):
            _tick(run, view, "read the result")
        _tick(run, view, "compare")
        crew.check()
    took_s = runtime.monotonic_s() - began_s
    return judge(store, request.work, plan, run.cast, run.lines, took_s, has_logs=request.type == MERGE_ON_READ)


def _all_written(run: Run, starts: list[str]) -> bool:
    """Start the next process, if any is left; True when all but the loader and the auditor have ended."""
    everybody = [*WRITERS, *AGENCY]
    if starts and run.elapsed_s >= STAGGER_S * (len(everybody) - len(starts)):
        writer = starts.pop(0)
        run.cast.pids[run.crew.start(writer)] = writer
    return not starts and not run.crew.is_running([w for w in everybody if w not in (LOADER, AUDITOR)])


def _tick(run: Run, view: View, phase: str) -> None:
    """Show what is new, check that nobody failed and that time is left, and pause."""
    lines = run.reader.new_lines()
    run.lines += lines
    steps = [step for step in map(run.cast.step, lines) if step is not None]
    view.show(steps, run.elapsed_s, phase)
    run.crew.check()
    if run.elapsed_s > LIMIT_S:
        raise DemoError(f"not finished after {LIMIT_S:.0f} s, in the phase '{phase}'; the logs are in {run.request.work}/logs")
    run.runtime.sleep(LOOK_S)


def _direct(run: Run) -> None:
    """Report what only the conductor can see: who was killed, and that all but the stream are done."""
    ended = run.crew.ended()
    for writer in KILLED_AT:
        if writer in ended and writer not in run.reported:
            run.reported.add(writer)
            run.crew.sweep(writer)
            Feed(run.request.work / "feed", writer, run.runtime).say("killed", step=KILLED_AT[writer])
            run.signals.give(f"{writer}-killed")
    if all(writer in ended for writer in WRITERS if writer not in (LOADER, STREAM)):
        run.signals.give("others-done")
