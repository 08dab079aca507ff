"""The examples about tables without Spark run where there is no Spark: neither Java nor the package is touched."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NO_SPARK = "import sys; sys.modules['pyspark'] = None\n"
"""With it, `import pyspark` is an ImportError."""


def python_of(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", NO_SPARK + code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_program_of_the_page_runs_without_spark(tmp_path: Path) -> None:
    blocks = python_of("docs/howto-without-spark.md")
    assert len(blocks) > 4
    run("\n".join(blocks).replace("/tmp/plain", str(tmp_path)))


def test_the_example_of_the_readme_runs_without_spark(tmp_path: Path) -> None:
    (block,) = [block for block in python_of("README.md") if "lakelock.create" in block]
    assert len(block.splitlines()) <= 5
    run(block.replace("/tmp", str(tmp_path)))


@pytest.mark.parametrize("name", ["LakeTable"])
def test_the_error_of_a_name_that_needs_spark_says_how_to_get_it(name: str) -> None:
    said = run(f"try:\n    from lakelock import {name}\nexcept ImportError as error:\n    print(error)")
    assert "pip install 'lakelock[spark]'" in said
