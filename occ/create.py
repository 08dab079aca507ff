"""Making a new table."""

from __future__ import annotations

from lakelock.clock import Runtime
from lakelock.errors import TableError
from lakelock.storage import Created, Storage, create, probe
from lakelock.table import layout
from lakelock.table.properties import TableProperties


def create_table(storage: Storage, properties: TableProperties, runtime: Runtime) -> None:
    """Make an empty table, after checking that the storage honours conditional writes. `TableError` if there is one."""
    write_id = runtime.uuid()
    if storage.get(layout.PROPERTIES) is not None:
        raise _exists(storage)
    probe(storage, layout.probe(write_id), write_id)
    _make_timeline_folder(storage, write_id)
    made = create(storage, layout.PROPERTIES, properties.serialize(runtime.now_ms()))
    if made is Created.THEIRS:
        raise _exists(storage)


def _make_timeline_folder(storage: Storage, write_id: str) -> None:
    """On a disk Java Hudi neither reads nor writes a table whose timeline has no folder; elsewhere there are no folders."""
    if storage.uri.startswith("file:"):
        passing = layout.timeline(f"{write_id}.making")
        storage.put(passing, b"")
        storage.delete([passing])


def _exists(storage: Storage) -> TableError:
    return TableError(f"{storage.uri} is a table already", hint="open it: LakeTable.for_path(spark, path)")
