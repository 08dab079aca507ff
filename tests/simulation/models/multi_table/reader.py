"""The reader of one moment of several tables: `snapshot(orders, stock)`. It writes nothing, unless it is strict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.simulation.models.multi_table.case import Case
from tests.simulation.models.multi_table.world import (
    ABORTED,
    COMMITTED,
    NO_OUTCOME,
    PREPARE,
    Entry,
    World,
    as_agent,
    put_outcome,
)


class Reader(NamedTuple):
    """`heads`: number and record of each log's head. `seen`: what each timeline showed. `asked`: prepares whose outcome
    it has asked for, and `inside` those of them that count."""

    at: str = "look"
    place: int = 0
    heads: tuple[tuple[int, Entry], ...] = ()
    seen: tuple[frozenset[int], ...] = ()
    asked: tuple[int, ...] = ()
    inside: frozenset[int] = frozenset()

    def open_heads(self) -> list[int]:
        """Transactions with a prepared head that the timeline did not show as completed."""
        found = {
            entry[1]
            for (_, entry), seen in zip(self.heads, self.seen, strict=True)
            if entry is not None and entry[0] == PREPARE and entry[1] not in seen
        }
        return sorted(found)

    def end(self) -> Reader:
        heads = (entry[1] if entry is not None and entry[0] == PREPARE else -1 for _, entry in self.heads)
        seen = (seen | (self.inside & {head}) for seen, head in zip(self.seen, heads, strict=True))
        return Reader("end", seen=tuple(seen))


def read(case: Case, world: World, me: int, mine: Reader) -> Iterator[World]:
    rules, place, last = case.rules, mine.place, mine.place + 1 == case.tables
    table = world.tables[place]
    match mine.at:
        case "look":
            heads = (*mine.heads, (table.head, table.newest))
            yield as_agent(world, me, Reader("timeline" if last else "look", 0 if last else place + 1, heads))
        case "timeline":
            after = "ask" if rules.reader_asks_before_second_look else "again"
            seen = (*mine.seen, table.completed)
            yield as_agent(world, me, Reader(after if last else "timeline", 0 if last else place + 1, mine.heads, seen))
        case "ask":
            yield from _ask(case, world, me, mine)
        case "asked":
            who = mine.asked[-1]
            where = next(at for at, (_, entry) in enumerate(mine.heads) if entry == (PREPARE, who))
            table = world.tables[where]
            counts = table.is_completed(who) or (who in mine.inside and table.is_pending(who))
            inside = mine.inside | {who} if counts else mine.inside - {who}
            yield as_agent(world, me, mine._replace(at="ask", inside=inside))
        case "again" if (table.head, table.newest) != mine.heads[place]:
            yield as_agent(world, me, Reader())
        case "again" if not last:
            yield as_agent(world, me, mine._replace(place=place + 1))
        case "again":
            asks_now = not rules.reader_asks_before_second_look
            yield as_agent(world, me, mine._replace(at="ask", place=0) if asks_now else mine.end())


def _ask(case: Case, world: World, me: int, mine: Reader) -> Iterator[World]:
    """The outcome of the next open head, if there is one."""
    rules = case.rules
    rest = [who for who in mine.open_heads() if who not in mine.asked]
    if not rest or not rules.reader_asks_outcomes:
        ends = not rules.reader_looks_twice or not rules.reader_asks_before_second_look
        yield as_agent(world, me, mine.end() if ends else mine._replace(at="again"))
        return
    who = rest[0]
    there = world.outcomes[who]
    if there == NO_OUTCOME and case.strict and rules.strict_reader_settles:
        world, there = put_outcome(world, who, ABORTED)
    asked, inside = (*mine.asked, who), mine.inside | {who} if there == COMMITTED else mine.inside
    trusts = there == COMMITTED and not rules.reader_timeline_after_outcome
    yield as_agent(world, me, mine._replace(at="ask" if trusts else "asked", asked=asked, inside=inside))
