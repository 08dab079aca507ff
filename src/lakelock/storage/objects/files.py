"""Data files in an object store as Python files: ranges are read on demand, parts are uploaded while more is written."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import IO, TYPE_CHECKING, Protocol, cast

from lakelock.errors import StorageError
from lakelock.storage.objects.errors import translated
from lakelock.storage.ranges import reader

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from obstore.store import ObjectStore

PART_BYTES = 10 << 20


def open_reader(store: ObjectStore, key: str, uri: str, options: Mapping[str, str], size_bytes: int = 0) -> IO[bytes]:
    """A seekable reader of one object; `StorageError` when there is none. One request unless the size is known."""
    import obstore

    def fetch(start: int, length: int) -> ReadableBuffer:
        with translated(uri, key, options):
            return obstore.get_range(store, key, start=start, length=length)
        raise StorageError(f"{uri}/{key} was removed while it was read", hint="read the table again", missing=True)

    with translated(uri, key, options):
        return reader(size_bytes or obstore.head(store, key)["size"], fetch)
    raise StorageError(f"{uri}/{key}: no such object", hint="check the path; another process may have removed it", missing=True)


class _Upload(Protocol):
    """obstore's `WritableFile`. It has no `abort`: leaving a `with` block by an exception aborts the upload."""

    def write(self, data: bytes, /) -> int: ...

    def close(self) -> None: ...

    def __exit__(self, kind: type[BaseException], error: BaseException, trace: None) -> object: ...


class ObjectWriter(io.RawIOBase):
    """Uploads one object; it exists once `close` has returned, and not at all after an exception in a `with` block.

    The parts of an upload that was not finished are removed: a store keeps and bills them until somebody aborts it.
    """

    def __init__(self, upload: _Upload, key: str, uri: str, options: Mapping[str, str]) -> None:
        self._upload, self._key, self._uri, self._options = upload, key, uri, options
        self._position, self._abandoned = 0, False

    @classmethod
    def open(cls, store: ObjectStore, key: str, uri: str, options: Mapping[str, str]) -> IO[bytes]:
        """A writer whose parts are sent while more is written."""
        import obstore

        with translated(uri, key, options, writing=True):
            upload = obstore.open_writer(store, key, buffer_size=PART_BYTES)
            return cast(IO[bytes], cls(cast(_Upload, upload), key, uri, options))
        raise StorageError(f"{uri}/{key} cannot be written", hint="check the bucket and the access rights")

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data).cast("B")
        with translated(self._uri, self._key, self._options, writing=True):
            self._upload.write(bytes(view))
            self._position += len(view)
            return len(view)
        raise StorageError(f"{self._uri}/{self._key} cannot be written", hint="check the bucket and the access rights")

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self._abandoned:
            self._abort()
            return
        with translated(self._uri, self._key, self._options, writing=True):
            self._upload.close()

    def _abort(self) -> None:
        """Abort if the store can; the caller already has the error that matters."""
        with suppress(Exception):
            self._upload.__exit__(StorageError, StorageError("the upload was given up"), None)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._abandoned = kind is not None
        self.close()

    def __del__(self) -> None:
        # A file that nobody closed is not finished: garbage collection must not publish it.
        self._abandoned = True
        if not sys.is_finalizing():
            super().__del__()
