"""`python -m tests.simulator`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.behaviour.cli.command_line import on_terminal
from tests.simulation.planted.bugs import PLANTED, first_seed
from tests.simulation.planted.several_tables import BUGS_OF_SEVERAL_TABLES
from tests.simulator.command import app
from tests.sizes import in_ci
from typer.testing import CliRunner


def test_one_seed_is_told_step_by_step() -> None:
    done = CliRunner().invoke(app, ["--seed", "3"])
    assert done.exit_code == 0
    assert done.stdout.startswith("seed 3:") and "all promises kept" in done.stdout


def test_many_seeds_end_with_one_line_of_figures() -> None:
    done = CliRunner().invoke(app, ["--seed", "5", "--seeds", "3"])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1].startswith("3 seeds, ") and "none failed" in done.stdout.splitlines()[-1]
    assert done.stderr == ""


def test_on_a_terminal_the_figures_so_far_go_away() -> None:
    shown = on_terminal("--seed", "5", "--seeds", "3", columns=40, module="tests.simulator")
    *so_far, last = [part for part in re.split("[\r\n]", shown) if part.strip()]
    assert so_far and all(len(part) < 40 for part in so_far)
    assert last.startswith("3 seeds, ") and shown.index(last) == shown.rindex("3 seeds, ")


def test_any_seed_can_be_run_with_parquet_files_also_beside_a_foreign_writer() -> None:
    done = CliRunner().invoke(app, ["--seed", "52", "--parquet"])
    assert done.exit_code == 0
    assert done.stdout.startswith("seed 52: files of parquet") and "foreign: clock" in done.stdout


def test_histories_of_several_tables_are_told_step_by_step_and_counted() -> None:
    one = CliRunner().invoke(app, ["--several-tables", "--seed", "3"])
    assert one.exit_code == 0
    assert one.stdout.startswith("seed 3: ") and "transactions over several tables, all promises kept" in one.stdout
    assert "memory://t0: mover-" in one.stdout and "memory://t1: mover-" in one.stdout
    many = CliRunner().invoke(app, ["--several-tables", "--seeds", "3"])
    assert many.exit_code == 0 and many.stdout.splitlines()[-1].startswith("3 seeds, ")


def test_a_failure_over_several_tables_is_an_exit_code_and_the_command_that_repeats_it() -> None:
    planted = next(each for each in BUGS_OF_SEVERAL_TABLES if each.name == "next number beside an undecided prepare")
    with planted.planted():
        done = CliRunner().invoke(app, ["--several-tables", "--seed", str(planted.seed), "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["violations"]
    assert f"python -m tests.simulator --several-tables --seed {planted.seed}" in done.stderr


def test_several_tables_on_parquet_files_are_refused() -> None:
    done = CliRunner().invoke(app, ["--several-tables", "--parquet"])
    assert done.exit_code != 0 and "--parquet" in done.stderr


@pytest.mark.parametrize("seeds", [1, *in_ci(2)])
def test_a_failure_is_an_exit_code_and_a_picture(tmp_path: Path, seeds: int) -> None:
    planted = next(each for each in PLANTED if each.name == "a decision that overwrites")
    seed = first_seed(planted)
    with planted.planted():
        arguments = ["--seed", str(seed), "--seeds", str(seeds), "--picture", str(tmp_path), "--json"]
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert json.loads(done.stdout)
    assert (tmp_path / f"seed-{seed}.svg").read_text().startswith("<svg")
    assert f"python -m tests.simulator --seed {seed}" in done.stderr
