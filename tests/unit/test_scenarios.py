"""The table of scenarios is complete, and every test that it names is in the tree."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| (\d+b?) \| (.+?) \| (.+?) \| (.*?) \|$", re.MULTILINE)
_TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
SCENARIOS = {number: (tests, remark) for number, _, tests, remark in _ROW.findall((ROOT / "docs/scenarios.md").read_text())}


@cache
def functions_of(file: str) -> frozenset[str]:
    path = ROOT / file
    tree = ast.parse(path.read_text(), file) if path.exists() else ast.Module([], [])
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_every_scenario_is_there_once():
    numbers = [number for number, *_ in _ROW.findall((ROOT / "docs/scenarios.md").read_text())]
    assert sorted(numbers) == sorted([*(str(n) for n in range(1, 101)), "94b"])


@pytest.mark.parametrize("number", SCENARIOS)
def test_a_scenario_is_shown_by_tests_that_exist_or_its_remark_says_why_not(number):
    tests, remark = SCENARIOS[number]
    named = _TEST.findall(tests)
    assert named or remark
    assert len(named) == tests.count("::")
    assert [f"{file}::{name}" for file, name in named if name not in functions_of(file)] == []


def test_a_test_that_was_renamed_is_noticed():
    assert "test_that_is_not_there" not in functions_of("tests/unit/test_scenarios.py")
    assert functions_of("tests/no_such_file.py") == frozenset()
