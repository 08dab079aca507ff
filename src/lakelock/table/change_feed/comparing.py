"""The rows that differ between two slices of a file group, found with bounded memory.

Hudi's meta columns tell versions of a row apart: whoever changes a row stamps it with the instant and a sequence number of its
own, and whoever copies it keeps both. So only three columns are compared, and values are read of changed rows only. A key may
occur more than once; then the slices are compared as multisets, and applying the changes is exact all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.errors import SnapshotTooOld, StorageError, StorageUnavailable
from lakelock.storage import Storage
from lakelock.table.base_files.reader import BaseFile
from lakelock.table.change_feed.units import Unit
from lakelock.table.index.bucket_hash import string_hashes
from lakelock.table.schema import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY, TableSchema
from lakelock.table.snapshot import DataFile

CHANGE_TYPE = "_change_type"
INSERT, PREIMAGE, POSTIMAGE, DELETE = "insert", "update_preimage", "update_postimage", "delete"
"""Delta's words for what happened to a row."""

COMPARED_ROWS = 1_000_000
"""Of how many rows the stamps are in memory at a time; a group that has more is read several times."""

VERSION = (COMMIT_TIME, COMMIT_SEQNO)

Mask = npt.NDArray[np.bool_]


class Told(NamedTuple):
    """What became of the rows before, and where the rows after come from, as a mask of each kind."""

    deleted: Mask
    replaced: Mask
    inserted: Mask
    replacing: Mask


def tell(before: pa.Table, after: pa.Table, key: Sequence[str]) -> Told:
    """Compare rows by their `key` columns and their `VERSION`; a row that is in both, as often, is unchanged."""
    same_before, same_after = _matched(before, after, [*key, *VERSION])
    changed_before, changed_after = np.flatnonzero(~same_before), np.flatnonzero(~same_after)
    pairs = _matched(before.take(pa.array(changed_before)), after.take(pa.array(changed_after)), key)
    kinds = []
    for rows, changed, paired in ((before, changed_before, pairs[0]), (after, changed_after, pairs[1])):
        single, both = np.zeros(rows.num_rows, np.bool_), np.zeros(rows.num_rows, np.bool_)
        single[changed[~paired]], both[changed[paired]] = True, True
        kinds += [single, both]
    return Told(*kinds)


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
        with opened(storage, file) as base:
            rows = map(_in_texts, base.stamped_batches(schema)) if stamped else base.batches(schema)
            yield from (_typed(batch, kind) for batch in rows)
        return
    with opened(storage, unit.before) as before, opened(storage, unit.after) as after:
        parts = max(1, -(-(before.rows + after.rows) // compared_rows))
        for part in range(parts):
            stamps = [_stamps(base, part, parts) for base in (before, after)]
            told = tell(stamps[0], stamps[1], [RECORD_KEY])
            for base, rows, kinds in (
                (before, stamps[0], ((DELETE, told.deleted), (PREIMAGE, told.replaced))),
                (after, stamps[1], ((INSERT, told.inserted), (POSTIMAGE, told.replacing))),
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


def opened(storage: Storage, file: DataFile) -> BaseFile:
    """A file of the feed; `SnapshotTooOld` if it is not there any more."""
    return opened_or_gone(
        storage,
        file,
        "while its changes were read",
        "read the changes again, from a later instant if it is refused; to keep old files for longer, raise "
        "clean.keep_commits or clean.keep_hours",
    )


def opened_or_gone(storage: Storage, file: DataFile, when: str, hint: str) -> BaseFile:
    """A base file; `SnapshotTooOld`, with when it was cleaned and what to do, if it is not there any more."""
    try:
        return BaseFile(storage.open_input(file.key), file.key)
    except StorageUnavailable:
        raise
    except StorageError as error:
        raise SnapshotTooOld(f"{file.key} is gone: it was cleaned {when}", hint=hint, file=file.key) from error
