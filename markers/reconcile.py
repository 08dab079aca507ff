"""Which written files count: those that a successful task reported. The others come from failed or speculative attempts.

Two base files of one file group and instant would make Hudi readers fail or pick one, so this runs before every commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from lakelock.errors import CorruptTableError, WriteFailed
from lakelock.markers.direct import MarkerSet
from lakelock.table import layout
from lakelock.table.layout import FileGroupId


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
    """Keys of the announced files that nobody reported. They may not exist; deleting them must precede the commit.

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
