"""The rows that differ between two slices of a file group, found with bounded memory, in the form of a change feed.

Hudi's meta columns tell versions of a row apart: a writer stamps a changed row with its instant and a sequence number of
its own, and keeps both where it copies a row. So only three columns are compared, and values are read of changed rows
only. A key may occur more than once; then the slices are compared as multisets, and applying the changes is exact all the
same.

A row that one file group lost and another one got is unchanged, or an update, if the key is the same. The feed's columns
are the table's, and three about each change, named as in Delta's change data feed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.errors import SnapshotTooOld, StorageError, StorageUnavailable, TableError
from lakelock.storage import Storage
from lakelock.table.base_files import BaseFile
from lakelock.table.change_feed import Unit, version_of
from lakelock.table.instants import time_of
from lakelock.table.key_search import string_hashes
from lakelock.table.merged_slices import keys_in_logs, open_slice
from lakelock.table.schema import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY, TableSchema
from lakelock.table.snapshot import DataFile

CHANGE_TYPE = "_change_type"
INSERT, PREIMAGE, POSTIMAGE, DELETE = "insert", "update_preimage", "update_postimage", "delete"
"""Delta's words for what happened to a row."""

COMPARED_ROWS = 1_000_000
"""Of how many rows the stamps are in memory at a time; a group that has more is read several times."""

VERSION = (COMMIT_TIME, COMMIT_SEQNO)

Mask = npt.NDArray[np.bool_]


class Differences(NamedTuple):
    """What became of the rows before, and where the rows after come from, as a mask of each kind."""

    deleted: Mask
    replaced: Mask
    inserted: Mask
    replacing: Mask


def compare(before: pa.Table, after: pa.Table, key: Sequence[str]) -> Differences:
    """Compare rows by their `key` columns and their `VERSION`; a row that is in both, as often, is unchanged."""
    same_before, same_after = _matched(before, after, [*key, *VERSION])
    changed_before, changed_after = np.flatnonzero(~same_before), np.flatnonzero(~same_after)
    pairs = _matched(before.take(pa.array(changed_before)), after.take(pa.array(changed_after)), key)
    kinds = []
    for rows, changed, paired in ((before, changed_before, pairs[0]), (after, changed_after, pairs[1])):
        single, both = np.zeros(rows.num_rows, np.bool_), np.zeros(rows.num_rows, np.bool_)
        single[changed[~paired]], both[changed[paired]] = True, True
        kinds += [single, both]
    return Differences(*kinds)


def _matched(left: pa.Table, right: pa.Table, columns: Sequence[str]) -> tuple[Mask, Mask]:
    """Which rows of both sides can be paired by equal columns, each with one of the other side."""
    found: tuple[Mask, Mask] = (np.zeros(left.num_rows, np.bool_), np.zeros(right.num_rows, np.bool_))
    if not left.num_rows or not right.num_rows:
        return found
    sides = []
    for name, rows in (("l", left), ("r", right)):
        chosen = rows.select(columns)
        sides.append(
            chosen.append_column("n", pa.array(_occurrences(chosen))).append_column(name, pa.array(np.arange(rows.num_rows)))
        )
    joined = sides[0].join(sides[1], [*columns, "n"], join_type="inner", use_threads=False)
    for name, mask in zip("lr", found, strict=True):
        mask[joined.column(name).to_numpy()] = True
    return found


def _occurrences(rows: pa.Table) -> npt.NDArray[np.int64]:
    """The number of each row among those that equal it: 0 for nearly all."""
    counts = np.zeros(rows.num_rows, np.int64)
    names = rows.column_names
    if rows.group_by(names, use_threads=False).aggregate([]).num_rows == rows.num_rows:
        return counts
    order = pc.sort_indices(rows, [(name, "ascending") for name in names]).to_numpy()
    ordered = rows.take(pa.array(order))
    begins = np.ones(rows.num_rows, np.bool_)
    for name in names:
        column = ordered.column(name).combine_chunks()
        begins[1:] &= pc.equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    begins[1:] = ~begins[1:]
    places = np.arange(rows.num_rows)
    counts[order] = places - np.maximum.accumulate(np.where(begins, places, 0))
    return counts


def changes_in(
    unit: Unit, schema: TableSchema, storage: Storage, *, stamped: bool = False, compared_rows: int = COMPARED_ROWS
) -> Iterator[pa.Table]:
    """The changed rows of a unit, in batches, with `CHANGE_TYPE` last; with `stamped` the three meta columns come first.

    `SnapshotTooOld` if a file is gone: it was cleaned since the unit was made.
    """
    if unit.before is None or unit.after is None:
        file, kind = (unit.after, INSERT) if unit.before is None else (unit.before, DELETE)
        assert file is not None, "a unit has a file"
        with opened(storage, file, schema) as base:
            rows = map(_in_texts, base.stamped_batches(schema)) if stamped else base.batches(schema)
            yield from (_typed(batch, kind) for batch in rows)
        return
    keys = _keys_appended(unit.before, unit.after, storage)
    with opened(storage, unit.before, schema, keys) as before, opened(storage, unit.after, schema, keys) as after:
        parts = max(1, -(-(before.rows + after.rows) // compared_rows))
        for part in range(parts):
            stamps = [_stamps(base, part, parts) for base in (before, after)]
            differences = compare(stamps[0], stamps[1], [RECORD_KEY])
            for base, rows, kinds in (
                (before, stamps[0], ((DELETE, differences.deleted), (PREIMAGE, differences.replaced))),
                (after, stamps[1], ((INSERT, differences.inserted), (POSTIMAGE, differences.replacing))),
            ):
                places = rows.column("at").to_numpy()
                for kind, mask in kinds:
                    for batch in base.rows_at(places[mask], schema, stamped=stamped):
                        yield _typed(batch, kind)


def _stamps(base: BaseFile, part: int, parts: int) -> pa.Table:
    """Key and version of a part of the rows, chosen by the keys, and where each is in the file."""
    found, at = [], 0
    for batch in base.stamps():
        rows = batch.append_column("at", pa.array(np.arange(at, at + batch.num_rows)))
        at += batch.num_rows
        if parts > 1:
            hashes: npt.NDArray[Any] = string_hashes(batch.column(RECORD_KEY).combine_chunks())
            rows = rows.filter(pa.array(hashes % parts == part))
        found.append(rows)
    return pa.concat_tables(found) if found else _STAMPS.empty_table()


_STAMPS = pa.schema([(COMMIT_TIME, pa.string()), (COMMIT_SEQNO, pa.string()), (RECORD_KEY, pa.string()), ("at", pa.int64())])


def _in_texts(rows: pa.Table) -> pa.Table:
    """Stamped rows with the same types whichever way they were read."""
    for place, name in enumerate(VERSION):
        rows = rows.set_column(place, name, rows.column(name).cast(pa.string()).fill_null(""))
    return rows


def _typed(rows: pa.Table, kind: str) -> pa.Table:
    return rows.append_column(CHANGE_TYPE, pa.repeat(kind, rows.num_rows))


def _keys_appended(before: DataFile, after: DataFile, storage: Storage) -> pa.Array | None:
    """Which keys may differ where nothing but log files has come; None where anything may."""
    if before.key != after.key or not set(before.logs) < set(after.logs):
        return None
    try:
        return keys_in_logs(after, storage, [log for log in after.logs if log not in before.logs])
    except StorageUnavailable:
        raise
    except StorageError:
        return None  # `opened` says what is gone


def opened(storage: Storage, file: DataFile, schema: TableSchema, keys: pa.Array | None = None) -> BaseFile:
    """A file slice of the feed, with the rows of these keys; `SnapshotTooOld` if it is not there any more."""
    return opened_or_gone(
        storage,
        file,
        schema,
        "while its changes were read",
        "read the changes again, from a later instant if it is refused; to keep old files for longer, raise "
        "clean.keep_commits or clean.keep_hours",
        keys,
    )


def opened_or_gone(
    storage: Storage, file: DataFile, schema: TableSchema, when: str, hint: str, keys: pa.Array | None = None
) -> BaseFile:
    """A file slice; `SnapshotTooOld`, with when it was cleaned and what to do, if it is not there any more."""
    try:
        return BaseFile(open_slice(file, storage, schema, keys), file.key)
    except StorageUnavailable:
        raise
    except StorageError as error:
        raise SnapshotTooOld(f"{file.key} is gone: it was cleaned {when}", hint=hint, file=file.key) from error


def paired(rows: pa.Table) -> pa.Table:
    """The changed rows of one partition, or of some of its keys, with one change for each key that was once in the table before
    and once after. The rows need `RECORD_KEY` and the columns of `VERSION`.
    """
    kinds = rows.column(CHANGE_TYPE)
    before, after = (rows.filter(pc.equal(kinds, kind)) for kind in (DELETE, INSERT))
    differences = compare(before, after, [RECORD_KEY])
    others = rows.filter(pc.invert(pc.is_in(kinds, pa.array([DELETE, INSERT]))))
    parts = [others]
    for side, kind, mask in (
        (before, DELETE, differences.deleted), (before, PREIMAGE, differences.replaced),
        (after, INSERT, differences.inserted), (after, POSTIMAGE, differences.replacing),
    ):  # fmt: skip
        chosen = side.take(pa.array(np.flatnonzero(mask)))
        place = chosen.schema.get_field_index(CHANGE_TYPE)
        parts.append(chosen.set_column(place, CHANGE_TYPE, pa.repeat(kind, chosen.num_rows)))
    return pa.concat_tables(parts)


COMMIT_VERSION = "_commit_version"
"""The place of the commit in the feed: the digits of its completion time, which grow from commit to commit."""
COMMIT_TIMESTAMP = "_commit_timestamp"
"""When the commit became visible."""
STAMPS = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY)
_ADDED_COLUMNS = pa.schema(
    [(CHANGE_TYPE, pa.string()), (COMMIT_VERSION, pa.int64()), (COMMIT_TIMESTAMP, pa.timestamp("us", tz="UTC"))]
)


def feed_schema(schema: TableSchema) -> pa.Schema:
    """The columns of the feed; `TableError` if the table has a column of one of the added names."""
    taken = [name for name in _ADDED_COLUMNS.names if name in schema.names]
    if taken:
        raise TableError(
            f"the change feed adds the columns {', '.join(_ADDED_COLUMNS.names)}, and the table has {', '.join(taken)} itself",
            hint="rename the table's column; without before-images table.changes(since) works as it is",
        )
    return pa.schema([*schema.arrow, *_ADDED_COLUMNS])


@dataclass(frozen=True)
class FeedRows:
    """Reads the changed rows of units, on any machine. `times_us` are the moments of the positions, since 1970."""

    schema: TableSchema
    times_us: Mapping[str, int]
    stamped: bool = False

    @classmethod
    def of(cls, schema: TableSchema, units: Iterable[Unit], zone: str, *, stamped: bool = False) -> FeedRows:
        """`zone` is that of the table's instants. With `stamped` each row begins with `STAMPS`."""
        positions = {unit.position for unit in units}
        return cls(schema, {each: round(time_of(each, zone).timestamp() * 1_000_000) for each in positions}, stamped)

    @property
    def columns(self) -> pa.Schema:
        stamps = [pa.field(name, pa.string()) for name in (STAMPS if self.stamped else ())]
        return pa.schema([*stamps, *feed_schema(self.schema)])

    def read(self, unit: Unit, storage: Storage) -> Iterator[pa.Table]:
        """The changed rows of one unit, in batches. `SnapshotTooOld` if they were cleaned."""
        time = pa.scalar(self.times_us[unit.position], _ADDED_COLUMNS.field(COMMIT_TIMESTAMP).type)
        version = pa.scalar(version_of(unit.position), pa.int64())
        for rows in changes_in(unit, self.schema, storage, stamped=self.stamped):
            stamped = rows
            for name, value in ((COMMIT_VERSION, version), (COMMIT_TIMESTAMP, time)):
                stamped = stamped.append_column(name, pa.repeat(value, rows.num_rows))
            yield stamped.cast(self.columns)
