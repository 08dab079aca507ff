"""Rules for all tests: what starts Spark, and what happens where Java is missing."""

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
    """Everything in tests/spark starts Spark: `make tests` runs it alone. It is skipped without Java, except in CI."""
    skip = pytest.mark.skip(reason="needs Java 17 or newer: apt-get install -y openjdk-17-jre-headless")
    without_java = not _java_is_there() and not os.environ.get("CI")
    for item in items:
        if _SPARK_FOLDER in item.path.parents:
            item.add_marker(pytest.mark.spark)
        if without_java and item.get_closest_marker("spark"):
            item.add_marker(skip)
