"""Steps of a transaction: a process does nothing at them unless its own code asks for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALL_STEPS = "from lakelock.events import Step, reached; [reached(step) for step in Step]"


@pytest.mark.parametrize(
    ("code", "status"),
    [(ALL_STEPS, 0), (f"from tests.crashing import arm; arm(); {ALL_STEPS}", -signal.SIGKILL)],
    ids=["the product", "a process of the tests"],
)
def test_only_a_process_of_the_tests_dies_because_of_its_environment(code: str, status: int) -> None:
    environment = {**os.environ, "LAKELOCK_CRASH_AT": "decided"}
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=False, timeout=60)
    assert ended.returncode == status
