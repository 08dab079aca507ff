"""What the import linter cannot say: the root package is below all the others, and each folder is reached by one name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "cli",
    "configs",
    "data_locks",
    "demo",
    "markers",
    "occ",
    "providers",
    "simulator",
    "spark_plugin",
    "table",
    "testing",
)


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", sorted((ROOT / "core").glob("*.py")), ids=lambda path: path.name)
def test_the_core_knows_none_of_the_packages_above_it(path: Path) -> None:
    above = tuple(f"lakelock.{package}" for package in PACKAGES)
    assert [name for name in imported(path) if name.startswith((*above, "pyspark"))] == []
