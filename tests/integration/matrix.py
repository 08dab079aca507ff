"""The table of the lock matrix: provider x property -> passed, made from the reports of its tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lakelock.testing.lock_suite import COLUMNS, NOT_FOR_THIS
from lakelock.testing.servers import SERVICES, Service
from lakelock.testing.servers.s3_storage import s3_storage_service

MARK = "lock_matrix"
"""The user property of a report that says which cell it is: [provider, property]."""

IN_PROCESS = "memory"
SERVICES_OF_ROWS: dict[str, Callable[[Path], AbstractContextManager[Service]]] = {
    "storage": SERVICES["storage"],
    "storage on S3": s3_storage_service,
    **SERVICES,
}
ROWS = (IN_PROCESS, *SERVICES_OF_ROWS)
PAGE = Path(__file__).parents[2] / "docs" / "lock-matrix.md"

_SAME_STORAGE = "the same requests as on a local disk, where it is shown"
_ONE_PROCESS = "the lock reaches no other process, and no server stands behind it"

SHOWN_ELSEWHERE = {
    "S/X suite": {"storage on S3": _SAME_STORAGE},
    "pulled away": {"memory": _ONE_PROCESS, "storage on S3": _SAME_STORAGE},
}
"""Columns that other tests show, and the rows for which they do not, with the reason."""

COLUMNS_OF_ALL = (*COLUMNS, *SHOWN_ELSEWHERE)
"""What is declared for every row: a cell that no test reported keeps the page from being written."""

_RANK = ("-", "passed", "skipped", "FAILED")
_INTRO = """# Lock matrix

<!-- Written by the tests when all of the matrix ran and passed: `make tests`. Do not edit. -->

What the tests show of every lock provider, each on its real service. A cell is one or more tests, up to fairness of
[the suite that you can run on your own provider](howto-write-a-lock-provider.md). "S/X suite" is that of the data locks,
"pulled away" what becomes of a commit whose lock service is gone or silent in the middle of it.
That Spark jobs in processes of their own lose no update under any of them is shown with Spark, in a table of its own.
"""

Cell = tuple[str, str]


def cells(reports: Iterable[pytest.TestReport]) -> dict[Cell, str]:
    """What happened in each cell. One failure in a cell is a failure, one test that could not run leaves it open."""
    found: dict[Cell, str] = {}
    for report in reports:
        cell = _cell(report)
        if cell is None or (report.when != "call" and report.passed):
            continue
        outcome = "FAILED" if report.failed else "passed" if report.passed else "-" if _why(report) else "skipped"
        found[cell] = max(found.get(cell, "-"), outcome, key=_RANK.index)
    return found


def reasons(reports: Iterable[pytest.TestReport]) -> dict[Cell, str]:
    """Why a test of a cell does not apply to its provider."""
    return {cell: why for report in reports if (cell := _cell(report)) and (why := _why(report))}


def lines(found: Mapping[Cell, str]) -> list[str]:
    """The table as Markdown, providers in rows; what is declared comes first, in its order."""
    rows = _in_order(ROWS, (row for row, _ in found))
    columns = _in_order(COLUMNS_OF_ALL, (column for _, column in found))
    return _markdown(rows, columns, found)


def page(found: Mapping[Cell, str], why: Mapping[Cell, str]) -> str | None:
    """`docs/lock-matrix.md`, if every declared cell was shown or does not apply; None otherwise."""
    notes: dict[str, int] = {}
    shown: dict[Cell, str] = {}
    for cell in ((row, column) for row in ROWS for column in COLUMNS_OF_ALL):
        absent = why.get(cell) or _absent(*cell)
        outcome = found.get(cell, "-" if absent else "")
        if outcome not in ("passed", "-"):
            return None
        if outcome == "-":
            reason = absent
            outcome = f"- ({notes.setdefault(reason, len(notes) + 1)})"
        shown[cell] = outcome
    table = "\n".join(_markdown(ROWS, COLUMNS_OF_ALL, shown))
    footnotes = "\n".join(f"{number}. {reason[:1].upper()}{reason[1:]}." for reason, number in notes.items())
    return f"{_INTRO}\n{table}\n\nWhy a cell is empty:\n\n{footnotes}\n"


def _absent(row: str, column: str) -> str:
    """Why no test is expected to show this cell; empty if one is."""
    if column in SHOWN_ELSEWHERE:
        return SHOWN_ELSEWHERE[column].get(row, "")
    return _ONE_PROCESS if row == IN_PROCESS else ""


def write(found: Mapping[Cell, str], why: Mapping[Cell, str]) -> bool:
    """Write the page if all of the matrix ran and passed and it says something new. Whether it did."""
    text = page(found, why)
    if text is None or not PAGE.parent.is_dir() or (PAGE.exists() and PAGE.read_text() == text):
        return False
    PAGE.write_text(text)
    return True


def _cell(report: pytest.TestReport) -> Cell | None:
    told = next((value for name, value in getattr(report, "user_properties", ()) if name == MARK), None)
    return None if told is None else (str(told[0]), str(told[1]))


def _why(report: pytest.TestReport) -> str:
    """Why its promise means nothing for this provider; empty for whatever else happened."""
    reason = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
    return reason.partition(NOT_FOR_THIS)[2]


def _in_order(declared: Sequence[str], seen: Iterable[str]) -> list[str]:
    names = dict.fromkeys(seen)
    return [name for name in declared if name in names] + [name for name in names if name not in declared]


def _markdown(rows: Iterable[str], columns: Iterable[str], cells: Mapping[Cell, str]) -> list[str]:
    columns = list(columns)
    table = [["provider", *columns], ["---"] * (len(columns) + 1)]
    table += [[row, *(cells.get((row, column), "") for column in columns)] for row in rows]
    return [f"| {' | '.join(row)} |" for row in table]
