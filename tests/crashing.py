"""Processes that are killed or stopped at a named step.

A process that has called `arm` dies by SIGKILL when it reaches the step that the environment variable `LAKELOCK_CRASH_AT` names
(`decided`, or `decided:2` for the second time), and is stopped by SIGSTOP at that of `LAKELOCK_STOP_AT`. Modules that are
processes of their own call it first.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

from lakelock.events import Step, at_each_step

_SIGNALS = {"LAKELOCK_CRASH_AT": signal.SIGKILL, "LAKELOCK_STOP_AT": signal.SIGSTOP}


def arm() -> None:
    """Do from now on what the environment asks for as it is now; a fork that has another one calls it again."""
    wanted = {variable: os.environ[variable].partition(":") for variable in _SIGNALS if variable in os.environ}
    times_reached: Counter[str] = Counter()

    def strike(step: Step) -> None:
        for variable, (name, _, nth) in wanted.items():
            if name == step.value:
                times_reached[variable] += 1
                if times_reached[variable] == int(nth or 1):
                    os.kill(os.getpid(), _SIGNALS[variable])

    at_each_step(strike)
