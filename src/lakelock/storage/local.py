"""A folder on a POSIX file system as storage: atomic creates, compare-and-swap, durable when asked, errors with the next step.

A new object is written to a temporary file (`.<random>.tmp`) and linked under its name, so no reader ever sees half of
it. A replacement is compared and renamed under a `flock` on `.<name>.lock` next to the object; the kernel frees it when
its holder dies, and it goes with the object. Both kinds of file start with a dot, so no listing shows them and what a
crash leaves is harmless.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from io import BufferedWriter, FileIO
from operator import itemgetter
from typing import IO, TYPE_CHECKING, NoReturn, TypeVar

from lakelock.clock import ForkSafeMutex, Runtime, SystemRuntime
from lakelock.errors import StorageError, StorageUnavailable
from lakelock.storage.base import (
    METADATA_FOLDER,
    TABLE_MARKERS,
    Changes,
    Listed,
    Stored,
    checked,
    checked_prefix,
    gone,
    is_past,
    is_temporary,
)
from lakelock.storage.watched import WatchedFolder

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
    """Remove a needless file, if possible."""
    with suppress(OSError):
        os.unlink(path)


def drop_checksum_twin(path: str) -> None:
    """Remove the checksum that Hadoop keeps for a file, which would make it reject the new content."""
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
    """Make `folder` and the missing ones above it; `FileNotFoundError` if that includes `below`, which is never made."""
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
            except FileNotFoundError:  # removed since
                continue
            except OSError as error:
                refuse(error, entry.path)
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


T = TypeVar("T")

SWAP_WAIT_S = 10.0
"""How long a replacement waits for another process that is replacing the same object."""

_SWAP_POLL_S = 0.005
_KNOWN_FOLDERS = 4096
_FOLDER_ATTEMPTS = 10


class LocalStorage:
    """Objects under a local folder. Symbolic links inside it are neither listed, nor read, written or deleted through.

    A folder that is missing is made, but not for a table that is gone. Once this `holds_table`, which it learns from reading
    `hoodie.properties`, too, a write that needs a new folder raises `TableError` if that file is not there. Otherwise parts of
    a table that was moved would appear at its old place.
    """

    def __init__(self, root: str | os.PathLike[str], *, runtime: Runtime | None = None, holds_table: bool = False) -> None:
        self.root = os.path.realpath(root)
        self.holds_table = holds_table
        self._runtime = runtime or SystemRuntime()
        self._real_folders: set[str] = set()
        self._watched: dict[str, WatchedFolder] = {}
        self._watching = ForkSafeMutex()

    @property
    def uri(self) -> str:
        return f"file://{self.root}"

    @property
    def listing_seeks(self) -> bool:
        return False

    def get(self, key: str) -> Stored | None:
        path = self._unlinked(key)
        try:
            found = read_stored(path)
        except OSError as error:
            refuse(error, path)
        self.holds_table = self.holds_table or (found is not None and key in TABLE_MARKERS)
        return found

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True) -> str | None:
        path = self._unlinked(key)
        if not data and not durable:
            return self._in_folder(path, lambda: create_empty(path))
        return self._in_folder(path, lambda: create_with(path, data, durable=durable), durable=durable)

    def put_if_match(self, key: str, data: bytes, etag: str) -> str | None:
        path = self._unlinked(key)
        try:
            temporary, version = write_temporary(path, data, durable=True)
        except FileNotFoundError:
            return None
        except OSError as error:
            refuse(error, path)
        try:
            with self._swapping(path):
                found = read_stored(path)
                if found is None or found.etag != etag:
                    discard(temporary)
                    if found is None:
                        discard(_sidecar(path))
                    return None
                drop_checksum_twin(path)
                os.replace(temporary, path)
        except (OSError, StorageError) as error:
            discard(temporary)
            if isinstance(error, OSError):
                refuse(error, path)
            raise
        try:
            sync_folder(os.path.dirname(path))
        except OSError as error:
            doubt(error, path)
        return version

    def put(self, key: str, data: bytes) -> None:
        path = self._unlinked(key)

        def replace() -> None:
            temporary, _ = write_temporary(path, data, durable=False)
            drop_checksum_twin(path)
            try:
                os.replace(temporary, path)
            except OSError:
                discard(temporary)
                raise

        self._in_folder(path, replace)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[Listed]:
        folder = checked_prefix(prefix)
        path = f"{self.root}/{folder}" if folder else self.root
        if os.path.realpath(path) != path:
            return iter(())
        if folder in self._watched:
            with self._watching:
                watched = self._up_to_date(folder)
                if watched is not None:
                    return watched.listed(start_after)
        return walk(path, f"{folder}/" if folder else "", folder, start_after)

    def changed(self, prefix: str, since: int) -> tuple[int, Changes | None]:
        """See `lakelock.storage.base.Watching`. The folder is watched from the first call on, and listings of it get cheap."""
        folder = checked_prefix(prefix)
        path = f"{self.root}/{folder}"
        with self._watching:
            watched = self._up_to_date(folder)
            if watched is None:
                watched = WatchedFolder.begin(path, folder) if os.path.realpath(path) == path else None
                if watched is not None:
                    self._watched[folder] = watched
            return (0, None) if watched is None else (watched.mark, watched.since(since))

    def _up_to_date(self, folder: str) -> WatchedFolder | None:
        """What is known of a folder that is watched, as it is now."""
        watched = self._watched.get(folder)
        if watched is not None and not watched.take_in():
            watched = None
            del self._watched[folder]
        return watched

    def delete(self, keys: Iterable[str]) -> None:
        folders: set[str] = set()
        for key in keys:
            path = self._path(key)
            folder = os.path.dirname(path)
            if folder not in folders:
                self._refuse_links(folder)
                folders.add(folder)
            try:
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.unlink(path)
            except OSError as error:
                refuse(error, path)
            drop_checksum_twin(path)
            _drop_sidecar(_sidecar(path))
        for folder in sorted(folders, reverse=True):
            prune_empty(folder, self.root)

    def delete_folder(self, folder: str) -> None:
        path = self._path(checked_prefix(folder))
        self._refuse_links(path)
        try:
            with suppress(FileNotFoundError):
                shutil.rmtree(path)
        except OSError as error:
            refuse(error, path)

    def open_input(self, key: str, *, size_bytes: int = 0) -> IO[bytes]:
        path = self._unlinked(key)
        try:
            return open(path, "rb", opener=without_links)
        except OSError as error:
            refuse(error, path)

    def open_output(self, key: str) -> IO[bytes]:
        path = self._unlinked(key)
        return self._in_folder(path, lambda: DurableFile(path), durable=True)

    def _path(self, key: str) -> str:
        return f"{self.root}/{checked(key)}"

    def _unlinked(self, key: str) -> str:
        """The path of `key`, after a check, once per folder, that its folder is not a link."""
        path = self._path(key)
        folder = os.path.dirname(path)
        if folder not in self._real_folders:
            self._refuse_links(folder)
            if len(self._real_folders) >= _KNOWN_FOLDERS:
                self._real_folders.clear()
            self._real_folders.add(folder)
        return path

    def _refuse_links(self, folder: str) -> None:
        if os.path.realpath(folder) != folder:
            raise StorageError(
                f"{folder} is reached through a symbolic link inside the table {self.root}",
                hint="replace the link by a real folder; lakelock follows no links inside a table",
            )

    def _in_folder(self, path: str, action: Callable[[], T], *, durable: bool = False) -> T:
        """Run `action`, which writes `path`; make its folder first if there is none.

        Several attempts, because `delete` removes folders that it finds empty.
        """
        try:
            for _ in range(_FOLDER_ATTEMPTS):
                with suppress(FileNotFoundError):
                    return action()
                with suppress(FileNotFoundError):
                    make_folder(os.path.dirname(path), durable=durable, below=self._folder_of_table(path))
            return action()
        except OSError as error:
            refuse(error, path)

    def _folder_of_table(self, path: str) -> str:
        """The table's own folder, below which that of `path` may be made; empty where any may. `TableError` if it is gone.

        A Hudi writer that replaces the properties takes them away for a moment, and leaves the backup.
        """
        if not self.holds_table:
            return ""
        markers = [f"{self.root}/{key}" for key in TABLE_MARKERS]
        if not any(map(os.path.lexists, (*markers, *markers))):
            raise gone(self.uri)
        return f"{self.root}/{METADATA_FOLDER}" if path.startswith(f"{self.root}/{METADATA_FOLDER}/") else self.root

    @contextmanager
    def _swapping(self, path: str) -> Iterator[None]:
        """Keep other processes from replacing `path`, or raise `StorageUnavailable` after `SWAP_WAIT_S` seconds."""
        sidecar = _sidecar(path)
        lock = _open_sidecar(sidecar)
        try:
            deadline_s = self._runtime.monotonic_s() + SWAP_WAIT_S
            while not _holds(lock, sidecar):
                if self._runtime.monotonic_s() > deadline_s:
                    raise StorageUnavailable(
                        f"{path} could not be replaced: another process has held {sidecar} for {SWAP_WAIT_S:.0f} s",
                        hint=f"find it with `fuser {sidecar}`; it may be suspended",
                    )
                self._runtime.sleep(_SWAP_POLL_S * (0.5 + self._runtime.random()))
                before, lock = lock, _open_sidecar(sidecar)
                _unlock(before)
            yield
        finally:
            _unlock(lock)


def _sidecar(path: str) -> str:
    folder, name = os.path.split(path)
    return f"{folder}/.{name}.lock"


def _open_sidecar(sidecar: str, *, create: bool = True) -> int:
    return without_links(sidecar, os.O_RDWR | (os.O_CREAT if create else 0))


def _holds(lock: int, sidecar: str) -> bool:
    """Whether the open file `lock` is locked now, by this call if need be, and is the one that others will open, too."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(lock), os.stat(sidecar))
    except (BlockingIOError, FileNotFoundError):  # another holds it, or it went with its object
        return False


def _unlock(lock: int) -> None:
    """Close, and unlock first: a child that was forked meanwhile has the open file, too, and would keep it locked."""
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)


def _drop_sidecar(sidecar: str) -> None:
    """Remove the sidecar of an object that was deleted, unless that object is being replaced just now."""
    try:
        lock = _open_sidecar(sidecar, create=False)
    except OSError:
        return
    try:
        if _holds(lock, sidecar):
            discard(sidecar)
    finally:
        _unlock(lock)
