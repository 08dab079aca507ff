"""The wheel, and environments that hold it and nothing that was not asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
LINKED = ("configs", "markers", "occ", "providers", "spark_plugin")
"""The folders at the top that `src/lakelock` has links to."""
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
# What would lead a process out of its environment: other packages, another Python for Spark's workers, another Spark.
_LEADS_OUT = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV", "COV_", "AWS_")


def clean_environ(**more: str) -> dict[str, str]:
    """The variables of this process without those by which it would find packages of elsewhere."""
    return {key: value for key, value in os.environ.items() if not key.startswith(_LEADS_OUT)} | more


def run(*command: str | Path, cwd: Path, code: int | None = 0, **more: str) -> str:
    """What a command prints, with its errors if any exit code will do."""
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=clean_environ(**more), capture_output=True, text=True, timeout=280, check=False
    )
    assert code is None or done.returncode == code, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout if code == 0 else done.stdout + done.stderr


def build_wheel(tree: Path, out: Path) -> Path:
    """The wheel, built from a copy so that nothing of an earlier build gets in and nothing is left in the tree."""
    for folder in ("src", *LINKED):
        shutil.copytree(ROOT / folder, tree / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    run(*_PIP, "wheel", "--quiet", "--no-deps", "--wheel-dir", out, tree, cwd=out)
    (built,) = out.glob("lakelock-*.whl")
    return built


def new_environment(folder: Path, *requirements: str | Path) -> Path:
    """An environment that holds the requirements and what these ask for; its interpreter."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    return add(folder, *requirements)


def extended(folder: Path, of: Path, *requirements: str | Path) -> Path:
    """A copy of the environment `of`, whose files it shares, with more requirements; its interpreter."""
    shutil.copytree(of, folder, symlinks=True, copy_function=os.link)
    return add(folder, *requirements)


def add(folder: Path, *requirements: str | Path) -> Path:
    python = folder / "bin" / "python"
    run(*_PIP, "--python", python, "install", "--quiet", "--no-compile", *requirements, cwd=folder)
    return python
