"""The command line as tests run it, and a dead writer for it to find."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.api import Coordinator, LocalStorage, Storage, Transaction, layout
from tests.behaviour import tables
from tests.behaviour.tables import put_file
from typer.testing import CliRunner

from lakelock.cli.main import app
from lakelock.settings import Settings


@dataclass
class Ended:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(*arguments: str, stdin: str | None = None) -> Ended:
    result = CliRunner().invoke(app, [*arguments], input=stdin, env={"NO_COLOR": "1"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


def on_terminal(*arguments: str, columns: int, module: str = "lakelock.cli") -> str:
    """What a command shows on a terminal of so many columns, before the terminal wraps it."""
    mine, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "FORCE_COLOR")}
    command = [sys.executable, "-m", module, *arguments]
    shown = b""
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env={**kept, "NO_COLOR": "1", "TERM": "xterm"}):
        os.close(its)
        with suppress(OSError):  # it ends with one on Linux
            while read := os.read(mine, 65536):
                shown += read
    os.close(mine)
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n")


def everything(storage: Storage) -> set[str]:
    return {entry.key for prefix in ("", ".hoodie") for entry in storage.list(prefix)}


def writer(storage: Storage, *, name: str = "w") -> Coordinator:
    """A writer that a busy machine cannot take for dead."""
    return tables.writer(storage, Settings(), name=name)


def left_by_a_dead_writer(storage: LocalStorage) -> Transaction:
    """A transaction whose process died ten minutes ago, after it had written a file."""
    tx = writer(storage, name="gone").begin("INSERT")
    put_file(tx, storage, "month=9", "dead")
    tx.detach()
    beat = Path(storage.root) / layout.heartbeat(tx.instant)
    long_ago = beat.stat().st_mtime - 600
    os.utime(beat, (long_ago, long_ago))
    return tx
