"""The wheel holds every module of the tree and nothing else, and works where nothing else is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOMES = {
    folder: package.replace(".", "/")
    for package, folder in re.findall(r'^"?([\w.]+)"? = "([\w/]+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    if package.startswith(("lakelock", "pyspark_lakelock"))
}
"""Each folder and its place in the wheel, as the map of packages says it."""
# What needs an extra, and what is a program and would run.
_NOT_ALONE = re.compile(r"lakelock.(spark_plugin|demo|simulator|testing)|pyspark_lakelock|.*__main__")
_IMPORT = (
    "import importlib, sys, lakelock; [importlib.import_module(name) for name in sys.argv[1:]]; print(lakelock.__version__)"
)


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that nothing of an earlier build gets in and nothing is left in the tree."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for folder in HOMES:
        if "/" not in folder:
            shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out, tree, cwd=out)
    (built,) = out.glob("lakelock-*.whl")
    return built


@pytest.fixture(scope="module")
def clean_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel and what it depends on, without any extra."""
    environment = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", environment, cwd=environment)
    python = environment / "bin" / "python"
    run(python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", wheel, cwd=environment)
    return python


def expected_files() -> set[str]:
    files: set[str] = set()
    for folder, home in HOMES.items():
        for path in (ROOT / folder).iterdir():
            if path.suffix in (".py", ".java") or path.name == "py.typed" or (folder == "configs" and path.suffix == ".toml"):
                files.add(f"{home}/{path.name}")
    return files


def test_every_folder_with_python_files_is_a_package_of_the_wheel() -> None:
    hidden = {"tests", "benchmarks", "docs", "build", "dist"}
    folders = {
        path.parent.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if not any(part.startswith(".") or part in hidden for part in path.relative_to(ROOT).parts)
    }
    assert folders - {"."} == set(HOMES)


def test_the_wheel_holds_exactly_the_modules_of_the_tree(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == expected_files()
    assert {"lakelock/py.typed", "pyspark_lakelock/py.typed", "lakelock/configs/default.toml"} <= packed


def test_the_wheel_carries_licence_and_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (licence,) = [name for name in archive.namelist() if name.endswith("licenses/LICENSE")]
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        (scripts,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        assert "END OF TERMS AND CONDITIONS" in archive.read(licence).decode()
        assert "License-Expression: Apache-2.0" in archive.read(metadata).decode()
        assert "lakelock = lakelock.cli.main:app" in archive.read(scripts).decode()


@pytest.mark.slow
def test_everything_but_spark_works_without_any_extra(clean_python: Path, tmp_path: Path) -> None:
    modules = [name.removesuffix(".py").removesuffix("/__init__") for name in sorted(expected_files()) if name.endswith(".py")]
    alone = [name.replace("/", ".") for name in modules if not _NOT_ALONE.match(name)]
    assert "lakelock.occ.coordinator" in alone
    version = run(clean_python, "-c", _IMPORT, *alone, cwd=tmp_path).strip()
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.slow
def test_the_command_line_starts_without_any_extra(clean_python: Path, tmp_path: Path) -> None:
    shown = run(clean_python.parent / "lakelock", "--help", cwd=tmp_path)
    assert "doctor" in shown


@pytest.mark.slow
def test_a_configuration_file_is_found_in_the_installed_package(clean_python: Path, tmp_path: Path) -> None:
    code = "from importlib.resources import files; print((files('lakelock.configs') / 'storage.toml').read_text())"
    assert "[lock]" in run(clean_python, "-c", code, cwd=tmp_path)
