"""Tables of layout 1 (table version 6, as Hudi 0.14 and 0.15 write it), shown as if they had layout 2. Read only.

There the timeline is in `.hoodie` itself, a completed instant has no completion time, and commits are JSON. What is shown: the
same instants in `.hoodie/timeline`, completed when they were requested, with their metadata in Avro, and their archive in
`.hoodie/timeline/history`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import IO, NoReturn

from lakelock.errors import TableError
from lakelock.storage import Listed, Storage, Stored
from lakelock.table import layout
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.eligibility import OLD_LAYOUT
from lakelock.table.instants import WRITES, Action, parse_file_name
from lakelock.table.layout_one.archive import OldArchive
from lakelock.table.properties import TableProperties

_OLD_DONE = re.compile(r"([0-9]{17}|[0-9]{14})\.([a-z]+)", re.ASCII).fullmatch
_ARCHIVE_FOLDER = "archived"
_ARCHIVED = f"{layout.HISTORY}/archived"
"""Not a file of a history: its name alone says that there may be older instants than those of the timeline. To say which takes
reading the archive, so a listing of the timeline does not."""


def shown_as_layout_two(storage: Storage, properties: TableProperties) -> Storage:
    """The storage of a table, through which readers see layout 2 whatever the table's own is."""
    if properties.layout != OLD_LAYOUT:
        return storage
    return LayoutOne(storage, properties.text("hoodie.archivelog.folder", _ARCHIVE_FOLDER))


class LayoutOne:
    """A storage whose table has layout 1, as readers of layout 2 expect it; implements `lakelock.storage.Storage`."""

    def __init__(self, storage: Storage, archive_folder: str = _ARCHIVE_FOLDER) -> None:
        self._storage = storage
        self._archive = OldArchive(storage, archive_folder)

    @property
    def uri(self) -> str:
        return self._storage.uri

    def get(self, key: str) -> Stored | None:
        folder, _, name = key.rpartition("/")
        if folder != layout.TIMELINE:
            return self._storage.get(key)
        instant = parse_file_name(name)
        if instant is None or not instant.is_completed:
            return self._storage.get(f"{layout.HOODIE}/{name}")
        old = f"{layout.HOODIE}/{instant.requested}.{instant.action}"
        stored = self._storage.get(old)
        if stored is None or instant.action not in WRITES:
            return stored
        metadata = CommitMetadata.from_json(stored.data, old, replaces=instant.action == Action.REPLACE_COMMIT)
        return replace(stored, data=metadata.to_bytes())

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[Listed]:
        if prefix == layout.TIMELINE:
            yield from (item for item in self._timeline() if item.key > start_after)
        elif prefix == layout.HISTORY:
            yield from (item for item in self._archive.listed() if item.key > start_after)
        elif not prefix.startswith(layout.TIMELINE):
            yield from self._storage.list(prefix, start_after=start_after)

    def _timeline(self) -> Iterable[Listed]:
        shown = [Listed(_ARCHIVED, 0, 0)]
        for item in self._storage.list(layout.HOODIE):
            folder, _, name = item.key.rpartition("/")
            if folder == layout.HOODIE:
                done = _OLD_DONE(name)
                # A pending commit is `<instant>.inflight` in both layouts.
                new = f"{done[1]}_{done[1]}.{done[2]}" if done is not None and done[2] != "inflight" else name
                shown.append(replace(item, key=f"{layout.TIMELINE}/{new}"))
        return sorted(shown, key=lambda item: item.key)

    def open_input(self, key: str, *, size_bytes: int = 0) -> IO[bytes]:
        archived = self._archive.opened(key) if key.startswith(layout.HISTORY) else None
        return archived or self._storage.open_input(key, size_bytes=size_bytes)

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True) -> str | None:
        self._refuse(key)

    def put_if_match(self, key: str, data: bytes, etag: str) -> str | None:
        self._refuse(key)

    def put(self, key: str, data: bytes) -> None:
        self._refuse(key)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._refuse(key)

    def delete_folder(self, folder: str) -> None:
        self._refuse(folder)

    def open_output(self, key: str) -> IO[bytes]:
        self._refuse(key)

    def _refuse(self, key: str) -> NoReturn:
        hint = "let a Hudi 1.1 or 1.2 writer upgrade the table first"
        raise TableError(f"{self.uri} has an old layout, in which lakelock writes nothing ({key})", hint=hint)
