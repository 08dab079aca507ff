"""Runs one seed: the actors, then a quiet period, then the checks of the whole run."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field

from lakelock.errors import LakelockError
from lakelock.occ.foreign import audit
from lakelock.occ.log import DecisionLog
from lakelock.occ.upkeep import Upkept
from lakelock.storage.base import METADATA_FOLDER
from lakelock.table.instants import is_instant_time
from lakelock.table.log_files import LogFile
from tests.api import DataFile, Outcome, Timeline, layout
from tests.simulator.actor import Actor, all_finished
from tests.simulator.checking.checks import Checker, Published, Violation
from tests.simulator.checking.cycles import Seen, anomalies
from tests.simulator.checking.visible import difference
from tests.simulator.engine import Engine
from tests.simulator.faults import Fault
from tests.simulator.metadata import contents_in_lines, has_metadata_table, listed_files, metadata_table
from tests.simulator.operations import State, Transfer, state_of
from tests.simulator.rows import Row
from tests.simulator.scenarios.scenario import ACCOUNTS, HOT, Scenario
from tests.simulator.scheduler import Process
from tests.simulator.trace import Answer, Trace
from tests.simulator.world import World

QUIET_S = 700.0
"""Longer than any lease, any heartbeat limit, any late request, and the time after which an abandoned probe is swept."""

LAST = 1_000_000
"""The number of the operation that the last writer runs once everything is quiet."""

_CONTROL = (layout.TEMP, layout.HEARTBEATS, layout.CLAIMS, layout.PROBES, layout.RESERVATIONS, layout.OUTCOMES, layout.OFFERS)
"""Folders that are empty when nobody writes."""

MOST_AUDITED = 10_000
MOST_UPKEEPS = 20
"""A run of upkeep ends with its budget, and slow requests use that up: the next run goes on."""


@dataclass(frozen=True)
class Result:
    """The result of one run. `digest` is equal for equal runs."""

    scenario: Scenario
    violations: tuple[Violation, ...]
    faults: tuple[Fault, ...]
    trace: Trace = field(repr=False)
    steps: int = 0
    commits: int = 0
    digest: str = ""
    published: tuple[Published, ...] = field(default=(), repr=False)
    strays: int = 0
    """How many files stragglers left behind."""

    @property
    def ok(self) -> bool:
        return not self.violations


def run(scenario: Scenario, *, only: frozenset[tuple[str, int]] | None = None, keep_events: bool = False) -> Result:
    """Run a scenario to its end or to the first violation; the same scenario gives the same result."""
    world = World(scenario, only=only, keep_events=keep_events)
    actors = [Actor(world, plan) for plan in scenario.actors]
    closing = world.process("last")
    world.hub.spawn(closing, lambda: _close(world, actors, closing), "last")
    try:
        with contents_in_lines() if scenario.record_index or scenario.statistics else nullcontext():
            world.hub.run()
    except BaseException:  # whoever interrupts a run, as a test's time limit does, is no finding: nothing is left of it
        world.hub.dispose()
        raise
    checker = world.checker
    for task, error in world.hub.errors:
        checker.fail("no error but lakelock's own", f"{task.process} in {task.label}: {type(error).__name__}: {error}")
    if world.hub.out_of_steps:
        checker.fail("every wait ends within its bound", f"{world.hub.steps} steps were not enough")
    grows = not any(operation.undoes for operation in scenario.operations.values())
    if not checker.violations and scenario.is_serializable and grows:
        for anomaly in anomalies(history_of(world), frozenset(p.operation for p in checker.published if p.operation)):
            checker.fail("serializable by what was read", anomaly)
    violations = tuple(checker.violations)
    error_notes = [error for _, error in world.hub.errors]
    world.hub.dispose()
    published = ",".join(f"{p.instant}:{p.operation}:{p.at_s:.6f}" for p in checker.published)
    digest = f"{world.hub.steps}/{world.hub.now_s:.6f}/{len(world.faults.happened)}/{published}"
    result = Result(
        scenario, violations, tuple(world.faults.happened), world.trace, world.hub.steps, len(checker.published), digest,
        tuple(checker.published), checker.straggled,
    )  # fmt: skip
    for error in error_notes:
        error.__traceback__ = None if result.ok else error.__traceback__
    return result


def history_of(world: World) -> list[Seen]:
    """What each committed transfer and each reader saw of the accounts, according to the rows."""
    history = []
    for published in world.checker.published:
        operation = world.scenario.operations.get(published.operation or 0)
        if isinstance(operation, Transfer):
            written = {place[1]: published.state[place][0][1] for place in (operation.source, operation.target)}
            reads = {key: trail[:-1] for key, trail in written.items()}
            history.append(Seen(operation.id, reads, frozenset(written)))
    history += [Seen(number, _account_trails(state)) for number, state in world.trace.reads.items()]
    return history


def _account_trails(state: State) -> dict[str, tuple[int, ...]]:
    return {key: stored[0][1] for (_, key), stored in state.items() if key.startswith("a")}


def _close(world: World, actors: list[Actor], process: Process) -> None:
    """Wait until everybody has finished, let time pass, write once more, and check what is left."""
    hub = world.hub
    if not all_finished(world, actors):
        return
    world.faults.calm = world.room.calm = True
    hub.wait(QUIET_S)
    hub.current.relabel("last")
    finish(world, process)
    hub.stop()


def finish(world: World, process: Process) -> None:
    """Write once more into a table that everybody else has left, and check what was told and what remains."""
    hub, checker = world.hub, world.checker
    engine = world.engine(process)
    try:
        engine.insert((Row("2", "last", 50, (LAST,)),), "")
        _check_noticed(world, engine)
        engine.upsert([Row(*place, 50, (LAST,)) for place in (*ACCOUNTS, *HOT)], "")
        hub.wait(QUIET_S)
        upkept = (engine.coordinator.upkeep() for _ in range(MOST_UPKEEPS))
        if not any(_has_kept_up(each, checker) for each in upkept):
            checker.fail("every wait ends within its bound", f"{MOST_UPKEEPS} runs of upkeep were not enough")
        seen = state_of(engine.read())
        _check_answers(world, engine.coordinator.outcome)
    except LakelockError as error:
        checker.fail("a dead writer wedges nothing", f"the last writer failed: {type(error).__name__}: {error.message}")
        return
    if seen != checker.published[-1].state:
        checker.fail("readers see one committed prefix", f"at the end: {difference(checker.published[-1].state, seen)}")
    _check_tidy(world)


def _has_kept_up(upkept: Upkept, checker: Checker) -> bool:
    """Whether the run found nothing to do. One that has spent its budget may not have looked."""
    idle = upkept.cleaned.files == upkept.cleaned.left == upkept.archived.instants == 0
    return idle and not (upkept.spent and checker.superfluous())


def _check_noticed(world: World, engine: Engine) -> None:
    """Whatever a careless writer has undone is named by the audit, and an alert was raised about it; a repair takes it out."""
    checker = world.checker
    if not checker.undone:
        return
    named = [each.instant for each in audit(engine.coordinator.table, MOST_AUDITED).undone]
    alerted = [instant for instant in checker.undone if any(instant in problem for problem in world.trace.alerts)]
    for what, noticed in (("the audit", named), ("an alert", alerted)):
        if unnoticed := checker.unnoticed(noticed):
            checker.fail("what is undone does not stay unnoticed", f"{unnoticed} is not in {what}")
    engine.repair()


def _check_answers(world: World, outcome_of: object) -> None:
    """Every answer must match the table, permanently; an unknown outcome must be resolved one way."""
    assert callable(outcome_of)
    checker, operations = world.checker, world.scenario.operations
    visible = {p.instant: p for p in checker.published}
    applied = {p.operation for p in checker.published}
    told_committed = {one.operation for one in world.trace.answered if one.answer is Answer.COMMITTED}
    doubtful = {one.operation for one in world.trace.answered if one.answer in (Answer.UNKNOWN, Answer.DIED)}
    for one in world.trace.answered:
        if one.answer is Answer.COMMITTED and one.operation not in applied:
            checker.fail("a commit is there for ever", f"operation {one.operation} was told {one.instant}")
        if one.answer is Answer.DONE and (why := checker.broken(operations[one.operation])):
            checker.fail("files that are needed stay", why)
        if one.answer is Answer.UNKNOWN and one.instant:
            found, is_offer = outcome_of(one.instant), not is_instant_time(one.instant)
            there = one.operation in applied if is_offer else one.instant in visible
            if found is not (Outcome.COMMITTED if there else Outcome.REJECTED):
                checker.fail("what is unknown is resolved", f"{one.instant} is {found.value}, visible: {there}")
        if one.answer is Answer.REJECTED and one.operation in applied - told_committed - doubtful:
            checker.fail("what is rejected is nowhere", f"{operations[one.operation]} was told {one.detail!r} and is visible")
    for instant in sorted(world.trace.rejected & visible.keys()):
        checker.fail("what is rejected is nowhere", f"an event called {instant} rejected, and it is visible")


def _check_tidy(world: World) -> None:
    """Nothing is left behind once everything is quiet."""
    server, checker = world.server, world.checker
    timeline = Timeline.from_listing(server.page(layout.TIMELINE, "", 10**9)[0])
    left = [key for folder in _CONTROL for key in server.folder(folder)]
    left += [f"a reservation of {each.operation}" for each in DecisionLog(world.storage(world.network)).reservations()]
    left += [instant.file_name for instant in (*timeline.pending, *timeline.pending_services)]
    left += [i.file_name for i in (*timeline.cleanings, *timeline.savepoints) if not i.is_completed]
    committed = frozenset(p.instant for p in checker.published)
    files = (DataFile.parse(key) for key in server.keys if key.endswith(".parquet"))
    left += [file.key for file in files if file and file.instant not in committed and not checker.excused(file)]
    left += [*checker.strays, *checker.superfluous()]
    if left:
        checker.fail("nothing is left behind", ", ".join(left[:5]))
    if has_metadata_table(server):
        data = [key for key in server.keys if not key.startswith(METADATA_FOLDER)]
        told = set(listed_files(metadata_table(server)))
        there = {key for key in data if DataFile.parse(key) or LogFile.parse(key)} - set(checker.strays)
        # A file that came after its instant was rolled back is listed, or not, by when it came.
        lacking = [key for key in sorted(there - told) if (file := DataFile.parse(key)) is None or not checker.excused(file)]
        if lacking or told - there:
            detail = f"it lists {sorted(told - there)[:3]} and does not list {lacking[:3]}"
            checker.fail("the metadata table lists what is there", detail)
    lost = checker.lost()
    if lost:
        checker.fail("a commit is there for ever", f"neither the timeline nor the history has {lost}")
    if unfinished := checker.ledger.unpublished:
        checker.fail("a decided commit becomes visible", str(unfinished))
