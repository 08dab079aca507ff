"""Wrong clocks for real processes: the system clock as one process sees it, set and set again, by libfaketime.

What measures durations (the monotonic clock) and the times of files stay right, as they do when somebody sets the clock of
one machine.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


def _library() -> str:
    found = importlib.util.find_spec("libfaketime")
    places = [
        Path(place) / "vendor/libfaketime/src/libfaketime.so.1" for place in (found and found.submodule_search_locations) or []
    ]
    for place in places:
        if place.exists():
            return str(place)
    pytest.skip("needs libfaketime for this machine: pip install libfaketime")


class Clock:
    """The clock of one process; `set` moves it while the process runs."""

    def __init__(self, file: Path, offset_s: int) -> None:
        self._file = file
        self.set(offset_s)
        self.env = {
            "LD_PRELOAD": _library(), "FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_NO_CACHE": "1", "NO_FAKE_STAT": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
        }  # fmt: skip

    def set(self, offset_s: int) -> None:
        """Off by so many seconds from now on."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset_s:+d}s\n")
        new.replace(self._file)
