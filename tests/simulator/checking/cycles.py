"""Is there any serial order that explains what transactions saw? Dependency cycles over append-only trails, as Elle finds them.

Each account row carries the trail of the transfers that wrote it, so every row that was read shows which versions
came before it, and in which order. Nothing here reads the decision log: an outsider could make this check.

* `ww` one transfer's version directly follows the other's
* `wr` one read the version that the other wrote
* `rw` one read a version that the other's directly follows: it must come first in any serial order
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Trail = tuple[int, ...]


@dataclass(frozen=True)
class Seen:
    """What one transaction read: the trail of each key. `wrote` are the keys whose trails it extended."""

    transaction: int
    reads: Mapping[str, Trail]
    wrote: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Edge:
    """`before` must come before `after` in every serial order, because of `key`."""

    before: int
    after: int
    kind: str
    key: str

    def __str__(self) -> str:
        return f"{self.before} -{self.kind} {self.key}-> {self.after}"


def anomalies(history: Sequence[Seen], committed: frozenset[int]) -> list[str]:
    """Every anomaly that the history shows, in words: aborted reads, incompatible orders, and one cycle."""
    versions, found = _versions(history)
    found += [
        f"aborted read: {seen.transaction} saw {key} as {list(trail)}, and {number} is not committed"
        for seen in history
        for key, trail in seen.reads.items()
        for number in trail
        if number not in committed
    ]
    cycle = find_cycle(edges(history, versions))
    if cycle:
        found.append("cycle: " + ", ".join(map(str, cycle)))
    return found


def edges(history: Sequence[Seen], versions: Mapping[tuple[str, int], Trail]) -> set[Edge]:
    """The dependencies between the transactions of a history."""
    found: set[Edge] = set()
    for (key, _), trail in versions.items():
        found.update(Edge(one, two, "ww", key) for one, two in pairwise(trail))
    for seen in history:
        for key, trail in seen.reads.items():
            if not trail:
                continue
            found.add(Edge(trail[-1], seen.transaction, "wr", key))
            longest = versions[key, trail[0]]
            if len(longest) > len(trail):
                found.add(Edge(seen.transaction, longest[len(trail)], "rw", key))
    return {edge for edge in found if edge.before != edge.after}


def find_cycle(found: Iterable[Edge]) -> list[Edge]:
    """A shortest cycle of dependencies, empty if there is none."""
    out: dict[int, list[Edge]] = {}
    for edge in sorted(found, key=str):
        out.setdefault(edge.before, []).append(edge)
    best: list[Edge] = []
    for start in sorted(out):
        path = _way_back(start, out)
        if path and (not best or len(path) < len(best)):
            best = path
    return best


def _way_back(start: int, out: Mapping[int, list[Edge]]) -> list[Edge]:
    """A shortest path from `start` to itself."""
    came: dict[int, Edge] = {}
    frontier = [start]
    while frontier:
        reached: list[int] = []
        for node in frontier:
            for edge in out.get(node, ()):
                if edge.after == start:
                    path = [edge]
                    while path[0].before != start:
                        path.insert(0, came[path[0].before])
                    return path
                if edge.after not in came:
                    came[edge.after] = edge
                    reached.append(edge.after)
        frontier = reached
    return []


def _versions(history: Sequence[Seen]) -> tuple[dict[tuple[str, int], Trail], list[str]]:
    """The longest trail of each key, by key and the transaction that began it, and trails that contradict each other."""
    longest: dict[tuple[str, int], Trail] = {}
    found: list[str] = []
    for seen in history:
        for key, read in seen.reads.items():
            for trail in (read, (*read, seen.transaction)) if key in seen.wrote else (read,):
                if not trail:
                    continue
                known = longest.get((key, trail[0]), ())
                shorter, longer = sorted((known, trail), key=len)
                if longer[: len(shorter)] != shorter:
                    found.append(f"incompatible orders: {key} was seen as {list(known)} and as {list(trail)}")
                longest[key, trail[0]] = longer
    return longest, found
