"""The one interface to storage, its keys, and the rule for replies that get lost.

Keys are relative to the storage's root, use `/`, and never contain `..` or a leading slash. Which keys a listing shows
has one answer for every storage. Conditional writes are the only synchronisation that the protocol rests on, so every
implementation must refuse a second create and a write over a changed object; `probe` finds out at start whether it really
does.

Reply rule: a call that may or may not have happened raises `StorageUnavailable`; callers that must know use `create`,
which reads back and says OURS, THEIRS or UNKNOWN, and never takes UNKNOWN for either.

A remote file is a seekable Python file whose ranges are read on demand (`range_reader`).
"""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import IO, TYPE_CHECKING, Protocol, runtime_checkable

from lakelock.errors import StorageError, StorageUnavailable, StorageUnsafe, TableError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


@dataclass(frozen=True)
class Stored:
    """An object as read: its bytes, the version to match in `put_if_match`, and when storage says it was written."""

    data: bytes
    etag: str
    modified_ms: int


@dataclass(frozen=True)
class Listed:
    """One object in a listing; `key` is relative to the storage's root, `modified_ms` is the storage's clock."""

    key: str
    size_bytes: int
    modified_ms: int


@runtime_checkable
class Storage(Protocol):
    """Objects under one root. A missing object is None or left out.

    Calls raise kinds of `StorageError` only; and `TableError` where the table is known to be gone that a write belongs to.
    """

    @property
    def uri(self) -> str:
        """The canonical URI of the root, without a trailing slash."""
        ...

    @property
    def listing_seeks(self) -> bool:
        """Whether a listing that begins after a key costs only what follows it; where not, the folder is listed in any case."""
        ...

    def get(self, key: str) -> Stored | None:
        """The whole object, or None when it is not there."""
        ...

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True) -> str | None:
        """Create the object in one atomic step; the new etag, or None when it was already there.

        With `durable` the object survives a power loss once this has returned; markers and heartbeats need not.
        """
        ...

    def put_if_match(self, key: str, data: bytes, etag: str) -> str | None:
        """Replace the object if its version is still `etag`; the new etag, or None when it has changed or gone."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Create or replace the object, atomically for readers, without condition or durability (heartbeats)."""
        ...

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[Listed]:
        """Objects whose key starts with the folder `prefix` (`""`: everything), at any depth, in key order.

        `start_after` is a full key: only greater ones are listed. Names that start with a dot in the last segment are
        Hadoop's checksum twins or temporary files of other programs and are left out, but for Hudi's log files and the archive
        of its old tables.
        """
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove the objects, in batches where the service has them; a missing one is no error."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Remove everything in the folder, also names that a listing leaves out; one that is missing is no error."""
        ...

    def open_input(self, key: str, *, size_bytes: int = 0) -> IO[bytes]:
        """A seekable reader of a data file; raises `StorageError` when it is not there.

        A known size (0: not known) saves a request to an object store. A missing file is then
        found by the first read.
        """
        ...

    def open_output(self, key: str) -> IO[bytes]:
        """A writer of a data file; the object exists and is durable under its name once `close()` has returned.

        An exception in a `with` block may leave a partial file, which its marker announces.
        """
        ...


Changes = dict[str, "Listed | None"]
"""What is there now under each key that has changed; None where nothing is."""


@runtime_checkable
class Watching(Protocol):
    """What some storages can, too: tell what has changed in a folder, which is cheaper than listing it."""

    def changed(self, prefix: str, since: int) -> tuple[int, Changes | None]:
        """What has changed in the folder since a mark that this has given before, and the mark of now.

        None: that is not known, list the folder after this call. A mark of 0: this folder cannot be watched.
        """
        ...


def changed(storage: Storage, prefix: str, since: int = 0) -> tuple[int, Changes | None]:
    """As `Watching.changed`; of a storage that cannot tell nothing is known."""
    return storage.changed(prefix, since) if isinstance(storage, Watching) else (0, None)


class Folder:
    """A folder of a storage as one of its own: keys are relative to the folder."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage, self._folder = storage, f"{folder}/"

    @property
    def uri(self) -> str:
        return f"{self._storage.uri}/{self._folder[:-1]}"

    @property
    def listing_seeks(self) -> bool:
        return self._storage.listing_seeks

    def get(self, key: str) -> Stored | None:
        return self._storage.get(self._folder + key)

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True) -> str | None:
        return self._storage.put_if_absent(self._folder + key, data, durable=durable)

    def put_if_match(self, key: str, data: bytes, etag: str) -> str | None:
        return self._storage.put_if_match(self._folder + key, data, etag)

    def put(self, key: str, data: bytes) -> None:
        self._storage.put(self._folder + key, data)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[Listed]:
        after = self._folder + start_after if start_after else ""
        for item in self._storage.list((self._folder + prefix).rstrip("/"), start_after=after):
            yield replace(item, key=item.key[len(self._folder) :])

    def delete(self, keys: Iterable[str]) -> None:
        self._storage.delete([self._folder + key for key in keys])

    def delete_folder(self, folder: str) -> None:
        self._storage.delete_folder(self._folder + folder)

    def open_input(self, key: str, *, size_bytes: int = 0) -> IO[bytes]:
        return self._storage.open_input(self._folder + key, size_bytes=size_bytes)

    def open_output(self, key: str) -> IO[bytes]:
        return self._storage.open_output(self._folder + key)


def has_file(storage: Storage, key: str) -> bool:
    """Whether a data file is there; one request. Raises if storage gives no answer, or refuses one."""
    try:
        storage.open_input(key).close()
    except StorageError as error:
        if is_missing(error):
            return False
        raise
    return True


def is_missing(error: StorageError) -> bool:
    """Whether an error says that a data file is not there."""
    return error.details.get("missing") is True or error.details.get("errno") == errno.ENOENT


class Created(Enum):
    """Who made the object that is now under the key."""

    OURS = "ours"
    THEIRS = "theirs"
    UNKNOWN = "unknown"


def create(storage: Storage, key: str, data: bytes, *, durable: bool = True, read_back_attempts: int = 3) -> Created:
    """Create an object and say truthfully who created it, even when a reply got lost.

    `data` must contain something that only this attempt writes (a write id): an equal object counts as ours.
    UNKNOWN means that the create may still arrive: the caller must neither repeat it blindly nor clean up after it.
    """
    try:
        if storage.put_if_absent(key, data, durable=durable) is not None:
            return Created.OURS
    except StorageUnavailable:
        pass
    for _ in range(read_back_attempts):
        try:
            found = storage.get(key)
        except StorageUnavailable:
            continue
        if found is None:
            return Created.UNKNOWN
        return Created.OURS if found.data == data else Created.THEIRS
    return Created.UNKNOWN


def probe(storage: Storage, key: str, write_id: str) -> None:
    """Check that storage honours conditions, or raise `StorageUnsafe`; leaves nothing behind.

    `key` must be fresh (it should contain `write_id`). Several S3-compatible services silently ignore conditions; on
    those two writers would overwrite each other's decisions, so lakelock refuses them.
    """
    first, second = f"probe {write_id} 1".encode(), f"probe {write_id} 2".encode()
    try:
        etag = storage.put_if_absent(key, first)
        if etag is None:
            raise StorageUnsafe(f"{storage.uri}: the probe object {key} already exists", hint="run the command again")
        if storage.put_if_absent(key, second) is not None:
            raise StorageUnsafe(
                f"{storage.uri} accepted a second create of the same object: it ignores create-if-absent conditions",
                hint="use storage that honours If-None-Match (AWS S3, GCS, Azure, current MinIO) or a POSIX file system",
            )
        changed = storage.put_if_match(key, second, etag)
        if changed is None or storage.put_if_match(key, first, etag) is not None:
            raise StorageUnsafe(
                f"{storage.uri} does not compare versions on write: it ignores If-Match conditions",
                hint="use storage that honours If-Match (AWS S3, GCS, Azure, current MinIO) or a POSIX file system",
            )
    finally:
        storage.delete([key])


METADATA_FOLDER = ".hoodie"
"""The folder of a table's metadata; `lakelock.table.layout` knows what is in it."""
TABLE_MARKERS = (f"{METADATA_FOLDER}/hoodie.properties", f"{METADATA_FOLDER}/hoodie.properties.backup")
"""Where one of these is, there is a table."""
OLD_ARCHIVE = ".commits_.archive."
"""How the names of files in the archive of old tables begin; `lakelock.table.layout_one` reads them."""
_LOG_FILE = re.compile(r"\.[^_/.][^_/]*_[0-9]{14,23}\.log\.[0-9]+(?:_[^_/.]+)?(?:\.marker\.[A-Z]+)?", re.ASCII).fullmatch
"""Log files of merge-on-read tables, and the markers that announce them."""


def gone(uri: str) -> TableError:
    """The error of a table that was there when it was opened."""
    return TableError(
        f"the table {uri} is gone: there is no {TABLE_MARKERS[0]} any more, which was there when this opened it",
        hint="if it was moved, open it where it is now; if it was deleted on purpose, create it again",
    )


def checked(key: str) -> str:
    """Return `key`, or raise `StorageError` when it could name something outside the root or differ between storages."""
    segments = key.split("/")
    if "" in segments or "." in segments or ".." in segments or "\0" in key or not is_text(key):
        raise StorageError(
            f"{key!r} is not a valid storage key",
            hint="keys are relative, use single slashes and have no '.' or '..' segments; check partition values",
        )
    return key


def is_text(text: str) -> bool:
    """Whether it has an encoding: half of a surrogate pair, as in `"\\ud800"`, is no character."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def checked_prefix(prefix: str) -> str:
    """Return the folder `prefix` ("" is the root), or raise `StorageError`."""
    return checked(prefix) if prefix else prefix


def is_shown(key: str, prefix: str) -> bool:
    """Whether a listing of the folder `prefix` shows `key`, which lies in it.

    Temporary files never show, and the metadata folder only when it is asked for.
    """
    return not is_temporary(key.rpartition("/")[2]) and (bool(prefix) or not key.startswith(METADATA_FOLDER + "/"))


def is_temporary(name: str) -> bool:
    """Whether a file of this name is temporary or a checksum: its name starts with a dot.

    Log files and an old archive are neither, though their names do, too.
    """
    return name.startswith(".") and not name.startswith(OLD_ARCHIVE) and _LOG_FILE(name) is None


def is_past(folder: str, start_after: str) -> bool:
    """Whether every key in `folder` (with its trailing slash) is at or before `start_after`."""
    return folder < start_after and not start_after.startswith(folder)


READ_AHEAD = 1 << 18

Fetch = Callable[[int, int], "ReadableBuffer"]
"""The bytes from a position on, at most so many; raises `StorageError`."""


def range_reader(size_bytes: int, fetch: Fetch) -> IO[bytes]:
    """A file of this size behind a buffer of `READ_AHEAD` bytes, which larger reads bypass."""
    return io.BufferedReader(_Ranges(size_bytes, fetch), READ_AHEAD)


class _Ranges(io.RawIOBase):
    def __init__(self, size: int, fetch: Fetch) -> None:
        self._size, self._fetch, self._position = size, fetch, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"cannot seek to {start + offset}")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        target = memoryview(buffer).cast("B")
        length = min(len(target), self._size - self._position)
        if length <= 0:
            return 0
        data = memoryview(self._fetch(self._position, length)).cast("B")
        target[: len(data)] = data
        self._position += len(data)
        return len(data)
