"""Signals between the demo's processes: a signal is a file that exists. Every wait has a bound."""

from __future__ import annotations

from pathlib import Path

from tests.api import Runtime
from tests.demo.flights import DemoError

POLL_S = 0.05


class Signals:
    """Signals in one folder. Giving one twice is the same as giving it once."""

    def __init__(self, folder: Path, runtime: Runtime) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._runtime = folder, runtime

    def give(self, name: str) -> None:
        (self._folder / name).touch()

    def given(self, name: str) -> bool:
        return (self._folder / name).exists()

    def wait_for(self, name: str, within_s: float) -> None:
        """Return when the signal is given; `DemoError` after `within_s` seconds."""
        deadline_s = self._runtime.monotonic_s() + within_s
        while not self.given(name):
            if self._runtime.monotonic_s() > deadline_s:
                raise DemoError(f"'{name}' did not happen within {within_s:.0f} s")
            self._runtime.sleep(POLL_S)
