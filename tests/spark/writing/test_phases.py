"""The result of a write by Spark says where its time went."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from pyspark.sql import SparkSession
from tests.api import Coordinator, Event, EventKind, StorageLocation
from tests.sizes import in_ci

from lakelock.spark_plugin import LakeTable

PHASES = ["look-up", "shuffle", "write", "lock-wait", "validate", "publish"]

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.mark.parametrize("index", [None, *in_ci("global")])
def test_the_phases_of_an_upsert_are_all_told_and_add_up_to_no_more_than_it_took(
    spark: SparkSession, path: str, index: str | None
) -> None:
    rows = spark.createDataFrame([(1, "a", 1), (2, "b", 2)], "id long, p string, v long")
    LakeTable.create(spark, path, schema=rows, key="id", partition_by="p", index=index).upsert(rows)
    holder, held = Coordinator.open(StorageLocation.of(path), application="holder"), ExitStack()

    def let_go(event: Event) -> None:
        if event.kind is EventKind.WAITING_FOR_LOCK:
            held.close()

    table = LakeTable.for_path(spark, path, listeners=[let_go])
    with held:
        held.enter_context(holder.table.locked())
        result = table.upsert(rows)
    assert list(result.phases) == PHASES
    assert sum(result.phases.values()) <= result.took_s + 0.001 * len(PHASES)
    # The phase also has what was asked while the lock was taken.
    assert result.lock_wait_s - 0.001 <= result.phases["lock-wait"] < result.lock_wait_s + 1
    before_the_decision = {name: took_s for name, took_s in result.phases.items() if name != "publish"}
    assert all(took_s > 0 for took_s in before_the_decision.values())
    (newest,) = [row for row in table.history(full=True).collect() if row["instant"] == result.instant]
    assert newest["phases"].keys() == before_the_decision.keys()
    assert sum(newest["phases"].values()) <= newest["took_s"] + 0.001 * len(PHASES)
