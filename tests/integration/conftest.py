"""The matrix of providers and properties is told at the end of the session."""

from __future__ import annotations

import pytest

from tests.integration.matrix import cells, lines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for reports in terminalreporter.stats.values() for report in reports if hasattr(report, "when")]
    found = cells(reports)
    if found:
        terminalreporter.section("lock matrix")
        for line in lines(found):
            terminalreporter.write_line(line)
