"""A directory bucket of S3 (Express One Zone) as AWS describes it, in front of the bucket of an S3 service.

It has what is particular to one (https://docs.aws.amazon.com/AmazonS3/latest/userguide/s3-express-differences.html): requests
come to the address of its zone, by TLS, with the token of a session; a listing has no order, knows no prefix but a folder and
cannot begin after a key. All else is passed on. Clients reach it by a proxy, for only a proxy can claim to be that address.
"""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from xml.sax.saxutils import unescape

from lakelock.testing.servers import S3_OPTIONS
from lakelock.testing.servers.s3 import AUTHORIZATION
from tests.certificates import new_certificate

REGION = S3_OPTIONS["region"]
BUCKET = "lake--use1-az4--x-s3"
HOST = f"{BUCKET}.s3express-use1-az4.{REGION}.amazonaws.com"
PAGE = 7
"""How many keys an answer to a listing has, so that a small test sees several."""

_SESSION = "token-of-a-session"
_CREDENTIALS = f"""<?xml version="1.0" encoding="UTF-8"?>
<CreateSessionResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Credentials><SessionToken>{_SESSION}</SessionToken>
<SecretAccessKey>secret-of-a-session</SecretAccessKey><AccessKeyId>key-of-a-session</AccessKeyId>
<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></CreateSessionResult>"""
_ENTRY = re.compile(r"<Contents>.*?</Contents>|<CommonPrefixes>.*?</CommonPrefixes>", re.DOTALL)
_NAME = re.compile(r"<(?:Key|Prefix)>(.*?)</", re.DOTALL)
_NEXT = re.compile(r"<NextContinuationToken>(.*?)</", re.DOTALL)
_OURS = ("connection", "content-length", "host", "transfer-encoding", "date", "server")
"""Headers that each of the two connections has for itself."""


@dataclass(frozen=True)
class DirectoryBucket:
    """Where the bucket is reached: by this proxy, whose word for the bucket's address this certificate vouches for."""

    proxy: str
    certificate: str
    sessions: list[str]
    """A line for each session that was made."""

    @property
    def options(self) -> dict[str, str]:
        """Settings of lakelock below `storage.`."""
        keys = {name: S3_OPTIONS[name] for name in ("access_key_id", "secret_access_key", "region")}
        return {**keys, "proxy_url": self.proxy, "root_certificate": Path(self.certificate).read_text()}


class _Request(BaseHTTPRequestHandler):
    """A request inside the tunnel."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    service: str
    sessions: list[str]

    def _answer(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers["Host"].partition(":")[0] != HOST:
            self._refuse(400, "InvalidBucketName")
        elif "session" in query:
            self.sessions.append(self.headers.get("Authorization", ""))
            self._say(200, _CREDENTIALS.encode())
        elif self.headers.get("x-amz-s3session-token") != _SESSION:
            self._refuse(403, "AccessDenied")
        elif self.command == "GET" and url.path == "/":
            self._list(query)
        else:
            self._say(*self._ask(self.command, self.path, body, dict(self.headers.items())))

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None: ...

    def _list(self, query: Mapping[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "/")
        if query.get("list-type") != "2" or "start-after" in query or delimiter != "/" or (prefix and prefix[-1] != "/"):
            self._refuse(400, "InvalidRequest")
            return
        after, found = query.get("continuation-token", ""), self._all(prefix, "delimiter" in query)
        left = [place for place in sorted(found) if place > after]
        page, more = left[:PAGE], left[PAGE:]
        token = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if more else ""
        about = f"<IsTruncated>{str(bool(more)).lower()}</IsTruncated><KeyCount>{len(page)}</KeyCount>{token}"
        entries = "".join(found[place] for place in page)
        self._say(200, f"<ListBucketResult><Name>{BUCKET}</Name>{about}{entries}</ListBucketResult>".encode())

    def _all(self, prefix: str, by_folder: bool) -> dict[str, str]:
        """What is there, by the hash of its name: in an order that says nothing to the client."""
        asked = {"list-type": "2", "prefix": prefix, **({"delimiter": "/"} if by_folder else {})}
        found: dict[str, str] = {}
        while True:
            text = self._ask("GET", f"/?{urlencode(asked)}", b"", {"Authorization": AUTHORIZATION})[1].decode()
            found.update({sha256(unescape(_NAME.search(each)[1]).encode()).hexdigest(): each for each in _ENTRY.findall(text)})  # type: ignore[index]
            after = _NEXT.search(text)
            if after is None:
                return found
            asked["continuation-token"] = unescape(after[1])

    def _ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes, dict[str, str]]:
        """The answer of the service behind, of which the bucket is an ordinary one."""
        sent = {name: value for name, value in headers.items() if name.lower() not in _OURS}
        connection = HTTPConnection(self.service, timeout=60)
        try:
            connection.request(method, f"/{BUCKET}{path}", body or None, sent)
            found = connection.getresponse()
            return found.status, found.read(), dict(found.getheaders())
        finally:
            connection.close()

    def _refuse(self, status: int, code: str) -> None:
        self._say(status, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())

    def _say(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        length = str(len(body))
        for name, value in (headers or {}).items():
            if name.lower() == "content-length":
                length = value  # that of an object whose content was not asked for
            elif name.lower() not in _OURS:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(body)


class _Tunnel(BaseHTTPRequestHandler):
    """A proxy that does not pass a tunnel on, but is what is at its end."""

    tls: ssl.SSLContext
    inside: type[_Request]

    def do_CONNECT(self) -> None:
        self.send_response(200)
        self.end_headers()
        with self.tls.wrap_socket(self.connection, server_side=True) as socket:
            self.inside(socket, self.client_address, self.server)
        self.close_connection = True

    def log_message(self, *_: object) -> None: ...


@contextmanager
def directory_bucket(endpoint: str, folder: Path) -> Iterator[DirectoryBucket]:
    """The bucket in threads of this process, before the S3 service at `endpoint`."""
    certificate, sessions = new_certificate(folder, "express", host=HOST), list[str]()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate.both)
    inside = type("Request", (_Request,), {"service": urlsplit(endpoint).netloc, "sessions": sessions})
    made: dict[str, Any] = {"tls": tls, "inside": inside}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Tunnel", (_Tunnel,), made))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        connection = HTTPConnection(urlsplit(endpoint).netloc, timeout=60)
        connection.request("PUT", f"/{BUCKET}", headers={"Authorization": AUTHORIZATION})
        assert connection.getresponse().status == 200
        connection.close()
        yield DirectoryBucket(f"http://127.0.0.1:{server.server_port}", certificate.public, sessions)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
