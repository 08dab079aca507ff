"""Single files on a POSIX file system: whole reads, atomic creates, durable folders, and errors that name the next step."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from io import BufferedWriter, FileIO
from operator import itemgetter
from typing import TYPE_CHECKING, NoReturn

from lakelock.errors import StorageError, StorageUnavailable
from lakelock.storage.base import Listed, Stored
from lakelock.storage.keys import METADATA_FOLDER, is_past, is_temporary

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

_REFUSALS = {
    errno.ENOSPC: ("the disk is full", "free some space, then run the operation again"),
    errno.EDQUOT: ("the disk quota is used up", "free some space or raise the quota, then run the operation again"),
    errno.EROFS: ("the file system is read-only", "mount it writable, or use another path"),
    errno.EACCES: ("permission denied", "give this user read and write access to the table's folder"),
    errno.EPERM: ("operation not permitted", "give this user access; the file system must also support hard links"),
    errno.ENOTDIR: ("a file is in the way where a folder should be", "check the path, and move that file away"),
    errno.EISDIR: ("a folder is in the way where a file should be", "check the path, and move that folder away"),
    errno.ELOOP: ("a symbolic link is in the way", "put the file itself there; lakelock follows no links inside a table"),
    errno.ENAMETOOLONG: ("the name is too long", "use shorter partition values or a shorter table path"),
    errno.EMFILE: ("too many open files in this process", "raise the limit (ulimit -n)"),
    errno.EFBIG: ("the file is too large for the file system", "write smaller files"),
    errno.ENOENT: ("no such file", "check the path; another process may have removed it"),
}


def refuse(error: OSError, path: str) -> NoReturn:
    """Raise `error` as the `StorageError` that says what to do; a doubtful outcome becomes `StorageUnavailable`."""
    refusal = _REFUSALS.get(error.errno or 0)
    if refusal is not None:
        raise StorageError(f"{path}: {refusal[0]}", hint=refusal[1], path=path, errno=error.errno) from error
    doubt(error, path)


def doubt(error: OSError, path: str) -> NoReturn:
    """Raise `error`, after which the call may or may not have happened, as `StorageUnavailable`."""
    raise StorageUnavailable(f"{path}: {error.strerror or error}", hint="check the disk or mount, then retry") from error


def without_links(path: str, flags: int) -> int:
    """Open a file that is not a symbolic link: one planted in a table must not lead out of it."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def read_stored(path: str) -> Stored | None:
    """The whole file, or None when there is none."""
    try:
        with open(path, "rb", buffering=0, opener=without_links) as file:
            status = os.fstat(file.fileno())
            data = file.readall()
    except (FileNotFoundError, IsADirectoryError):
        return None
    return Stored(data, etag_of(status, data), status.st_mtime_ns // 1_000_000)


def etag_of(status: os.stat_result, data: bytes) -> str:
    """A version that changes with every write: time stamps alone are too coarse, and inodes are reused."""
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{blake2b(data, digest_size=8).hexdigest()}"


def create_empty(path: str) -> str | None:
    """Create an empty file, atomic because there is nothing to write; None when the name is taken."""
    try:
        file = os.open(path, _CREATE, 0o666)
    except FileExistsError:
        return None
    try:
        return etag_of(os.fstat(file), b"")
    finally:
        os.close(file)


def write_temporary(path: str, data: bytes, *, durable: bool) -> tuple[str, str]:
    """Write `data` next to `path`; the temporary file, and the version it will have under its final name."""
    temporary = os.path.join(os.path.dirname(path), f".{os.urandom(8).hex()}.tmp")
    file = os.open(temporary, _CREATE, 0o666)
    try:
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(file, left) :]
            if durable:
                os.fsync(file)
            return temporary, etag_of(os.fstat(file), data)
        finally:
            os.close(file)
    except OSError:
        discard(temporary)
        raise


def create_with(path: str, data: bytes, *, durable: bool) -> str | None:
    """Create a file that is never seen half-written; its version, or None when the name is taken."""
    if os.path.lexists(path):
        return None
    temporary, version = write_temporary(path, data, durable=durable)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return None
    finally:
        discard(temporary)
    if durable:
        try:
            sync_folder(os.path.dirname(path))
        except OSError as error:
            doubt(error, path)
    return version


def discard(path: str) -> None:
    """Remove a file that nobody needs, if possible."""
    with suppress(OSError):
        os.unlink(path)


def drop_checksum_twin(path: str) -> None:
    """Remove the checksum that Hadoop keeps beside a file, which would make it reject the new content."""
    folder, name = os.path.split(path)
    discard(os.path.join(folder, f".{name}.crc"))


def sync_folder(folder: str) -> None:
    """Make the names in `folder` survive a power loss."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(file)


def make_folder(folder: str, *, durable: bool, below: str = "") -> None:
    """Make `folder` and the missing ones above it; `FileNotFoundError` if that includes `below`, which nobody makes."""
    missing = []
    while not os.path.isdir(folder):
        if folder == below:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
        missing.append(folder)
        above = os.path.dirname(folder)
        if above == folder or os.path.lexists(folder):
            break
        folder = above
    for new in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(new)
        if durable:
            sync_folder(os.path.dirname(new))


def prune_empty(folder: str, keep: str) -> None:
    """Remove `folder` and those above it while they are empty; `keep`, its children and their children stay."""
    while folder.startswith(keep + "/") and folder.count("/") - keep.count("/") > 2:
        try:
            os.rmdir(folder)
        except OSError:
            return
        folder = os.path.dirname(folder)


def walk(path: str, folder: str, prefix: str, start_after: str) -> Iterator[Listed]:
    """Files below `path`, whose key is `folder` (with its slash), in key order; links are left out."""
    for name, entry in _entries(path):
        key = folder + name
        if name[-1] == "/":
            if not is_past(key, start_after) and (prefix or key != f"{METADATA_FOLDER}/"):
                yield from walk(entry.path, key, prefix, start_after)
        elif key > start_after and not is_temporary(name):
            try:
                status = entry.stat()
            except OSError:
                continue
            yield Listed(key, status.st_size, status.st_mtime_ns // 1_000_000)


def _entries(path: str) -> list[tuple[str, os.DirEntry[str]]]:
    """What is in one folder, in the order of keys: folders count with their trailing slash."""
    entries = []
    try:
        with os.scandir(path) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    entries.append((entry.name + "/", entry))
                elif not entry.is_symlink():
                    entries.append((entry.name, entry))
    except FileNotFoundError:
        return []
    except OSError as error:
        refuse(error, path)
    return sorted(entries, key=_name)


_name = itemgetter(0)


class DurableFile(BufferedWriter):
    """A data file that is on disk, under its name, once `close` has returned."""

    def __init__(self, path: str) -> None:
        super().__init__(FileIO(path, "w", opener=without_links), 1 << 16)
        self._path = path

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            refuse(error, self._path)

    def close(self) -> None:
        if self.closed:
            return
        try:
            try:
                self.flush()
                os.fsync(self.fileno())
            finally:
                super().close()
            sync_folder(os.path.dirname(self._path))
        except OSError as error:
            refuse(error, self._path)
