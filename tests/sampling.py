"""Which repetitions of a promise a build runs: some with each commit, all of them over a number of commits.

A test with the markers `in_ci` and `sampled` shows on one more service, store or step what another test shows in each run, or
in another way what others show that name the same promise: `sampled(promise="...")`. A build runs one in `ONE_IN` of them,
which its commit chooses, and in any case one of each promise that no other test of the run shows, and one in each place.
Of the other tests `in_ci`, which take long, it runs one in `LONG_ONE_IN`, and one in each folder. `FULL=1` runs all of them.
`LAKELOCK_SAMPLE` in place of the commit repeats a build's choice.

Whether a test belongs to a sample depends on its own name alone, so a part of the tests, or one that runs again, is chosen
from as the whole is.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

VARIABLE = "LAKELOCK_SAMPLE"
ONE_IN = 10
LONG_ONE_IN = 8
PLACES = ("azure", "dynamodb", "express", "gcs", "hdfs", "metastore", "redis", "s3", "zookeeper")
"""Services and stores as the names of tests have them."""
_NO_COMMIT = "no commit"


@dataclass(frozen=True)
class Case:
    """A test of a build: its node id, the promise that it shows, and one in how many like it runs; 1 is each time."""

    node: str
    promise: str
    one_in: int = 1

    @property
    def places(self) -> Iterator[str]:
        return (place for place in PLACES if place in self.node.lower())


def sample(cases: Collection[Case], seed: str) -> frozenset[str]:
    """The node ids of the tests that run with this seed."""
    by_rank = sorted(cases, key=lambda case: _number(seed, case.node))
    chosen = {case.node: case for case in cases if _number(case.node) % case.one_in == _number(seed) % case.one_in}
    shown = {case.promise for case in chosen.values()}
    met = {place for case in chosen.values() for place in case.places}
    for case in by_rank:
        if case.promise not in shown or not met.issuperset(case.places):
            chosen[case.node] = case
            shown.add(case.promise)
            met.update(case.places)
    return frozenset(chosen)


def seed_of_this_run() -> str:
    """The variable, or else the commit that is checked out."""
    return os.environ.get(VARIABLE) or _commit()


def header(seed: str) -> str:
    """What pytest says of the sample."""
    return f"sample: one in {ONE_IN} of what repeats a promise; {VARIABLE}={seed!r} repeats it, and FULL=1 runs everything"


def left_out(items: Iterable[pytest.Item], seed: str) -> list[pytest.Item]:
    """The tests that a run with this seed leaves out."""
    cases = {item: _case(item) for item in items}
    kept = sample(cases.values(), seed)
    return [item for item, case in cases.items() if case.node not in kept]


def _case(item: pytest.Item) -> Case:
    """The function that a suite's classes share is one promise, wherever they are."""
    function, marker = getattr(item, "function", None), item.get_closest_marker("sampled")
    named = marker.kwargs if marker else {}
    promise = named.get("promise") or (f"{function.__module__}:{function.__qualname__}" if function else item.nodeid)
    if not item.get_closest_marker("in_ci"):
        return Case(item.nodeid, promise)
    if marker is None:
        return Case(item.nodeid, item.nodeid.partition("::")[0].rpartition("/")[0], LONG_ONE_IN)
    return Case(item.nodeid, promise, named.get("one_in", ONE_IN))


def _commit() -> str:
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return _NO_COMMIT
    return done.stdout.strip() or _NO_COMMIT


def _number(*texts: str) -> int:
    """A number that looks like chance and is the same everywhere."""
    return int.from_bytes(sha256("\0".join(texts).encode()).digest()[:8], "big")
