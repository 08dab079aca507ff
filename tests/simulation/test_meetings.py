"""What the rules accept because a serial order allows it does happen in the histories that are checked against that order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from tests.api import EventKind
from tests.simulator.foreign import ForeignClustering
from tests.simulator.operations import Insert, Overwrite, Tally
from tests.simulator.run import Result, run
from tests.simulator.scenarios.swarm import scenario_of


def meetings(result: Result) -> Counter[str]:
    """How often a transaction was committed although another had come between its beginning and its commit."""
    began = {event.instant: at_s for at_s, _, event in result.trace.events if event.kind is EventKind.BEGAN}
    operations, met = result.scenario.operations, Counter[str]()
    for second in result.published:
        mine = operations.get(second.operation or 0)
        between = [p for p in result.published if began.get(second.instant, second.at_s) < p.at_s < second.at_s]
        others = [operations.get(p.operation or 0) for p in between]
        if isinstance(mine, Insert):
            parts = {row.part for row in mine.rows}
            met["insert after overwrite"] += any(
                isinstance(other, Overwrite) and parts & {row.part for row in other.rows} for other in others
            )
        if isinstance(mine, Tally):
            met["count beside clustering"] += any(
                isinstance(other, ForeignClustering) and other.part == mine.part for other in others
            )
    return met


def first_meeting(kind: str, seeds: Iterable[int]) -> int | None:
    """The first seed with such a meeting."""
    for seed in seeds:
        result = run(scenario_of(seed), keep_events=True)
        assert result.ok, f"seed {seed}: {result.violations}"
        if meetings(result)[kind]:
            return seed
    return None


@pytest.mark.in_ci
def test_rows_are_added_after_others_overwrote_their_partition() -> None:
    assert first_meeting("insert after overwrite", range(70, 220)) is not None


@pytest.mark.in_ci
def test_rows_are_counted_beside_a_clustering_of_their_partition() -> None:
    wanted = (s for s in range(80, 800) if any(isinstance(o, ForeignClustering) for o in scenario_of(s).operations.values()))
    assert first_meeting("count beside clustering", wanted) is not None


def test_stragglers_leave_files_that_are_removed_again() -> None:
    strays = 0
    for scenario in filter(lambda scenario: scenario.stragglers, map(scenario_of, range(200))):
        result = run(scenario)
        assert result.ok, f"seed {scenario.seed}: {result.violations}"
        strays += result.strays
        if strays > 10:
            return
    pytest.fail(f"{strays} files of stragglers")
