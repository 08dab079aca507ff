"""The map of the code, read from the code: which package is for what, and who imports whom."""

from __future__ import annotations

import ast
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"
_CORE = "lakelock"
_IN_CORE = ("settings", "storage")
"""Folders that are as low as the modules beside them."""
_FRONT_DOOR = "lakelock.tables"
"""A module of that folder that is above the packages."""


def folders() -> dict[str, Path]:
    """Each package and its folder below `src`. The links to the folders at the top are followed."""
    found = {}
    for place, below, files in os.walk(SOURCES, followlinks=True):
        below[:] = sorted(name for name in below if name.isidentifier() and name != "__pycache__")
        if "__init__.py" in files:
            found[".".join(Path(place).relative_to(SOURCES).parts)] = Path(place)
    return found


def purpose(folder: Path) -> str:
    """The first line of the package's docstring."""
    doc = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    return doc.split("\n\n")[0].replace("\n", " ")


def top(module: str, homes: Mapping[str, Path]) -> str:
    """The top-level package of a module: `lakelock.occ` for `lakelock.occ.recovery`, `lakelock` for the core."""
    name = ".".join(module.split(".")[:2])
    if name == _FRONT_DOOR:
        return name
    return name if name in homes and name.removeprefix("lakelock.") not in _IN_CORE else _CORE


def imported(path: Path) -> Iterator[str]:
    """The modules of lakelock that one file imports; not those that only the type checker imports."""
    tree = ast.parse(path.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == _CORE)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == _CORE:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def arrows() -> dict[str, dict[str, int]]:
    """How many imports lead from one top-level package to another."""
    homes = folders()
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for package, folder in homes.items():
        for path in sorted(folder.glob("*.py")):
            source = "pyspark_lakelock" if package == "pyspark_lakelock" else top(f"{package}.{path.stem}", homes)
            for module in imported(path):
                target = top(module, homes)
                if target != source:
                    found[source][target] += 1
    return found


def levels(found: Mapping[str, Mapping[str, int]]) -> list[list[str]]:
    """Packages from top to bottom: each imports only packages of later levels. `ValueError` names a circle."""
    left = {*found, *(target for targets in found.values() for target in targets)}
    depth: dict[str, int] = {}
    while left:
        ready = {name for name in left if not left & set(found.get(name, {}))}
        if not ready:
            raise ValueError(f"these packages import each other: {', '.join(sorted(left))}")
        for name in ready:
            depth[name] = 1 + max((depth[target] for target in found.get(name, {})), default=-1)
        left -= ready
    return [sorted(name for name in depth if depth[name] == level) for level in range(max(depth.values()), -1, -1)]


def picture() -> str:
    """The layers as a Mermaid diagram. An arrow that a longer way implies is left out."""
    found = arrows()
    rows = levels(found)

    def reachable(name: str) -> set[str]:
        direct = set(found.get(name, {}))
        return direct.union(*(reachable(target) for target in direct))

    lines = ["```mermaid", "flowchart TD"]
    for row in rows:
        lines += [f'    {_node(name)}["{_label(name)}"]' for name in row]
    for name in (name for row in rows for name in row):
        direct = set(found.get(name, {}))
        implied = set().union(*(reachable(target) for target in direct))
        lines += [f"    {_node(name)} --> {_node(target)}" for target in sorted(direct - implied)]
    return "\n".join([*lines, "```"])


def packages() -> list[tuple[str, str, str]]:
    """Each package: folder, import name, purpose."""
    return [
        (f"`{folder.resolve().relative_to(ROOT)}/`", f"`{package}`", purpose(folder)) for package, folder in folders().items()
    ]


def modules(folder: Path) -> list[tuple[str, str]]:
    """Each module of one folder: its name, and the first sentence of its docstring."""
    found = []
    for path in sorted(folder.glob("*.py")):
        doc = ast.get_docstring(ast.parse(path.read_text())) or ""
        if path.name not in ("__init__.py", "__main__.py"):
            found.append((f"`{path.stem}`", doc.split("\n\n")[0].replace("\n", " ")))
    return found


def _node(name: str) -> str:
    return name.replace("lakelock.", "") if name != _CORE else "core"


def _label(name: str) -> str:
    return "lakelock (core)" if name == _CORE else name
