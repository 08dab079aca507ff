"""The table of the lock matrix tells what its tests reported, and the one in the documents is today's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement

import pytest

from lakelock.providers import provider_names
from lakelock.testing.lock_suite import NOT_FOR_THIS
from tests.integration.matrix import COLUMNS_OF_ALL, IN_PROCESS, PAGE, ROWS, cells, lines, page, reasons, results

FULL = {(row, column): "passed" for row in ROWS for column in COLUMNS_OF_ALL}
REAL = """
import pytest
from tests.integration.matrix import mark

@pytest.mark.parametrize("row", ["a", "b"])
def test_one(request, row):
    mark(request.node, row, "x y")
    assert row == "a"

def test_two(request):
    mark(request.node, "a", "z")
    pytest.skip("needs a server")
"""


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


def test_what_pytest_writes_is_understood(tmp_path: Path) -> None:
    (tmp_path / "test_real.py").write_text(REAL)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--junitxml={tmp_path}/found.xml",
        str(tmp_path),
    ]
    path = os.pathsep.join([str(PAGE.parents[1]), *sys.path])
    subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=200, check=False)
    found = cells(results([f"{tmp_path}/found.xml"]))
    assert found == {("a", "x y"): "passed", ("b", "x y"): "FAILED", ("a", "z"): "skipped"}


def test_rows_are_providers_and_columns_properties_those_that_are_declared_first() -> None:
    found = cells([result("new", "x", "passed"), result("redis", "crash", "passed"), result("redis", "exclusion", "failure")])
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


def test_a_cell_of_the_page_that_passed_without_one_of_its_tests_has_a_footnote() -> None:
    text = page(FULL, {("storage", "fairness"): "waiters come in no order"})
    assert text is not None and text.count("| passed (1) |") == 1 and "\n1. Waiters come in no order.\n" in text


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
