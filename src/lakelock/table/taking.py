"""Taking rows out of tables that may hold more text than one Arrow array can, and how many rows so much memory holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

_ARRAY_BYTES = (1 << 31) - 1
"""What an array of texts, whose offsets have 32 bits, holds at most."""

_PIECE_BYTES = 128 << 20


def rows_within(rows: pa.Table, size_bytes: int) -> int:
    """About how many of these rows take so much memory; at least one."""
    return max(1, size_bytes * int(rows.num_rows) // max(1, int(rows.nbytes)))


def taken(rows: pa.Table, positions: Any) -> pa.Table:
    """The rows at these positions, in this order.

    Arrow's `take` first puts the chunks of a column together, and fails where they have more than 2 GB of text. Such a table
    is taken in pieces of about 128 MB: of each, the rows are filtered, chunk by chunk, and then put in order.
    """
    if rows.nbytes < _ARRAY_BYTES:
        return rows.take(pa.array(positions))
    most_rows = rows_within(rows, _PIECE_BYTES)
    pieces = [_piece(rows, positions[start : start + most_rows]) for start in range(0, len(positions), most_rows)]
    return pa.concat_tables([rows.slice(0, 0), *pieces])


def _piece(rows: pa.Table, positions: Any) -> pa.Table:
    wanted, order = np.unique(positions, return_inverse=True)
    mask = np.zeros(rows.num_rows, np.bool_)
    mask[wanted] = True
    return rows.filter(pa.array(mask)).take(pa.array(order))
