"""Servers from npm, installed into the virtual environment at their first use."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(sys.prefix) / "lakelock-servers"
OLDEST_NODE = 20
_INSTALL_S = 180.0


@dataclass(frozen=True)
class NpmPackage:
    """A package with a program for Node, such as `dynalite@4` with `cli.js`."""

    name: str
    version: str
    program: str

    @property
    def path(self) -> Path:
        return self._folder / "node_modules" / self.name / self.program

    def is_there(self) -> bool:
        """Whether it can run here; installs it if need be. False without Node, npm or a registry: the reason is in a file."""
        if _node() < OLDEST_NODE:
            return False
        if self._installed.exists():
            return True
        npm = shutil.which("npm")
        if npm is None or not os.access(sys.prefix, os.W_OK):
            return False
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (self._installed.exists() or self._failed.exists()):
                self._install(npm)
        return self._installed.exists()

    @property
    def _folder(self) -> Path:
        return FOLDER / self.name

    @property
    def _installed(self) -> Path:
        """Written when npm has ended: before that the program is there and lacks modules."""
        return self._folder / "installed"

    @property
    def _failed(self) -> Path:
        return self._folder / "failed"

    def _install(self, npm: str) -> None:
        """Once per virtual environment, and bounded."""
        quickly = ["--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=20000"]
        command = [npm, "install", *quickly, "--prefix", str(self._folder), f"{self.name}@{self.version}"]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
            said, is_whole = ended.stderr, ended.returncode == 0
        except subprocess.TimeoutExpired:
            said, is_whole = f"npm took longer than {_INSTALL_S:.0f} s", False
        if is_whole:
            self._installed.touch()
        else:
            self._failed.write_text(f"remove this file to try again\n{said}")


def _node() -> int:
    node = shutil.which("node")
    if node is None:
        return 0
    shown = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    found = re.match(r"v(\d+)\.", shown)
    return int(found[1]) if found else 0
