"""The one interface to storage, and the rule for replies that get lost.

Keys are relative to the storage's root, use `/`, and never contain `..` or a leading slash.
Conditional writes are the only synchronisation that the protocol rests on, so every implementation must refuse a second
create and a write over a changed object; `probe` finds out at start whether it really does.

Reply rule: a call that may or may not have happened raises `StorageUnavailable`; callers that must know use `create`,
which reads back and says OURS, THEIRS or UNKNOWN, and never takes UNKNOWN for either.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import IO, Protocol, runtime_checkable

from lakelock.errors import StorageError, StorageUnavailable, StorageUnsafe


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
        Hadoop's checksum twins or somebody's temporary files and are left out, but for the archive of old Hudi tables.
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
