"""Creates a table, or checks that the one that exists is the one that was meant."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pyarrow as pa

from lakelock.clock import Runtime
from lakelock.errors import InputError, SchemaError, TableError
from lakelock.occ.recorded_index import record_index
from lakelock.storage import Created, Storage, create, probe
from lakelock.table import layout
from lakelock.table.index import TableIndex
from lakelock.table.partitions import require_partition_type
from lakelock.table.properties import TableProperties
from lakelock.table.record_keys import key_text
from lakelock.table.rows import Fields, why_not_fits
from lakelock.table.schema import TableSchema

_MOST_LOOKED_AT = 1_000
"""How many names of a folder are looked at that say nothing, such as those of a checkpoint in `_checkpoint`."""


def table_exists(storage: Storage) -> bool:
    """Whether there is a table."""
    # A Hudi writer that replaces the properties takes them away for a moment, and leaves the backup.
    return any(storage.get(key) is not None for key in (layout.PROPERTIES, layout.PROPERTIES_BACKUP))


def create_table(storage: Storage, properties: TableProperties, runtime: Runtime, *, if_not_exists: bool = False) -> bool:
    """Make an empty table, after checking that the storage honours conditional writes; whether it was made.

    A table that is there already stays as it is: `TableError`, or False with `if_not_exists`. `InputError` where files are
    that belong to no table of Hudi.
    """
    write_id = runtime.uuid()
    made = not table_exists(storage)
    others = _first_of_others(storage) if made else None
    if others is not None:
        made = not table_exists(storage)  # they may be those of a table that somebody else has just made
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
    """`TableError` unless the table at `uri` is what somebody meant who gave `given` and `columns` to create it.

    The table may have more columns, and types that hold those of `columns`. Its name counts only where `name` says so.
    """
    differences = [*_differences(given, found, name=name), *_misfits(columns, schema)]
    if differences:
        raise TableError(
            f"{uri} is a table already, and not the one that was to be made:\n  " + "\n  ".join(differences),
            hint="open it as it is with LakeTable.for_path(spark, path), or choose another path; "
            "table.add_columns or a write with merge_schema=True adds a column",
        )


def _differences(given: TableProperties, found: TableProperties, *, name: bool) -> Iterator[str]:
    pairs: list[tuple[str, object, object]] = [
        ("table_version", given.version, found.version),
        ("key", given.record_keys, found.record_keys),
        ("partition_by", given.partition_by, found.partition_by),
        ("order_by", given.ordering_field, found.ordering_field),
        ("index", _text(given.index), _text(found.index)),
    ]
    if found.partition_fields:
        pairs.append(("hive_style", given.hive_style, found.hive_style))
    if name:
        pairs.append(("name", given.name, found.name))
    for what, wanted, has in pairs:
        if wanted != has:
            yield f"{what}: {_shown(wanted)} was given, the table has {_shown(has)}"


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
    return next((each.key for each in islice(listed, _MOST_LOOKED_AT) if _is_data(each.key)), None)


def _is_data(key: str) -> bool:
    """Names that begin so are hidden to Spark and to Hudi, but Delta's log is there."""
    hidden = any(part.startswith(("_", ".")) for part in key.split("/"))
    return key.startswith("_delta_log/") or not (hidden or key.endswith(("/", "_$folder$")))


def _shown(value: object) -> str:
    return ", ".join(value) or "none" if isinstance(value, tuple) else "none" if value is None else str(value)


def _text(index: TableIndex | None) -> str | None:
    return None if index is None else str(index)


def _record_index(storage: Storage, index: TableIndex | None) -> None:
    """Before the table is there, so that nobody ever sees it without its index."""
    if index is not None:
        record_index(storage, index)
    elif storage.get(layout.INDEX) is not None:
        raise TableError(
            f"{storage.uri} has the record of an index ({layout.INDEX}), and no table",
            hint="somebody began to make a table with it: create the table with that index, or delete the file",
        )


def _make_timeline_folder(storage: Storage, write_id: str) -> None:
    """On a disk Java Hudi neither reads nor writes a table whose timeline has no folder; elsewhere there are no folders."""
    if storage.uri.startswith("file:"):
        passing = layout.timeline(f"{write_id}.making")
        storage.put(passing, b"")
        storage.delete([passing])
