"""What pyproject.toml allows at the least is enough: the lowest versions that it names, in a fresh environment."""

from __future__ import annotations

import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.packaging.environments import new_environment, run
from tests.packaging.test_extras import EXTRAS, SERVICES, asked_of

_WRITE = """
import sys
import pyarrow as pa
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from lakelock.clock import SystemRuntime
from lakelock.engine.arrow import ArrowEngine
from lakelock.metrics import OpenTelemetryMetrics
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.create import create_table
from lakelock.settings import Settings
from lakelock.storage.local import LocalStorage
from lakelock.storage.location import StorageLocation
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema
rows = pa.table({"id": ["a"], "n": [1]})
schema = TableSchema.from_arrow(rows.schema).to_avro_json("t")
create_table(LocalStorage(sys.argv[1]), TableProperties.new("t", ["id"], create_schema=schema), SystemRuntime())
reader = InMemoryMetricReader()
listener = OpenTelemetryMetrics(MeterProvider([reader]).get_meter("test"))
with Coordinator.open(StorageLocation(sys.argv[1]), Settings(), listeners=[listener]) as coordinator:
    ArrowEngine(coordinator).upsert(rows)
    print(ArrowEngine(coordinator).read().to_pylist())
assert "lakelock.commits" in reader.get_metrics_data().to_json()
"""


def lowest(*extras: str) -> dict[str, str]:
    """The lowest version of each requirement that counts on this machine, also of those that `extras` add."""
    found = {}
    for requirement in map(Requirement, requires("lakelock") or ()):
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            found[requirement.name] = next(each.version for each in requirement.specifier if each.operator == ">=")
    return found


@pytest.mark.in_ci
@pytest.mark.sampled(promise=EXTRAS)
@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the lowest numpy has no wheel for this Python")
def test_commands_a_write_metrics_and_lock_services_work_with_the_lowest_versions(wheel: Path, tmp_path: Path) -> None:
    extras = ("metrics", *SERVICES)
    named = lowest(*extras)
    assert {"typer", "pyarrow", "opentelemetry-api", "boto3"} <= named.keys() and "pytest" not in named
    named["opentelemetry-sdk"] = named["opentelemetry-api"]
    constraints = tmp_path / "lowest.txt"
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in named.items()))
    wanted = (f"lakelock[{','.join(extras)}] @ {wheel.as_uri()}", "opentelemetry-sdk", "--constraint", constraints)
    python = new_environment(tmp_path / "env", *wanted)
    assert "{'id': 'a', 'n': 1}" in run(python, "-c", _WRITE, tmp_path / "t", cwd=tmp_path)
    for command in ("doctor", "commits ls", "profile"):
        run(python.parent / "lakelock", *command.split(), tmp_path / "t", cwd=tmp_path)
    for service in SERVICES:
        (tmp_path / service).mkdir()
        assert "127.0.0.1:1" in asked_of(python, service, tmp_path / service), "it has tried to reach the service"
