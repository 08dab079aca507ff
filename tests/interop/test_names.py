"""A table that lakelock named in a Hive metastore is there as if Hudi had named it, and Spark with Hudi reads it by name."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.integration.catalogs.catalog_world import NamedTable, orders
from tests.servers.fetched.java_hudi import java_hudi
from tests.servers.jvm import ALL_SHORT_LIVED

from lakelock.testing.service import Service

PROGRAM = Path(__file__).with_name("names_session.py")


@pytest.mark.in_ci
def test_hudis_own_sync_and_ours_make_the_same_entry_take_each_others_and_spark_reads_it_by_its_name(
    hive_metastore: Service, tmp_path: Path
) -> None:
    uris = f"thrift://127.0.0.1:{hive_metastore.port}"
    options = {"catalog.type": "hive_metastore", "catalog.uris": uris, "catalog.table": "sales.orders"}
    table = NamedTable.new(tmp_path / "orders", options)
    engine = table.writer()
    engine.insert(orders((1, "berlin"), (2, "paris")))
    engine.insert(orders((3, "rome"), (4, "oslo")))
    command = java_hudi().command(PROGRAM, uris, f"file:{table.path}", "sales.orders", "sales.twin")
    env = {**os.environ, **ALL_SHORT_LIVED}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == [[1, "berlin"], [2, "paris"], [3, "rome"], [4, "oslo"]] and found["chosen"] == 2
    assert comparable(found["ours"]) == comparable(found["hudis"]) == comparable(found["ours after hudi"])
    taken = engine.coordinator.register("sales.twin")
    assert (taken.created, taken.columns_changed, taken.added, taken.dropped) == (False, False, 0, 0)
    assert table.alerts == []


def comparable(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry without what tells when and by which program it was made; the columns for Spark as values, not as text."""
    parameters = dict(entry["parameters"])
    for of_one_side in ("transient_lastDdlTime", "hudi_writer_version"):
        parameters.pop(of_one_side, None)
    parameters["spark.sql.sources.schema.part.0"] = json.loads(parameters["spark.sql.sources.schema.part.0"])
    return {**entry, "parameters": parameters}
