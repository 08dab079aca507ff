"""Rows together with their record keys, and the choice of one row per key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.errors import DuplicateKeyError, SchemaError
from lakelock.table.keys.generated import keys_to_come
from lakelock.table.keys.record_keys import names_fields, record_keys
from lakelock.table.properties import TableProperties
from lakelock.table.schema import DELETED
from lakelock.table.taking import taken

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
        return Keyed(taken(self.rows, positions), self.keys.take(pa.array(positions)))

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
