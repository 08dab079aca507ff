"""The hot group of `contention` with the writers of delta-rs, and, in a short form, of Java Hudi.

`python -m benchmarks.contention_peers [--groups 20] [--rows 20000] [--processes 8] [--seconds 40] [--java-processes 4]
[--java-groups 5] [--java-rows 2000] [--json]`. Needs `pip install deltalake`, and what `make interop` needs; what is missing is
left out. A rejected write is run again as a whole, as its user would do. Java's writers are threads of one JVM, under a lock of
that process. `lakelock_short_commits` is the same job by lakelock: only these two compare.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from tests.interop.shared import ASKED, QUICK
from tests.interop.witness import JavaError, Witness, witness
from tests.servers.fetched.java_hudi import java_hudi

from benchmarks.contention import EVERY, WAYS, Job, make_table, rows
from benchmarks.measuring import arguments, scratch, show
from lakelock.errors import LakelockError

T = TypeVar("T")
SAME = "t.part = s.part and t.id = s.id"


@dataclass(frozen=True)
class Batches:
    """What one of the writers upserts: rows of its own in the hot group 0 and in the groups that only it writes."""

    number: int
    processes: int
    groups: int
    count: int

    def batch(self, value: int) -> pa.Table:
        own = [part for part in range(1, self.groups) if part % self.processes == self.number]
        mine = range(self.number * EVERY, self.count, self.processes * EVERY)
        return pa.concat_tables([rows(part, mine, value) for part in (0, *own)])


def until_over(seconds: int, write: Callable[[pa.Table], None], batches: Batches, lost: type[Exception]) -> tuple[int, int]:
    """Write batch after batch, each until it is committed; commits in time, and rejections."""
    committed = rejected = 0
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        try:
            write(batches.batch(committed))
            committed += time.monotonic() < until_s
        except lost:
            rejected += 1
    return committed, rejected


def delta_writer(folder: str, seconds: int, batches: Batches) -> tuple[int, int]:
    from deltalake import DeltaTable  # type: ignore[import-not-found, unused-ignore]
    from deltalake.exceptions import CommitFailedError  # type: ignore[import-not-found, unused-ignore]

    def merge(batch: pa.Table) -> None:
        found = DeltaTable(folder).merge(batch, SAME, source_alias="s", target_alias="t")
        found.when_matched_update_all().when_not_matched_insert_all().execute()

    return until_over(seconds, merge, batches, CommitFailedError)


def in_processes(writer: Callable[[T], tuple[int, int]], batches: list[T]) -> tuple[int, int]:
    with multiprocessing.get_context("spawn").Pool(len(batches)) as pool:
        done = pool.map(writer, batches, chunksize=1)
    return sum(committed for committed, _ in done), sum(rejected for _, rejected in done)


def delta(folder: str, groups: int, count: int, processes: int, seconds: int) -> dict[str, object]:
    try:
        from deltalake import write_deltalake
    except ImportError:
        return {"delta": "not installed"}
    for part in range(groups):
        write_deltalake(folder, rows(part, range(count)), mode="append", partition_by=["part"])
    batches = [Batches(number, processes, groups, count) for number in range(processes)]
    committed, rejected = in_processes(partial(delta_writer, folder, seconds), batches)
    return {"delta_commits": committed, "delta_rejected": rejected}


def java(folder: str, groups: int, count: int, writers: int, seconds: int) -> dict[str, object]:
    try:
        found = java_hudi()
    except (LakelockError, OSError) as error:
        return {"java": str(error).splitlines()[0]}
    table = f"{folder}/java"
    options = {
        **ASKED, **QUICK, "hoodie.table.name": "t", "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
    }  # fmt: skip
    scratch_folder = Path(folder) / "jvm"
    scratch_folder.mkdir()
    with witness(found, scratch_folder) as jvm:
        jvm.write(table, pa.concat_tables([rows(part, range(count)) for part in range(groups)]), options)
        write = partial(java_write, jvm, table, options)
        batches = [Batches(number, writers, groups, count) for number in range(writers)]
        with ThreadPoolExecutor(writers) as pool:
            done = list(pool.map(lambda mine: until_over(seconds, write, mine, JavaError), batches))
    return {"java_commits": sum(c for c, _ in done), "java_rejected": sum(r for _, r in done)}


def java_write(jvm: Witness, table: str, options: dict[str, str], batch: pa.Table) -> None:
    jvm.write(table, batch, options)


def lakelock(folder: str, groups: int, count: int, processes: int, seconds: int) -> int:
    make_table(folder, groups, count)
    jobs = [Job(folder, number, processes, groups, count, seconds, WAYS["redone_reserved"]) for number in range(processes)]
    return in_processes(committed_and_lost, jobs)[0]


def committed_and_lost(job: Job) -> tuple[int, int]:
    done = job.run()
    return done.commits, done.lost


def main() -> None:
    given = arguments(
        __doc__, groups=20, rows=20_000, processes=8, seconds=40, java_processes=4, java_groups=5, java_rows=2_000
    )
    wide = 1 + (given.groups - 1) * given.processes
    with scratch() as folder:
        found: dict[str, object] = {}
        if given.processes:
            found["lakelock_commits"] = lakelock(f"{folder}/t", wide, given.rows, given.processes, given.seconds)
            found |= delta(f"{folder}/delta", wide, given.rows, given.processes, given.seconds)
    with scratch() as folder:
        if given.java_processes:
            short = 1 + (given.java_groups - 1) * given.java_processes, given.java_rows, given.java_processes, given.seconds
            found["lakelock_short_commits"] = lakelock(f"{folder}/t", *short)
            found |= java(folder, *short)
    show(found, given.json)


if __name__ == "__main__":
    main()
