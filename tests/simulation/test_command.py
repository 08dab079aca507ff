"""`lakelock simulate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lakelock.cli.main import app
from tests.simulation.planted.bugs import PLANTED, first_seed


def test_one_seed_is_told_step_by_step() -> None:
    done = CliRunner().invoke(app, ["simulate", "--seed", "3"])
    assert done.exit_code == 0
    assert done.stdout.startswith("seed 3:") and "all promises kept" in done.stdout


def test_many_seeds_end_with_one_line_of_figures() -> None:
    done = CliRunner().invoke(app, ["simulate", "--seed", "5", "--seeds", "3"])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1].startswith("3 seeds, ") and "none failed" in done.stdout.splitlines()[-1]


def test_any_seed_can_be_run_with_parquet_files_also_beside_a_foreign_writer() -> None:
    done = CliRunner().invoke(app, ["simulate", "--seed", "4", "--parquet"])
    assert done.exit_code == 0
    assert done.stdout.startswith("seed 4: files of parquet") and "foreign: clock" in done.stdout


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_failure_is_an_exit_code_and_a_picture(tmp_path: Path, seeds: int) -> None:
    planted = next(each for each in PLANTED if each.name == "a decision that overwrites")
    seed = first_seed(planted)
    with planted.planted():
        arguments = ["simulate", "--seed", str(seed), "--seeds", str(seeds), "--picture", str(tmp_path), "--json"]
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert json.loads(done.stdout)
    assert (tmp_path / f"seed-{seed}.svg").read_text().startswith("<svg")
    assert f"lakelock simulate --seed {seed}" in done.stderr
