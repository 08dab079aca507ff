"""Merge-on-read tables that Java Hudi and lakelock write in turn: Java with log files, lakelock with base files."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.interop.shared import TIDIED, Layout, Row, Shared
from tests.sizes import but, examples

from lakelock.errors import ConflictError
from lakelock.settings import OptimizeSettings

Share = Callable[..., Shared]
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64()), ("region", pa.string())])
LOGS = {"hoodie__parquet__small__file__limit": "0", "hoodie__compact__inline": "false"}
"""Java writes log files, and compacts them on request only."""
FILES_ONLY = "hoodie.metadata.index.column.stats.enable=false"
"""Java's metadata table lists files; `existing/test_metadata_merge_on_read.py` is about its statistics."""

SWEEPING = {"clean.policy": "KEEP_LATEST_COMMITS", "clean.keep_commits": 1, "clean.readers_s": 0}
SWEEPING |= {"archive.min_commits": 3, "archive.max_commits": 4, "archive.min_age_s": 0}
"""With statistics and without: a build shows one of the two."""


def of(version: int = 9) -> Layout:
    return Layout("mor", schema=SCHEMA, version=version, table_type="MERGE_ON_READ")


def ours(table: Shared, *rows: Row) -> None:
    table.engine().upsert(table.rows(*rows))
    table.put(*rows)


def theirs(table: Shared, *rows: Row, operation: str = "upsert", **more: str) -> None:
    table.java_write(operation, *rows, **{**LOGS, **more})
    table.put(*rows) if operation != "delete" else table.drop(*map(table.key, rows))


def logged(table: Shared) -> int:
    return sum(len(each.logs) for each in table.coordinator().shown().logged)


def _options(table: Shared) -> str:
    """Without the version Java's procedures bring the metadata table of an older table to their own."""
    return f"{FILES_ONLY},hoodie.write.table.version={table.layout.version},hoodie.write.auto.upgrade=false"


def planned(table: Shared) -> str:
    options = f"options => '{_options(table)},hoodie.compact.inline.max.delta.commits=1'"
    (plan,) = table.java.sql(f"CALL run_compaction(op => 'schedule', path => '{table.path}', {options})")
    return str(plan["timestamp"])


def compact(table: Shared, plan: str = "") -> None:
    what = f"timestamp => {plan or planned(table)}, options => '{_options(table)}'"
    table.java.sql(f"CALL run_compaction(op => 'execute', path => '{table.path}', {what})")


@pytest.mark.in_ci
@pytest.mark.parametrize("version", but([9, 8], [9]))
def test_java_and_lakelock_write_one_table_in_turn(share: Share, version: int) -> None:
    table = share(of(version))
    ours(table, *((key, 0, "eu") for key in "abcd"), *((key, 0, "us") for key in "xyz"))
    table.agree()
    theirs(table, ("a", 1, "eu"), ("b", 1, "eu"), ("x", 1, "us"))
    theirs(table, ("c", 0, "eu"), operation="delete")
    assert logged(table) == 3
    table.agree()

    ours(table, ("a", 2, "eu"), ("c", 2, "eu"), ("n", 2, "eu"))
    table.agree()
    table.engine().delete(pc.field("v") == 1)
    table.drop(("eu", "b"), ("us", "x"))
    table.agree()

    theirs(table, ("a", 3, "eu"), ("y", 3, "us"), ("m", 3, "eu"))
    table.engine().update({"v": pc.add(pc.field("v"), 10)}, pc.field("region") == "us")
    table.put(("y", 13, "us"), ("z", 10, "us"))
    table.agree()
    theirs(table, ("z", 4, "us"))
    compact(table)
    table.agree()
    ours(table, ("z", 5, "us"), ("d", 5, "eu"))
    table.agree()
    table.engine().overwrite_partitions(table.rows(("o", 6, "us")))
    table.replace_partition(("us",), ("o", 6, "us"))
    table.agree()
    theirs(table, ("o", 7, "us"), ("a", 7, "eu"))
    table.agree()


@pytest.mark.in_ci
def test_all_rows_of_a_file_group_change_while_java_has_planned_to_compact_it(share: Share) -> None:
    table = share(of())
    ours(table, ("a", 0, "eu"), ("b", 0, "eu"), ("c", 0, "eu"), ("x", 0, "us"))
    theirs(table, ("a", 1, "eu"))
    plan = planned(table)
    ours(table, ("a", 2, "eu"), ("b", 2, "eu"), ("c", 2, "eu"), ("x", 2, "us"), ("n", 2, "eu"))
    table.agree()
    table.engine().delete(pc.field("id") == "b")
    table.drop(("eu", "b"))
    table.agree()
    with pytest.raises(ConflictError, match="compaction"):
        table.engine().overwrite_partitions(table.rows(("z", 2, "eu")))
    compact(table, plan)
    table.agree()
    ours(table, ("a", 3, "eu"))
    table.agree()


@pytest.mark.in_ci
@pytest.mark.parametrize("version", but([9, 8], [9]))
def test_java_goes_on_with_what_lakelock_has_compacted(share: Share, version: int) -> None:
    """It reads it, appends to it, compacts it again, cleans and archives; and lakelock what Java has compacted."""
    table = share(of(version))
    ours(table, *((key, 0, "eu") for key in "abcdef"), *((key, 0, "us") for key in "xyz"))
    for step in range(1, examples(6, 9)):
        theirs(table, ("a", step, "eu"), ("y", step, "us"))
        theirs(table, ("b", step, "eu"), operation="delete")
        if step % 3 == 0:
            compact(table)
        else:
            assert table.engine().optimize(sizes=OptimizeSettings(small_file_bytes=1)).compacted >= 2
        assert logged(table) == 0
        table.agree()
        ours(table, ("b", step, "eu"), ("x", step, "us"))
        with table.coordinator(**SWEEPING) as upkeep:
            assert upkeep.upkeep().problems == ()
        table.agree()


@pytest.mark.in_ci
@pytest.mark.sampled(promise=TIDIED)
def test_both_clean_and_archive_what_the_other_has_left(share: Share) -> None:
    table, choose = share(of()), Random(7)
    ours(table, *((key, 0, "eu") for key in "abcdef"))
    javas = {"hoodie__keep__min__commits": "3", "hoodie__keep__max__commits": "4", "hoodie__clean__commits__retained": "1"}
    for step in range(1, 13):
        rows = [(key, step, "eu") for key in choose.sample("abcdef", 2)]
        if step % 3 == 2:
            ours(table, *rows)
        else:
            theirs(table, *rows, **(javas if step > 6 else {"hoodie__clean__automatic": "false"}))
        if step % 6 == 0:
            compact(table)
        with table.coordinator(**SWEEPING) as upkeep:
            upkeep.clean()
            upkeep.archive()
        if step % 3 == 0 or step > 9:
            table.agree()
