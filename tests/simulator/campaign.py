"""Many seeds on all cores. Processes only share out the seeds: each run is still one thread on virtual time."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial

from lakelock.texts import counted
from tests.simulator.run import run
from tests.simulator.scenarios.swarm import scenario_of
from tests.simulator.several_tables.run import run_several
from tests.simulator.several_tables.scenario import several_of

BATCH = 20


class Kind(str, Enum):
    """What the histories are about."""

    ONE_TABLE = "one table"
    ON_PARQUET = "one table of Parquet files"
    SEVERAL_TABLES = "several tables"


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
            f"{counted(self.seeds, 'seed')}, {counted(self.transactions, 'transaction')}, {counted(self.commits, 'commit')}, "
            f"{counted(self.faults, 'fault')}, {failed}; {rate:.0f} transactions per second and core"
        )


NOTHING = Tally(0, 0, 0, 0, (), 0.0)


def run_batch(seeds: range, kind: Kind = Kind.ONE_TABLE) -> Tally:
    """Run some seeds in this process."""
    total, began_s = NOTHING, time.process_time()
    for seed in seeds:
        # A run leaves a few megabytes of garbage; collecting it during the run would take a twentieth of the time.
        gc.disable()
        try:
            total += _tally(seed, kind)
        finally:
            gc.enable()
    return total + Tally(0, 0, 0, 0, (), time.process_time() - began_s)


def _tally(seed: int, kind: Kind) -> Tally:
    if kind is Kind.SEVERAL_TABLES:
        several = run_several(several_of(seed))
        begun, commits, faults, violations = several.begun, several.commits, several.faults, several.violations
    else:
        one = run(scenario_of(seed, parquet=kind is Kind.ON_PARQUET))
        begun, commits, faults, violations = one.trace.begun, one.commits, one.faults, one.violations
    return Tally(1, begun, commits, len(faults), ((seed, str(violations[0])),) if violations else (), 0.0)


def campaign(first: int, seeds: int, *, processes: int, kind: Kind = Kind.ONE_TABLE) -> Iterator[Tally]:
    """Run the seeds from `first` on, and yield the total so far after each batch."""
    batches = [range(start, min(start + BATCH, first + seeds)) for start in range(first, first + seeds, BATCH)]
    total = NOTHING
    if processes <= 1 or len(batches) <= 1:
        for batch in batches:
            total += run_batch(batch, kind)
            yield total
        return
    with multiprocessing.get_context("spawn").Pool(min(processes, len(batches))) as pool:
        for tally in pool.imap_unordered(partial(run_batch, kind=kind), batches):
            total += tally
            yield total
