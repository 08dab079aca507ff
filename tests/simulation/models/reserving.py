"""A model of reservations: every interleaving of a few calls that lose against each other, and of the death of any of them.

One request is one step. Nobody's patience ends: a wait lasts until what it waits for has ended, so that no bound hides a
deadlock. What other models show is taken as given: the commits of others are seen, and claims are put if absent. Searched for:
calls that wait for each other or for the dead, and an attempt that loses although it has a reservation of all that it touches.
Each of the rules can be left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tests.simulation.models.every_state import visit

MOST_ATTEMPTS = 3


@dataclass(frozen=True)
class Rules:
    """Which rules are kept."""

    older_only: bool = True
    """Whoever has a reservation waits only for older ones."""
    claims_before_go_on: bool = True
    """Whoever had claims when a reservation was made does not wait for it."""
    overrule_later_claims: bool = True
    """The holder ignores claims that were made after its reservation."""
    give_back: bool = True
    """A holder that needs more than it reserved queues anew."""
    list_after_queue: bool = True
    """The claims are listed after the queue was read, and again if somebody else has joined it."""
    look_at_commit: bool = True
    """A commit looks at the queue under the lock."""
    take_lock: bool = True
    """The holder takes the lock once after it has joined the queue."""
    wait_for_turn: bool = True
    """The holder waits for older reservations and for claims that were there before it."""
    claims_tell_places: bool = True
    """A claim tells in which other partitions its attempt is about to make claims, and the holder waits for these, too."""
    claims_tell_additions: bool = True
    """So it tells where its attempt adds rows."""
    end_with_heartbeat: bool = True
    """The reservation of a dead holder ends."""


class Work(NamedTuple):
    """What one attempt touches: partitions that it claims, call by call, and those that it only adds rows to.

    The claims of one call are put one after the other. It loses against whoever has committed to one that it claims, so a
    stream, which claims nothing, never loses.
    """

    claims: tuple[str, ...] = ()
    adds: str = ""

    @property
    def partitions(self) -> frozenset[str]:
        return frozenset("".join((*self.claims, self.adds)))


class Reserved(NamedTuple):
    """A reservation: `owner` and a number of its own, the partitions, and the attempts that had claims when it was made."""

    owner: int
    number: int
    places: frozenset[str]
    before: frozenset[tuple[int, int]]

    @property
    def waited_for(self) -> tuple[int, int]:
        return (self.owner, -1 - self.number)


class Call(NamedTuple):
    """Where one call is. `base` counts the commits that the attempt has seen, `seen` is the queue as of its beginning."""

    at: str = "begin"
    attempt: int = 0
    lost: bool = False
    places: frozenset[str] = frozenset()
    base: int = 0
    seen: tuple[Reserved, ...] = ()
    claimed: int = 0
    put: frozenset[str] = frozenset()
    made: int = 0
    listed: frozenset[tuple[int, int]] = frozenset()
    read: tuple[Reserved, ...] = ()
    waits_for: frozenset[tuple[int, int]] = frozenset()
    dead: bool = False


class Claimed(NamedTuple):
    """A claim on one partition. `told`: all those that its owner is known to write to."""

    part: str
    by: int
    attempt: int
    told: frozenset[str]

    @property
    def owner(self) -> tuple[int, int]:
        return (self.by, self.attempt)


class World(NamedTuple):
    """The queue, the claims, the commits, who has the lock, the calls, what broke."""

    calls: tuple[Call, ...]
    queue: tuple[Reserved, ...] = ()
    claims: frozenset[Claimed] = frozenset()
    commits: tuple[frozenset[str], ...] = ()
    lock: int = -1
    broken: str = ""


Plan = tuple[tuple[Work, ...], ...]
"""For each call what its attempts touch; the last counts for all further ones."""


def explore(plan: Plan, rules: Rules = Rules(), *, deaths: int = 0, most_states: int = 3_000_000) -> tuple[int, str | None]:
    """How many states there are, and the first violation that is met."""
    first = World(tuple(Call() for _ in plan))
    model = partial(steps, plan=plan, rules=rules, deaths=deaths)
    return visit(first, model, partial(_violation, model=model), most_states=most_states)


def steps(world: World, plan: Plan, rules: Rules, deaths: int) -> Iterator[World]:
    """Every state that one step leads to."""
    for me, call in enumerate(world.calls):
        if call.dead or call.at == "end":
            continue
        yield from _step(world, me, call, plan, rules)
        if _deaths(world) < deaths:
            lock = -1 if world.lock == me else world.lock  # its lease runs out
            yield _as(world._replace(lock=lock), me, call._replace(dead=True))


def _step(world: World, me: int, call: Call, plan: Plan, rules: Rules) -> Iterator[World]:  # noqa: C901  one case for each step
    work = plan[me][min(call.attempt, len(plan[me]) - 1)]
    held = next((each for each in world.queue if each.owner == me), None)
    match call.at:
        case "begin":
            yield _as(world, me, call._replace(at="claim", base=len(world.commits), seen=world.queue, claimed=0))
        case "claim" if call.claimed == len(work.claims):
            yield _as(world, me, call._replace(at="lock"))
        case "claim":
            yield from _claim(world, me, call, work, held, rules)
        case "lock" if world.lock < 0:
            yield _as(world._replace(lock=me), me, call._replace(at="look"))
        case "look":
            way = _in_the_way(world, world.queue, me, call, work.partitions, rules) if rules.look_at_commit else None
            changed = frozenset().union(*world.commits[call.base :])
            if changed & frozenset("".join(work.claims)):
                yield _lost(world._replace(lock=-1), me, call, work.partitions, held, rules, frozenset())
            elif way is not None:
                waits_for = frozenset({way.waited_for})
                yield _as(world._replace(lock=-1), me, call._replace(at="wait at commit", waits_for=waits_for))
            else:
                yield _as(world, me, call._replace(at="decide"))
        case "wait at commit" if _all_over(world, call, rules):
            yield _as(world, me, call._replace(at="lock", waits_for=frozenset()))
        case "decide" if world.lock == me:
            after = world._replace(lock=-1, commits=(*world.commits, work.partitions))
            yield _as(_without_claims(after, me), me, call._replace(at="release"))
        case "release":
            queue = tuple(each for each in world.queue if each.owner != me)
            yield _as(world._replace(queue=queue), me, call._replace(at="end"))
        case "wait for other" if _all_over(world, call, rules):
            yield _as(world, me, call._replace(at="again", waits_for=frozenset()))
        case "again" if held is not None or not call.lost:
            yield _as(world, me, call._replace(at="begin"))
        case "again" if rules.list_after_queue:
            yield _as(world, me, call._replace(at="list", read=world.queue))
        case "again":
            yield _as(world, me, call._replace(at="read", listed=_at_work(world)))
        case "list":
            yield _as(world, me, call._replace(at="join", listed=_at_work(world)))
        case "read":
            yield _as(world, me, call._replace(at="join", read=world.queue))
        case "join":
            yield from _join(world, me, call, rules)
        case "take lock" if world.lock < 0 or not rules.take_lock:
            yield _as(world, me, call._replace(at="turn"))
        case "turn" if not rules.wait_for_turn or _all_over(world, call, rules):
            yield _as(world, me, call._replace(at="begin", waits_for=frozenset()))


def _claim(world: World, me: int, call: Call, work: Work, held: Reserved | None, rules: Rules) -> Iterator[World]:
    wanted = frozenset(work.claims[call.claimed])
    if not call.put and _in_the_way(world, call.seen, me, call, wanted, rules) is not None:
        return  # it waits
    touched = frozenset("".join((*work.claims[: call.claimed + 1], work.adds if rules.claims_tell_additions else "")))
    for part in sorted(wanted - call.put):
        there = {each for each in world.claims if each.part == part and each.by != me}
        others = {each for each in there if not world.calls[each.by].dead}
        if held is not None and rules.overrule_later_claims and part in held.places:
            others = {each for each in others if each.owner in held.before}
        if others:
            yield _lost(world, me, call, touched, held, rules, frozenset({min(each.owner for each in others)}))
            continue
        taken = any(not world.calls[each.by].dead for each in there)
        claims = world.claims if taken else (world.claims - there) | {Claimed(part, me, call.attempt, touched)}
        put = call.put | {part}
        after = call._replace(claimed=call.claimed + 1, put=frozenset()) if put == wanted else call._replace(put=put)
        yield _as(world._replace(claims=claims), me, after)


def _join(world: World, me: int, call: Call, rules: Rules) -> Iterator[World]:
    if world.queue != call.read:
        again = "again" if rules.list_after_queue else "read"
        yield _as(world, me, call._replace(at=again, read=(), listed=frozenset()))
        return
    mine = Reserved(me, call.made, call.places, call.listed)
    older = {each.waited_for for each in world.queue if each.places & mine.places}
    claims = {
        each.owner
        for each in world.claims
        if each.owner in mine.before and mine.places & (each.told if rules.claims_tell_places else {each.part})
    }
    after = call._replace(at="take lock", made=call.made + 1, waits_for=frozenset(older | claims), read=(), listed=frozenset())
    yield _as(world._replace(queue=(*world.queue, mine)), me, after)


def _lost(
    world: World, me: int, call: Call, touched: frozenset[str], held: Reserved | None, rules: Rules,
    to: frozenset[tuple[int, int]],
) -> World:  # fmt: skip
    """The attempt is rejected; it waits for the holder of a claim, if it lost to one."""
    if held is not None and touched <= held.places:
        return world._replace(broken="an attempt with a reservation of all that it touched was lost")
    world = _without_claims(world, me)
    if held is not None and rules.give_back:
        world = world._replace(queue=tuple(each for each in world.queue if each.owner != me))
    if call.attempt + 1 == MOST_ATTEMPTS:
        return _as(world, me, call._replace(at="release"))
    lost = call._replace(at="wait for other", attempt=call.attempt + 1, lost=True, places=touched, waits_for=to)
    after = lost._replace(claimed=0, put=frozenset(), seen=(), base=0)
    return _as(world, me, after)


def _in_the_way(
    world: World, queue: tuple[Reserved, ...], me: int, call: Call, places: frozenset[str], rules: Rules
) -> Reserved | None:
    for each in queue:
        if each.owner == me:
            if rules.older_only:
                return None
            continue
        if rules.claims_before_go_on and (me, call.attempt) in each.before:
            continue
        ended = each not in world.queue or (rules.end_with_heartbeat and world.calls[each.owner].dead)
        if each.places & places and not ended:
            return each
    return None


def _all_over(world: World, call: Call, rules: Rules) -> bool:
    """Whether everything that the call waits for has ended: attempts, and reservations, which have negative numbers."""
    for other, attempt in call.waits_for:
        dead = world.calls[other].dead
        if attempt >= 0:
            if not dead and world.calls[other].attempt == attempt and world.calls[other].at not in ("release", "end"):
                return False
        elif any(each.waited_for == (other, attempt) for each in world.queue) and not (dead and rules.end_with_heartbeat):
            return False
    return True


def _at_work(world: World) -> frozenset[tuple[int, int]]:
    return frozenset(each.owner for each in world.claims)


def _without_claims(world: World, me: int) -> World:
    return world._replace(claims=frozenset(each for each in world.claims if each.by != me))


def _violation(world: World, model: partial[Iterator[World]]) -> str | None:
    if world.broken:
        return world.broken
    stuck = [me for me, call in enumerate(world.calls) if not call.dead and call.at != "end"]
    if stuck and all(_deaths(after) > _deaths(world) for after in model(world)):
        return f"calls {stuck} wait for ever"
    return None


def _deaths(world: World) -> int:
    return sum(call.dead for call in world.calls)


def _as(world: World, me: int, call: Call) -> World:
    return world._replace(calls=(*world.calls[:me], call, *world.calls[me + 1 :]))
