"""A data file is announced before it is written: by a marker, and a new one by what makes its folder a partition, too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from lakelock.markers.direct import place
from lakelock.markers.names import MarkerKind
from lakelock.markers.task_token import TaskToken
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.table.layout import FileGroupId
from lakelock.table.partitions import partition_metadata
from lakelock.table.snapshot import DataFile


class Announced(NamedTuple):
    """The first file of a new file group, and since when it is announced, by the monotonic clock; None: not yet."""

    file: DataFile
    since_s: float | None


def first_file(group: FileGroupId, instant: str) -> DataFile:
    """The first file of a new file group that a transaction announces at its beginning."""
    return DataFile(group.partition, group.file_id, str(TaskToken(0, 0, 0)), instant)


def announcements(storage: Storage, file: DataFile, kind: MarkerKind, *, with_partition: bool) -> list[Callable[[], object]]:
    """The requests that announce a file. `with_partition` also makes its folder a partition, if it is none."""
    marker = partial(place, storage, file.instant, file, kind)
    return [marker, partial(announce_partition, storage, file.instant, file.partition)] if with_partition else [marker]


def announce_partition(storage: Storage, instant: str, partition: str) -> None:
    """Make a folder a partition, as Hudi's readers want it; one request, whether or not it is one."""
    storage.put_if_absent(layout.partition_metadata(partition), partition_metadata(instant, partition))
