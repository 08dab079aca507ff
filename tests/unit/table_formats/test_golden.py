"""Everything in tables that Java Hudi 1.2 wrote is read, and written again as the same bytes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hudi import HudiTable
from tests.api import (
    Action,
    CommitMetadata,
    DataFile,
    FileGroupId,
    LocalStorage,
    RollbackPlan,
    TableIO,
    TableProperties,
    read_snapshot,
    read_timeline,
)
from tests.golden_tables import NAMES, ROWS, decoded, golden_table

from lakelock.table import avro as avro_schemas
from lakelock.table.avro import AvroSchema, decode, encode
from lakelock.table.commit_metadata import requested_replace_bytes
from lakelock.table.eligibility import why_not_writable
from lakelock.table.instants import parse_file_name
from lakelock.table.layout import PROPERTIES, TIMELINE
from lakelock.table.partitions import partition_metadata
from lakelock.table.properties import read_properties
from lakelock.table.service_metadata import RollbackMetadata, planned_groups

SCHEMAS: dict[str, AvroSchema] = {
    schema.name: schema
    for schema in (
        avro_schemas.COMMIT,
        avro_schemas.REPLACE_COMMIT,
        avro_schemas.REQUESTED_REPLACE,
        avro_schemas.ROLLBACK_PLAN,
        avro_schemas.ROLLBACK,
        avro_schemas.CLEANER_PLAN,
        avro_schemas.CLEAN,
        avro_schemas.SAVEPOINT,
    )
}


def avro_files(name: str) -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    """Key, bytes and independently decoded content of each Avro file in the timeline that lakelock understands."""
    for key, entry in decoded(name).items():
        schema = str(entry.get("schema_name", "")).rpartition(".")[2]
        if schema:
            yield key, (golden_table(name) / key).read_bytes(), entry


def java_wrote(entry: dict[str, Any]) -> bool:
    """The Python writer of that time named the codec in the header; Java does not."""
    return entry["header_keys"] == ["avro.schema"]


def rows_of(folder: Path, files: tuple[DataFile, ...]) -> list[tuple[str, int, str]]:
    tables = [pq.ParquetFile(folder / file.key).read(columns=["id", "v", "region"]) for file in files]
    return sorted((row["id"], row["v"], row["region"]) for table in tables for row in table.to_pylist())


@pytest.mark.parametrize("name", NAMES)
def test_every_avro_file_decodes_to_what_another_reader_saw(name: str) -> None:
    files = list(avro_files(name))
    assert files
    for key, data, entry in files:
        schema, record = decode(data, key, *SCHEMAS.values())
        assert schema.name == entry["schema_name"].rpartition(".")[2]
        expected = entry["record"]
        assert {field: record[field] for field in expected} == expected, key


@pytest.mark.parametrize("name", NAMES)
def test_what_java_wrote_is_encoded_again_byte_for_byte(name: str) -> None:
    for key, data, entry in avro_files(name):
        schema, record = decode(data, key, *SCHEMAS.values())
        again = encode(schema, record, data[-16:])
        if java_wrote(entry):
            assert again == data, key
        assert decode(again, key, schema) == (schema, record)


@pytest.mark.parametrize("name", NAMES)
def test_commit_metadata_survives_the_way_through_our_values_byte_for_byte(name: str) -> None:
    seen = 0
    for key, data, entry in avro_files(name):
        if not entry["schema_name"].endswith("CommitMetadata"):
            continue
        seen += 1
        metadata = CommitMetadata.from_bytes(data, key)
        if java_wrote(entry):
            assert metadata.to_bytes(data[-16:]) == data, key
        assert CommitMetadata.from_bytes(metadata.to_bytes()) == metadata
    assert seen


@pytest.mark.parametrize("operation", ["INSERT_OVERWRITE", "DELETE_PARTITION"])
def test_a_requested_replacecommit_is_what_java_writes(operation: str) -> None:
    instants = {"INSERT_OVERWRITE": "20261121092745589", "DELETE_PARTITION": "20261121092747182"}
    key = f"{TIMELINE}/{instants[operation]}.replacecommit.requested"
    data = (golden_table("java12_ops") / key).read_bytes()
    _, record = decode(requested_replace_bytes(operation), key, avro_schemas.REQUESTED_REPLACE)
    assert encode(avro_schemas.REQUESTED_REPLACE, record, data[-16:]) == data


@pytest.mark.parametrize("name", NAMES)
def test_rollbacks_are_written_as_java_writes_them(name: str) -> None:
    for key, data, entry in avro_files(name):
        kind = {"HoodieRollbackPlan": RollbackPlan, "HoodieRollbackMetadata": RollbackMetadata}.get(entry["schema_name"])
        if kind is None:
            continue
        found = kind.from_bytes(data, key)
        paths = [word for word in str(entry["record"]).split("'") if word.endswith(".parquet")]
        root = paths[0].rsplit("/", 2)[0] if paths else ""
        again = replace(found, root=f"file://{root}").to_bytes()
        schema = SCHEMAS[entry["schema_name"]]
        assert decode(again, key, schema)[1] == entry["record"], key
        assert encode(schema, decode(again, key, schema)[1], data[-16:]) == data


@pytest.mark.parametrize("name", NAMES)
def test_the_timeline_file_names_are_understood_and_made_again(name: str) -> None:
    folder = golden_table(name) / TIMELINE
    for path in folder.iterdir():
        instant = parse_file_name(path.name)
        if path.is_dir() or path.name.startswith("."):
            assert instant is None
        else:
            assert instant is not None and instant.file_name == path.name


@pytest.mark.parametrize("name", NAMES)
def test_the_snapshot_is_exactly_the_files_that_hold_the_rows(name: str) -> None:
    storage = LocalStorage(golden_table(name))
    snapshot = read_snapshot(TableIO(storage), read_timeline(storage))
    rows = rows_of(golden_table(name), snapshot.files)
    assert len(rows) == len(set(rows)) and set(rows) == ROWS[name]


def test_each_moment_of_the_past_can_be_read() -> None:
    storage = LocalStorage(golden_table("java12_ops"))
    io, timeline = TableIO(storage), read_timeline(storage)
    rows = {
        i.requested: [
            (key, v) for key, v, _ in rows_of(golden_table("java12_ops"), read_snapshot(io, timeline, i.requested).files)
        ]
        for i in timeline.commits
    }
    inserted, bulk, upserted, deleted, overwritten, dropped, last = rows.values()
    assert inserted == [("k1", 1), ("k2", 2), ("k3", 3), ("k4", 4)]
    assert {key for key, _ in bulk} - {key for key, _ in inserted} == {"k5", "k6"}
    assert {key for key, _ in upserted} - {key for key, _ in bulk} == {"k7"}
    assert {key for key, _ in upserted} - {key for key, _ in deleted} == {"k2"}
    assert ("k8", 8) in overwritten and "k4" not in {key for key, _ in overwritten}
    assert {key for key, _ in dropped} == {"k1", "k5", "k8"}
    assert dict(last) == {"k1": 12, "k5": 5, "k8": 8, "k9": 9}
    assert read_snapshot(TableIO(storage), timeline, "20261121092737396").files == ()


def test_the_services_table_has_every_kind_of_instant() -> None:
    timeline = read_timeline(LocalStorage(golden_table("java12_services")))
    kinds = {i.action for i in timeline.instants}
    assert kinds == {Action.COMMIT, Action.REPLACE_COMMIT, Action.ROLLBACK, Action.CLEAN, Action.SAVEPOINT}
    # The savepoint has the requested time of the clustering commit that it saves.
    assert timeline.write_at("20261121095012212") in timeline.commits
    assert not timeline.pending and not timeline.pending_services and len(timeline.rollbacks) == 1


def test_a_pending_clustering_plan_names_its_file_groups() -> None:
    timeline = read_timeline(LocalStorage(golden_table("java12_pending_clustering")))
    (plan,) = timeline.pending_services
    assert not timeline.pending
    data = (golden_table("java12_pending_clustering") / TIMELINE / plan.file_name).read_bytes()
    assert planned_groups(data, plan.file_name) == {
        FileGroupId("region=eu", "8bd9d70b-0813-4f6c-bb88-b90efb506b4f-0"),
        FileGroupId("region=us", "4c7499f0-0d1d-414a-a9d4-1b4f06a0c11c-0"),
        FileGroupId("region=us", "f026d5bc-6bbc-45d1-aa1d-96fc5f32fe62-0"),
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_properties_are_understood_and_the_table_may_be_written(name: str) -> None:
    storage = LocalStorage(golden_table(name))
    properties = read_properties(storage)
    assert properties.values["hoodie.table.checksum"] == "498511606" == str(properties.expected_checksum)
    assert (properties.name, properties.version, properties.layout) == ("t", 9, 2)
    assert (properties.record_keys, properties.partition_fields) == (("id",), ("region",))
    assert properties.key_generator == "SIMPLE"
    assert why_not_writable(properties) == ()
    data = (golden_table(name) / PROPERTIES).read_bytes()
    again = TableProperties.parse(properties.serialize(0))
    assert again == properties and set(again.serialize(0).splitlines()[2:]) == set(data.splitlines()[2:])


@pytest.mark.parametrize("name", NAMES)
def test_partition_metadata_is_what_java_writes_but_for_the_date(name: str) -> None:
    files = list(golden_table(name).glob("*/.hoodie_partition_metadata"))
    assert files
    for file in files:
        lines = file.read_text().splitlines()
        instant = lines[2].removeprefix("commitTime=")
        ours = partition_metadata(instant, file.parent.name).decode().splitlines()
        assert (ours[0], ours[2:]) == (lines[0], lines[2:])
        assert ours[1].split()[1:3] == lines[1].split()[1:3]


@pytest.mark.parametrize("name", ["java12_ops", "java12_services", "mixed_java_then_python"])
def test_an_independent_reader_reads_the_table_with_every_control_file_written_by_us(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(golden_table(name), folder, ignore=shutil.ignore_patterns(".*.crc"))
    properties = read_properties(LocalStorage(folder))
    ours = TableProperties.new("t", properties.record_keys, properties.partition_fields, properties.ordering_field)
    (folder / PROPERTIES).write_bytes(ours.serialize(0))
    for instant in read_timeline(LocalStorage(folder)).commits:
        path = folder / TIMELINE / instant.file_name
        path.write_bytes(CommitMetadata.from_bytes(path.read_bytes(), path.name).to_bytes())
    rows = pa.Table.from_batches(HudiTable(str(folder)).read()).to_pylist()
    assert {(row["id"], row["v"], row["region"]) for row in rows} == ROWS[name] and len(rows) == len(ROWS[name])
