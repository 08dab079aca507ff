"""Keys that are in one place each, in a table of Java Hudi with a record index: it is asked instead of opening files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.api import Event, EventKind, FileGroupId, TableIO, Timeline
from tests.behaviour.beside_java.test_record_index import by_files, index
from tests.golden_tables import unpack

from lakelock.occ import transaction
from lakelock.spark_plugin import LakeTable

OPTIONS = {"write.index": "global", "lock.provider": "storage:", "upkeep.auto": "false", "transaction.allow_foreign": "true"}


pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


class Indexed:
    """The table, and what is told of its writes."""

    def __init__(self, spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.path, self.told = unpack("java12_metadata", folder), list[Event]()
        self.table = LakeTable.for_path(spark, str(self.path), options=OPTIONS, listeners=(self.told.append,))
        patch.setattr(transaction, "FROM_FILES", 1)
        self.spark = spark

    def changed(self, *keys: str, **values: Any) -> Any:
        """Rows with these keys, like those that are there."""
        rows = [row.asDict() for row in self.table.read().collect()]
        found = {row["id"]: row for row in rows}
        made = [{**found.get(key, rows[0]), "id": key, **values} for key in keys]
        return self.spark.createDataFrame(made, self.table.read().schema)

    def rows(self) -> dict[str, tuple[str, int]]:
        found = self.table.read().select("id", "region", "v").collect()
        assert len(found) == len({row["id"] for row in found})
        return {row["id"]: (row["region"], row["v"]) for row in found}

    @property
    def alerts(self) -> list[str]:
        return [str(event.facts.get("problem")) for event in self.told if event.kind is EventKind.ALERT]


@pytest.fixture
def indexed(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Indexed:
    return Indexed(spark, tmp_path, monkeypatch)


def test_rows_are_updated_moved_inserted_and_deleted_by_the_index(indexed: Indexed) -> None:
    table, before = indexed.table, indexed.rows()
    table.upsert(indexed.changed("k2", v=700))
    assert indexed.rows() == {**before, "k2": (before["k2"][0], 700)}
    table.upsert(indexed.changed("k2", "new", v=701, region="elsewhere"))
    assert indexed.rows() == {**before, "k2": ("elsewhere", 701), "new": ("elsewhere", 701)}
    assert index(indexed.path) == by_files(indexed.path)
    assert index(indexed.path)["k2"].partition == "region=elsewhere"
    table.delete(indexed.changed("k2").select("id"))
    table.upsert(indexed.changed("k2", v=5, region="eu"))
    assert indexed.rows() == {**before, "k2": ("eu", 5), "new": ("elsewhere", 701)}
    assert index(indexed.path) == by_files(indexed.path)
    assert indexed.alerts == []


def test_a_delete_by_key_removes_a_row_that_is_there_a_second_time_which_the_index_does_not_know(indexed: Indexed) -> None:
    table, before = indexed.table, indexed.rows()
    table.insert(indexed.changed("k2", region="elsewhere"))  # an insert looks up no key
    assert table.read().where("id = 'k2'").count() == 2
    table.delete(indexed.changed("k2").select("id").distinct())
    del before["k2"]
    assert indexed.rows() == before


def wrong(places: Mapping[str, FileGroupId]) -> Mapping[str, FileGroupId]:
    groups = sorted(set(places.values()))
    return {key: groups[(groups.index(place) + 1) % len(groups)] for key, place in places.items()}


@pytest.mark.parametrize("keys", [("k2", "k5"), ("k2",)])
def test_an_index_that_is_wrong_is_told_of_and_makes_no_second_row(
    indexed: Indexed, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]
) -> None:
    known, everything = transaction.places_of, list(indexed.rows())

    def places(io: TableIO, data: Timeline, asked: Collection[str]) -> Mapping[str, FileGroupId]:
        return {key: place for key, place in wrong(known(io, data, everything)).items() if key in asked}

    monkeypatch.setattr(transaction, "places_of", places)
    before, rows = indexed.rows(), indexed.changed(*keys, v=800)
    indexed.table.upsert(rows)
    assert indexed.rows() == {**before, **{key: (before[key][0], 800) for key in keys}}
    assert any("could not be used" in text for text in indexed.alerts)
