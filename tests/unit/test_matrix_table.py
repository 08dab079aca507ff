"""The table of the lock matrix tells what its tests reported, and the one in the documents is today's."""

from __future__ import annotations

import re
from typing import Any, Literal

import pytest

from lakelock.providers import provider_names
from lakelock.testing.lock_suite import NOT_FOR_THIS
from tests.integration.matrix import COLUMNS_OF_ALL, IN_PROCESS, MARK, PAGE, ROWS, cells, lines, page, reasons

Outcome = Literal["passed", "failed", "skipped"]
FULL = {(row, column): "passed" for row in ROWS for column in COLUMNS_OF_ALL}


def report(cell: list[str], outcome: Outcome, *, when: Any = "call", line: int = 1, reason: str = "") -> pytest.TestReport:
    told = ("file", line, reason) if outcome == "skipped" else None
    place = ("file", line, "test")
    return pytest.TestReport("test", place, {}, outcome, told, when, user_properties=[(MARK, cell)])


def test_one_failure_makes_its_cell_failed_in_whatever_phase_and_order() -> None:
    for when in ("setup", "call", "teardown"):
        for reports in ([report(["a", "x"], "failed", when=when), report(["a", "x"], "passed")],) * 2:
            assert cells(reports) == cells(reports[::-1]) == {("a", "x"): "FAILED"}


def test_a_promise_that_means_nothing_leaves_its_cell_empty_and_one_that_could_not_be_shown_says_so() -> None:
    nothing = report(["storage", "restart"], "skipped", reason=f"Skipped: {NOT_FOR_THIS}there is no server")
    missing = report(["redis", "restart"], "skipped", when="setup", reason="Skipped: needs a Redis server")
    assert cells([nothing, missing]) == {("storage", "restart"): "-", ("redis", "restart"): "skipped"}
    assert reasons([nothing, missing]) == {("storage", "restart"): "there is no server"}
    passed = report(["redis", "restart"], "passed")
    assert cells([missing, passed]) == cells([passed, missing]) == {("redis", "restart"): "skipped"}
    assert cells([nothing, report(["storage", "restart"], "passed")]) == {("storage", "restart"): "passed"}


def test_rows_are_providers_and_columns_properties_those_that_are_declared_first() -> None:
    found = cells(
        [report(["new", "x"], "passed"), report(["redis", "crash"], "passed"), report(["redis", "exclusion"], "failed")]
    )
    assert lines(found) == [
        "| provider | exclusion | crash | x |",
        "| --- | --- | --- | --- |",
        "| redis | FAILED | passed |  |",
        "| new |  |  | passed |",
    ]


@pytest.mark.parametrize("outcome", ["FAILED", "skipped", ""])
def test_the_page_is_not_written_when_a_cell_is_not_shown(outcome: str) -> None:
    assert page(FULL, {}) is not None
    assert page(FULL | {("redis", "crash"): outcome}, {}) is None


def test_an_empty_cell_of_the_page_has_a_footnote() -> None:
    text = page(FULL | {("storage", "restart"): "-"}, {("storage", "restart"): "there is no server"})
    assert text is not None and "| - (1) |" in text and "\n1. There is no server.\n" in text


def test_the_committed_page_names_todays_providers_and_properties_and_every_cell_is_shown_or_explained() -> None:
    text = PAGE.read_text()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    assert table[0] == ["provider", *COLUMNS_OF_ALL]
    assert [row[0] for row in table[2:]] == list(ROWS)
    notes = re.findall(r"^(\d+)\. \S", text, re.MULTILINE)
    for row in table[2:]:
        for cell in row[1:]:
            note = re.fullmatch(r"- \((\d+)\)", cell)
            assert cell == "passed" or (note is not None and note[1] in notes), row


def test_every_provider_that_is_built_in_has_a_row() -> None:
    assert {row.partition(" ")[0] for row in ROWS} == set(provider_names())
    assert IN_PROCESS in ROWS
