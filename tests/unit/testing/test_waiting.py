"""The stopwatch of tests, on a process that is really stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from tests.waiting import kept_s

PAUSE_S = 1.0
WATCHED = """
from tests.waiting import Stopwatch
with Stopwatch() as watch:
    print("begun", flush=True)
    input()
print(watch.wall_s, watch.took_s)
"""


def test_only_time_in_which_the_process_ran_counts() -> None:
    punctual = [number / 100 for number in range(200)]
    assert kept_s(punctual) == 0
    assert kept_s([*punctual, *(3 + look for look in punctual)]) == pytest.approx(3 - 1.99 - 0.02)


def test_a_pause_of_its_process_does_not_count() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", WATCHED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as watched:
        assert watched.stdout is not None
        assert watched.stdout.readline() == "begun\n"
        watched.send_signal(signal.SIGSTOP)
        time.sleep(PAUSE_S)
        watched.send_signal(signal.SIGCONT)
        said, _ = watched.communicate("\n", timeout=60)
    wall_s, took_s = map(float, said.split())
    assert wall_s - took_s > PAUSE_S - 0.1
    assert took_s >= 0
