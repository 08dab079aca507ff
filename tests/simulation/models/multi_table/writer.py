"""The owner of a transaction: begin everywhere, prepare in each table, look at what was only read, the outcome, publish."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from tests.simulation.models.multi_table.case import Case
from tests.simulation.models.multi_table.world import (
    ABORTED,
    COMMIT,
    COMMITTED,
    COMPLETED,
    GONE,
    NO_OUTCOME,
    PENDING,
    PREPARE,
    ROLLBACK,
    VOIDED,
    Entry,
    Table,
    World,
    as_agent,
    publish,
    put_decision,
    put_outcome,
    set_outcome,
    show,
)

_T = TypeVar("_T")


class Writer(NamedTuple):
    """`place` counts the tables of the present stage; `first` and `seen` are the baselines, by table.

    `window`: the log since the baseline. `known`: the outcome that was found of the prepare at the head, or the letters of
    the tables that were looked at last. `told`: what its caller hears; before the end `tried` once a prepare was sent.
    """

    who: int
    at: str
    place: int
    first: tuple[int, ...]
    seen: tuple[frozenset[int], ...]
    told: str = ""
    window: tuple[Entry, ...] = ()
    known: str = ""

    def then(self, at: str, place: int | None = None, **changed: object) -> Writer:
        """The next state; what is not named here is forgotten, except for the baselines and what is told."""
        kept = {"first": self.first, "seen": self.seen, "told": self.told} | changed
        return Writer(self.who, at, self.place if place is None else place, **kept)  # type: ignore[arg-type]

    def end(self, told: str) -> Writer:
        blank = (0,) * len(self.first)
        seen = self.seen if told == "committed" else (frozenset[int](),) * len(self.seen)
        return Writer(self.who, "end", 0, blank, seen, told)


def steps(case: Case, world: World, me: int, mine: Writer) -> Iterator[World]:
    """Every state that one request of a writer leads to."""
    stages = (_begin, _prepare, _read_tables, _decide, _publish)
    for stage in stages:
        if mine.at in _STAGES[stage.__name__]:
            yield from stage(case, world, me, mine)
            return


_STAGES = {
    "_begin": ("look", "request", "baseline"),
    "_prepare": ("list", "judge", "finish", "ask", "put", "boundary", "collected"),
    "_read_tables": ("read-list", "read-judge", "read-ask"),
    "_decide": ("outcome", "no answer", "committed", "aborted"),
    "_publish": ("committed elsewhere", "aborted elsewhere", "publish", "remove", "forget"),
}


def _begin(case: Case, world: World, me: int, mine: Writer) -> Iterator[World]:
    transaction, rules, who, place = case.transactions[mine.who], case.rules, mine.who, mine.place
    at = transaction.tables[place]
    table = world.tables[at]
    match mine.at:
        case "look" if at not in transaction.writes:
            yield from _begin(case, world, me, mine.then("baseline"))
        case "look" if _awaits_publication(table):
            yield as_agent(publish(world, at, _who(table.newest)), me, mine)
        case "look":
            head = table.head
            if rules.first_below_prepare and _kind(table.newest) == PREPARE:
                head -= 1
            first = _replaced(mine.first, at, max(head, table.boundary))
            yield as_agent(world, me, mine.then("request", first=first))
        case "request":
            yield as_agent(show(world, at, who, PENDING), me, mine.then("baseline"))
        case "baseline":
            then = mine.then("list", seen=_replaced(mine.seen, at, table.completed))
            if rules.begin_everywhere_first and place + 1 < len(transaction.tables):
                then = then.then("look", place + 1)
            elif rules.begin_everywhere_first:
                reads_first = transaction.reads and not rules.reads_after_prepares
                then = then.then("read-list" if reads_first else "list", 0)
            yield as_agent(world, me, then)


def _prepare(case: Case, world: World, me: int, mine: Writer) -> Iterator[World]:
    """One table that is written: look, finish the head, validate, prepare (or commit, if there is but one table)."""
    transaction, rules, who = case.transactions[mine.who], case.rules, mine.who
    at = transaction.writes[mine.place]
    table = world.tables[at]
    first = mine.first[at]
    match mine.at:
        case "list" if table.boundary > first:
            yield as_agent(world, me, mine.then("collected"))
        case "list":
            yield as_agent(world, me, mine.then("judge", window=table.log[first : table.head]))
        case "judge":
            yield _judged(case, world, me, mine)
        case "finish":
            world = publish(world, at, _who(mine.window[-1]))
            again = mine.then("judge", window=mine.window) if rules.timeline_after_outcome else mine.then("list")
            yield as_agent(world, me, again)
        case "ask":
            world, known = settle_outcome(case, world, _who(mine.window[-1]))
            yield as_agent(world, me, mine.then("judge", window=mine.window, known=known))
        case "put":
            number, entry = first + len(mine.window) + 1, (PREPARE if transaction.is_joint else COMMIT, who)
            done = put_decision(world, at, number, entry)
            if done is None:
                return
            after, made = done
            yield (
                as_agent(after, me, mine.then("boundary", window=mine.window))
                if made
                else as_agent(world, me, mine.then("list"))
            )
            if transaction.is_joint and world.losses and "prepare" in case.may_lose:
                lost = mine.then("list", told="tried")
                yield as_agent(after._replace(losses=world.losses - 1), me, lost)
                yield as_agent(under_way(world, (PREPARE, at, number, who)), me, lost)
        case "boundary" if rules.boundary_after_prepare and table.boundary > first + len(mine.window):
            yield as_agent(world, me, mine.then("collected", told="tried" if transaction.is_joint else mine.told))
        case "boundary":
            yield _after_decision(case, world, me, mine)
        case "collected":
            by_timeline = not transaction.is_joint and table.is_completed(who)
            yield as_agent(world, me, mine.end("committed") if by_timeline else mine.then("remove", 0))


def _judged(case: Case, world: World, me: int, mine: Writer) -> World:
    """The timeline, listed after the window: what counts, what is to be finished first, whether anything collides."""
    transaction, rules, who, window = case.transactions[mine.who], case.rules, mine.who, mine.window
    at = transaction.writes[mine.place]
    table = world.tables[at]
    last = window[-1] if window else None
    undecided = _kind(last) == PREPARE and _who(last) != who and table.is_pending(_who(last))
    if not rules.timeline_after_outcome and mine.known and _kind(last) == PREPARE:
        undecided = True
    if (PREPARE if transaction.is_joint else COMMIT, who) in window:
        return _after_decision(case, world, me, mine)
    if (rules.heed_own_rollback and (ROLLBACK, who) in window) or None in window:
        return as_agent(world, me, mine.then("remove", 0))
    if rules.own_instant_pending and table.shown[who] in (GONE, VOIDED):
        return as_agent(world, me, mine.then("remove", 0))
    if _kind(last) == COMMIT and table.is_pending(_who(last)):
        return as_agent(publish(world, at, _who(last)), me, mine.then("list"))
    if undecided and rules.finish_prepared_head and not mine.known:
        return as_agent(world, me, mine.then("ask", window=window))
    if undecided and mine.known == COMMITTED:
        return as_agent(world, me, mine.then("finish" if rules.publish_before_next else "put", window=window))
    if not case.disjoint and any(
        entry is not None and entry[1] not in mine.seen[at] and _counts(case, table, entry, undecided and entry == last)
        for entry in window
    ):
        return as_agent(world, me, mine.then("remove", 0))
    return as_agent(world, me, mine.then("put", window=window))


def _counts(case: Case, table: Table, entry: tuple[str, int], undecided: bool) -> bool:
    """Whether a decision of the window is a commit."""
    if entry[0] != PREPARE:
        return entry[0] == COMMIT
    return case.rules.window_by_timeline and table.is_completed(entry[1]) and not undecided


def _after_decision(case: Case, world: World, me: int, mine: Writer) -> World:
    """The prepare of one table is in place, or the commit of a transaction that has but one."""
    transaction, rules, place = case.transactions[mine.who], case.rules, mine.place
    if not transaction.is_joint:
        return as_agent(world, me, mine.then("publish"))
    mine = mine._replace(told="tried")
    if not rules.publish_after_outcome:
        world = publish(world, transaction.writes[place], mine.who)
    if not rules.begin_everywhere_first and place + 1 < len(transaction.tables):
        return as_agent(world, me, mine.then("look", place + 1))
    if place + 1 < len(transaction.writes):
        return as_agent(world, me, mine.then("list" if rules.outcome_after_last_prepare else "outcome", place + 1))
    if transaction.reads and rules.reads_after_prepares:
        return as_agent(world, me, mine.then("read-list", 0))
    return as_agent(world, me, mine.then("outcome", 0))


def _read_tables(case: Case, world: World, me: int, mine: Writer) -> Iterator[World]:
    """A table that is only read: its log, then its timeline. Whatever came since the baseline is too much."""
    transaction, rules = case.transactions[mine.who], case.rules
    at = transaction.reads[mine.place]
    table = world.tables[at]
    match mine.at:
        case "read-list":
            yield as_agent(world, me, mine.then("read-judge", window=(table.newest,)))
        case "read-judge":
            last = mine.window[0]
            pending = _kind(last) in (COMMIT, PREPARE) and table.is_pending(_who(last))
            decided = _kind(last) == COMMIT or mine.known == COMMITTED
            if table.completed - mine.seen[at] or (pending and decided and rules.heed_decided_head_of_read_table):
                yield as_agent(world, me, mine.then("remove", 0))
            elif pending and not mine.known and rules.ask_in_read_tables:
                yield as_agent(world, me, mine.then("read-ask", window=mine.window))
            elif mine.place + 1 < len(transaction.reads):
                yield as_agent(world, me, mine.then("read-list", mine.place + 1))
            else:
                yield as_agent(world, me, mine.then("outcome" if rules.reads_after_prepares else "list", 0))
        case "read-ask":
            world, known = settle_outcome(case, world, _who(mine.window[0]))
            yield as_agent(world, me, mine.then("read-judge", window=mine.window, known=known))


def _decide(case: Case, world: World, me: int, mine: Writer) -> Iterator[World]:
    """The commit point, and what home's timeline says of the outcome that is there: its name may have been used before."""
    transaction, rules, who = case.transactions[mine.who], case.rules, mine.who
    home = world.tables[transaction.writes[0]]
    match mine.at:
        case "outcome":
            done = (set_outcome(world, who, COMMITTED), COMMITTED) if not rules.outcome_if_absent else None
            after, there = done or put_outcome(world, who, COMMITTED)
            if not rules.outcome_after_last_prepare and 0 < mine.place < len(transaction.writes) and there == COMMITTED:
                yield as_agent(after, me, mine.then("list"))
                return
            yield as_agent(after, me, mine.then("committed" if there == COMMITTED else "aborted", 0))
            if world.losses and "outcome" in case.may_lose:
                lost = mine.then("outcome" if rules.outcome_again else "no answer")
                yield as_agent(after._replace(losses=world.losses - 1), me, lost)
                yield as_agent(under_way(world, (COMMITTED, who)), me, lost)
        case "no answer":
            yield as_agent(world, me, mine.end("rejected"))
        case "committed" if rules.home_after_committed and not (home.is_pending(who) or home.is_completed(who)):
            several = rules.others_when_home_is_gone and len(transaction.writes) > 1
            yield as_agent(world, me, mine.then("committed elsewhere", 1) if several else mine.then("remove", 0))
        case "committed":
            yield as_agent(world, me, mine.then("publish"))
        case "aborted" if home.is_pending(who) or not rules.home_after_aborted:
            yield as_agent(world, me, mine.then("remove", 0))
        case "aborted":
            # The outcome's name was used before: was it visible everywhere by then?
            shown = COMPLETED if home.is_completed(who) else GONE
            asks = rules.every_table_before_told if shown == COMPLETED else rules.others_when_home_is_gone
            yield as_agent(world, me, mine.then("aborted elsewhere", 1, known=shown) if asks else _finally(mine, shown))


def _publish(case: Case, world: World, me: int, mine: Writer) -> Iterator[World]:  # noqa: C901  one case for each request
    """The end, in each table that is written: visible, or removed, or (beside another engine) some of both."""
    transaction, rules, who, place = case.transactions[mine.who], case.rules, mine.who, mine.place
    if place == len(transaction.writes):
        yield as_agent(world, me, mine.then("remove", 0) if mine.at == "committed elsewhere" else _finally(mine, mine.known))
        return
    at = transaction.writes[place]
    table = world.tables[at]
    match mine.at:
        case "committed elsewhere" if table.is_pending(who) or table.is_completed(who):
            # Outcomes are not deleted while anything is pending: this one is true, and another engine has voided home.
            yield as_agent(world, me, mine.then("publish", told="torn"))
        case "committed elsewhere":
            yield as_agent(world, me, mine.then("committed elsewhere", place + 1))
        case "aborted elsewhere":
            known = "".join(sorted({*mine.known, COMPLETED if table.is_completed(who) else GONE}))
            yield as_agent(world, me, mine.then("aborted elsewhere", place + 1, known=known))
        case "publish":
            torn = mine.told == "torn" or (rules.every_table_before_told and table.shown[who] == VOIDED)
            mine = mine._replace(told="torn" if torn else mine.told)
            world = publish(world, at, who)
            if not rules.outcome_deleted_last and transaction.is_joint:
                world = set_outcome(world, who, NO_OUTCOME)
            if place + 1 < len(transaction.writes):
                yield as_agent(world, me, mine.then("publish", place + 1))
            elif transaction.is_joint:
                yield as_agent(world, me, mine.then("forget", 0, told="torn" if torn else "committed"))
            else:
                yield as_agent(world, me, mine.end("committed"))
        case "remove":
            gone = show(world, at, who, GONE) if table.is_pending(who) else world
            if place + 1 < len(transaction.writes):
                yield as_agent(gone, me, mine.then("remove", place + 1))
            elif mine.told == "tried":
                yield as_agent(gone, me, mine.then("forget", 0, told="rejected"))
            else:
                yield as_agent(gone, me, mine.end("rejected"))
        case "forget":
            yield as_agent(set_outcome(world, who, NO_OUTCOME), me, mine.end(mine.told))


def _finally(mine: Writer, shown: str) -> Writer:
    """What the timelines of all its tables say of a transaction whose outcome is not to be trusted."""
    if COMPLETED not in shown:
        return mine.then("remove", 0)
    return mine.end("torn" if GONE in shown else "committed")


def settle_outcome(case: Case, world: World, who: int) -> tuple[World, str]:
    """Whoever meets an undecided prepare: abort by the same name, unless an outcome is there. That counts."""
    if case.rules.abort_by_outcome:
        return put_outcome(world, who, ABORTED)
    there = world.outcomes[who]
    return world, ABORTED if there == NO_OUTCOME else there


def under_way(world: World, request: tuple[object, ...]) -> World:
    """A request without a reply that arrives later, or never."""
    return world._replace(losses=world.losses - 1, late=tuple(sorted((*world.late, request), key=repr)))


def _awaits_publication(table: Table) -> bool:
    newest = table.newest
    return newest is not None and newest[0] == COMMIT and table.is_pending(newest[1])


def _kind(entry: Entry) -> str:
    return entry[0] if entry is not None else ""


def _who(entry: Entry) -> int:
    return entry[1] if entry is not None else -1


def _replaced(values: tuple[_T, ...], at: int, value: _T) -> tuple[_T, ...]:
    return (*values[:at], value, *values[at + 1 :])
