"""Every cell of the guarantee table is shown by a test that exists, or it says why no test can show it."""

from __future__ import annotations

import ast
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from tests.integration.guarantees import GUARANTEES, Shown

from lakelock.providers.base import Strength
from lakelock.providers.registry import BUILT_IN

ROOT = Path(__file__).parents[3]
CELLS = [(provider, column.name) for provider in BUILT_IN for column in fields(Strength)]


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(), file)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def unknown(shown: Shown) -> list[str]:
    """The tests that a cell names and that do not exist."""
    named = [test.partition("::") for test in shown.by]
    return [f"{file}::{name}" for file, _, name in named if not (ROOT / file).exists() or name not in functions_of(file)]


def test_no_cell_is_left_out_and_none_is_made_up() -> None:
    assert set(GUARANTEES) == set(CELLS)


@pytest.mark.parametrize("cell", CELLS, ids=" ".join)
def test_a_cell_is_shown_by_tests_that_exist_or_says_why_not(cell: tuple[str, str]) -> None:
    shown = GUARANTEES[cell]
    assert shown.by or shown.not_shown
    assert unknown(shown) == []


def test_a_test_that_was_renamed_is_noticed() -> None:
    here = "tests/unit/testing/test_guarantees.py"
    gone = (f"{here}::test_that_is_not_there", "tests/no_file.py::test_x")
    assert unknown(Shown((*gone, f"{here}::test_a_test_that_was_renamed_is_noticed"))) == list(gone)
