"""A model of how services yield to writes: every interleaving of some that rewrite one file group, without any lock.

One request is one step, anybody may stand still for ever before any step. What the model of commits shows is taken as given: a
number of the log is decided once. Searched for: a lost update, an instant both committed and rolled back, and a write that
loses to a service what it has written. Each of the rules can be left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tests.simulation.models.every_state import visit

SERVICE, WRITE = "O", "U"


@dataclass(frozen=True)
class Rules:
    """Which rules are kept."""

    decide_before_taking_over: bool = True
    """A write decides the rollback of a live service before it takes its claim."""
    look_after_claim: bool = True
    """Once it has the claim, a write looks at what was decided since its baseline, before it writes."""
    heed_own_rollback: bool = True
    """A service that was rolled back does not commit."""
    release_own_claim: bool = True
    """Whoever ends lets go of its own claim, not of one that was taken over."""


class Agent(NamedTuple):
    """Where a write or a service is. `base` counts the commits that it has seen, `head` the decisions at its last look."""

    name: str
    at: str = "begin"
    base: int = 0
    head: int = 0

    @property
    def is_service(self) -> bool:
        return self.name.startswith(SERVICE)


class World(NamedTuple):
    """The decisions in order (a name: its commit; `r` and a name: its rollback), who has the claim, the agents, what broke."""

    log: tuple[str, ...] = ()
    claim: str = ""
    agents: tuple[Agent, ...] = ()
    broken: str = ""

    @property
    def commits(self) -> tuple[str, ...]:
        return tuple(entry for entry in self.log if not entry.startswith("r"))

    def is_decided(self, name: str) -> bool:
        return name in self.log or f"r{name}" in self.log


def start(names: str) -> World:
    """Agents by their names, such as `U0 O0`: a write and a service."""
    return World(agents=tuple(Agent(name) for name in names.split()))


def explore(names: str, rules: Rules = Rules(), *, most_states: int = 2_000_000) -> tuple[int, str | None]:
    """How many states there are, and the first violation that is met."""
    return visit(start(names), partial(steps, rules=rules), _violation, most_states=most_states)


def steps(world: World, rules: Rules) -> Iterator[World]:
    """Every state that one request leads to."""
    for me, agent in enumerate(world.agents):
        yield from (_service if agent.is_service else _write)(world, me, agent, rules)


def _write(world: World, me: int, mine: Agent, rules: Rules) -> Iterator[World]:  # noqa: C901  one case for each request
    holder = world.claim
    match mine.at:
        case "begin":
            yield _as(world, me, mine._replace(at="claim", base=len(world.commits)))
        case "claim" if not holder or holder == mine.name:
            yield _as(world._replace(claim=mine.name), me, mine._replace(at="look"))
        case "claim" if not holder.startswith(SERVICE):
            yield _as(world, me, mine._replace(at="end"))  # an early conflict with another write
        case "claim" if rules.decide_before_taking_over:
            yield _as(world, me, mine._replace(at="roll back"))
        case "claim":
            yield _as(world._replace(claim=mine.name), me, mine._replace(at="look"))
        case "roll back" if holder.startswith(SERVICE) and not world.is_decided(holder):
            yield _as(world, me, mine._replace(at="decide rollback", head=len(world.log)))
        case "roll back":
            yield _as(world, me, mine._replace(at="swap"))
        case "decide rollback":
            first = len(world.log) == mine.head and holder.startswith(SERVICE)
            after = world._replace(log=(*world.log, f"r{holder}")) if first else world
            yield _as(after, me, mine._replace(at="roll back", head=0))
        case "swap" if not holder or world.is_decided(holder):
            yield _as(world._replace(claim=mine.name), me, mine._replace(at="look"))
        case "swap":
            yield _as(world, me, mine._replace(at="claim"))
        case "look":
            base = len(world.commits) if rules.look_after_claim else mine.base
            yield _as(world, me, mine._replace(at="commit", base=base))
        case "commit" if world.commits[mine.base :]:
            lost = any(name.startswith(SERVICE) for name in world.commits[mine.base :])
            broken = "a write loses to a service what it has written" if lost else ""
            yield _as(world._replace(broken=broken), me, mine._replace(at="release"))
        case "commit":
            yield _as(world, me, mine._replace(at="decide", head=len(world.log)))
        case "decide" | "release":
            yield _decide_or_release(world, me, mine, rules)


def _service(world: World, me: int, mine: Agent, rules: Rules) -> Iterator[World]:
    match mine.at:
        case "begin":
            yield _as(world, me, mine._replace(at="claim", base=len(world.commits)))
        case "claim" if world.claim:
            yield _as(world, me, mine._replace(at="end"))
        case "claim":
            yield _as(world._replace(claim=mine.name), me, mine._replace(at="commit"))
        case "commit":
            rolled_back = rules.heed_own_rollback and f"r{mine.name}" in world.log
            gives_up = rolled_back or len(world.commits) > mine.base
            yield _as(world, me, mine._replace(at="release") if gives_up else mine._replace(at="decide", head=len(world.log)))
        case "decide" | "release":
            yield _decide_or_release(world, me, mine, rules)


def _decide_or_release(world: World, me: int, mine: Agent, rules: Rules) -> World:
    if mine.at == "decide":
        if len(world.log) != mine.head:
            return _as(world, me, mine._replace(at="commit", head=0))
        return _as(world._replace(log=(*world.log, mine.name)), me, mine._replace(at="release", head=0))
    lets_go = world.claim == mine.name or (mine.is_service and not rules.release_own_claim)
    return _as(world._replace(claim="") if lets_go else world, me, mine._replace(at="end"))


def _violation(world: World) -> str:
    bases = {agent.name: agent.base for agent in world.agents}
    for number, name in enumerate(world.commits):
        if bases[name] != number:
            return "lost update"
        if f"r{name}" in world.log:
            return "both commit and rollback"
    return world.broken


def _as(world: World, me: int, agent: Agent) -> World:
    return world._replace(agents=(*world.agents[:me], agent, *world.agents[me + 1 :]))
