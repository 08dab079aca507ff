"""Direct markers: one empty object per data file, placed before the file is written, so that no file is ever anonymous.

Java Hudi's early conflict detection and its rollback read them. Markers of Java's timeline server are read, never written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lakelock.markers.names import BATCH_TYPE_FILE, BATCHED, DIRECT, Marker, MarkerKind, is_batch_file, parse_all, parse_batch
from lakelock.storage import Listed, Storage
from lakelock.table import layout
from lakelock.table.layout import FileGroupId


class NamedFile(Protocol):
    """A data file, as far as a marker needs to know it: its name."""

    @property
    def partition(self) -> str: ...

    @property
    def name(self) -> str: ...


@dataclass(frozen=True)
class MarkerSet:
    """Every marker of one instant.

    `objects` are all the objects that hold them. `unreadable` are entries that are not markers: where there are any, the
    set may be incomplete.
    """

    instant: str
    markers: frozenset[Marker]
    objects: tuple[Listed, ...]
    unreadable: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all objects that hold the markers, for deletion."""
        return tuple(item.key for item in self.objects)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that the instant announced files in."""
        return tuple(sorted({marker.partition for marker in self.markers}))

    @property
    def rewritten_groups(self) -> tuple[FileGroupId, ...]:
        """The file groups that existed before and that the instant was about to rewrite."""
        return tuple(sorted({marker.group for marker in self.markers if marker.kind is MarkerKind.MERGE}))


def place(storage: Storage, instant: str, data_file: NamedFile, kind: MarkerKind) -> None:
    """Announce a data file. Idempotent, one request: names carry the attempt, so a marker that exists is this attempt's own."""
    storage.put_if_absent(layout.marker(instant, data_file.partition, data_file.name, kind.value), b"", durable=False)


def is_announced(storage: Storage, instant: str, data_file: NamedFile, kind: MarkerKind) -> bool:
    """Whether the marker of a data file is there; one request."""
    return storage.get(layout.marker(instant, data_file.partition, data_file.name, kind.value)) is not None


def listed(storage: Storage, instant: str) -> MarkerSet:
    """All markers of an instant: one listing, and a read for each batch file when Java's timeline server made them."""
    folder = layout.marker_folder(instant)
    objects = tuple(storage.list(folder))
    names = {item.key[len(folder) + 1 :]: item.key for item in objects}
    type_key = names.pop(BATCH_TYPE_FILE, None)
    if type_key is None:
        markers, unreadable = parse_all(names, folder)
        return MarkerSet(instant, frozenset(markers), objects, tuple(unreadable))
    stored = storage.get(type_key)
    style = stored.data.decode("utf-8", errors="replace").strip() if stored else DIRECT
    batches = [name for name in names if is_batch_file(name)]
    markers, unreadable = parse_all([name for name in names if not is_batch_file(name)], folder)
    if style not in (BATCHED, DIRECT):
        unreadable.append(f"{BATCH_TYPE_FILE}: {style}")
    for name in batches:
        batch = storage.get(names[name])
        found, torn = parse_batch(batch.data, names[name]) if batch else ([], [])
        markers += found
        unreadable += torn
    return MarkerSet(instant, frozenset(markers), objects, tuple(unreadable))
