"""Commit metadata and Avro: what is written, and that torn or hostile bytes end in one clear error."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import fastavro
import pytest
from tests.api import CommitMetadata, FileGroupId, RollbackPlan, WriteStat
from tests.golden_tables import golden_table

from lakelock.errors import CorruptTableError
from lakelock.table import avro as avro_schemas
from lakelock.table.avro import decode, encode
from lakelock.table.commit_metadata import RuntimeStats
from lakelock.table.service_metadata import RollbackMetadata, planned_groups

INSTANT, BEFORE = "20261121092737397", "20261121092737000"


def stat(file_id: str, partition: str = "region=eu", prev_commit: str = "null", **fields: Any) -> WriteStat:
    path = f"{partition}/{file_id}_0-1-2_{INSTANT}.parquet" if partition else f"{file_id}_0-1-2_{INSTANT}.parquet"
    return WriteStat(file_id, path, prev_commit, partition_path=partition, **fields)


METADATA = CommitMetadata(
    {
        "region=eu": (
            stat("a-0", num_inserts=3, num_writes=3, runtime=RuntimeStats(0, 12, 0)),
            stat("b-0", prev_commit=BEFORE),
        ),
        "": (stat("c-0", "", log_files=("x", "y"), cdc_stats={"z": 1}, min_event_time=-5),),
    },
    "INSERT_OVERWRITE",
    {"schema": '{"type":"record"}', "lakelock.write_id": "é😀"},
    {"region=eu": ("d-0", "e-0"), "region=us": ()},
)


def avro_container(schema: dict[str, Any] | str, body: bytes, count: int = 1) -> bytes:
    """A container that says what the test wants, whatever is in it."""
    text, sync = (schema if isinstance(schema, str) else json.dumps(schema)).encode(), b"s" * 16
    return b"".join((b"Obj\x01", _long(1), _long(11), b"avro.schema", _long(len(text)), text, _long(0), sync,
                     _long(count), _long(len(body)), body, sync))  # fmt: skip


def _long(value: int) -> bytes:
    folded, out = (value << 1) ^ (value >> 63), []
    while folded > 127:
        out.append(folded & 127 | 128)
        folded >>= 7
    return bytes([*out, folded])


def test_commit_metadata_survives_writing_reading_and_pickling() -> None:
    assert CommitMetadata.from_bytes(METADATA.to_bytes()) == METADATA == pickle.loads(pickle.dumps(METADATA))
    plain = replace(METADATA, replaced=None)
    assert CommitMetadata.from_bytes(plain.to_bytes()) == plain
    assert plain.to_bytes() == plain.to_bytes() != METADATA.to_bytes()


def test_the_groups_of_a_commit_are_told_apart() -> None:
    a, b, c = FileGroupId("region=eu", "a-0"), FileGroupId("region=eu", "b-0"), FileGroupId("", "c-0")
    assert METADATA.added_groups == {a, c} and METADATA.rewritten_groups == {b}
    assert METADATA.replaced_groups == {FileGroupId("region=eu", "d-0"), FileGroupId("region=eu", "e-0")}
    assert str(a) == "region=eu/a-0" and str(c) == "c-0"
    assert METADATA.schema_json == '{"type":"record"}'


def test_the_inserts_that_a_java_writer_announces_have_no_group() -> None:
    path = golden_table("java12_ops") / ".hoodie/timeline/20261121092740578.inflight"
    profile = CommitMetadata.from_bytes(path.read_bytes(), path.name)
    assert profile.added_groups == frozenset() and profile.rewritten_groups
    assert any(s.file_id == "" and s.path is None for s in profile.stats)


@pytest.mark.parametrize(
    "hostile",
    [
        {"../x": (stat("a-0", "../x"),)},
        {"/etc": (stat("a-0", "/etc"),)},
        {"a//b": (stat("a-0", "a//b"),)},
        {".hoodie/timeline": (stat("a-0", ".hoodie/timeline"),)},
        {"a/./b": (stat("a-0", "a/./b"),)},
        {"a": (stat("../a", "a"),)},
        {"a": (replace(stat("a-0", "a"), path="b/a-0_0-1-2_1.parquet"),)},
        {"a": (replace(stat("a-0", "a"), partition_path="b"),)},
        {"a": (replace(stat("a-0", "a"), path="a/.."),)},
        {"a": (replace(stat("a-0", "a"), path=""),)},
    ],
)
def test_paths_that_lead_out_of_the_table_are_refused(hostile: dict[str, tuple[WriteStat, ...]]) -> None:
    with pytest.raises(CorruptTableError, match="some/file"):
        CommitMetadata.from_bytes(CommitMetadata(hostile, "INSERT").to_bytes(), "some/file")


@pytest.mark.parametrize("replaced", [{"..": ("a",)}, {"a": ("../b",)}, {"a": ("",)}])
def test_replaced_groups_outside_the_table_are_refused(replaced: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(CorruptTableError, match="some/file"):
        CommitMetadata.from_bytes(CommitMetadata({}, "INSERT_OVERWRITE", {}, replaced).to_bytes(), "some/file")


def test_a_file_cut_anywhere_is_refused() -> None:
    data = METADATA.to_bytes()
    for length in [*range(0, len(data), 97), len(data) - 1]:
        with pytest.raises(CorruptTableError, match="some/file"):
            CommitMetadata.from_bytes(data[:length], "some/file")
    with pytest.raises(CorruptTableError, match="cut off"):
        CommitMetadata.from_bytes(data + b"x", "some/file")


def test_an_old_or_partial_schema_is_read_with_defaults() -> None:
    schema = {
        "type": "record",
        "name": "HoodieCommitMetadata",
        "fields": [
            {"name": "operationType", "type": ["null", "string"]},
            {"name": "extraMetadata", "type": ["null", {"type": "map", "values": "string"}]},
            {"name": "something.new", "type": "long"} | {"name": "somethingNew"},
        ],
    }
    body = b"\x02" + _long(6) + b"INSERT" + b"\x00" + _long(77)
    metadata = CommitMetadata.from_bytes(avro_container(schema, body))
    assert metadata == CommitMetadata({}, "INSERT", {}, compacted=None)


RECORD = {"type": "record", "name": "HoodieCommitMetadata"}
EMPTY = {"type": "record", "name": "Empty", "fields": []}


def with_field(type_: Any) -> dict[str, Any]:
    return {**RECORD, "fields": [{"name": "x", "type": type_}]}


@pytest.mark.parametrize(
    ("schema", "body", "trouble"),
    [
        ({**RECORD, "name": "Other", "fields": []}, b"", "holds a Other"),
        ({"type": "string"}, b"\x00", "no record"),
        (with_field({"type": "array", "items": "null"}), _long(1 << 60), "take no bytes"),
        (with_field({"type": "array", "items": EMPTY}), _long(1 << 60), "take no bytes"),
        (with_field({"type": "array", "items": "long"}), _long(1 << 60) + b"\x02", "does not hold"),
        (with_field("string"), _long(1 << 60) + b"ab", "more or less"),
        (with_field("string"), _long(-9) + b"ab", "more or less"),
        (with_field(["null", "HoodieCommitMetadata"]), b"\x02" * 9999, "contains itself"),
        (with_field(["null", "long"]), _long(7), "does not hold"),
        (with_field({"type": "fixed", "name": "F", "size": 1 << 40}), b"", "does not use"),
        (with_field("Nowhere"), b"", "schema cannot be used"),
        ({**RECORD, "fields": 7}, b"", "schema cannot be used"),
        ({**RECORD, "fields": [{"name": "operationType", "type": "long"}]}, _long(7), "does not hold"),
        ({**RECORD, "fields": []}, b"extra", "more or less than its record"),
    ],
)
def test_a_schema_that_lies_is_refused(schema: dict[str, Any], body: bytes, trouble: str) -> None:
    with pytest.raises(CorruptTableError, match=trouble) as caught:
        CommitMetadata.from_bytes(avro_container(schema, body), "some/file")
    assert caught.value.details["file"] == "some/file" and caught.value.hint


@pytest.mark.parametrize("depth", [30, 20_000])
def test_a_schema_nested_too_deeply_is_refused(depth: int) -> None:
    nested = '{"type":"array","items":' * depth + '"long"' + "}" * depth
    text = json.dumps(with_field("nested")).replace('"nested"', nested)
    with pytest.raises(CorruptTableError, match="schema cannot be used"):
        CommitMetadata.from_bytes(avro_container(text, b"\x00"), "some/file")


def test_other_containers_are_refused() -> None:
    empty = encode(avro_schemas.COMMIT, {})
    for data, trouble in [
        (b"", "is empty"),
        (b'{"partitionToWriteStats": {}}', "not an Avro container"),
        (avro_container({**RECORD, "fields": []}, b"", count=2), "other than one record"),
        (avro_container({**RECORD, "fields": []}, b"", count=-1), "other than one record"),
        (empty[:-1] + b"\x00", "sync marker"),
        (empty.replace(b"avro.schema", b"avro.schemx"), "cannot be decoded"),
    ]:
        with pytest.raises(CorruptTableError, match=trouble):
            decode(data, "some/file", avro_schemas.COMMIT)


def test_compressed_metadata_is_refused(tmp_path: Any) -> None:
    with (tmp_path / "x").open("wb") as out:
        fastavro.writer(out, avro_schemas.COMMIT.parsed, [{}], codec="deflate")
    with pytest.raises(CorruptTableError, match="compressed"):
        CommitMetadata.from_bytes((tmp_path / "x").read_bytes())


def test_rollbacks_keep_their_files_by_name() -> None:
    files = {"region=eu": ("a-0_0-0-0_1.parquet", "b-0_0-0-0_1.parquet"), "": ("c-0_0-0-0_1.parquet",)}
    plan = RollbackPlan(INSTANT, "commit", files, "s3://lake/t/")
    assert RollbackPlan.from_bytes(plan.to_bytes()) == replace(plan, root="")
    _, record = decode(plan.to_bytes(), "x", avro_schemas.ROLLBACK_PLAN)
    assert [r["filesToBeDeleted"] for r in record["RollbackRequests"]] == [
        ["s3://lake/t/region=eu/a-0_0-0-0_1.parquet"],
        ["s3://lake/t/region=eu/b-0_0-0-0_1.parquet"],
        ["s3://lake/t/c-0_0-0-0_1.parquet"],
    ]
    done = RollbackMetadata(BEFORE, 17, INSTANT, "commit", files)
    assert RollbackMetadata.from_bytes(done.to_bytes()) == done
    assert decode(done.to_bytes(), "x", avro_schemas.ROLLBACK)[1]["totalFilesDeleted"] == 3


def test_a_plan_without_groups_plans_nothing_and_a_torn_one_is_refused() -> None:
    empty = {"operationType": None, "clusteringPlan": None, "extraMetadata": None, "version": None}
    assert planned_groups(encode(avro_schemas.REQUESTED_REPLACE, empty)) == frozenset()
    with pytest.raises(CorruptTableError, match=r"x.clustering.requested is empty"):
        planned_groups(b"", "x.clustering.requested")
    hostile = {"slices": [{"partitionPath": "../..", "fileId": "a"}]}
    plan = encode(avro_schemas.REQUESTED_REPLACE, {**empty, "clusteringPlan": {"inputGroups": [hostile]}})
    with pytest.raises(CorruptTableError, match="not inside the table"):
        planned_groups(plan)
