"""A model of the file index: checkpoints, readers, and archives that move instants away, each request one step.

What the model of the decisions shows (`protocol_model.py`) is taken as given here: commits become visible in some order, and a
number is put once. Any agent may stop for ever after any of its steps. There is no lock. Instants are small numbers in order
of their requested times; `foreign` writers follow none of lakelock's rules for beginning, so theirs may appear late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.simulation.models.every_state import Broken, visit

Instants = frozenset[int]
NONE: Instants = frozenset()
NEVER = 99


@dataclass(frozen=True)
class Rules:
    """The rules of the file index. Each is needed: without it some interleaving breaks a promise."""

    names_instants: bool = True
    """A checkpoint names the instants that it covers, not the time by which they completed."""
    low_waits_for_pending: bool = True
    """The bound below which all is covered passes no pending instant."""
    low_waits_for_slow_clocks: bool = True
    """Nor one that is so young that a slow clock may still bring an older one."""
    within_the_timeline: bool = True
    """A reader takes no checkpoint that covers more than its timeline shows."""
    reads_the_archive: bool = True
    """What is new in the archive since the checkpoint is added, too."""
    put_if_absent: bool = True
    """The first to make a checkpoint of a number wins."""
    number_before_timeline: bool = True
    """Who makes a checkpoint looks which number is free before it lists the timeline."""
    reads_all_of_the_active: bool = True
    """Every commit of the timeline that the checkpoint does not cover is added, also one older than the newest covered."""
    skips_the_damaged: bool = True
    """A checkpoint that cannot be read is passed over."""
    archive_before_removal: bool = True
    """An archiver writes the archive before it removes the instants from the timeline."""
    archive_ascending: bool = True
    """It removes the oldest first, so that readers who go by names never miss one in between."""
    archive_below_pending: bool = True
    """It moves nothing that is younger than a pending instant."""


class Timeline(NamedTuple):
    """One listing."""

    active: Instants
    pending: Instants
    archived: Instants

    @property
    def first(self) -> int:
        return min(self.active | self.pending, default=NEVER)

    def shows(self, instant: int) -> bool:
        """Hudi's rule: what is older than the timeline was archived, and only completed instants are."""
        return instant in self.active or (instant < self.first and instant not in self.pending)

    def may_have_archived(self, instant: int) -> bool:
        """As the names of the archive's files tell, which are ranges."""
        return min(self.archived, default=NEVER) <= instant <= max(self.archived, default=-1)


class Checkpoint(NamedTuple):
    low: int
    named: Instants
    files: Instants
    """The commits whose files are in it."""
    archived: Instants
    """What the archive held when it was made."""
    completed_by: int

    def covers(self, instant: int, world: World, rules: Rules) -> bool:
        if not rules.names_instants:
            return world.completion[instant] <= self.completed_by
        return instant < self.low or instant in self.named

    def is_within(self, timeline: Timeline) -> bool:
        others = self.named - timeline.active
        return self.low <= timeline.first and all(timeline.shows(i) and timeline.may_have_archived(i) for i in others)


START = Checkpoint(0, NONE, NONE, NONE, 0)


class Agent(NamedTuple):
    """One process. `at` is its next step; the rest is what it remembers."""

    kind: str
    who: int
    at: str = "start"
    left: int = 1
    base: int = -1
    timeline: Timeline | None = None
    todo: Instants = NONE
    seen: Instants = NONE


class World(NamedTuple):
    active: Instants
    pending: Instants
    archived: Instants
    order: tuple[int, ...]
    completion: tuple[int, ...]
    checkpoints: tuple[Checkpoint, ...]
    damaged: int
    agents: tuple[Agent, ...]

    @property
    def listing(self) -> Timeline:
        return Timeline(self.active, self.pending, self.archived)


@dataclass(frozen=True)
class Model:
    """Who there is. `agents` are words such as `writer1`, `checkpointer2` (two rounds), `reader`, `archiver`, `damage`.

    `visible` and `begun`: instants that are so at the start. `grace`: how many instants a slow clock may be late. `keeps`: how
    many of the newest commits an archiver leaves; a clock that is slower than that hides archived commits from all readers.
    """

    agents: str
    instants: int
    visible: tuple[int, ...] = ()
    begun: Instants = NONE
    foreign: Instants = NONE
    grace: int = 0
    keeps: int = 1
    rules: Rules = Rules()

    def start(self) -> World:
        agents = []
        for word in self.agents.split():
            kind = word.rstrip("0123456789")
            number = int(word[len(kind) :] or 0)
            at = "publish" if kind == "writer" and number in self.begun else "start"
            agents.append(Agent(kind, number, at, max(number, 1)))
        completion = tuple(self.visible.index(i) + 1 if i in self.visible else NEVER for i in range(self.instants))
        seen = frozenset(self.visible)
        return World(seen, self.begun, NONE, self.visible, completion, (START,), -1, tuple(agents))

    def steps(self, world: World) -> Iterator[World]:
        """Every state that one request leads to."""
        for number, agent in enumerate(world.agents):
            if agent.at != "end":
                for after, changed in getattr(self, f"_{agent.kind}")(world, agent):
                    yield changed._replace(agents=(*world.agents[:number], after, *world.agents[number + 1 :]))

    def _writer(self, world: World, me: Agent) -> Iterator[tuple[Agent, World]]:
        foreign = me.who in self.foreign
        if me.at == "start":
            yield me._replace(at="look"), world._replace(pending=world.pending | {me.who})
        elif me.at == "look":
            late = any(i > me.who for i in world.active | world.archived) and not foreign
            if late:
                yield me._replace(at="end"), world._replace(pending=world.pending - {me.who})
            else:
                yield me._replace(at="publish"), world
        else:
            times = [time for time in world.completion if time < NEVER]
            # A foreign writer's clock is slow: it completes late with an early time.
            time = max(times, default=0) + (2 if not foreign else -1)
            completion = (*world.completion[: me.who], max(time, 0), *world.completion[me.who + 1 :])
            yield me._replace(at="end"), world._replace(
                active=world.active | {me.who}, pending=world.pending - {me.who}, completion=completion,
                order=(*world.order, me.who),
            )  # fmt: skip

    def _checkpointer(self, world: World, me: Agent) -> Iterator[tuple[Agent, World]]:
        first, second = ("number", "list") if self.rules.number_before_timeline else ("list", "number")
        step = {"start": first, "second": second}.get(me.at, me.at)
        following = "second" if me.at == "start" else "put"
        if step == "number":
            yield me._replace(at=following, base=len(world.checkpoints) - 1), world
        elif step == "list":
            yield me._replace(at=following, timeline=world.listing), world
        else:
            assert me.timeline is not None
            made, number = self._made(world, me.base, me.timeline), me.base + 1
            after = Agent(me.kind, me.who, "start" if me.left > 1 else "end", me.left - 1)
            if number == len(world.checkpoints):
                yield after, world._replace(checkpoints=(*world.checkpoints, made))
            elif not self.rules.put_if_absent:
                yield after, world._replace(checkpoints=(*world.checkpoints[:number], made, *world.checkpoints[number + 1 :]))
            else:
                yield after, world

    def _made(self, world: World, newest: int, timeline: Timeline) -> Checkpoint:
        base = self._base(world, timeline, newest)
        files = base.files | self._after(world, base, timeline)
        younger = timeline.active if not self.rules.low_waits_for_pending else timeline.active | timeline.pending
        low = min(younger, default=0) if timeline.active else 0
        if self.rules.low_waits_for_slow_clocks:
            low = min(low, max(0, max(timeline.active, default=0) - self.grace))
        named = frozenset(i for i in base.named | timeline.active | (files - base.files) if i >= low)
        times = (world.completion[i] for i in files)
        return Checkpoint(low, named, files, timeline.archived, max(times, default=0))

    def _base(self, world: World, timeline: Timeline, newest: int) -> Checkpoint:
        """The newest checkpoint that serves; nothing, from which all commits have to be added, always does."""
        for number in range(newest, -1, -1):
            if number == world.damaged:
                if not self.rules.skips_the_damaged:
                    raise Broken("a reader fails")
                continue
            found = world.checkpoints[number]
            if not self.rules.within_the_timeline or not self.rules.names_instants or found.is_within(timeline):
                return found
        return START

    def _after(self, world: World, base: Checkpoint, timeline: Timeline) -> Instants:
        """The commits that are added to a checkpoint."""
        found = timeline.active
        if self.rules.reads_the_archive:
            found |= frozenset(i for i in timeline.archived if timeline.shows(i))
        added = frozenset(i for i in found if not base.covers(i, world, self.rules))
        if not self.rules.reads_all_of_the_active:
            added = frozenset(i for i in added if i > max(base.files, default=-1))
        return added

    def _reader(self, world: World, me: Agent) -> Iterator[tuple[Agent, World]]:
        """It lists the timeline, then takes a checkpoint, and must see what was visible when it listed, as a baseline does."""
        if me.at == "start":
            yield me._replace(at="fold", timeline=world.listing, seen=frozenset(world.order)), world
            return
        assert me.timeline is not None
        base = self._base(world, me.timeline, len(world.checkpoints) - 1)
        got = base.files | self._after(world, base, me.timeline)
        if got != me.seen:
            raise Broken(f"a reader sees {sorted(got)} where {sorted(me.seen)} were visible")
        yield me._replace(at="end", timeline=None, seen=NONE), world

    def _archiver(self, world: World, me: Agent) -> Iterator[tuple[Agent, World]]:
        """Java's, which knows nothing of checkpoints."""
        rules = self.rules
        if me.at == "start":
            bound = min(world.pending, default=NEVER) if rules.archive_below_pending else NEVER
            movable = [i for i in sorted(world.active)[: -self.keeps] if i < bound]
            for count in range(1, len(movable) + 1):
                todo = frozenset(movable[:count])
                at = "remove" if rules.archive_before_removal else "remove early"
                archived = world.archived | todo if rules.archive_before_removal else world.archived
                yield me._replace(at=at, todo=todo, seen=todo), world._replace(archived=archived)
        elif me.at == "archive":
            yield me._replace(at="end", seen=NONE), world._replace(archived=world.archived | me.seen)
        else:
            gone = min(me.todo) if rules.archive_ascending else max(me.todo)
            rest, last = me.todo - {gone}, "end" if me.at == "remove" else "archive"
            yield (
                me._replace(todo=rest, at=me.at if rest else last, seen=me.seen if rest or last == "archive" else NONE),
                world._replace(active=world.active - {gone}),
            )

    def _damage(self, world: World, me: Agent) -> Iterator[tuple[Agent, World]]:
        if len(world.checkpoints) > 1:
            yield me._replace(at="end"), world._replace(damaged=len(world.checkpoints) - 1)


def violation(world: World) -> str | None:
    """What is broken in this state, whoever looks."""
    timeline = world.listing
    for instant in world.order:
        if instant not in world.active and instant not in world.archived:
            return f"{instant} is in neither timeline nor archive"
        if not timeline.shows(instant):
            return f"a reader by names no longer sees {instant}"
    for older, newer in zip(world.checkpoints, world.checkpoints[1:], strict=False):
        if not newer.files >= older.files:
            return "a newer checkpoint covers less"
    return None


def explore(model: Model, *, most_states: int) -> tuple[int, str | None]:
    """How many states there are, and the first violation that is met; an error if there are more than `most_states`."""
    return visit(model.start(), model.steps, violation, most_states=most_states)
