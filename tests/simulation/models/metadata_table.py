"""A model of the metadata table that is kept true: writers, a compactor and other engines under one lock, each of which may
die at every step.

One request is one step. Whoever holds the lock and dies loses it. Searched for: a visible commit that readers of the metadata
table do not see, because it is not listed, because its log file counts as a part of an older base file, or because the bounds
of its partition leave it out; an instant that is gone and is listed for ever; and a key that the record index has elsewhere.
All commits are about one partition, and those of `W` about one key. Instants are in the order of the agents. Readers merge log
files in the order of their instants, whatever came first. Each of the rules can be left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tests.simulation.models.every_state import visit


@dataclass(frozen=True)
class Rules:
    """Which rules are kept."""

    listed_first: bool = True
    """A commit is listed before it is visible."""
    finished_for_others: bool = True
    """Whoever publishes a commit for another lists it, too."""
    own_time: bool = True
    """The completion time of a delta commit is made when it is written, and not fixed by the decision."""
    only_settled_is_compacted: bool = True
    """Nothing is compacted while a commit is listed that may still be rolled back."""
    void_is_withdrawn: bool = True
    """Who clears a commit away that another engine has begun to roll back takes it out of the metadata table."""
    joined: bool = True
    """Bounds of a partition are joined with those that count."""
    anew: bool = True
    """Bounds below those of a later instant are written once more, under a time of their own."""
    anew_for_others: bool = True
    """So they are where others have written since a killed writer listed the commit, or below a later instant."""
    apart: bool = True
    """That time is none that a transaction may have."""
    keys_begin_again: bool = True
    """Who finds a later instant's word on its key gives up before it decides."""
    overtaken: bool = True
    """Bounds that another engine wrote below those of a later instant are written once more by the next commit."""
    overtaken_by_finishers: bool = True
    """Also by whoever finishes a commit for another, before anything else: later on, bounds that were written once more hide
    that nobody has looked for them.
    """
    overtaken_before_late: bool = True
    """And before commits are listed that the metadata table lacks, for the same reason."""


class Agent(NamedTuple):
    """A writer `W` of an instant; an engine `J` that lists its commits once, `N` that does not list them; a compactor `C`, an
    eager engine `E`. Where it is, and the instant that it is about.
    """

    name: str
    at: str = "begin"
    target: int = -1


Order = tuple[int, int]
"""An instant: that of an agent, and how many were made right after it."""


class Log(NamedTuple):
    """A delta commit. What it says of files, of the bounds of the partition, which are the commits that they cover, and of the
    place of the key; None where it says nothing.
    """

    order: Order
    completed: int
    file: int | None
    bounds: frozenset[int] | None = None
    place: int | None = None


class Base(NamedTuple):
    """What a base file says, and its time."""

    time: int = 0
    files: frozenset[int] = frozenset()
    bounds: frozenset[int] = frozenset()
    place: int = -1


class World(NamedTuple):
    """`commits`: the state of each instant. `decided`: when. `owed`: what other engines hid themselves, until lakelock's next
    commit. `written`: the commit that wrote the key last.
    """

    agents: tuple[Agent, ...]
    commits: tuple[str, ...]
    decided: tuple[int, ...]
    now: int = 1
    lock: str = ""
    logs: frozenset[Log] = frozenset()
    base: Base = Base()
    owed: frozenset[int] = frozenset()
    written: int = -1

    def seen(self, *, pending: bool) -> Base:
        """What readers see: the base file, and the log files that were completed after it. Those of `pending` commits do not
        count for others than writers.
        """
        base = self.base
        for log in sorted(log for log in self.logs if log.completed > base.time):
            if not pending and log.order[1] == 0 and self.commits[log.order[0]] not in ("visible", "gone"):
                continue
            base = Base(
                base.time,
                base.files | ({log.file} if log.file is not None else set()),
                base.bounds if log.bounds is None else log.bounds,
                base.place if log.place is None else log.place,
            )
        return base

    def with_commit(self, instant: int, state: str) -> World:
        return self._replace(commits=_put(self.commits, instant, state))

    def without_log(self, instant: int) -> World:
        return self._replace(logs=frozenset(log for log in self.logs if log.order != (instant, 0)))

    def log_of(self, instant: int) -> Log | None:
        return next((log for log in self.logs if log.file == instant), None)

    def with_log(self, log: Log) -> World:
        return self._replace(logs=self.logs | {log})

    def with_bounds_anew(self, *more: int, apart: bool) -> World:
        """Bounds that count, whatever the order."""
        instant, number = max(log.order for log in self.logs)
        free = (i for i, state in enumerate(self.commits) if state == "pending" and i > instant)
        order = (instant, number + 1) if apart else (next(free, instant), 0 if instant < len(self.commits) - 1 else number + 1)
        return self.with_log(Log(order, self.now, None, self.seen(pending=True).bounds | set(more)))

    def overtaken(self) -> list[int]:
        """The visible commits whose bounds came after those of a later instant, since the last time that some were written
        once more.
        """
        found, newest = list[int](), (-1, 0)
        for log in sorted(self.logs, key=lambda log: log.completed):
            if log.file is None:
                found = []
            elif log.order < newest and self.commits[log.file] == "visible":
                found.append(log.file)
            newest = max(newest, log.order)
        return found


def _put(values: tuple[str, ...], at: int, value: str) -> tuple[str, ...]:
    return (*values[:at], value, *values[at + 1 :])


def explore(names: str, rules: Rules = Rules(), *, most_states: int = 2_000_000) -> tuple[int, str | None]:
    """How many states agents such as `W W C E` can reach, and the first violation that is met."""
    agents = tuple(Agent(f"{name}{number}") for number, name in enumerate(names.split()))
    first = World(agents, ("pending",) * len(agents), (0,) * len(agents))
    return visit(first, partial(steps, rules=rules), _violation, most_states=most_states)


def _violation(world: World) -> str:
    seen = world.seen(pending=False)
    visible = {instant for instant, state in enumerate(world.commits) if state == "visible"} - world.owed
    if hidden := visible - seen.files:
        return f"commit {min(hidden)} is visible and not in the metadata table"
    if hidden := visible - seen.bounds:
        return f"commit {min(hidden)} is visible and not within the bounds of its partition"
    if world.written not in (-1, seen.place):
        return f"commit {world.written} wrote the key, and the record index has it where {seen.place} did"
    stale = [instant for instant, state in enumerate(world.commits) if state == "gone" and instant in seen.files]
    return f"commit {stale[0]} is gone and in the metadata table" if stale else ""


def steps(world: World, rules: Rules) -> Iterator[World]:
    """Every state that one request, or a death, leads to."""
    kinds = {"W": _writer, "J": _once, "N": _ignorant, "C": _compactor, "E": _eager}
    for me, agent in enumerate(world.agents):
        if agent.at in ("ended", "dead"):
            continue
        if agent.at == "begin":
            if not world.lock:
                yield _moved(world._replace(lock=agent.name), me, agent._replace(at="locked"))
            continue
        yield _moved(world._replace(lock=""), me, agent._replace(at="dead"))
        for after, changed in kinds[agent.name[0]](world, me, agent, rules):
            ended = changed._replace(lock="") if after.at == "ended" else changed
            yield _moved(ended._replace(now=world.now + 1), me, after)


def _moved(world: World, me: int, agent: Agent) -> World:
    return world._replace(agents=(*world.agents[:me], agent, *world.agents[me + 1 :]))


Steps = Iterator[tuple[Agent, World]]


def _writer(world: World, me: int, mine: Agent, rules: Rules) -> Steps:
    order = ("list", "publish") if rules.listed_first else ("publish", "list")
    then = {order[0]: order[1], order[1]: "done"}
    target, own = mine.target, mine.target == me
    if mine.at == "locked":
        yield from _begins(world, me, mine, rules, order[0])
    elif mine.at == "list" and (own or rules.finished_for_others):
        listed = world.log_of(target)
        after = world if listed else world.with_log(_log_of(world, target, rules))
        others = [log for log in world.logs if log is not listed and log.order > (target, 0)]
        if listed and rules.anew_for_others:
            others += [log for log in world.logs if log.completed > listed.completed]
        again = others and rules.anew and (not listed or rules.anew_for_others)
        yield mine._replace(at="anew" if again else then["list"]), after
    elif mine.at == "anew":
        yield mine._replace(at=then["list"]), world.with_bounds_anew(target, apart=rules.apart)
    elif mine.at == "publish":
        after = world.with_commit(target, "visible")._replace(written=target, owed=frozenset() if own else world.owed)
        yield mine._replace(at=then["publish"]), after
    elif mine.at == "list":
        yield mine._replace(at=then["list"]), world
    else:
        yield mine._replace(at="ended" if own else "locked"), world


def _log_of(world: World, target: int, rules: Rules, *, own_key: bool = True) -> Log:
    known = world.seen(pending=True).bounds if rules.joined else frozenset()
    completed = world.now if rules.own_time else world.decided[target]
    return Log((target, 0), completed, target, known | {target}, target if own_key else None)


def _begins(world: World, me: int, mine: Agent, rules: Rules, first: str) -> Steps:
    """First what others have left, then the own commit."""
    states = list(enumerate(world.commits))
    void = [instant for instant, state in states if state == "void"]
    decided = [i for i, state in states if state == "decided" and world.agents[i].name[0] == "W"]
    late = [i for i, state in states if state == "visible" and not world.log_of(i) and i not in world.base.files]
    overtaken = world.overtaken() if rules.overtaken and (rules.overtaken_by_finishers or not decided) else []
    if not (rules.overtaken_before_late or not late):
        overtaken = []
    said_later = any(log.place is not None and log.order > (me, 0) and log.completed > world.base.time for log in world.logs)
    if void:
        cleared = world.without_log(void[0]) if rules.void_is_withdrawn else world
        yield mine, cleared.with_commit(void[0], "gone")
    elif overtaken:
        yield mine, world.with_bounds_anew(*overtaken, apart=rules.apart)
    elif decided:
        yield mine._replace(at=first, target=decided[0]), world
    elif world.commits[me] != "pending":
        yield mine._replace(at="ended"), world
    elif said_later and rules.keys_begin_again:
        yield mine._replace(at="ended"), world.with_commit(me, "gone")
    elif late:
        listed = world.with_log(_log_of(world, late[0], rules, own_key=False))
        again = any(log.order > (late[0], 0) for log in world.logs)
        yield mine, listed.with_bounds_anew(late[0], apart=rules.apart) if again else listed
    else:
        times = (*world.decided[:me], world.now, *world.decided[me + 1 :])
        yield mine._replace(at=first, target=me), world._replace(decided=times).with_commit(me, "decided")


def _once(world: World, me: int, mine: Agent, rules: Rules) -> Steps:
    """It says what it sees itself and its own, and does not look at later instants."""
    if mine.at == "locked" and world.commits[me] == "pending":
        seen = world.seen(pending=False)
        log = Log((me, 0), world.now, me, seen.files | {me})
        yield mine._replace(at="listed"), world.with_log(log).with_commit(me, "decided")
    elif mine.at == "listed" and world.commits[me] == "decided":
        shown = world.with_commit(me, "visible")
        hidden = me not in shown.seen(pending=False).bounds
        yield mine._replace(at="ended"), shown._replace(owed=world.owed | {me}) if hidden else shown
    else:
        yield mine._replace(at="ended"), world


def _ignorant(world: World, me: int, mine: Agent, rules: Rules) -> Steps:
    yield mine._replace(at="ended"), world.with_commit(me, "visible")._replace(owed=world.owed | {me})


def _compactor(world: World, me: int, mine: Agent, rules: Rules) -> Steps:
    listed = {log.file for log in world.logs if log.file is not None}
    unsettled = any(world.commits[instant] != "visible" for instant in listed)
    if unsettled and rules.only_settled_is_compacted:
        yield mine._replace(at="ended"), world
    else:
        yield mine._replace(at="ended"), world._replace(base=world.seen(pending=True)._replace(time=world.now))


def _eager(world: World, me: int, mine: Agent, rules: Rules) -> Steps:
    """It plans the rollback of what is not visible, and carries it out, in the metadata table as well."""
    open_ = [instant for instant, state in enumerate(world.commits) if state in ("decided", "void")]
    if mine.at == "locked":
        yield (mine._replace(at="planned", target=open_[0]), world.with_commit(open_[0], "void")) if open_ else (
            mine._replace(at="ended"), world)  # fmt: skip
    else:
        yield mine._replace(at="ended"), world.without_log(mine.target).with_commit(mine.target, "gone")
