"""The definition of a table: what a caller wants it to be, made once or compared with what is there, and its recorded index.

Which index the writers use is recorded in the table, because Java keeps it in the options of its writers only. A table that
lakelock creates with an index has the record from its beginning. Another one gets it from the first writer that has
`write.index` set; for buckets only once its files have shown that this is true. In the same way the first writer records UTC
as the zone of the instants of a table that Java made, if they prove to be in it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from lakelock.clock import Runtime
from lakelock.errors import InputError, LockError, SchemaError, StorageError, TableError
from lakelock.events import EventKind
from lakelock.occ.open_table import OpenTable
from lakelock.storage import Created, Storage, create, probe
from lakelock.storage.location import StorageLocation
from lakelock.table import layout
from lakelock.table.base_files import BaseFile
from lakelock.table.column_types import stored_otherwise
from lakelock.table.eligibility import VERSIONS, check_files, check_writable, why_not_writable
from lakelock.table.index import BucketIndex, TableIndex, bucket_of, index_from_bytes, parsed_index
from lakelock.table.instants import Action, State, parse_file_name, parse_instant
from lakelock.table.key_search import buckets_of_keys
from lakelock.table.partitions import require_partition_type
from lakelock.table.properties import COPY_ON_WRITE, MERGE_ON_READ, NEWEST_VERSION, TIMEZONE, TableProperties
from lakelock.table.record_keys import key_text, require_key
from lakelock.table.rows import Fields, why_not_fits
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile, read_snapshot
from lakelock.table.transforms import partition_columns
from lakelock.texts import command


@dataclass(frozen=True)
class Definition:
    """The table that a caller wants. `name` is None where the table's folder names it."""

    properties: TableProperties
    columns: TableSchema
    name: str | None

    @classmethod
    def of(
        cls,
        location: StorageLocation,
        given: pa.Schema,
        *,
        key: Sequence[str],
        partition_by: Sequence[str],
        order_by: str | None,
        name: str | None,
        hive_style: bool,
        index: str | None = None,
        table_version: int = NEWEST_VERSION,
        table_type: str = COPY_ON_WRITE,
    ) -> Definition:
        """The definition, checked: `SchemaError` or `InputError` before anything is written."""
        _require_key_for(key, "order_by, which chooses between rows of one key", order_by)
        _require_key_for(key, "index, which finds rows by their key", index)
        if table_version not in VERSIONS:
            raise InputError(
                f"table_version is {table_version!r}; lakelock makes {' and '.join(map(str, VERSIONS))}",
                hint="8 is for readers and writers of Hudi 1.0, as on EMR 7 and Glue 5.1; all newer ones take 9",
            )
        table_type = checked_type(table_type, order_by=order_by, index=index)
        columns = TableSchema.from_arrow(given)
        if problems := stored_otherwise(given):
            text = f"{'; '.join(problems)}. Hudi's schemas have no smaller integer: the columns come back as int"
            warnings.warn(text, UserWarning, stacklevel=4)
        fields, transforms, arrow = partition_columns(columns.arrow, partition_by)
        columns = TableSchema(arrow)
        columns.require(key, "key")
        columns.require(fields, "partition")
        columns.require([order_by] if order_by else [], "ordering")
        chosen = None if index is None else parsed_index(index).hashing(key)
        table_name = name or location.uri.rpartition("/")[2]
        properties = TableProperties.new(
            table_name,
            key,
            fields,
            order_by,
            hive_style=hive_style,
            create_schema=columns.to_avro_json(table_name, null_first=False),
            transforms=transforms,
            version=table_version,
            table_type=table_type,
        )
        return cls(properties.indexed(chosen), columns, name)

    def make(self, location: StorageLocation, runtime: Runtime, *, if_not_exists: bool) -> bool:
        """Make the empty table; False if it exists and `if_not_exists` is set."""
        return create_table(location.open(), self.properties, runtime, if_not_exists=if_not_exists)

    def check(self, table: OpenTable, schema: TableSchema) -> None:
        """`TableError` that names what differs, unless the open table, which has this schema, is as defined here."""
        uri, found, named = table.storage.uri, current_properties(table), self.name is not None
        check_definition(uri, self.properties, self.columns, found, schema, name=named)


def _require_key_for(key: Sequence[str], what: str, given: str | None) -> None:
    if given and not key:
        raise InputError(f"a table without a key has no {what}", hint='name the columns that identify a row: key=["order_id"]')


_SHORT_TYPES = {"COW": COPY_ON_WRITE, "MOR": MERGE_ON_READ}


def checked_type(given: str, *, order_by: str | None = None, index: str | None = None) -> str:
    """The table's type as Hudi spells it; `InputError` for none, and for what a merge-on-read table cannot have."""
    found = _SHORT_TYPES.get(given.strip().upper(), given.strip().upper())
    if found not in _SHORT_TYPES.values():
        raise InputError(f"table_type is {given!r}", hint=f"use {' or '.join(_SHORT_TYPES.values())}")
    if found == MERGE_ON_READ and (order_by or index == "global"):
        what = "order_by" if order_by else "index=global"
        raise InputError(
            f"lakelock writes no merge-on-read table with {what}", hint=f"leave {what} or table_type={MERGE_ON_READ} out"
        )
    return found


NEAREST_UTC_MS = 7 * 60_000
"""Zones differ by quarters of an hour, so a time that is nearer than this to the storage's own is in UTC."""
_IN_UTC = {TIMEZONE: "UTC"}
_AT_ONCE = (Action.COMMIT, Action.DELTA_COMMIT)
"""The actions that put their first file at the time that their instant names; others may be planned long before."""


def ensure_writable(table: OpenTable, properties: TableProperties, *, record: bool) -> TableProperties:
    """The properties of a table that may be written: these, or those of now if it was mended since. `TableError` else.

    Java's writers name instants in the zone of their machines by default, and say so in the table. If these prove to be in
    UTC, the table says so from now on; without `record` nothing changes yet. Java's writers follow it from their next start
    on, and only then have the lock, too.
    """
    if properties.timezone == "UTC" and not why_not_writable(properties):
        return properties
    now = current_properties(table)
    check_writable(now)
    if now.timezone == "UTC":
        return now
    proven = proven_utc(table.storage)
    if not record:
        return properties
    try:
        table.change_properties(_IN_UTC)
    except LockError:
        if table.properties().timezone != "UTC":  # or another writer has just recorded the same
            raise
    table.emit(EventKind.ZONE_RECORDED, zone="UTC", proven=proven)
    return current_properties(table)


def proven_utc(storage: Storage) -> int:
    """How many completed instants there are, all of which are in UTC: the storage stamped each file at its completion time.

    `TableError` for one that is not, and for a write under way whose first file is of another time than its name.
    """
    found = [(parse_file_name(item.key.rpartition("/")[2]), item) for item in storage.list(layout.TIMELINE)
             if not item.key.startswith(f"{layout.HISTORY}/")]  # fmt: skip
    instants = [(instant, item.modified_ms) for instant, item in found if instant is not None]
    completed = {instant.requested for instant, _ in instants if instant.is_completed}
    for instant, modified_ms in instants:
        begins = instant.state is State.REQUESTED and instant.action in _AT_ONCE and instant.requested not in completed
        stamp = instant.requested if begins else instant.completion
        apart_ms = 0 if stamp is None else parse_instant(stamp) - modified_ms
        if abs(apart_ms) > NEAREST_UTC_MS:
            apart = f"{abs(apart_ms) / 60_000:.0f} minutes {'older' if apart_ms > 0 else 'younger'}"
            raise TableError(
                f"the instants of {storage.uri} are not proven to be in UTC: {instant} was "
                f"{'requested' if begins else 'completed'} at {stamp}, and its file is {apart} than that",
                hint="if its files were copied and all its writers had their clocks in UTC, run "
                f"`{command('adopt', storage.uri, '--assume-utc')}`; if they had not, copy its rows into a new table that Java "
                f"makes with {TIMEZONE}=UTC. It can be read meanwhile",
            )
    return len(completed)


_PROBED_FILES, _PROBED_KEYS = 4, 1000
"""How many keys of how many files are hashed before a table of Java is taken at its writer's word."""


def recorded_index(storage: Storage) -> TableIndex | None:
    """The index that the table has on record, None if it has none. One request."""
    stored = storage.get(layout.INDEX)
    if stored is None:
        return None
    try:
        return index_from_bytes(stored.data)
    except ValueError as error:
        hint = "upgrade lakelock, or restore the file from a backup"
        raise StorageError(f"{layout.INDEX} is not readable: {error}", hint=hint) from error


def record_index(storage: Storage, index: TableIndex) -> None:
    """Record the index of a table; `TableError` if another one is on record."""
    if create(storage, layout.INDEX, index.to_bytes()) is Created.THEIRS:
        _compare(storage, recorded_index(storage), index)


def with_index(table: OpenTable, properties: TableProperties) -> TableProperties:
    """The properties with the index that is on record; asks storage once in the life of the open table."""
    observed = table.observed
    if not observed.index_known:
        observed.index = recorded_index(table.storage)
        observed.index_known = True
    return properties.indexed(observed.index)


def current_properties(table: OpenTable) -> TableProperties:
    """What the table says of itself now. `TableError` if it is gone."""
    return with_index(table, table.properties())


def settle_index(table: OpenTable) -> None:
    """Record the setting `write.index` in the table if it has no index on record; `TableError` if that is another.

    `TableError` also if Java has given the table another kind of buckets since. No request if there is neither setting nor
    record.
    """
    if table.observed.index is not None and not table.observed.index_checked:
        _refuse_other_layouts(table.storage)
        table.observed.index_checked = True
    if not table.settings.write.index:
        return
    properties = current_properties(table)
    wanted = parsed_index(table.settings.write.index).hashing(properties.record_keys)
    if properties.index is not None:
        _compare(table.storage, properties.index, wanted)
        return
    check_writable(properties)
    _refuse_other_layouts(table.storage)
    snapshot = read_snapshot(table.io, table.timeline())
    check_files(properties.indexed(wanted), snapshot)
    if isinstance(wanted, BucketIndex):
        for file in sorted(snapshot.files, key=lambda file: -file.size_bytes)[:_PROBED_FILES]:
            _check_keys(table.storage, file, wanted)
    else:
        require_key(properties, "an index")
    record_index(table.storage, wanted)
    table.observed.index, table.observed.index_known = wanted, True


def _check_keys(storage: Storage, file: DataFile, index: BucketIndex) -> None:
    """`TableError` unless the first keys of a file lie in the bucket that its name says."""
    with BaseFile(storage.open_input(file.key), file.key) as base:
        keys = next(iter(base.key_batches()), None) if base.rows else None
        found = [] if keys is None else keys.slice(0, _PROBED_KEYS).to_pylist()
    named = bucket_of(file.file_id)
    for key, bucket in zip(found, buckets_of_keys(found, index), strict=True):
        if bucket != named:
            raise TableError(
                f"write.index is {index}, which puts the key {key} into bucket {bucket}, but the table has it in {file.key}",
                hint="use hoodie.bucket.index.num.buckets and hoodie.bucket.index.hash.field of the table's Java writers",
            )


def _compare(storage: Storage, found: TableIndex | None, wanted: TableIndex) -> None:
    if found != wanted:
        raise TableError(
            f"{storage.uri} has the index {found or 'that another process is recording'}, and {wanted} was given",
            hint=f"use {found}, or leave it out: the table knows its index" if found else "run again",
        )


def _refuse_other_layouts(storage: Storage) -> None:
    """Partition-level buckets and consistent hashing keep their state in a folder of Hudi's."""
    first = next(iter(storage.list(layout.HUDI_BUCKETS)), None)
    if first is not None:
        raise TableError(
            f"{storage.uri} has partition-level bucket counts or consistent hashing ({first.key}), which lakelock does not "
            "write; it needs hoodie.index.bucket.engine=SIMPLE and no hoodie.bucket.index.partition.expressions",
            hint="reading the table works",
        )


_MOST_LISTED = 1_000
"""How many names of a folder are looked at that say nothing, such as those of a checkpoint in `_checkpoint`."""


def table_exists(storage: Storage) -> bool:
    # A Hudi writer that replaces the properties takes them away for a moment, and leaves the backup.
    return any(storage.get(key) is not None for key in (layout.PROPERTIES, layout.PROPERTIES_BACKUP))


def create_table(storage: Storage, properties: TableProperties, runtime: Runtime, *, if_not_exists: bool = False) -> bool:
    """Make an empty table, after checking that the storage honours conditional writes; whether it was made.

    A table that is there already stays as it is: `TableError`, or False with `if_not_exists`. `TableError` also where commits
    of a table are left whose properties are gone, and `InputError` where files are that belong to no table of Hudi.
    """
    write_id = runtime.uuid()
    made = not table_exists(storage)
    left = _first_commit(storage) if made else None
    others = _first_of_others(storage) if made and left is None else None
    if left is not None or others is not None:
        made = not table_exists(storage)  # they may be those of a table that another has just made
        if made and left is not None:
            raise TableError(
                f"{storage.uri} holds what is left of a table: {left}, but no {layout.PROPERTIES}",
                hint=f"to have that table again, restore {layout.PROPERTIES} from a backup; to make a new one, delete all that "
                "is left of it, or choose an empty folder",
            )
        if made:
            raise InputError(
                f"{storage.uri} is no place for a new table: it has files of something else, such as {others}",
                hint="choose an empty folder; LakeTable.from_parquet(spark, path, folder=...) makes a table elsewhere of a "
                "folder of Parquet. What is to lie beside a table's rows needs a name that begins with _ or a dot",
            )
    if made:
        _check_columns(properties)
        probe(storage, layout.probe(write_id), write_id)
        _record_index(storage, properties.index)
        _make_timeline_folder(storage, write_id)
        made = create(storage, layout.PROPERTIES, properties.unindexed().serialize(runtime.now_ms())) is not Created.THEIRS
    if not made and not if_not_exists:
        raise TableError(
            f"{storage.uri} is a table already",
            hint="open it: lakelock.open(path), with Spark LakeTable.for_path(spark, path); or create(..., if_not_exists=True)",
        )
    return made


def _first_commit(storage: Storage) -> str | None:
    """A file that tells of a transaction: a new table would begin with what the old one had committed."""
    for folder in (layout.TIMELINE, layout.DECISIONS):
        for entry in islice(storage.list(folder), _MOST_LISTED):
            name = entry.key.rpartition("/")[2]
            if folder == layout.DECISIONS or entry.key.startswith(f"{layout.HISTORY}/") or parse_file_name(name) is not None:
                return entry.key
    return None


def _check_columns(properties: TableProperties) -> None:
    """`SchemaError` for columns that a table cannot have, or that cannot be its key, partition or ordering columns."""
    if properties.create_schema is None:
        return
    columns = TableSchema.from_arrow(TableSchema.from_avro_json(properties.create_schema).arrow)
    for name, role in properties.needed_columns:
        columns.require([name], role)
        kind = columns.field(name).type
        if role == "key":
            key_text(pa.chunked_array([], kind), name)
        elif role == "partition":
            require_partition_type(kind, name)
        elif pa.types.is_nested(kind):
            hint = "order by a number, a time or a text"
            raise SchemaError(f"column {name} of type {kind} cannot order the versions of a row", hint=hint, column=name)
    for names, role in ((properties.record_keys, "key"), (properties.partition_fields, "partition")):
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise SchemaError(f"the {role} column {twice!r} is named twice", hint="name it once", column=twice)


def check_definition(
    uri: str, given: TableProperties, columns: TableSchema, found: TableProperties, schema: TableSchema, *, name: bool = False
) -> None:
    """`TableError` unless the table at `uri` matches `given` and `columns`, with which a caller wants to create it.

    The table may have more columns, and types that hold those of `columns`. Its name counts only where `name` says so.
    """
    differences = [*_differences(given, found, name=name), *_misfits(columns, schema)]
    if differences:
        raise TableError(
            f"{uri} is a table already, and not the one that was to be made:\n  " + "\n  ".join(differences),
            hint="open it as it is, by lakelock.open(path) or LakeTable.for_path(spark, path), or choose another path; "
            "table.columns.add or a write with merge_schema=True adds a column",
        )


def _differences(given: TableProperties, found: TableProperties, *, name: bool) -> Iterator[str]:
    pairs: list[tuple[str, object, object]] = [
        ("table_version", given.version, found.version),
        ("table_type", given.type, found.type),
        ("key", given.record_keys, found.record_keys),
        ("partition_by", given.partition_by, found.partition_by),
        ("order_by", given.ordering_field, found.ordering_field),
        ("index", _index_text(given.index), _index_text(found.index)),
    ]
    if found.partition_fields:
        pairs.append(("hive_style", given.hive_style, found.hive_style))
    if name:
        pairs.append(("name", given.name, found.name))
    for what, wanted, has in pairs:
        if wanted != has:
            yield f"{what}: {_as_text(wanted)} was given, the table has {_as_text(has)}"


def _misfits(columns: TableSchema, schema: TableSchema) -> Iterator[str]:
    there = Fields(schema.arrow)
    for field in columns.arrow:
        found = there.find(field.name)
        if found is None:
            yield f"schema: {field.name} ({field.type}) was given, the table has no such column"
        else:
            yield from (f"schema: {why}" for why in why_not_fits(field.type, found.type, field.name))


def _first_of_others(storage: Storage) -> str | None:
    """The first file in the folder that engines take for data, or that tells of another table; None in an empty folder."""
    listed = storage.list("", start_after=f"{layout.HOODIE}0")  # "0" follows "/": the listing begins behind Hudi's folder
    return next((each.key for each in islice(listed, _MOST_LISTED) if _is_data(each.key)), None)


def _is_data(key: str) -> bool:
    """Whether the file is not hidden from Spark and Hudi by a name that begins with _ or a dot, or belongs to Delta's log."""
    hidden = any(part.startswith(("_", ".")) for part in key.split("/"))
    return key.startswith("_delta_log/") or not (hidden or key.endswith(("/", "_$folder$")))


def _as_text(value: object) -> str:
    return ", ".join(value) or "none" if isinstance(value, tuple) else "none" if value is None else str(value)


def _index_text(index: TableIndex | None) -> str | None:
    return None if index is None else str(index)


def _record_index(storage: Storage, index: TableIndex | None) -> None:
    """Before the table is there, so that it is never seen without its index."""
    if index is not None:
        record_index(storage, index)
    elif storage.get(layout.INDEX) is not None:
        raise TableError(
            f"{storage.uri} has the record of an index ({layout.INDEX}), and no table",
            hint="a writer began to make a table with it: create the table with that index, or delete the file",
        )


def _make_timeline_folder(storage: Storage, write_id: str) -> None:
    """On a disk Java Hudi neither reads nor writes a table whose timeline has no folder; elsewhere there are no folders."""
    if storage.uri.startswith("file:"):
        passing = layout.timeline(f"{write_id}.making")
        storage.put(passing, b"")
        storage.delete([passing])
