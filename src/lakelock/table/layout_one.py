"""Tables of layout 1 (table version 6, as Hudi 0.14 and 0.15 write it), shown as if they had layout 2. Read only.

In layout 1 the timeline is in `.hoodie` itself, a completed instant has no completion time, and commits are JSON. Readers
see the same instants in `.hoodie/timeline`, completed when they were requested, with their metadata in Avro, and their
archive in `.hoodie/timeline/history`.

The archive is `.hoodie/<folder>/.commits_.archive.<n>_<write token>`: log files with blocks of Avro rows
(`HoodieArchivedMetaEntry`), one for each state of each instant. With `hoodie.archive.merge.enable` Java joins old files
in a new one and removes them, so numbers have gaps. Readers see one file of layout 2 for each of these files, with its commits.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import IO, Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from lakelock.errors import CorruptTableError, TableError
from lakelock.storage import Listed, Storage, Stored
from lakelock.storage.base import OLD_ARCHIVE
from lakelock.table import layout
from lakelock.table.archive import LOOKS
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.eligibility import OLD_LAYOUT
from lakelock.table.instants import WRITES, Action, is_instant_time, parse_file_name
from lakelock.table.layout import checked_file_name
from lakelock.table.log_files import blocks_of, records_in, schema_of
from lakelock.table.properties import TableProperties

_SHOWN = pa.schema(
    [("instantTime", pa.string()), ("completionTime", pa.string()), ("action", pa.string()), ("metadata", pa.binary())]
)
_METADATA = {Action.REPLACE_COMMIT: "hoodieReplaceCommitMetadata"}
"""The field with what an action did, where it is not `hoodieCommitMetadata`."""


class OldArchive:
    """The archive of one table. What is shown is kept: a file is read again only if it has grown or was replaced."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = f"{layout.HOODIE}/{checked_file_name(folder, layout.PROPERTIES)}"
        self._known: dict[Listed, tuple[Listed, bytes] | None] = {}

    def listed(self) -> list[Listed]:
        """The files that are shown, in order of their names; one listing, and a read of each file that is new.

        `CorruptTableError` if files keep vanishing while they are read.
        """
        for _ in range(LOOKS):
            there = [item for item in self._storage.list(self._folder) if item.key.startswith(f"{self._folder}/{OLD_ARCHIVE}")]
            if self._read(there):
                return sorted((listed for listed, _ in self._files), key=lambda item: item.key)
        hint = "Java Hudi may be merging its archive; run the command again"
        raise CorruptTableError(f"files of {self._folder} vanish while they are read", hint=hint, file=self._folder)

    def _read(self, there: list[Listed]) -> bool:
        """Read the files that are not known yet; whether all of them were still there."""
        known: dict[Listed, tuple[Listed, bytes] | None] = {}
        for item in there:
            if item in self._known:
                known[item] = self._known[item]
                continue
            stored = self._storage.get(item.key)
            if stored is None:
                return False
            known[item] = _shown(item.key, stored)
        self._known = known
        return True

    def opened(self, key: str) -> io.BytesIO | None:
        """The content of a file that was listed, None for any other key."""
        return next((io.BytesIO(content) for listed, content in self._files if listed.key == key), None)

    @property
    def _files(self) -> list[tuple[Listed, bytes]]:
        return [found for found in self._known.values() if found is not None]


def _shown(key: str, stored: Stored) -> tuple[Listed, bytes] | None:
    """What is shown for a file, with its content; None if it has no commits."""
    rows = list(commits_in(stored.data, key))
    if not rows:
        return None
    times, sink = sorted(row["instantTime"] for row in rows), io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, _SHOWN), sink)
    name = f"{layout.HISTORY}/{times[0]}_{times[-1]}_{key.rpartition(OLD_ARCHIVE)[2]}.parquet"
    return Listed(name, sink.tell(), stored.modified_ms), sink.getvalue()


def commits_in(data: bytes, source: str) -> Iterator[dict[str, Any]]:
    """The completed commits in a file of layout 1, as rows of layout 2's archive: they completed when they were requested.

    `CorruptTableError` for a file that was torn or altered.
    """
    for block in blocks_of(io.BytesIO(data), len(data), source):
        for entry in records_in(block, schema_of(block)[1]):
            action, state = entry.get("actionType"), entry.get("actionState") or "COMPLETED"
            if not isinstance(action, str) or action not in WRITES or state != "COMPLETED":
                continue
            time, found = entry.get("commitTime"), entry.get(_METADATA.get(Action(action), "hoodieCommitMetadata"))
            if not isinstance(time, str) or not is_instant_time(time) or not isinstance(found, dict):
                raise CorruptTableError(f"{block.source} has a commit without its time or metadata", file=source)
            metadata = CommitMetadata.from_json(
                json.dumps(found, default=repr).encode(),
                f"{time}.{action} in {source}",
                replaces=action == Action.REPLACE_COMMIT,
            )
            yield {"instantTime": time, "completionTime": time, "action": action, "metadata": metadata.to_bytes()}


_OLD_DONE = re.compile(r"([0-9]{17}|[0-9]{14})\.([a-z]+)", re.ASCII).fullmatch
_ARCHIVE_FOLDER = "archived"
_ARCHIVED = f"{layout.HISTORY}/archived"
"""A name that each listing of the timeline has, and no file: it says that there may be instants older than the timeline. To
say which ones, the archive would have to be read."""


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

    @property
    def listing_seeks(self) -> bool:
        return False  # the timeline is put in order here

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
