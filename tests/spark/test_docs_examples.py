"""The examples in README and how-tos run as they stand, but for the folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
EXAMPLES = {
    "README.md": "/tmp",
    "docs/howto-stream-and-backfill.md": "/tmp/shop",
    "docs/howto-read-a-conflict.md": "/tmp/conflicts",
    "docs/howto-change-rows.md": "/tmp/shop",
    "docs/howto-change-columns.md": "/tmp/columns",
    "docs/howto-choose-isolation.md": "/tmp/isolation",
    "docs/howto-change-feed.md": "/tmp/cdc",
    "docs/howto-coming-from-delta.md": "/tmp/moved",
    "docs/howto-coming-from-hudi.md": "/tmp/moved",
    "docs/howto-small-files-and-mistakes.md": "/tmp/upkeep",
}

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.mark.parametrize("page", EXAMPLES)
def test_the_python_of_a_page_runs_from_top_to_bottom(page: str, spark: SparkSession, tmp_path: Path) -> None:
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks and any(EXAMPLES[page] in block for block in blocks)
    names: dict[str, object] = {}
    try:
        for block in blocks:
            exec(compile(block.replace(EXAMPLES[page], str(tmp_path)), page, "exec"), names)
    finally:
        for query in spark.streams.active:
            query.stop()
