"""Disks that fill up, turn read-only and lose their permissions, for tests of faults."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PAGE = 4096
SIZE = 4 << 20


class SmallDisk:
    """A mounted file system of a few megabytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def leave(self, pages: int) -> None:
        """Fill it up but for so many pages."""
        self.free()
        room = os.statvfs(self.folder).f_bavail
        self._filler.write_bytes(bytes(max(0, room - pages) * PAGE))

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    def remount(self, how: str) -> None:
        """`ro` or `rw`."""
        subprocess.run(["mount", "-o", f"remount,{how}", str(self.folder)], check=True, capture_output=True, timeout=30)


@contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small file system")
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if mounted.returncode != 0:
        # Also root of a container may not be allowed to; that is no fault of the machine.
        pytest.skip(f"nobody may mount a file system here: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True, timeout=30)


def allow_writing(path: str, allowed: bool) -> None:
    """Whether anything may be made or removed in any folder of the table, by processes that obey permissions."""
    for folder, _, _ in os.walk(path):
        os.chmod(folder, 0o777 if allowed else 0o555)
