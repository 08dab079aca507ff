"""Rows that are replaced by position, beside rows that go and rows that come."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.api import BaseFile, BaseFileWriter, DataFile, Keyed, MemoryStorage, Stamp, TableProperties, TableSchema

from lakelock.settings import WriteSettings
from lakelock.table.rewriting import ARROW, Counts, DeleteMask, Located, Placed, rewrite

OLD, NEW = "20260101000000000", "20270101000000000"
PROPERTIES = TableProperties.new("t", ["id"], [])
SCHEMA = TableSchema(pa.schema([("id", pa.string()), ("v", pa.int64()), ("w", pa.int64())]))


def base_file(count: int) -> io.BytesIO:
    """A file with `count` rows: ids, their numbers as `v`, and 0 as `w`."""
    output = io.BytesIO()
    writer = BaseFileWriter(output, SCHEMA, Stamp("t", OLD, "", f"f_0-0-0_{OLD}.parquet"), WriteSettings())
    table = pa.table({"id": [f"k{n}" for n in range(count)], "v": list(range(count)), "w": [0] * count})
    rows = Keyed.of(table.cast(SCHEMA.arrow), PROPERTIES)
    writer.add_new(rows.rows, rows.keys)
    writer.close()
    return output


@pytest.mark.parametrize("seed", range(20))
def test_rows_at_places_get_new_values_whatever_goes_before_them_and_whatever_comes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BaseFile, "batch_rows_within", lambda *_: 7)
    rng = np.random.default_rng(seed)
    fates = rng.integers(0, 3, 50)  # keep, change, delete
    changed, gone = np.flatnonzero(fates == 1), np.flatnonzero(fates == 2)
    added = Keyed.of(pa.table({"id": ["new"], "v": [-1], "w": [-1]}).cast(SCHEMA.arrow), PROPERTIES)
    output, at = io.BytesIO(), [0]

    def mask(batch: pa.Table) -> pa.Array:
        start, at[0] = at[0], at[0] + batch.num_rows
        return pa.array(np.isin(np.arange(start, at[0]), gone))

    placed = Placed(pa.table({"v": pa.array(changed + 1000, pa.int64())}), changed)
    with BaseFile(base_file(50), "f") as stored:
        writer = BaseFileWriter(output, SCHEMA, Stamp("t", NEW, "", f"f_0-0-0_{NEW}.parquet"), WriteSettings())
        counts = rewrite(stored, writer, SCHEMA, upserts=placed, delete_mask=mask, added=added)
        writer.close()
    assert counts == Counts(51 - len(gone), 1, len(changed), len(gone))
    rows = pq.read_table(output).to_pylist()
    expected = [(f"k{n}", n + 1000 if fates[n] == 1 else n, NEW if fates[n] == 1 else OLD) for n in range(50) if fates[n] != 2]
    assert [(row["id"], row["v"], row["_hoodie_commit_time"]) for row in rows] == [*expected, ("new", -1, NEW)]
    fresh = [row["_hoodie_commit_seqno"] for row in rows if row["_hoodie_commit_time"] == NEW]
    assert len(set(fresh)) == len(fresh)


@pytest.mark.parametrize("seed", range(20))
def test_keys_that_were_looked_up_replace_the_same_rows_as_keys_that_are_compared(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BaseFile, "batch_rows_within", lambda *_: 7)
    rng, storage, base = np.random.default_rng(seed), MemoryStorage(), DataFile("", "f", "0-0-0", OLD)
    stored = pa.table({"id": [f"k{n}" for n in rng.integers(0, 40, 50)], "v": rng.integers(0, 9, 50), "w": [0] * 50})
    with storage.open_output(base.key) as output:
        writer = BaseFileWriter(output, SCHEMA, Stamp("t", OLD, "", base.name), WriteSettings())
        writer.add_new(stored, stored["id"])
        writer.close()
    ids = [f"k{n}" for n in rng.permutation(60)[:30]]
    rows = pa.table({"id": ids, "v": rng.integers(0, 9, 30), "w": [1] * 30}).cast(SCHEMA.arrow)
    ((_, located),), _ = ARROW.tag(Keyed.of(rows, PROPERTIES), [base], storage)
    assert isinstance(located, Located)
    mask: DeleteMask | None = (lambda batch: pc.equal(batch["v"], 3)) if seed % 2 else None

    def result(upserts: Keyed) -> tuple[Counts, pa.Table]:
        output = io.BytesIO()
        with BaseFile(storage.open_input(base.key), "f") as file:
            writer = BaseFileWriter(output, SCHEMA, Stamp("t", NEW, "", f"f_0-0-0_{NEW}.parquet"), WriteSettings())
            counts = rewrite(file, writer, SCHEMA, upserts=upserts, delete_mask=mask, ordering_field="v")
            writer.close()
        return counts, pq.read_table(output)

    counts, found = result(located)
    assert (counts, found) == result(Keyed(located.rows, located.keys)) and counts.updated
