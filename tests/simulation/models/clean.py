"""A model of cleaning: every interleaving of cleaners, savepoints, transactions and readers on one file group, without a lock.

Commit `i` writes slice `i`, and the newest one is kept. One request is one step, anybody may stand still for ever, or for
hours, before any step. Searched for: a transaction or a reader whose file is gone, a savepoint that lacks its file, and a read
of the past that sees an older slice. Each of the rules can be left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tests.simulation.models.every_state import visit

Slices = frozenset[int]


@dataclass(frozen=True)
class Rules:
    """Which rules are kept."""

    transactions_keep: bool = True
    """A plan leaves out what was current when a pending transaction, which shows itself before it looks, began."""
    readers_keep: bool = True
    """A plan leaves out what readers may still use."""
    savepoints_keep: bool = True
    """Whoever carries out a plan looks for savepoints after the plan is shown, and leaves out what they keep."""
    waits_for_savepoints: bool = True
    """It deletes nothing while a savepoint is being taken."""
    plans_stay: bool = True
    """A plan that is shown is carried out, by whomever; it is not withdrawn when a savepoint turns up."""
    savepoint_looks_at_plans: bool = True
    """A savepoint looks for pending plans once it is shown, and gives up if one has its file."""
    savepoint_looks_again: bool = True
    """It also looks once more, once it is shown, whether its commit can still be read."""
    past_counts_plans: bool = True
    """A read of the past is refused for what a pending plan has, not only for what was cleaned."""
    past_looks_again: bool = True
    """It looks for both once more after it has listed the files."""


class Agent(NamedTuple):
    """A transaction `U`, a reader `D`, a read of the past `A`, a savepoint `S` or a cleaner `C`, and where it is."""

    name: str
    at: str = "begin"
    number: int = -1
    todo: Slices = frozenset()
    plan: str = ""
    held: frozenset[str] = frozenset()


class Plan(NamedTuple):
    """A cleaner's plan: what it deletes, and whether that is done."""

    slices: Slices
    done: bool = False


class World(NamedTuple):
    """The newest commit, the files, who began when, the plans and the savepoints that are shown or taken; what broke."""

    head: int
    files: Slices
    agents: tuple[Agent, ...]
    pending: tuple[tuple[str, int], ...] = ()
    plans: tuple[tuple[str, Plan], ...] = ()
    shown: tuple[tuple[str, int], ...] = ()
    taken: tuple[tuple[str, int], ...] = ()
    broken: str = ""

    def is_readable(self, number: int, *, plans: bool = True) -> bool:
        """Whether neither cleans nor, with `plans`, pending ones have a slice of this time or a later one."""
        return all(number > max(plan.slices, default=-1) for _, plan in self.plans if plan.done or plans)

    def carrying_out(self) -> str:
        return next((name for name, plan in self.plans if not plan.done), "")


def start(names: str, head: int) -> World:
    """Agents by their names, such as `C0 S0`, on a group with slices 0 to `head`."""
    return World(head, frozenset(range(head + 1)), tuple(Agent(name) for name in names.split()))


def explore(names: str, head: int, rules: Rules = Rules(), *, most_states: int = 2_000_000) -> tuple[int, str | None]:
    """How many states there are, and the first violation that is met."""
    return visit(start(names, head), partial(steps, rules=rules), _violation, most_states=most_states)


def _violation(world: World) -> str:
    lost = [name for name, number in world.taken if number not in world.files]
    return world.broken or (f"savepoint {lost[0]} lacks its file" if lost else "")


def steps(world: World, rules: Rules) -> Iterator[World]:
    """Every state that one request leads to."""
    kinds = {"U": _transaction, "D": _reader, "A": _past, "S": _savepoint, "C": _cleaner}
    for me, agent in enumerate(world.agents):
        for after, changed in kinds[agent.name[0]](world, agent, rules):
            yield changed._replace(agents=(*world.agents[:me], after, *world.agents[me + 1 :]))


Steps = Iterator[tuple[Agent, World]]


def _transaction(world: World, mine: Agent, rules: Rules) -> Steps:
    if mine.at == "begin":
        yield mine._replace(at="look"), world._replace(pending=(*world.pending, (mine.name, world.head)))
    elif mine.at == "look":
        yield mine._replace(at="read", number=world.head), world
    elif mine.at == "read":
        gone = f"the file of {mine.name} is gone" if mine.number not in world.files else ""
        yield mine._replace(at="commit"), world._replace(broken=gone)
    elif mine.at == "commit":
        pending = tuple(each for each in world.pending if each[0] != mine.name)
        after = world._replace(pending=pending)
        if world.head == mine.number:
            after = after._replace(head=world.head + 1, files=world.files | {world.head + 1})
        yield mine._replace(at="end"), after


def _reader(world: World, mine: Agent, rules: Rules) -> Steps:
    if mine.at == "begin":
        yield mine._replace(at="read", number=world.head), world
    elif mine.at == "read":
        yield mine._replace(at="end"), world  # its time is over, and it may fail from now on
        gone = f"the file of {mine.name} is gone" if mine.number not in world.files else ""
        yield mine._replace(at="end"), world._replace(broken=gone)


def _past(world: World, mine: Agent, rules: Rules) -> Steps:
    readable = world.is_readable(mine.number, plans=rules.past_counts_plans)
    if mine.at == "begin":
        for number in range(world.head + 1):
            if world.is_readable(number, plans=rules.past_counts_plans):
                yield mine._replace(at="list", number=number), world
    elif mine.at == "list":
        shown = max((number for number in world.files if number <= mine.number), default=-1)
        yield mine._replace(at="look again", todo=frozenset({shown})), world
    elif mine.at == "look again":
        wrong = (readable or not rules.past_looks_again) and mine.todo != {mine.number}
        yield mine._replace(at="end"), world._replace(broken=f"{mine.name} sees an older slice" if wrong else "")


def _savepoint(world: World, mine: Agent, rules: Rules) -> Steps:
    if mine.at == "begin":
        for number in range(world.head + 1):
            if world.is_readable(number):
                yield mine._replace(at="show", number=number), world
    elif mine.at == "show":
        yield mine._replace(at="look"), world._replace(shown=(*world.shown, (mine.name, mine.number)))
    elif mine.at == "look":
        planned = any(mine.number in plan.slices for _, plan in world.plans if not plan.done)
        refused = planned and rules.savepoint_looks_at_plans
        refused = refused or (rules.savepoint_looks_again and not world.is_readable(mine.number, plans=False))
        yield mine._replace(at="give up" if refused else "take"), world
    else:
        after = world._replace(shown=tuple(each for each in world.shown if each[0] != mine.name))
        if mine.at == "give up":
            yield mine._replace(at="end"), after
        elif mine.at == "take":
            yield mine._replace(at="end"), after._replace(taken=(*world.taken, (mine.name, mine.number)))


def _cleaner(world: World, mine: Agent, rules: Rules) -> Steps:
    held = frozenset(name for name, _ in (*world.shown, *world.taken))
    plans = dict(world.plans)
    if mine.at == "begin" and world.carrying_out():
        plan = world.carrying_out()
        yield mine._replace(at="look", plan=plan, todo=plans[plan].slices), world
    elif mine.at == "begin":
        dead = _dead(world, rules)
        yield mine._replace(at="plan" if dead else "end", todo=dead, plan=mine.name, held=held), world
    elif mine.at == "plan":
        after = world._replace(plans=(*world.plans, (mine.name, Plan(mine.todo))))
        yield mine._replace(at="look" if rules.plans_stay else "recheck"), after
    elif mine.at == "recheck":
        yield mine._replace(at="look" if held == mine.held else "withdraw"), world
    elif mine.at == "withdraw":
        yield mine._replace(at="end"), world._replace(plans=tuple(each for each in world.plans if each[0] != mine.plan))
    elif mine.at == "look" and world.shown and rules.waits_for_savepoints:
        yield mine._replace(at="end"), world
    elif mine.at == "look":
        kept = {number for _, number in world.taken} if rules.savepoints_keep else set()
        yield mine._replace(at="delete", todo=mine.todo - kept), world
    elif mine.at == "delete" and mine.todo & world.files:
        for number in mine.todo & world.files:
            yield mine, world._replace(files=world.files - {number})
    elif mine.at == "delete":
        done = tuple((name, plan._replace(done=True)) if name == mine.plan else (name, plan) for name, plan in world.plans)
        yield mine._replace(at="end"), world._replace(plans=done)


def _dead(world: World, rules: Rules) -> Slices:
    """What a plan made now may delete."""
    began = [head for _, head in world.pending] if rules.transactions_keep else []
    reading = [agent.number for agent in world.agents if agent.name[0] == "D" and agent.at == "read"]
    first = min([world.head, *began, *(reading if rules.readers_keep else [])])
    saved = {number for _, number in world.taken}
    return frozenset(number for number in world.files if number < first and number not in saved)
