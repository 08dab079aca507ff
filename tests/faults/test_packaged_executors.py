"""Executors on a Spark cluster whose Python has no package at all get lakelock from the archive of `lakelock package`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.spark.processes import ROOT, short_lived_jvms

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: a host name for each executor"),
]
WITHIN_S = 240


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> dict:
    command = [str(Path(sys.executable).with_name("lakelock")), "package", "--json"]
    folder = tmp_path_factory.mktemp("packed")
    return json.loads(subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=WITHIN_S).stdout)


def job(python: Path, *arguments: str) -> dict:
    short_lived_jvms()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable}
    command = [sys.executable, "-m", "tests.faults.packaged_job", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.in_ci
def test_the_conf_that_the_command_prints_brings_lakelock_to_the_executors(
    bare_python: Path, packed: dict, tmp_path: Path
) -> None:
    answer = job(bare_python, str(tmp_path), str(tmp_path / "table"), json.dumps(packed["spark"]))
    assert answer == {"ids": [f"n{i}" for i in range(6)]}


@pytest.mark.long
def test_without_it_the_error_names_the_command(bare_python: Path, tmp_path: Path) -> None:
    answer = job(bare_python, str(tmp_path), str(tmp_path / "table"))
    assert "the Spark executors cannot import" in answer["problem"]
    assert "`lakelock package`" in answer["hint"]


@pytest.mark.in_ci
def test_the_archive_says_what_is_in_it_and_has_no_spark_of_its_own(packed: dict) -> None:
    with tarfile.open(packed["file"]) as archive:
        folders = {name.partition("/")[0] for name in archive.getnames()}
    assert folders >= {"lakelock", "pyarrow", "numpy", "pandas", "fastavro", "obstore"}
    assert not folders & {"pyspark", "py4j", "pytest", "pyspark_lakelock.py"}
    assert packed["python"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert {each.partition(" ")[0] for each in packed["packages"]} >= {"lakelock", "pandas", "pyarrow", "packaging"}


@pytest.mark.in_ci
def test_a_file_that_exists_is_left_as_it_is(packed: dict) -> None:
    size = Path(packed["file"]).stat().st_size
    command = [str(Path(sys.executable).with_name("lakelock")), "package", packed["file"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert (done.returncode, Path(packed["file"]).stat().st_size) == (2, size)
    assert "exists" in done.stderr and "remove it, or name another file" in done.stderr
