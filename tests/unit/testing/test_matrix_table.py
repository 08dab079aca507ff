"""The table of the lock matrix tells what its tests reported, and the one in the documents is today's."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement

import pytest
from tests.integration.matrix import COLUMNS_OF_ALL, IN_PROCESS, PAGE, ROWS, cells, page, reasons

from lakelock.providers import provider_names
from lakelock.testing.lock_suite import NOT_FOR_THIS

FULL = {(row, column): "passed" for row in ROWS for column in COLUMNS_OF_ALL}


def result(row: str, column: str, outcome: str, reason: str = "") -> Element:
    """A test as a JUnit file tells of it; `outcome` is passed, failure, error or skipped."""
    test = Element("testcase")
    SubElement(SubElement(test, "properties"), "property", name="lock_matrix", value=f"{row}: {column}")
    if outcome != "passed":
        SubElement(test, outcome, message=reason)
    return test


def test_one_failure_makes_its_cell_failed_whatever_failed_and_in_whatever_order() -> None:
    for outcome in ("failure", "error"):
        tests = [result("a", "x", outcome), result("a", "x", "passed")]
        assert cells(tests) == cells(tests[::-1]) == {("a", "x"): "FAILED"}


def test_a_promise_that_means_nothing_leaves_its_cell_empty_and_one_that_could_not_be_shown_says_so() -> None:
    nothing = result("storage", "restart", "skipped", f"{NOT_FOR_THIS}there is no server")
    missing = result("redis", "restart", "skipped", "needs a Redis server")
    assert cells([nothing, missing]) == {("storage", "restart"): "-", ("redis", "restart"): "skipped"}
    assert reasons([nothing, missing]) == {("storage", "restart"): "there is no server"}
    passed = result("redis", "restart", "passed")
    assert cells([missing, passed]) == cells([passed, missing]) == {("redis", "restart"): "skipped"}
    assert cells([nothing, result("storage", "restart", "passed")]) == {("storage", "restart"): "passed"}


@pytest.mark.parametrize("outcome", ["FAILED", "skipped", ""])
def test_the_page_is_not_written_when_a_cell_is_not_shown(outcome: str) -> None:
    assert page(FULL, {}) is not None
    assert page(FULL | {("redis", "crash"): outcome}, {}) is None


def test_the_committed_page_names_todays_providers_and_properties_and_every_cell_is_shown_or_explained() -> None:
    text = PAGE.read_text()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    assert table[0] == ["provider", *COLUMNS_OF_ALL]
    assert [row[0] for row in table[2:]] == list(ROWS)
    notes = re.findall(r"^(\d+)\. \S", text, re.MULTILINE)
    for row in table[2:]:
        for cell in row[1:]:
            note = re.fullmatch(r"(?:-|passed) \((\d+)\)", cell)
            assert cell == "passed" or (note is not None and note[1] in notes), row


def test_every_provider_that_is_built_in_has_a_row() -> None:
    assert {row.partition(" ")[0] for row in ROWS} == set(provider_names())
    assert IN_PROCESS in ROWS
