"""What a new table consists of before anybody has written a row, and what it means that there is one already."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.api import LocalStorage, MemoryStorage, Storage, SystemRuntime, TableProperties, TableSchema, create_table, layout
from tests.behaviour.tables import new_table

from lakelock.errors import InputError, TableError
from lakelock.occ.create import check_definition
from lakelock.storage import Listed

COLUMNS = pa.schema([("id", pa.string()), ("v", pa.int64()), ("month", pa.string())])
GIVEN = TableProperties.new("t", ("id",), ("month",), "v")


def check(found: TableProperties, schema: pa.Schema = COLUMNS, *, columns: pa.Schema = COLUMNS, name: bool = False) -> None:
    check_definition("file:///t", GIVEN, TableSchema(columns), found, TableSchema(schema), name=name)


def unmoved(storage: Storage) -> bytes:
    found = storage.get(layout.PROPERTIES)
    assert found is not None
    return found.data


def test_a_new_table_on_a_disk_has_the_empty_folder_of_its_timeline_without_which_java_cannot_open_it(tmp_path: Path) -> None:
    new_table(LocalStorage(str(tmp_path / "t")))
    timeline = tmp_path / "t" / ".hoodie" / "timeline"
    assert timeline.is_dir() and not list(timeline.iterdir())


def test_a_second_table_is_not_made_in_the_place_of_the_first() -> None:
    storage = MemoryStorage()
    new_table(storage)
    before = unmoved(storage)
    with pytest.raises(TableError, match="is a table already"):
        create_table(storage, GIVEN, SystemRuntime())
    assert create_table(storage, GIVEN, SystemRuntime(), if_not_exists=True) is False
    assert unmoved(storage) == before


@pytest.mark.parametrize(
    "key", ["month=1/part-0.snappy.parquet", "part-0.orc", "metadata/v1.metadata.json", "_delta_log/00000000000000000000.json"]
)
def test_no_table_is_made_among_the_files_of_something_else(tmp_path: Path, key: str) -> None:
    for storage in (MemoryStorage(), LocalStorage(str(tmp_path / "t"))):
        storage.put(key, b"")
        for if_not_exists in (False, True):
            with pytest.raises(InputError, match=f"files of something else, such as {key}") as told:
                create_table(storage, GIVEN, SystemRuntime(), if_not_exists=if_not_exists)
        assert "LakeTable.from_parquet" in told.value.hint
        assert [each.key for each in storage.list(layout.HOODIE)] == []


def test_hidden_files_and_those_of_a_metadata_folder_leave_room_for_a_table(tmp_path: Path) -> None:
    hidden = ("_SUCCESS", "_checkpoint/offsets/0", ".hoodie/.temp/left", "month=1/.hoodie_partition_metadata", "old_$folder$")
    for storage in (MemoryStorage(), LocalStorage(str(tmp_path / "t"))):
        for key in hidden:
            storage.put(key, b"")
        assert create_table(storage, GIVEN, SystemRuntime())


@pytest.mark.parametrize(
    "left", [f"{layout.TIMELINE}/20261121093515485.commit.requested", f"{layout.HISTORY}/manifest_1", f"{layout.DECISIONS}/4"]
)
def test_no_table_is_made_on_the_commits_of_one_that_is_half_deleted(tmp_path: Path, left: str) -> None:
    for storage in (MemoryStorage(), LocalStorage(str(tmp_path / "t"))):
        storage.put(left, b"")
        for if_not_exists in (False, True):
            with pytest.raises(TableError, match=f"holds what is left of a table: {left}") as told:
                create_table(storage, GIVEN, SystemRuntime(), if_not_exists=if_not_exists)
        assert "delete all that is left of it" in told.value.hint
        assert [each.key for each in storage.list(layout.HOODIE)] == [left]


def test_the_rows_of_a_table_that_somebody_else_has_just_made_are_not_in_the_way() -> None:
    class MadeMeanwhile(MemoryStorage):
        def list(self, prefix: str, *, start_after: str = "") -> Iterator[Listed]:
            if self.get(layout.PROPERTIES) is None:
                new_table(self.beside)
                for key in (layout.PROPERTIES, "month=1/part-0.parquet"):
                    found = self.beside.get(key)
                    self.put(key, b"" if found is None else found.data)
            return super().list(prefix, start_after=start_after)

        beside = MemoryStorage()

    assert create_table(MadeMeanwhile(), GIVEN, SystemRuntime(), if_not_exists=True) is False


def test_a_table_whose_properties_a_writer_is_just_replacing_is_there() -> None:
    storage = MemoryStorage()
    new_table(storage)
    storage.put(layout.PROPERTIES_BACKUP, unmoved(storage))
    storage.delete([layout.PROPERTIES])
    assert create_table(storage, GIVEN, SystemRuntime(), if_not_exists=True) is False
    assert storage.get(layout.PROPERTIES) is None


def test_a_table_with_the_same_definition_and_more_columns_is_the_one_that_was_meant() -> None:
    wider = pa.schema([*COLUMNS, pa.field("added", pa.string())])
    check(GIVEN, wider)
    check(TableProperties.new("other name", ("id",), ("month",), "v"))
    check(GIVEN, columns=COLUMNS.set(1, pa.field("v", pa.int32())))


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        (TableProperties.new("t", ("id", "v"), ("month",), "v"), "key: id was given, the table has id, v"),
        (TableProperties.new("t", ("id",), (), "v"), "partition_by: month was given, the table has none"),
        (TableProperties.new("t", ("id",), ("month",)), "order_by: v was given, the table has none"),
        (
            TableProperties.new("t", ("id",), ("month",), "v", hive_style=False),
            "hive_style: True was given, the table has False",
        ),
        (TableProperties.new("u", ("id",), ("month",), "v"), "name: t was given, the table has u"),
    ],
)
def test_a_table_with_another_definition_is_refused_with_both_sides_named(found: TableProperties, difference: str) -> None:
    with pytest.raises(TableError, match=f"(?s)file:///t is a table already.*{difference}"):
        check(found, name=True)


@pytest.mark.parametrize(
    ("columns", "difference"),
    [
        (pa.schema([*COLUMNS, pa.field("new", pa.date32())]), r"new \(date32\[day\]\) was given, the table has no such column"),
        (COLUMNS.set(1, pa.field("v", pa.string())), "v: string does not fit int64"),
    ],
)
def test_a_table_that_cannot_hold_the_columns_is_refused(columns: pa.Schema, difference: str) -> None:
    with pytest.raises(TableError, match=f"schema: {difference}") as refused:
        check(GIVEN, columns=columns)
    assert "merge_schema=True adds a column" in refused.value.hint
