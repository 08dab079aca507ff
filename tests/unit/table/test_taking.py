"""Taking rows out of tables with more text than one Arrow array can hold."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.api import Keyed

from lakelock.table.record_keys import dedupe
from lakelock.table.rows import take_rows

CHUNK_BYTES = 500 << 20


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Five chunks of 500 MB, each a long text between two short ones. They share their memory, and nobody writes to it."""
    data = pa.py_buffer(np.zeros(CHUNK_BYTES, np.uint8))

    def chunk(number: int) -> pa.Array:
        ends = np.array([0, number, CHUNK_BYTES - 1 - number, CHUNK_BYTES], np.int32)
        return pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(ends), data])

    return pa.table({"number": pa.array(range(15)), "text": pa.chunked_array([chunk(number) for number in range(5)])})


def test_arrow_itself_still_cannot_take_from_such_a_table(rows: pa.Table) -> None:
    """Once it can, `taken` is no longer needed."""
    with pytest.raises(pa.ArrowInvalid, match="offset overflow"):
        rows.take(pa.array([0]))


def test_rows_are_taken_in_the_order_that_is_asked_for_and_as_often(rows: pa.Table) -> None:
    found = take_rows(rows, np.array([12, 0, 3, 12, 9]))
    assert found.column("number").to_pylist() == [12, 0, 3, 12, 9]
    assert [len(text) for text in found.column("text").to_pylist()] == [4, 0, 1, 4, 3]
    assert take_rows(rows, np.array([], np.int64)).num_rows == 0


@pytest.mark.long
def test_more_rows_are_taken_than_one_array_can_hold(rows: pa.Table) -> None:
    order = np.arange(15)[::-1]
    found = take_rows(rows, order)
    assert found.column("number").to_pylist() == order.tolist()
    assert found.nbytes > 1 << 31
    assert found.schema == rows.schema


def test_rows_of_a_small_table_are_taken_as_arrow_takes_them() -> None:
    small = pa.table({"a": [1, 2, 3]})
    assert take_rows(small, np.array([2, 0])) == pa.table({"a": [3, 1]})


def test_one_row_of_each_key_is_chosen_from_more_text_than_one_array_can_hold(rows: pa.Table) -> None:
    keys = pa.chunked_array([pa.array([f"k{number // 3}" for number in range(15)])])
    found = dedupe(Keyed(rows, keys), "number")
    assert found.rows.column("number").to_pylist() == [2, 5, 8, 11, 14]
