"""Requests to a cluster of HDFS by WebHDFS: to the active name node, and through it to data nodes. No Java, no native library.

The interface is <https://hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/WebHDFS.html>. A name node answers
itself what concerns names, and sends a client that reads or writes content on to a data node. Paths are absolute, or
`inode(n)`.

The options `storage.*` of an `hdfs:` path, and Hadoop's settings, say how the name nodes are reached. Kerberos is HTTP's
Negotiate (RFC 4559), with the ticket that `kinit` got. A refusal of a node becomes one of lakelock's errors by the name
that the node gives.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, urlencode, urlsplit

from lakelock.clock import Runtime
from lakelock.errors import SettingsError, StorageError, StorageUnavailable, StorageUnsafe
from lakelock.settings.secrets import MASK
from lakelock.texts import did_you_mean

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse


def negotiated(address: str) -> str:
    """The `Authorization` header for a name node's web address; `StorageError` without the package or a ticket."""
    try:
        import gssapi
    except ImportError as error:
        raise StorageError(
            f"{address} asks for Kerberos, and the package gssapi is not installed",
            hint="set storage.delegation_token, or pip install 'lakelock[kerberos]', which gcc and libkrb5-dev compile",
        ) from error
    known: Any = gssapi
    host = (urlsplit(address).hostname or "").lower()
    try:
        service = known.Name(f"HTTP@{host}", known.NameType.hostbased_service)
        token: bytes = known.SecurityContext(name=service, usage="initiate").step() or b""
    except known.exceptions.GSSError as error:
        why = "; ".join(error.get_all_statuses(error.min_code, False)) if error.min_code else str(error)
        hint = "run `kinit`, or set storage.delegation_token"
        raise StorageError(f"{address} asks for Kerberos: {why}", hint=hint) from error
    return f"Negotiate {base64.b64encode(token).decode()}"


Get = Callable[[str], str | None]
"""The value of a Hadoop setting by its name, None where it is not set."""

HTTP_PORT, HTTPS_PORT, RPC_PORT = "9870", "9871", "8020"
"""Hadoop's own defaults. The last is the port of an `hdfs:` URI that names none."""

HA, POLICY = "dfs.ha.namenodes.", "dfs.http.policy"
ADDRESSES = ("dfs.namenode.http-address", "dfs.namenode.https-address", "dfs.namenode.rpc-address")
_LONGEST_WAIT_S = 3_600.0


@dataclass(frozen=True)
class HdfsOptions:
    """The options of one cluster, all of them texts in a user's settings."""

    namenodes: tuple[str, ...]
    """The name nodes' web addresses, such as `http://nn1:9870`: one, or all of a cluster that fails over."""
    user: str = ""
    """Who asks, where the cluster has no Kerberos: it believes any name."""
    delegation_token: str = field(default="", repr=False)
    """A token of the cluster as Hadoop writes it for URLs, for processes that have no Kerberos ticket."""
    ca_certificate: str = ""
    """A file with the certificates to trust, for addresses with https."""
    timeout_s: float = 60.0
    """How long to wait for each answer."""

    @classmethod
    def of(cls, uri: str, options: Mapping[str, str], user: str) -> HdfsOptions:
        """The options for a canonical URI; `SettingsError` for one that HDFS has not, that does nothing, or is malformed."""
        known = [each.name for each in fields(cls)]
        for name in options:
            if name not in known:
                raise SettingsError(
                    f"HDFS has no option storage.{name}{did_you_mean(name, known)}",
                    hint="the options are " + ", ".join(f"storage.{each}" for each in known),
                    key=f"storage.{name}",
                )
        listed = options.get("namenodes") or f"http://{authority(uri).partition(':')[0]}:{HTTP_PORT}"
        namenodes = tuple(_address(each.strip()) for each in listed.strip(", ").split(","))
        if options.get("ca_certificate") and not any(each.startswith("https:") for each in namenodes):
            raise SettingsError(
                f"storage.ca_certificate is set, but {', '.join(namenodes)} would be asked without TLS",
                hint=f"write storage.namenodes with https, such as https://HOST:{HTTPS_PORT}, or leave the certificate out",
                key="storage.namenodes",
            )
        return cls(
            namenodes=namenodes,
            user=options.get("user") or user,
            delegation_token=options.get("delegation_token", ""),
            ca_certificate=options.get("ca_certificate", ""),
            timeout_s=_seconds(options.get("timeout_s", "60")),
        )


def authority(uri: str) -> str:
    """The name service, or the name node's host and port, of a canonical URI."""
    return uri.partition("://")[2].partition("/")[0]


def from_hadoop(uri: str, get: Get) -> dict[str, str]:
    """What Hadoop's settings say of the name nodes of a canonical URI; nothing where they do not know them."""
    service = authority(uri)
    secure = (get(POLICY) or "").strip().upper() == "HTTPS_ONLY"
    scheme, port, setting = ("https", HTTPS_PORT, ADDRESSES[1]) if secure else ("http", HTTP_PORT, ADDRESSES[0])

    def address(suffix: str, host: str = "") -> str:
        """The web address of one name node; where it listens on every address, that of its RPC interface or of the URI."""
        found = (get(f"{setting}{suffix}") or "").strip()
        known = ((get(f"{ADDRESSES[2]}{suffix}") or "").strip() or host).partition(":")[0]
        name, _, own_port = found.partition(":")
        name = known if name in ("", "0.0.0.0") else name
        return f"{scheme}://{name}:{own_port or port}" if name and (not host or name == host) else ""

    names = [name.strip() for name in (get(f"{HA}{service}") or "").split(",") if name.strip()]
    if names:
        found = [address(f".{service}.{name}") for name in names]
    else:
        found = [address(f".{service}") or address("", service.partition(":")[0])]
    return {"namenodes": ",".join(filter(None, found))} if any(found) else {}


def _address(text: str) -> str:
    scheme, there, rest = text.rstrip("/").partition("://")
    if not there or scheme.lower() not in ("http", "https") or not rest or "/" in rest or "@" in rest:
        raise SettingsError(
            f"storage.namenodes names {text!r}, which is not the web address of a name node",
            hint="write http://HOST:9870, or several with commas between them: dfs.namenode.http-address in hdfs-site.xml",
            key="storage.namenodes",
        )
    return f"{scheme.lower()}://{rest}"


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_WAIT_S:
        raise SettingsError(
            f"storage.timeout_s is {text!r}, which is not a number of seconds",
            hint=f"write a number up to {_LONGEST_WAIT_S:.0f}",
            key="storage.timeout_s",
        )
    return seconds


ABSENT = frozenset({"FileNotFoundException"})
EXISTS = frozenset({"FileAlreadyExistsException", "AlreadyBeingCreatedException", "RecoveryInProgressException"})
"""A file that is still being written is there, too."""

NOT_NOW = frozenset({"StandbyException", "RetriableException", "SafeModeException", "ObserverRetryOnActiveException"})
"""Nothing was done: another name node is active, or this one is not ready."""

_NO_DATA_NODE = ("No active and not excluded nodes contain this block", "could only be written to 0 of")
"""So says a name node that has just started, before data nodes have reported to it."""

_DENIED = ("HTTP 401", "HTTP 403")
_NOT_WEBHDFS = ("this address does not answer as a name node's web interface", "check storage.namenodes")
_LONGEST = 300
_RETRY = "check the name nodes and the network, then retry"
_REFUSALS = {
    "AccessControlException": ("permission denied", "give the user access, or name another one in storage.user"),
    "AuthorizationException": ("permission denied", "ask for the right to act for that user"),
    "SecurityException": ("access denied", "check the user, the ticket or storage.delegation_token"),
    "IllegalArgumentException": ("the request was refused", "check storage.user and the other options"),
    "InvalidToken": ("the delegation token is not valid, or has run out", "get a new one for storage.delegation_token"),
    "DSQuotaExceededException": ("the space quota is used up", "free some space or raise the quota, then run it again"),
    "NSQuotaExceededException": ("the quota of names is used up", "remove files or raise the quota, then run it again"),
    "PathComponentTooLongException": ("the name is too long", "use shorter partition values"),
    "InvalidPathException": ("HDFS allows no such name", "names on HDFS have no colon; choose other partition values"),
    "ParentNotDirectoryException": ("a file is in the way where a folder should be", "move that file away"),
    "PathIsNotEmptyDirectoryException": ("a folder is in the way where a file should be", "move that folder away"),
    "UnresolvedLinkException": ("a symbolic link is in the way", "put the file itself there"),
}


class Refused(Exception):
    """A definite answer that is an error: the simple name of the Java exception, and its first line."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(name, message)
        self.name, self.message = name, message

    @classmethod
    def read(cls, status: int, body: bytes) -> Refused:
        """From an answer, which is JSON where the cluster's own code gave it."""
        try:
            remote = json.loads(body)["RemoteException"]
            message = str(remote["message"]).strip().partition("\n")[0]
            return cls(_simple(str(remote["exception"]), message), message[:_LONGEST])
        except (ValueError, KeyError, TypeError):
            return cls(f"HTTP {status}", body[:_LONGEST].decode(errors="replace").strip().partition("\n")[0])

    def is_one_of(self, names: frozenset[str]) -> bool:
        return self.name in names


def _simple(exception: str, message: str) -> str:
    """Some answers name a wrapper, and the exception itself at the beginning of the message."""
    for name in NOT_NOW:
        if exception == name or name in message[:200]:
            return name
    if "SecretManager$InvalidToken" in message:
        return "InvalidToken"
    if any(sign in message for sign in _NO_DATA_NODE):
        return "RetriableException"
    if "is not a valid DFS filename" in message or "Invalid path name" in message or "Invalid file name" in message:
        return "InvalidPathException"
    return exception


def refuse(refused: Refused, where: str) -> NoReturn:
    """Raise the error that says what to do; one that lakelock does not know leaves open what became of the request."""
    known = _REFUSALS.get(refused.name)
    if known is None and refused.name.startswith("HTTP 4"):
        known = _REFUSALS["SecurityException"] if refused.name in _DENIED else _NOT_WEBHDFS
    if known is None:
        raise StorageUnavailable(f"{where}: {refused.name}: {refused.message}", hint=_RETRY)
    raise StorageError(f"{where}: {known[0]}: {refused.message}", hint=known[1])


def no_answer(where: str, why: object) -> StorageUnavailable:
    """The error after which a request may or may not have been done."""
    return StorageUnavailable(f"{where}: no definite answer: {why}", hint=_RETRY)


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
        """The URL of the data node that takes a new file's content, to stream it there. Raises as `ask` does."""
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
        """The answer of the active name node, found by asking each: only they know which one it is."""
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
        """A foreign text without the token, which is part of every URL."""
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
