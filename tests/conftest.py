"""Rules for all tests: what needs Java, and what must not run beside each other."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

_SPARK_FOLDER = Path(__file__).parent / "spark"


def _java_is_there() -> bool:
    home = os.environ.get("JAVA_HOME")
    return (Path(home) / "bin" / "java").exists() if home else shutil.which("java") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with Spark are marked, run one after the other in one worker, and are skipped without Java, except in CI."""
    skip = pytest.mark.skip(reason="needs Java 17 or newer: apt-get install -y openjdk-17-jre-headless")
    without_java = not _java_is_there() and not os.environ.get("CI")
    for item in items:
        if _SPARK_FOLDER in item.path.parents:
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
            if without_java:
                item.add_marker(skip)
