"""Java cleans and archives a table that lakelock is writing: nothing of lakelock is disturbed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.interop.shared import Shared

Share = Callable[..., Shared]

EAGERLY = {
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.archive.automatic": "true",
}


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
        table.agree()
        engine.upsert(table.rows(("b", number, "us")))
        table.put(("b", number, "us"))
        table.agree()
    assert not [name for name in table.instants(".commit") if name.startswith(first.instant)], "nothing was archived"
    assert table.instants(".clean")
    assert set(decisions) <= set((Path(table.path) / ".hoodie" / ".lakelock" / "decisions").iterdir())
    assert coordinator.outcome(first.instant).value == "committed"
    assert coordinator.reap() == []
