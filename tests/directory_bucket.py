"""A directory bucket of S3 (Express One Zone) as AWS describes it, in front of the bucket of an S3 service.

It has what is particular to one (https://docs.aws.amazon.com/AmazonS3/latest/userguide/s3-express-differences.html): requests
come to the address of its zone, by TLS, with the token of a session; a listing has no order, knows no prefix but a folder and
cannot begin after a key. All else is passed on. Clients reach it by a proxy, for only a proxy can claim to be that address.
"""

from __future__ import annotations

import re
import ssl
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from xml.sax.saxutils import unescape

from tests.certificates import new_certificate
from tests.servers import S3_OPTIONS
from tests.servers.http_front import Answer, Front, in_threads
from tests.servers.stores.s3 import AUTHORIZATION

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


class _Request(Front):
    """A request inside the tunnel; the bucket of the service behind is an ordinary one."""

    sessions: list[str]

    def answered(self) -> Answer:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        body = self.body()
        if self.headers["Host"].partition(":")[0] != HOST:
            return _refusal(400, "InvalidBucketName")
        if "session" in query:
            self.sessions.append(self.headers.get("Authorization", ""))
            return Answer(200, _CREDENTIALS.encode())
        if self.headers.get("x-amz-s3session-token") != _SESSION:
            return _refusal(403, "AccessDenied")
        if self.command == "GET" and url.path == "/":
            return self._listed(query)
        return self.ask(self.command, f"/{BUCKET}{self.path}", body, self.passed_headers())

    def _listed(self, query: Mapping[str, str]) -> Answer:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "/")
        if query.get("list-type") != "2" or "start-after" in query or delimiter != "/" or (prefix and prefix[-1] != "/"):
            return _refusal(400, "InvalidRequest")
        after, found = query.get("continuation-token", ""), self._all(prefix, "delimiter" in query)
        left = [place for place in sorted(found) if place > after]
        page, more = left[:PAGE], left[PAGE:]
        token = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if more else ""
        about = f"<IsTruncated>{str(bool(more)).lower()}</IsTruncated><KeyCount>{len(page)}</KeyCount>{token}"
        entries = "".join(found[place] for place in page)
        return Answer(200, f"<ListBucketResult><Name>{BUCKET}</Name>{about}{entries}</ListBucketResult>".encode())

    def _all(self, prefix: str, by_folder: bool) -> dict[str, str]:
        """What is there, by the hash of its name: in an order that says nothing to the client."""
        asked = {"list-type": "2", "prefix": prefix, **({"delimiter": "/"} if by_folder else {})}
        found: dict[str, str] = {}
        while True:
            text = self.ask("GET", f"/{BUCKET}/?{urlencode(asked)}", headers={"Authorization": AUTHORIZATION}).body.decode()
            found.update({sha256(unescape(_NAME.search(each)[1]).encode()).hexdigest(): each for each in _ENTRY.findall(text)})  # type: ignore[index]
            after = _NEXT.search(text)
            if after is None:
                return found
            asked["continuation-token"] = unescape(after[1])


def _refusal(status: int, code: str) -> Answer:
    return Answer(status, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())


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
    inside = type("Request", (_Request,), {"behind": urlsplit(endpoint).netloc, "sessions": sessions})
    made: dict[str, Any] = {"tls": tls, "inside": inside}
    with in_threads(type("Tunnel", (_Tunnel,), made)) as proxy:
        request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT", headers={"Authorization": AUTHORIZATION})
        urllib.request.urlopen(request, timeout=60).close()
        yield DirectoryBucket(proxy, certificate.public, sessions)
