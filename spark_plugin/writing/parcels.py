"""Rows on their way from the tasks that look keys up to those that write: as Arrow, many in one binary value.

Spark keeps and moves these few values unchanged. It would convert its own rows four times on the way, which
costs several times as much CPU as the look-up and the transfer themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelock.spark_plugin.writing.reports import REPORT
from lakelock.table.properties import TableProperties
from lakelock.table.rows import rows_within

ROUTE = "_lakelock_route"
KEYS, REST = "_lakelock_keys", "_lakelock_rest"
PARCELS = pa.schema([(ROUTE, pa.int32()), (KEYS, pa.binary()), (REST, pa.binary()), (REPORT, pa.binary())])
"""What a stage that sends rows returns: all rows of one value have the same route."""
PARCEL_BYTES = 4 << 20
"""About how many bytes one value may hold."""


@dataclass(frozen=True)
class Parcels:
    """How rows are packed: the key and partition columns apart from the rest, so keys can be read alone."""

    keys: pa.Schema
    rest: pa.Schema

    @classmethod
    def of(cls, columns: pa.Schema, properties: TableProperties) -> Parcels:
        """For rows of these columns."""
        names = {*properties.record_keys, *properties.partition_fields}
        keys = pa.schema([field for field in columns if field.name in names])
        return cls(keys, pa.schema([field for field in columns if field.name not in names]))

    def packed(self, rows: pa.Table, positions: npt.NDArray[Any], routes: npt.NDArray[Any]) -> Iterator[pa.RecordBatch]:
        """The rows at these positions, each with its route."""
        order = np.argsort(routes, kind="stable")
        routes, ordered = routes[order], rows.take(pa.array(positions[order])).combine_chunks()
        most_rows = rows_within(ordered, PARCEL_BYTES)
        keys, rest = ordered.select(self.keys.names), ordered.select(self.rest.names)
        bounds = [0, *(np.flatnonzero(np.diff(routes)) + 1).tolist(), len(routes)]
        sent = _Sent()
        for start, end in pairwise(bounds):
            for at in range(start, end, most_rows):
                count = min(most_rows, end - at)
                sent.add(int(routes[at]), _to_bytes(keys.slice(at, count)), _to_bytes(rest.slice(at, count)))
                if sent.size_bytes >= PARCEL_BYTES:
                    yield sent.batch()
                    sent = _Sent()
        yield sent.batch()

    def unpacked(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
        """The rows of each value, and their route; the key columns first."""
        schema = pa.schema([*self.keys, *self.rest])
        for batch in batches:
            for route, keys, rest in zip(batch[ROUTE].to_pylist(), batch[KEYS], batch[REST], strict=True):
                columns = [*_from_bytes(keys, self.keys).columns, *_from_bytes(rest, self.rest).columns]
                yield route, pa.table(columns, schema=schema)

    def unpacked_keys(self, batches: Iterable[pa.RecordBatch], most_rows: int) -> Iterator[pa.Table]:
        """The key and partition columns of the rows, about `most_rows` at a time."""
        pending: list[pa.RecordBatch] = []
        count = 0
        for value in (value for batch in batches for value in batch[KEYS]):
            pending.append(_from_bytes(value, self.keys))
            count += pending[-1].num_rows
            if count >= most_rows:
                yield pa.Table.from_batches(pending, self.keys)
                pending, count = [], 0
        if pending:
            yield pa.Table.from_batches(pending, self.keys)


class _Sent:
    """Values that go into one batch."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._routes: list[int] = []
        self._keys: list[pa.Buffer] = []
        self._rest: list[pa.Buffer] = []

    def add(self, route: int, keys: pa.Buffer, rest: pa.Buffer) -> None:
        self._routes.append(route)
        self._keys.append(keys)
        self._rest.append(rest)
        self.size_bytes += keys.size + rest.size

    def batch(self) -> pa.RecordBatch:
        none = pa.nulls(len(self._routes), pa.binary())
        columns = [pa.array(self._routes, pa.int32()), _binary(self._keys), _binary(self._rest), none]
        return pa.RecordBatch.from_arrays(columns, schema=PARCELS)


def _binary(values: list[pa.Buffer]) -> pa.Array:
    # `pa.array` of memory views never lets their bytes go, and Spark's workers live as long as its application.
    offsets = pa.array(np.cumsum([0, *(value.size for value in values)]), pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), len(values), [None, offsets, pa.py_buffer(b"".join(values))])


def _to_bytes(rows: pa.Table) -> pa.Buffer:
    if not rows.num_columns:
        return pa.py_buffer(b"")
    (batch,) = rows.combine_chunks().to_batches()
    return batch.serialize()


def _from_bytes(value: pa.BinaryScalar, schema: pa.Schema) -> pa.RecordBatch:
    # A copy: Arrow needs aligned buffers, and in a column they are not aligned.
    return pa.ipc.read_record_batch(pa.py_buffer(value.as_py()), schema) if len(schema) else _NOTHING


_NOTHING = pa.RecordBatch.from_arrays([], schema=pa.schema([]))
