"""Base files: Parquet as Hudi's own writers leave it, written, and read as any Hudi writer left it.

A file has meta columns, a key range in the order of Java's strings, and a bloom filter. Reading gives footers, record
keys, and rows in batches.

Measured on 1 M rows of ten columns: meta columns that are constant cost nearly nothing as dictionary arrays; dictionaries
only where values repeat save a quarter of the CPU; statistics are left out for the meta columns that no reader filters
by.
"""

from __future__ import annotations

import dataclasses
import errno
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelock.errors import RESTORE_OR_ROLL_BACK, CorruptTableError
from lakelock.settings import WriteSettings
from lakelock.table.parquet_footers import DYNAMIC, BloomFilter, Chunk, SplicedOutput, chunks_of, nominal_error_rate
from lakelock.table.record_keys import numbered
from lakelock.table.rows import conform, read_as
from lakelock.table.schema import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    FILE_NAME,
    META_COLUMNS,
    PARTITION_PATH,
    RECORD_KEY,
    TableSchema,
)
from lakelock.texts import counted

_FIRST_ODD_BYTE = 0xEE
_MANY_RANGES = 16
_FIRST_ODD_CHARACTER = 0xD800  # halves of surrogate pairs, which only a damaged footer has, and what follows them


@dataclass(frozen=True)
class KeyRange:
    """The least and the greatest key of a file, in the order of Java's strings: by UTF-16 code units.

    Hudi's row writer compares UTF-8 bytes, so files exist in both orders; `may_hold` is right for either. The orders differ
    only for characters from U+E000 on.
    """

    least: str
    greatest: str

    @classmethod
    def of(cls, keys: pa.ChunkedArray, bounds: tuple[bytes, bytes] | None = None) -> KeyRange:
        """The range of at least one key; `bounds`: the first and the last of them in the order of their bytes, if known."""
        if any(_has_odd_bytes(chunk) for chunk in keys.chunks):
            ordered = sorted((key for key in keys.to_pylist()), key=java_order)
            return cls(ordered[0], ordered[-1])
        if bounds is not None:
            return cls(*(bound.decode() for bound in bounds))
        found = pc.min_max(keys).as_py()
        return cls(found["min"], found["max"])

    def with_other(self, other: KeyRange) -> KeyRange:
        """The range that covers both."""
        return KeyRange(min(self.least, other.least, key=java_order), max(self.greatest, other.greatest, key=java_order))

    def may_hold(self, keys: pa.Array | pa.ChunkedArray) -> Any:
        """For each key, as a numpy array of booleans, whether it can be in the file."""
        if self._is_odd or any(_has_odd_bytes(chunk) for chunk in _chunks(keys)):
            return np.ones(len(keys), np.bool_)
        inside = pc.and_(pc.greater_equal(keys, self.least), pc.less_equal(keys, self.greatest))
        return inside.to_numpy(zero_copy_only=False) if isinstance(inside, pa.Array) else inside.to_numpy()

    @property
    def _is_odd(self) -> bool:
        """Whether the two orders may disagree about an end of the range."""
        return any(ord(character) >= _FIRST_ODD_CHARACTER for character in self.least + self.greatest)


class SortedKeys:
    """Keys that are compared with so many `ranges`: sorted, unless these are few compared with the keys."""

    def __init__(self, keys: pa.Array, ranges: int = sys.maxsize) -> None:
        self._keys, self._odd = keys, _has_odd_bytes(keys)
        self._sorted: list[str] | None = None
        if ranges >= _MANY_RANGES and not self._odd:
            self._sorted = sorted(keys.to_pylist())

    def meets(self, stated: KeyRange) -> bool:
        """Whether a file with this range may hold one of the keys; the same answer as `KeyRange.may_hold` for any of them."""
        if self._odd or stated._is_odd:
            return True
        if self._sorted is None:
            return bool(stated.may_hold(self._keys).any())
        first = bisect_left(self._sorted, stated.least)
        return first < len(self._sorted) and self._sorted[first] <= stated.greatest


def java_order(text: str) -> bytes:
    """A sort key that orders strings as Java does."""
    return text.encode("utf-16-be", "surrogatepass")


def _has_odd_bytes(array: pa.Array) -> bool:
    """Whether any character is at U+E000 or above, where the two orders part."""
    if not len(array):
        return False
    _, offsets, data = array.buffers()
    if data is None:
        return False
    at = np.frombuffer(offsets, np.int64 if pa.types.is_large_string(array.type) else np.int32)
    start, end = int(at[array.offset]), int(at[array.offset + len(array)])
    return end > start and int(np.frombuffer(data, np.uint8)[start:end].max()) >= _FIRST_ODD_BYTE


def _chunks(keys: pa.Array | pa.ChunkedArray) -> Iterable[pa.Array]:
    return keys.chunks if isinstance(keys, pa.ChunkedArray) else (keys,)


FOOTER_SCHEMA = b"parquet.avro.schema"
FOOTER_MODEL = b"writer.model.name"
FOOTER_BLOOM = b"org.apache.hudi.bloomfilter"
FOOTER_BLOOM_TYPE = b"hoodie_bloom_filter_type_code"
FOOTER_MIN_KEY = b"hoodie_min_record_key"
FOOTER_MAX_KEY = b"hoodie_max_record_key"

CONSTANT = pa.dictionary(pa.int32(), pa.string())
"""The type in which meta columns of few values are handled; in the file they are plain strings."""

_SAMPLE = 8192
_SAMPLED_ROWS, _DICTIONARY_BYTES = 2048, 512 << 10
"""Rows that are looked at for repetitions, and the most bytes of a dictionary; Parquet's writer gives one up at 1 MiB."""
BUFFER_BYTES = 128 << 20
"""Rows that are held in memory before they become a row group, however few they are."""
_LEVEL = 1
APART_ROWS = 16_384
"""From so many rows on it is worthwhile to put the chunks of a row group together from several."""


@dataclass(frozen=True)
class Stamp:
    """What the meta columns and the footer of one base file say."""

    table: str
    instant: str
    partition: str
    file_name: str

    @property
    def writer(self) -> str:
        """The first number of the write token, which every sequence number carries."""
        return self.file_name.split("_")[1].split("-")[0]


@dataclass(frozen=True)
class Written:
    """A finished base file. `keys` is None for a file without rows."""

    rows: int
    keys: KeyRange | None
    metadata: pq.FileMetaData | None = dataclasses.field(default=None, compare=False, repr=False)
    """Parquet's own, with the statistics of each row group."""


class BaseFileWriter:
    """Writes one base file; memory is bounded by a row group, the batch that is added, and the record keys.

    The file is complete once `close` has returned, which leaves `output` open. Without it the bytes are no Parquet file.
    """

    def __init__(self, output: IO[bytes], schema: TableSchema, stamp: Stamp, settings: WriteSettings) -> None:
        self.stamp = stamp
        self._output, self._schema, self._settings = SplicedOutput(output), schema, settings
        self._floats = [field.name for field in schema.arrow if pa.types.is_floating(field.type)]
        self._with_nan: set[tuple[int, str]] = set()
        self._groups = 0
        self._parquet: pq.ParquetWriter | None = None
        self._encodings: dict[str, Any] = {}
        self._apart: list[str] = []
        self._constant: tuple[int, dict[str, Chunk]] = 0, {}
        self._pending: list[pa.Table] = []
        self._pending_rows = self._pending_bytes = self._rows = 0
        self._keys: list[pa.Array] = []
        self._new_keys: list[pa.Array] = []
        self._known: BloomFilter | None = None
        self._range: KeyRange | None = None
        self._buffered = pa.schema(
            [(COMMIT_TIME, CONSTANT), (COMMIT_SEQNO, pa.string()), (RECORD_KEY, pa.string()), *schema.arrow]
        )
        types = dict.fromkeys((COMMIT_TIME, PARTITION_PATH, FILE_NAME), CONSTANT)
        self._handled = pa.schema([f.with_type(types.get(f.name, f.type)) for f in schema.file_schema])

    @property
    def rows(self) -> int:
        """How many rows were added so far."""
        return self._rows

    @property
    def batch_rows(self) -> int:
        """How many rows to add at once."""
        return self._settings.batch_rows

    def continues(self, base: BaseFile) -> None:
        """The stored rows that are going to be added are those of this file, whose filter knows their keys."""
        with suppress(CorruptTableError):
            self._known = base.bloom()

    def add_new(self, rows: pa.Table, keys: pa.ChunkedArray) -> None:
        """Add rows that this transaction inserts, with their record keys.

        Columns of the table that they lack are null; `SchemaError` where one must not be null.
        """
        count = rows.num_rows
        if rows.schema != self._schema.arrow:
            rows = conform(rows, self._schema.arrow)
        self._new_keys += keys.chunks
        self.add_stamped(rows, keys, constant(self.stamp.instant, count), sequence_numbers(self.stamp, self._rows, count))

    def add_stamped(self, rows: pa.Table, keys: pa.ChunkedArray, commit_times: Any, seqnos: Any) -> None:
        """Add rows that keep, or already have, their commit time (`CONSTANT` type) and sequence number."""
        if not rows.num_rows:
            return
        table = pa.table([commit_times, seqnos, keys, *rows.columns], schema=self._buffered)
        self._rows += table.num_rows
        self._pending.append(table)
        self._pending_rows += table.num_rows
        self._pending_bytes += table.nbytes
        if self._pending_rows >= self._settings.row_group_rows or self._pending_bytes >= BUFFER_BYTES:
            self._flush(keep_rest=True)

    def add_stored(self, rows: pa.Table) -> None:
        """Add rows as `BaseFile.stamped_batches` gives them: they keep their commit time and sequence number."""
        times, seqnos, keys, *columns = rows.columns
        self.add_stamped(pa.table(columns, schema=self._schema.arrow), keys, times, seqnos)

    def close(self) -> Written:
        """Write what is buffered and the footer."""
        self._flush(keep_rest=False)
        writer = self._parquet or self._open(pa.Table.from_batches([], self._buffered))
        writer.add_key_value_metadata(self._footer())
        self._output.hold()
        writer.close()
        footer = self._output.release(self._handled, self._with_nan)
        return Written(self._rows, self._range, pq.read_metadata(pa.BufferReader(footer)))

    def _note(self, keys: pa.ChunkedArray, bounds: tuple[bytes, bytes] | None) -> None:
        """Remember keys for the footer; in long arrays, over which hashing is fastest. `bounds`: of their bytes, if known."""
        together = keys.combine_chunks()
        self._keys += together.chunks if isinstance(together, pa.ChunkedArray) else [together]
        found = KeyRange.of(keys, bounds)
        self._range = found if self._range is None else self._range.with_other(found)

    def _flush(self, *, keep_rest: bool) -> None:
        if not self._pending_rows:
            return
        table = pa.concat_tables(self._pending)
        limit = self._settings.row_group_rows
        if self._pending_bytes >= BUFFER_BYTES:
            limit = max(1, min(limit, table.num_rows * BUFFER_BYTES // self._pending_bytes))
        whole = table.num_rows - table.num_rows % limit if keep_rest else table.num_rows
        for start in range(0, whole, limit):
            group = self._stamped(table.slice(start, min(limit, whole - start)))
            writer = self._parquet or self._open(group)
            chunks = self._chunks(group) if self._apart else {}
            if chunks:
                self._output.put(chunks)
            self._note(group.column(RECORD_KEY), chunks[RECORD_KEY].bounds if chunks else None)
            writer.write_table(group.drop_columns(self._apart), row_group_size=group.num_rows)
            self._with_nan.update((self._groups, name) for name in self._floats if _has_nan(group.column(name)))
            self._groups += 1
        rest = table.slice(whole)
        self._pending = [rest] if rest.num_rows else []
        self._pending_rows, self._pending_bytes = rest.num_rows, rest.nbytes

    def _stamped(self, table: pa.Table) -> pa.Table:
        """A row group in the file's columns: the constant meta columns added, one dictionary for the commit times."""
        times = table.column(COMMIT_TIME).unify_dictionaries() if table.column(COMMIT_TIME).num_chunks > 1 else table.column(0)
        partition, name = (constant(value, table.num_rows) for value in (self.stamp.partition, self.stamp.file_name))
        columns = [times, table.column(1), table.column(2), partition, name, *table.columns[3:]]
        return pa.table(columns, schema=self._handled)

    def _open(self, first: pa.Table) -> pq.ParquetWriter:
        self._encodings = encodings(first, self._handled, self._schema.names, self._settings.compression)
        self._encodings["write_statistics"] = [COMMIT_TIME, RECORD_KEY, *self._schema.names]
        if first.num_rows >= APART_ROWS and len(self._schema.names) > 1:
            alike = [name for name in self._schema.names if self._has_the_keys(first, name)][:1]
            self._apart = [*META_COLUMNS, *alike]
        inside = pa.schema([field for field in self._handled if field.name not in self._apart])
        self._parquet = pq.ParquetWriter(self._output, inside, store_schema=False, **self._encodings)
        return self._parquet

    def _chunks(self, group: pa.Table) -> dict[str, Chunk]:
        """The chunks of the columns that are encoded separately.

        Constants are encoded once for all row groups with as many rows, and record keys once for all columns equal to them.
        """
        times = group.column(COMMIT_TIME)
        all_new = not times.null_count and times.chunk(0).dictionary.to_pylist() == [self.stamp.instant]
        constants = [PARTITION_PATH, FILE_NAME, *([COMMIT_TIME] if all_new else ())]
        if self._constant[0] != group.num_rows or not self._constant[1].keys() >= {*constants}:
            self._constant = group.num_rows, self._encoded(group, constants)
        found = {name: self._constant[1][name] for name in constants}
        known = {*constants, *(name for name in self._apart[len(META_COLUMNS) :] if self._has_the_keys(group, name))}
        found |= self._encoded(group, [name for name in self._apart if name not in known])
        return {name: found.get(name, found[RECORD_KEY]) for name in self._apart}

    def _has_the_keys(self, group: pa.Table, name: str) -> bool:
        field, key = group.schema.field(name), group.schema.field(RECORD_KEY)
        alike = field.type == key.type and field.nullable == key.nullable
        return alike and bool(group.column(name).equals(group.column(RECORD_KEY)))

    def _encoded(self, group: pa.Table, names: Sequence[str]) -> dict[str, Chunk]:
        sink, columns = pa.BufferOutputStream(), group.select(names)
        with pq.ParquetWriter(sink, columns.schema, store_schema=False, **self._encodings) as writer:
            writer.write_table(columns, row_group_size=columns.num_rows)
        return chunks_of(memoryview(sink.getvalue()))

    def _footer(self) -> dict[bytes, bytes]:
        footer = {
            FOOTER_SCHEMA: self._schema.footer_json(self.stamp.table).encode(),
            FOOTER_MODEL: b"avro",
            FOOTER_BLOOM: self._bloom().to_text().encode(),
            FOOTER_BLOOM_TYPE: DYNAMIC.encode(),
        }
        if self._range is not None:
            footer |= {FOOTER_MIN_KEY: self._range.least.encode(), FOOTER_MAX_KEY: self._range.greatest.encode()}
        return footer

    def _bloom(self) -> BloomFilter:
        settings, known = self._settings, self._known
        sizes: Any = {"entries": settings.bloom_entries, "fpp": settings.bloom_fpp, "most_entries": settings.bloom_max_entries}
        if known is not None and known.serves(sum(map(len, self._new_keys)), self._rows, **sizes):
            return known.with_keys(self._new_keys)
        return BloomFilter.of(self._keys, quick=True, **sizes)


def constant(value: str, count: int) -> pa.DictionaryArray:
    """`count` times the same string, in four bytes a row and no work for the encoder."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value]))


def sequence_numbers(stamp: Stamp, first: int, count: int) -> pa.StringArray:
    """`<instant>_<writer>_<position>` for `count` rows from position `first` on."""
    return numbered(f"{stamp.instant}_{stamp.writer}_", first, count)


def encodings(first: pa.Table, schema: pa.Schema, names: Iterable[str], codec: str) -> dict[str, Any]:
    """How to write a file that begins with these rows, as a Parquet writer takes it: dictionaries and codecs by column.

    `names` are the table's columns; `schema` has Hudi's meta columns, too.
    """
    codecs = dict.fromkeys(_leaves(schema), codec) | dict.fromkeys(_incompressible(first, codec), "none")
    return {
        "use_dictionary": [COMMIT_TIME, PARTITION_PATH, FILE_NAME, *repeating_columns(first, names)],
        "compression": codecs,
        "compression_level": {name: _LEVEL for name, each in codecs.items() if each in ("zstd", "gzip")} or None,
    }


def _has_nan(column: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.is_nan(column)).as_py())


def repeating_columns(table: pa.Table, names: Iterable[str]) -> list[str]:
    """The columns whose values repeat enough for a dictionary, judged by rows from all over `table`."""
    if not table.num_rows:
        return []
    step = max(1, table.num_rows // _SAMPLED_ROWS)
    sample = table.select(list(names)).take(pa.array(np.arange(0, table.num_rows, step)))
    return [name for name, column in zip(sample.column_names, sample.columns, strict=True) if _repeats(column, table.num_rows)]


def _repeats(sample: pa.ChunkedArray, rows: int) -> bool:
    """Whether a column should have a dictionary, judged by a sample of its values.

    It should if half of the sample are repetitions, or if so many values are in it twice that all `rows` can have only few
    different ones, in a small dictionary. A single frequent value says nothing of the others.
    """
    if pa.types.is_nested(sample.type) or pa.types.is_boolean(sample.type):
        return False
    counts, count = np.asarray(sample.value_counts().field("counts")), len(sample)
    twice = int((counts > 1).sum())
    if len(counts) * 2 <= count or not twice:
        return len(counts) * 2 <= count
    distinct = count * count // (2 * twice)  # an estimate: of so many values, `twice` occur twice in a sample of `count`
    return distinct * 8 <= rows and distinct * sample.nbytes <= _DICTIONARY_BYTES * count


def _leaves(schema: pa.Schema) -> list[str]:
    """The paths of the columns as Parquet has them: several for a nested one."""
    if not any(pa.types.is_nested(field.type) for field in schema):
        return list(schema.names)
    sink = pa.BufferOutputStream()
    pq.write_metadata(schema, sink)
    found = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    return [found.column(number).path for number in range(len(found.names))]


def _incompressible(table: pa.Table, codec: str) -> list[str]:
    """The columns of numbers that the codec makes smaller by less than a tenth, judged by the first rows of `table`."""
    if not table.num_rows or codec == "none":
        return []
    return [name for name in table.column_names if _is_dense(table.column(name).chunk(0).slice(0, _SAMPLE), codec)]


def _is_dense(numbers: pa.Array, codec: str) -> bool:
    if not (pa.types.is_floating(numbers.type) or pa.types.is_integer(numbers.type)) or numbers.null_count:
        return False
    values = np.ascontiguousarray(numbers.to_numpy(zero_copy_only=False)).view(np.uint8)
    return len(pa.compress(values, codec, asbytes=True)) > 0.9 * values.nbytes


T = TypeVar("T")

BATCH_ROWS = 65_536
_MOST_ROWS = 262_144
_KEY = pa.schema([(RECORD_KEY, pa.string())])
_STAMPS = pa.schema([(COMMIT_TIME, pa.string()), (COMMIT_SEQNO, pa.string()), (RECORD_KEY, pa.string())])
_LACKS_KEYS = "it lacks Hudi's meta columns"


class BaseFile:
    """One base file, open for reading; `name` is for messages. Use it in a `with` block, or close `source` yourself.

    `in_dictionaries`: texts that the file has in dictionaries are not made before `loads` knows which rows are wanted.
    """

    def __init__(self, source: IO[bytes], name: str, *, in_dictionaries: bool = False) -> None:
        self._source, self.name = source, name
        opened = with_dictionaries if in_dictionaries else partial(pq.ParquetFile, read_dictionary=[COMMIT_TIME])
        with self._readable():
            try:
                self._parquet = opened(source, coerce_int96_timestamp_unit="us", pre_buffer=True)
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
    def rows_of_groups(self) -> list[int]:
        """How many rows each row group has."""
        return [int(self._parquet.metadata.row_group(group).num_rows) for group in range(self.row_groups)]

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
        return 1.0 if text is None else nominal_error_rate(text, self._entry(FOOTER_BLOOM_TYPE) or DYNAMIC, self.name)

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
            # A rewrite of the file sorts its keys as text.
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

    def stamps(self, names: Sequence[str] = _STAMPS.names) -> Iterator[pa.Table]:
        """Commit time, sequence number and record key of each row, or what is named of these, as texts."""
        wanted = pa.schema([_STAMPS.field(name) for name in names])

        def stamped(batch: pa.Table) -> pa.Table:
            self._keys(batch)
            found = read_as(batch, wanted, self.name)
            filled = [column if not column.null_count else column.fill_null("") for column in found.columns]
            return pa.table(filled, schema=wanted)

        yield from self._batches(wanted.names, BATCH_ROWS, stamped)

    def rows_at(self, places: npt.NDArray[np.int64], schema: TableSchema, *, stamped: bool = False) -> Iterator[pa.Table]:
        """The rows at some places in the file, in the table's types; with `stamped` the columns of `stamps` come first.

        Row groups that have none of them are not read.
        """
        wanted = pa.schema([*(_STAMPS if stamped else ()), *schema.arrow])
        ordered, first = np.sort(places), 0
        for group, count in enumerate(self.rows_of_groups):
            last = first + count
            mine = ordered[np.searchsorted(ordered, first) : np.searchsorted(ordered, last)]
            at, first = first, last
            if not len(mine):
                continue
            for batch in self._batches(wanted.names, BATCH_ROWS, lambda found: read_as(found, wanted, self.name), [group]):
                here = mine[(mine >= at) & (mine < at + batch.num_rows)]
                if len(here):
                    yield batch.take(pa.array(here - at))
                at += batch.num_rows

    def batches(
        self, schema: TableSchema, batch_rows: int = BATCH_ROWS, groups: Sequence[int] | None = None
    ) -> Iterator[pa.Table]:
        """Rows in the table's types, without meta columns; of some row groups, or of all."""
        yield from self._batches(schema.names, batch_rows, lambda batch: read_as(batch, schema.arrow, self.name), groups)

    def loads(self, columns: pa.Schema, batch_rows: int, group: int) -> Iterator[tuple[int, Callable[[Any], pa.Table]]]:
        """The rows of a row group by batches: their number, and a function that loads them in the table's types.

        The function takes flags, one for each row, or None for all rows.
        """

        def load(batch: pa.Table, flags: Any) -> pa.Table:
            return read_as(batch if flags is None else batch.filter(pa.array(flags)), columns, self.name)

        yield from self._batches(columns.names, batch_rows, lambda batch: (batch.num_rows, partial(load, batch)), [group])

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
            if isinstance(error, OSError) and not is_arrows(error):
                raise
            raise self._damaged(str(error)) from error

    def _damaged(self, why: str) -> CorruptTableError:
        return CorruptTableError(
            f"the base file {self.name} cannot be read: {why}",
            hint=RESTORE_OR_ROLL_BACK,
            file=self.name,
        )


def with_dictionaries(source: Any, **options: Any) -> pq.ParquetFile:
    """A Parquet file that is read with its columns of text dictionary-encoded, as stored; `read_as` makes texts of them.

    Only columns that are mostly dictionary indices in the first row group: Arrow would have to hash the values of others.
    """
    found, coded = pq.ParquetFile(source, **options), []
    metadata, texts = found.metadata, {field.name for field in found.schema_arrow if pa.types.is_string(field.type)}
    if metadata.num_row_groups and texts:
        columns = [metadata.row_group(0).column(number) for number in range(metadata.num_columns)]
        there = [each for each in columns if each.path_in_schema in texts and each.has_dictionary_page]
        coded = [each.path_in_schema for each in there if each.total_uncompressed_size < 4 * each.num_values]
    return pq.ParquetFile(source, metadata=metadata, read_dictionary=coded, **options) if coded else found


def is_arrows(error: OSError) -> bool:
    """Whether Arrow raised it: an error of the file system has a number, and most have a class of their own."""
    return type(error) is OSError and error.errno in (None, errno.EINVAL)
