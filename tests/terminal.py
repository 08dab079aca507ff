"""A terminal for tests, and what it shows."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

BOUND_S = 60


@contextmanager
def terminal(columns: int = 160) -> Iterator[int]:
    """A terminal in the place of standard error; what it shows can be read here."""
    screen, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    before = os.environ.get("TERM")
    os.environ["TERM"] = "xterm"
    try:
        with open(end, "w", encoding="utf-8") as stderr, redirect_stderr(stderr):
            yield screen
    finally:
        os.environ.pop("TERM")
        if before is not None:
            os.environ["TERM"] = before
        os.close(screen)


def seen_until(screen: int, text: str) -> str:
    """What the terminal has shown when this text is there."""
    shown, deadline = b"", time.monotonic() + BOUND_S
    while text not in shown.decode(errors="replace"):
        if not select.select([screen], [], [], max(0.0, deadline - time.monotonic()))[0]:
            break
        shown += os.read(screen, 4096)
    return shown.decode(errors="replace")
