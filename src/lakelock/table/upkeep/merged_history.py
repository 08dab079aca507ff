"""Merging files of the timeline's history into one, some rows at a time: the metadata of thousands of commits is large."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakelock.errors import CorruptTableError
from lakelock.storage import Storage
from lakelock.table.upkeep.history import COLUMNS, HINT, ROWS_AT_ONCE, HistoryFile

_READ_AT_ONCE = 64
"""Rows of each file that are in memory."""
_instant, _action = itemgetter(COLUMNS.names.index("instantTime")), itemgetter(COLUMNS.names.index("action"))


def merged_bytes(storage: Storage, files: Iterable[HistoryFile]) -> bytes:
    """One file with the rows of several, each instant once, in order."""
    rows, out = _unique(_in_order(storage, files)), io.BytesIO()
    with pq.ParquetWriter(out, COLUMNS, compression="gzip", store_schema=False) as writer:
        while group := list(islice(rows, ROWS_AT_ONCE)):
            columns = zip(*group, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, COLUMNS, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=COLUMNS))
    return out.getvalue()


def _unique(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    for _, same in groupby(rows, key=_instant):
        actions: dict[str, tuple[Any, ...]] = {}
        for row in same:
            actions.setdefault(_action(row), row)
        yield from (actions[action] for action in sorted(actions))


def _in_order(storage: Storage, files: Iterable[HistoryFile]) -> Iterator[tuple[Any, ...]]:
    """The rows of all files in order of their instants. Files are open together only where their ranges overlap."""
    run: list[HistoryFile] = []
    for file in sorted(files):
        if run and file.first > max(each.last for each in run):
            yield from merge(*(_rows(storage, each) for each in run), key=_instant)
            run = []
        run.append(file)
    yield from merge(*(_rows(storage, each) for each in run), key=_instant)


def _rows(storage: Storage, file: HistoryFile) -> Iterator[tuple[Any, ...]]:
    with storage.open_input(file.key) as source:
        try:
            for batch in pq.ParquetFile(source).iter_batches(_READ_AT_ONCE, columns=COLUMNS.names):
                yield from zip(*(batch.column(name).to_pylist() for name in COLUMNS.names), strict=True)
        except (pa.ArrowException, OSError, KeyError) as error:
            raise CorruptTableError(f"{file.key} cannot be read: {error}", hint=HINT, file=file.key) from error
