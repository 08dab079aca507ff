"""The page of what conflicts with what, by the operations of the engine without Spark; with Spark: tests/spark/at_once."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest
from tests import conflict_pairs
from tests.api import ArrowEngine, Committed, LocalStorage, Transaction
from tests.behaviour.tables import writer
from tests.conflict_pairs import Side

OPERATIONS = ["INSERT", "UPSERT", "UPDATE", "MERGE", "OVERWRITE"]


def does(path: Path, operation: str, side: Side) -> None:
    marked = (pc.field("month") == side.month) & (pc.field("g") == side.mark)
    with writer(LocalStorage(path)) as coordinator:
        engine = ArrowEngine(coordinator)

        def merge(tx: Transaction) -> Committed:
            """A merge by a condition is a read by it, and rows that follow from what was read."""
            found = engine.read_in(tx, marked)
            assert found.num_rows == 1
            return engine.upsert_in(tx, side.upserted)

        if operation == "UPDATE":
            assert engine.delete(marked).rows_deleted == 1
        elif operation == "MERGE":
            engine.run(merge)
        elif operation == "OPTIMIZE":
            assert engine.optimize(partition=f"month={side.month}").commits
        elif operation == "OVERWRITE":
            engine.overwrite_partitions(side.brought)
        else:
            {"INSERT": engine.insert, "UPSERT": engine.upsert}[operation](
                side.inserted if operation == "INSERT" else side.upserted
            )


@pytest.mark.parametrize("in_buckets", [False, True], ids=["without-index", "bucket"])
def test_each_pair_ends_as_the_page_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_buckets: bool) -> None:
    operations = OPERATIONS if in_buckets else [*OPERATIONS, "OPTIMIZE"]
    count, wrong = conflict_pairs.wrong_pairs(monkeypatch, tmp_path, does, operations, in_buckets=in_buckets)
    assert count > 100 and wrong == []
