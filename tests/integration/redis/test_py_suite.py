"""redis-py's own tests of its Lock, of the version that is installed here, run against the lakelock provider."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from tests.integration.redis.redis_py_adapter import SKIPPED
from tests.integration.sources import source_file
from tests.servers.locks.redis import RedisServer

_ADAPTER = Path(__file__).with_name("redis_py_adapter.py")


def test_redis_pys_own_lock_tests_pass_and_each_that_is_left_out_has_a_reason(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "__init__.py").touch()
    (theirs / "conftest.py").write_bytes(_ADAPTER.read_bytes())
    (theirs / "test_lock.py").write_text(source_file("redis", "tests/test_lock.py", tmp_path))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={tmp_path}/results.xml", theirs]
    with RedisServer(tmp_path / "server") as server:
        env = {**os.environ, "LOCK_TESTS_PORT": str(server.port)}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200, check=False)
    cases = list(ElementTree.parse(tmp_path / "results.xml").iter("testcase"))
    skipped = {case.get("name"): found.get("message") for case in cases if (found := case.find("skipped")) is not None}
    assert done.returncode == 0, done.stdout
    assert skipped == {name: reason for name, reason in SKIPPED.items() if name in {case.get("name") for case in cases}}
    assert len(cases) - len(skipped) >= 15, done.stdout
