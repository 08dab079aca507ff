"""A model of inserts on offer (ADR 42): every interleaving of owners that commit each other's rows, and of a collector.

One request is one step, and anybody may stand still for ever before any step. There is no lock. Decision `n` is finished before
number `n + 1` is put. A commit may get no answer: then it is carried out, or arrives at any later time, or never, and its
sender withdraws its offer, as after any error. Each of the rules can be left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tests.simulation.models.every_state import visit

Ids = frozenset[int]


@dataclass(frozen=True)
class Rules:
    """Which rules are kept."""

    judged_for_each_number: bool = True
    """What a group has is judged anew for each number that is tried."""
    window_is_read: bool = True
    """An offer is taken along only if no decision since it was made names it."""
    nothing_collected: bool = True
    """It is taken along only if none of these decisions was collected."""
    withdrawn_by_decision: bool = True
    """An owner gives up by a decision, under the next number."""
    number_counts: bool = True
    """A number at or below the boundary, which is read after the put, means nothing."""
    timeline_is_asked: bool = True
    """An owner of whose window a part was collected looks for its commit among those that are visible."""
    takes_itself_along: bool = True
    """The decision of an owner that commits names its own offer, too."""


class Owner(NamedTuple):
    """One insert: where it is, the head that it noted, and what it has chosen for the number after `head`."""

    at: str = "note"
    since: int = 0
    head: int = 0
    group: Ids = frozenset()
    told: str = ""
    gives_up: bool = False


class Decision(NamedTuple):
    """A commit of these offers, or the withdrawal of one."""

    commits: bool
    names: Ids


class World(NamedTuple):
    """`log[n - 1]` is decision `n`, None if it was deleted; `counted` are those that count, also deleted ones."""

    log: tuple[Decision | None, ...] = ()
    boundary: int = 0
    counted: tuple[tuple[int, Decision], ...] = ()
    ready: tuple[tuple[int, int], ...] = ()
    late: tuple[int, Decision] | None = None
    collections: int = 0
    owners: tuple[Owner, ...] = ()

    @property
    def head(self) -> int:
        return len(self.log)

    def window(self, since: int) -> list[Decision | None]:
        """The decisions after `since` that count, as a look at the log shows them, which reads the boundary last."""
        return list(self.log[max(since, self.boundary) :])

    @property
    def committed(self) -> list[int]:
        return [name for _, decision in self.counted if decision.commits for name in decision.names]


def named(decisions: list[Decision | None], owner: int) -> Decision | None:
    return next((each for each in decisions if each is not None and owner in each.names), None)


def put(world: World, number: int, decision: Decision) -> World | None:
    """Create the decision; None if the number is taken. One that was used and deleted before does not count."""
    there = world.log[number - 1] if number <= world.head else None
    if there is not None or number > world.head + 1:
        return None
    log = list(world.log)
    log[number - 1 : number] = [decision]
    world = world._replace(log=tuple(log))
    return world if number <= world.boundary else world._replace(counted=(*world.counted, (number, decision)))


def steps(world: World, *, rules: Rules, most: int, lossy: bool, collections: int) -> Iterator[World]:
    if world.late is not None:
        number, decision = world.late
        yield (put(world, number, decision) or world)._replace(late=None)
    for index, owner in enumerate(world.owners):
        for after, mine in moves(world, index, owner, rules, most, lossy):
            owners = (*after.owners[:index], mine, *after.owners[index + 1 :])
            yield after._replace(owners=owners)
    if world.collections < collections and world.head > world.boundary + 1:
        yield world._replace(boundary=world.head - 1, collections=world.collections + 1)
    if any(each is not None for each in world.log[: world.boundary]):
        log = (None,) * world.boundary + world.log[world.boundary :]
        yield world._replace(log=log)


def moves(world: World, index: int, owner: Owner, rules: Rules, most: int, lossy: bool) -> Iterator[tuple[World, Owner]]:
    if owner.at == "note":
        yield world, owner._replace(at="offer", since=world.head)
    elif owner.at == "offer":
        yield world._replace(ready=(*world.ready, (index, owner.since))), owner._replace(at="look")
    elif owner.at == "look":
        yield from looked(world, index, owner)
    elif owner.at == "choose":
        yield world, owner._replace(at="put", group=chosen(world, index, owner, rules))
    elif owner.at == "put" and owner.head < most:
        yield from tried(world, owner, rules, lossy)
    elif owner.at == "settle":
        yield from settled(world, index, owner, rules, most)
    elif owner.at in ("committed?", "rejected?"):
        counts = world.boundary < owner.head + 1 or not rules.number_counts
        again = "look" if owner.at == "committed?" else "settle"
        told = owner._replace(at="end", told=owner.at.rstrip("?"))
        yield world, told if counts else owner._replace(at=again, head=world.head)


def looked(world: World, index: int, owner: Owner) -> Iterator[tuple[World, Owner]]:
    found = named(world.window(owner.since), index)
    if found is not None and found.commits:
        yield world, owner._replace(at="end", told="committed")
        return
    yield world, owner._replace(at="settle", head=world.head)
    if found is None and not owner.gives_up and world.boundary <= owner.since:
        yield world, owner._replace(at="choose", head=world.head)


def tried(world: World, owner: Owner, rules: Rules, lossy: bool) -> Iterator[tuple[World, Owner]]:
    mine, number = Decision(True, owner.group), owner.head + 1
    after = put(world, number, mine)
    if after is None:
        yield world, owner._replace(at="look" if rules.judged_for_each_number else "put", head=world.head)
    else:
        yield after, owner._replace(at="committed?")
    if lossy and world.late is None:
        doubtful = owner._replace(at="look", gives_up=True)
        if after is not None:
            yield after, doubtful
        yield world._replace(late=(number, mine)), doubtful


def settled(world: World, index: int, owner: Owner, rules: Rules, most: int) -> Iterator[tuple[World, Owner]]:
    """The look and, if it finds nothing, the withdrawal, which are two requests: `head` is what the look saw."""
    found = named(list(world.log[max(owner.since, world.boundary) : owner.head]), index)
    visible = rules.timeline_is_asked and any(
        decision.commits and index in decision.names and number <= owner.head for number, decision in world.counted
    )
    if visible or (found is not None and found.commits):
        yield world, owner._replace(at="end", told="committed")
        return
    if found is not None or not rules.withdrawn_by_decision:
        yield world, owner._replace(at="end", told="rejected")
        return
    if owner.head + 1 > most:
        return
    after = put(world, owner.head + 1, Decision(False, frozenset({index})))
    if after is None:
        yield world, owner._replace(head=world.head)
    else:
        yield after, owner._replace(at="rejected?")


def chosen(world: World, index: int, owner: Owner, rules: Rules) -> Ids:
    """The offers that a commit after `owner.head` takes along, by its look at the log and the boundary of now."""
    group = {index} if rules.takes_itself_along else set()
    for other, since in world.ready:
        if other == index:
            continue
        read = list(world.log[since : owner.head])
        if rules.window_is_read and named(read, other) is not None:
            continue
        if rules.nothing_collected and (since < world.boundary or None in read):
            continue
        group.add(other)
    return frozenset(group)


def violation(world: World) -> str | None:
    committed = world.committed
    if len(committed) > len(set(committed)):
        return "an insert is committed twice"
    for index, owner in enumerate(world.owners):
        if owner.told == "committed" and index not in committed:
            return "an insert was told committed, and is not"
        if owner.told == "rejected" and index in committed:
            return "an insert was told rejected, and is committed"
    return None


def search(
    rules: Rules, *, owners: int = 2, most: int = 4, lossy: bool = False, collections: int = 0, most_states: int = 3_000_000
) -> tuple[int, str | None]:
    """How many states there are, and the first promise that is broken."""
    first = World(owners=(Owner(),) * owners)
    made = partial(steps, rules=rules, most=most, lossy=lossy, collections=collections)
    return visit(first, made, violation, most_states=most_states)
