"""kazoo's own tests of its locks, of the version that is installed here, run against our commit lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from tests.integration.sources import source_file
from tests.servers.locks.zookeeper import ENVIRONMENT

from lakelock.testing.service import Service

_ADAPTER = Path(__file__).with_name("kazoo_adapter.py")
_SKIPPED = {"test_lock_cancel", "test_lock_ephemeral", "test_read_lock", "test_write_lock", "test_rw_lock"}


def test_kazoos_own_lock_tests_pass_and_each_that_is_left_out_has_a_reason(zookeeper: Service, tmp_path: Path) -> None:
    theirs = tmp_path / "kazoo" / "tests"
    theirs.mkdir(parents=True)
    for name in ("__init__.py", "util.py", "test_lock.py"):
        (theirs / name).write_text(source_file("kazoo", f"kazoo/tests/{name}", tmp_path))
    server = zookeeper.url("kazoos-own-tests").partition("://")[2]
    env = {**os.environ, "FULL": "1", ENVIRONMENT: server, "KAZOO_SOURCES": str(theirs.parent)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={tmp_path}/results.xml"]
    # One that stands still fails before the whole of it is given up, and shows where each thread is.
    command += ["--timeout=100", str(_ADAPTER)]
    done = subprocess.run(command, cwd=_ADAPTER.parents[3], env=env, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout
    cases = list(ElementTree.parse(tmp_path / "results.xml").iter("testcase"))
    skipped = {case.get("name"): found.get("message") for case in cases if (found := case.find("skipped")) is not None}
    assert set(skipped) == _SKIPPED and all(skipped.values())
    ran = {(case.get("classname"), case.get("name")) for case in cases if case.find("skipped") is None}
    assert len(ran) >= 11, done.stdout
