"""Opens storage by path or URI, spells every table's URI in one way, and says how many requests are made at once."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from lakelock.clock import Runtime, SystemRuntime
from lakelock.errors import SettingsError
from lakelock.storage.base import Storage
from lakelock.storage.hdfs_cluster import RPC_PORT
from lakelock.storage.local import LocalStorage

_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az", "abfss": "abfs"}
_REMOTE_SCHEMES = ("s3", "gs", "az", "abfs", "hdfs")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_NEXT = (
    "use a local path, s3://bucket/path, gs://bucket/path, az://container/path, "
    "abfss://container@account.dfs.core.windows.net/path or hdfs://name-node-or-service/path"
)
_HOLDS = {"hdfs": "name node or name service, such as that of fs.defaultFS in core-site.xml"}
_USUAL_PORT = {"hdfs": f":{RPC_PORT}"}


def canonical_uri(uri: str | os.PathLike[str]) -> str:
    """The one spelling of a table's URI: equal for all names of one table, and unchanged by a second pass.

    Local paths become absolute `file://` URIs with symbolic links and `..` resolved, and are never percent-decoded (as in
    Hadoop). `s3a` and `s3n` are `s3`; `abfss` is `abfs`; repeated and trailing slashes go, and the usual port of `hdfs`. White
    space around `uri` is not part of the name, and a name that ends with it is refused: a copy without it would name another
    table.
    """
    canonical = _in_utf8(_canonical(_in_utf8(os.fspath(uri).strip())))
    if canonical != canonical.strip():
        raise SettingsError(f"the table's path ends with white space: {canonical!r}", hint="rename the folder")
    return canonical


def _in_utf8(text: str) -> str:
    """`text`, or `SettingsError`: locks and object stores know a table by the UTF-8 of its URI."""
    try:
        text.encode()
    except UnicodeEncodeError:
        known = sys.getfilesystemencoding()
        if known != "utf-8":
            raise SettingsError(
                f"the table's path {text!a} has characters that this process does not know: its locale has {known}",
                hint="set a locale with UTF-8, such as LC_ALL=C.UTF-8, or PYTHONUTF8=1",
            ) from None
        raise SettingsError(f"the table's path is not UTF-8: {text!a}", hint="rename the folder") from None
    return text


def _canonical(text: str) -> str:
    if not text or "\0" in text:
        raise SettingsError("the table's path is empty or has a NUL character", hint=_NEXT)
    match = _SCHEME.fullmatch(text)
    if match is None:
        return _local(os.path.expanduser(text) if text.startswith("~/") else text)
    scheme, rest = match[1].lower(), match[2]
    scheme = _SAME_SCHEME.get(scheme, scheme)
    if scheme == "file":
        return _local(_path_of_file_uri(rest))
    if scheme not in _REMOTE_SCHEMES:
        raise SettingsError(f"storage of the kind {scheme}: is not supported", hint=_NEXT, scheme=scheme)
    return _remote(scheme, rest)


def _local(path: str) -> str:
    return f"file://{os.path.realpath(path)}"


def _path_of_file_uri(rest: str) -> str:
    if not rest.startswith("//"):
        path = rest
    else:
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise SettingsError(f"file://{host}/ names another host", hint="write file:///path with three slashes")
        path = slash + path
    if not path.startswith("/"):
        raise SettingsError("a file: URI needs an absolute path", hint="write file:///path, or a plain relative path")
    return path


def _remote(scheme: str, rest: str) -> str:
    bucket, _, path = rest[2:].lstrip("/" if scheme != "hdfs" else "").partition("/")
    bucket = bucket.removesuffix(_USUAL_PORT.get(scheme, "\0"))
    if not rest.startswith("//") or not bucket:
        raise SettingsError(f"the {scheme}: URI names no {_HOLDS.get(scheme, 'bucket or container')}", hint=_NEXT)
    if "@" in bucket and (scheme != "abfs" or ":" in bucket):
        raise SettingsError(
            f"the {scheme}: URI holds credentials",
            hint="take them out of the URI; set them as storage options or in the environment",
        )
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            if not segments:
                raise SettingsError(f"{scheme}://{bucket}/{path} leads out of its bucket", hint="take out the '..'")
            segments.pop()
        elif segment not in ("", "."):
            segments.append(segment)
    return "/".join([f"{scheme}://{bucket}", *segments])


def is_local(uri: str) -> bool:
    """Whether a canonical URI names a folder of this machine."""
    return uri.startswith("file://")


def requests_at_once(uri: str, most: int) -> int:
    """How many of a few short requests to make at the same time: one on a local disk, where a thread takes longer than it."""
    return 1 if is_local(uri) else most


def open_storage(
    uri: str | os.PathLike[str],
    options: Mapping[str, str] | None = None,
    *,
    within_s: float | None = None,
    holds_table: bool = False,
) -> Storage:
    """Storage under `uri`; nothing is contacted yet. `options` are those of the object store (endpoint, keys) or of HDFS.

    `within_s`: how long an answer is waited for, and a request repeated, where the store is remote; by default a minute or so.
    `holds_table`: the table is there, and must not be made anew by writing into it; see `LocalStorage`.
    """
    canonical = canonical_uri(uri)
    if is_local(canonical):
        return LocalStorage(canonical.removeprefix("file://"), holds_table=holds_table)
    if canonical.startswith("hdfs://"):
        from lakelock.storage.hdfs import HdfsStorage

        return HdfsStorage(canonical, options, within_s=within_s)
    from lakelock.storage.objects import ObjectStorage

    return ObjectStorage(canonical, options or {}, within_s=within_s)


@dataclass(frozen=True)
class StorageLocation:
    """Where a table is and how to reach it, small and picklable: what executors receive. Options may hold secrets."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, uri: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> StorageLocation:
        """The location with its URI in canonical form."""
        return cls(canonical_uri(uri), dict(options or {}))

    def sibling(self, uri: str) -> StorageLocation:
        """Another place, reached with the same options."""
        return StorageLocation(uri, self.options)

    def open(self, *, within_s: float | None = None, holds_table: bool = False) -> Storage:
        return open_storage(self.uri, self.options, within_s=within_s, holds_table=holds_table)


T = TypeVar("T")


@dataclass(frozen=True)
class TableIO:
    """A table's storage, and how many requests this process has under way at once there."""

    storage: Storage
    runtime: Runtime = field(default_factory=SystemRuntime)
    concurrent_requests: int = 1

    def gather(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make requests, several at a time, and return their answers in order; the first error is raised."""
        return self.runtime.gather(calls, limit=self.concurrent_requests)
