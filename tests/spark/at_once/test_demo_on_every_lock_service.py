"""The demo as users run it, on each lock service, which it starts: seven Spark writers and three agents, four killed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.api import LocalStorage
from tests.behaviour.tables import leftovers
from tests.demo.__main__ import FAILED, OK
from tests.demo.flights import SMALLEST
from tests.demo.lock_service import NAMES
from tests.demo.run import LIMIT_S
from tests.demo.verdict import READERS, READERS_OF_LOGS
from tests.integration.matrix import mark
from tests.servers import ServerMissing
from tests.spark.writers_jvm import WRITERS_JVM

from lakelock.occ.recorded_lock import recorded_provider

DEFAULT = "storage"
END_S = 60
"""How long the demo may take for its end, after the limit of its own."""


@pytest.fixture(params=[DEFAULT, *(pytest.param(name, marks=pytest.mark.long) for name in NAMES if name != DEFAULT)])
def lock(request):
    """A name that `--lock` takes; says in the reports which cell of the lock matrix this is."""
    mark(request.node, NAMES[request.param], "Spark writers")
    return request.param


@pytest.mark.in_ci
@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 3 * END_S)
def test_all_readers_agree_after_the_demo_whose_writers_share_a_jvm_and_four_processes_are_killed(lock, tmp_path):
    folder = tmp_path / "demo"
    code, told, errors = demo("--lock", lock, "--size", str(SMALLEST), "--seed", "7", "--plain", "--path", str(folder))
    if code == FAILED and f"--lock {lock}: needs " in errors:
        raise ServerMissing(errors)
    assert code == OK, f"{told}\n{errors}"
    assert told.count(" killed by SIGKILL between ") == 4
    assert "correction-b  early conflict with correction-a" in told
    assert [reader for reader in READERS if f"OK    {reader}: " not in told] == []
    assert "all readers agree with the serial replay: " in told and f"lock service {NAMES[lock]}" in told
    table = LocalStorage(str(folder / "flights"))
    assert leftovers(table) == []
    assert "auditor" in told and ", halves seen: 0" in told
    assert [leftovers(LocalStorage(str(folder / name))) for name in ("bookings", "seats")] == [[], []]
    assert NAMES[lock] in str(recorded_provider(table)).replace("hive:", "hive_metastore:")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 3 * END_S)
@pytest.mark.parametrize("store", ["s3", "hdfs"])
def test_all_readers_agree_after_the_demo_elsewhere(tmp_path, store):
    folder = tmp_path / "demo"
    asked = ("--store", store, "--size", str(SMALLEST), "--seed", "7", "--plain", "--path", str(folder))
    code, told, errors = demo(*asked, shared_jvm=False)
    assert code == OK, f"{told}\n{errors}"
    assert "all readers agree with the serial replay: " in told and f"STORE={store}" in told
    assert [leftovers(LocalStorage(str(folder / "work" / "at-the-end" / name))) for name in ("flights", "bookings")] == [[], []]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 3 * END_S)
def test_all_readers_agree_after_the_demo_on_a_merge_on_read_table_with_log_files_and_without(tmp_path):
    folder = tmp_path / "demo"
    code, told, errors = demo("--type", "mor", "--size", str(SMALLEST), "--seed", "7", "--plain", "--path", str(folder))
    assert code == OK, f"{told}\n{errors}"
    assert [reader for reader in (*READERS, *READERS_OF_LOGS) if f"OK    {reader}: " not in told] == []
    assert "TYPE=mor" in told and leftovers(LocalStorage(str(folder / "flights"))) == []


def demo(*arguments: str, shared_jvm: bool = True) -> tuple[int, str, str]:
    """Run `python -m tests.demo`; its exit code, and what it told on standard output and on standard error.

    To start seven JVMs takes longer than all that is written here: the writers, each a process of its own, are drivers in one.
    """
    env = WRITERS_JVM.env() if shared_jvm else {}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.demo", *arguments], env={**os.environ, **env},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            told, errors = process.communicate(timeout=LIMIT_S + END_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # It ends its writers and its lock service.
            told, errors = process.communicate(timeout=END_S)
        return process.returncode, told, errors
