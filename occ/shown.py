"""What readers are shown: files, and the columns of the same moment to read them in; and the files as of an instant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import pyarrow as pa

from lakelock.data_locks import Resource
from lakelock.errors import CorruptTableError, SnapshotTooOld
from lakelock.occ.locking.targets import within
from lakelock.occ.open_table import OpenTable
from lakelock.occ.upkeep.retained import hides_what_was_cleaned
from lakelock.occ.upkeep.savepoints import all_that_is_kept
from lakelock.retry import retry_if_overtaken
from lakelock.table.merged_slices import LoggedSlice, MergedRows
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import Snapshot, read_snapshot
from lakelock.table.timeline import Timeline
from lakelock.texts import command

QueryType = Literal["snapshot", "read_optimized"]
"""Hudi's words: the rows as of now, or, of a merge-on-read table, only what is in base files."""


@dataclass(frozen=True)
class Shown:
    """The files, and the columns in which all of them can be read.

    `logged` are file slices of a merge-on-read table that have log files, and are not in the snapshot; `ordering` is the column
    by which versions of a row are ordered there.
    """

    snapshot: Snapshot
    schema: TableSchema
    logged: tuple[LoggedSlice, ...] = ()
    ordering: str | None = None

    def logged_within(self, targets: Sequence[Resource]) -> list[LoggedSlice]:
        """The slices that have log files, of these partitions or prefixes; all if there are none."""
        return [each for each in self.logged if not targets or within(each.partition, targets)]

    def merged(self, columns: pa.Schema) -> MergedRows:
        """How to read the slices that have log files, with these columns."""
        return MergedRows(columns, None if self.ordering is None else self.schema.arrow.field(self.ordering))


def as_of(table: OpenTable, instant: str) -> tuple[Snapshot, Timeline]:
    """The file slices visible as of an instant, and the timeline of now; `InputError` when files of that time were cleaned."""
    return retry_if_overtaken(partial(_look, table, instant))


def _look(table: OpenTable, instant: str) -> tuple[Snapshot, Timeline]:
    """One look; `SnapshotTooOld` if what is kept has changed meanwhile."""
    timeline = table.timeline_of_one_moment()
    kept = all_that_is_kept(table, timeline, instant)
    snapshot = read_snapshot(table.io, timeline, instant, only=kept)
    # A clean announces itself on the timeline before it deletes anything, and may have done so since.
    later = table.timeline()
    if all_that_is_kept(table, later, instant) != kept or hides_what_was_cleaned(table, timeline, later, instant):
        raise SnapshotTooOld(f"what is kept of {table.storage.uri} as of {instant} changed in each look", hint="run it again")
    _ensure_all_there(table, snapshot, kept, instant)
    return snapshot, timeline


def _ensure_all_there(table: OpenTable, snapshot: Snapshot, kept: frozenset[str] | None, instant: str) -> None:
    """`CorruptTableError` if files are gone that a savepoint keeps: rows would be missing without a word."""
    gone = (kept or frozenset()) - {file.key for file in snapshot.files}
    if gone:
        raise CorruptTableError(
            f"{table.storage.uri} cannot be read as of {instant}: its savepoint names {min(gone)}, which is gone",
            hint=f"read it as of a later time; {command('savepoint', 'rm', table.storage.uri, instant)}",
            file=min(gone),
        )
