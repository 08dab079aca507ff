"""What must be true in every state, and what finishers and each agent alone must reach from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise, permutations
from typing import Any

from tests.simulation.models.multi_table.case import Case
from tests.simulation.models.multi_table.reader import Reader
from tests.simulation.models.multi_table.visitors import Reaper
from tests.simulation.models.multi_table.world import ABSENT, COMMITTED, COMPLETED, GONE, RUINED, VOIDED, World, as_agent
from tests.simulation.models.multi_table.writer import Writer

MOST_STEPS = 100
"""How many steps an agent that is alone may take."""


class Promises:
    """Holds the states of one search against the promises; what was judged before is not judged again."""

    def __init__(self, case: Case, steps: Callable[[World, int], Iterator[World]]) -> None:
        """`steps`: the states that one request of one agent leads to."""
        self._case, self._steps = case, steps
        self._stored: dict[Any, str | None] = {}
        self._settled: dict[Any, str | None] = {}
        self._alone: dict[Any, str | None] = {}
        self._orders: dict[Any, bool] = {}

    def violation(self, world: World) -> str | None:
        """The first promise that this state breaks."""
        return (
            self._once(self._stored, (world.tables, world.decided), world, self._storage)
            or self._answers(world)
            or self._order(world)
            or self._once(self._settled, (world.tables, world.outcomes), world, self._ended_by_finishers)
            or self._each_alone(world)
        )

    @staticmethod
    def _once(known: dict[Any, str | None], key: Any, world: World, judge: Callable[[World], str | None]) -> str | None:
        if key not in known:
            known[key] = judge(world)
        return known[key]

    def _storage(self, world: World) -> str | None:
        """All or nothing, files, and visibility in the order of the decisions: what the tables alone show."""
        for at, table in enumerate(world.tables):
            if RUINED in table.shown:
                return "visible without its files"
            for who, letter in enumerate(table.shown):
                committed = world.decided[who] == COMMITTED
                if letter == COMPLETED and not committed:
                    return "visible and not committed"
                if committed and at in self._case.transactions[who].writes and letter in (GONE, ABSENT):
                    return "committed, and removed from a table"
                if committed and letter == VOIDED and self._case.whole_beside_others:
                    return "committed, and rolled back by an engine that respects the lock"
            committed_here = [who for who in table.order if world.decided[who] == COMMITTED]
            if len(set(committed_here)) < len(committed_here):
                return "decided twice"
            shown = [table.shown[who] for who in committed_here if table.shown[who] != VOIDED]
            if any(shown[place] == COMPLETED != shown[place - 1] for place in range(1, len(shown))):
                return "visible out of order"
        return None

    def _answers(self, world: World) -> str | None:
        """Nobody is told the opposite of what happened; readers see no halves."""
        for agent in world.agents:
            if isinstance(agent, Writer) and agent.at == "end":
                where = self._case.transactions[agent.who].writes
                shown = "".join(world.tables[at].shown[agent.who] for at in where)
                committed = world.decided[agent.who] == COMMITTED
                if agent.told == "committed" and (not committed or VOIDED in shown):
                    return "told committed, and is not in every table"
                if agent.told == "rejected" and (COMPLETED in shown or (committed and set(shown) != {VOIDED})):
                    return "told rejected, and is committed"
                if agent.told == "torn" and (VOIDED not in shown or not committed):
                    return "told torn, and is whole"
            elif isinstance(agent, Reader) and agent.at == "end":
                for who, transaction in enumerate(self._case.transactions):
                    views = {who in agent.seen[at] for at in transaction.writes}
                    if True in views and world.decided[who] != COMMITTED:
                        return "a reader saw what is not committed"
                    if len(views) > 1 and not _is_voided(world, who):
                        return "a reader saw a half"
        return None

    def _order(self, world: World) -> str | None:
        """Serializable: who saw whom, and who is decided before whom, has no cycle. Readers of several tables included."""
        if COMMITTED not in world.decided:
            return None
        seen = {agent.who: agent.seen for agent in world.agents if isinstance(agent, Writer)}
        views = tuple(agent.seen for agent in world.agents if isinstance(agent, Reader) and agent.at == "end")
        key = (world.decided, tuple(table.order for table in world.tables), tuple(sorted(seen.items())), views)
        if key not in self._orders:
            self._orders[key] = _has_no_cycle(set(self._edges(world, seen, views)))
        return None if self._orders[key] else "not serializable"

    def _edges(self, world: World, seen: dict[int, Any], views: tuple[Any, ...]) -> Iterator[tuple[int, int]]:
        case = self._case
        committed = [who for who, outcome in enumerate(world.decided) if outcome == COMMITTED and not _is_voided(world, who)]
        for at, table in enumerate(world.tables):
            order = [who for who in table.order if who in committed]
            yield from pairwise(order)
            writers = [who for who in committed if at in case.transactions[who].writes]
            for who in committed if not case.disjoint else ():
                if who in seen and at in case.transactions[who].tables:
                    yield from ((o, who) if o in seen[who][at] else (who, o) for o in writers if o != who)
            for number, view in enumerate(views):
                reader = -1 - number
                yield from ((who, reader) if who in view[at] else (reader, who) for who in writers)

    def _ended_by_finishers(self, world: World) -> str | None:
        """Everybody is dead. Finishers come to the tables in any order, one at a time, and end it everywhere alike."""
        joint = [who for who, transaction in enumerate(self._case.transactions) if transaction.is_joint]
        for order in permutations(range(len(world.tables))):
            after = world._replace(losses=0, late=(), agents=(None,))
            for at in order:
                for who in joint:
                    if not after.tables[at].is_pending(who):
                        continue
                    after, ended = self._run(as_agent(after, 0, Reaper(who, at)), 0)
                    if not ended:
                        return "a finisher waits"
                    if after.agents[0].at == "full":
                        return None
            for who in joint:
                where = self._case.transactions[who].writes
                if len({after.tables[at].is_completed(who) for at in where}) > 1 and not _is_voided(after, who):
                    return "finishers end it differently"
            found = self._storage(after)
            if found:
                return found
        return None

    def _each_alone(self, world: World) -> str | None:
        """All others stop: a writer or a reader waits for nobody."""
        for agent in world.agents:
            if not isinstance(agent, (Writer, Reader)) or agent.at == "end":
                continue
            key = (world.tables, world.outcomes, agent)
            if key not in self._alone:
                after, ended = self._run(world._replace(losses=0, late=(), agents=(agent,)), 0)
                full = any(table.log[-1] is not None for table in after.tables)
                self._alone[key] = None if ended or full else "somebody who is alone waits"
            if self._alone[key]:
                return self._alone[key]
        return None

    def _run(self, world: World, me: int) -> tuple[World, bool]:
        """One agent goes on until it ends; False if it does not."""
        for _ in range(MOST_STEPS):
            if world.agents[me].at in ("end", "full"):
                return world, True
            after = next(self._steps(world, me), None)
            if after is None:
                return world, False
            world = after
        return world, False


def _is_voided(world: World, who: int) -> bool:
    """Whether another engine has rolled it back somewhere: then nothing but truthful answers is promised."""
    return any(table.shown[who] == VOIDED for table in world.tables)


def _has_no_cycle(edges: set[tuple[int, int]]) -> bool:
    while edges:
        free = {first for first, _ in edges} - {second for _, second in edges}
        if not free:
            return False
        edges = {(first, second) for first, second in edges if first not in free}
    return True
