"""Importing pandas takes a second, and most processes that import lakelock need none of it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["lakelock.cli.main", "lakelock.engine", "lakelock.occ.coordinator"])
def test_whoever_imports_lakelock_does_not_import_pandas(module: str) -> None:
    command = [sys.executable, "-c", f"import sys, {module}; print('pandas' in sys.modules)"]
    assert subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout == "False\n"
