"""Base files that Java Hudi wrote, understood, and written again the same."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.api import BaseFile, TableSchema
from tests.golden_tables import golden_table
from tests.unit.table.test_base_file import written

from lakelock.table.parquet_footers import BloomFilter

SCHEMA = TableSchema.from_arrow(
    pa.schema([("id", pa.string()), ("v", pa.int64()), ("ts", pa.int64()), ("region", pa.string())])
)
JAVA_MADE = ["java12_ops", "java12_services", "java12_pending_clustering"]


def base_files(table: str) -> list[Path]:
    found = [path for path in golden_table(table).glob("*/*.parquet") if not path.parent.name.startswith(".")]
    assert found
    return found


@pytest.mark.parametrize("table", [*JAVA_MADE, "mixed_java_then_python"])
def test_footers_and_rows_are_understood(table: str) -> None:
    for path in base_files(table):
        with BaseFile(path.open("rb"), path.name) as file:
            keys = [key for batch in file.key_batches() for key in batch.to_pylist()]
            found = file.key_range()
            assert (found is None) == (not keys)
            if found is not None:
                assert (found.least, found.greatest) == (min(keys), max(keys))
            bloom = file.bloom()
            assert bloom is not None and bloom.might_contain(pa.array(keys, pa.string())).all()
            assert not bloom.might_contain(pa.array(["absent", "k", ""])).any()
            assert sum(batch.num_rows for batch in file.stamped_batches(SCHEMA)) == len(keys)


@pytest.mark.parametrize("table", JAVA_MADE)
def test_the_same_keys_give_the_same_filter(table: str) -> None:
    for path in base_files(table):
        keys = pq.read_table(path, columns=["_hoodie_record_key"], partitioning=None).column(0)
        text = pq.read_metadata(path).metadata[b"org.apache.hudi.bloomfilter"]
        assert BloomFilter.of(keys.chunks, entries=60_000, fpp=1e-9).to_text() == text.decode()


@pytest.mark.parametrize("table", JAVA_MADE)
def test_the_footer_schema_is_javas_byte_for_byte(table: str) -> None:
    footers = [pq.read_metadata(path).metadata for path in base_files(table)]
    java = {footer[b"parquet.avro.schema"].decode() for footer in footers if b"parquet.avro.schema" in footer}
    assert java == {SCHEMA.footer_json("t")}
    assert TableSchema.from_avro_json(java.pop()) == SCHEMA


def test_a_file_of_ours_has_the_physical_types_of_javas() -> None:
    output, _, _ = written(pa.table({"id": ["a"], "v": [1], "ts": [1], "region": ["eu"]}))
    ours, theirs = (pq.read_metadata(source).schema for source in (output, base_files("java12_ops")[0]))
    assert [_physical(ours.column(i)) for i in range(len(ours))] == [_physical(theirs.column(i)) for i in range(len(theirs))]


def _physical(column: pq.ColumnSchema) -> tuple[str, str, str, int]:
    return column.path, column.physical_type, str(column.logical_type), column.max_definition_level
