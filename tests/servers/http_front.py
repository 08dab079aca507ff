"""An HTTP service in threads of this process that stands in front of another one, and changes some of what is asked of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lakelock.testing.service import LOOPBACK

_OURS = ("connection", "content-length", "host", "transfer-encoding")
"""Headers that each of the two connections has for itself."""


@dataclass(frozen=True)
class Answer:
    """A response, to the client or from the server."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Front(BaseHTTPRequestHandler):
    """One request. A subclass answers it; `behind` is the host and port of the other service."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    behind: str

    def answered(self) -> Answer:
        """The answer to this request, whatever its method (`self.command`)."""
        raise NotImplementedError("say what becomes of a request")

    def do_GET(self) -> None:
        self._say(self.answered())

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 the library looks for these names

    def log_message(self, *_: object) -> None: ...

    def body(self) -> bytes:
        """What the client sent."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def passed_headers(self) -> dict[str, str]:
        """The client's headers that concern the request, not the connection."""
        return {name: value for name, value in self.headers.items() if name.lower() not in _OURS}

    def ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        """The answer of the service behind."""
        connection = HTTPConnection(self.behind, timeout=60)
        try:
            connection.request(method, path, body or None, dict(headers or {}))
            found = connection.getresponse()
            return Answer(found.status, found.read(), dict(found.getheaders()))
        finally:
            connection.close()

    def _say(self, answer: Answer) -> None:
        self.send_response(answer.status)
        length = str(len(answer.body))
        for name, value in answer.headers.items():
            if name.lower() == "content-length":
                length = value  # that of an object whose content was not asked for
            elif name.lower() not in _OURS:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(answer.body)


@contextmanager
def in_threads(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve by this handler on a free port of the loopback address; the endpoint."""
    server = ThreadingHTTPServer((LOOPBACK, 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
