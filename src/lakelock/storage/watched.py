"""What is in a folder of a local disk, kept up to date by the kernel's notices (inotify) instead of by listing it again.

The kernel queues a notice before the call returns that created or removed a file. So a reader of the queue knows of every
change that was over before, as from a listing, whichever process made it. That holds for processes of the same kernel only.
Where it may not hold (a file system that other machines mount, no watches left, a full queue, a folder that was moved), nothing
is known and the folder has to be listed: `WatchedFolder.begin` gives None, `take_in` False.
"""

from __future__ import annotations

import ctypes
import os
import struct
import weakref
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, islice

from lakelock.storage.base import Listed, is_temporary

LOCAL_FILE_SYSTEMS = frozenset({"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})
"""Those that no other machine changes."""
MOST_REMEMBERED = 20_000
"""How many changes are remembered for those who ask later."""

_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x4, 0x8, 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _UNMOUNT, _OVERFLOW, _IGNORED = 0x400, 0x800, 0x2000, 0x4000, 0x8000
_ONLYDIR, _DONT_FOLLOW, _ISDIR = 0x1000000, 0x2000000, 0x40000000
_WANTED = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
_LOST = _DELETE_SELF | _MOVE_SELF | _UNMOUNT | _OVERFLOW | _IGNORED
_NOTICE = struct.Struct("iIII")
_marks = count(1)


class WatchedFolder:
    """The files in one folder and those below it, by key. Not for use by several threads at once."""

    def __init__(self, path: str, folder: str, file: int, watch: int) -> None:
        """`folder`: the key of the folder at `path`. `file`: of inotify, and what it calls the folder."""
        self._path, self._pid, self._file = path, os.getpid(), file
        self._closed = weakref.finalize(self, os.close, file)
        self._folders = {watch: (path, folder)}
        self._inode = _inode_of(path)
        self._listed: dict[str, Listed] = {}
        self._keys: list[str] = []
        self._changed: list[str] = []
        self._forgotten = next(_marks) * 10**12  # marks of another watch are never taken for its own

    @classmethod
    def begin(cls, path: str, folder: str) -> WatchedFolder | None:
        """Watch a folder from now on; None if that would not tell everything, or is not possible."""
        if not _is_local(path):
            return None
        file = _call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
        if file < 0:
            return None
        watch = _watch(file, path)
        if watch < 0:
            os.close(file)
            return None
        found = cls(path, folder, file, watch)
        return found if found._scan(path, folder) else None

    @property
    def mark(self) -> int:
        """Says how much of what has changed is known."""
        return self._forgotten + len(self._changed)

    def since(self, mark: int) -> dict[str, Listed | None] | None:
        """What is there now under each key that has changed since a mark; None if that is not remembered."""
        if not self._forgotten <= mark <= self.mark:
            return None
        return {key: self._listed.get(key) for key in self._changed[mark - self._forgotten :]}

    def listed(self, start_after: str) -> Iterator[Listed]:
        """The files after a key, in order, as of the last time that changes were taken in."""
        keys = self._keys[bisect_right(self._keys, start_after) :] if start_after else list(self._keys)
        return iter([self._listed[key] for key in keys])

    def take_in(self) -> bool:
        """Take in what has changed up to now; False if that is not known: then this object is of no use any more."""
        changed: dict[str, str] = {}
        if self._pid != os.getpid() or self._inode != _inode_of(self._path):
            return False
        for watch, kind, name in self._notices():
            if kind & (_LOST | _ISDIR) or watch not in self._folders:
                return False
            path, folder = self._folders[watch]
            if not is_temporary(name):
                changed[f"{folder}/{name}"] = f"{path}/{name}"
        try:
            for key, path in changed.items():
                self._note(key, _listed(key, path))
        except OSError:
            return False
        if len(self._changed) > MOST_REMEMBERED:
            dropped = len(self._changed) - MOST_REMEMBERED // 2
            self._forgotten, self._changed = self._forgotten + dropped, self._changed[dropped:]
        return True

    def _note(self, key: str, now: Listed | None) -> None:
        before = self._listed.get(key)
        if now == before:
            return
        if now is None:
            del self._listed[key]
            del self._keys[bisect_left(self._keys, key)]
        else:
            self._listed[key] = now
            if before is None:
                insort(self._keys, key)
        self._changed.append(key)

    def _notices(self) -> Iterator[tuple[int, int, str]]:
        """Each with the folder's watch, the kind, and the name."""
        while True:
            try:
                data = os.read(self._file, 1 << 16)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                watch, kind, _, length = _NOTICE.unpack_from(data, at)
                at += _NOTICE.size + length
                yield watch, kind, os.fsdecode(data[at - length : at].rstrip(b"\0"))

    def _scan(self, path: str, folder: str) -> bool:
        """Read a folder that is watched already, and watch and read those in it."""
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    key = f"{folder}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        watch = _watch(self._file, entry.path)
                        if watch < 0:
                            return False
                        self._folders[watch] = entry.path, key
                        if not self._scan(entry.path, key):
                            return False
                    elif not is_temporary(entry.name):
                        found = _listed(key, entry.path)
                        if found is not None:
                            self._listed[key] = found
        except OSError:
            return False
        self._keys = sorted(self._listed)
        return True


def _listed(key: str, path: str) -> Listed | None:
    """The file as a listing shows it; None if there is none, or a link or a folder. `OSError` if that cannot be found out."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if (status.st_mode & 0o170000) != 0o100000:
        return None
    return Listed(key, status.st_size, status.st_mtime_ns // 1_000_000)


def _inode_of(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_local(path: str) -> bool:
    """Whether the file system that has the folder is one that no other machine changes."""
    inode = _inode_of(path)
    if inode is None:
        return False
    device = f"{os.major(inode[0])}:{os.minor(inode[0])}"
    with suppress(OSError, ValueError), open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        for mount in mounts:
            fields = mount.split()
            if fields[2] == device:
                return next(islice(fields, fields.index("-") + 1, None)) in LOCAL_FILE_SYSTEMS
    return False


def _watch(file: int, path: str) -> int:
    return _call("inotify_add_watch", file, os.fsencode(path), _WANTED | _ONLYDIR | _DONT_FOLLOW)


def _call(name: str, *given: object) -> int:
    """What a function of the C library returns; -1 also where there is none of this name."""
    try:
        return int(getattr(ctypes.CDLL(None), name)(*given))
    except (AttributeError, OSError):
        return -1
