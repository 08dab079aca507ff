"""A table whose keys are looked up in every partition: on record like any index, and no place for writers that do not do so."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.api import ArrowEngine, LocalStorage, SystemRuntime, TableProperties, TableSchema, create_table, layout
from tests.behaviour.tables import QUICK, SCHEMA, writer

from lakelock.errors import InputError, StorageError, TableError
from lakelock.settings import Settings, WriteSettings
from lakelock.table.index import GlobalIndex, index_from_bytes, parsed_index
from lakelock.table.properties import read_properties

ROWS = pa.table([pa.array(["k"]), pa.array([1], SCHEMA.field(1).type), pa.array(["m1"])], schema=SCHEMA)


def table_at(folder: Path, partition_by: tuple[str, ...] = ("month",)) -> LocalStorage:
    schema, storage = TableSchema.from_arrow(SCHEMA).to_avro_json("t"), LocalStorage(folder)
    properties = TableProperties.new("t", (SCHEMA.names[0],), partition_by, create_schema=schema)
    create_table(storage, properties.indexed(parsed_index(" Global ")), SystemRuntime())
    return storage


def test_it_is_on_record_and_not_in_the_properties(tmp_path: Path) -> None:
    storage = table_at(tmp_path / "t")
    assert not [key for key in read_properties(storage).values if "index" in key]
    with writer(storage) as coordinator, coordinator.begin("INSERT") as tx:
        assert tx.baseline.properties.index == GlobalIndex()
    told = Settings(lock=QUICK.lock, heartbeat=QUICK.heartbeat, write=WriteSettings(index="bucket:4"))
    with writer(storage, told) as coordinator, pytest.raises(TableError, match="has the index global, and bucket:4"):
        coordinator.begin("INSERT")
    storage.put(layout.INDEX, b'{"format": 2, "kind": "global"}')
    with writer(storage) as coordinator, pytest.raises(StorageError, match="a later version wrote it"):
        coordinator.begin("INSERT")
    assert index_from_bytes(GlobalIndex().to_bytes()) == GlobalIndex()


def test_an_engine_that_looks_into_one_partition_only_inserts_and_nothing_else(tmp_path: Path) -> None:
    with writer(table_at(tmp_path / "t")) as coordinator:
        engine = ArrowEngine(coordinator)
        engine.insert(ROWS)
        for write in (engine.upsert, engine.delete):
            with pytest.raises(InputError, match="index=global"):
                write(ROWS)
        assert engine.read().num_rows == 1


def test_without_partitions_there_is_nowhere_else_to_look(tmp_path: Path) -> None:
    with writer(table_at(tmp_path / "t", ())) as coordinator:
        engine = ArrowEngine(coordinator)
        engine.upsert(ROWS)
        assert engine.upsert(ROWS).rows_updated == 1
