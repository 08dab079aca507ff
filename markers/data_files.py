"""Markers of data files: a file is announced before it is written, and the commit counts the files that tasks report.

A marker is one empty object, `<partition>/<data file>.marker.<CREATE|MERGE|APPEND>`, put before the file is written, so that
every file can be traced to its instant. Before a new file its folder also gets `.hoodie_partition_metadata`. Only the last
`.marker.` in the last path segment counts, so any partition path and any data file name survives the round trip. Java Hudi's
early conflict detection and its rollback read markers. The files in which Java's timeline server batches them are read, never
written.

Only files that a successful task reported count. The others come from failed or speculative attempts. Two base files of one
file group and instant would make Hudi readers fail or pick one, so before every commit markers and reports are compared, and
files that do not count are deleted. `TaskToken` is Hudi's write token, the middle part of a base file's name: which attempt of
which task wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from lakelock.errors import CorruptTableError, WriteFailed
from lakelock.storage import Listed, Storage
from lakelock.storage.base import is_text
from lakelock.table import layout
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import LogFile
from lakelock.table.partitions import partition_metadata
from lakelock.table.snapshot import DataFile
from lakelock.texts import StrEnum

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
        return layout.in_partition(self.partition, self.file_name)

    @property
    def group(self) -> FileGroupId:
        """The file group that the announced file is a slice of, or a log file on one."""
        log = LogFile.parse(self.data_key)
        return FileGroupId(self.partition, self.file_name.split("_", 1)[0]) if log is None else log.group

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


class Written(Protocol):
    """What a task reported about one base file: at least its path, relative to the table."""

    @property
    def path(self) -> str | None: ...


def markers_of(markers: MarkerSet, files: Iterable[str]) -> tuple[str, ...]:
    """Keys of the markers that announce these files, as far as each has an object of its own."""
    wanted, prefix = set(files), layout.marker_folder(markers.instant) + "/"
    found = {f"{prefix}{marker}" for marker in markers.markers if marker.data_key in wanted}
    return tuple(sorted(found & set(markers.keys)))


def files_to_delete(markers: MarkerSet, stats: Iterable[Written]) -> tuple[str, ...]:
    """Keys of the announced files that no task reported. They may not exist; deleting them must precede the commit.

    Raises `WriteFailed` when the reports cannot be right: a file that was never announced, or two for one file group; and
    `CorruptTableError` when there are entries among the markers that are not markers.
    """
    if markers.unreadable:
        raise CorruptTableError(
            f"{layout.marker_folder(markers.instant)} holds entries that are not markers, such as {markers.unreadable[0]!r}",
            hint=f"something else writes into {layout.TEMP}; find and stop it, then run the operation again",
        )
    announced = {marker.data_key: marker.group for marker in markers.markers}
    reported: dict[FileGroupId, str] = {}
    for stat in stats:
        path = stat.path or ""
        group = announced.get(path)
        if group is None:
            raise WriteFailed(
                f"{markers.instant}: {path!r} was reported as written, but has no marker",
                hint=f"something removes files from {layout.TEMP} while writers run; find and stop it, then run again",
                instant=markers.instant,
            )
        if group in reported:
            raise WriteFailed(
                f"{markers.instant}: two files were reported for file group {group}: {reported[group]} and {path}",
                hint="this is a bug in the writer; please report it. The transaction was not committed",
                instant=markers.instant,
            )
        reported[group] = path
    return tuple(sorted(announced.keys() - set(reported.values())))


class TaskToken(NamedTuple):
    """One attempt of one task; two attempts never share a token, so their files have different names."""

    partition: int
    stage: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.stage}-{self.attempt}"


class Announced(NamedTuple):
    """The first file of a new file group, and since when it is announced, by the monotonic clock; None: not yet."""

    file: DataFile
    since_s: float | None


def first_file(group: FileGroupId, instant: str) -> DataFile:
    """The first file of a new file group that a transaction announces at its beginning."""
    return DataFile(group.partition, group.file_id, str(TaskToken(0, 0, 0)), instant)


def announcements(
    storage: Storage, file: DataFile | LogFile, kind: MarkerKind, *, with_partition: bool
) -> list[Callable[[], object]]:
    """The requests that announce a file. `with_partition` also makes its folder a partition, if it is none."""
    marker = partial(place, storage, file.instant, file, kind)
    return [marker, partial(announce_partition, storage, file.instant, file.partition)] if with_partition else [marker]


def announce_partition(storage: Storage, instant: str, partition: str) -> None:
    """Make a folder a partition, as Hudi's readers want it; one request, whether or not it is one."""
    storage.put_if_absent(layout.partition_metadata(partition), partition_metadata(instant, partition))
