"""Requests to a cluster: to the name node that is active, and through it to data nodes.

The interface is WebHDFS, <https://hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/WebHDFS.html>. A name node
answers itself what concerns names, and sends whoever reads or writes content on to a data node. Paths are absolute, or
`inode(n)`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, urlencode

from lakelock.clock import Runtime
from lakelock.errors import SettingsError, StorageUnavailable, StorageUnsafe
from lakelock.settings.secrets import MASK
from lakelock.storage.hdfs.errors import ABSENT, NOT_NOW, Refused, no_answer, refuse
from lakelock.storage.hdfs.negotiate import negotiated
from lakelock.storage.hdfs.options import HdfsOptions

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

RETRY_S = 30.0
"""How long a request that was not done is sent again, to each name node in turn: a fail-over takes several seconds."""

_PAUSE_S = 0.25
_REDIRECT = 307
_CONNECT_S = 5.0
_PREFIX = "/webhdfs/v1"


@dataclass(frozen=True)
class Status:
    """What a name node knows of a file or folder; `inode` is its number, which no other file ever gets."""

    name: str
    inode: int
    size_bytes: int
    modified_ms: int
    kind: str

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Status:
        if not found.get("fileId"):
            raise StorageUnsafe(
                "this server does not tell the numbers of files, by which lakelock knows one version from another",
                hint="name a name node in storage.namenodes; an old HttpFS will not do",
            )
        return cls(found["pathSuffix"], found["fileId"], found["length"], found["modificationTime"], found["type"])

    @property
    def is_file(self) -> bool:
        return self.kind == "FILE"


def inode(number: int | str) -> str:
    """The path of a file by its number, whatever its name is at the time."""
    return f"/.reserved/.inodes/{number}"


class Cluster:
    """One client, for any number of threads. Connections are kept; none is made before the first request."""

    def __init__(self, uri: str, options: HdfsOptions, runtime: Runtime, *, retry_s: float = RETRY_S) -> None:
        try:
            import urllib3
        except ImportError as error:
            raise SettingsError(f"{uri} needs the package urllib3: {error}", hint="pip install 'lakelock[hdfs]'") from error
        self._uri, self.options, self._runtime, self._errors = uri, options, runtime, urllib3.exceptions
        self._retry_s = retry_s
        trusted = {"ca_certs": options.ca_certificate} if options.ca_certificate else {}
        timeout = urllib3.Timeout(connect=min(_CONNECT_S, options.timeout_s), read=options.timeout_s)
        self._http = urllib3.PoolManager(num_pools=1024, maxsize=64, timeout=timeout, retries=False, **trusted)  # type: ignore[arg-type]
        self._active = 0
        self._cookies: dict[str, str] = {}

    def status(self, path: str) -> Status | None:
        """What is there, or None."""
        try:
            return Status.read(self.ask("GET", path, "GETFILESTATUS", again=True)["FileStatus"])
        except Refused as refused:
            if refused.is_one_of(ABSENT):
                return None
            refuse(refused, self._uri)

    def entries(self, folder: str) -> Iterator[Status]:
        """What is in a folder, page by page."""
        start_after = ""
        while True:
            after = {"startafter": start_after, "startAfter": start_after}  # a name node knows the first, HttpFS the second
            try:
                found = self.ask("GET", folder, "LISTSTATUS_BATCH", after, again=True)["DirectoryListing"]
            except Refused as refused:
                if refused.is_one_of(ABSENT):
                    return
                refuse(refused, self._uri)
            page = [Status.read(each) for each in found["partialListing"]["FileStatuses"]["FileStatus"]]
            if page and page[-1].name == start_after:
                raise no_answer(self._uri, f"names up to {start_after!r} were listed again")
            yield from page
            if not found["remainingEntries"] or not page:
                return
            start_after = page[-1].name

    def ask(
        self, method: str, path: str, op: str, parameters: Mapping[str, str] | None = None, *, again: bool = False
    ) -> dict[str, Any]:
        """One request that concerns names. Raises `Refused`, or `StorageUnavailable` where it may or may not have been done.

        `again` says that it may be done twice, so that it is sent again where an answer got lost.
        """
        answer = self._ask(method, path, op, parameters or {}, again)
        try:
            return dict(json.loads(answer.data)) if answer.data else {}
        except ValueError:
            raise no_answer(self._uri, "the answer is not JSON") from None

    def read(self, path: str, start: int, length: int) -> bytes:
        """A part of a file's content. Raises `Refused` or `StorageUnavailable`."""
        return self._content("GET", path, "OPEN", {"offset": str(start), "length": str(length)}, None, True)

    def write(self, path: str, data: bytes, *, overwrite: bool) -> None:
        """Create a file and its folders. While it is written others see it, unfinished. Raises as `ask` does."""
        self._content("PUT", path, "CREATE", {"overwrite": str(overwrite).lower()}, data, overwrite)

    def place_to_write(self, path: str) -> str:
        """The URL of the data node that takes a new file's content, for whoever streams it there. Raises as `ask` does."""
        return self._sent_on(self._ask("PUT", path, "CREATE", {"overwrite": "true"}, True))

    def _content(self, method: str, path: str, op: str, parameters: dict[str, str], data: bytes | None, again: bool) -> bytes:
        """The answer of a data node. One that cannot be reached got nothing: the name node is asked for another one."""
        until_s = self._runtime.monotonic_s() + self._retry_s
        while True:
            place = self._sent_on(self._ask(method, path, op, parameters, again))
            why: object
            try:
                answer = self._http.request(method, place, body=data, redirect=False, headers=_BINARY)
                return answer.data if answer.status < 300 else self._raise(answer)
            except Refused as refused:
                if not refused.is_one_of(NOT_NOW):
                    raise
                why = refused.message
            except (self._errors.NewConnectionError, self._errors.ConnectTimeoutError) as error:
                why = error
            except self._errors.HTTPError as error:
                if not again:
                    raise no_answer(self._uri, self._shown(error)) from None
                why = error
            self._pause(until_s, why)

    def _ask(self, method: str, path: str, op: str, parameters: Mapping[str, str], again: bool) -> BaseHTTPResponse:
        """The answer of the active name node, found by asking each: nobody else knows which one it is."""
        until_s = self._runtime.monotonic_s() + self._retry_s
        token, user = self.options.delegation_token, self.options.user
        who = {"delegation": token} if token else {"user.name": user} if user else {}
        query = urlencode({"op": op, **parameters, **who}, quote_via=quote)
        why: object = ""
        while True:
            unknown = 0
            for _ in self.options.namenodes:
                address = self.options.namenodes[self._active]
                try:
                    return self._answer(method, address, f"{_PREFIX}{quote(path)}?{query}")
                except Refused as refused:
                    if not refused.is_one_of(NOT_NOW):
                        raise
                    why = f"{address}: {refused.message}"
                except self._errors.NameResolutionError:
                    why, unknown = f"{address} has no known host", unknown + 1
                except (self._errors.NewConnectionError, self._errors.ConnectTimeoutError):
                    why = f"{address} cannot be reached"
                except self._errors.HTTPError as error:
                    if not again:
                        raise no_answer(self._uri, self._shown(error)) from None
                    why = f"{address}: {error}"
                self._active = (self.options.namenodes.index(address) + 1) % len(self.options.namenodes)
            self._pause(until_s if unknown < len(self.options.namenodes) else 0.0, why)

    def _answer(self, method: str, address: str, target: str) -> BaseHTTPResponse:
        """An answer that is no error. A name node with Kerberos answers 401 first, and then remembers by a cookie."""
        cookie = self._cookies.get(address, "")
        answer = self._http.request(method, address + target, redirect=False, headers={"Cookie": cookie} if cookie else None)
        if answer.status == 401 and "negotiate" in answer.headers.get("WWW-Authenticate", "").lower():
            headers = {"Authorization": negotiated(address)}
            answer = self._http.request(method, address + target, redirect=False, headers=headers)
            self._cookies[address] = answer.headers.get("Set-Cookie", "").partition(";")[0]
        return answer if answer.status < 400 else self._raise(answer)

    def _sent_on(self, answer: BaseHTTPResponse) -> str:
        place = answer.headers.get("Location", "")
        if answer.status != _REDIRECT or not place:
            raise no_answer(self._uri, f"the name node did not name a data node (HTTP {answer.status})")
        return place

    def _raise(self, answer: BaseHTTPResponse) -> NoReturn:
        refused = Refused.read(answer.status, answer.data)
        raise Refused(refused.name, self._shown(refused.message))

    def _shown(self, why: object) -> str:
        """A text of somebody else's without the token, which is part of every URL."""
        token = self.options.delegation_token
        return str(why).replace(token, MASK) if token else str(why)

    def _pause(self, until_s: float, why: object) -> None:
        if self._runtime.monotonic_s() > until_s:
            raise StorageUnavailable(
                f"{self._uri}: no name node answered: {self._shown(why)}",
                hint="check that a name node is active, and its web address: in storage.namenodes, or in HADOOP_CONF_DIR",
            )
        self._runtime.sleep(_PAUSE_S * (0.5 + self._runtime.random()))


_BINARY = {"Content-Type": "application/octet-stream"}
