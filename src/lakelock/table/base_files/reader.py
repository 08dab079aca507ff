"""Reading base files of any Hudi writer: footers, record keys, and rows in batches."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakelock.amounts import counted
from lakelock.errors import CorruptTableError
from lakelock.table.base_files.bloom import DYNAMIC, BloomFilter, nominal_error_rate
from lakelock.table.base_files.key_range import KeyRange
from lakelock.table.base_files.writer import CONSTANT, FOOTER_BLOOM, FOOTER_BLOOM_TYPE, FOOTER_MAX_KEY, FOOTER_MIN_KEY
from lakelock.table.columns.fitting import read_as
from lakelock.table.damage import RESTORE_OR_ROLL_BACK
from lakelock.table.schema import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY, TableSchema

T = TypeVar("T")

BATCH_ROWS = 65_536
_MOST_ROWS = 262_144
_KEY = pa.schema([(RECORD_KEY, pa.string())])
_STAMPS = pa.schema([(COMMIT_TIME, pa.string()), (COMMIT_SEQNO, pa.string()), (RECORD_KEY, pa.string())])
_LACKS_KEYS = "it lacks Hudi's meta columns"


class BaseFile:
    """One base file, open for reading; `name` is for messages. Use it in a `with` block, or close `source` yourself."""

    def __init__(self, source: IO[bytes], name: str) -> None:
        self._source, self.name = source, name
        with self._readable():
            try:
                self._parquet = pq.ParquetFile(
                    source, read_dictionary=[COMMIT_TIME], coerce_int96_timestamp_unit="us", pre_buffer=True
                )
            except KeyError as error:
                raise self._damaged(_LACKS_KEYS) from error

    def __enter__(self) -> BaseFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()

    @property
    def rows(self) -> int:
        return int(self._parquet.metadata.num_rows)

    @property
    def row_groups(self) -> int:
        return int(self._parquet.metadata.num_row_groups)

    @property
    def arrow(self) -> pa.Schema:
        """The columns as they are in the file."""
        with self._readable():
            return self._parquet.schema_arrow

    def key_range(self) -> KeyRange | None:
        """The range that the footer states, None when it states none."""
        least, greatest = self._entry(FOOTER_MIN_KEY), self._entry(FOOTER_MAX_KEY)
        return None if least is None or greatest is None else KeyRange(least, greatest)

    def bloom(self) -> BloomFilter | None:
        """The filter in the footer, None when there is none."""
        text = self._entry(FOOTER_BLOOM)
        return None if text is None else BloomFilter.parse(text, self._entry(FOOTER_BLOOM_TYPE) or DYNAMIC, self.name)

    def bloom_error_rate(self) -> float:
        """Roughly the share of absent keys that the filter lets pass, 1 without a filter; does not unpack it."""
        text = self._entry(FOOTER_BLOOM)
        return 1.0 if text is None else nominal_error_rate(text, self.name)

    def batch_rows_within(self, size_bytes: int) -> int:
        """How many rows take about `size_bytes` in memory, judged by the file's widest row group."""
        metadata = self._parquet.metadata
        groups = (metadata.row_group(i) for i in range(self.row_groups))
        widest = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=0.0)
        return max(1024, min(_MOST_ROWS, int(size_bytes / max(1.0, widest))))

    def key_batches(self) -> Iterator[pa.ChunkedArray]:
        """The record keys, a row group at a time, or a part of a large one."""
        yield from self._batches([RECORD_KEY], _MOST_ROWS, self._keys)

    def stamped_batches(self, schema: TableSchema, batch_rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
        """Rows in the table's types, with their commit time (as `CONSTANT`), sequence number and record key first."""
        stamps = pa.schema([(COMMIT_TIME, CONSTANT), (COMMIT_SEQNO, pa.string()), (RECORD_KEY, pa.string())])
        wanted = pa.schema([*stamps, *schema.arrow])

        def stamped(batch: pa.Table) -> pa.Table:
            found = self._keys(batch)
            # Whoever rewrites the file sorts its keys as text.
            found.validate(full=True)
            if found.null_count:
                raise self._damaged(f"it holds {counted(found.null_count, 'row')} without a record key")
            rows = read_as(batch, wanted, self.name)
            for field, column in zip(schema.arrow, rows.columns[len(stamps) :], strict=True):
                if column.null_count and not field.nullable:
                    what = f"{field.name}, which the table says is not null"
                    raise self._damaged(f"it holds {counted(column.null_count, 'row')} without {what}")
            return rows

        yield from self._batches([*stamps.names, *schema.names], batch_rows, stamped)

    def stamps(self) -> Iterator[pa.Table]:
        """Commit time, sequence number and record key of each row, as texts."""

        def stamped(batch: pa.Table) -> pa.Table:
            self._keys(batch)
            found = read_as(batch, _STAMPS, self.name)
            filled = [column if not column.null_count else column.fill_null("") for column in found.columns]
            return pa.table(filled, schema=_STAMPS)

        yield from self._batches(_STAMPS.names, BATCH_ROWS, stamped)

    def rows_at(self, places: npt.NDArray[np.int64], schema: TableSchema, *, stamped: bool = False) -> Iterator[pa.Table]:
        """The rows at some places in the file, in the table's types; with `stamped` the columns of `stamps` come first.

        Row groups that have none of them are not read.
        """
        wanted = pa.schema([*(_STAMPS if stamped else ()), *schema.arrow])
        ordered, first = np.sort(places), 0
        for group in range(self.row_groups):
            last = first + self._parquet.metadata.row_group(group).num_rows
            mine = ordered[np.searchsorted(ordered, first) : np.searchsorted(ordered, last)]
            at, first = first, last
            if not len(mine):
                continue
            for batch in self._batches(wanted.names, BATCH_ROWS, lambda found: read_as(found, wanted, self.name), [group]):
                here = mine[(mine >= at) & (mine < at + batch.num_rows)]
                if len(here):
                    yield batch.take(pa.array(here - at))
                at += batch.num_rows

    def batches(self, schema: TableSchema, batch_rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
        """Rows in the table's types, without meta columns."""
        yield from self._batches(schema.names, batch_rows, lambda batch: read_as(batch, schema.arrow, self.name))

    def _batches(
        self, columns: Sequence[str], batch_rows: int, made: Callable[[pa.Table], T], groups: Sequence[int] | None = None
    ) -> Iterator[T]:
        with self._readable():
            there = frozenset(self.arrow.names)
            present = [name for name in columns if name in there]
            for group in range(self.row_groups) if groups is None else groups:
                # One group at a time bounds what is read ahead.
                for batch in self._parquet.iter_batches(batch_rows, [group], present):
                    yield made(pa.Table.from_batches([batch]))

    def _keys(self, batch: pa.Table) -> pa.ChunkedArray:
        if RECORD_KEY not in batch.column_names:
            raise self._damaged(_LACKS_KEYS)
        return read_as(batch.select([RECORD_KEY]), _KEY, self.name).column(0)

    def _entry(self, key: bytes) -> str | None:
        with self._readable():
            value: Any = (self._parquet.metadata.metadata or {}).get(key)
            return None if value is None else value.decode("utf-8", "surrogatepass")

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Turns the Parquet reader's errors about damaged bytes into ours; errors of the storage and the machine pass."""
        try:
            yield
        except MemoryError:
            raise
        except (pa.ArrowException, LookupError, UnicodeError, OSError) as error:
            if isinstance(error, OSError) and not _is_arrows(error):
                raise
            raise self._damaged(str(error)) from error

    def _damaged(self, why: str) -> CorruptTableError:
        return CorruptTableError(
            f"the base file {self.name} cannot be read: {why}",
            hint=RESTORE_OR_ROLL_BACK,
            file=self.name,
        )


def _is_arrows(error: OSError) -> bool:
    """Whether Arrow raised it: an error of the file system has a number, and most have a class of their own."""
    return type(error) is OSError and error.errno in (None, errno.EINVAL)
