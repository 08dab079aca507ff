"""Each extra brings what the pages say that it is for: nothing but `pip install 'lakelock[...]'` in a fresh environment."""

from __future__ import annotations

import json
import os
import re
from importlib import import_module
from pathlib import Path

import pytest
from tests.packaging.environments import ROOT, extended, run
from tests.servers.jvm import ALL_SHORT_LIVED
from tests.sizes import but

pytestmark = pytest.mark.slow

_NOWHERE = "127.0.0.1:1"
EXTRAS = "what lacks an extra names it, and works with it"
_README_RUNS = "tests.spark.test_docs_examples:test_the_python_of_a_page_runs_from_top_to_bottom"
"""Each run shows it in the environment of the tests; a fresh one takes two minutes."""
SERVICES = {
    "redis": [f"lock.provider=redis://{_NOWHERE}/0"],
    "zookeeper": [f"lock.provider=zookeeper://{_NOWHERE}/locks"],
    "hive-metastore": [f"lock.provider=hive_metastore://{_NOWHERE}/db/t"],
    "dynamodb": [
        "lock.provider=dynamodb://locks/t",
        "lock.options.region_name=us-east-1",
        f"lock.options.endpoint_url=http://{_NOWHERE}",
    ],
}
_NEW_TABLE = """
import sys
from lakelock.clock import SystemRuntime
from lakelock.occ.create import create_table
from lakelock.storage.local import LocalStorage
from lakelock.table.properties import TableProperties
create_table(LocalStorage(sys.argv[1]), TableProperties.new("t", ["id"]), SystemRuntime())
"""
_SUITE = """
import pytest
from lakelock.testing.lock_suite import LockedTable, LockProviderSuite

class TestMine(LockProviderSuite):
    @pytest.fixture
    def locked_table(self, tmp_path):
        return LockedTable({"lock.provider": "storage:"}, uri=str(tmp_path / "table"))
"""


def asked_of(python: Path, service: str, folder: Path) -> str:
    """What the doctor says of the lock of a table whose service does not run."""
    run(python, "-c", _NEW_TABLE, folder / "t", cwd=folder)
    settings = [word for setting in (*SERVICES[service], "lock.wait_s=0.5") for word in ("--set", setting)]
    keys = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_MAX_ATTEMPTS": "1"}
    said = run(python, "-m", "lakelock.cli", "doctor", folder / "t", "--json", *settings, cwd=folder, code=1, **keys)
    (lock,) = [each for each in json.loads(said)["checks"] if (each["name"], each["status"]) == ("lock", "failed")]
    return f"{lock['found']}; next: {lock['hint']}"


@pytest.mark.in_ci
@pytest.mark.sampled(promise=EXTRAS)
@pytest.mark.parametrize("service", but(SERVICES, {"redis"}))
def test_a_lock_service_needs_its_extra_and_nothing_more(wheel: Path, clean_python: Path, tmp_path: Path, service: str) -> None:
    command = f"pip install 'lakelock[{service}]'"
    assert command in asked_of(clean_python, service, tmp_path)
    (tmp_path / "with").mkdir()
    python = extended(tmp_path / "env", clean_python.parents[1], f"lakelock[{service}] @ {wheel.as_uri()}")
    said = asked_of(python, service, tmp_path / "with")
    assert "pip install" not in said
    assert _NOWHERE in said, "it has tried to reach the service"


@pytest.mark.in_ci
@pytest.mark.parametrize("catalog", but(["glue", "hive_metastore"], {"glue"}))
def test_a_catalog_says_which_extra_brings_its_client(clean_python: Path, tmp_path: Path, catalog: str) -> None:
    run(clean_python, "-c", _NEW_TABLE, tmp_path / "t", cwd=tmp_path)
    settings = ("--set", f"catalog.type={catalog}", "--set", f"catalog.uris=thrift://{_NOWHERE}")
    said = run(
        clean_python, "-m", "lakelock.cli", "register", tmp_path / "t", "a.b", "--json", *settings, cwd=tmp_path, code=None
    )
    assert f"pip install 'lakelock[{catalog.replace('_', '-')}]'" in said


@pytest.mark.in_ci
def test_hdfs_says_which_extra_brings_its_client(clean_python: Path, tmp_path: Path) -> None:
    said = run(clean_python, "-m", "lakelock.cli", "doctor", f"hdfs://{_NOWHERE}/t", "--json", cwd=tmp_path, code=None)
    assert "pip install 'lakelock[hdfs]'" in said


@pytest.mark.in_ci
def test_statements_in_sql_need_their_extra_where_spark_comes_from_elsewhere(
    wheel: Path, clean_python: Path, tmp_path: Path
) -> None:
    spark = tmp_path / "spark"
    spark.mkdir()
    for package in ("pyspark", "py4j"):
        (spark / package).symlink_to(Path(import_module(package).__path__[0]))
    program = (
        "from lakelock.spark_plugin.sql_planning import StatementPlanner\n"
        "StatementPlanner(None, None, None, 'file:///t', None).plan('SELECT 1')"
    )
    missing = run(clean_python, "-c", program, cwd=tmp_path, code=1, PYTHONPATH=str(spark))
    assert "pip install 'lakelock[sql]'" in missing
    python = extended(tmp_path / "env", clean_python.parents[1], f"lakelock[sql] @ {wheel.as_uri()}")
    assert "not SELECT" in run(python, "-c", program, cwd=tmp_path, code=1, PYTHONPATH=str(spark))


@pytest.mark.in_ci
@pytest.mark.sampled(promise=EXTRAS)
@pytest.mark.parametrize("listener", but(["PrometheusMetrics", "OpenTelemetryMetrics"], {"PrometheusMetrics"}))
def test_metrics_need_their_extra(wheel: Path, clean_python: Path, tmp_path: Path, listener: str) -> None:
    program = f"from lakelock.metrics import {listener}\n{listener}()"
    assert "pip install 'lakelock[metrics]'" in run(clean_python, "-c", program, cwd=tmp_path, code=1)
    python = extended(tmp_path / "env", clean_python.parents[1], f"lakelock[metrics] @ {wheel.as_uri()}")
    run(python, "-c", program, cwd=tmp_path)


@pytest.mark.in_ci
def test_the_suite_for_lock_providers_runs_with_its_extra(wheel: Path, clean_python: Path, tmp_path: Path) -> None:
    python = extended(tmp_path / "env", clean_python.parents[1], f"lakelock[testing] @ {wheel.as_uri()}")
    (tmp_path / "test_mine.py").write_text(_SUITE)
    told = run(python, "-m", "pytest", "-q", "-k", "mutual or second or token", "test_mine.py", cwd=tmp_path)
    assert re.search(r"\d+ passed", told)


@pytest.mark.in_ci
@pytest.mark.sampled(promise=_README_RUNS)
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_quickstart_of_the_readme_runs_with_what_the_readme_says_and_runs_again(
    wheel: Path, clean_python: Path, tmp_path: Path
) -> None:
    text = (ROOT / "README.md").read_text()
    (command,) = re.findall(r"^pip install '(lakelock\[spark\])'", text, re.MULTILINE)
    program = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]
    python = extended(tmp_path / "env", clean_python.parents[1], f"{command} @ {wheel.as_uri()}")
    assert "/tmp/orders" in program
    (tmp_path / "quickstart.py").write_text(program.replace("/tmp/orders", str(tmp_path / "orders")))
    # What `activate` does: Spark's workers are started as `python3`.
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    quick = {"PATH": path, **ALL_SHORT_LIVED}
    told = [run(python, tmp_path / "quickstart.py", cwd=tmp_path, **quick) for _ in range(2)]
    assert all("2 inserted" in each for each in told), "the first run has deleted both rows"
