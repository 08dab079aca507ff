"""A process that writes two tables is killed at each step of its commit; others end it, in both tables alike."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.api import ArrowEngine, LocalStorage
from tests.behaviour.cli.command_line import run
from tests.behaviour.tables import SCHEMA, leftovers, new_table, writer
from tests.faults.world import let_heartbeats_run_out
from tests.over_engines import snapshot
from tests.sizes import but
from tests.waiting import eventually

from lakelock.cli.output import Exit
from lakelock.errors import TableError
from lakelock.occ.log import DecisionKind

ROOT = Path(__file__).parents[2]


def move_killed_at(step: str, storages: list[LocalStorage]) -> bool:
    """Start a process that moves a row; whether it was killed at the step."""
    command = [sys.executable, "-m", "tests.faults.killed_over_tables", *(storage.root for storage in storages)]
    ended = subprocess.run(command, cwd=ROOT, env={**os.environ, "LAKELOCK_CRASH_AT": step}, check=False, timeout=300)
    return ended.returncode == -signal.SIGKILL


STEPS = {
    "data-written:2": False, "locked:2": False, "prepared": False, "prepared:2": False,
    "outcome-put": True, "published": True, "published:2": True, "cleaned": True,
}  # fmt: skip
KEPT = {step: STEPS[step] for step in ("prepared", "outcome-put", "published")}
FINISH_STEPS = ["aborted-for-another"]


@pytest.mark.parametrize(("step", "committed"), but(STEPS.items(), {("outcome-put", True)}, KEPT.items()))
def test_a_process_killed_at_a_step_leaves_all_or_nothing(tmp_path: Path, step: str, committed: bool) -> None:
    storages = [LocalStorage(str(tmp_path / name)) for name in ("orders", "stock")]
    for storage in storages:
        new_table(storage)
    orders, stock = (ArrowEngine(writer(storage)) for storage in storages)
    stock.insert(pa.table({"id": ["chair", "table"], "v": [1, 2], "month": ["1", "1"]}, schema=SCHEMA))
    assert move_killed_at(step, storages)

    def ids(table: pa.Table) -> list[str]:
        return sorted(table.column("id").to_pylist())

    expected = (["chair"], ["table"]) if committed else ([], ["chair", "table"])
    seen = snapshot(orders, stock)
    assert (ids(seen[orders].read()), ids(seen[stock].read())) == expected
    prepared = [d for d in stock.coordinator.table.log.peek(after=0) if d.kind is DecisionKind.PREPARE]
    if committed:
        shown = run("commits", "show", storages[1].root, prepared[0].instant)
        assert shown.code == Exit.OK
        assert f"file://{storages[0].root}" in shown.out
    elif prepared:
        assert "prepares" in run("doctor", storages[1].root).out

    def ended() -> bool:
        for engine in (stock, orders):
            engine.coordinator.reap()
            engine.coordinator.upkeep()
        return not any(leftovers(storage) for storage in storages)

    eventually(ended, saying="the dead writer is finished or removed")
    assert (ids(orders.read()), ids(stock.read())) == expected
    assert [entry.transaction != "" for entry in orders.coordinator.history()] == [True] * committed


@pytest.mark.in_ci
@pytest.mark.parametrize("step", FINISH_STEPS)
def test_whoever_is_killed_while_it_ends_the_transaction_of_another_is_followed_by_the_next(tmp_path: Path, step: str) -> None:
    storages = [LocalStorage(str(tmp_path / name)) for name in ("orders", "stock")]
    for storage in storages:
        new_table(storage)
    orders, stock = (ArrowEngine(writer(storage)) for storage in storages)
    stock.insert(pa.table({"id": ["chair"], "v": [1], "month": ["1"]}, schema=SCHEMA))
    assert move_killed_at("prepared", storages)
    for storage in storages:
        let_heartbeats_run_out(storage.root)
    assert move_killed_at(step, storages)
    for storage in storages:
        let_heartbeats_run_out(storage.root)
    for engine in (stock, orders):
        engine.coordinator.reap()
        engine.coordinator.upkeep()
    assert not any(leftovers(storage) for storage in storages)
    assert (orders.read().num_rows, stock.read().num_rows) == (0, 1)


def test_after_a_kill_whoever_dropped_the_table_with_the_outcome_can_go_on_in_the_other_one(tmp_path: Path) -> None:
    storages = [LocalStorage(str(tmp_path / name)) for name in ("orders", "stock")]
    for storage in storages:
        new_table(storage)
    stock = ArrowEngine(writer(storages[1]))
    chair = pa.table({"id": ["chair"], "v": [1], "month": ["1"]}, schema=SCHEMA)
    stock.insert(chair)
    assert move_killed_at("prepared:2", storages)
    let_heartbeats_run_out(storages[1].root)
    shutil.rmtree(storages[0].root)
    with pytest.raises(TableError, match="there is no such table any more") as stuck:
        stock.upsert(chair)
    hint = stuck.value.hint.split("lakelock ")[1].split()
    assert run(*hint[:-1]).code != Exit.OK  # only with --home-is-gone
    ended = run(*hint, "--reason", "orders were dropped", "--json")
    assert (ended.code, ended.json["outcome"]) == (Exit.OK, "rejected")
    stock.upsert(chair)
    assert stock.read().column("id").to_pylist() == ["chair"]
    assert "orders were dropped" in run("locks", "ls", storages[1].root, "--extended").out
