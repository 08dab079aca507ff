"""Copying the file of an attempt that was rejected into the attempt after it, instead of making it again (ADR 19)."""

from __future__ import annotations

from dataclasses import replace

from lakelock.clock import Runtime, SystemRuntime
from lakelock.engine.file_tasks import announced_file
from lakelock.errors import StorageError
from lakelock.markers.announcing import announce_partition
from lakelock.markers.task_token import TaskToken
from lakelock.occ.write_context import WriteContext
from lakelock.storage import Storage
from lakelock.table.base_files import Stamp
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.restamp import CannotRestamp
from lakelock.table.rewriting import ARROW, Kernels
from lakelock.table.snapshot import DataFile


def copy_file(
    context: WriteContext,
    earlier: WriteStat,
    task: TaskToken,
    *,
    storage: Storage | None = None,
    runtime: Runtime | None = None,
    kernels: Kernels = ARROW,
) -> WriteStat | None:
    """Copy a file of the `earlier` attempt, under this one's marker, name and instant; its file group stays.

    None if it has to be made again: it is gone, because somebody took its writer for dead, or is not one that can be copied.
    """
    storage, runtime = storage or context.location.open(holds_table=True), runtime or SystemRuntime()
    source = DataFile.parse(earlier.path or "", earlier.file_size_bytes or 0)
    if source is None:
        return None
    file = DataFile(source.partition, source.file_id, str(task), context.instant)
    old = Stamp(context.properties.name, source.instant, source.partition, source.name)
    try:
        if earlier.is_new_group:
            announce_partition(storage, context.instant, file.partition)
        with announced_file(context, file, storage, runtime, base=None if earlier.is_new_group else source) as output:
            with storage.open_input(source.key, size_bytes=source.size_bytes) as opened:
                kernels.restamp(opened, output, old, context.stamp(file))
            size_bytes = output.tell()
    except (CannotRestamp, StorageError):
        return None
    return replace(earlier, path=file.key, total_write_bytes=size_bytes, file_size_bytes=size_bytes)
