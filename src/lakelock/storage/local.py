"""A folder on a POSIX file system as storage: atomic creates, compare-and-swap, durable when asked.

A new object is written to a temporary file (`.<random>.tmp`) and linked under its name, so no reader ever sees half of it.
A replacement is compared and renamed under a `flock` on `.<name>.lock` beside the object; the kernel frees it when its
holder dies, and it goes with the object. Both kinds of file start with a dot, so no listing shows them and what a crash
leaves is harmless.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, TypeVar

from lakelock.clock import Runtime, SystemRuntime
from lakelock.errors import StorageError, StorageUnavailable
from lakelock.storage import posix_files as files
from lakelock.storage.base import Listed, Stored
from lakelock.storage.keys import METADATA_FOLDER, TABLE_MARKERS, checked, checked_prefix, gone

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
    a table that somebody has moved would appear at its old place.
    """

    def __init__(self, root: str | os.PathLike[str], *, runtime: Runtime | None = None, holds_table: bool = False) -> None:
        self.root = os.path.realpath(root)
        self.holds_table = holds_table
        self._runtime = runtime or SystemRuntime()
        self._real_folders: set[str] = set()

    @property
    def uri(self) -> str:
        return f"file://{self.root}"

    def get(self, key: str) -> Stored | None:
        path = self._unlinked(key)
        try:
            found = files.read_stored(path)
        except OSError as error:
            files.refuse(error, path)
        self.holds_table = self.holds_table or (found is not None and key in TABLE_MARKERS)
        return found

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True) -> str | None:
        path = self._unlinked(key)
        if not data and not durable:
            return self._in_folder(path, lambda: files.create_empty(path))
        return self._in_folder(path, lambda: files.create_with(path, data, durable=durable), durable=durable)

    def put_if_match(self, key: str, data: bytes, etag: str) -> str | None:
        path = self._unlinked(key)
        try:
            temporary, version = files.write_temporary(path, data, durable=True)
        except FileNotFoundError:
            return None
        except OSError as error:
            files.refuse(error, path)
        try:
            with self._swapping(path):
                found = files.read_stored(path)
                if found is None or found.etag != etag:
                    files.discard(temporary)
                    if found is None:
                        files.discard(_sidecar(path))
                    return None
                files.drop_checksum_twin(path)
                os.replace(temporary, path)
        except (OSError, StorageError) as error:
            files.discard(temporary)
            if isinstance(error, OSError):
                files.refuse(error, path)
            raise
        try:
            files.sync_folder(os.path.dirname(path))
        except OSError as error:
            files.doubt(error, path)
        return version

    def put(self, key: str, data: bytes) -> None:
        path = self._unlinked(key)

        def replace() -> None:
            temporary, _ = files.write_temporary(path, data, durable=False)
            files.drop_checksum_twin(path)
            try:
                os.replace(temporary, path)
            except OSError:
                files.discard(temporary)
                raise

        self._in_folder(path, replace)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[Listed]:
        folder = checked_prefix(prefix)
        path = f"{self.root}/{folder}" if folder else self.root
        if os.path.realpath(path) != path:
            return iter(())
        return files.walk(path, f"{folder}/" if folder else "", folder, start_after)

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
                files.refuse(error, path)
            files.drop_checksum_twin(path)
            _drop_sidecar(_sidecar(path))
        for folder in sorted(folders, reverse=True):
            files.prune_empty(folder, self.root)

    def delete_folder(self, folder: str) -> None:
        path = self._path(checked_prefix(folder))
        self._refuse_links(path)
        try:
            with suppress(FileNotFoundError):
                shutil.rmtree(path)
        except OSError as error:
            files.refuse(error, path)

    def open_input(self, key: str, *, size_bytes: int = 0) -> IO[bytes]:
        path = self._unlinked(key)
        try:
            return open(path, "rb", opener=files.without_links)
        except OSError as error:
            files.refuse(error, path)

    def open_output(self, key: str) -> IO[bytes]:
        path = self._unlinked(key)
        return self._in_folder(path, lambda: files.DurableFile(path), durable=True)

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
                    files.make_folder(os.path.dirname(path), durable=durable, below=self._folder_of_table(path))
            return action()
        except OSError as error:
            files.refuse(error, path)

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
    return os.open(sidecar, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else os.O_NOFOLLOW), 0o666)


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
    """Remove the sidecar of an object that was deleted, unless somebody is replacing that object just now."""
    try:
        lock = _open_sidecar(sidecar, create=False)
    except OSError:
        return
    try:
        if _holds(lock, sidecar):
            files.discard(sidecar)
    finally:
        _unlock(lock)
