"""The protocol as a model small enough to try everything: begin, decide, publish, roll back and collect, without any lock.

Two writers, one or two reapers that roll one of them back (a writer may be paused at any step, so anybody may be taken for
dead), and a collector. Each step is one storage request; the reply to a decision may get lost, and the request may then land at
any later time or never. `explore` visits every state. A `Rules` value with one of its fields False leaves that rule out.

The invariants are those of the simulator: no update is lost, no file of a commit is deleted, nobody is told the opposite of
what happened, commits become visible in the order of the decisions, decisions are dense, commit or rollback (never both) is
decided for an instant, the boundary covers no commit that is not visible, and nothing is left behind once all is quiet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

COMMIT, ROLLBACK = "C", "R"
Entry = tuple[str, int] | None
Log = tuple[Entry, ...]

COLLECTOR, REAPERS = 2, 3
"""Places among the agents, after the two writers; the reapers are the last."""


@dataclass(frozen=True)
class Rules:
    """Which rules of the commit protocol are kept."""

    finish_at_begin: bool = True
    first_before_requested: bool = True
    again_behind_boundary: bool = True
    boundary_after_listing: bool = True
    boundary_after_reading: bool = True
    boundary_after_put: bool = True
    reaper_boundary_first: bool = True
    reaper_boundary_after_put: bool = True
    tombstone: bool = True
    boundary_after_tombstone: bool = True
    publish_in_order: bool = True
    boundary_before_deletion: bool = True


class Agent(NamedTuple):
    """Where an agent is, and what it remembers. Forgotten at once when it is not needed any more.

    `who` is a writer's instant, or the one that the reaper rolls back: who begins again does so with another instant.
    """

    at: str
    who: int = 0
    first: int = 0
    seen: frozenset[int] = frozenset()
    log: Log = ()
    bound: int = 0
    told: str = ""


class World(NamedTuple):
    """Everything there is. `order` and `withdrawn` are what an observer knows, for the invariants only.

    They are the instants whose commit, or rollback, was decided at a number above the boundary: the others mean nothing.
    """

    log: Log = ()
    boundary: int = 0
    pending: frozenset[int] = frozenset()
    files: frozenset[int] = frozenset()
    published: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    withdrawn: frozenset[int] = frozenset()
    late: tuple[tuple[int, Entry], ...] = ()
    agents: tuple[Agent, ...] = ()


@dataclass(frozen=True)
class Model:
    """Two writers (rewriting the same file group if `conflicting`), reapers of anybody, a collector.

    A single reaper may die while it deletes, and be followed by another. Of two reapers none dies: the other is the one who
    follows. Where decisions are not `lossy` no reply to one gets lost. With `begun` both writers have written their files.
    """

    conflicting: bool = True
    rules: Rules = Rules()
    reapers: int = 1
    lossy: bool = True
    begun: bool = False

    def start(self) -> World:
        others = (Agent("k-list"), *[Agent("r-boundary")] * self.reapers)
        if not self.begun:
            return World(agents=(Agent("look", 0), Agent("look", 1), *others))
        both = frozenset({0, 1})
        return World(pending=both, files=both, agents=(Agent("ahead", 0), Agent("ahead", 1), *others))

    def steps(self, world: World) -> Iterator[World]:
        """Every state that one request leads to."""
        for writer in (0, 1):
            yield from self._writer(world, writer)
        for reaper in range(REAPERS, REAPERS + self.reapers):
            yield from self._reaper(world, reaper)
        yield from self._collector(world)
        for one in world.late:
            rest = tuple(each for each in world.late if each is not one)
            yield _put(world._replace(late=rest), *one)[0]

    def _writer(self, world: World, me: int) -> Iterator[World]:  # noqa: C901  one case for each request
        rules, mine = self.rules, world.agents[me]
        who = mine.who
        match mine.at:
            case "look" if rules.first_before_requested or who in world.pending:
                after = "look-read" if rules.boundary_after_reading else "look-boundary"
                yield _as(world, me, mine._replace(at=after, log=world.log, first=_head(world.log, 0)))
            case "look":
                yield _as(world._replace(pending=world.pending | {who}), me, mine)
            case "look-read":
                yield _as(world, me, mine._replace(at="look-boundary", log=_read(mine.log, world.log)))
                yield from self._request(world, me, mine)
            case "look-boundary":
                log = mine.log if rules.boundary_after_reading else _read(mine.log, world.log)
                if rules.again_behind_boundary and world.boundary > mine.first:
                    yield self._begin_again(world._replace(pending=world.pending - {who}), me, who)
                else:
                    after = "timeline" if who in world.pending else "request"
                    counts = tuple(entry if number > world.boundary else None for number, entry in enumerate(log, 1))
                    yield _as(world, me, mine._replace(at=after, log=counts, first=max(mine.first, world.boundary)))
                yield from self._request(world, me, mine)
            case "request":
                yield _as(world._replace(pending=world.pending | {who}), me, mine._replace(at="timeline"))
            case "timeline":
                yield self._baseline(world, me, mine)
            case "finish":
                yield self._finish_and_begin_again(world, me, mine)
            case "ahead":
                # Before the lock is asked for. The look at the timeline may show that this is old: then it is taken anew.
                yield _as(world, me, mine._replace(at="ahead-read", log=world.log))
            case "ahead-read":
                yield _as(world, me, mine._replace(at="commit-ahead", log=_read(mine.log, world.log)))
            case "commit-ahead":
                yield self._timeline_at_commit(world, me, mine)
                yield self._timeline_at_commit(world, me, mine, after="boundary")
                # The two are asked for at once, so that the boundary may be the older one.
                yield _as(world, me, mine._replace(at="commit-bounded", bound=world.boundary))
            case "commit-bounded":
                yield self._timeline_at_commit(world, me, mine)
                yield self._timeline_at_commit(world, me, mine, after="judge")
            case "commit":
                yield self._timeline_at_commit(world, me, mine)
            case "list":
                if rules.boundary_after_listing:
                    after = "read" if rules.boundary_after_reading else "boundary"
                    yield _as(world, me, mine._replace(at=after, log=world.log))
                else:
                    yield _as(world, me, mine._replace(at="boundary", bound=world.boundary))
            case "read":
                yield _as(world, me, mine._replace(at="boundary", log=_read(mine.log, world.log)))
            case "boundary":
                if rules.boundary_after_listing:
                    yield _as(world, me, mine._replace(at="judge", bound=world.boundary))
                else:
                    yield _as(world, me, mine._replace(at="judge", log=world.log))
            case "judge":
                yield from self._judge(world, me, mine)
            case "tombstone":
                done, made = _put(world, mine.bound, (ROLLBACK, who))
                if made:
                    yield _as(done, me, mine._replace(at="tombstone-check"))
                else:
                    yield _as(world, me, mine._replace(at="whose"))
            case "tombstone-check":
                if self.rules.boundary_after_tombstone and world.boundary >= mine.bound:
                    yield _as(world, me, mine._replace(at="commit", bound=0))
                else:
                    yield _as(world, me, Agent("abort", who, seen=mine.seen, told="rejected"))
            case "whose":
                ours = mine.bound <= len(world.log) and world.log[mine.bound - 1] == (COMMIT, who)
                yield _as(world, me, mine._replace(at="check" if ours else "commit", bound=mine.bound if ours else 0))
            case "check":
                reused = rules.boundary_after_put and world.boundary >= mine.bound
                yield _as(world, me, mine._replace(at="commit" if reused else "publish", log=(), bound=0))
            case "publish":
                # One step for the look and the put: a stale look is judged by whoever finishes (reaper, next writer).
                if who in world.published:
                    yield _as(world, me, Agent("end", who, seen=mine.seen, told="committed"))
                elif who in world.pending:
                    yield _as(_publish(world, who), me, Agent("end", who, seen=mine.seen, told="committed"))
                else:
                    yield _as(world, me, Agent("end", who, seen=mine.seen, told="rejected"))
            case "abort":
                # Nobody can commit this instant any more, so the order in which its traces go is its own affair.
                gone = world._replace(files=world.files - {who}, pending=world.pending - {who})
                yield _as(gone, me, mine._replace(at="end", seen=frozenset()))

    def _request(self, world: World, me: int, mine: Agent) -> Iterator[World]:
        """The requested file is put beside the look, so it may come at any time once the head is noted."""
        if mine.who not in world.pending:
            yield _as(world._replace(pending=world.pending | {mine.who}), me, mine)

    def _baseline(self, world: World, me: int, mine: Agent) -> World:
        who = mine.who
        head = mine.log[mine.first - 1] if mine.log and 0 < mine.first <= len(mine.log) else None
        seen = frozenset(world.published)
        if self.rules.finish_at_begin and head is not None and head[0] == COMMIT and head[1] not in seen:
            return _as(world._replace(pending=world.pending - {who}), me, mine._replace(at="finish"))
        written = world._replace(files=world.files | {who})
        return _as(written, me, Agent("ahead", who, first=mine.first, seen=seen))

    def _finish_and_begin_again(self, world: World, me: int, mine: Agent) -> World:
        head = mine.log[mine.first - 1]
        assert head is not None
        if head[1] in world.pending and head[1] not in world.published:
            world = _publish(world, head[1])
        return self._begin_again(world, me, mine.who)

    def _begin_again(self, world: World, me: int, who: int) -> World:
        return _as(world, me, Agent("look", who + 2) if who < 2 else Agent("end", who))

    def _timeline_at_commit(self, world: World, me: int, mine: Agent, *, after: str = "list") -> World:
        who = mine.who
        if who in world.published:
            return _as(world, me, Agent("end", who, seen=mine.seen, told="committed"))
        if who not in world.pending:
            return _as(world, me, Agent("abort", who, seen=mine.seen, told="rejected"))
        if after == "list":
            mine = mine._replace(log=(), bound=0)
        return _as(world, me, mine._replace(at=after))

    def _judge(self, world: World, me: int, mine: Agent) -> Iterator[World]:
        who = mine.who
        if mine.bound > mine.first:
            told = "committed" if who in world.published else "rejected"
            yield _as(world, me, Agent("end" if told == "committed" else "abort", who, seen=mine.seen, told=told))
            return
        window = {number: entry for number, entry in entries_of(mine.log) if number > max(mine.bound, mine.first)}
        if sorted(window) != list(range(mine.first + 1, mine.first + 1 + len(window))):
            yield _as(world, me, Agent("hole", who))  # the engine reports a corrupt table and stops
            return
        head = _head(mine.log, max(mine.bound, mine.first))
        if (COMMIT, who) in window.values():
            yield _as(world, me, mine._replace(at="publish", log=(), bound=0))
        elif (ROLLBACK, who) in window.values():
            yield _as(world, me, Agent("abort", who, seen=mine.seen, told="rejected"))
        elif self._must_finish(world, window.get(head)):
            entry = window[head]
            assert entry is not None
            yield _as(_publish(world, entry[1]), me, mine._replace(at="commit", log=(), bound=0))
        elif self.conflicting and any(e[0] == COMMIT and e[1] not in mine.seen for e in window.values() if e):
            yield _as(world, me, Agent("abort", who, seen=mine.seen, told="rejected"))
        else:
            yield from self._decide(world, me, mine, head + 1)

    def _decide(self, world: World, me: int, mine: Agent, number: int) -> Iterator[World]:
        who = mine.who
        done, made = _put(world, number, (COMMIT, who))
        after = mine._replace(at="check", log=(), bound=number)
        yield _as(done, me, after) if made else _as(world, me, mine._replace(at="commit", log=(), bound=0))
        if not self.rules.tombstone:
            lost = Agent("abort", who, seen=mine.seen, told="rejected")
        else:
            lost = after._replace(at="tombstone")
        if self.lossy and not world.late:  # the reply got lost: the request has been carried out, or is still under way
            yield _as(done, me, lost) if made else _as(world, me, lost)
            yield _as(world._replace(late=(*world.late, (number, (COMMIT, who)))), me, lost)

    def _must_finish(self, world: World, entry: Entry) -> bool:
        if not self.rules.publish_in_order or entry is None or entry[0] != COMMIT:
            return False
        return entry[1] not in world.published and entry[1] in world.pending

    def _reaper(self, world: World, me: int) -> Iterator[World]:  # noqa: C901  one case for each request
        mine = world.agents[me]
        target = mine.who
        match mine.at:
            case "r-boundary":
                for target in mine.seen or world.pending:
                    yield _as(world, me, Agent("r-timeline", target, first=world.boundary))
            case "r-timeline":
                if target in world.published or target not in world.pending:
                    yield _as(world, me, Agent("end"))
                else:
                    yield _as(world, me, mine._replace(at="r-list"))
            case "r-list":
                after = "r-read" if self.rules.boundary_after_reading else "r-boundary-2"
                yield _as(world, me, mine._replace(at=after, log=world.log))
            case "r-read":
                yield _as(world, me, mine._replace(at="r-boundary-2", log=_read(mine.log, world.log)))
            case "r-boundary-2":
                if self.rules.reaper_boundary_first and world.boundary != mine.first:
                    yield _as(world, me, Agent("r-boundary", target, seen=frozenset({target})))
                else:
                    yield _as(world, me, mine._replace(at="r-judge", bound=world.boundary))
            case "r-judge":
                log = mine.log if self.rules.boundary_after_reading else _read(mine.log, world.log)
                yield from self._reaper_judges(world, me, mine._replace(log=log))
            case "r-check":
                reused = self.rules.reaper_boundary_after_put and world.boundary >= mine.bound
                yield _as(
                    world, me, Agent("r-boundary", target, seen=frozenset({target})) if reused else Agent("r-delete", target)
                )
            case "r-delete":
                yield _as(world._replace(files=world.files - {target}), me, Agent("r-delete-2", target))
                if self.reapers == 1:
                    # It dies, and somebody else finds the same target: the decision may have been collected since.
                    yield _as(world, me, Agent("r-boundary", target, seen=frozenset({target})))
            case "r-delete-2":
                yield _as(world._replace(pending=world.pending - {target}), me, Agent("end"))

    def _reaper_judges(self, world: World, me: int, mine: Agent) -> Iterator[World]:
        target = mine.who
        entries = {number: entry for number, entry in entries_of(mine.log) if number > mine.bound}
        head = _head(mine.log, mine.bound)
        if (COMMIT, target) in entries.values():
            if target in world.pending and target not in world.published:
                world = _publish(world, target)
            yield _as(world, me, Agent("end"))
        elif (ROLLBACK, target) in entries.values():
            yield _as(world, me, Agent("r-delete", target))
        elif self._must_finish(world, entries.get(head)):
            entry = entries[head]
            assert entry is not None
            yield _as(_publish(world, entry[1]), me, Agent("r-boundary", target, seen=frozenset({target})))
        else:
            done, made = _put(world, head + 1, (ROLLBACK, target))
            yield (
                _as(done, me, Agent("r-check", target, bound=head + 1))
                if made
                else _as(world, me, Agent("r-boundary", target, seen=frozenset({target})))
            )

    def _collector(self, world: World) -> Iterator[World]:
        me, mine = COLLECTOR, world.agents[COLLECTOR]
        match mine.at:
            case "k-list":
                yield _as(world, me, mine._replace(at="k-boundary", log=world.log))
            case "k-boundary":
                # All but the head, whether what was rolled back is gone or not. All writers may have been taken for dead.
                upto = _head(mine.log, world.boundary) - 1
                if upto > world.boundary:
                    after = "k-raise" if self.rules.boundary_before_deletion else "k-delete"
                    yield _as(world, me, Agent(after, first=world.boundary, bound=upto))
            case "k-raise":
                covered = {
                    entry[1]
                    for number, entry in entries_of(world.log)
                    if world.boundary < number <= mine.bound and entry[0] == COMMIT
                }
                if not covered <= set(world.published):
                    yield _as(world, me, Agent("covers"))
                raised = world._replace(boundary=max(world.boundary, mine.bound))
                yield _as(raised, me, Agent("k-delete" if self.rules.boundary_before_deletion else "end", bound=mine.bound))
            case "k-delete":
                kept = tuple(None if number <= mine.bound else entry for number, entry in enumerate(world.log, 1))
                again = Agent("end") if self.rules.boundary_before_deletion else Agent("k-raise", bound=mine.bound)
                yield _as(world._replace(log=kept), me, again)


def _as(world: World, agent: int, state: Agent) -> World:
    agents = (*world.agents[:agent], state, *world.agents[agent + 1 :])
    if len(agents) > REAPERS + 1:  # which reaper is which means nothing
        agents = (*agents[:REAPERS], *sorted(agents[REAPERS:], key=hash))
    return world._replace(agents=agents)


def _put(world: World, number: int, entry: Entry) -> tuple[World, bool]:
    """Create a decision put-if-absent; one at or below the boundary is created all the same, and means nothing."""
    log = (*world.log, *[None] * (number - len(world.log)))
    if log[number - 1] is not None:
        return world, False
    log = (*log[: number - 1], entry, *log[number:])
    if entry is None or number <= world.boundary:
        return world._replace(log=log), True
    if entry[0] == COMMIT:
        return world._replace(log=log, order=(*world.order, entry[1])), True
    return world._replace(log=log, withdrawn=world.withdrawn | {entry[1]}), True


def _publish(world: World, writer: int) -> World:
    return world._replace(published=(*world.published, writer))


def entries_of(log: Log) -> list[tuple[int, tuple[str, int]]]:
    return [(number, entry) for number, entry in enumerate(log, 1) if entry is not None]


def _read(listed: Log, log: Log) -> Log:
    """The records whose numbers were listed, as they are now: one may have been deleted, and its number used again."""
    return tuple(log[number - 1] if entry is not None else None for number, entry in enumerate(listed, 1))


def _head(log: Log, floor: int) -> int:
    return max([floor, *(number for number, _ in entries_of(log))])
