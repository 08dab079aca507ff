"""Everybody but the owner: reapers and collectors, each for one table; the collector of outcomes; another engine's rollback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.simulation.models.multi_table.case import Case
from tests.simulation.models.multi_table.world import (
    ABORTED,
    COMMIT,
    COMMITTED,
    COMPLETED,
    EMPTIED,
    GONE,
    NO_OUTCOME,
    PENDING,
    PREPARE,
    ROLLBACK,
    RUINED,
    VOIDED,
    Table,
    World,
    as_agent,
    publish,
    put_decision,
    set_outcome,
    show,
    with_table,
)
from tests.simulation.models.multi_table.writer import settle_outcome, under_way


class Reaper(NamedTuple):
    """Rolls `who` back in table `table`. `asked`: whose outcome it has asked for, and `known` what that said."""

    who: int
    table: int
    at: str = "timeline"
    boundary: int = 0
    number: int = 0
    asked: int = -1
    known: str = ""


class Collector(NamedTuple):
    """Deletes the decisions of a table below its head."""

    table: int
    at: str = "list"
    upto: int = 0


class Outcomes(NamedTuple):
    """Deletes the outcome of `who` once its instant is pending nowhere; `place` counts its tables."""

    who: int
    at: str = "find"
    place: int = 0


class Foreign(NamedTuple):
    """Another engine, which rolls `who` back in table `table` as if it were dead, and knows nothing of decisions.

    `polite`: it does so before the owner comes to commit, or after its end: in between the owner holds the table's lock.
    """

    who: int
    table: int
    polite: bool = False
    at: str = "roll back"


def reap(case: Case, world: World, me: int, mine: Reaper) -> Iterator[World]:  # noqa: C901  one case for each request
    rules, who, at = case.rules, mine.who, mine.table
    table = world.tables[at]
    again, end, delete = Reaper(who, at), Reaper(who, at, "end"), Reaper(who, at, "empty")
    match mine.at:
        case "timeline" if table.is_pending(who):
            yield as_agent(world, me, Reaper(who, at, "list", table.boundary))
        case "timeline" if table.is_completed(who) or table.shown[who] in (GONE, VOIDED):
            yield as_agent(world, me, end)
        case "list":
            yield _reaper_judges(case, world, me, mine)
        case "put":
            done = put_decision(world, at, mine.number, (ROLLBACK, who))
            if done is None:
                yield as_agent(world, me, Reaper(who, at, "full"))
            else:
                yield as_agent(done[0], me, Reaper(who, at, "boundary", number=mine.number) if done[1] else again)
        case "boundary":
            yield as_agent(world, me, again if table.boundary >= mine.number else delete)
        case "ask":
            after, known = settle_outcome(case, world, mine.asked)
            yield as_agent(after, me, Reaper(who, at, "asked", asked=mine.asked, known=known))
            if world.losses and "abort" in case.may_lose:
                yield as_agent(after._replace(losses=world.losses - 1), me, mine)
                yield as_agent(under_way(world, (ABORTED, mine.asked)), me, mine)
        case "asked":
            pending = table.is_pending(mine.asked) or not rules.reaper_timeline_after_outcome
            if pending and mine.known == COMMITTED:
                yield as_agent(world, me, Reaper(who, at, "publish", asked=mine.asked))
            elif mine.asked != who:  # void: the next number is free
                void = Reaper(who, at, "list", table.boundary, known=ABORTED)
                yield as_agent(world, me, void if pending else again)
            else:
                yield as_agent(world, me, delete if pending else end)
        case "publish":
            yield as_agent(publish(world, at, mine.asked), me, again)
        case "empty":
            letter = {PENDING: EMPTIED, COMPLETED: RUINED}.get(table.shown[who])
            yield as_agent(show(world, at, who, letter) if letter else world, me, Reaper(who, at, "remove"))
        case "remove":
            yield as_agent(show(world, at, who, GONE) if table.shown[who] == EMPTIED else world, me, end)


def _reaper_judges(case: Case, world: World, me: int, mine: Reaper) -> World:
    who, at = mine.who, mine.table
    table = world.tables[at]
    window = table.log[table.boundary : table.head]
    kind, last = (window[-1] or ("", -1)) if window else ("", -1)
    awaits = last >= 0 and table.is_pending(last)
    if table.boundary != mine.boundary:
        return as_agent(world, me, Reaper(who, at))
    if (PREPARE, who) in window and case.rules.reaper_asks_outcome:
        return as_agent(world, me, Reaper(who, at, "ask", asked=who))
    if (ROLLBACK, who) in window:
        return as_agent(world, me, Reaper(who, at, "empty"))
    if kind == COMMIT and awaits:
        return as_agent(publish(world, at, last), me, Reaper(who, at))
    if kind == PREPARE and last != who and awaits and mine.known != ABORTED:
        return as_agent(world, me, Reaper(who, at, "ask", asked=last))
    return as_agent(world, me, Reaper(who, at, "put", number=table.head + 1))


def collect(case: Case, world: World, me: int, mine: Collector) -> Iterator[World]:
    at = mine.table
    table = world.tables[at]
    match mine.at:
        case "list" if table.head - 1 > table.boundary:
            yield as_agent(world, me, Collector(at, "raise", table.head - 1))
        case "raise":
            raised = Table(table.log, max(table.boundary, mine.upto), table.shown, table.order)
            yield as_agent(with_table(world, at, raised), me, Collector(at, "delete", mine.upto))
        case "delete":
            kept = tuple(None if number <= mine.upto else entry for number, entry in enumerate(table.log, 1))
            yield as_agent(with_table(world, at, table._replace(log=kept)), me, Collector(at, "end"))


def collect_outcome(case: Case, world: World, me: int, mine: Outcomes) -> Iterator[World]:
    rules, who, writes = case.rules, mine.who, case.transactions[mine.who].writes
    match mine.at:
        case "find" if world.outcomes[who] != NO_OUTCOME:
            yield as_agent(world, me, Outcomes(who, "look"))
        case "look" if rules.outcome_kept_while_pending and world.tables[writes[mine.place]].is_pending(who):
            yield as_agent(world, me, Outcomes(who))
        case "look":
            more = mine.place + 1 < len(writes) and rules.outcome_kept_for_other_tables
            yield as_agent(world, me, Outcomes(who, "look", mine.place + 1) if more else Outcomes(who, "delete"))
        case "delete":
            yield as_agent(set_outcome(world, who, NO_OUTCOME), me, Outcomes(who, "end"))


BESIDE_THE_LOCK = ("look", "request", "baseline", "end")
"""Where a writer holds no lock."""


def roll_back_unasked(case: Case, world: World, me: int, mine: Foreign) -> Iterator[World]:
    holds = mine.polite and any(a[0] == mine.who and a[1] not in BESIDE_THE_LOCK for a in world.agents if len(a) == 8)
    if mine.at == "roll back" and world.tables[mine.table].is_pending(mine.who) and not holds:
        yield as_agent(show(world, mine.table, mine.who, VOIDED), me, mine._replace(at="end"))
