"""Tables without a key: rows are appended, changed by condition, and never looked up."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hudi import HudiTableBuilder
from tests.api import ArrowEngine, BaseFile, LocalStorage, SystemRuntime, TableProperties, TableSchema, create_table
from tests.behaviour.tables import SCHEMA, writer
from tests.behaviour.test_arrow_engine import content, rows

from lakelock.errors import InputError
from lakelock.settings import Settings, WriteSettings

TWICE = rows(("a", 1, "1"), ("a", 1, "1"), ("b", 2, "2"))


@pytest.fixture
def storage(tmp_path):
    made = LocalStorage(str(tmp_path / "t"))
    properties = TableProperties.new(
        "t", record_keys=(), partition_fields=("month",), create_schema=TableSchema.from_arrow(SCHEMA).to_avro_json("t")
    )
    create_table(made, properties, SystemRuntime())
    return made


def keys_of(engine: ArrowEngine) -> list[str]:
    storage, found = engine.coordinator.table.storage, []
    for file in engine.coordinator.snapshot().files:
        with BaseFile(storage.open_input(file.key), file.key) as base:
            found += [key for keys in base.key_batches() for key in keys.to_pylist()]
    return found


def test_equal_rows_stay_apart_and_are_changed_by_conditions(storage):
    engine = ArrowEngine(writer(storage))
    first = engine.insert(TWICE)
    engine.insert(TWICE)
    assert content(engine.read()) == sorted([("a", 1, "1")] * 4 + [("b", 2, "2")] * 2)
    assert engine.delete(pc.field("v") == 2).rows_deleted == 2
    engine.overwrite_partitions(rows(("c", 3, "1")))
    engine.optimize()
    assert content(engine.read()) == [("c", 3, "1")]
    assert content(engine.read(as_of=first.instant)) == sorted(content(TWICE))
    engine.restore(first.instant)
    assert content(engine.read()) == sorted(content(TWICE))


def test_every_row_gets_a_key_as_java_makes_them_and_keeps_it_when_its_file_is_rewritten(storage):
    engine = ArrowEngine(writer(storage, Settings(write=WriteSettings(target_file_rows=2, batch_rows=2))))
    instant = engine.insert(rows(*((name, 1, month) for month in "12" for name in "abcde"))).instant
    keys = keys_of(engine)
    made = [key.rpartition("_") for key in keys]
    tasks = Counter(task for task, _, _ in made)
    assert sorted(made) == sorted((task, "_", str(row)) for task, count in tasks.items() for row in range(count))
    assert {task.rpartition("_")[0] for task in tasks} == {instant}
    engine.delete(pc.field("id") == "e")
    assert len(keys_of(engine)) == 8 and len(keys) == 10
    assert set(keys_of(engine)) < set(keys)


def test_hudi_rs_reads_it(storage):
    ArrowEngine(writer(storage)).insert(TWICE)
    assert b"recordkey" not in storage.get(".hoodie/hoodie.properties").data
    batches = HudiTableBuilder.from_base_uri(storage.uri).build().read()
    assert content(pa.Table.from_batches([pa.record_batch(batch) for batch in batches])) == sorted(content(TWICE))


def timeline(storage: LocalStorage) -> list[str]:
    folder = Path(storage.uri.removeprefix("file://"), ".hoodie", "timeline")
    return sorted(file.name for file in folder.iterdir() if file.is_file())


@pytest.mark.parametrize("write", ["upsert", "delete"])
def test_what_looks_keys_up_is_refused_and_leaves_no_trace(storage, write):
    engine = ArrowEngine(writer(storage))
    engine.insert(TWICE)
    before = timeline(storage)
    with pytest.raises(InputError, match=r"finds rows by their key, and the table t was made without one(?s:.*)insert\(df\)"):
        getattr(engine, write)(TWICE)
    assert timeline(storage) == before
    assert content(engine.read()) == sorted(content(TWICE))


def test_appends_at_once_do_not_conflict_even_of_equal_rows(storage):
    engine, other = ArrowEngine(writer(storage)), ArrowEngine(writer(storage))
    with engine.coordinator.begin("INSERT") as first, other.coordinator.begin("INSERT") as second:
        engine.insert_in(first, TWICE)
        other.insert_in(second, TWICE)
    assert engine.read().num_rows == 6
    assert len(set(keys_of(engine))) == 6
