"""Data files on HDFS as Python files: ranges are read on demand, content is streamed to a data node while more is written."""

from __future__ import annotations

import io
import ssl
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import IO, TYPE_CHECKING, cast
from urllib.parse import urlsplit

from lakelock.storage.hdfs.errors import Refused, no_answer, refuse
from lakelock.storage.hdfs.options import HdfsOptions

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_BUFFER_BYTES = 1 << 20


def open_writer(place: str, where: str, options: HdfsOptions) -> IO[bytes]:
    """A writer of a new file at this URL of a data node; raises `StorageUnavailable` where it does not answer.

    urllib3 takes a request's whole body, or asks for the parts: whoever is handed them needs the standard library's client.
    """
    return cast(IO[bytes], io.BufferedWriter(_Upload(place, where, options), _BUFFER_BYTES))


class _Upload(io.RawIOBase):
    """One request in parts. The file is complete once `close` has returned; after an error it may be there, unfinished."""

    def __init__(self, place: str, where: str, options: HdfsOptions) -> None:
        parts = urlsplit(place)
        host, port = parts.hostname or "", parts.port
        self._where, self._position, self._failed = where, 0, False
        self._connection = HTTPConnection(host, port, timeout=options.timeout_s)
        if parts.scheme == "https":
            trusted = ssl.create_default_context(cafile=options.ca_certificate or None)
            self._connection = HTTPSConnection(host, port, timeout=options.timeout_s, context=trusted)
        try:
            self._connection.putrequest("PUT", f"{parts.path}?{parts.query}", skip_accept_encoding=True)
            self._connection.putheader("Content-Type", "application/octet-stream")
            self._connection.putheader("Transfer-Encoding", "chunked")
            self._connection.endheaders()
        except (OSError, HTTPException) as error:
            self._give_up(error)

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data).cast("B")
        if view:
            self._send(b"%x\r\n" % len(view), view, b"\r\n")
            self._position += len(view)
        return len(view)

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self._failed:
            return
        self._send(b"0\r\n\r\n")
        try:
            with self._connection.getresponse() as answer:
                body = answer.read()
        except (OSError, HTTPException) as error:
            self._give_up(error)
        self._connection.close()
        if answer.status >= 300:
            refuse(Refused.read(answer.status, body), self._where)

    def _send(self, *parts: bytes | memoryview) -> None:
        try:
            for part in parts:
                self._connection.send(part)
        except (OSError, HTTPException) as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._failed = True
        with suppress(OSError):
            self._connection.close()
        raise no_answer(self._where, error) from error
