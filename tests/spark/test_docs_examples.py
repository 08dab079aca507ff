"""The examples in README and how-tos run as they stand, but for the folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.sizes import but_in_ci

from lakelock.spark_plugin import LakeTable

ROOT = Path(__file__).parents[2]
EXAMPLES = {
    "README.md": "/tmp",
    "docs/start.md": "/tmp/first",
    "docs/howto-stream-and-backfill.md": "/tmp/shop",
    "docs/howto-conflicts.md": "/tmp/conflicts",
    "docs/howto-change-rows.md": "/tmp/shop",
    "docs/howto-change-columns.md": "/tmp/columns",
    "docs/howto-change-feed.md": "/tmp/cdc",
    "docs/howto-metrics.md": "/tmp/measured",
    "docs/howto-coming-from-delta.md": "/tmp/moved",
    "docs/howto-hudi.md": "/tmp/moved",
    "docs/howto-several-tables.md": "/tmp/several",
    "docs/howto-upkeep.md": "/tmp/upkeep",
}
ABOUT_A_TABLE = ["docs/concepts.md", "docs/reference-errors.md", "docs/reference-providers.md"]
"""Pages whose examples are about a `table` of the reader's at a `path`, and `corrections` for it."""
WITH_A_METASTORE = "docs/howto-names.md"
"""Runs in tests/spark/names, where there is a metastore."""
WITH_A_TERMINAL = "docs/tutorial.md"
"""Runs in test_tutorial.py, with its commands."""
BY_AIRFLOW = "docs/howto-airflow-and-dbt.md"
"""Its DAG runs in tests/integration/test_airflow.py."""
WITHOUT_SPARK = "docs/howto-without-spark.md"
"""Runs in tests/behaviour/front_door, where there is no Spark."""
IN_THE_GUIDE = "docs/howto-write-a-lock-provider.md"
"""Its programs are files of tests/integration/third_party, which run there."""

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.mark.parametrize("page", but_in_ci(EXAMPLES, {"README.md", "docs/start.md", "docs/howto-conflicts.md"}))
def test_the_python_of_a_page_runs_from_top_to_bottom(page: str, spark: SparkSession, tmp_path: Path) -> None:
    blocks = _python(page)
    assert blocks and any(EXAMPLES[page] in block for block in blocks)
    names: dict[str, object] = {}
    try:
        for block in blocks:
            exec(compile(block.replace(EXAMPLES[page], str(tmp_path)), page, "exec"), names)
    finally:
        for query in spark.streams.active:
            query.stop()


@pytest.mark.parametrize("page", ABOUT_A_TABLE)
def test_the_python_about_a_table_of_the_readers_runs(page: str, spark: SparkSession, path: str) -> None:
    corrections = spark.createDataFrame([(1, "a", 1)], "id long, p string, v long")
    table = LakeTable.create(spark, path, schema=corrections, key="id", partition_by="p")
    table.insert(corrections)
    given = {"spark": spark, "table": table, "corrections": corrections, "path": path, "LakeTable": LakeTable}
    for block in _python(page):
        exec(compile(block, page, "exec"), dict(given))
    assert table.read().count() == 1


def test_every_page_with_python_is_run() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {str(page.relative_to(ROOT)) for page in pages if _python(str(page.relative_to(ROOT)))}
    assert shown == {*EXAMPLES, *ABOUT_A_TABLE, BY_AIRFLOW, WITH_A_METASTORE, WITH_A_TERMINAL, WITHOUT_SPARK, IN_THE_GUIDE}


def _python(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
