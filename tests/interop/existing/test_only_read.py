"""Tables that lakelock only reads, while Java Hudi goes on writing them: merge-on-read, and version 6. Java's reads decide."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import ArrowEngine
from tests.interop.shared import Layout, Shared, as_rows
from tests.sizes import but

from lakelock.errors import TableError

Share = Callable[..., Shared]
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64()), ("ts", pa.int64()), ("region", pa.string())])
READ_OPTIMIZED = {"hoodie.datasource.query.type": "read_optimized"}
MERGE_ON_READ = {
    "hoodie__datasource__write__table__type": "MERGE_ON_READ", "hoodie__compact__inline": "true",
    "hoodie__compact__inline__max__delta__commits": "3", "hoodie__parquet__small__file__limit": "0",
    "hoodie__table__timeline__timezone": "UTC",
}  # fmt: skip
ARCHIVED = {
    "hoodie__keep__min__commits": "3", "hoodie__keep__max__commits": "4", "hoodie__clean__commits__retained": "1",
    "hoodie__compact__inline__max__delta__commits": "5",
}  # fmt: skip
KINDS: dict[str, tuple[Layout, dict[str, str]]] = {
    "by event time": (Layout("mor", ordering="ts", schema=SCHEMA), MERGE_ON_READ),
    "by commit time": (Layout("mor", schema=SCHEMA), MERGE_ON_READ),
    "by event time, version 8": (Layout("mor", ordering="ts", schema=SCHEMA, version=8), MERGE_ON_READ),
    "Parquet in the logs": (
        Layout("mor", ordering="ts", schema=SCHEMA), {**MERGE_ON_READ, "hoodie__logfile__data__block__format": "parquet"}
    ),
    "by event time, version 6": (Layout("mor", ordering="ts", schema=SCHEMA, version=6), MERGE_ON_READ),
    "by commit time, version 6": (Layout("mor", schema=SCHEMA, version=6), MERGE_ON_READ),
    "archived, version 6": (Layout("mor", ordering="ts", schema=SCHEMA, version=6), {**MERGE_ON_READ, **ARCHIVED}),
    "copy-on-write, version 6": (Layout("old", ordering="ts", schema=SCHEMA, version=6), {}),
}  # fmt: skip


@pytest.mark.in_ci
@pytest.mark.sampled
@pytest.mark.parametrize("kind", but(KINDS, ["by event time", "archived, version 6"]))
def test_after_each_write_of_java_the_rows_are_those_that_java_shows(share: Share, kind: str) -> None:
    layout, options = KINDS[kind]
    table, choose = share(layout, create=False), Random(kind)

    def row() -> tuple[object, ...]:
        key = choose.choice("abcdef")
        return key, choose.randrange(100), choose.randrange(10), "eu" if key < "d" else "us"

    table.java_write("insert", *((key, 0, 5, "eu" if key < "d" else "us") for key in "abcde"), **options)
    for step in range(7):
        rows = {found[0]: found for found in (row() for _ in range(2))}
        table.java_write(choose.choice(["upsert", "upsert", "delete"]), *rows.values(), **options)
        assert as_rows(table.by_lakelock(), SCHEMA) == as_rows(table.by_java(), SCHEMA), f"after step {step}"
    bases = ArrowEngine(table.coordinator()).read(query_type="read_optimized")
    assert as_rows(bases, SCHEMA) == as_rows(table.java.read(table.path, options=READ_OPTIMIZED), SCHEMA)
    if layout.ordering is None and layout.version > 6:
        table.engine().delete(pc.field("id") == "a")
        assert as_rows(table.by_lakelock(), SCHEMA) == as_rows(table.by_java(), SCHEMA)
        return
    with pytest.raises(TableError, match="lakelock does not write the table"):
        table.engine().delete(pc.field("id") == "a")


@pytest.mark.parametrize("version", but([9, 6], [9]))
def test_rows_that_are_only_in_log_files_older_than_any_base_file_are_shown(share: Share, version: int) -> None:
    """Hudi's index in memory lets Spark write new rows into logs, as Flink does with any index."""
    table = share(Layout("mor", ordering="ts", schema=SCHEMA, version=version), create=False)
    options = {**MERGE_ON_READ, "hoodie__index__type": "INMEMORY", "hoodie__compact__inline": "false"}
    table.java_write("upsert", ("a", 1, 1, "eu"), **options)
    assert ArrowEngine(table.coordinator()).read(query_type="read_optimized").num_rows == 0
    table.java_write("insert_overwrite", ("x", 2, 1, "us"), **options)
    assert as_rows(table.by_java(), SCHEMA) == [("a", 1, 1, "eu"), ("x", 2, 1, "us")]
    assert as_rows(table.by_lakelock(), SCHEMA) == as_rows(table.by_java(), SCHEMA)


@pytest.mark.in_ci
def test_every_row_of_a_long_log_block_is_shown(share: Share) -> None:
    table, count = share(Layout("mor", ordering="ts", schema=SCHEMA), create=False), 10_050
    for version in range(2):
        rows = [(f"k{number}", version, version, "eu") for number in range(count)]
        table.java_write("upsert" if version else "insert", *rows, **MERGE_ON_READ)
    found = table.by_lakelock()
    assert (found.num_rows, set(found.column("v").to_pylist())) == (count, {1})
    assert as_rows(found, SCHEMA) == as_rows(table.by_java(), SCHEMA)
