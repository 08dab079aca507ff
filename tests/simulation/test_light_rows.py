"""Base files that are a line of JSON stand for Parquet: a seed is the same history with both, request by request."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.simulator.run import run
from tests.simulator.scenarios.swarm import scenario_of
from tests.sizes import but_in_ci

SEEDS = (*(seed for seed in range(28) if seed not in (4, 5, 13)), 46, 64)
"""The last two have lazy and eager foreign writers. Those left out have log files, which are lines of JSON only."""
PARTS = 13


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("part", but_in_ci(range(PARTS), {0}))
def test_a_seed_is_the_same_history_with_lines_of_json_as_with_parquet(part: int) -> None:
    for seed in SEEDS[part::PARTS]:
        scenario = scenario_of(seed)
        light, parquet = (run(replace(scenario, files=files)) for files in ("json", "parquet"))
        assert light.violations == parquet.violations == ()
        assert light.digest == parquet.digest
        assert light.faults == parquet.faults
        assert [replace(one, detail="") for one in light.trace.answered] == [
            replace(one, detail="") for one in parquet.trace.answered
        ]
        assert light.trace.reads == parquet.trace.reads


def test_these_seeds_have_every_foreign_writer() -> None:
    assert not any(scenario_of(seed).merge_on_read for seed in SEEDS)
    assert {scenario_of(seed).foreign for seed in SEEDS} == {"none", "lazy", "eager", "careless"}
