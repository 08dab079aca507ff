"""A table of Java's types, most of them NOT NULL, in both Parquet layouts of its writers: every write keeps them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.api import ArrowEngine, Coordinator, StorageLocation
from tests.behaviour.cli.command_line import run
from tests.golden_tables import golden_table, opened, unpack

from lakelock.errors import TableError
from lakelock.settings import Settings
from lakelock.table.schema import META_COLUMNS

SETTINGS = Settings.resolve({"concurrency.mode": "SINGLE_WRITER", "optimize.small_file_bytes": 10_000_000}).settings
Rows = dict[str, dict[str, object]]


@pytest.fixture
def engine(tmp_path: Path) -> ArrowEngine:
    return ArrowEngine(Coordinator.open(StorageLocation(unpack("java12_types", tmp_path).as_uri()), SETTINGS))


def witnessed() -> Rows:
    """The rows by id as Parquet's own reader finds them in Java's files; of an id that was upserted, the later row."""
    files = sorted(golden_table("java12_types").glob("*/*.parquet"), key=lambda path: path.name.rsplit("_", 1)[1])
    found = [row for file in files for row in pq.read_table(file, partitioning=None).drop(META_COLUMNS).to_pylist()]
    return {row["id"]: row for row in found}


def by_id(rows: pa.Table) -> Rows:
    found = rows.to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row for row in found}


def renamed(rows: pa.Table, key: str) -> pa.Table:
    """The first row as that of another key."""
    first = rows.slice(0, 1)
    return pa.table([pa.array([key]), *first.columns[1:]], schema=first.schema)


def test_both_layouts_are_read_as_java_wrote_them(engine: ArrowEngine) -> None:
    found = engine.read()
    assert by_id(found) == witnessed() and len(found) == 7
    assert found.column_names == pq.read_schema(next(golden_table("java12_types").glob("eu/*.parquet"))).names[5:]


WRITES: dict[str, Callable[[ArrowEngine, pa.Table], object]] = {
    "upsert": lambda engine, rows: engine.upsert(pa.concat_tables([rows.filter(pc.field("flag")), renamed(rows, "new")])),
    "partial upsert": lambda engine, rows: engine.upsert(rows.select(["id", "region", "place"]), missing_columns="keep"),
    "insert": lambda engine, rows: engine.insert(renamed(rows, "new")),
    "delete by condition": lambda engine, rows: engine.delete(pc.field("id") == "1"),
    "delete by key": lambda engine, rows: engine.delete(rows.filter(pc.field("id") == "4")),
    "overwrite": lambda engine, rows: engine.overwrite_partitions(rows.filter(pc.field("region") == "us")),
    "optimize": lambda engine, rows: engine.optimize(),
}


@pytest.mark.parametrize("write", WRITES)
def test_whatever_is_written_keeps_every_value_and_what_must_not_be_null(engine: ArrowEngine, write: str) -> None:
    before, made_by_java = engine.read(), paths(engine)
    WRITES[write](engine, before)
    after = engine.read()
    assert after.schema == before.schema
    rows, old = by_id(after), witnessed()
    gone = {"delete by condition": {"1"}, "delete by key": {"4"}}.get(write, set())
    assert rows.keys() - {"new"} == old.keys() - gone
    assert all(rows[key] == old[key] for key in old.keys() - gone)
    if "new" in rows:
        assert {**rows["new"], "id": ""} == {**by_id(before.slice(0, 1)).popitem()[1], "id": ""}
    fresh = paths(engine) - made_by_java
    assert fresh
    for path in fresh:
        assert [field.nullable for field in pq.read_schema(path)][5:] == [field.nullable for field in before.schema]


def paths(engine: ArrowEngine) -> set[str]:
    table = engine.coordinator
    return {f"{table.table.location.uri.removeprefix('file://')}/{file.key}" for file in table.snapshot().files}


def history_of_columns(*versions: dict[str, int]) -> str:
    """Java's under `hoodie.schema.on.read.enable`, newest version first: columns of one type by name, with their ids."""
    schemas = [
        {"max_column_id": 9, "version_id": number, "type": "record", "fields": [
            {"id": id_, "name": name, "optional": True, "type": "string"} for name, id_ in columns.items()
        ]}
        for number, columns in enumerate(versions)
    ]  # fmt: skip
    return json.dumps({"schemas": schemas})


BEFORE = {"id": 0, "v": 1, "ts": 2, "region": 3}


@pytest.mark.parametrize(
    ("now", "named"),
    [
        ({"id": 0, "w": 1, "ts": 2, "region": 3}, "v, w"),
        ({"id": 0, "v": 4, "ts": 2, "region": 3}, "v"),
        ({**BEFORE, "note": 4}, ""),
        ({"id": 0, "ts": 2, "region": 3}, ""),
    ],
    ids=["renamed", "removed and added again", "added", "removed"],
)
def test_columns_that_java_finds_by_their_ids_are_refused_by_name(now: dict[str, int], named: str, tmp_path: Path) -> None:
    path = unpack("java12_ops", tmp_path)
    newest = sorted((path / ".hoodie/timeline").glob("*.commit"))[-1].name.removesuffix(".commit")
    folder = path / ".hoodie/.schema"
    folder.mkdir(exist_ok=True)
    (folder / f"{newest}.schemacommit").write_text(history_of_columns(now, BEFORE))
    with opened(path) as engine:
        if not named:
            assert engine.read().num_rows == 4
            return
        for act in (engine.read, lambda: engine.delete_where(pc.field("region") == "eu")):
            with pytest.raises(TableError, match=f"renamed, or removed and added again, without writing its files: {named} "):
                act()
        assert not engine.coordinator.table.timeline().pending
    told = run("doctor", str(path))
    assert told.code == 1 and "renamed, or removed and added again" in told.out
