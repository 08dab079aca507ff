"""DynamoDB on a free loopback port: dynalite where Node is there, otherwise moto behind one lock."""

from __future__ import annotations

import os
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from lakelock.testing.service import Service
from tests.given_servers import Place, ServerMissing, not_ours
from tests.servers.fetched.npm import NpmPackage
from tests.servers.process import ServerProcess, free_port
from tests.servers.stores.s3 import OneAtATime

TABLE = "hudi_locks"
REGION = "us-east-1"
URL = "LAKELOCK_TEST_DYNAMODB_URL"
"""Environment: the endpoint of an existing service, which is not restarted; credentials come from the environment, too."""

DYNALITE = NpmPackage("dynalite", "4", "cli.js")
_GUARD = """
process.on("uncaughtException", error => {
  if (error.code !== "ECONNRESET") { console.error(error); process.exit(1) }
})
"""
"""dynalite throws when a client disconnects in the middle of a request: a killed writer would end the server."""

_LOAD_S = 60.0
_LIST_TABLES = {
    "X-Amz-Target": "DynamoDB_20120810.ListTables",
    "Content-Type": "application/x-amz-json-1.0",
    "Authorization": "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0",
}
_KEYS = {"AWS_ACCESS_KEY_ID": "test-key-id", "AWS_SECRET_ACCESS_KEY": "test-secret-key"}


@contextmanager
def dynamodb_server(folder: Path) -> Iterator[Service]:
    """A DynamoDB service without tables; its name says which implementation it is."""
    given = os.environ.get(URL)
    if given:
        yield _service("given", given)
        return
    before = {name: os.environ.get(name) for name in _KEYS}
    os.environ.update(_KEYS)
    try:
        if dynalite_is_there():
            with Dynalite(folder) as dynalite:
                yield _service("dynalite", dynalite.url, dynalite)
        else:
            with Moto() as moto:
                yield _service("moto", moto.url, moto)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _service(kind: str, url: str, server: Dynalite | Moto | None = None) -> Service:
    options = {
        "lock.options.endpoint_url": url,
        "lock.options.region_name": REGION,
        "lock.options.create_table": "true",
        "lock.options.connect_timeout": "2",
        "lock.options.read_timeout": "2",
    }
    place = Place.of(url, 443 if url.startswith("https:") else 80)
    table, name = f"dynamodb://{TABLE}", f"dynamodb ({kind})"
    service = Service(name, lambda key: f"{table}/{urllib.parse.quote(key)}", place.port, options=options, tells_left=False)
    if server is None:
        cannot = not_ours(URL)
        own = replace(service, host=place.host, address=place.text)
        return replace(own, stop=cannot, start=cannot, pause=cannot, resume=cannot)
    return replace(service, stop=server.stop, start=server.start, pause=server.pause, resume=server.resume)


def dynalite_is_there() -> bool:
    """Whether dynalite can run here, and is not unwanted."""
    return os.environ.get("LAKELOCK_TEST_DYNAMODB") != "moto" and DYNALITE.is_there()


class Dynalite(ServerProcess):
    """One server, with its data in `folder`."""

    title = "dynalite"
    up_within_s = 20.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        guard = self.folder / "guard.js"
        guard.write_text(_GUARD)
        place = ["--host", "127.0.0.1", "--port", str(self.port), "--path", str(self.folder / "data")]
        return ["node", "--require", str(guard), str(DYNALITE.path), *place, "--createTableMs", "0"]


class Moto:
    """moto in threads of this process, whose memory keeps the data while the server is stopped."""

    def __init__(self) -> None:
        try:
            from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        except ImportError as error:
            raise ServerMissing("needs a DynamoDB: pip install 'moto[dynamodb,server]'") from error
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._app = OneAtATime(DomainDispatcherApplication(create_backend_app))
        self._running = threading.Event()
        self._running.set()
        self._server: Any = None
        self._thread: threading.Thread | None = None

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        self._running.wait()
        return self._app(environ, start_response)

    def start(self) -> None:
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Quiet(WSGIRequestHandler):
            def log(self, *_: Any) -> None: ...

        self._server = make_server("127.0.0.1", self.port, self._answer, threaded=True, request_handler=Quiet)
        self._server.daemon_threads = True
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        # moto loads itself at its first request, on a busy machine for longer than a client waits. The request then takes
        # effect after the client has given it up.
        urllib.request.urlopen(urllib.request.Request(self.url, b"{}", _LIST_TABLES), timeout=_LOAD_S).close()

    def stop(self) -> None:
        self._running.set()
        self._server.shutdown()
        self._server.server_close()
        assert self._thread is not None
        self._thread.join(5)

    def pause(self) -> None:
        self._running.clear()

    def resume(self) -> None:
        self._running.set()

    def __enter__(self) -> Moto:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
