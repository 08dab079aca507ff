"""`lakelock adopt` on a table of Java's own defaults: after it both write, and every reader sees every row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.behaviour.cli.command_line import run
from tests.interop.existing.test_java_made import MADE, QUERY, changed, made, properties_of, seen_by_all
from tests.interop.shared import MADE_BY_EITHER, QUICK, Shared


@pytest.mark.in_ci
@pytest.mark.sampled(promise=MADE_BY_EITHER)
@pytest.mark.parametrize("operation", ["bulk_insert", "upsert"])
def test_an_adopted_table_of_javas_defaults_is_written_by_both(share: Callable[..., Shared], operation: str) -> None:
    table = made(share, {"hoodie.datasource.write.operation": operation})
    assert (Path(table.path) / ".hoodie" / "metadata").exists()
    at = ("--config", str(table.hudi_file))
    before, rows = properties_of(table), seen_by_all(table)
    planned = run("adopt", table.path, "--remove-indexes", "--dry-run", "--json", *at).json
    assert planned["proven"] == 1 and not planned["live"] and properties_of(table) == before
    done = run("adopt", table.path, "--remove-indexes", "--yes", "--json", *at).json
    assert done["done"] and (Path(table.path) / ".hoodie" / "metadata" / "files").exists()
    assert seen_by_all(table) == rows
    engine = table.engine()
    engine.upsert(pa.concat_tables([changed(table, 0, 100), changed(table, 10, 1)]))
    assert seen_by_all(table) == [(0, 100), (1, 2), (2, 4), (3, 6), (10, 1)]
    java = {"hoodie.table.name": table.name, **QUICK, **MADE, **dict(o.split("=") for o in done["java_options"]), **table.lock}
    table.java.write_query(table.path, QUERY.replace("range(4)", "range(3, 5)"), java)
    engine.upsert(changed(table, 4, 400))
    assert seen_by_all(table) == [(0, 100), (1, 2), (2, 4), (3, 6), (4, 400), (10, 1)]


@pytest.mark.in_ci
def test_java_goes_on_after_an_adoption_was_undone(share: Callable[..., Shared]) -> None:
    table = made(share, {})
    at = ("--config", str(table.hudi_file))
    assert run("adopt", table.path, "--yes", "--drop-metadata-table", *at).code == 0
    assert run("adopt", table.path, "--undo", *at).code == 0
    defaults = {"hoodie.table.name": table.name, **QUICK, **MADE}
    table.java.write_query(table.path, QUERY.replace("range(4)", "range(5)"), defaults)
    assert (Path(table.path) / ".hoodie" / "metadata").exists()
    assert table.by_java().num_rows == 5
