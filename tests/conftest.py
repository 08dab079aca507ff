"""Rules for all tests: what starts Spark or Java Hudi, what waits, and what happens where something is missing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import sampling
from tests.given_servers import ServerMissing

_SPARK_FOLDER = Path(__file__).parent / "spark"
_INTEROP_FOLDER = Path(__file__).parent / "interop"
_SIMULATION_FOLDER = Path(__file__).parent / "simulation"
_WAITING_FOLDERS = {Path(__file__).parent / name for name in ("faults", "integration", "interop", "spark")}
_OF_ONE_SERVICE = {
    Path(__file__).parent / "integration" / name for name in ("dynamodb", "hdfs", "java", "metastore", "redis", "zookeeper")
}
"""What only one service has. The lock matrix shows in each run what all of them promise."""
_SERVICES = {"s3_endpoint", "azure_table", "gcs_table", "clean_python"}
"""Fixtures that need a server, or a package index."""
_LONGEST_SIMULATION_S = 1800
"""They compute, at low priority beside others, and wait for nothing: on a busy machine one may take long, but none can hang."""
_LONGEST = (
    "interop/existing/test_metadata_merge_on_read.py",
    "interop/existing/test_record_index.py",
    "interop/existing/test_version_8.py",
    "interop/test_upkeep.py",
    "interop/test_writes_merge_on_read.py",
    "interop/at_once/test_careless_java.py",
    "interop/at_once/test_at_once.py",
    "packaging/test_extras.py",
    "packaging/test_lowest_versions.py",
    "packaging/test_site.py",
    "faults/test_killed.py",
    "faults/test_spark_cluster.py",
    "faults/test_packaged_executors.py",
    "integration/test_service_pulled_away.py",
    "integration/test_airflow.py",
    "spark/data_source/test_connect.py",
    "spark/at_once/test_demo_on_every_lock_service.py",
    "spark/on_object_stores/test_on_s3_express.py",
    "spark/trouble/test_spark_goes_away.py",
    "spark/at_once/test_killed_writers.py",
    "spark/writing/test_merges.py",
)
"""Files that take minutes, or whose one test does: they come first, or a process would run one when the others have ended."""
_IN_CI = bool(os.environ.get("CI"))
_IN_FULL = bool(os.environ.get("FULL"))
_SAMPLED = _IN_CI and not _IN_FULL

# Hypothesis has no deadline, since a busy machine is not a failure. Laptops look for new examples; CI takes the same ones each
# time, so that one commit has one result, and more of them.
settings.register_profile(
    "lakelock", deadline=None, print_blob=True, derandomize=_IN_CI, max_examples=100 if _IN_FULL else 50 if _IN_CI else 30
)
settings.load_profile("lakelock")


def _java_is_there() -> bool:
    home = os.environ.get("JAVA_HOME")
    return (Path(home) / "bin" / "java").exists() if home else shutil.which("java") is not None


def _waits(item: pytest.Item) -> bool:
    """Whether it waits for real time or real services: by its folder, its fixtures, or because it uses `tests.waiting`."""
    if not _WAITING_FOLDERS.isdisjoint(item.path.parents):
        return True
    if not isinstance(item, pytest.Function):
        return False
    names = vars(sys.modules.get(item.function.__module__, object))
    return not _SERVICES.isdisjoint(item.fixturenames) or any(
        getattr(value, "__module__", "") == "tests.waiting" for value in names.values()
    )


def pytest_configure() -> None:
    """The processes of a run take one sample, even if a commit comes in between."""
    if _SAMPLED:
        os.environ.setdefault(sampling.VARIABLE, sampling.seed_of_this_run())


def pytest_report_header() -> list[str]:
    return [sampling.header(sampling.seed_of_this_run())] if _SAMPLED else []


def _leave_out(config: pytest.Config, items: list[pytest.Item], deselected: list[pytest.Item]) -> None:
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        kept = set(items).difference(deselected)
        items[:] = [item for item in items if item in kept]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Everything in tests/spark starts Spark: `make tests` runs it alone. Without Java it is skipped.

    What waits has the marker `waits`, by a rule or by hand, and says so in the results, for `.ci/run_stages.py`. What only CI
    and the long form have is left out elsewhere, and CI takes a sample of what repeats a promise.
    """
    for item in items:
        if not _OF_ONE_SERVICE.isdisjoint(item.path.parents):
            item.add_marker(pytest.mark.in_ci)
    left_out = {name for name, runs in (("in_ci", _IN_CI or _IN_FULL), ("long", _IN_FULL)) if not runs}
    _leave_out(config, items, [item for item in items if any(mark.name in left_out for mark in item.iter_markers())])
    if _SAMPLED:
        _leave_out(config, items, sampling.left_out(items, sampling.seed_of_this_run()))
    first = {Path(__file__).parent / name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: first.get(item.path, len(first)))
    skip = pytest.mark.skip(reason="needs Java 17 or newer: apt-get install -y openjdk-17-jre-headless")
    without_java = not _java_is_there()
    for item in items:
        if _SPARK_FOLDER in item.path.parents:
            item.add_marker(pytest.mark.spark)
        if _INTEROP_FOLDER in item.path.parents:
            item.add_marker(pytest.mark.interop)
        if _SIMULATION_FOLDER in item.path.parents:
            item.add_marker(pytest.mark.timeout(_LONGEST_SIMULATION_S))
        if _waits(item):
            item.add_marker(pytest.mark.waits)
        if item.get_closest_marker("waits"):
            item.user_properties.append(("waits", item.nodeid))
        if without_java and (item.get_closest_marker("spark") or item.get_closest_marker("interop")):
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What is missing on a laptop skips a test; in CI it must be there, or green would mean nothing."""
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, ServerMissing):
        path, line, _ = item.location
        report.outcome, report.longrepr = "skipped", (path, (line or 0) + 1, f"Skipped: {call.excinfo.value}")
    if _IN_CI and report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if "needs " in reason or "could not import" in reason:
            report.outcome, report.longrepr = "failed", f"{reason}; a test that cannot run fails in CI"
    return report
