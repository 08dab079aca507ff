"""A rewrite against the simplest model: a list of rows and a dictionary."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from tests.api import BaseFile, BaseFileWriter, Keyed, Stamp, TableSchema

from lakelock.settings import WriteSettings
from lakelock.table.record_keys import dedupe
from lakelock.table.rewriting import Counts, keys_among, rewrite
from lakelock.table.schema import META_COLUMNS

OLD, NEW = "20260101000000000", "20260102000000000"
SCHEMA = TableSchema.from_arrow(
    pa.schema(
        [("id", pa.string()), ("v", pa.int64()), ("ord", pa.int32()), ("tags", pa.list_(pa.string())), ("s", pa.string())]
    )
)
SETTINGS = WriteSettings(row_group_rows=3, bloom_entries=10, batch_rows=2)
Row = dict[str, Any]


def stamp(instant: str) -> Stamp:
    return Stamp("t", instant, "", f"f-0_1-2-3_{instant}.parquet")


def table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA.arrow)


def keyed(rows: list[Row]) -> Keyed:
    return Keyed(table(rows), pa.chunked_array([[row["id"] for row in rows]], pa.string()))


def base_of(rows: list[Row]) -> io.BytesIO:
    output = io.BytesIO()
    writer = BaseFileWriter(output, SCHEMA, stamp(OLD), SETTINGS)
    for part in keyed(rows).slices(2):
        writer.add_new(part.rows, part.keys)
    writer.close()
    return output


def rewritten(base: io.BytesIO, **changes: Any) -> tuple[list[Row], Counts]:
    output = io.BytesIO()
    with BaseFile(base, "base") as stored:
        writer = BaseFileWriter(output, SCHEMA, stamp(NEW), SETTINGS)
        counts = rewrite(stored, writer, SCHEMA, **changes)
        writer.close()
    return pq.read_table(output).to_pylist(), counts


KEYS = st.sampled_from([f"k{i}" for i in range(8)])
ROW = st.builds(
    lambda key, v, order, tags: {"id": key, "v": v, "ord": order, "tags": tags, "s": None if v % 3 == 0 else f"s{v}"},
    KEYS,
    st.integers(0, 99),
    st.none() | st.integers(0, 3),
    st.none() | st.lists(st.none() | st.sampled_from("xy"), max_size=2),
)


@given(
    st.lists(ROW, max_size=10),
    st.lists(ROW, max_size=6, unique_by=lambda row: row["id"]),
    st.lists(KEYS, max_size=3),
    st.booleans(),
)
def test_a_rewrite_is_what_the_model_says(stored: list[Row], upserts: list[Row], deletes: list[str], ordered: bool) -> None:
    delete_mask = keys_among(pa.array(deletes, pa.string())) if deletes else None
    found, counts = rewritten(
        base_of(stored), upserts=keyed(upserts), delete_mask=delete_mask, ordering_field="ord" if ordered else None
    )

    incoming = {row["id"]: row for row in upserts}
    expected, updated, matched = [], 0, set()
    kept = [(i, row) for i, row in enumerate(stored) if row["id"] not in deletes]
    for position, (i, row) in enumerate(kept):
        new = incoming.get(row["id"])
        matched |= {row["id"]} if new else set()
        if new is not None and (not ordered or _rank(new) >= _rank(row)):
            expected.append((new, NEW, f"{NEW}_1_{position}"))
            updated += 1
        else:
            expected.append((row, OLD, f"{OLD}_1_{i}"))
    inserts = [row for row in upserts if row["id"] not in matched]
    expected += [(row, NEW, f"{NEW}_1_{len(kept) + i}") for i, row in enumerate(inserts)]

    assert [{name: row[name] for name in SCHEMA.names} for row in found] == [row for row, _, _ in expected]
    assert [(row["_hoodie_commit_time"], row["_hoodie_commit_seqno"]) for row in found] == [at[1:] for at in expected]
    assert all(row["_hoodie_record_key"] == row["id"] for row in found)
    assert {row["_hoodie_file_name"] for row in found} <= {stamp(NEW).file_name}
    assert counts == Counts(len(expected), len(inserts), updated, len(stored) - len(kept))


def _rank(row: Row) -> int:
    return -1 if row["ord"] is None else int(row["ord"])


@given(st.lists(ROW, max_size=12))
def test_dedupe_keeps_the_newest_row_of_each_key(rows: list[Row]) -> None:
    best: dict[str, tuple[int, int]] = {}
    for position, row in enumerate(rows):
        best[row["id"]] = max(best.get(row["id"], (-2, 0)), (_rank(row), position))
    kept = dedupe(keyed(rows), "ord", take_any=True)
    assert kept.rows.to_pylist() == [rows[position] for position in sorted(at for _, at in best.values())]
    assert kept.keys.to_pylist() == kept.rows["id"].to_pylist()


def test_meta_columns_are_the_usual_ones() -> None:
    found, _ = rewritten(base_of([{"id": "a", "v": 1, "ord": None, "tags": None, "s": None}]))
    assert list(found[0])[:5] == list(META_COLUMNS)
