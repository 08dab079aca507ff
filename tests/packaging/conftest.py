"""One wheel for all tests of the packaging, and an environment with it and no extra."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.packaging.environments import build_wheel, new_environment


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def clean_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel and what it depends on, without any extra."""
    return new_environment(tmp_path_factory.mktemp("clean") / "env", wheel)
