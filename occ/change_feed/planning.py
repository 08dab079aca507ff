"""The plan of a change feed: which slices to compare, found in commits and in the listing of the partitions they touched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from lakelock.errors import InputError, TableError
from lakelock.occ.committing.schemas import SchemaHistory
from lakelock.occ.open_table import OpenTable
from lakelock.occ.records import commit_keys
from lakelock.occ.records.decisions import Resolution, resolve
from lakelock.occ.upkeep.retained import newest_readable_from
from lakelock.storage import Listed
from lakelock.table import layout
from lakelock.table.archive import archived_write
from lakelock.table.change_feed import Commit, FeedMode, MissingSlice, Shown, Unit, read_range, units_of, version_of
from lakelock.table.eligibility import require_copy_on_write
from lakelock.table.instants import Action, Instant
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema
from lakelock.table.schema_changes import is_readable_as
from lakelock.table.service_metadata import RollbackMetadata
from lakelock.table.snapshot import DataFile, Snapshot, names_of, read_replaced
from lakelock.table.timeline import Timeline

LISTED_ALONE = 64
"""Of so many partitions each is listed on its own; of more, the whole table once."""


@dataclass(frozen=True)
class Feed:
    """The units to compare, and the position up to which they bring whoever reads them."""

    units: tuple[Unit, ...]
    until: str


def feed_between(
    table: OpenTable,
    properties: TableProperties,
    schema: TableSchema,
    since: str,
    until: str | None = None,
    mode: FeedMode = "commits",
) -> Feed:
    """What commits changed that completed after position `since`, and not after `until`; to be read in the columns of `schema`.

    `InputError` that says from when on the feed is whole, if slices that it needs were cleaned, or have other columns.
    `TableError` for a table without meta columns.
    """
    ensure_comparable(properties)
    timeline = table.timeline_of_one_moment()
    ensure_nothing_undone(table, timeline, since)
    gather = table.io.gather
    found = read_range(table.storage, timeline, since, until, gather)
    commits = [Commit(*each) for each in found.commits]
    ensure_columns_fit(table, properties, schema, timeline, commits)
    units = plan_units(table, timeline, commits, [*(commit.instant for commit in commits), *found.later], mode)
    return Feed(units, commits[-1].position if commits else since)


def plan_units(
    table: OpenTable, timeline: Timeline, commits: Sequence[Commit], hidden: Sequence[Instant], mode: FeedMode
) -> tuple[Unit, ...]:
    """The units of some commits. `hidden`: these, and all others that were not visible before the first of them.

    Lists the partitions where a file group was rewritten or replaced; appends cost nothing more than their commits.
    """
    if not commits:
        return ()
    before = timeline.before(hidden)
    touched = {group.partition for _, data in commits for group in (*data.rewritten_groups, *data.replaced_groups)}
    replaced = read_replaced(table.io, before) if touched else {}
    names = lru_cache(partial(names_of, table.storage, timeline))
    snapshot = Snapshot.of(before, _listed(table, touched), replaced, names)
    # A clean is on the timeline before it deletes anything, so one that the listing suffered from is there now.
    instants = [commit.instant for commit in commits]
    ensure_kept(table, table.timeline() if touched else timeline, instants)
    shown = Shown({file.group: file for file in snapshot.files}, {g for g, by in replaced.items() if before.is_visible(by)})
    try:
        return units_of(shown, commits, mode)
    except MissingSlice as error:
        raise _cleaned(table, instants[0], commits[-1].position) from error


def _listed(table: OpenTable, partitions: set[str]) -> Iterator[Listed]:
    if "" in partitions or len(partitions) > LISTED_ALONE:
        yield from (item for item in table.storage.list("") if _partition(item) in partitions)
        return
    reads = [partial(lambda path: list(table.storage.list(path)), path) for path in sorted(partitions)]
    for path, items in zip(sorted(partitions), table.io.gather(reads), strict=True):
        yield from (item for item in items if _partition(item) == path)


def _partition(item: Listed) -> str | None:
    file = DataFile.parse(item.key)
    return file.partition if file is not None else None


def position_at(table: OpenTable, timeline: Timeline, moment: str) -> str:
    """The position that a moment means: that of the commit with this instant, if there is one, otherwise the time itself."""
    found = timeline.write_at(moment) or (archived_write(table.storage, moment) if timeline.has_archive else None)
    return (found.completion if found is not None else None) or moment


def ensure_comparable(properties: TableProperties) -> None:
    """`TableError` for a table whose rows do not say by which commit they were written, or live in log files."""
    require_copy_on_write(properties, "a change feed")
    if not properties.flag("hoodie.populate.meta.fields", default=True):
        raise TableError(
            f"the table {properties.name} has no change feed: its rows lack record keys (hoodie.populate.meta.fields=false)",
            hint="compare two reads of it: table.read(as_of=...)",
        )


def ensure_kept(table: OpenTable, timeline: Timeline, commits: Sequence[Instant]) -> None:
    """`InputError` if a clean deleted, or may be deleting, slices from before or after one of the commits."""
    first = newest_readable_from(table, timeline) if commits else ""
    gone = [commit for commit in commits if commit.requested <= first]
    if gone:
        raise _cleaned(table, gone[0], max(commit.completion or commit.requested for commit in gone))


def ensure_columns_fit(
    table: OpenTable, properties: TableProperties, schema: TableSchema, timeline: Timeline, commits: Sequence[Commit]
) -> None:
    """`InputError` if the columns were replaced by others after, or by, one of the commits."""
    told = [(commit, commit.metadata.extra.get(commit_keys.SCHEMA, "")) for commit in commits]
    late = [commit for commit, text in told if text and not is_readable_as(TableSchema.of_commit(text), schema)]
    last = commits.index(late[-1]) + 1 if late else 0
    if last < len(commits) and commits[last].metadata.replaced is not None:
        # It is the one that replaced them: its old slices have the columns of before.
        before = SchemaHistory(table).before(timeline, properties, commits[last].instant.requested)
        if before is not None and not is_readable_as(before, schema):
            late.append(commits[last])
    if late:
        since = version_of(late[-1].position)
        raise InputError(
            f"{table.storage.uri}: the columns were replaced, and now do not fit the rows of {late[-1].instant.requested}",
            hint=f"read the table, table.read(), and its changes from there on: table.changes(since={since})",
            since=since,
        )


def ensure_nothing_undone(table: OpenTable, timeline: Timeline, since: str) -> None:
    """`InputError` if another engine has undone commits after the position: their files and metadata are gone.

    A rollback counts if the log still has the decision of its target, and that was visible at the position.
    """
    later = [i for i in timeline.instants if (i.completion or i.requested) > since]
    restores = [i for i in later if i.action == Action.RESTORE]
    found = [i for i in later if i.action == Action.ROLLBACK and i.is_completed]
    told = _committed_by(table, since) if found else frozenset[str]()
    undone = [*restores, *(i for i in found if told and _target_of(table, i) in told)]
    if undone:
        last = max(undone, key=lambda instant: instant.completion or instant.requested)
        raise InputError(
            f"{table.storage.uri}: Hudi's {last.action} of {last.requested} removed commits, so what it undid cannot be told",
            hint="read the table, table.read(), and its changes from there on: "
            f"table.changes(since={version_of(last.completion or last.requested)})",
        )


def _committed_by(table: OpenTable, position: str) -> frozenset[str]:
    """The instants that were decided to be committed by then, of the decisions that are not collected yet."""
    decisions = table.log.peek(after=table.log.boundary())
    return frozenset(d.instant for d in decisions if resolve(d) is Resolution.COMMITTED and d.completion <= position)


def _target_of(table: OpenTable, rollback: Instant) -> str:
    stored = table.storage.get(layout.timeline(rollback.file_name))
    return RollbackMetadata.from_bytes(stored.data, rollback.file_name).target_instant if stored is not None else ""


def _cleaned(table: OpenTable, commit: Instant, whole_from: str) -> InputError:
    since = version_of(whole_from)
    return InputError(
        f"{table.storage.uri}: the changes of commit {commit.requested} cannot be told any more: file slices from "
        "before or after it were cleaned",
        hint=f"the feed is whole from {since} on: table.changes(since={since}), or a new stream with the option since; to keep "
        "old slices for longer, raise clean.keep_commits or clean.keep_hours",
        since=since,
    )
