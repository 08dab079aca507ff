"""Spark reads and changes tables in which the engine did again only what collided."""

from __future__ import annotations

from tests.api import LocalStorage
from tests.behaviour.redo.test_redo import MONTHS, Watched, base, engine, everywhere, rows

from lakelock.spark_plugin import LakeTable


def test_spark_reads_and_changes_what_a_redo_of_the_engine_left(spark, path):
    """Files that a redo took over bear its instant, so `changes` finds their rows, and filters on it are exact."""
    schema = spark.createDataFrame([], "id string, v bigint, month string").schema
    table = LakeTable.create(spark, path, schema=schema, key="id", partition_by="month", application="here")
    storage = LocalStorage(path)
    engine(storage).insert(rows(*((key, 1, month) for month in MONTHS for key in "ab")))
    before: list[str] = []
    other = Watched(written_2=lambda: before.append(engine(storage).upsert(rows(("a", 7, "3"))).instant))
    done = engine(storage, other).upsert(everywhere("b", 2))
    assert (done.attempts, done.files_kept) == (2, 4)
    assert sorted(tuple(row) for row in table.read().collect()) == base(b=2, a3=7)
    stamped = table.read(include_meta=True)
    assert stamped.where(f"_hoodie_commit_time = '{done.instant}'").count() == 5
    assert {row.id for row in table.changes(since=before[0]).collect()} == {"b"}
    table.upsert(spark.createDataFrame([("b", 3, "1"), ("c", 3, "2")], schema))
    assert sorted(tuple(row) for row in table.read().collect()) == sorted([*base(b=2, a3=7, b1=3), ("c", 3, "2")])
    (newest, redo, *_) = table.history(full=True).select("files", "files_kept").collect()
    assert (newest.files_kept, tuple(redo)) == (0, (5, 4))
