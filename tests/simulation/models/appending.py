"""A model of log files: every interleaving of some writers of one file group of a merge-on-read table.

Some append a log file, some write the base file anew, and what readers show is what Java 1.2, hudi-rs and lakelock show: the
base file with the greatest instant, and on it, in the order of their instants, the log files that completed no earlier than
that instant. Clocks may be slow, and a writer may stand still before any step: between the request of its instant and its
baseline, and between its last look at the timeline and its decision. Decisions have an order, which is taken as given.

Searched for: readers who see anything but the writes one by one in the order of decision. Each of the rules can be left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tests.simulation.models.every_state import visit

Rows = tuple[tuple[str, int], ...]
"""The rows of the file group: a key and a value each, in order."""
FIRST: Rows = (("a", 2), ("b", 3))
MOST_BEGINS = 2
"""How often a writer begins, before it gives up."""
SLOW = 25
"""How far a slow clock is behind; each instant and each completion takes 10."""


@dataclass(frozen=True)
class Rules:
    """Which rules are kept."""

    begin_after: bool = True
    """An instant is later than every requested and every completion time that the baseline shows; else it is given up, or the
    baseline is what completed before."""
    order: bool = True
    """An append of a key that another append has changed since the baseline has the later instant."""
    read: bool = True
    """Who has read a row collides with who has changed it since, or has put a row where it would have been read."""
    covered: bool = True
    """A new base file collides with an append that it does not know, and that completed before its instant."""
    under: bool = True
    """A new base file with other rows collides with an append of one of their keys, which would lie on top."""
    one_base: bool = True
    """Two new base files collide."""
    moved: bool = True
    """Clustering collides with everything in its file groups."""


class Writer(NamedTuple):
    """Where a writer is. `kind` is what it does, `key` to which row, `even` to rows of which values; `behind`: its clock."""

    number: int
    kind: str
    key: str = ""
    even: bool = True
    behind: int = 0
    at: str = "begin"
    begins: int = 0
    instant: int = 0
    saw: int = 0
    listed: int = 0
    rows: Rows = ()
    writes: tuple[tuple[str, int | None], ...] = ()
    completion: int = 0
    generation: int = 0

    @property
    def appends(self) -> bool:
        return self.kind in ("upsert", "delete", "update")

    @property
    def reads(self) -> bool:
        return self.kind in ("update", "rewrite")

    def matches(self, value: int | None) -> bool:
        """Whether an update or a rewrite of this writer changes a row of this value."""
        return value is not None and (value % 2 == 0) == self.even

    def effect(self, rows: Mapping[str, int]) -> dict[str, int | None]:
        """What it changes in these rows; None deletes."""
        match self.kind:
            case "upsert" | "put":
                return {self.key: 1000 * (self.number + 1) + (0 if self.even else 1)}
            case "delete":
                return {self.key: None}
            case "update" | "rewrite":
                return {key: value + 101 for key, value in rows.items() if self.matches(value)}
        return {}  # compaction and clustering


class World(NamedTuple):
    """The decided writes in their order, all times on the timeline, the clock, and the writers that are still at it."""

    done: tuple[Writer, ...] = ()
    times: tuple[int, ...] = ()
    clock: int = 100
    writers: tuple[Writer, ...] = ()
    serial: Rows = FIRST


def parsed(number: int, text: str) -> Writer:
    """A writer by a text: `upsert a`, `put b odd`, `update even`, `compact slow`."""
    kind, *words = text.split()
    key = next((word for word in words if len(word) == 1), "")
    return Writer(number, kind, key, "odd" not in words, SLOW if "slow" in words else 0)


def explore(*writers: str, rules: Rules = Rules(), most_states: int = 2_000_000) -> tuple[int, str | None]:
    """How many states there are, and the first violation that is met."""
    first = World(writers=tuple(parsed(number, text) for number, text in enumerate(writers)))
    return visit(first, partial(steps, rules=rules), violation, most_states=most_states)


def violation(world: World) -> str | None:
    """What readers see that the order of decisions does not explain."""
    shown = shown_by(world.done)
    if shown == world.serial:
        return None
    history = [(w.kind, w.key, w.instant, w.completion, w.writes) for w in world.done]
    return f"readers see {shown}, one by one gives {world.serial}: {history}"


def shown_by(done: tuple[Writer, ...]) -> Rows:
    """What readers show. Clustering makes the next generation of the group; who does not know of it writes into the old one."""
    generation = sum(writer.kind == "cluster" for writer in done)
    mine = [writer for writer in done if writer.generation == generation and writer.kind != "cluster"]
    moved = [writer for writer in done if writer.kind == "cluster"][-1:]
    bases = [(writer.instant, changed(writer.rows, writer.writes)) for writer in (*moved, *mine) if not writer.appends]
    instant, rows = max(bases, default=(0, FIRST))
    for writer in sorted(mine, key=lambda writer: writer.instant):
        if writer.appends and writer.completion >= instant:
            rows = changed(rows, writer.writes)
    return rows


def changed(rows: Rows, writes: tuple[tuple[str, int | None], ...]) -> Rows:
    after = {**dict(rows), **dict(writes)}
    return tuple(sorted((key, value) for key, value in after.items() if value is not None))


def steps(world: World, rules: Rules) -> Iterator[World]:
    """Every state that one step of a writer leads to."""
    for mine in world.writers:
        match mine.at:
            case "begin":
                # What it has seen of the timeline by then may be old, so its own clock may be all that counts.
                for known in {0, max(world.times, default=0)}:
                    instant = _free(max(world.clock - mine.behind, known) + 1, world.times)
                    after = mine._replace(at="look", instant=instant, begins=mine.begins + 1)
                    yield _with(world, mine, after, instant)
            case "look":
                yield from _baselines(world, mine, rules)
            case "write":
                yield _with(world, mine, mine._replace(at="decide", listed=max(world.times)))
            case "decide":
                yield _decided(world, mine, rules)


def _baselines(world: World, mine: Writer, rules: Rules) -> Iterator[World]:
    """What a writer may take for its snapshot: it begins again, or leaves out what completed since its instant."""
    saw = len(world.done)
    if rules.begin_after and any(max(each.instant, each.completion) >= mine.instant for each in world.done):
        yield _with(world, mine, mine._replace(at="begin") if mine.begins < MOST_BEGINS else None)
        saw = sum(each.completion < mine.instant for each in world.done)  # the first ones: completions are in order
    rows = shown_by(world.done[:saw])
    generation = sum(each.kind == "cluster" for each in world.done[:saw])
    writes = tuple(sorted(mine.effect(dict(rows)).items()))
    yield _with(world, mine, mine._replace(at="write", saw=saw, rows=rows, writes=writes, generation=generation))


def _decided(world: World, mine: Writer, rules: Rules) -> World:
    if any(collides(mine, other, rules) for other in world.done[mine.saw :]):
        return _with(world, mine, None)
    earliest = max(world.clock - mine.behind, mine.listed, *(each.completion for each in world.done), 0) + 1
    completion = _free(earliest, world.times)
    made = mine._replace(at="done", completion=completion)
    serial = changed(world.serial, tuple(mine.effect(dict(world.serial)).items()))
    return _with(world._replace(done=(*world.done, made), serial=serial), mine, None, completion)


def collides(mine: Writer, other: Writer, rules: Rules) -> bool:
    """Whether `mine`, which decides now, collides with `other`, which was decided since its baseline."""
    mine_writes, others_writes = dict(mine.writes), dict(other.writes)
    both = mine_writes.keys() & others_writes.keys()
    if "cluster" in (mine.kind, other.kind):
        return rules.moved
    if rules.read and mine.reads and (both or any(map(mine.matches, others_writes.values()))):
        return True
    if mine.appends:
        return rules.order and other.appends and bool(both) and other.instant > mine.instant
    if other.appends:
        return (rules.covered and other.completion < mine.instant) or (rules.under and bool(both))
    return rules.one_base


def _free(time: int, times: tuple[int, ...]) -> int:
    while time in times:
        time += 1
    return time


def _with(world: World, mine: Writer, after: Writer | None, time: int = 0) -> World:
    writers = tuple(after if each is mine else each for each in world.writers)
    times, clock = ((*world.times, time), world.clock + 10) if time else (world.times, world.clock)
    return world._replace(writers=tuple(each for each in writers if each is not None), times=times, clock=clock)
