"""Hudi's metadata table where only lakelock writes: lakelock compacts, cleans and archives it, and Java goes on with it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow.parquet as pq
import pytest
from tests.interop.conftest import FULL
from tests.interop.shared import KEPT_METADATA, Shared, as_rows
from tests.sizes import in_ci

from lakelock.events import Step, at_each_step
from lakelock.table.instants import Action
from lakelock.table.metadata_table import MetadataTable, read_metadata_timeline

Share = Callable[..., Shared]
COMMITS = 500 if FULL else 45
BESIDE_A_READ = 8
"""Commits while Java reads, at most: fewer than lakelock's cleaner keeps."""
TIDY = {
    "clean.policy": "KEEP_LATEST_COMMITS", "clean.keep_commits": 10, "clean.readers_s": 20, "archive.min_commits": 10,
    "archive.max_commits": 15, "archive.min_age_s": 0,
}  # fmt: skip
BY_HAND = {"upkeep.auto": False}
OFTEN = {
    "hoodie__metadata__compact__max__delta__commits": "2", "hoodie__clean__commits__retained": "1",
    "hoodie__keep__min__commits": "2", "hoodie__keep__max__commits": "3",
}  # fmt: skip


def made_by_java(share: Share) -> Shared:
    """A table of Java's defaults."""
    table = share(create=False)
    table.statistics = {}
    first = [(f"k{n}", n, ("eu", "us")[n % 2]) for n in range(6)]
    table.java_write("bulk_insert", *first, hoodie__table__timeline__timezone="UTC")
    table.put(*first)
    return table


def metadata(table: Shared) -> MetadataTable:
    at = table.coordinator().table
    return MetadataTable.look(at.io, at.timeline())


@pytest.mark.in_ci
@pytest.mark.sampled(promise=KEPT_METADATA)
def test_java_reads_every_row_while_lakelock_keeps_the_metadata_table_and_goes_on_with_it(share: Share) -> None:
    table = made_by_java(share)
    engine, reads = table.engine(**TIDY), 0
    pending, seen, to = None, 0, table.folder / "read"
    for n in range(COMMITS):
        row = (f"n{n}", 1000 + n, ("eu", "us", "zz")[n % 3])
        engine.upsert(table.rows(row, ("k1", 1000 + n, "us")))
        table.put(row, ("k1", 1000 + n, "us"))
        if pending is None:
            seen = n
            pending = table.java.send("read", path=table.path, to=str(to), where="v >= 1000 and v is not null")
        elif pending.is_done() or n - seen == BESIDE_A_READ or n == COMMITS - 1:
            pending.result()
            found = pq.read_table(to).column("id").to_pylist()
            assert {f"n{m}" for m in range(seen + 1)} <= set(found) and len(set(found)) == len(found)
            pending, reads = None, reads + 1
    assert reads >= 2
    table.coordinator(**{**TIDY, "clean.readers_s": 0}).upkeep()  # nobody reads any more
    timeline = read_metadata_timeline(table.storage)
    assert len([i for i in timeline.commits if i.action == Action.COMMIT]) >= 1 and timeline.archive
    assert metadata(table).uncompacted <= 20
    table.agree()
    for turn in range(3):  # Java compacts, cleans and archives
        row = ("k2", 2000 + turn, "eu")
        table.java_write("upsert", row, **OFTEN)
        table.put(row)
        table.agree()
    row = ("k3", 3000, "us")
    engine.upsert(table.rows(row))
    table.put(row)
    table.agree()


@pytest.mark.sampled(promise=KEPT_METADATA)
@pytest.mark.parametrize("step", [Step.METADATA_COMPACTED, *in_ci(Step.METADATA_PLANNED)])
def test_java_reads_beside_a_compaction_that_a_killed_writer_left_and_finishes_it(share: Share, step: Step) -> None:
    table = made_by_java(share)
    engine = table.engine(**BY_HAND)
    for n in range(10):
        row = (f"n{n}", n, "eu")
        engine.upsert(table.rows(row))
        table.put(row)
    killed_at(step, table)
    row = ("k4", 4000, "eu")
    engine.upsert(table.rows(row))
    table.put(row)
    (pending,) = read_metadata_timeline(table.storage).pending_services
    table.agree()
    table.java_write("upsert", ("k2", 2000, "eu"))
    table.put(("k2", 2000, "eu"))
    timeline = read_metadata_timeline(table.storage)
    assert not timeline.pending_services and timeline.has_commit(pending.requested)
    table.agree()
    assert as_rows(table.java.read(table.path, where="v = 4000"), table.layout.schema) == [row]


class Killed(BaseException):
    """The process is gone."""


def killed_at(step: Step, table: Shared) -> None:
    def strike(at: Step) -> None:
        if at is step:
            raise Killed

    at_each_step(strike)
    try:
        table.coordinator().upkeep()
    except Killed:
        return
    finally:
        at_each_step(lambda at: None)
    raise AssertionError(f"{step} was not reached")
