"""The wheel holds every module of the tree and nothing else, and works where nothing else is installed."""

from __future__ import annotations

import os
import re
import zipfile
from pathlib import Path

import pytest
from tests.packaging.environments import LINKED, ROOT, SOURCES, run

# What needs an extra, and what is a program and would run.
_NOT_ALONE = re.compile(r"lakelock.(spark_plugin|testing)|pyspark_lakelock|.*__main__")
_IMPORT = (
    "import importlib, sys, lakelock; [importlib.import_module(name) for name in sys.argv[1:]]; print(lakelock.__version__)"
)


def expected_files() -> set[str]:
    """The modules below `src`, with those of the folders that it links to."""
    files: set[str] = set()
    for place, below, names in os.walk(SOURCES, followlinks=True):
        below[:] = [name for name in below if name.isidentifier() and name != "__pycache__"]
        home = Path(place).relative_to(SOURCES)
        packed = (name for name in names if name.endswith((".py", ".java", ".toml")) or name == "py.typed")
        files |= {(home / name).as_posix() for name in packed}
    return files


def test_every_folder_with_python_files_is_a_package_of_the_wheel() -> None:
    files = expected_files()
    assert {str(Path(name).parent / "__init__.py") for name in files if name.endswith(".py")} <= files
    assert {link.name: link.resolve() for link in (SOURCES / "lakelock").iterdir() if link.is_symlink()} == {
        name: ROOT / name for name in LINKED
    }


@pytest.mark.in_ci
def test_the_wheel_holds_exactly_the_modules_of_the_tree(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == expected_files()
    assert {"lakelock/py.typed", "pyspark_lakelock/py.typed", "lakelock/configs/default.toml"} <= packed


@pytest.mark.in_ci
def test_the_wheel_carries_licence_and_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (licence,) = [name for name in archive.namelist() if name.endswith("licenses/LICENSE")]
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        (scripts,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        assert "END OF TERMS AND CONDITIONS" in archive.read(licence).decode()
        assert "License-Expression: Apache-2.0" in archive.read(metadata).decode()
        assert "lakelock = lakelock.cli.start:run" in archive.read(scripts).decode()


@pytest.mark.in_ci
@pytest.mark.slow
def test_everything_but_spark_works_without_any_extra(clean_python: Path, tmp_path: Path) -> None:
    modules = [name.removesuffix(".py").removesuffix("/__init__") for name in sorted(expected_files()) if name.endswith(".py")]
    alone = [name.replace("/", ".") for name in modules if not _NOT_ALONE.match(name)]
    assert "lakelock.occ.coordinator" in alone
    version = run(clean_python, "-c", _IMPORT, *alone, cwd=tmp_path).strip()
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.in_ci
@pytest.mark.slow
def test_the_command_line_starts_without_any_extra(clean_python: Path, tmp_path: Path) -> None:
    shown = run(clean_python.parent / "lakelock", "--help", cwd=tmp_path)
    assert "doctor" in shown


@pytest.mark.in_ci
@pytest.mark.slow
def test_a_configuration_file_is_found_in_the_installed_package(clean_python: Path, tmp_path: Path) -> None:
    code = "from importlib.resources import files; print((files('lakelock.configs') / 'storage.toml').read_text())"
    assert "[lock]" in run(clean_python, "-c", code, cwd=tmp_path)
