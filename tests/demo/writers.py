"""One writer of the demo, in a process of its own: `python -m tests.demo.writers NAME WORK_FOLDER`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow.parquet as pq

from lakelock.spark_plugin import LakeTable
from tests.api import Event, EventKind
from tests.crashing import arm
from tests.demo.desk import Desk
from tests.demo.flights import KEY, ORDERING, PARTITION
from tests.demo.plan import (
    CORRECTION_A,
    CORRECTION_B,
    ERASURE,
    LATE_FEED,
    LOADER,
    RECOUNT,
    STREAM,
)
from tests.demo.session import end_session
from tests.demo.store import FLIGHTS_TABLE, TYPES
from tests.demo.stream import run_stream
from tests.demo.verdict import by_hudi, note_snapshot

COLLISION_S = 120.0
"""How long the first correction holds its claims for the second one to run into."""


def loader(desk: Desk) -> None:
    """Create the table, load the first half of each month, and when all is over run upkeep and read the result."""
    rows = desk.rows()
    LakeTable.create(
        desk.spark,
        desk.table_path,
        schema=rows.schema,
        key=list(KEY),
        partition_by=[PARTITION],
        order_by=None if desk.is_merge_on_read else ORDERING,
        table_type=TYPES[desk.type],
        options=desk.options,
    )
    desk.write()
    desk.signals.give("loaded")
    desk.wait_for("all-written", "the others to finish")
    if desk.is_merge_on_read:
        read_log_files(desk)
        compact(desk)
    keep_up(desk)
    read_twice(desk)


def keep_up(desk: Desk) -> None:
    """Delete every old version of a file: readers must see the same rows without them."""
    newest_only = {"clean.policy": "KEEP_LATEST_FILE_VERSIONS", "clean.keep_versions": "1", "clean.readers_s": "0"}
    done = desk.table(options=newest_only).upkeep()
    desk.feed.say("upkept", files=done.cleaned.files, problems=list(done.problems))


def read_log_files(desk: Desk) -> None:
    """Read the table while it has log files, with lakelock and with hudi-rs."""
    results = desk.work / "results"
    desk.feed.say("reading", reader="lakelock")
    desk.table().read().write.parquet(str(results / "lakelock-logs"))
    desk.feed.say("reading", reader="hudi-rs")
    copy = desk.store.looked_at(FLIGHTS_TABLE, desk.work / "with-logs")
    pq.write_table(by_hudi(copy), results / "hudi-logs.parquet")


def compact(desk: Desk) -> None:
    """Merge the log files into base files, for readers that know no others, and note which these are."""
    desk.table().optimize().execute()
    note_snapshot(desk.store, desk.work, "compacted")


def read_twice(desk: Desk) -> None:
    """Read the table with lakelock, and its snapshot's files with plain Spark; each result becomes a Parquet folder."""
    results = desk.work / "results"
    desk.feed.say("reading", reader="lakelock")
    desk.table().read().write.parquet(str(results / "lakelock"))
    desk.feed.say("reading", reader="spark.read.parquet")
    files = json.loads((desk.work / "snapshot.json").read_text())
    desk.spark.read.parquet(*files).write.parquet(str(results / "spark"))


def correction_a(desk: Desk) -> None:
    """Claim its file groups, hold them until the second correction has run into one, then write and commit.

    Of a merge-on-read table it changes rows that the second one changes meanwhile, claimed or not.
    """
    begun = {EventKind.CLAIMED, EventKind.WRITING} if desk.is_merge_on_read else {EventKind.CLAIMED}

    def hold(event: Event) -> None:
        if event.kind in begun and not desk.signals.given("a-claimed"):
            desk.signals.give("a-claimed")
            desk.feed.say("waits", what="the collision")
            desk.signals.wait_for("b-conflicted", COLLISION_S)

    desk.wait_for("loaded", "the table")
    desk.wait_for(f"{CORRECTION_B}-ready", CORRECTION_B)
    desk.write(hold)
    desk.signals.give("a-done")


def correction_b(desk: Desk) -> None:
    """Upsert months that the first correction has claimed: find the conflict early, say so, and succeed in a retry."""

    def tell(event: Event) -> None:
        if event.kind in (EventKind.EARLY_CONFLICT, EventKind.COMMITTED):
            desk.signals.give("b-conflicted")

    desk.wait_for("a-claimed", f"{CORRECTION_A} to begin")
    desk.write(tell)


def erasure(desk: Desk) -> None:
    """Delete by condition; the file groups of the killed recount are claimed by a dead writer and must be taken over."""
    desk.wait_for(f"{RECOUNT}-killed", f"{RECOUNT} to die")
    desk.write()


def late_feed(desk: Desk) -> None:
    """Append, and die between deciding and publishing."""
    desk.wait_for("loaded", "the table")
    desk.write()


def recount(desk: Desk) -> None:
    """Upsert, and die between writing data and deciding."""
    desk.wait_for("a-done", f"{CORRECTION_A} to commit")
    desk.write()


def stream(desk: Desk) -> None:
    """Append in micro-batches; stopped, made to replay a batch, and restarted in the middle."""
    desk.wait_for("loaded", "the table")
    run_stream(desk)


ROLES: Mapping[str, Callable[[Desk], None]] = {
    LOADER: loader,
    STREAM: stream,
    CORRECTION_A: correction_a,
    CORRECTION_B: correction_b,
    LATE_FEED: late_feed,
    RECOUNT: recount,
    ERASURE: erasure,
}


def main(name: str, work: Path) -> int:
    arm()
    desk = Desk.of(name, work)
    try:
        desk.feed.say("starting")
        desk.spark.range(1).count()
        desk.feed.say("ready")
        desk.signals.give(f"{name}-ready")
        ROLES[name](desk)
        desk.feed.say("done")
        return 0
    except Exception as error:
        desk.feed.say("failed", problem=str(error).splitlines()[0], error=type(error).__name__)
        raise
    finally:
        end_session(desk.spark)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
