"""What readers are shown: the files of a moment, the columns to read them in, and the files as of an instant.

Of a merge-on-read table, file slices with log files are shown like those that have none. A read may not name a moment that
is still to come, nor a range that ends before it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import pyarrow as pa

from lakelock.data_locks import Resource
from lakelock.errors import CorruptTableError, InputError, SnapshotTooOld, TableError
from lakelock.occ.live_logs import logged_slices, slices_as_of, slices_of_version_6
from lakelock.occ.open_table import OpenTable, retry_if_overtaken
from lakelock.occ.request import within
from lakelock.occ.retention import hides_what_was_cleaned
from lakelock.occ.savepoints import all_that_is_kept, slices_kept
from lakelock.table.eligibility import OLD_VERSION, why_not_merged
from lakelock.table.instants import time_of
from lakelock.table.log_rows import READ_OPTIMIZED
from lakelock.table.merged_slices import LoggedSlice, MergedRows
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile, Snapshot, read_snapshot
from lakelock.table.timeline import Timeline
from lakelock.texts import command

QueryType = Literal["snapshot", "read_optimized"]
"""Hudi's words: the rows as of now, or, of a merge-on-read table, only what is in base files."""


@dataclass(frozen=True)
class ReadView:
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
    """One attempt; `SnapshotTooOld` if cleans or savepoints have changed meanwhile."""
    timeline = table.timeline_of_one_moment()
    kept = all_that_is_kept(table, timeline, instant)
    snapshot = read_snapshot(table.io, timeline, instant, only=kept)
    # A clean announces itself on the timeline before it deletes anything, and may have done so since.
    later = table.timeline()
    if all_that_is_kept(table, later, instant) != kept or hides_what_was_cleaned(table, timeline, later, instant):
        raise SnapshotTooOld(f"the files of {table.storage.uri} as of {instant} changed in each attempt", hint="run it again")
    _ensure_all_there(table, snapshot, kept, instant)
    return snapshot, timeline


def _ensure_all_there(table: OpenTable, snapshot: Snapshot, kept: frozenset[str] | None, instant: str) -> None:
    """`CorruptTableError` if files are gone that a savepoint keeps: rows would be missing without a word."""
    gone = {key for key in kept or () if DataFile.parse(key) is not None} - {file.key for file in snapshot.files}
    if gone:
        raise CorruptTableError(
            f"{table.storage.uri} cannot be read as of {instant}: its savepoint names {min(gone)}, which is gone",
            hint=f"read it as of a later time; {command('savepoint', 'rm', table.storage.uri, instant)}",
            file=min(gone),
        )


def with_log_files(
    table: OpenTable, properties: TableProperties, shown: ReadView, timeline: Timeline, as_of: str | None = None
) -> ReadView:
    """What is shown, with the log files that a timeline shows; `TableError` if lakelock cannot merge the rows as Hudi does."""
    refusal = why_not_merged(properties)
    if refusal is not None:
        raise TableError(f"lakelock does not merge the log files of {properties.name}: {refusal}", hint=READ_OPTIMIZED)
    if properties.version == OLD_VERSION:
        slices = slices_of_version_6(table, shown.snapshot, timeline if as_of is None else timeline.as_of(as_of))
    elif as_of is None:
        slices = logged_slices(table, shown.snapshot, timeline)
    else:
        kept = all_that_is_kept(table, timeline, as_of)
        if kept is None:
            slices = slices_as_of(table, shown.snapshot, timeline, as_of)
        else:
            slices = tuple(LoggedSlice.of(file) for file in slices_kept(kept).files if file.logs)
    logged = {slice_.as_file.group for slice_ in slices}
    plain = Snapshot(file for file in shown.snapshot.files if file.group not in logged)
    return replace(shown, snapshot=plain, logged=slices, ordering=properties.ordering_field)


CLOCK_AHEAD_MS = 60_000
"""How far the clock behind a named moment may be ahead of this machine's."""


def ensure_not_future(table: OpenTable, zone: str, moment: str, name: str) -> str:
    """The instant time `moment`, in the table's `zone`; `InputError` if it has not come. `name` is what the caller calls it.

    A commit of a machine whose clock is ahead has come: what is not later than the newest instant of the timeline passes.
    """
    if time_of(moment, zone).timestamp() * 1_000 > table.runtime.now_ms() + CLOCK_AHEAD_MS:
        newest = max((instant.completion or instant.requested for instant in table.timeline().instants), default="")
        if moment > newest:
            raise InputError(
                f"{name} is {moment}, which is still to come: what {table.storage.uri} will be then is unknown",
                hint="name a moment that has come, or leave it out for the newest state; a time without a zone is in UTC, and "
                "table.history() lists the instants",
            )
    return moment


def ensure_in_order(since: str, until: str | None) -> None:
    """`InputError` if a range of positions ends before it begins."""
    if until is not None and until < since:
        raise InputError(
            f"until ({until}) is before since ({since}), so nothing can lie between them",
            hint="exchange them; a range begins after since, and until is included",
        )
