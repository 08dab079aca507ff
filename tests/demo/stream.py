"""The streaming writer: micro-batches that are appended exactly once, over a stop, a replay and a restart."""

from __future__ import annotations

from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING

from tests.api import Event, EventKind
from tests.demo.desk import Desk
from tests.demo.flights import DemoError
from tests.demo.plan import CHUNKS, CORRECTION_A, ERASURE, RECOUNT
from tests.demo.signals import POLL_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

STOP_AFTER = CHUNKS // 2
"""Batches that are committed before the stream is stopped."""

GATES = {
    STOP_AFTER: ("a-claimed", f"{CORRECTION_A} to hold its claims"),
    CHUNKS - 3: (f"{RECOUNT}-killed", f"{ERASURE} to begin"),
    CHUNKS - 1: ("others-done", "the others, to be the last"),
}
"""What these chunks wait for: the stream is to append alongside each of the other writers, and to finish last."""

WITHIN_S = 400.0
PAUSE_S = 0.5


def run_stream(desk: Desk) -> None:
    """Append chunk after chunk as they land; stopped once with a batch to replay; the last lands when all others are done."""
    checkpoint = desk.work / "checkpoint"
    query = _start(desk, checkpoint)
    for number in range(STOP_AFTER):
        _land(desk, number)
        _until_committed(desk, query, checkpoint, number + 1)
    query.stop()
    desk.feed.say("stopped")
    forget_last_batch(checkpoint)
    query = _start(desk, checkpoint)
    desk.feed.say("restarted")
    for number in range(STOP_AFTER, CHUNKS):
        if number in GATES:
            desk.wait_for(*GATES[number])
        _land(desk, number)
        _until_committed(desk, query, checkpoint, number + 1)
    query.stop()


def _land(desk: Desk, number: int) -> None:
    """Put a chunk into the folder that the stream watches, whole at once, after a pause: flights land one by one."""
    desk.runtime.sleep(PAUSE_S)
    landing, chunk = desk.work / "landing", desk.work / desk.plan.chunks[number]
    copied = landing / f".{chunk.name}"
    copyfile(chunk, copied)
    copied.rename(landing / chunk.name)


def forget_last_batch(checkpoint: Path) -> int:
    """Remove the newest batch from the log of committed ones, as if Spark had died before noting it; its number.

    Spark runs the batch again when the query restarts, although the table has it already.
    """
    committed = _committed(checkpoint)
    if not committed:
        raise DemoError("the stream was stopped before it had committed a batch")
    (checkpoint / "commits" / str(committed[-1])).unlink()
    (checkpoint / "commits" / f".{committed[-1]}.crc").unlink(missing_ok=True)
    return committed[-1]


def _start(desk: Desk, checkpoint: Path) -> StreamingQuery:
    committed: set[str] = set()

    def note(event: Event) -> None:
        if event.kind is EventKind.COMMITTED:
            committed.add(event.instant)

    table = desk.table(note)

    def append(batch: DataFrame, number: int) -> None:
        desk.feed.say("batch", number=number)
        before = len(committed)
        table.insert_batch(batch, number)
        if len(committed) == before:
            desk.feed.say("replayed", number=number)

    landing = desk.work / "landing"
    landing.mkdir(exist_ok=True)
    source = desk.spark.readStream.schema(desk.rows(desk.plan.chunks[0]).schema).option("maxFilesPerTrigger", 1)
    writer = source.parquet(str(landing)).writeStream.foreachBatch(append)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime="300 milliseconds").start()


def _until_committed(desk: Desk, query: StreamingQuery, checkpoint: Path, batches: int) -> None:
    """Return when Spark has noted `batches` batches as committed; the query's own error when it failed."""
    deadline_s = desk.runtime.monotonic_s() + WITHIN_S
    while len(_committed(checkpoint)) < batches:
        if not query.isActive:
            query.awaitTermination()
            raise DemoError("the stream ended by itself")
        if desk.runtime.monotonic_s() > deadline_s:
            raise DemoError(f"the stream committed {len(_committed(checkpoint))} of {batches} batches within {WITHIN_S:.0f} s")
        desk.runtime.sleep(POLL_S)


def _committed(checkpoint: Path) -> list[int]:
    folder = checkpoint / "commits"
    return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit()) if folder.exists() else []
