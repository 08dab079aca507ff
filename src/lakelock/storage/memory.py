"""Storage in the memory of one process, for tests and simulators: exact, and gone with the process."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import IO

from lakelock.clock import SystemRuntime
from lakelock.errors import StorageError
from lakelock.storage.base import Listed, Stored, checked, checked_prefix, is_shown

PAGE = 1000
"""A listing shows so many objects as of one moment, like an answer of an object store."""


class MemoryStorage:
    """Objects in a dictionary. Every write makes a new version, even one with equal bytes."""

    def __init__(self, now_ms: Callable[[], int] | None = None, *, name: str = "table") -> None:
        system = SystemRuntime()
        self._now_ms = now_ms or system.now_ms
        self._mutex = system.mutex()
        self._objects: dict[str, Stored] = {}
        self._keys: list[str] = []
        self._versions = 0
        self._name = name

    @property
    def uri(self) -> str:
        return f"memory://{self._name}"

    @property
    def listing_seeks(self) -> bool:
        return True

    def copy(self) -> MemoryStorage:
        """Another storage with the same objects, their versions and times; each then goes its own way."""
        made = MemoryStorage(self._now_ms, name=self._name)
        with self._mutex:
            made._objects, made._keys, made._versions = dict(self._objects), list(self._keys), self._versions
        return made

    def get(self, key: str) -> Stored | None:
        return self._objects.get(checked(key))

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True) -> str | None:
        with self._mutex:
            return None if checked(key) in self._objects else self._write(key, data)

    def put_if_match(self, key: str, data: bytes, etag: str) -> str | None:
        with self._mutex:
            found = self._objects.get(checked(key))
            return None if found is None or found.etag != etag else self._write(key, data)

    def put(self, key: str, data: bytes) -> None:
        with self._mutex:
            self._write(checked(key), data)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[Listed]:
        start = checked_prefix(prefix) + "/" if prefix else ""
        after = max(start, start_after)
        while True:
            with self._mutex:
                first = bisect_right(self._keys, after)
                page = [(key, self._objects[key]) for key in self._keys[first : first + PAGE]]
            for key, stored in page:
                if not key.startswith(start):
                    return
                if is_shown(key, prefix):
                    yield Listed(key, len(stored.data), stored.modified_ms)
            if len(page) < PAGE:
                return
            after = page[-1][0]

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            with self._mutex:
                self._remove(checked(key))

    def delete_folder(self, folder: str) -> None:
        start = checked_prefix(folder) + "/"
        with self._mutex:
            for key in [key for key in self._keys if key.startswith(start)]:
                self._remove(key)

    def open_input(self, key: str, *, size_bytes: int = 0) -> IO[bytes]:
        found = self.get(key)
        if found is None:
            raise StorageError(
                f"{self.uri}/{key}: no such file", hint="check the path; another process may have removed it", missing=True
            )
        return BytesIO(found.data)

    def open_output(self, key: str) -> IO[bytes]:
        return _MemoryFile(self, checked(key))

    def _write(self, key: str, data: bytes) -> str:
        if key not in self._objects:
            insort(self._keys, key)
        self._versions += 1
        etag = f"v{self._versions}"
        self._objects[key] = Stored(bytes(data), etag, self._now_ms())
        return etag

    def _remove(self, key: str) -> None:
        if self._objects.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]


class _MemoryFile(BytesIO):
    """A data file that is stored under its key when it is closed."""

    def __init__(self, storage: MemoryStorage, key: str) -> None:
        super().__init__()
        self._storage, self._key = storage, key

    def close(self) -> None:
        if not self.closed:
            self._storage.put(self._key, self.getvalue())
        super().close()
