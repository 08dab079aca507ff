"""Tables as Java makes them of its own accord: which lakelock writes, what it says of the others, and that its advice works."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.api import ArrowEngine, TableIO, read_snapshot, read_timeline
from tests.behaviour.cli.command_line import run
from tests.interop.shared import ASKED, MADE_BY_EITHER, QUICK, Layout, Shared

from lakelock.errors import TableError

Share = Callable[..., Shared]

# Everything here is not null, but for `price`: Spark cannot know that a cast to a decimal fits.
QUERY = """
    select id, id * 2 as v, concat('n', id) as name, if(id < 2, 'eu', 'us') as region, current_timestamp() as at,
           named_struct('x', id, 'tags', array('t')) as place, array(id) as list, map('k', id) as counts,
           array(array(id)) as lists,
           map('k', named_struct('y', array(id))) as deep, cast(id as decimal(38, 10)) as exact, date'2026-01-01' as day,
           cast(id as float) as ratio, cast('b' as binary) as bytes, cast(id as decimal(7, 3)) as price
    from range(4)
"""
MADE = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.partitionpath.field": "region"}
UTC = {"hoodie.table.timeline.timezone": "UTC"}
NO_METADATA = {"hoodie.metadata.enable": "false"}


def made(share: Share, options: dict[str, str], query: str = QUERY) -> Shared:
    """A table that Java makes, with these options and the least that it asks for."""
    table = share(Layout("made by Java", hive_style=False), create=False)
    table.java.write_query(table.path, query, {"hoodie.table.name": table.name, **QUICK, **MADE, **options})
    return table


def changed(table: Shared, key: int, v: int) -> pa.Table:
    """The stored row of a key with another value, or a new one."""
    rows = table.by_lakelock()
    row = rows.filter(pc.field("id") == (key if key in rows.column("id").to_pylist() else 0))
    fields = {"id": pa.array([key], pa.int64()), "v": pa.array([v], pa.int64())}
    return pa.table([fields.get(f.name, row.column(f.name)) for f in row.schema], schema=row.schema)


def seen_by_all(table: Shared) -> list[tuple[int, int]]:
    """Key and value of every row, as all three readers see them."""
    found = [sorted(zip(*(r.column(n).to_pylist() for n in ("id", "v")), strict=True))
             for r in (table.by_lakelock(), table.by_hudi_rs(), table.by_java())]  # fmt: skip
    assert found[0] == found[1] == found[2]
    return found[0]


@pytest.mark.in_ci
@pytest.mark.sampled(promise=MADE_BY_EITHER)
@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_a_table_with_columns_that_are_not_null_is_written_by_both(share: Share, operation: str) -> None:
    table = made(share, {**NO_METADATA, **UTC, "hoodie.datasource.write.operation": operation})
    found = schemas(table)[0]
    said = table.coordinator().schema().as_found
    assert not found.field("id").nullable and not found.field("at").nullable and found.field("price").nullable
    engine = table.engine()
    engine.insert(changed(table, 10, 1))
    engine.upsert(pa.concat_tables([changed(table, 0, 100), changed(table, 2, 200), changed(table, 11, 11)]))
    engine.delete(pc.field("id") == 1)
    assert seen_by_all(table) == [(0, 100), (2, 200), (3, 6), (10, 1), (11, 11)]
    # But for the names of lists' elements, which Java's writers give in two ways and Arrow does not count.
    assert all(schema.equals(found, check_metadata=False) for schema in schemas(table))
    assert table.coordinator().schema().as_found == said
    options = {"hoodie.table.name": table.name, **QUICK, **MADE, **ASKED, **table.lock}
    table.java.write_query(table.path, QUERY.replace("range(4)", "range(2, 6)"), options)
    assert seen_by_all(table) == [(0, 100), (2, 4), (3, 6), (4, 8), (5, 10), (10, 1), (11, 11)]
    engine.upsert(changed(table, 4, 400))
    assert (4, 400) in seen_by_all(table)


def schemas(table: Shared) -> list[pa.Schema]:
    files = read_snapshot(TableIO(table.storage), read_timeline(table.storage)).files
    return [pq.read_schema(Path(table.path) / file.key) for file in files]


@pytest.mark.in_ci
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_javas_default_table_is_written_as_it_is_and_java_goes_on(share: Share, kind: str) -> None:
    table = made(share, {"hoodie.datasource.write.table.type": kind})
    doctor = run("doctor", table.path, "--set", "concurrency.mode=SINGLE_WRITER")
    assert doctor.code == 0 and "its zone is LOCAL: the first write sets" in " ".join(doctor.out.split())
    engine = table.engine()
    engine.upsert(pa.concat_tables([changed(table, 0, 100), changed(table, 10, 1)]))
    assert seen_by_all(table) == [(0, 100), (1, 2), (2, 4), (3, 6), (10, 1)]
    assert (Path(table.path) / ".hoodie" / "metadata" / "files").exists()
    assert b"hoodie.table.timeline.timezone=UTC" in properties_of(table)
    java = {"hoodie.table.name": table.name, **QUICK, **MADE, **ASKED, **table.lock}
    table.java.write_query(table.path, QUERY.replace("range(4)", "range(3, 5)"), java)
    engine.upsert(changed(table, 4, 400))
    assert seen_by_all(table) == [(0, 100), (1, 2), (2, 4), (3, 6), (4, 400), (10, 1)]


def properties_of(table: Shared) -> bytes:
    return (Path(table.path) / ".hoodie" / "hoodie.properties").read_bytes()


def follow(share: Share, table: Shared, hint: str) -> None:
    """Do what the hint says, word for word, in Java; then both write the table."""
    options = dict(re.findall(r"(hoodie[\w.]+)=([\w]+)", hint))
    told = {**QUICK, **MADE, **options}
    if hint.startswith("copy its rows into a new table that Java makes with"):
        new = share(table.layout, create=False)
        table.java.copy(table.path, new.path, {"hoodie.table.name": new.name, **told})
        table = new
    else:
        assert re.match(r"let a Hudi 1.1 or 1.2 writer upgrade it", hint)
        table.java.write_query(table.path, QUERY, {"hoodie.table.name": table.name, **told})
    engine = table.engine()
    engine.upsert(pa.concat_tables([changed(table, 0, 100), changed(table, 10, 1)]))
    assert seen_by_all(table) == [(0, 100), (1, 2), (2, 4), (3, 6), (10, 1)]
    java = {"hoodie.table.name": table.name, **told, **ASKED, **table.lock}
    table.java.write_query(table.path, QUERY.replace("range(4)", "range(5)"), java)
    assert (4, 8) in seen_by_all(table)


@pytest.mark.in_ci
@pytest.mark.sampled(promise=MADE_BY_EITHER)
@pytest.mark.parametrize(
    "options",
    [
        {"hoodie.datasource.write.table.type": "MERGE_ON_READ", "hoodie.table.ordering.fields": "v"},
        {"hoodie.populate.meta.fields": "false"},
        {"hoodie.table.cdc.enabled": "true"},
        {"hoodie.datasource.write.drop.partition.columns": "true"},
        {"hoodie.write.table.version": "6", "hoodie.write.auto.upgrade": "false"},
    ],
    ids=lambda options: ", ".join(options),
)
def test_what_is_advised_makes_a_table_that_both_write(share: Share, options: dict[str, str]) -> None:
    told = {**MADE, **NO_METADATA, **UTC, **options}
    table = share(Layout("made by Java", hive_style=False), create=False)
    named = {"hoodie.table.name": table.name, **QUICK}
    table.java.write_query(table.path, QUERY, {**named, **{key: value for key, value in told.items() if value is not None}})
    with pytest.raises(TableError) as caught:
        ArrowEngine(table.coordinator()).delete(pc.field("id") == 99)
    follow(share, table, caught.value.hint)
