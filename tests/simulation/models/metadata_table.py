"""A model of the metadata table that is kept true: writers, a compactor and an eager engine under one lock, each of which may
die at every step.

One request is one step. Whoever holds the lock and dies loses it. Searched for: a visible commit that readers of the metadata
table do not see, because it is not listed or because its log file counts as a part of an older base file; and an instant that
is gone and is listed for ever. Each of the rules can be left out.
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


class Agent(NamedTuple):
    """A writer `W` of an instant, a compactor `C` or an eager engine `E`; where it is, and the instant that it is about."""

    name: str
    at: str = "begin"
    target: int = -1


class World(NamedTuple):
    """`commits`: the state of each instant. `decided`: when. `logs`: listed instants and their completion times. `base`: the
    time of the base file, and what is in it.
    """

    agents: tuple[Agent, ...]
    commits: tuple[str, ...]
    decided: tuple[int, ...]
    now: int = 1
    lock: str = ""
    logs: frozenset[tuple[int, int]] = frozenset()
    base: tuple[int, frozenset[int]] = (0, frozenset())

    def listed(self) -> frozenset[int]:
        """What readers see: the base file, and the log files that were completed after it."""
        return self.base[1] | {instant for instant, time in self.logs if time > self.base[0]}

    def with_commit(self, instant: int, state: str) -> World:
        return self._replace(commits=_put(self.commits, instant, state))

    def without_log(self, instant: int) -> World:
        return self._replace(logs=frozenset(log for log in self.logs if log[0] != instant))


def _put(values: tuple[str, ...], at: int, value: str) -> tuple[str, ...]:
    return (*values[:at], value, *values[at + 1 :])


def explore(names: str, rules: Rules = Rules(), *, most_states: int = 2_000_000) -> tuple[int, str | None]:
    """How many states agents such as `W W C E` can reach, and the first violation that is met."""
    agents = tuple(Agent(f"{name}{number}") for number, name in enumerate(names.split()))
    first = World(agents, ("pending",) * len(agents), (0,) * len(agents))
    return visit(first, partial(steps, rules=rules), _violation, most_states=most_states)


def _violation(world: World) -> str:
    listed = world.listed()
    hidden = [instant for instant, state in enumerate(world.commits) if state == "visible" and instant not in listed]
    if hidden:
        return f"commit {hidden[0]} is visible and not in the metadata table"
    stale = [instant for instant, state in enumerate(world.commits) if state == "gone" and instant in listed]
    return f"commit {stale[0]} is gone and in the metadata table" if stale else ""


def steps(world: World, rules: Rules) -> Iterator[World]:
    """Every state that one request, or a death, leads to."""
    kinds = {"W": _writer, "C": _compactor, "E": _eager}
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
    if mine.at == "locked":
        yield from _begins(world, me, mine, rules, order[0])
        return
    after, target = world, mine.target
    if mine.at == "list" and (target == me or rules.finished_for_others) and target not in {log[0] for log in world.logs}:
        after = world._replace(logs=world.logs | {(target, world.now if rules.own_time else world.decided[target])})
    elif mine.at == "publish":
        after = world.with_commit(target, "visible")
    if mine.at == order[0]:
        yield mine._replace(at=order[1]), after
    else:
        yield mine._replace(at="ended" if target == me else "locked"), after


def _begins(world: World, me: int, mine: Agent, rules: Rules, first: str) -> Steps:
    """First what others have left, then the own commit."""
    void = [instant for instant, state in enumerate(world.commits) if state == "void"]
    decided = [instant for instant, state in enumerate(world.commits) if state == "decided"]
    if void:
        cleared = world.without_log(void[0]) if rules.void_is_withdrawn else world
        yield mine, cleared.with_commit(void[0], "gone")
    elif decided:
        yield mine._replace(at=first, target=decided[0]), world
    elif world.commits[me] != "pending":
        yield mine._replace(at="ended"), world
    else:
        times = (*world.decided[:me], world.now, *world.decided[me + 1 :])
        yield mine._replace(at=first, target=me), world._replace(decided=times).with_commit(me, "decided")


def _compactor(world: World, me: int, mine: Agent, rules: Rules) -> Steps:
    unsettled = any(world.commits[instant] != "visible" for instant, _ in world.logs)
    if unsettled and rules.only_settled_is_compacted:
        yield mine._replace(at="ended"), world
    else:
        yield mine._replace(at="ended"), world._replace(base=(world.now, world.listed()))


def _eager(world: World, me: int, mine: Agent, rules: Rules) -> Steps:
    """It plans the rollback of what is not visible, and carries it out, in the metadata table as well."""
    open_ = [instant for instant, state in enumerate(world.commits) if state in ("decided", "void")]
    if mine.at == "locked":
        yield (mine._replace(at="planned", target=open_[0]), world.with_commit(open_[0], "void")) if open_ else (
            mine._replace(at="ended"), world)  # fmt: skip
    else:
        yield mine._replace(at="ended"), world.without_log(mine.target).with_commit(mine.target, "gone")
