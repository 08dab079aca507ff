"""The demo's processes: started apart from each other, judged by how they end, and never left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.api import SystemRuntime
from tests.demo.crew import Crew
from tests.demo.flights import DemoError
from tests.demo.plan import ERASURE, LATE_FEED

SLEEPER = "import subprocess, sys; subprocess.Popen(['sleep', '60']); print('up', flush=True); sys.stdin.read()"


def crew_with(tmp_path: Path, writer: str, code: str) -> tuple[Crew, "subprocess.Popen[bytes]"]:
    """A crew whose writer runs `code` instead of Spark."""
    (tmp_path / "logs").mkdir(exist_ok=True)
    (tmp_path / "logs" / f"{writer}.log").write_text("the last words\n")
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    return Crew(tmp_path, SystemRuntime(), {writer: process}), process


def test_leaving_the_crew_ends_a_writer_and_what_it_has_started(tmp_path: Path):
    crew, process = crew_with(tmp_path, ERASURE, SLEEPER)
    with crew:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        assert crew.is_running([ERASURE])
    assert process.poll() == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_a_writer_that_fails_is_reported_with_the_end_of_its_log(tmp_path: Path):
    crew, process = crew_with(tmp_path, ERASURE, "raise SystemExit(1)")
    process.wait(30)
    with crew, pytest.raises(DemoError, match=r"erasure failed with 1.*\n.*the last words"):
        crew.check()


def test_a_writer_that_was_to_be_killed_and_survives_is_an_error_and_one_that_is_killed_is_none(tmp_path: Path):
    crew, process = crew_with(tmp_path, LATE_FEED, "pass")
    process.wait(30)
    with crew, pytest.raises(DemoError, match="late-feed ended with 0 instead of being killed at 'decided'"):
        crew.check()
    killed, process = crew_with(tmp_path, LATE_FEED, "import os; os.kill(os.getpid(), 9)")
    process.wait(30)
    with killed:
        killed.check()
        assert killed.ended() == {LATE_FEED: -signal.SIGKILL}
