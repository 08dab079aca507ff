"""A PySpark that lakelock does not work with is said at the import."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import lakelock.spark_plugin
from lakelock.errors import LakelockError, UnsupportedSpark
from lakelock.spark_plugin.supported import (
    has_data_sources,
    is_too_old,
    require_supported_pyspark,
    require_supported_spark,
)

IMPORT = """
try:
    import {module}
except ImportError as error:
    print(type(error).__name__, error)
"""


def import_with_pyspark(folder: Path, module: str, version: str | None) -> str:
    """What an import says where PySpark is of this version, or, without one, missing."""
    if version is None:
        blocked = "raise ModuleNotFoundError(\"No module named 'pyspark'\", name='pyspark')"
    else:
        blocked = f"__version__ = {version!r}"
    (folder / "pyspark").mkdir()
    (folder / "pyspark" / "__init__.py").write_text(blocked + "\n")
    code = f"import sys; sys.path.insert(0, {str(folder)!r})" + IMPORT.format(module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


@pytest.mark.parametrize("module", ["lakelock.spark_plugin", "lakelock.spark_plugin.lake_table", "pyspark_lakelock"])
def test_an_older_pyspark_is_named_with_what_is_needed(tmp_path: Path, module: str) -> None:
    said = import_with_pyspark(tmp_path, module, "3.4.4")
    assert said.startswith("UnsupportedSpark lakelock.spark_plugin needs PySpark 3.5 or newer (tried: 3.5, 4.0, 4.1 and 4.3)")
    assert f"found PySpark 3.4.4 in {tmp_path}" in said
    assert "pip install 'lakelock[spark]'" in said


def test_a_missing_pyspark_is_said_with_what_brings_it(tmp_path: Path) -> None:
    said = import_with_pyspark(tmp_path, "lakelock.spark_plugin", None)
    assert said.startswith("UnsupportedSpark") and "which this Python does not have" in said
    assert "pip install 'lakelock[spark]'" in said


@pytest.mark.parametrize(
    ("version", "old"),
    [
        ("3.4.4", True), ("3.3.0-amzn-1", True), ("3.5.9", False), ("3.5.6-amzn-1", False), ("4.0.0.dev2", False),
        ("4.3.0", False), ("10.1", False), ("a fork's own", False),
    ],
)  # fmt: skip
def test_versions_before_3_5_are_too_old(version: str, old: bool) -> None:
    assert is_too_old(version) is old


def test_a_spark_of_another_generation_behind_pyspark_is_refused() -> None:
    own, other = ("4.1.2", "3.5.6") if has_data_sources(pyspark.__version__) else ("3.5.6", "4.1.2")
    require_supported_spark(own)
    for version in (other, "3.4.4"):
        with pytest.raises(UnsupportedSpark, match=rf"JVM runs Spark {version}, for PySpark .*\n.*SPARK_HOME"):
            require_supported_spark(version)


def test_the_error_is_an_import_error_and_travels() -> None:
    require_supported_pyspark()
    error = UnsupportedSpark("too old", hint="newer", found="3.5.9")
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, ImportError) and isinstance(copy, LakelockError)
    assert (str(copy), copy.details) == ("too old\n  next: newer", {"found": "3.5.9"})


@pytest.mark.parametrize("name", lakelock.spark_plugin.__all__)
def test_every_public_name_of_the_spark_plugin_can_be_imported(name: str) -> None:
    assert getattr(lakelock.spark_plugin, name).__name__ == name
