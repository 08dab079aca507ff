"""The table's schema: that of the newest commit, else that of the table's creation.

The same commit shows whether another engine writes the table: it is that engine's, or its writer knew of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import intern

import pyarrow as pa

from lakelock.conflict import Conflict, ConflictRule
from lakelock.errors import ConflictError, TableError
from lakelock.occ.footprint import CommitSummary, Footprint
from lakelock.occ.history import read_summary
from lakelock.occ.open_table import OpenTable
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.table.archive import archived_writes
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.eligibility import check_columns, look_like_buckets
from lakelock.table.history_files import HistoryFile
from lakelock.table.instants import Action, Instant, format_instant, parse_instant
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema, changed, is_readable_as, merged_schema
from lakelock.table.timeline import Timeline

LOOKED_AT = 20
"""How many of the newest commits are searched for a schema before that of the table's creation is taken."""
REMEMBERED = 500
"""Of how many commits, at least, a process that is open for long remembers the schema."""


class SchemaHistory:
    """Finds schemas and remembers them: a commit's bytes never change. `TableError` where names do not tell the columns."""

    def __init__(self, table: OpenTable) -> None:
        self._table = table
        self._known: dict[str, str] = {}
        self._archived: dict[tuple[str, ...], str] = {}
        self._columns: tuple[str, bytes, str] | None = None
        """The history of columns, where Java keeps one, and its key, as of the newest commit of another engine."""

    def at(self, timeline: Timeline, properties: TableProperties) -> TableSchema:
        """The schema as of a timeline, without the meta columns."""
        newest = self._first_found(timeline.latest(LOOKED_AT), timeline) or self._found_earlier(timeline)
        self._ensure_columns_by_name(timeline, properties)
        if newest is not None:
            # Hudi's readers go by the instants. Where both orders differ, one writer may not have known of the other's columns.
            by_instant = self._first_found(timeline.commits[: -LOOKED_AT - 1 : -1], timeline) or newest
            together, problems = merged_schema(TableSchema(pa.schema([])), by_instant, newest)
            return by_instant if problems or newest == by_instant else together
        if properties.create_schema:
            return TableSchema.from_avro_json(properties.create_schema)
        raise TableError(
            f"{self._table.storage.uri} has no schema: neither its commits nor hoodie.table.create.schema hold one",
            hint="create the table with a schema, or let its first writer commit",
        )

    def _ensure_columns_by_name(self, timeline: Timeline, properties: TableProperties) -> None:
        """`TableError` if another engine has renamed columns of files that stay. A listing for each new commit of it."""
        observed, storage = self._table.observed, self._table.storage
        if not observed.foreign_writers:
            return
        if self._columns is None or self._columns[0] != observed.newest_foreign:
            self._columns = observed.newest_foreign, *history_of_columns(storage, timeline)
        if self._columns[1]:
            check_columns(properties, *self._columns[1:])

    def as_of(self, timeline: Timeline, properties: TableProperties, instant: str) -> TableSchema:
        """The schema in which to read the table as of an instant: the present one, or the old one if its files need that.

        They do once columns were renamed or dropped. If the old schema is unknown, it is the present one.
        """
        now, then = self.at(timeline, properties), timeline.as_of(instant)
        found = self.at(then, properties) if then.commits else self._found_earlier(then)
        return now if found is None or is_readable_as(found, now) else found

    def before(self, timeline: Timeline, properties: TableProperties, instant: str) -> TableSchema | None:
        """The schema just before an instant, None if nothing tells it any more."""
        try:
            return self.at(timeline.as_of(format_instant(parse_instant(instant) - 1)), properties)
        except TableError:
            return None

    def _found_earlier(self, timeline: Timeline) -> TableSchema | None:
        """The schema recorded last of all, when the newest commits record none; the file index has it, or the archive."""
        if len(timeline.commits) < LOOKED_AT and not timeline.first_active:
            return None
        state = self._table.index.state_at(timeline)
        if state is None:
            text = self._in_archive(timeline)
            return TableSchema.of_commit(text) if text else None
        if not state.schemas:
            return None
        return TableSchema.of_commit(max(state.schemas, key=lambda text: state.schemas[text]))

    def _in_archive(self, timeline: Timeline) -> str:
        """The schema of the last archived commit that the timeline shows and that records one. Mostly one file is read."""
        files = (file for file in map(HistoryFile.parse, timeline.archive) if file is not None)
        keys = tuple(file.key for file in files if timeline.until is None or file.first <= timeline.until)
        asked = (timeline.until or "", *keys)
        if keys and asked not in self._archived:
            if len(self._archived) > REMEMBERED:
                self._archived = {}
            self._archived[asked] = intern(self._last_archived(timeline, frozenset(keys)))
        return self._archived.get(asked, "")

    def _last_archived(self, timeline: Timeline, keys: frozenset[str]) -> str:
        for _, writes in archived_writes(self._table.storage, only=keys):
            for write in sorted(writes, key=lambda write: write.requested, reverse=True):
                if timeline.is_visible(write.requested):
                    text = CommitMetadata.from_bytes(write.data, write.requested).schema_json
                    if text:
                        return text
        return ""

    def _first_found(self, commits: Sequence[Instant], timeline: Timeline) -> TableSchema | None:
        texts = (self._schema_of(instant, timeline) for instant in commits)
        return next((TableSchema.of_commit(text) for text in texts if text), None)

    def _schema_of(self, instant: Instant, timeline: Timeline) -> str:
        text = self._known.get(instant.requested)
        if text is None:
            decided = self._table.log.known(instant.requested)
            if decided is not None:
                metadata = CommitMetadata.from_bytes(decided.payload, instant.file_name)
                other = CommitSummary.of(instant.requested, "", metadata, decided.number)
            else:
                other = read_summary(self._table.storage, instant)
            foreign = instant.requested if other.is_foreign else other.newest_foreign
            # A commit that is archived by now, or was rolled back, does not show that the other engine still writes.
            if foreign and timeline.state_of(foreign) is not None:
                self._table.observed.met_foreign(foreign)
            if other.is_foreign and look_like_buckets(group.file_id for group in other.files):
                self._table.observed.foreign_buckets = True
            if len(self._known) > 2 * REMEMBERED:
                self._known = dict(sorted(self._known.items())[-REMEMBERED:])
            text = self._known[instant.requested] = intern(other.schema_json)  # most commits have that of the one before
        return text


def history_of_columns(storage: Storage, timeline: Timeline) -> tuple[bytes, str]:
    """The newest history of columns that Java has written, and its key; nothing where it keeps none, as by default."""
    names = [item.key for item in storage.list(layout.COLUMN_HISTORY) if item.key.endswith(f".{Action.SCHEMA_COMMIT}")]
    done = max((key for key in names if timeline.is_visible(layout.split_path(key)[1][:17])), default="")
    stored = storage.get(done) if done else None
    return (b"", "") if stored is None else (stored.data, done)


def schema_after(base: TableSchema, mine: TableSchema, footprint: Footprint, others: Sequence[CommitSummary]) -> TableSchema:
    """The schema to publish: mine, merged with the newest that others, of any engine, published in the window.

    A commit that repeats the schema of the baseline changes nothing, even if it is newer than one that changes it: its writer
    had not seen the change. Raises `ConflictError` if the changes do not fit together, or if another wrote files that cannot
    be read in my columns.
    """
    _require_readable(base, mine, footprint, others)
    theirs, last = base, None
    for other in sorted(others, key=lambda o: o.party.completion or ""):
        found = _schema_of(other, base)
        if found != base:
            theirs, last = _together(base, found, theirs, footprint, other), other
    schema = mine if last is None else _together(base, theirs, mine, footprint, last)
    instant = footprint.party.instant
    later = max((o for o in others if o.party.instant > instant), key=lambda o: o.party.instant, default=None)
    published = base if later is None else _schema_of(later, base)
    if later is not None and mine != base and schema != published:
        lost = changed(published.arrow, schema.arrow)
        detail = "readers take the columns from the commit with the latest instant, which lacks mine"
        raise _conflict(footprint, later, lost, detail)
    return schema


def _require_readable(base: TableSchema, mine: TableSchema, footprint: Footprint, others: Sequence[CommitSummary]) -> None:
    """Raise if I rename or drop columns, which replaces all files that I have seen, and another's file would stay."""
    if is_readable_as(base, mine):
        return
    for other in others:
        if not footprint.touched.issuperset(other.files):
            lost = [*changed(mine.arrow, base.arrow)]
            raise _conflict(footprint, other, lost, "the other wrote files with the columns that this replaces by others")


def _schema_of(other: CommitSummary, base: TableSchema) -> TableSchema:
    return TableSchema.of_commit(other.schema_json) if other.schema_json else base


def _together(
    base: TableSchema, theirs: TableSchema, mine: TableSchema, footprint: Footprint, other: CommitSummary
) -> TableSchema:
    schema, problems = merged_schema(base, theirs, mine)
    if problems:
        raise _conflict(footprint, other, problems, "both changed the table's columns, and the changes do not fit together")
    return schema


def _conflict(footprint: Footprint, other: CommitSummary, over: Sequence[str], detail: str) -> ConflictError:
    return ConflictError(Conflict.over(ConflictRule.METADATA, footprint.party, other.party, over, detail=detail))
