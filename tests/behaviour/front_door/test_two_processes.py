"""Two processes without Spark write one table at once, and no change is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lakelock

COUNT = """
import sys, lakelock
table = lakelock.open(sys.argv[1], settings={"retry.attempts": 50, "retry.longest_wait_s": 0.2}, application=sys.argv[2])
sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()
for number in range(8):
    table.update({"v": "v + 1"}, "id = 1")
    table.run(lambda tx: tx.upsert([{"id": 2, "v": tx.read("id = 2").column("v")[0].as_py() + 1}]))
    table.insert([{"id": 100 * int(sys.argv[2]) + number, "v": 0}])
"""


def test_two_processes_that_count_in_the_same_rows_lose_no_count(tmp_path: Path) -> None:
    table = lakelock.create(tmp_path / "t", schema="id int, v int", key="id")
    table.insert([{"id": 1, "v": 0}, {"id": 2, "v": 0}])
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", COUNT, table.path, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )
        for number in (1, 2)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    ended = [process.communicate("go\n", timeout=240) for process in processes]
    assert [(process.returncode, said[1]) for process, said in zip(processes, ended, strict=True)] == [(0, ""), (0, "")]
    assert {row["id"]: row["v"] for row in table.read("id < 100").to_pylist()} == {1: 16, 2: 16}
    assert table.read("id >= 100").num_rows == 16
    assert len(table.history()) == 1 + 2 * 24
