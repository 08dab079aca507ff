"""Many seeds on all cores. Processes only share out the seeds: each run is still one thread on virtual time."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from lakelock.simulator.run import run
from lakelock.simulator.scenarios.swarm import scenario_of

BATCH = 20


@dataclass(frozen=True)
class Tally:
    """The result of a batch of seeds."""

    seeds: int
    transactions: int
    commits: int
    faults: int
    failures: tuple[tuple[int, str], ...]
    cpu_s: float

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.seeds + other.seeds,
            self.transactions + other.transactions,
            self.commits + other.commits,
            self.faults + other.faults,
            self.failures + other.failures,
            self.cpu_s + other.cpu_s,
        )

    def __str__(self) -> str:
        rate = self.transactions / self.cpu_s if self.cpu_s else 0.0
        failed = f"{len(self.failures)} failed" if self.failures else "none failed"
        return (
            f"{self.seeds} seeds, {self.transactions} transactions, {self.commits} commits, {self.faults} faults, {failed}; "
            f"{rate:.0f} transactions per second and core"
        )


NOTHING = Tally(0, 0, 0, 0, (), 0.0)


def run_batch(seeds: range, *, parquet: bool = False) -> Tally:
    """Run some seeds in this process; with `parquet`, all of them on Parquet files."""
    total, began_s = NOTHING, time.process_time()
    for seed in seeds:
        # A run leaves a few megabytes of garbage; collecting it during the run would take a twentieth of the time.
        gc.disable()
        try:
            result = run(scenario_of(seed, parquet=parquet))
        finally:
            gc.enable()
        failures = ((seed, str(result.violations[0])),) if result.violations else ()
        total += Tally(1, result.trace.begun, result.commits, len(result.faults), failures, 0.0)
    return total + Tally(0, 0, 0, 0, (), time.process_time() - began_s)


def campaign(first: int, seeds: int, *, processes: int, parquet: bool = False) -> Iterator[Tally]:
    """Run the seeds from `first` on, and yield the total so far after each batch."""
    batches = [range(start, min(start + BATCH, first + seeds)) for start in range(first, first + seeds, BATCH)]
    total = NOTHING
    if processes <= 1 or len(batches) <= 1:
        for batch in batches:
            total += run_batch(batch, parquet=parquet)
            yield total
        return
    with multiprocessing.get_context("spawn").Pool(min(processes, len(batches))) as pool:
        for tally in pool.imap_unordered(partial(run_batch, parquet=parquet), batches):
            total += tally
            yield total
