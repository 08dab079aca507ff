"""Rows of simulated tables, as actors, checks and base files know them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any, NamedTuple

import pyarrow as pa

from tests.api import BaseFile, TableSchema

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("v", pa.int64()),
        ("trail", pa.string()),
        ("left", pa.int64()),
        ("right", pa.int64()),
        ("part", pa.string()),
    ]
)
TABLE_SCHEMA = TableSchema.from_arrow(SCHEMA)


NOT_GIVEN = -1
"""Stands in `left` or `right` of rows to write that lack this column; never stored."""

Stored = tuple[int, tuple[int, ...], int | None, int | None]
"""What a table holds under a key: value, trail, left, right."""


class Row(NamedTuple):
    """One row. `trail` are the operations that wrote it, oldest first: a transfer appends itself, a blind write starts over.

    `left` and `right` are columns that some writers write alone: each holds the number of the operation that wrote it last.
    """

    part: str
    key: str
    value: int
    trail: tuple[int, ...]
    left: int | None = None
    right: int | None = None

    @property
    def stored(self) -> Stored:
        """What is stored for a new key: null in the columns that this row lacks."""
        return self.onto((0, (), None, None))

    def onto(self, stored: Stored) -> Stored:
        """What is stored after an upsert by this row, which changes only the columns that it has."""
        whole = self.completed(stored[2], stored[3])
        return whole.value, whole.trail, whole.left, whole.right

    def completed(self, left: int | None = None, right: int | None = None) -> Row:
        """This row with the given values in the columns that it lacks."""
        return self._replace(
            left=left if self.left == NOT_GIVEN else self.left, right=right if self.right == NOT_GIVEN else self.right
        )


def partition_of(part: str) -> str:
    return f"part={part}"


@lru_cache(maxsize=1024)  # a file of a run is read many times, by the engine and by the checks, and never changes
def rows_of(key: str, data: bytes) -> tuple[Row, ...]:
    """The rows of a base file: of Parquet, or of a line of JSON."""
    if data[:4] == b"PAR1":
        with BaseFile(BytesIO(data), key) as base:
            found = [row for batch in base.batches(TABLE_SCHEMA) for row in batch.to_pylist()]
        return tuple(row_of(row) for row in found)
    part = key.split("/", 1)[0].partition("=")[2]
    return tuple(Row(part, name, value, tuple(trail), left, right) for name, value, trail, left, right, *_ in json.loads(data))


STORED_FIELDS = 5
"""How many fields of a row a line of JSON has: all but the partition."""
WRITTEN_NOW = 1
"""Behind each row that the commit of a file has written, where a line of JSON is the file: what its commit time tells."""


def written_now(data: bytes) -> frozenset[str]:
    """The keys of those rows."""
    return frozenset(line[0] for line in json.loads(data) if line[-1] == WRITTEN_NOW and len(line) == STORED_FIELDS + 1)


def record_key(part: str, key: str) -> str:
    """The record key of a row: keys of two partitions are two."""
    return f"{part}:{key}"


def row_of(found: dict[str, Any]) -> Row:
    """The row that Arrow shows as a dictionary."""
    trail = tuple(json.loads(found["trail"]))
    return Row(found["part"], found["id"], found["v"], trail, found["left"], found["right"])


Changes = tuple[tuple[Row, ...], tuple[str, ...]]
"""What a log file says: rows, and keys of deleted rows."""


def log_line(rows: Sequence[Row], deleted: Sequence[str]) -> bytes:
    """A log file, as a line of JSON."""
    return json.dumps([[row[1:] for row in rows], list(deleted)]).encode()


@lru_cache(maxsize=1024)
def changes_of(key: str, data: bytes) -> Changes:
    """What a log file says that is a line of JSON."""
    part = key.split("/", 1)[0].partition("=")[2]
    rows, deleted = json.loads(data)
    return tuple(Row(part, name, value, tuple(trail), *rest) for name, value, trail, *rest in rows), tuple(deleted)


def merged(rows: Iterable[Row], logs: Iterable[Changes]) -> tuple[Row, ...]:
    """The rows of a base file with what log files say, in their order. Of rows with one key they change the first."""
    newest: dict[str, Row | None] = {}
    for changed, deleted in logs:
        newest |= {row.key: row for row in changed} | dict.fromkeys(deleted)
    found = [newest.pop(row.key) if row.key in newest else row for row in rows]
    return tuple(row for row in (*found, *newest.values()) if row is not None)
