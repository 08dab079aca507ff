"""A test whose server is missing is skipped on a laptop and fails in CI, wherever the server is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

TESTS = """
import pytest
from tests.servers import ServerMissing

@pytest.fixture(scope="module")
def server():
    raise ServerMissing("needs a server: pip install server")

def test_with_a_fixture(server): ...

def test_with_the_same_fixture(server): ...

def test_alone():
    raise ServerMissing("needs a server: pip install server")

def test_of_a_server_that_is_not_ours():
    raise ServerMissing("the server of SERVER is not ours to stop")
"""


def outcomes(folder: Path, environment: dict[str, str]) -> str:
    """The last line that pytest prints for the tests above, under the rules of this suite."""
    (folder / "test_servers.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-c", os.devnull]
    kept = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST")}
    done = subprocess.run(
        [*command, "--rootdir", str(folder), str(folder)],
        cwd=ROOT,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout.strip().splitlines()[-1]


def test_a_missing_server_skips_on_a_laptop(tmp_path: Path) -> None:
    assert " 4 skipped in " in outcomes(tmp_path, {})


def test_a_missing_server_fails_in_ci_and_one_that_is_not_ours_to_stop_is_skipped(tmp_path: Path) -> None:
    told = outcomes(tmp_path, {"CI": "true"})
    assert "1 failed, 1 skipped, 2 errors in " in told, told


def test_the_servers_need_no_pytest() -> None:
    code = "import sys; sys.modules['pytest'] = None; import tests.servers, tests.demo.__main__"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
