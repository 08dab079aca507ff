"""The table of the lock matrix: provider x property -> passed, made from the results of all passes of the tests.

`python -m tests.integration.matrix FILE...` reads JUnit files, prints the table, and with `FULL=1` writes it to
`docs/lock-matrix.md` when every cell was shown. A cell of a sample (`tests/sampling.py`) rests on a part of its tests.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from tests.servers import SERVICES, Service
from tests.servers.locks.s3_storage import s3_storage_service

from lakelock.testing.lock_suite import COLUMNS, NOT_FOR_THIS

_PROPERTY = "lock_matrix"
_BETWEEN = ": "

IN_PROCESS = "memory"
SERVICES_OF_ROWS: dict[str, Callable[[Path], AbstractContextManager[Service]]] = {
    "storage": SERVICES["storage"],
    "storage on S3": s3_storage_service,
    **SERVICES,
}
START_SOON = SERVICES.keys() - {"hive_metastore"}
"""A metastore takes some twenty seconds to start, in each process that needs one."""
Services = Callable[[str], Service]
"""A running service by its row: the fixture `services`."""

ROWS = (IN_PROCESS, *SERVICES_OF_ROWS)
PAGE = Path(__file__).parents[2] / "docs" / "lock-matrix.md"

_NO_HADOOP = "Spark itself reads S3 by hadoop-aws, which PySpark does not ship; the engine without Spark is shown there"
_ONE_PROCESS = "the lock reaches no other process, and no server stands behind it"

SHOWN_ELSEWHERE: dict[str, dict[str, str]] = {
    "pulled away": {IN_PROCESS: _ONE_PROCESS},
    "Spark writers": {IN_PROCESS: _ONE_PROCESS, "storage on S3": _NO_HADOOP},
}
"""Columns that other tests show, and the rows for which they do not, with the reason."""

COLUMNS_OF_ALL = (*COLUMNS, *SHOWN_ELSEWHERE)
"""What is declared for every row: a cell that no test reported keeps the page from being written."""

_RANK = ("-", "passed", "skipped", "FAILED")
_INTRO = """# Lock matrix

<!-- Written when all of the matrix ran and passed: `make tests FULL=1` or `tox -m integration`. Do not edit. -->

What the tests show of every lock provider, each on its real service. A cell is one or more tests, up to fairness of
[the suite that you can run on your own provider](howto-write-a-lock-provider.md). "Pulled away"
is what becomes of a commit whose lock service is gone or silent in the middle of it, "Spark writers" that Spark jobs in
processes of their own lose no update. The demo, whose writers are killed, ends with all readers agreeing: on the default
lock in CI, on every other one in the long form (`FULL=1`).
"""

Cell = tuple[str, str]


def mark(test: pytest.Item, row: str, column: str) -> None:
    """Say in the results of this test which cell of the matrix it is."""
    test.user_properties.append((_PROPERTY, f"{row}{_BETWEEN}{column}"))


def results(paths: Iterable[str]) -> Iterator[Element]:
    """Every test in these JUnit files."""
    for path in paths:
        yield from ElementTree.parse(path).iter("testcase")


def cells(tests: Iterable[Element]) -> dict[Cell, str]:
    """What happened in each cell. One failure in a cell is a failure, one test that could not run leaves it open."""
    found: dict[Cell, str] = {}
    for test in tests:
        cell = _cell(test)
        if cell is not None:
            found[cell] = max(found.get(cell, "-"), _outcome(test), key=_RANK.index)
    return found


def reasons(tests: Iterable[Element]) -> dict[Cell, str]:
    """Why a test of a cell does not apply to its provider."""
    return {cell: why for test in tests if (cell := _cell(test)) and (why := _why(test))}


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
        note = absent if outcome == "-" else why.get(cell)
        shown[cell] = f"{outcome} ({notes.setdefault(note, len(notes) + 1)})" if note else outcome
    table = "\n".join(_markdown(ROWS, COLUMNS_OF_ALL, shown))
    footnotes = "\n".join(f"{number}. {reason[:1].upper()}{reason[1:]}." for reason, number in notes.items())
    return f"{_INTRO}\n{table}\n\nWhy a cell is empty, or rests on fewer tests than the others of its column:\n\n{footnotes}\n"


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


def _cell(test: Element) -> Cell | None:
    told = next((each.get("value", "") for each in test.iter("property") if each.get("name") == _PROPERTY), None)
    if told is None:
        return None
    row, _, column = told.partition(_BETWEEN)
    return row, column


def _outcome(test: Element) -> str:
    if test.find("failure") is not None or test.find("error") is not None:
        return "FAILED"
    if test.find("skipped") is not None:
        return "-" if _why(test) else "skipped"
    return "passed"


def _why(test: Element) -> str:
    """Why its promise means nothing for this provider; empty for whatever else happened."""
    skipped = test.find("skipped")
    return "" if skipped is None else skipped.get("message", "").partition(NOT_FOR_THIS)[2]


def _in_order(declared: Sequence[str], seen: Iterable[str]) -> list[str]:
    names = dict.fromkeys(seen)
    return [name for name in declared if name in names] + [name for name in names if name not in declared]


def _markdown(rows: Iterable[str], columns: Iterable[str], cells: Mapping[Cell, str]) -> list[str]:
    columns = list(columns)
    table = [["provider", *columns], ["---"] * (len(columns) + 1)]
    table += [[row, *(cells.get((row, column), "") for column in columns)] for row in rows]
    return [f"| {' | '.join(row)} |" for row in table]


def main(paths: Sequence[str]) -> None:
    tests = list(results(paths))
    found = cells(tests)
    if found:
        print(" lock matrix ".center(80, "="), *lines(found), sep="\n")
        if os.environ.get("FULL") and write(found, reasons(tests)):
            print(f"wrote {PAGE}")


if __name__ == "__main__":
    main(sys.argv[1:])
