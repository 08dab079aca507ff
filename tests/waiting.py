"""Waiting in tests: for what comes to be at some time, and with a clock for what is promised within a bound."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

PATIENT_S = 120.0
"""Long for any machine: for what has no bound of its own."""

_LOOK_EACH_S = 0.01


def eventually(what: Callable[[], Any], within_s: float = PATIENT_S, *, saying: str = "it happens") -> Any:
    """What `what` gives as soon as that is true; fails after `within_s`."""
    until_s = time.monotonic() + within_s
    while not (found := what()):
        assert time.monotonic() < until_s, f"not within {within_s:g} s: {saying}"
        time.sleep(_LOOK_EACH_S)
    return found


def kept_s(looks: Iterable[float]) -> float:
    """How long nobody let a thread run that looked at the clock at these times and wanted to each `_LOOK_EACH_S`."""
    return sum(max(0.0, after - before - 2 * _LOOK_EACH_S) for before, after in pairwise(looks))


class Stopwatch:
    """`with Stopwatch() as watch`: what a block took, without the time that the machine kept from this process.

    A thread that wants to run a hundred times a second tells how long nobody let it: on a machine with too much work the
    code under test had to wait as long. So a bound can be as tight as what is promised.
    """

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="stopwatch", daemon=True)

    def __enter__(self) -> Stopwatch:
        self._looks = [time.monotonic()]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        ended_s = time.monotonic()
        self._over.set()
        self._thread.join()
        # The block may go on before the thread does: what was kept from both of them counts up to the end of the block.
        looks = [*(look for look in self._looks if look < ended_s), ended_s]
        self.wall_s = ended_s - looks[0]
        self.took_s = self.wall_s - kept_s(looks)

    def _tick(self) -> None:
        while not self._over.wait(_LOOK_EACH_S):
            self._looks.append(time.monotonic())
