"""Upkeep by lakelock, as Java Hudi sees it: no row changes by an optimize, a restore is undone and cleaned like any commit."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow.compute as pc
import pytest
from tests.interop.shared import REPLACED, Shared, as_rows

from lakelock.errors import LakelockError

Share = Callable[..., Shared]
INCREMENT = {"hoodie__datasource__query__type": "incremental"}
SINCE = "hoodie__datasource__read__begin__instanttime"


def seen(table: Shared, **options: str) -> list[tuple[object, ...]]:
    named = {key.replace("__", "."): value for key, value in options.items()}
    return as_rows(table.java.read(table.path, options=named), table.layout.schema)


@pytest.mark.in_ci
@pytest.mark.sampled(promise=REPLACED)
def test_java_reads_and_writes_on_after_an_optimize_and_travels_to_before_it(share: Share) -> None:
    table = share()
    engine = table.engine()
    table.java_write("insert", ("a", 1, "eu"), ("b", 2, "us"))
    for number in range(3):
        row = (f"c{number}", number, "eu")
        last = engine.insert(table.rows(row))
        table.put(row)
    table.put(("a", 1, "eu"), ("b", 2, "us"))
    table.agree()
    before = seen(table)
    done = engine.optimize()
    assert (done.files_before, done.files_after) == (4, 1)
    table.agree()
    assert seen(table, as__of__instant=last.instant) == before
    assert seen(table, **INCREMENT, **{SINCE: last.completion}) == []
    table.java_write("upsert", ("a", 10, "eu"), ("c1", 11, "eu"), ("d", 4, "us"))
    table.put(("a", 10, "eu"), ("c1", 11, "eu"), ("d", 4, "us"))
    table.agree()
    engine.upsert(table.rows(("c2", 22, "eu")))
    table.put(("c2", 22, "eu"))
    table.agree()


@pytest.mark.in_ci
@pytest.mark.sampled(promise=REPLACED)
def test_java_reads_and_writes_on_after_an_optimize_took_the_last_file_out_of_a_partition(share: Share) -> None:
    table = share()
    engine = table.engine()
    table.java_write("insert", ("a", 1, "eu"), ("b", 2, "us"))
    last = engine.upsert(table.rows(("b", 3, "us")))
    before = seen(table)
    engine.delete_where(pc.field("region") == "us")
    table.put(("a", 1, "eu"))
    done = engine.optimize()
    assert (done.files_before, done.files_after) == (1, 0)
    table.agree()
    assert seen(table, as__of__instant=last.instant) == before
    table.java_write("upsert", ("a", 10, "eu"), ("d", 4, "us"))
    table.put(("a", 10, "eu"), ("d", 4, "us"))
    table.agree()


@pytest.mark.in_ci
@pytest.mark.sampled(promise=REPLACED)
def test_java_reads_a_restored_table_writes_on_and_travels_to_before_the_restore(share: Share) -> None:
    table = share()
    engine = table.engine()
    table.java_write("insert", ("a", 1, "eu"), ("b", 2, "us"))
    good = engine.upsert(table.rows(("a", 2, "eu"), ("c", 3, "eu")))
    table.put(("a", 2, "eu"), ("b", 2, "us"), ("c", 3, "eu"))
    table.java_write("upsert", ("b", 99, "us"), ("x", 99, "as"))
    bad = engine.overwrite_partitions(table.rows(("y", 99, "eu")))
    wrong = seen(table)
    engine.restore(good.instant)
    table.agree()
    assert seen(table, as__of__instant=bad.instant) == wrong
    table.java_write("upsert", ("a", 4, "eu"), ("b", 5, "us"))
    table.put(("a", 4, "eu"), ("b", 5, "us"))
    table.agree()
    cleaning = {"hoodie__clean__automatic": "true", "hoodie__clean__commits__retained": "1"}
    for value in (6, 7, 8):
        table.java_write("upsert", ("a", value, "eu"), ("b", value, "us"), **cleaning)
        table.put(("a", value, "eu"), ("b", value, "us"))
    assert table.instants(".clean")
    table.agree()
    with pytest.raises(LakelockError, match="cannot be restored"):
        engine.restore(good.instant)
    table.agree()
