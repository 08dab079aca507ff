"""Small inserts of many writers at once, at a distance from the store: commits a second, waits, and shares. Default settings.

`python -m benchmarks.small_writers [--writers 16] [--seconds 30] [--delay-ms 30] [--partitions 16] [--rewriter] [--json]`. Each
writer has a table object of its own, as another process has, and inserts one row after the other into one of the partitions.
All are threads of this process, on a store in memory each of whose requests takes `--delay-ms` longer. With `--threads` they
share one object instead. With `--rewriter` one more upserts the same row again and again. Targets: 10 commits a second, the
99th percentile at most 10 times the median, no writer with less than half of the mean, no error, and an upsert within 5 s.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from statistics import mean, median

import pyarrow as pa
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
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema

SCHEMA = pa.schema([("id", pa.string()), ("value", pa.int64()), ("part", pa.string())])
RATE, TAIL, SHARE, REWRITE_S = 10.0, 10.0, 0.5, 5.0


@dataclass
class Writer:
    """What one writer has done."""

    took_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def row(name: str, part: str, value: int = 0) -> pa.Table:
    return pa.table([[name], [value], [part]], schema=SCHEMA)


class Field:
    """A table in memory, far away."""

    def __init__(self, delay_s: float) -> None:
        self.store = MemoryStorage()
        create_schema = TableSchema.from_arrow(SCHEMA).to_avro_json("t")
        create_table(self.store, TableProperties.new("t", ["id"], ["part"], create_schema=create_schema), SystemRuntime())
        self._delay_s = delay_s

    def engine(self) -> ArrowEngine:
        """A table object that knows as little as one in a new process."""
        storage = Distant(self.store, self._delay_s)
        location = StorageLocation(self.store.uri)
        return ArrowEngine(Coordinator.open(location, Settings(), application="benchmark", storage=storage))


def insert(engine: ArrowEngine, name: str, part: str, until_s: float, done: Writer) -> None:
    """Insert rows until the time is over."""
    number = 0
    while time.monotonic() < until_s:
        began_s, number = time.monotonic(), number + 1
        try:
            engine.insert(row(f"{name}-{number}", part))
        except LakelockError as error:
            done.errors.append(f"{type(error).__name__}: {error.message}")
        done.took_s.append(time.monotonic() - began_s)


def rewrite(engine: ArrowEngine, until_s: float, done: Writer) -> None:
    """Upsert one row until the time is over."""
    number = 0
    while time.monotonic() < until_s:
        began_s, number = time.monotonic(), number + 1
        try:
            engine.upsert(row("hot", "rewritten", number))
        except LakelockError as error:
            done.errors.append(f"{type(error).__name__}: {error.message}")
        done.took_s.append(time.monotonic() - began_s)


def main() -> None:
    chosen = arguments(__doc__, writers=16, seconds=30, delay_ms=30, partitions=16, threads=False, rewriter=False)
    table = Field(chosen.delay_ms / 1000)
    shared = table.engine() if chosen.threads else None
    writers, rewriter = [Writer() for _ in range(chosen.writers)], Writer()
    engines = [shared or table.engine() for _ in writers]
    rewrites = table.engine()
    until_s = time.monotonic() + chosen.seconds
    threads = [
        threading.Thread(
            target=insert,
            args=(engines[number], f"w{number}", f"p{number % chosen.partitions}", until_s, done),
        )
        for number, done in enumerate(writers)
    ]
    if chosen.rewriter:
        threads.append(threading.Thread(target=rewrite, args=(rewrites, until_s, rewriter)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times = sorted(took_s for done in writers for took_s in done.took_s)
    counts = [len(done.took_s) - len(done.errors) for done in writers]
    errors = [error for done in (*writers, rewriter) for error in done.errors]
    rows = ArrowEngine(Coordinator.open(StorageLocation(table.store.uri), Settings(), storage=table.store)).read().num_rows
    found: dict[str, object] = {
        "writers": chosen.writers,
        "commits_a_second": sum(counts) / chosen.seconds,
        "median_s": median(times),
        "p99_s": times[int(0.99 * (len(times) - 1))],
        "longest_s": times[-1],
        "fewest": min(counts),
        "mean": mean(counts),
        "most": max(counts),
        "errors": len(errors),
        "first_error": errors[0] if errors else "",
        "rows_lost_or_doubled": sum(counts) + bool(rewriter.took_s) - rows,
    }
    if chosen.rewriter:
        found |= {"rewrites": len(rewriter.took_s), "longest_rewrite_s": max(rewriter.took_s)}
        found["rewrite_target"] = verdict(max(rewriter.took_s), REWRITE_S)
    found["rate_target"] = verdict(-sum(counts) / chosen.seconds, -RATE)
    found["tail_target"] = verdict(times[int(0.99 * (len(times) - 1))] / median(times), TAIL)
    found["share_target"] = verdict(-min(counts) / mean(counts), -SHARE)
    show(found, chosen.json)


if __name__ == "__main__":
    main()
