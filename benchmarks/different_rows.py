"""Writers of different rows of one file group, at a distance from the store: commits a second, attempts, and lost rows.

`python -m benchmarks.different_rows [--writers 16] [--seconds 30] [--delay-ms 30] [--rows 20000] [--clients 100] [--json]`.
First each writer upserts a row of its own again and again, in a copy-on-write and in a merge-on-read table of one file group.
Then as many clients as in trinodb/trino#30850 run two DELETE statements each, of different rows by condition, in one table.
Each writer has a table object of its own, as another process has. All are threads of this process, on a store in memory each
of whose requests takes `--delay-ms` longer. Targets: 5 commits a second in merge-on-read, no row lost, and every DELETE done.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from tests.api import MemoryStorage

from benchmarks.growth import Distant
from benchmarks.measuring import arguments, show, verdict
from lakelock.clock import SystemRuntime
from lakelock.engine.arrow import ArrowEngine
from lakelock.errors import LakelockError
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.create import create_table
from lakelock.settings import Settings
from lakelock.storage.location import StorageLocation
from lakelock.table.properties import COPY_ON_WRITE, MERGE_ON_READ, TableProperties
from lakelock.table.schema import TableSchema

SCHEMA = pa.schema([("id", pa.string()), ("value", pa.int64())])
RATE, STATEMENTS = 5.0, 2


def rows(numbers: range, value: int = 0) -> pa.Table:
    return pa.table([[f"k{number:07}" for number in numbers], [value] * len(numbers)], schema=SCHEMA)


class Field:
    """A table of one file group in memory, far away."""

    def __init__(self, table_type: str, count: int, delay_s: float) -> None:
        self.store, self._delay_s = MemoryStorage(), delay_s
        create_schema = TableSchema.from_arrow(SCHEMA).to_avro_json("t")
        properties = TableProperties.new("t", ["id"], create_schema=create_schema, table_type=table_type)
        create_table(self.store, properties, SystemRuntime())
        self.engine(near=True).insert(rows(range(count)))

    def engine(self, *, near: bool = False) -> ArrowEngine:
        """A table object that knows as little as one in a new process."""
        storage = self.store if near else Distant(self.store, self._delay_s)
        return ArrowEngine(Coordinator.open(StorageLocation(self.store.uri), Settings(), application="b", storage=storage))


@dataclass
class Done:
    """What one writer has done."""

    commits: int = 0
    attempts: int = 0
    errors: list[str] = field(default_factory=list)

    def run(self, write: Callable[[], object]) -> None:
        try:
            self.attempts += getattr(write(), "attempts", 1)
            self.commits += 1
        except LakelockError as error:
            self.errors.append(f"{type(error).__name__}: {error.message.splitlines()[0]}")


def at_once(jobs: list[Callable[[], object]]) -> float:
    """Run all of them in threads; the seconds that they took."""
    threads, began_s = [threading.Thread(target=job) for job in jobs], time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - began_s


def upserts(engine: ArrowEngine, number: int, until_s: float, done: Done) -> None:
    while time.monotonic() < until_s:
        done.run(partial(engine.upsert, rows(range(number, number + 1), done.commits + 1)))


def hot_group(table_type: str, writers: int, seconds: int, delay_s: float, count: int) -> dict[str, object]:
    table, done = Field(table_type, count, delay_s), [Done() for _ in range(writers)]
    until_s = time.monotonic() + seconds
    cpu_s = time.process_time()
    took_s = at_once([partial(upserts, table.engine(), number, until_s, each) for number, each in enumerate(done)])
    cpu_s = time.process_time() - cpu_s
    shown = table.engine(near=True).read()
    found = dict(zip(shown.column("id").to_pylist(), shown.column("value").to_pylist(), strict=True))
    commits, errors = sum(each.commits for each in done), [error for each in done for error in each.errors]
    return {
        "commits_a_second": commits / took_s,
        "attempts_a_commit": sum(each.attempts for each in done) / max(1, commits),
        "cpu_ms_a_commit": 1000 * cpu_s / max(1, commits),
        "fewest": min(each.commits for each in done),
        "errors": dict(Counter(errors)),
        "lost_updates": sum(found[f"k{number:07}"] != each.commits for number, each in enumerate(done) if not each.errors),
    }


def deletes(engine: ArrowEngine, number: int, done: Done) -> None:
    for statement in range(STATEMENTS):
        key = f"k{STATEMENTS * number + statement:07}"
        done.run(partial(engine.delete, pc.field("id") == key))


def statements(clients: int, delay_s: float, count: int) -> dict[str, object]:
    table, done = Field(MERGE_ON_READ, count, delay_s), [Done() for _ in range(clients)]
    took_s = at_once([partial(deletes, table.engine(), number, each) for number, each in enumerate(done)])
    succeeded = sum(each.commits for each in done)
    left = table.engine(near=True).read().num_rows
    return {
        "statements": clients * STATEMENTS,
        "succeeded": succeeded,
        "attempts": sum(each.attempts for each in done),
        "took_s": took_s,
        "errors": dict(Counter(error for each in done for error in each.errors)),
        "rows_left_over": left - (count - succeeded),
    }


def main() -> None:
    chosen = arguments(__doc__, writers=16, seconds=30, delay_ms=30, rows=20_000, clients=100)
    delay_s, found = chosen.delay_ms / 1000, dict[str, object]()
    for name, table_type in (("copy_on_write", COPY_ON_WRITE), ("merge_on_read", MERGE_ON_READ)):
        told = hot_group(table_type, chosen.writers, chosen.seconds, delay_s, chosen.rows)
        found |= {f"{name}_{key}": value for key, value in told.items()}
        lost = told["lost_updates"]
        assert lost == 0, f"{name}: {lost} updates are lost"
        rate = told["commits_a_second"]
    assert isinstance(rate, float)
    found["rate_target"] = verdict(-rate, -RATE)
    if chosen.clients:
        told = statements(chosen.clients, delay_s, chosen.rows)
        found |= {f"deletes_{key}": value for key, value in told.items()}
        found["deletes_target"] = "ok" if told["succeeded"] == told["statements"] and not told["rows_left_over"] else "missed"
    show(found, chosen.json)


if __name__ == "__main__":
    main()
