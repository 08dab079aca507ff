"""Record keys: the text that Hudi makes of a row's key columns, keys of tables without key columns, and one row for each key.

The text is Hudi's byte for byte, and is made a column at a time.

In a table without key columns each row gets a key when it is written, which is never looked up and never changes. Hudi
0.14 and later (`AutoRecordGenWrapperKeyGenerator`) writes `<instant>_<number of the task>_<position>`, all in digits, and
no reader takes such a key apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.errors import DuplicateKeyError, InputError, SchemaError
from lakelock.table.column_types import DELETED
from lakelock.table.properties import TableProperties
from lakelock.table.rows import take_rows
from lakelock.texts import column_hint, counted

NULL = "__null__"
EMPTY = "__empty__"


def names_fields(properties: TableProperties) -> bool:
    """Whether this table's keys read `field:value,...` instead of a plain value.

    True for several key fields, and for a single one under the complex key generator, which Hudi infers for tables
    partitioned by several columns. Hudi 1.0, which writes version 8, has a single one plain (tried with 1.0.2).
    """
    complex_keys = properties.key_generator in ("COMPLEX", "COMPLEX_AVRO")
    return len(properties.record_keys) > 1 or (complex_keys and properties.version != 8)


def record_keys(rows: pa.Table | pa.RecordBatch, key_fields: Sequence[str], *, named: bool | None = None) -> pa.ChunkedArray:
    """The record key of each row as strings; a row without a key raises `SchemaError`.

    `named` is `names_fields` of the table; by default keys are named when there are several fields. A value of a named key that
    could be taken for another one raises `SchemaError`, so different values never have one key.
    """
    columns = [_text(rows, name) for name in key_fields]
    if not columns:
        raise SchemaError("the table has no record key", hint="name the key columns when creating the table")
    if not (len(columns) > 1 if named is None else named):
        _refuse_empty(columns[0], key_fields[0])
        return columns[0]
    _refuse_all_empty(columns, key_fields)
    for number, column in enumerate(columns if len(columns) > 1 else ()):
        if has_free_text(rows.schema.field(key_fields[number]).type):
            _refuse_ambiguous(column, number, key_fields)
    parts: list[object] = []
    for name, column in zip(key_fields, columns, strict=True):
        parts += [f"{',' if parts else ''}{name}:", _marked(column)]
    return _chunked(pc.binary_join_element_wise(*parts, ""))


def has_free_text(arrow: pa.DataType) -> bool:
    """Whether the text of such a value may have any character: it is that of a string."""
    types = pa.types
    arrow = arrow.value_type if types.is_dictionary(arrow) else arrow
    return bool(types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow))


def key_text(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """One key column as Hudi writes its values; timestamps are their stored number, dates ISO."""
    types, arrow = pa.types, column.type
    if types.is_dictionary(arrow):
        return key_text(_chunked(column.cast(arrow.value_type)), name)
    if types.is_string(arrow):
        return column
    if types.is_large_string(arrow) or types.is_string_view(arrow) or types.is_integer(arrow) or types.is_boolean(arrow):
        return _chunked(column.cast(pa.string()))
    if types.is_date(arrow):
        return _chunked(column.cast(pa.date32()).cast(pa.string()))
    if types.is_timestamp(arrow):
        unit = "ms" if arrow.unit in ("s", "ms") else "us"
        return _chunked(column.cast(pa.timestamp(unit, tz=arrow.tz)).cast(pa.int64()).cast(pa.string()))
    if types.is_decimal(arrow):
        return pa.chunked_array([_decimal_text(chunk) for chunk in column.chunks], type=pa.string())
    raise SchemaError(
        f"column {name} of type {arrow} cannot be part of a record key",
        hint="use strings, integers, dates, timestamps, decimals or booleans as keys",
    )


def _text(rows: pa.Table | pa.RecordBatch, name: str) -> pa.ChunkedArray:
    index = rows.schema.get_field_index(name)
    if index < 0:
        raise SchemaError(f"the key column {name!r} is missing", hint=column_hint(name, rows.schema.names))
    return key_text(_chunked(rows.column(index)), name)


def _decimal_text(column: pa.Array) -> pa.Array:
    # Java's BigDecimal.toString, which Python's Decimal shares: 0.0000000001 is 1E-10 in both.
    return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())


def _marked(column: pa.ChunkedArray) -> pa.ChunkedArray:
    filled = pc.fill_null(column, NULL) if column.null_count else column
    empty = pc.equal(pc.binary_length(filled), 0)
    return _chunked(pc.if_else(empty, EMPTY, filled)) if pc.any(empty).as_py() else filled


def _refuse_empty(column: pa.ChunkedArray, name: str) -> None:
    if column.null_count:
        raise SchemaError(
            f"the key column {name} is null in {counted(column.null_count, 'row')}",
            hint="a row needs its key: filter these rows out or fill the column",
            column=name,
        )
    if len(column) and pc.min(pc.binary_length(column)).as_py() == 0:
        raise SchemaError(
            f"the key column {name} holds an empty string", hint="filter these rows out or fill the column", column=name
        )


def _refuse_ambiguous(column: pa.ChunkedArray, number: int, names: Sequence[str]) -> None:
    """`SchemaError` for a value that would make a key of several columns read as another key.

    Hudi escapes nothing in `a:1,b:2`, so `1,b:2` as a value of a, or the text that stands for null, would. No value may hold
    `,b:` for any key column b but the first. That goes for the last column, too, as rows of other engines may hold it. Such a
    mark begins with a comma and has no other, so no two overlap, and a text with one `,b:` can be read in one way only.
    """
    texts = [_bytes_of(chunk) for chunk in column.chunks]
    for mark in (NULL, EMPTY):
        if any(mark.encode() in text for text in texts) and pc.any(found := pc.equal(column, mark)).as_py():
            means = "null" if mark == NULL else "an empty text"
            _refuse(column, found, names[number], f"Hudi writes {means} like that in a key of several columns")
    for name in names[1:] if any(b"," in text for text in texts) else ():
        if pc.any(found := pc.match_substring(column, f",{name}:")).as_py():
            _refuse(column, found, names[number], f"in Hudi's text of the key, after ,{name}: comes the value of {name}")


def _bytes_of(texts: pa.StringArray) -> bytes:
    """All texts, one after the other: a search in these for what hardly ever is there takes next to no time."""
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return b""
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return bytes(memoryview(data)[bounds[0] : bounds[-1]])


def _refuse(column: pa.ChunkedArray, found: pa.ChunkedArray, name: str, why: str) -> None:
    example = column.filter(found)[0].as_py()
    raise SchemaError(
        f"the key column {name} holds {example[:80]!r}, which would be taken for another key: {why}",
        hint="change the value, or filter these rows out; a table with a single key column has no such values",
        column=name,
        value=example,
    )


def _refuse_all_empty(columns: Sequence[pa.ChunkedArray], names: Sequence[str]) -> None:
    missing = None
    for column in columns:
        absent = pc.fill_null(pc.equal(pc.binary_length(column), 0), True)
        missing = absent if missing is None else pc.and_(missing, absent)
        if not pc.any(missing).as_py():
            return
    raise SchemaError(
        f"the key columns {', '.join(names)} are all null or empty in {counted(pc.sum(missing).as_py(), 'row')}",
        hint="a row needs its key: filter these rows out or fill a column",
    )


def _chunked(column: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def numbered(prefix: str, first: int, count: int) -> pa.StringArray:
    """The numbers from `first` on, `count` of them, each after `prefix`."""
    written = prefix.encode()
    parts = [pa.array([], pa.string())]
    start, end = first, first + count
    while start < end:
        digits = len(str(start))
        stop = min(end, 10**digits)
        parts.append(_of_one_length(written, start, stop, digits))
        start = stop
    return pa.concat_arrays(parts)


_THREE_DIGITS = np.array([list(f"{number:03}".encode()) for number in range(1000)], np.uint8)


def _of_one_length(prefix: bytes, start: int, stop: int, digits: int) -> pa.StringArray:
    """The numbers in [start, stop), all of `digits` digits: a thousand at a time, which differ in the last three."""
    count, width, last = stop - start, len(prefix) + digits, min(digits, 3)
    text, thousandth = np.empty((count, width), np.uint8), np.empty((1000, width), np.uint8)
    thousandth[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    thousandth[:, width - last :] = _THREE_DIGITS[:, 3 - last :]
    for thousand in range(start // 1000, (stop - 1) // 1000 + 1):
        first, end = max(start, thousand * 1000), min(stop, thousand * 1000 + 1000)
        if digits > 3:
            thousandth[:, len(prefix) : width - last] = np.frombuffer(str(thousand).encode(), np.uint8)
        text[first - start : end - start] = thousandth[first - thousand * 1000 : end - thousand * 1000]
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))


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


_SHOWN = 5


@dataclass(frozen=True)
class Keyed:
    """Rows with all or some of the table's columns, and their record keys, row by row."""

    rows: pa.Table
    keys: pa.ChunkedArray

    @classmethod
    def of(cls, rows: pa.Table, properties: TableProperties) -> Keyed:
        """`rows` with the keys that the table's properties give them; without a key, they get theirs when they are written.

        `SchemaError` for a row that Hudi's writers would take for a deletion.
        """
        _refuse_deletions(rows)
        if not properties.record_keys:
            return cls(rows, keys_to_come(rows.num_rows))
        return cls(rows, record_keys(rows, properties.record_keys, named=names_fields(properties)))

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def cut(self, count: int) -> tuple[Keyed, Keyed]:
        """The first `count` rows and the others, without copying."""
        first = Keyed(self.rows.slice(0, count), self.keys.slice(0, count))
        return first, Keyed(self.rows.slice(count), self.keys.slice(count))

    def pick(self, positions: Any) -> Keyed:
        """The rows at these positions, in this order."""
        return Keyed(take_rows(self.rows, positions), self.keys.take(pa.array(positions)))

    def without(self, others: Sequence[Keyed]) -> Keyed:
        """The rows whose keys none of the others has, in their order."""
        if not others or not len(self):
            return self
        theirs = pa.chunked_array([chunk for other in others for chunk in other.keys.chunks], pa.string())
        mine = pc.invert(pc.is_in(self.keys, value_set=theirs))
        return self.pick(np.flatnonzero(np.asarray(mine)))

    def slices(self, count: int) -> Iterator[Keyed]:
        """The rows in pieces of at most `count`, without copying."""
        for start in range(0, len(self), count):
            yield Keyed(self.rows.slice(start, count), self.keys.slice(start, count))


def _refuse_deletions(rows: pa.Table) -> None:
    """A row with true in this column is a deletion to every other writer of the table, and would be an odd row here."""
    is_flag = DELETED in rows.column_names and pa.types.is_boolean(rows.schema.field(DELETED).type)
    if is_flag and pc.any(rows.column(DELETED)).as_py():
        raise SchemaError(
            f"rows have true in {DELETED}, by which Hudi's writers delete the row of the same key",
            hint=f'table.delete(df.where("{DELETED}")) deletes such rows; upsert the others',
            column=DELETED,
        )


def dedupe(keyed: Keyed, ordering_field: str | None, *, take_any: bool = False) -> Keyed:
    """One row per key: the one with the greatest ordering value, null being the smallest.

    Several rows of a key that share the greatest value, or any where there is no ordering field, raise
    `DuplicateKeyError` with examples; with `take_any` the last of them wins.
    """
    count = len(keyed)
    if pc.count_distinct(keyed.keys).as_py() == count:
        return keyed
    codes = _codes(keyed.keys)
    ranks = np.zeros(count, np.int64) if ordering_field is None else _ranks(keyed.rows.column(ordering_field))
    order = np.lexsort((np.arange(count), ranks, codes))
    last = np.append(codes[order][1:] != codes[order][:-1], True)
    if not take_any:
        _refuse_ties(keyed, codes[order], ranks[order], order, last, ordering_field)
    return keyed.pick(np.sort(order[last]))


def _refuse_ties(keyed: Keyed, codes: Any, ranks: Any, order: Any, last: Any, ordering_field: str | None) -> None:
    same_as_before = (codes[1:] == codes[:-1]) & (ranks[1:] == ranks[:-1])
    tied = np.flatnonzero(last[1:] & same_as_before) + 1
    if not len(tied):
        return
    examples = keyed.keys.take(pa.array(np.sort(order[tied[:_SHOWN]]))).to_pylist()
    more = f" and {len(tied) - len(examples)} more" if len(tied) > len(examples) else ""
    equal = f" and equal values of {ordering_field}" if ordering_field else ""
    have = "key has" if len(tied) == 1 else "keys have"
    raise DuplicateKeyError(
        f"{len(tied)} record {have} several rows with the same key{equal}: {', '.join(examples)}{more}",
        hint="remove the duplicates, give the table an ordering column, or set write.duplicates=any to keep any one of them",
        keys=examples,
        count=len(tied),
    )


def _codes(keys: pa.ChunkedArray) -> Any:
    """Equal numbers for equal keys."""
    encoded = keys.combine_chunks().dictionary_encode()
    return np.asarray(encoded.indices)


def _ranks(column: pa.ChunkedArray) -> Any:
    """Positive numbers in the order of the values, equal for equal ones, and 0 for nulls."""
    ranks = np.asarray(pc.rank(column, sort_keys="ascending", tiebreaker="dense"))
    return np.where(column.is_null().to_numpy(), 0, ranks) if column.null_count else ranks
