"""A terminal for tests, and what it shows."""

from __future__ import annotations

import os
import pty
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from unittest.mock import patch

BOUND_S = 60


@contextmanager
def terminal(columns: int = 160) -> Iterator[int]:
    """A terminal in the place of standard error; what it shows can be read here."""
    screen, end = pty.openpty()
    try:
        looks = {"TERM": "xterm", "COLUMNS": str(columns)}  # rich asks the process's own streams for the width
        with patch.dict(os.environ, looks), open(end, "w", encoding="utf-8") as stderr, redirect_stderr(stderr):
            yield screen
    finally:
        os.close(screen)


def seen_until(screen: int, text: str) -> str:
    """What the terminal has shown when this text is there."""
    shown, deadline = b"", time.monotonic() + BOUND_S
    while text not in shown.decode(errors="replace"):
        ready, _, _ = select.select([screen], [], [], max(0.0, deadline - time.monotonic()))
        assert ready and time.monotonic() < deadline, f"{text!r} is not shown: {shown.decode(errors='replace')!r}"
        shown += os.read(screen, 4096)
    return shown.decode(errors="replace")
