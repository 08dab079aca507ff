"""The grammar of markers: `<partition>/<data file>.marker.<CREATE|MERGE|APPEND>`, and the files that Java batches them in.

Only the last `.marker.` of the last segment counts, so any partition path and any data file name survives the round trip.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lakelock.errors import CorruptTableError
from lakelock.storage.base import is_text
from lakelock.str_enum import StrEnum
from lakelock.table import layout
from lakelock.table.layout import FileGroupId

BATCH_TYPE_FILE = "MARKERS.type"
"""Present when Java's timeline server wrote the markers of an instant, in batches, into `MARKERS0`, `MARKERS1`, ..."""

BATCHED = "TIMELINE_SERVER_BASED"
DIRECT = "DIRECT"

_BATCH_FILE = re.compile(r"MARKERS[0-9]+", re.ASCII).fullmatch
_INFIX = ".marker."


class MarkerKind(StrEnum):
    """What a writer was about to do: a new file group, a new slice of one, or (before version 8) an append to a log."""

    CREATE = "CREATE"
    MERGE = "MERGE"
    APPEND = "APPEND"


@dataclass(frozen=True, order=True)
class Marker:
    """The announcement of one data file."""

    partition: str
    file_name: str
    kind: MarkerKind

    @property
    def data_key(self) -> str:
        """The key of the announced data file."""
        return layout.in_partition(self.partition, self.file_name)

    @property
    def group(self) -> FileGroupId:
        """The file group that the announced file is a slice of."""
        return FileGroupId(self.partition, self.file_name.split("_", 1)[0])

    def key(self, instant: str) -> str:
        """The key of the marker itself, as a direct marker."""
        return layout.marker(instant, self.partition, self.file_name, self.kind.value)

    def __str__(self) -> str:
        return f"{self.data_key}{_INFIX}{self.kind}"


def parse_marker(text: str, source: str) -> Marker:
    """The marker that `str` wrote as `text`; `CorruptTableError`, naming `source`, for anything else."""
    path, infix, kind = text.rpartition(_INFIX)
    partition, name = layout.split_path(path)
    if not infix or kind not in MarkerKind.__members__ or path.startswith("/") or not is_text(path):
        raise CorruptTableError(
            f"{source}: {text!r} is not a marker", hint="lakelock markers ls shows what it belongs to", file=source
        )
    return Marker(layout.checked_partition(partition, source), layout.checked_file_name(name, source), MarkerKind(kind))


def is_batch_file(name: str) -> bool:
    """Whether a file in an instant's marker folder is a batch of Java's timeline server."""
    return _BATCH_FILE(name) is not None


def parse_all(texts: Iterable[str], source: str) -> tuple[list[Marker], list[str]]:
    """The markers among `texts`, and the texts that are not markers."""
    markers, unreadable = [], []
    for text in texts:
        try:
            markers.append(parse_marker(text, source))
        except CorruptTableError:
            unreadable.append(text)
    return markers, unreadable


def parse_batch(data: bytes, source: str) -> tuple[list[Marker], list[str]]:
    """The markers in one `MARKERS<n>` file, and the lines that are not markers: Java rewrites it whole, so it can be torn."""
    lines = data.decode("utf-8", errors="replace").split("\n")
    return parse_all([line for line in lines if line], source)
