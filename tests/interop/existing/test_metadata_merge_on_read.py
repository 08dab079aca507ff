"""Merge-on-read tables with the metadata table that Java makes by default: it stays true of base files and log files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow.compute as pc
import pytest
from tests.behaviour.cli.command_line import run
from tests.interop.existing.test_metadata_statistics import FLAT, KEPT, TYPES, UTC, agrees, partitions, row, with_statistics
from tests.interop.existing.test_metadata_table import OFTEN
from tests.interop.processes import lakelock_writer
from tests.interop.shared import DEAD_WRITERS, HIVE_STYLE, LOGGED, TIDIED, Layout, Shared
from tests.sizes import but, examples

Share = Callable[..., Shared]
LOGS = {"hoodie__parquet__small__file__limit": "0"}
"""Java writes log files instead of a small base file anew."""
MERGED = replace(TYPES, table_type="MERGE_ON_READ")
SMALL = replace(HIVE_STYLE, table_type="MERGE_ON_READ")
NOT_PARTITIONED = replace(FLAT, table_type="MERGE_ON_READ")


LAYOUTS = {"types": MERGED, "flat": NOT_PARTITIONED, "version_8": replace(MERGED, version=8)}


class Both:
    """A table that Java makes with its defaults, and that both write; `model` has its rows."""

    def __init__(self, share: Share, layout: Layout, *first: tuple[Any, ...]) -> None:
        self.table = with_statistics(share, layout)
        self.theirs("bulk_insert", *first, **UTC)

    def theirs(self, operation: str, *rows: tuple[Any, ...], **more: str) -> None:
        self.table.java_changes(operation, *rows, **{**LOGS, **more})

    def ours(self, *rows: tuple[Any, ...]) -> None:
        self.table.engine().upsert(self.table.rows(*rows))
        self.table.put(*rows)

    def deletes(self, *rows: tuple[Any, ...]) -> None:
        keys = [r[0] for r in rows]
        self.table.engine().delete(pc.field("id").isin(keys))
        self.table.drop(*map(self.table.key, rows))

    def logged(self) -> int:
        return sum(len(each.logs) for each in self.table.coordinator().shown().logged)

    def compact(self) -> None:
        # Without its version Java upgrades the metadata table of a table of version 8.
        version = f"hoodie.write.table.version={self.table.layout.version},hoodie.write.auto.upgrade=false"
        options = f"options => 'hoodie.compact.inline.max.delta.commits=1,{version}'"
        self.table.java.sql(f"CALL run_compaction(op => 'run', path => '{self.table.path}', {options})")

    def agree(self, *columns: str) -> None:
        """Readers see the model, the metadata table lists the files, and skipping by it costs no row."""
        table = self.table
        table.agree()
        agrees(table, columns)
        assert partitions(table) == KEPT - (set() if table.layout.partitions else {"partition_stats"})
        checks = run("doctor", table.path, "--json", "--config", str(table.hudi_file)).json["checks"]
        assert [each["found"] for each in checks if each["name"] == "metadata" and each["status"] != "ok"] == []


@pytest.mark.in_ci
@pytest.mark.timeout(900)  # with FULL=1 Java answers 400 queries
@pytest.mark.sampled(promise=LOGGED)
@pytest.mark.parametrize("name", but([*LAYOUTS], ["types"]))
def test_java_finds_the_rows_of_log_files_by_its_metadata_table(share: Share, name: str) -> None:
    both = Both(share, LAYOUTS[name], *(row(n, ("eu", "us")[n % 2]) for n in range(20)))
    both.ours(row(0, "eu", v=-5, s="ours", d=-1.5), row(1, "us", v=-6))
    both.deletes(row(3, "us"))
    assert both.logged() == (3 if both.table.layout.partitions else 2)
    both.agree("v", "s", "d", "at", "small")
    both.theirs("upsert", row(2, "eu", v=-7, s="theirs"), row(30, "zz"))
    both.theirs("delete", row(5, "us"))
    both.agree("v", "s", "d")
    both.ours(row(2, "eu", s="again"), row(31, "zz"), row(32, "us"))
    both.agree("v", "s", "at")
    both.compact()
    both.agree("v", "s")
    both.ours(row(2, "eu", v=-9))
    both.theirs("upsert", row(4, "eu", v=-10), hoodie__logfile__data__block__format="parquet")
    both.agree("v", "s")


@pytest.mark.in_ci
@pytest.mark.sampled(promise=LOGGED)
def test_java_makes_its_statistics_anew_of_log_files_of_lakelock(share: Share) -> None:
    both = Both(share, MERGED, *(row(n, ("eu", "us")[n % 2]) for n in range(20)))
    both.ours(row(0, "eu", v=-5, s="ours"))
    both.theirs("upsert", row(1, "us", v=-6), hoodie__metadata__index__column__stats__enable="false")
    assert partitions(both.table) == {"files"}
    both.ours(row(2, "eu", v=-7, s="ours, too"))
    both.deletes(row(4, "eu"))
    both.theirs("upsert", row(3, "us", v=-8))
    both.agree("v", "s", "d", "at")


@pytest.mark.in_ci
@pytest.mark.sampled(promise=TIDIED)
def test_both_tidy_up_a_table_of_log_files_and_its_metadata_table(share: Share) -> None:
    both = Both(share, SMALL, *((key, 0, "eu") for key in "abcdefghijkl"))
    table, choose = both.table, Random(7)
    sweeping = {"clean.policy": "KEEP_LATEST_COMMITS", "clean.keep_commits": 1, "clean.readers_s": 0}
    sweeping |= {"archive.min_commits": 3, "archive.max_commits": 4, "archive.min_age_s": 0}
    for step in range(1, examples(10, 13)):
        rows = [(key, step, "eu") for key in choose.sample("abcdefghijkl", 2)]
        if step % 3 == 2:
            both.ours(*rows)
        else:
            both.theirs("upsert", *rows, **(OFTEN if step > 6 else {"hoodie__clean__automatic": "false"}))
        if step % 4 == 0:
            both.compact()
        with table.coordinator(**sweeping) as upkeep:
            upkeep.clean()
            upkeep.archive()
        if step % 3 == 0:
            both.agree("v")


@pytest.mark.in_ci
@pytest.mark.sampled(promise=DEAD_WRITERS)
@pytest.mark.parametrize("step", ["validated", "metadata-logged", "metadata-kept"])
def test_java_takes_back_log_files_of_a_dead_writer_and_their_part_of_the_metadata_table(share: Share, step: str) -> None:
    both = Both(share, SMALL, *((key, 0, "eu") for key in "abcdefgh"), ("x", 0, "us"))
    table = both.table
    with lakelock_writer(table, ("a", 100, "eu"), ("n", 5, "zz"), crash_at=step):
        (dead,) = table.pending()
        assert [name for name in table.traces(dead) if ".parquet" in name]
        table.age(dead)
    both.theirs("upsert", ("b", 1, "eu"))
    assert [name for name in table.traces(dead) if "timeline" not in name and ".lakelock" not in name] == []
    both.agree("v")
    both.ours(("a", 2, "eu"), ("c", 2, "eu"), ("x", 2, "us"))
    both.agree("v")
    both.theirs("upsert", ("a", 3, "eu"))
    both.agree("v")
