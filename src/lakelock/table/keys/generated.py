"""Tables without a key: each row gets one when it is written, which is never looked up and never changes.

Hudi 0.14 and later (`AutoRecordGenWrapperKeyGenerator`) writes `<instant>_<number of the task>_<position>`, all in digits, and
no reader takes such a key apart.
"""

from __future__ import annotations

import pyarrow as pa

from lakelock.errors import InputError
from lakelock.table.keys.numbering import numbered
from lakelock.table.properties import TableProperties


class GeneratedKeys:
    """The keys of the rows that one task writes, none of which occurs twice in the table.

    `task` must be a number that no other task of the transaction has.
    """

    def __init__(self, instant: str, task: int) -> None:
        self._prefix, self._used = f"{instant}_{task}_", 0

    def take(self, count: int) -> pa.ChunkedArray:
        """The next `count` keys."""
        first, self._used = self._used, self._used + count
        return pa.chunked_array([numbered(self._prefix, first, count)])


def keys_to_come(count: int) -> pa.ChunkedArray:
    """What stands for the keys of `count` rows until they are written."""
    return pa.chunked_array([pa.nulls(count, pa.string())])


def require_key(properties: TableProperties, what: str) -> None:
    """`InputError` if the table has no key, which `what`, such as "an upsert", needs to find rows."""
    if not properties.record_keys:
        raise InputError(
            f"{what} finds rows by their key, and the table {properties.name} was made without one",
            hint="append with insert(df); change rows with update(values, where) and delete(where), or replace them with "
            "overwrite(df, where); for rows with a key make a table with key=...",
        )
