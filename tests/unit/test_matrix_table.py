"""The table of the lock matrix tells what its tests reported."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from tests.integration.matrix import MARK, cells, lines

Outcome = Literal["passed", "failed", "skipped"]


def report(cell: list[str], outcome: Outcome, *, when: Any = "call", line: int = 1, reason: str = "") -> pytest.TestReport:
    told = ("file", line, reason) if outcome == "skipped" else None
    place = ("file", line, "test")
    return pytest.TestReport("test", place, {}, outcome, told, when, user_properties=[(MARK, cell)])


def test_one_failure_makes_its_cell_failed_in_whatever_phase_and_order() -> None:
    for when in ("setup", "call", "teardown"):
        for reports in ([report(["a", "x"], "failed", when=when), report(["a", "x"], "passed")],) * 2:
            assert cells(reports) == cells(reports[::-1]) == {("a", "x"): "FAILED"}


def test_a_cell_without_a_server_is_empty_and_a_skipped_one_says_so() -> None:
    found = cells(
        [
            report(["storage", "restart"], "skipped", reason="Skipped: storage has no server"),
            report(["redis", "restart"], "skipped", when="setup", reason="Skipped: needs a Redis server"),
        ]
    )
    assert found == {("storage", "restart"): "-", ("redis", "restart"): "skipped"}


def test_rows_are_providers_and_columns_properties_in_the_order_of_the_tests() -> None:
    found = cells([report(["a", "y"], "passed", line=2), report(["a", "x"], "passed"), report(["b", "x"], "failed")])
    assert lines(found) == ["| provider | x | y |", "| --- | --- | --- |", "| a | passed | passed |", "| b | FAILED |  |"]
