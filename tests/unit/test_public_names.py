"""Tests use what users may use: no name of the product that starts with an underscore, neither written out nor in a string."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

OF_OTHERS = {
    "_1": "Scala's first half of a pair",
    "_call": "pyarrow has no other way to an expression with random numbers",
    "_collect_as_arrow": "PySpark 3.5: what `toArrow` is since 4.0",
    "_ensure_initialized": "PySpark: the only way to use a JVM that is there",
    "_exit": "os: the way out of a forked process",
    "_gateway": "PySpark: the JVM of a session, for other processes",
    "_jdf": "PySpark: the only way to the metrics of a plan",
    "_jsc": "PySpark: the only way to Hadoop's configuration",
    "_jsparkSession": "PySpark: the only way to Java's session",
    "_jvm": "PySpark: the only way to Java's classes",
    "_origin": "PySpark 3.5: the Java error behind one of its own",
    "_replace": "named tuples: public, in spite of its name",
}
"""Names that are not the product's."""
BY_NAME = {"getattr", "hasattr", "setattr", "delattr", "delitem"}
"""Functions, and methods of `monkeypatch`, that take the name of an attribute as a string."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OF_OTHERS


def private_names(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of each private attribute of another object than `self` and `cls`, and of each private import."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in BY_NAME:
            texts = [given.value for given in node.args if isinstance(given, ast.Constant) and isinstance(given.value, str)]
            names = [name for text in texts for name in text.split(".")]
        yield from ((node.lineno, name) for name in names if is_private(name))


def test_no_test_reaches_into_private_names() -> None:
    found = [
        f"{path.relative_to(TESTS.parent)}:{line}: {name}"
        for path in sorted(TESTS.rglob("*.py"))
        for line, name in private_names(path.read_text())
    ]
    assert found == [], "\n".join(found)


def test_each_exception_is_used() -> None:
    text = "".join(path.read_text() for path in TESTS.rglob("*.py") if path != Path(__file__))
    assert [name for name in OF_OTHERS if f".{name}" not in text and f'"{name}"' not in text] == []


@pytest.mark.parametrize(
    "source",
    [
        "provider._session.stop()",
        "from lakelock.table.parquet_footers import _positions",
        "from lakelock._private import name",
        'monkeypatch.setattr(Commit, "_decide", decide)',
        'monkeypatch.setattr("lakelock.table.writer._BYTES", 1)',
        'getattr(writer, "_held", None)',
    ],
)
def test_a_private_name_is_found_however_it_is_written(source: str) -> None:
    assert len(list(private_names(source))) == 1
    assert not list(private_names("self._own = cls._made; world._replace(a=1); x.__name__; os._exit(0)"))
