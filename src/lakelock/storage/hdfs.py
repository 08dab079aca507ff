"""HDFS as storage. What it has no request for is made of those that it has.

**Create if absent**: the content goes into a temporary file (`.<random>.tmp`), which is renamed; a rename onto a name
that is there is refused. An empty object needs no temporary file.

**Replace if it is still that version**: a version is a file's inode number, which never comes again. Each file has at
most one successor: an extended attribute of it, made in one atomic step by the first writer, names the inode of the new
content. That decides; then the new file is renamed over the old one. A client that finds a successor that is not in
place, because its writer was killed in between, puts it there first. A deleted successor will never be in place: the next
attribute counts.

A snapshot of the folder keeps replaced versions, and a request about one of them by its number reaches the file that has
its name now. So an attribute names the version that it is about, and the number under the name is compared afterwards:
only a version's own attribute and its own content count.

Temporary files that a crash leaves start with a dot, so no listing shows them. A listing goes to any depth in the order
of keys: a name node lists one folder, by the bytes of the names, which are signed numbers to it: `ä` comes before `a`.

Data files are Python files: ranges are read on demand, content is streamed to a data node while more is written.
"""

from __future__ import annotations

import io
import os
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import IO, TYPE_CHECKING, NoReturn, cast
from urllib.parse import urlsplit

from lakelock.clock import Runtime, SystemRuntime, login_name
from lakelock.errors import StorageError, StorageUnavailable, StorageUnsafe
from lakelock.storage.base import METADATA_FOLDER, Listed, Stored, checked, checked_prefix, is_past, is_temporary, range_reader
from lakelock.storage.hdfs_cluster import (
    ABSENT,
    EXISTS,
    RETRY_S,
    Cluster,
    HdfsOptions,
    Refused,
    Status,
    authority,
    inode,
    no_answer,
    refuse,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


_BUFFER_BYTES = 1 << 20


def open_writer(place: str, where: str, options: HdfsOptions) -> IO[bytes]:
    """A writer of a new file at this URL of a data node; raises `StorageUnavailable` where it does not answer.

    urllib3 takes a request's whole body, or asks for the parts: to be handed them needs the standard library's client.
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


def walk(cluster: Cluster, root: str, folder: str, prefix: str, start_after: str) -> Iterator[Listed]:
    """Files below `root` whose key begins with `folder` (with its slash) and is greater than `start_after`."""
    for name, found in _entries(cluster, root, folder):
        key = folder + name
        if name[-1] == "/":
            if not is_past(key, start_after) and (prefix or key != f"{METADATA_FOLDER}/"):
                yield from walk(cluster, root, key, prefix, start_after)
        elif key > start_after and not is_temporary(name):
            yield Listed(key, found.size_bytes, found.modified_ms)


def _entries(cluster: Cluster, root: str, folder: str) -> list[tuple[str, Status]]:
    """What is in one folder, in the order of keys: folders count with their trailing slash."""
    found = []
    for each in cluster.entries(f"{root}/{folder}".rstrip("/") or "/"):
        if each.kind == "DIRECTORY":
            found.append((f"{each.name}/", each))
        elif each.is_file and each.name:
            found.append((each.name, each))
    return sorted(found, key=lambda entry: entry[0])


_SUCCESSOR = "user.lakelock.successor"
_SUCCESSORS = 8
_LOOKS = 5
_DATA_NODES = 3
_SAME_FILE = "are the same"


class HdfsStorage:
    """Objects under a folder of a cluster. `options` are those of `HdfsOptions`, by name.

    `within_s`: how long to wait for an answer, and to repeat a request; an option `timeout_s` is taken as it is.
    """

    def __init__(
        self,
        uri: str,
        options: Mapping[str, str] | None = None,
        *,
        runtime: Runtime | None = None,
        within_s: float | None = None,
    ) -> None:
        self._uri, self._runtime = uri, runtime or SystemRuntime()
        self._service = f"hdfs://{authority(uri)}"
        self._root = uri.removeprefix(self._service)
        waits = {} if within_s is None else {"timeout_s": str(within_s)}
        read = HdfsOptions.of(uri, {**waits, **(options or {})}, os.environ.get("HADOOP_USER_NAME") or login_name())
        self._cluster = Cluster(uri, read, self._runtime, retry_s=within_s or RETRY_S)

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def listing_seeks(self) -> bool:
        return False

    def get(self, key: str) -> Stored | None:
        path = self._path(key)
        for _ in range(_LOOKS):
            found = self._cluster.status(path)
            if found is None or not found.is_file:
                return None
            try:
                data = self._cluster.read(inode(found.inode), 0, found.size_bytes) if found.size_bytes else b""
            except Refused as refused:
                if not refused.is_one_of(ABSENT):
                    self._refuse(refused, path)
                continue  # replaced or deleted since
            if self._is_now(path, found.inode):
                return Stored(data, str(found.inode), found.modified_ms)
        raise StorageUnavailable(f"{self._service}{path} was replaced {_LOOKS} times while it was read", hint="run it again")

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True) -> str | None:
        path = self._path(key)
        if not data:
            return self._create_empty(path)
        made, temporary = self._write_temporary(path, data)
        try:
            self._cluster.ask("PUT", inode(made), "RENAME", {"destination": path, "renameoptions": "NONE"})
        except Refused as refused:
            self._discard(temporary)
            if refused.is_one_of(EXISTS):
                return None
            self._refuse(refused, path)
        except StorageUnavailable:
            found = self._cluster.status(path)
            if found is None or found.inode != made:
                raise
        return str(made)

    def put_if_match(self, key: str, data: bytes, etag: str) -> str | None:
        path = self._path(key)
        found = self._cluster.status(path)
        if found is None or str(found.inode) != etag:
            return None
        made, temporary = self._write_temporary(path, data)
        for turn in range(_SUCCESSORS):
            successor = self._successor(etag, made, turn)
            if successor == made:
                if self._is_now(path, found.inode, made):
                    self._put_in_place(made, path)
                elif self._is_withdrawn(temporary):
                    return None
                return str(made)
            if successor is None or not self._is_now(path, found.inode, successor) or self._put_in_place(successor, path):
                self._discard(temporary)
                return None
        self._discard(temporary)
        raise StorageError(
            f"{self._service}{path}: {_SUCCESSORS} replacements of one version were deleted before they were in place",
            hint="keep other programs from deleting files named .*.tmp of this table, and write the object again",
        )

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        made, temporary = self._write_temporary(path, data)
        if not self._put_in_place(made, path):
            raise self._gone(temporary)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[Listed]:
        folder = checked_prefix(prefix)
        return walk(self._cluster, self._root, f"{folder}/" if folder else "", folder, start_after)

    def delete(self, keys: Iterable[str]) -> None:
        folders = set()
        for key in keys:
            path = self._path(key)
            self._delete(path)
            folders.add(path.rpartition("/")[0])
        for folder in sorted(folders, reverse=True):
            self._prune_empty(folder)

    def delete_folder(self, folder: str) -> None:
        self._delete(self._path(checked_prefix(folder)), recursive=True)

    def open_input(self, key: str, *, size_bytes: int = 0) -> IO[bytes]:
        path = self._path(key)

        def fetch(start: int, length: int) -> bytes:
            try:
                return self._cluster.read(path, start, length)
            except Refused as refused:
                if refused.is_one_of(ABSENT):
                    raise self._missing(path) from None
                self._refuse(refused, path)

        if not size_bytes:
            found = self._cluster.status(path)
            if found is None or not found.is_file:
                raise self._missing(path)
            size_bytes = found.size_bytes
        return range_reader(size_bytes, fetch)

    def open_output(self, key: str) -> IO[bytes]:
        path = self._path(key)
        for attempt in range(1, _DATA_NODES + 1):
            try:
                return open_writer(self._cluster.place_to_write(path), f"{self._service}{path}", self._cluster.options)
            except Refused as refused:
                self._refuse(refused, path)
            except StorageUnavailable:  # that data node is down, and the name node does not know it yet
                if attempt == _DATA_NODES:
                    raise
        raise AssertionError("unreachable")

    def _path(self, key: str) -> str:
        return f"{self._root}/{checked(key)}"

    def _refuse(self, refused: Refused, path: str) -> NoReturn:
        refuse(refused, f"{self._service}{path}")

    def _create_empty(self, path: str) -> str | None:
        try:
            self._cluster.write(path, b"", overwrite=False)
        except Refused as refused:
            if refused.is_one_of(EXISTS):
                return None
            self._refuse(refused, path)
        found = self._cluster.status(path)
        return str(found.inode) if found else "0"  # it was removed since

    def _write_temporary(self, path: str, data: bytes) -> tuple[int, str]:
        """Write `data` next to `path`; its inode, and its path."""
        temporary = f"{path.rpartition('/')[0]}/.{self._runtime.uuid()}.tmp"
        try:
            self._cluster.write(temporary, data, overwrite=True)
        except Refused as refused:
            self._refuse(refused, path)
        found = self._cluster.status(temporary)
        if found is None:
            raise self._gone(temporary)
        return found.inode, temporary

    def _missing(self, path: str) -> StorageError:
        return StorageError(
            f"{self._service}{path}: no such file", hint="check the path; another process may have removed it", missing=True
        )

    def _gone(self, temporary: str) -> StorageUnavailable:
        return StorageUnavailable(f"{self._service}{temporary} is gone", hint="another process removes it; run it again")

    def _successor(self, etag: str, made: int, turn: int) -> int | None:
        """Make `made` the successor of this version unless it has one; the one that it has, or None if the version is gone."""
        name, value = f"{_SUCCESSOR}.{etag}.{turn}", f"0x{str(made).encode().hex()}"
        try:
            self._cluster.ask("PUT", inode(etag), "SETXATTR", {"xattr.name": name, "xattr.value": value, "flag": "CREATE"})
        except Refused as refused:
            return None if refused.is_one_of(ABSENT) else self._known_successor(etag, name, refused)
        except StorageUnavailable as unanswered:
            return self._known_successor(etag, name, unanswered)
        return made

    def _known_successor(self, etag: str, name: str, why: Refused | StorageUnavailable) -> int | None:
        """The successor that a version has; where it has none, the request to make one failed for another reason."""
        try:
            found = self._cluster.ask("GET", inode(etag), "GETXATTRS", {"xattr.name": name, "encoding": "HEX"}, again=True)
        except Refused as refused:
            if refused.is_one_of(ABSENT):
                return None
            if isinstance(why, StorageUnavailable):
                raise why from None
            if "already exists" in why.message:  # and its version was replaced since: both requests met what has the name
                return None
            if "XAttr" in why.message and "disabled" in why.message:
                raise StorageUnsafe(
                    f"{self._uri}: {why.message}", hint="set dfs.namenode.xattrs.enabled=true on the name nodes"
                ) from None
            refuse(why, self._uri)
        (attribute,) = found["XAttrs"]
        return int(bytes.fromhex(attribute["value"].removeprefix("0x")))

    def _is_now(self, path: str, *numbers: int) -> bool:
        """Whether one of these files has the name."""
        found = self._cluster.status(path)
        return found is not None and found.inode in numbers

    def _is_withdrawn(self, temporary: str) -> bool:
        """Delete new content that was not put in place; False when it is gone, because another writer put it there.

        Sent once: a repeated deletion would find its own work.
        """
        try:
            return bool(self._cluster.ask("DELETE", temporary, "DELETE")["boolean"])
        except Refused as refused:
            self._refuse(refused, temporary)

    def _put_in_place(self, number: int, path: str) -> bool:
        """Rename the file over whatever has the name; False when that file is gone, because it was put there and replaced."""
        try:
            self._cluster.ask("PUT", inode(number), "RENAME", {"destination": path, "renameoptions": "OVERWRITE"}, again=True)
        except Refused as refused:
            if refused.is_one_of(ABSENT):
                return False
            if _SAME_FILE not in refused.message:
                self._refuse(refused, path)
        return True

    def _discard(self, temporary: str) -> None:
        with suppress(Refused, StorageError):
            self._cluster.ask("DELETE", temporary, "DELETE", again=True)

    def _delete(self, path: str, *, recursive: bool = False) -> None:
        try:
            self._cluster.ask("DELETE", path, "DELETE", {"recursive": str(recursive).lower()}, again=True)
        except Refused as refused:
            if not refused.is_one_of(ABSENT):
                self._refuse(refused, path)

    def _prune_empty(self, folder: str) -> None:
        """Remove the folder and those above it while they are empty; the root, its folders and their folders stay."""
        while folder.startswith(f"{self._root}/") and folder.count("/") - self._root.count("/") > 2:
            try:
                self._cluster.ask("DELETE", folder, "DELETE", {"recursive": "false"}, again=True)
            except Refused:
                return
            folder = folder.rpartition("/")[0]
