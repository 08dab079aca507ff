"""S3 as moto answers, with conditional puts."""

from __future__ import annotations

import io
import os
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

S3_OPTIONS = {
    "access_key_id": "test-key-id",
    "secret_access_key": "test-secret-key",
    "region": "us-east-1",
    "allow_http": "true",
}


S3_PAGE = 100
"""Keys in one page of a listing: a tenth of S3's, so a test sees several pages."""


class OneAtATime:
    """moto is correct but not atomic under threads; one request at a time makes it atomic.

    The body is read before the lock is taken, or one stalled upload would stop everybody.
    """

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self._app, self._lock = app, threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        length, chunked = environ.get("CONTENT_LENGTH"), environ.get("HTTP_TRANSFER_ENCODING") == "chunked"
        body = environ["wsgi.input"].read(-1 if chunked else int(length or 0))
        environ["wsgi.input"], environ["CONTENT_LENGTH"] = io.BytesIO(body), str(len(body))
        with self._lock:
            return list(self._app(environ, start_response))


@contextmanager
def s3_server() -> Iterator[str]:
    """An S3 service in a thread of this process; its endpoint, with the bucket `lake` in it."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, *_: Any) -> None: ...

    os.environ["MOTO_S3_DEFAULT_MAX_KEYS"] = str(S3_PAGE)
    app = OneAtATime(DomainDispatcherApplication(create_backend_app))
    server: Any = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        request = urllib.request.Request(f"{endpoint}/lake", method="PUT", headers={"Authorization": AUTHORIZATION})
        urllib.request.urlopen(request, timeout=60).close()  # moto loads itself at its first request
        yield endpoint
    finally:
        server.shutdown()
        thread.join(5)


AUTHORIZATION = "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
