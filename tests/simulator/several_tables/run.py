"""Runs one seed over several tables: the actors, then a quiet period, then the checks of each table and of all together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lakelock.errors import CommitOutcomeUnknown, LakelockError, TransactionTorn
from tests.simulator.actor import all_finished, within_bound
from tests.simulator.checking.checks import Violation
from tests.simulator.checking.cycles import Seen, anomalies
from tests.simulator.engine import Engine
from tests.simulator.faults import Fault
from tests.simulator.looking import look
from tests.simulator.operations import Look, Operation, State, Transfer
from tests.simulator.run import QUIET_S, finish
from tests.simulator.scenarios.scenario import ACCOUNTS
from tests.simulator.scheduler import Process
from tests.simulator.several_tables.operations import Cut, Move, Noted, account
from tests.simulator.several_tables.scenario import BALANCE, Plan, SeveralTables, Task
from tests.simulator.trace import Answer, Answered
from tests.simulator.world import World

WHOLE = "a transaction over several tables shows in all of them or in none"


@dataclass(frozen=True)
class SeveralResult:
    """The result of one run; `moved`: how many transactions over several tables committed. `digest`: equal for equal runs."""

    scenario: SeveralTables
    violations: tuple[Violation, ...]
    faults: tuple[Fault, ...]
    commits: int
    moved: int
    begun: int
    digest: str = ""
    answered: tuple[Answered, ...] = field(default=(), repr=False)
    steps: tuple[tuple[float, str], ...] = field(default=(), repr=False)
    """What happened when, in words, if that was asked for."""


class Worlds:
    """All tables of one run."""

    def __init__(self, scenario: SeveralTables, *, keep_events: bool) -> None:
        self.scenario, self.noted = scenario, Noted()
        first = World(scenario.of_table(0), name="t0", keep_events=keep_events)
        numbers = range(1, scenario.tables)
        more = [World(scenario.of_table(n), name=f"t{n}", beside=first, keep_events=keep_events) for n in numbers]
        self.worlds = [first, *more]
        self.first, self.hub = first, first.hub

    def engines(self, process: Process) -> list[Engine]:
        return [world.engine(process) for world in self.worlds]

    @property
    def violations(self) -> tuple[Violation, ...]:
        return tuple(violation for world in self.worlds for violation in world.checker.violations)


class Member:
    """One actor: does its tasks one after the other, in a new process after each crash."""

    def __init__(self, all_of: Worlds, plan: Plan) -> None:
        self._all, self.plan, self._left, self._lives, self._began_s = all_of, plan, list(plan.tasks), 0, 0.0
        self.processes: list[Process] = []
        self._be_born()

    @property
    def finished(self) -> bool:
        return not self._left

    def _be_born(self) -> None:
        self._lives += 1
        process = self._all.first.process(f"{self.plan.name}.{self._lives}", skew_ms=self.plan.skew_ms)
        self.processes.append(process)
        self._all.first.when_dead(process, self._reborn)
        self._all.hub.spawn(process, lambda: self._live(process), process.name)

    def _reborn(self) -> None:
        self._tell(self._left.pop(0), Answer.DIED)
        if self._left:
            self._be_born()

    def _live(self, process: Process) -> None:
        hub = self._all.hub
        engines = self._all.engines(process)
        while self._left:
            task = self._left[0]
            number = task[1].id if isinstance(task, tuple) else task.id
            hub.current.relabel(f"op-{number}/{self.plan.name}")
            hub.wait(hub.current.random.expovariate(1 / self.plan.think_s))
            self._began_s = hub.now_s
            with within_bound(self._all.first, process, task):
                self._do(engines, task)
            self._left.pop(0)

    def _do(self, engines: Sequence[Engine], task: Task) -> None:
        try:
            told = self._run(engines, task)
        except CommitOutcomeUnknown as error:
            self._tell(task, Answer.UNKNOWN, detail=error.message)
        except TransactionTorn as error:
            self._all.first.checker.fail(WHOLE, f"{task} was told {error.message}")
        except LakelockError as error:
            self._tell(task, Answer.REJECTED, detail=f"{type(error).__name__}: {error.message}")
        else:
            self._tell(task, told)

    def _run(self, engines: Sequence[Engine], task: Task) -> Answer:
        noted = self._all.noted
        if isinstance(task, Cut):
            noted.cuts[task.id] = task.run(engines)
            return Answer.DONE
        if isinstance(task, Move):
            read: dict[str, tuple[int, ...]] = {}
            noted.read[task.id] = read
            task.run(engines, read)
            for leg in task.legs:
                self._ensure_visible(leg)
            return Answer.COMMITTED
        table, operation = task
        if isinstance(operation, Look):
            look(self._all.worlds[table].checker, engines[table], operation, self._began_s)
            return Answer.DONE
        if operation.run(engines[table]) is None:
            return Answer.DONE
        return Answer.COMMITTED

    def _ensure_visible(self, leg: Operation) -> None:
        table = getattr(leg, "table")  # noqa: B009
        checker = self._all.worlds[table].checker
        if all(published.operation != leg.id for published in checker.published):
            checker.fail("what is acknowledged is visible", f"{leg} was told committed, and is not in table {table}")

    def _tell(self, task: Task, answer: Answer, detail: str = "") -> None:
        now_s = self._all.hub.now_s
        if isinstance(task, Move):
            where, number = sorted({leg.table for leg in task.legs}), task.id
        elif isinstance(task, Cut):
            return
        else:
            where, number = [task[0]], task[1].id
        for table in where:
            one = Answered(number, self.plan.name, answer, "", self._began_s, now_s, detail.splitlines()[0] if detail else "")
            self._all.worlds[table].trace.answered.append(one)


def run_several(scenario: SeveralTables, *, keep_events: bool = False) -> SeveralResult:
    """Run a scenario to its end or to the first violation; the same scenario gives the same result."""
    every = Worlds(scenario, keep_events=keep_events)
    closing = every.first.process("last")
    every.hub.spawn(closing, lambda: _direct(every, closing), "last")
    try:
        every.hub.run()
    except BaseException:
        every.hub.dispose()
        raise
    checker = every.first.checker
    for task, error in every.hub.errors:
        checker.fail("no error but lakelock's own", f"{task.process} in {task.label}: {type(error).__name__}: {error}")
    if every.hub.out_of_steps:
        checker.fail("every wait ends within its bound", f"{every.hub.steps} steps were not enough")
    if not every.violations:
        _check_whole(every)
    every.hub.dispose()
    worlds = every.worlds
    published = ";".join(",".join(f"{p.instant}:{p.operation}" for p in world.checker.published) for world in worlds)
    moved = {p.operation for world in worlds for p in world.checker.published} & scenario.moves.keys()
    return SeveralResult(
        scenario,
        every.violations,
        tuple(every.first.faults.happened),
        commits=sum(len(world.checker.published) for world in worlds),
        moved=len(moved),
        begun=sum(world.trace.begun for world in worlds),
        digest=f"{every.hub.steps}/{every.hub.now_s:.6f}/{published}",
        answered=tuple(one for world in worlds for one in world.trace.answered),
        steps=tuple(
            (at_s, f"{world.server.uri}: {process}: {event}") for world in worlds for at_s, process, event in world.trace.events
        ),
    )


def _direct(every: Worlds, process: Process) -> None:
    """Open, let everybody work, wait until all have finished, let time pass, and end each table as a table of its own."""
    hub, faults = every.hub, every.first.faults
    faults.calm = True
    opening = Member(every, every.scenario.opening)
    while not opening.finished:
        hub.wait(0.1)
    faults.calm = False
    members = [Member(every, plan) for plan in every.scenario.plans]
    if not all_finished(every.first, members):
        return
    for world in every.worlds:
        world.faults.calm = world.room.calm = True
    hub.wait(QUIET_S)
    # Twice: an outcome goes once its transaction is pending in no table.
    for world in every.worlds:
        world.engine(process).coordinator.reap()
    for world in every.worlds:
        hub.current.relabel(f"last/{world.server.uri}")
        finish(world, process)
    hub.stop()


def _check_whole(every: Worlds) -> None:
    """All or nothing in the tables and in each cut, the same order of transactions in all tables, and sums that stay."""
    checker, scenario = every.first.checker, every.scenario
    applied = [{p.operation for p in world.checker.published} for world in every.worlds]
    for move in scenario.moves.values():
        shown = {move.id in applied[leg.table] for leg in move.legs}
        if len(shown) > 1:
            checker.fail(WHOLE, f"{move} is visible in some of its tables only")
    for number, cut in every.noted.cuts.items():
        _check_cut(every, number, cut)
    committed = frozenset(number for each in applied for number in each if number)
    for anomaly in anomalies(_history(every), committed):
        checker.fail("serializable by what was read", anomaly)


def _check_cut(every: Worlds, number: int, cut: tuple[State, ...]) -> None:
    checker = every.first.checker
    trails = [_trails(table, state) for table, state in enumerate(cut)]
    for move in every.scenario.moves.values():
        seen = {move.id in trails[leg.table].get(account(leg.table, leg.place), ()) for leg in move.legs}
        if len(seen) > 1:
            checker.fail(WHOLE, f"cut {number} saw a part of {move}")
    values = [state[place][0][0] for state in cut for place in ACCOUNTS if place in state]
    if len(values) == len(ACCOUNTS) * len(cut) and sum(values) != BALANCE * len(values):
        checker.fail("the sum of all accounts stays", f"cut {number} saw {sum(values)} in {len(values)} accounts")


def _trails(table: int, state: State) -> dict[str, tuple[int, ...]]:
    return {account(table, place): state[place][0][1] for place in ACCOUNTS if place in state}


def _history(every: Worlds) -> list[Seen]:
    """What each committed transaction saw of the accounts, over all tables, according to the rows; and what cuts saw."""
    history: list[Seen] = []
    written: dict[int, dict[str, tuple[int, ...]]] = {}
    for table, world in enumerate(every.worlds):
        for published in world.checker.published:
            number = published.operation or 0
            operation = world.scenario.operations.get(number)
            places = [operation.source, operation.target] if isinstance(operation, Transfer) else []
            move = every.scenario.moves.get(number)
            if move is not None:
                places = [leg.place for leg in move.legs if leg.table == table]
            for place in places:
                written.setdefault(number, {})[account(table, place)] = published.state[place][0][1]
    for number, trails in written.items():
        reads = {key: trail[:-1] for key, trail in trails.items()} | dict(every.noted.read.get(number, {}))
        history.append(Seen(number, reads, frozenset(trails)))
    if not every.scenario.reads_only:
        for number, cut in every.noted.cuts.items():
            found: dict[str, tuple[int, ...]] = {}
            for table, state in enumerate(cut):
                found |= _trails(table, state)
            history.append(Seen(number, found))
    return history
