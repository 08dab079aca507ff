"""The PySpark of Java Hudi's environment is older than what lakelock works with, and is told so at once."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from lakelock.testing.servers.java_hudi import java_hudi

IMPORT = """
import pyspark
try:
    {statement}
except ImportError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with lakelock and nothing else of this environment, such as `--py-files` would bring it."""
    for package in ("lakelock", "pyspark_lakelock"):
        spec = importlib.util.find_spec(package)
        assert spec is not None and spec.submodule_search_locations
        (tmp_path / package).symlink_to(next(iter(spec.submodule_search_locations)))
    return tmp_path


@pytest.mark.parametrize(
    "statement", ["import lakelock.spark_plugin", "from lakelock.spark_plugin import LakeTable", "import pyspark_lakelock"]
)
def test_pyspark_3_5_is_refused_by_name_at_the_import(installed: Path, statement: str) -> None:
    command = [str(java_hudi().python), "-c", IMPORT.format(statement=statement)]
    env = {"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.startswith("UnsupportedSpark lakelock.spark_plugin needs PySpark 4.0 or newer"), done
    assert "found PySpark 3.5." in done.stdout and "pip install 'lakelock[spark]'" in done.stdout
