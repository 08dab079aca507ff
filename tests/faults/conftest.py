"""The table that each test of faults gets a copy of."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.faults.world import make_table


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_table(tmp_path_factory.mktemp("template"))


@pytest.fixture
def path(template: str, tmp_path: Path) -> str:
    copy = str(tmp_path / "table")
    shutil.copytree(template, copy)
    return copy
