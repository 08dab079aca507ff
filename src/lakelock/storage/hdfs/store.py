"""HDFS as storage. What it has no request for is made of those that it has.

**Create if absent**: the content goes into a temporary file (`.<random>.tmp`), which is renamed; a rename onto a name that is
there is refused. An empty object needs no temporary file.

**Replace if it is still that version**: a version is a file's inode number, which never comes again. Each file has at most one
successor: an extended attribute of it, made in one atomic step by whoever comes first, names the inode of the new content. That
decides; then the new file is renamed over the old one. Whoever finds a successor that is not in place, because its writer was
killed in between, puts it there first. A successor that somebody has deleted will never be in place: the next attribute counts.

A snapshot of the folder keeps replaced versions, and a request about one of them by its number reaches the file that has its
name now. So an attribute names the version that it is about, and the number under the name is compared afterwards: only a
version's own attribute and its own content count.

Temporary files that a crash leaves start with a dot, so no listing shows them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import IO, NoReturn

from lakelock.clock import Runtime, SystemRuntime, login_name
from lakelock.errors import StorageError, StorageUnavailable, StorageUnsafe
from lakelock.storage.base import Listed, Stored
from lakelock.storage.hdfs import files
from lakelock.storage.hdfs.cluster import RETRY_S, Cluster, inode
from lakelock.storage.hdfs.errors import ABSENT, EXISTS, Refused, refuse
from lakelock.storage.hdfs.listing import walk
from lakelock.storage.hdfs.options import HdfsOptions, authority
from lakelock.storage.keys import checked, checked_prefix
from lakelock.storage.ranges import reader

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
        return reader(size_bytes, fetch)

    def open_output(self, key: str) -> IO[bytes]:
        path = self._path(key)
        for attempt in range(1, _DATA_NODES + 1):
            try:
                return files.open_writer(self._cluster.place_to_write(path), f"{self._service}{path}", self._cluster.options)
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
        return str(found.inode) if found else "0"  # somebody has removed it since

    def _write_temporary(self, path: str, data: bytes) -> tuple[int, str]:
        """Write `data` beside `path`; its inode, and its path."""
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
        return StorageUnavailable(f"{self._service}{temporary} is gone", hint="somebody removes this folder; run it again")

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
