"""Transactions over several tables as a model small enough to try everything: docs/adr/0021, without any lock.

One request is one step, anybody may stand still for ever before any step, and the replies to prepares and outcomes may get
lost; such a request lands at any later time or never. What the model of one table shows is taken as given, and is one step
here: a look at one log (listing, records, boundary), and the end of a plain commit at its head.

The parts are in the folder `multi_table`: what there is, who does what, and the promises.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.simulation.models.every_state import visit
from tests.simulation.models.multi_table.case import Case
from tests.simulation.models.multi_table.promises import Promises
from tests.simulation.models.multi_table.reader import Reader, read
from tests.simulation.models.multi_table.visitors import (
    Collector,
    Foreign,
    Outcomes,
    Reaper,
    collect,
    collect_outcome,
    reap,
    roll_back_unasked,
)
from tests.simulation.models.multi_table.world import (
    ABSENT,
    NO_OUTCOME,
    PENDING,
    PREPARE,
    Table,
    World,
    put_decision,
    put_outcome,
)
from tests.simulation.models.multi_table.writer import Writer
from tests.simulation.models.multi_table.writer import steps as write

STEPS = {Writer: write, Reaper: reap, Collector: collect, Outcomes: collect_outcome, Foreign: roll_back_unasked, Reader: read}


def explore(case: Case, *, most_states: int) -> tuple[int, str | None]:
    """How many states there are, and the first violation that is met; an error if there are more than `most_states`."""
    promises = Promises(case, partial(_steps_of, case))
    return visit(start(case), partial(steps, case), promises.violation, most_states=most_states)


def steps(case: Case, world: World) -> Iterator[World]:
    """Every state that one request leads to."""
    for place, request in enumerate(world.late):
        yield from _arrives(world._replace(late=world.late[:place] + world.late[place + 1 :]), request)
    for me in range(len(world.agents)):
        yield from _steps_of(case, world, me)


def start(case: Case) -> World:
    """Nothing is there, but for what the transactions that are `begun` or `prepared` have left."""
    blank = Table((None,) * case.numbers, 0, ABSENT * len(case.transactions))
    nothing = NO_OUTCOME * len(case.transactions)
    world = World((blank,) * case.tables, nothing, nothing, case.losses if case.lost else 0, (), ())
    for who in (*case.begun, *case.prepared):
        for at in case.transactions[who].writes:
            if case.rules.begin_everywhere_first or who in case.prepared or not case.transactions[who].is_joint:
                table = world.tables[at]
                shown = table.shown[:who] + PENDING + table.shown[who + 1 :]
                world = world._replace(tables=(*world.tables[:at], table._replace(shown=shown), *world.tables[at + 1 :]))
            if who in case.prepared:
                done = put_decision(world, at, 1, (PREPARE, who))
                assert done is not None
                world = done[0]
    return world._replace(agents=tuple(_agent(case, name) for name in case.agents.split()))


def _agent(case: Case, name: str) -> object:
    """An agent by its name: its role, then the number of its transaction, the letter of its table, or both."""
    role = name.rstrip("0123456789ABC!")
    rest = name[len(role) :].rstrip("!")
    who = int(rest[0]) if rest[:1].isdigit() else 0
    at = "ABC".index(rest[-1]) if rest and not rest[-1].isdigit() else 0
    match role:
        case "writer":
            blank = (0,) * case.tables
            seen = (frozenset[int](),) * case.tables
            if who in case.prepared:
                return Writer(who, "outcome", 0, blank, seen, "tried")
            joint_begins = case.transactions[who].is_joint and not case.rules.begin_everywhere_first
            return Writer(who, "list" if who in case.begun and not joint_begins else "look", 0, blank, seen)
        case "reaper":
            return Reaper(who, at)
        case "decisions":
            return Collector(at)
        case "outcomes":
            return Outcomes(who)
        case "foreign":
            return Foreign(who, at, polite=name.endswith("!"))
        case _:
            return Reader()


def _steps_of(case: Case, world: World, me: int) -> Iterator[World]:
    agent = world.agents[me]
    return STEPS[type(agent)](case, world, me, agent)


def _arrives(world: World, request: tuple[object, ...]) -> Iterator[World]:
    """A request that was under way for long."""
    match request:
        case (kind, int(at), int(number), int(who)):
            done = put_decision(world, at, number, (str(kind), who))
            if done is not None:
                yield done[0]
        case (outcome, int(who)):
            yield put_outcome(world, who, str(outcome))[0]
