"""What the import linter cannot say: the root package is below all the others, and there is no circle of modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import lakelock

ROOT = Path(__file__).parents[2]
CORE = ROOT / "src" / "lakelock"
LOW = ("settings", "storage")
"""Folders of the core: all other folders are above it."""
ABOVE = {"__init__.py", "tables.py"}
"""The front door, which is above all packages as the command line is; nothing of the core imports it."""
PACKAGES = sorted(each.parent.name for each in CORE.glob("*/__init__.py") if each.parent.name not in LOW)


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", sorted(p for p in CORE.glob("*.py") if p.name not in ABOVE), ids=lambda path: path.name)
def test_the_core_knows_none_of_the_packages_above_it(path: Path) -> None:
    above = tuple(f"lakelock.{package}" for package in (*PACKAGES, "tables"))
    assert [name for name in imported(path) if name.startswith((*above, "pyspark"))] == []


def texts(path: Path) -> Iterator[str]:
    """The strings of a module that are not docstrings."""
    tree = ast.parse(path.read_text(), str(path))
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.value


def test_keys_of_a_tables_metadata_are_spelt_in_the_layout_only() -> None:
    """`storage/base.py` names the folder, because listings of every storage leave it out; the layout builds on that."""
    folders = [each for each in CORE.iterdir() if each.is_dir()]
    modules = {path for folder in folders for path in folder.resolve().rglob("*.py")}
    spelt = {path.relative_to(ROOT).as_posix() for path in modules if any(".hoodie" in text for text in texts(path))}
    assert spelt == {"src/lakelock/storage/base.py"}


def test_no_modules_import_each_other_not_even_late_or_for_their_types() -> None:
    (root,) = map(Path, lakelock.__path__)
    modules = {".".join(("lakelock", *path.relative_to(root).with_suffix("").parts)): path for path in root.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}
    order = TopologicalSorter[str]()
    for name, path in modules.items():
        found = set(imported(path)) & set(modules) - {name}
        # To import a module from a package is not to import what the package offers.
        order.add(name, *(one for one in found if not any(other.startswith(f"{one}.") for other in found)))
    order.prepare()
