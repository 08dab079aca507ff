"""Which index a table's writers use: recorded in the table, because Java keeps it in the options of its writers only.

A table that lakelock creates with an index has the record from its beginning. Another one gets it from the first writer
that is told by `write.index`; of buckets once its files have shown that this is true.
"""

from __future__ import annotations

from lakelock.errors import StorageError, TableError
from lakelock.occ.open_table import OpenTable
from lakelock.storage import Created, Storage, create
from lakelock.table import layout
from lakelock.table.base_files import BaseFile
from lakelock.table.eligibility import check_files, check_writable
from lakelock.table.index import BucketIndex, TableIndex, bucket_of, index_from_bytes, parsed_index
from lakelock.table.key_search import buckets_of_keys
from lakelock.table.properties import TableProperties
from lakelock.table.record_keys import require_key
from lakelock.table.snapshot import DataFile, read_snapshot

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
    """Bring the setting `write.index` and the table together: equal, or recorded now; `TableError` if they differ.

    Also if Java has given the table buckets of another kind since. No request where there is neither setting nor record.
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
            f"{storage.uri} has the index {found or 'that somebody is recording'}, and {wanted} was given",
            hint=f"use {found}, or leave it out: the table knows its index" if found else "run again",
        )


def _refuse_other_layouts(storage: Storage) -> None:
    """Partition-level buckets and consistent hashing keep their state in a folder of Hudi's."""
    first = next(iter(storage.list(layout.HUDI_BUCKETS)), None)
    if first is not None:
        raise TableError(
            f"{storage.uri} has numbers of buckets by partition, or consistent hashing ({first.key}), which lakelock does not "
            "write: only hoodie.index.bucket.engine=SIMPLE without hoodie.bucket.index.partition.expressions",
            hint="it can be read",
        )
