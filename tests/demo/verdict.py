"""The verdict: what the run showed, whether each promise was kept, and whether the readers agree with the replay."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from tests.demo.bookings.tables import KEYS
from tests.demo.bookings.verdict import promises_of_bookings
from tests.demo.commits import foreign_files, pending_instants, read_commits, snapshot_files
from tests.demo.compare import Comparison, compare
from tests.demo.feed import Line
from tests.demo.plan import CHUNKS, CORRECTION_A, CORRECTION_B, KILLED_AT, LATE_FEED, RECOUNT, STREAM, WRITERS, Plan
from tests.demo.promise import Promise
from tests.demo.replay import Applied, committed_operations, replay, stream_batches
from tests.demo.store import FLIGHTS_TABLE, Store
from tests.demo.story import Cast


@dataclass(frozen=True)
class Verdict:
    """The outcome of a run. `good` only if every promise was kept and every reader saw the rows of the replay."""

    order: tuple[str, ...]
    promises: tuple[Promise, ...]
    comparisons: tuple[Comparison, ...]
    retries: int
    rows: int
    took_s: float

    @property
    def good(self) -> bool:
        return all(p.kept for p in self.promises) and all(c.same for c in self.comparisons)


def note_snapshot(store: Store, work: Path, when: str) -> None:
    """Write down which base files the snapshot consists of, by the commit files alone, for the plain Spark reader."""
    table = store.looked_at(FLIGHTS_TABLE, work / when)
    files = [store.for_spark(FLIGHTS_TABLE, path) for path in snapshot_files(read_commits(table))]
    (work / "snapshot.json").write_text(json.dumps(files))


def judge(
    store: Store, work: Path, plan: Plan, cast: Cast, lines: Sequence[Line], took_s: float, *, has_logs: bool = False
) -> Verdict:  # fmt: skip
    """Replay the commits one after another and compare everything with the result."""
    table = store.looked_at(FLIGHTS_TABLE, work / "at-the-end")
    commits = read_commits(table)
    applied = committed_operations(commits, plan, cast.pids, stream_batches(work / "checkpoint", plan))
    with duckdb.connect() as connection:
        rows = replay(connection, applied, work, newer_stays=not has_logs)
        readers = {**READERS, **(READERS_OF_LOGS if has_logs else {})}
        comparisons = tuple(compare(connection, name, read(table, work)) for name, read in readers.items())
    left = [*pending_instants(table), *foreign_files(table, commits)]
    bookings = promises_of_bookings(lines, cast, [store.looked_at(name, work / "at-the-end") for name in KEYS])
    promises = (*promises_of_the_table(applied), *promises_of_the_feed(lines, cast, has_logs=has_logs), _clean(left), *bookings)
    return Verdict(
        order=tuple(f"#{a.commit.decision} {a.name}" for a in applied),
        promises=promises,
        comparisons=comparisons,
        retries=sum(line.kind == "retry" for line in lines),
        rows=rows,
        took_s=took_s,
    )


def _by_lakelock(table: Path, work: Path) -> pa.Table:
    return pq.read_table(work / "results" / "lakelock")


def _by_spark(table: Path, work: Path) -> pa.Table:
    return pq.read_table(work / "results" / "spark")


def by_hudi(table: Path) -> pa.Table:
    """The rows as hudi-rs reads them."""
    from hudi import HudiTableBuilder

    return pa.Table.from_batches(HudiTableBuilder.from_base_uri(str(table)).build().read())


READERS: dict[str, Callable[[Path, Path], pa.Table]] = {
    "lakelock": _by_lakelock,
    "spark.read.parquet": _by_spark,
    "hudi (hudi-rs)": lambda table, work: by_hudi(table),
}
READERS_OF_LOGS: dict[str, Callable[[Path, Path], pa.Table]] = {
    "lakelock, before the compaction": lambda table, work: pq.read_table(work / "results" / "lakelock-logs"),
    "hudi (hudi-rs), before the compaction": lambda table, work: pq.read_table(work / "results" / "hudi-logs.parquet"),
}


def promises_of_the_table(applied: Sequence[Applied]) -> list[Promise]:
    writers = [a.operation.writer for a in applied]
    batches = writers.count(STREAM)
    missing = [w for w in WRITERS if w not in (*writers, RECOUNT)]
    once = f"every batch of the stream committed exactly once ({batches} of {CHUNKS}, one of them was replayed)"
    return [
        Promise(not missing, f"not committed: {', '.join(missing)}" if missing else "every writer that lived committed"),
        Promise(batches == CHUNKS, once),
        Promise(RECOUNT not in writers, f"{RECOUNT}, killed before it decided, left no row"),
    ]


def _collision(lines: Sequence[Line], cast: Cast) -> Promise:
    early = [i for i in lines if i.kind == "early-conflict"]
    hit = any(i.writer == CORRECTION_B and cast.of_pid(i.facts.get("other")) == CORRECTION_A for i in early)
    found = f"{CORRECTION_B} found the collision with {CORRECTION_A} early and succeeded in a retry"
    return Promise(hit, found if hit else f"{CORRECTION_B} never collided early with {CORRECTION_A}")


def _collision_over_rows(lines: Sequence[Line], cast: Cast) -> Promise:
    """Whichever of the two decides second has changed rows that the other has changed."""
    both = {CORRECTION_A, CORRECTION_B}
    found = [i for i in lines if i.kind in ("early-conflict", "conflict") and i.writer in both]
    hit = next((i for i in found if {i.writer, cast.of_pid(i.facts.get("other"))} == both), None)
    text = (
        f"{hit.writer} collided with the other correction and succeeded in a retry" if hit else "the corrections never collided"
    )
    return Promise(hit is not None, text)


def promises_of_the_feed(lines: Sequence[Line], cast: Cast, *, has_logs: bool = False) -> list[Promise]:
    """What the feed shows: the collision, the replay, and who cleaned up after the dead."""
    replayed = [i.facts.get("number") for i in lines if i.kind == "replayed"]
    killed = [i.writer for i in lines if i.kind == "killed"]
    late_instants = {i for i, w in cast.instants.items() if w == LATE_FEED}
    recount_instants = {i for i, w in cast.instants.items() if w == RECOUNT}
    finished = next((i for i in lines if i.kind == "finished-for-another" and i.instant in late_instants), None)
    removed = next((i for i in lines if i.kind == "rolled-back" and i.instant in recount_instants), None)
    upkept = next((i for i in lines if i.kind == "upkept"), None)
    old_files = upkept.facts.get("files") if upkept is not None and not upkept.facts.get("problems") else 0
    return [
        _collision_over_rows(lines, cast) if has_logs else _collision(lines, cast),
        Promise(len(replayed) == 1, f"batch {replayed} was replayed after the restart and wrote nothing"),
        Promise(sorted(killed) == sorted(KILLED_AT), f"killed by SIGKILL: {', '.join(killed) or 'nobody'}"),
        Promise(
            finished is not None,
            f"the commit of {LATE_FEED} was published by {finished.writer}" if finished else f"nobody published {LATE_FEED}",
        ),
        Promise(
            removed is not None,
            f"{removed.facts.get('files')} files of {RECOUNT} were removed by {removed.writer}"
            if removed
            else f"nobody removed the files of {RECOUNT}",
        ),
        Promise(
            bool(old_files),
            f"upkeep deleted {old_files} old files before the last reads" if old_files else "upkeep deleted no old file",
        ),
    ]


def _clean(left: Sequence[str]) -> Promise:
    text = f"left behind: {', '.join(left[:5])}" if left else "nothing of the dead is left: no pending instant, no stray file"
    return Promise(not left, text)
