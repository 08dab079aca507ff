"""Java cleans and archives a table that lakelock is writing: nothing of lakelock is disturbed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.interop.shared import TIDIED, Shared

Share = Callable[..., Shared]

EAGERLY = {
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.archive.automatic": "true",
}


@pytest.mark.in_ci
@pytest.mark.sampled(promise=TIDIED)
def test_java_cleans_and_archives_beside_a_transaction_of_lakelock_and_both_write_on(share: Share) -> None:
    table = share()
    engine, coordinator = table.engine(), table.coordinator()
    first = engine.insert(table.rows(("a", 0, "eu"), ("b", 0, "us")))
    table.put(("a", 0, "eu"), ("b", 0, "us"))
    table.agree()
    decisions = sorted((Path(table.path) / ".hoodie" / ".lakelock" / "decisions").iterdir())
    with coordinator.begin("UPSERT") as tx:
        for number in range(1, 6):
            table.java_write("upsert", ("a", number, "eu"), **EAGERLY)
            table.put(("a", number, "eu"))
        table.agree()
        # The transaction holds the archive back: what it has to judge is still on the timeline.
        assert len(table.instants(".commit")) >= 6
        engine.upsert_in(tx, table.rows(("b", 1, "us"), ("c", 1, "us")))
    table.put(("b", 1, "us"), ("c", 1, "us"))
    table.agree()
    for number in range(6, 9):
        table.java_write("upsert", ("a", number, "eu"), **EAGERLY)
        table.put(("a", number, "eu"))
        engine.upsert(table.rows(("b", number, "us")))
        table.put(("b", number, "us"))
        table.agree()
    assert not [name for name in table.instants(".commit") if name.startswith(first.instant)], "nothing was archived"
    assert table.instants(".clean")
    assert set(decisions) <= set((Path(table.path) / ".hoodie" / ".lakelock" / "decisions").iterdir())
    assert coordinator.outcome(first.instant).value == "committed"
    assert coordinator.reap() == []


@pytest.mark.in_ci
def test_an_erased_row_stays_in_old_files_until_java_cleans_them(share: Share) -> None:
    table = share()
    engine = table.engine()
    engine.insert(table.rows(("a", 0, "eu"), ("b", 0, "eu")))
    engine.delete(table.rows(("b", 0, "eu")).select(["id", "region"]))
    table.put(("a", 0, "eu"))
    table.agree()
    assert "b" in in_any_file(table), "no reader sees it, and it is still there"
    for number in range(3):
        table.java_write("upsert", ("c", number, "us"), **{"hoodie.clean.commits.retained": "1"})
    table.put(("c", 2, "us"))
    table.agree()
    assert in_any_file(table) == {"a", "c"}


def in_any_file(table: Shared) -> set[str]:
    """The keys of all rows in all data files of the table, whether readers see them or not."""
    files = [pq.read_table(file, columns=["id"], partitioning=None) for file in Path(table.path).rglob("*.parquet")]
    return {key for file in files for key in file.column("id").to_pylist()}
