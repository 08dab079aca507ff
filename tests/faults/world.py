"""A table with a few rows for tests of faults: writer processes on it, the rows it shows, and whether anything is left over."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
from hudi import HudiTable
from tests.api import LocalStorage
from tests.behaviour.tables import SCHEMA, leftovers, new_table
from tests.faults.nursery import NURSERY
from tests.faults.worker import open_engine, rows
from tests.spark.processes import WriterProcess, named

Row = tuple[str, int, str]

START: list[list[object]] = [["a", 1, "1"], ["b", 2, "1"], ["c", 3, "2"]]
UPSERT: list[list[object]] = [["a", 10, "1"], ["new", 11, "2"]]
BEFORE: list[Row] = [("a", 1, "1"), ("b", 2, "1"), ("c", 3, "2")]
DONE: list[Row] = [("a", 10, "1"), ("b", 2, "1"), ("c", 3, "2"), ("new", 11, "2")]
NEXT: Row = ("next", 7, "3")
AN_HOUR_S = 3600

# Leases run out soon, heartbeats only when a test makes them old: no test waits for one, and no slow machine loses one.
PATIENT: dict[str, object] = {
    "heartbeat.interval_s": 60, "lock.lease_s": 2, "lock.renew_s": 0.5, "lock.poll_s": 0.02,
    "retry.attempts": 1, "retry.first_wait_s": 0.02, "retry.longest_wait_s": 0.2, "retry.holder_wait_s": 20,
}  # fmt: skip
PERSISTENT = {**PATIENT, "retry.attempts": 20}


class ArrowWriter(WriterProcess):
    """A writer process with the engine on Arrow tables. `limits` are those of the process; with `env` it is no fork."""

    module = "tests.faults.worker"

    def __init__(
        self, table: str, operation: str, argument: object, *, name: str = "writer", options: dict[str, object] = PATIENT,
        limits: dict[str, int] | None = None, env: dict[str, str] | None = None, **steps: str,
    ) -> None:  # fmt: skip
        if env is not None:
            super().__init__(table, operation, argument, name=name, options=options, limits=limits, env=env, **steps)
            return
        order = {"table": table, "operation": operation, "argument": argument, "name": name, "options": options}
        self.process = NURSERY.start({**order, "limits": limits or {}}, named(steps))


def make_table(folder: Path) -> str:
    """A table of its own with the rows of `START`."""
    path = str(folder / "table")
    new_table(LocalStorage(path))
    open_engine(path, PERSISTENT).insert(rows(START))
    return path


def read(path: str, options: dict[str, object] = PATIENT) -> list[Row]:
    """The table's rows as a new reader sees them."""
    return _plain(open_engine(path, options).read())


def read_by_all(path: str) -> list[Row]:
    """The table's rows, on which hudi-rs must agree."""
    found = read(path)
    batches = HudiTable(path).read()
    assert (_plain(pa.Table.from_batches(batches)) if batches else []) == found
    return found


def _plain(table: pa.Table) -> list[Row]:
    return sorted(zip(*(table.column(n).to_pylist() for n in SCHEMA.names), strict=True))


def next_writer(path: str, **options: object) -> None:
    """Another process's writer begins at once and commits one row; nobody helps it."""
    open_engine(path, {**PERSISTENT, **options}, "next").insert(rows([list(NEXT)]))


def let_heartbeats_run_out(path: str) -> None:
    """Make every heartbeat an hour old: nobody who left one is alive any more, and the test need not wait for that."""
    folder = Path(path) / ".hoodie"
    for beat in [
        *(folder / ".heartbeat").glob("*"),
        *(folder / ".lakelock" / "reservations").glob("*"),
        *(folder / "timeline").glob("*.rollback.*"),
    ]:
        aged = beat.stat().st_mtime - AN_HOUR_S
        os.utime(beat, (aged, aged))


def check_settled(path: str, expected: list[Row]) -> None:
    """Once the heartbeats of the dead have run out, one more writer leaves the right rows and nothing else."""
    let_heartbeats_run_out(path)
    open_engine(path, PERSISTENT, "last").delete(rows([["nobody", 0, "1"]]))
    assert read_by_all(path) == sorted(expected)
    assert leftovers(LocalStorage(path)) == []
