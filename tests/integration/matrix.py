"""The table of the lock matrix: provider x property -> passed, made from the reports of its tests."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

MARK = "lock_matrix"
"""The user property of a report that says which cell it is: [provider, property]."""


def cells(reports: Iterable[pytest.TestReport]) -> dict[tuple[str, str], str]:
    """What happened in each cell. One failure in a cell is a failure, whatever else passed there."""
    found: dict[tuple[str, str], str] = {}
    for report in sorted(reports, key=lambda report: report.location[1] or 0):
        cell = next((value for name, value in getattr(report, "user_properties", ()) if name == MARK), None)
        if cell is None or (report.when != "call" and report.passed):
            continue
        key = (str(cell[0]), str(cell[1]))
        if report.failed or found.get(key) == "FAILED":
            found[key] = "FAILED"
        elif report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            found.setdefault(key, "-" if "has no server" in reason else "skipped")
        else:
            found[key] = "passed"
    return found


def lines(found: dict[tuple[str, str], str]) -> list[str]:
    """The table as Markdown, providers in rows."""
    providers, properties = (list(dict.fromkeys(key[part] for key in found)) for part in (0, 1))
    rows = [["provider", *properties], ["---"] * (len(properties) + 1)]
    rows += [[provider, *(found.get((provider, each), "") for each in properties)] for provider in providers]
    return [f"| {' | '.join(row)} |" for row in rows]
