"""Every operation with the table on S3: lakelock's client writes, Hadoop's reads, each in executors, too; moto answers both."""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

pytest.importorskip("moto")

from tests.api import ArrowEngine, Coordinator, StorageLocation
from tests.servers.fetched.hadoop_jars import hadoop_aws
from tests.servers.stores.s3 import AUTHORIZATION, S3_OPTIONS, s3_server
from tests.sizes import long
from tests.spark.on_object_stores.remote import DATA_SOURCE, EVERY_WRITE, SMALL, Remote
from tests.spark.processes import QUICK, named
from tests.spark.sparks import since_spark_4

pytestmark = pytest.mark.timeout(600)

CONFIGURED, BARE = "lake", "pond"
"""A bucket that only Hadoop's settings tell how to reach, and one that only lakelock's options do."""
FIRST = [["a", 1, "1"], ["b", 2, "1"], ["c", 3, "2"]]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as found:
        request = urllib.request.Request(f"{found}/{BARE}", method="PUT", headers={"Authorization": AUTHORIZATION})
        urllib.request.urlopen(request, timeout=60).close()
        yield found


@pytest.fixture(scope="module")
def start(endpoint: str) -> Iterator[Callable[..., Remote]]:
    """Starts drivers that know the way to the bucket `lake` by Hadoop's settings alone."""
    jars = ",".join(map(str, sorted(hadoop_aws().fetch().glob("*.jar"))))
    reached = {
        "access.key": S3_OPTIONS["access_key_id"], "secret.key": S3_OPTIONS["secret_access_key"], "endpoint": endpoint,
        "endpoint.region": S3_OPTIONS["region"], "path.style.access": "true",
    }  # fmt: skip
    conf = {f"spark.hadoop.fs.s3a.bucket.{CONFIGURED}.{key}": value for key, value in reached.items()}
    conf |= {"spark.jars": jars, **SMALL}
    with ExitStack() as stack:

        def begin(**environment: str) -> Remote:
            driver = Remote(conf, environment)
            stack.callback(driver.close)
            return driver

        yield begin


@pytest.fixture(scope="module")
def driver(start: Callable[..., Remote]) -> Remote:
    return start()


@pytest.fixture
def table(driver: Remote, request: pytest.FixtureRequest) -> str:
    """A table with three rows in two partitions."""
    path = f"s3a://{CONFIGURED}/{request.node.name}"
    assert driver.create(path=path) == f"s3://{CONFIGURED}/{request.node.name}"
    assert driver.write(path=path, how="insert", rows=FIRST) == [3, 0, 0]
    return path


@pytest.fixture
def options(endpoint: str) -> dict[str, str]:
    return {f"storage.{key}": value for key, value in {**S3_OPTIONS, "endpoint": endpoint}.items()}


@pytest.mark.sampled(promise=EVERY_WRITE)
def test_every_write_of_a_table_is_read_by_sparks_own_client(driver: Remote, table: str) -> None:
    assert driver.read(path=table) == FIRST
    assert driver.write(path=table, how="upsert", rows=[["a", 10, "1"], ["d", 4, "3"]]) == [1, 1, 0]
    assert driver.update(path=table, values={"v": "v + 1"}, where="id = 'b'") == 1
    assert driver.merge(path=table, rows=[["c", 30, "2"], ["e", 5, "2"]]) == [1, 1]
    assert driver.delete(path=table, where="id = 'd'") == 1
    assert driver.move(path=table, old="e", new=["f", "3"])
    now = [["a", 10, "1"], ["b", 3, "1"], ["c", 30, "2"], ["f", 5, "3"]]
    assert driver.read(path=table) == now
    assert driver.read(path=table, where="month = '1' and v > 3") == [["a", 10, "1"]]
    assert driver.opened(path=table, where="month = '3'") < driver.opened(path=table, where="v >= 0")
    driver.write(path=table, how="overwrite_partitions", rows=[["g", 7, "1"]])
    assert driver.read(path=table) == [["c", 30, "2"], ["f", 5, "3"], ["g", 7, "1"]]


@pytest.mark.in_ci
def test_changes_and_the_past_are_read_and_upkeep_runs(driver: Remote, table: str) -> None:
    ((first, _),) = driver.history(path=table)
    driver.write(path=table, how="upsert", rows=[["a", 10, "1"]])
    driver.write(path=table, how="insert", rows=[["d", 4, "1"]])
    assert [operation for _, operation in driver.history(path=table)] == ["INSERT", "UPSERT", "INSERT"]
    assert driver.changes(path=table, since=first) == [["a", 10], ["d", 4]]
    assert driver.read(path=table, as_of=first) == FIRST
    assert driver.upkeep(path=table) == []
    assert driver.read(path=table) == [["a", 10, "1"], ["b", 2, "1"], ["c", 3, "2"], ["d", 4, "1"]]


@pytest.mark.in_ci
@pytest.mark.sampled(promise=DATA_SOURCE)
@since_spark_4
def test_the_data_source_reads_appends_overwrites_and_streams(driver: Remote, table: str) -> None:
    driver.register()
    driver.save(path=table, rows=[["d", 4, "2"]])
    assert driver.load(path=table) == [*FIRST, ["d", 4, "2"]] == driver.read(path=table)
    driver.stream(path=table, source=f"{table}-stream", rows=[["e", 5, "3"], ["f", 6, "3"]])
    assert driver.load(path=table, partition="month=3") == [["e", 5, "3"], ["f", 6, "3"]]
    driver.save(path=table, rows=[["z", 9, "9"]], mode="overwrite")
    assert driver.load(path=table) == driver.read(path=table) == [["z", 9, "9"]]


@pytest.mark.in_ci
def test_lakelocks_options_alone_are_enough_for_both_clients(driver: Remote, options: dict[str, str]) -> None:
    path = f"s3://{BARE}/t"
    driver.create(path=path, options=options)
    assert driver.write(path=path, how="insert", rows=FIRST, options=options) == [3, 0, 0]
    assert driver.write(path=path, how="upsert", rows=[["a", 10, "1"]], options=options) == [0, 1, 0]
    assert driver.read(path=path, options=options) == [["a", 10, "1"], *FIRST[1:]]
    assert driver.hadoop(name=f"fs.s3a.bucket.{BARE}.endpoint") == options["storage.endpoint"]
    assert driver.hadoop(name="fs.s3a.endpoint") is None and driver.hadoop(name="fs.s3a.access.key") is None


def test_a_writer_without_spark_and_one_with_it_share_a_table(driver: Remote, table: str, options: dict[str, str]) -> None:
    given = {key.removeprefix("storage."): value for key, value in options.items()}
    with Coordinator.open(StorageLocation.of(table, given)) as beside:
        ArrowEngine(beside).upsert(ArrowEngine(beside).read().slice(0, 1))
        assert driver.write(path=table, how="upsert", rows=[["a", 2, "1"]]) == [0, 1, 0]
        assert ArrowEngine(beside).read().num_rows == 3


@pytest.mark.in_ci
@pytest.mark.parametrize(("step", "decided"), [*long(("data-written", False)), ("decided", True)])
def test_a_writer_that_is_killed_is_finished_or_removed_by_the_other(
    driver: Remote, start: Callable[..., Remote], table: str, step: str, decided: bool
) -> None:
    victim = start(**named({"crash_at": step}))
    try:
        died = victim.ask("write", path=table, how="upsert", rows=[["a", 100, "1"]], options=QUICK)
        assert died == {"error": "Ended", "message": f"exit status {-signal.SIGKILL}"}
    finally:
        victim.close()
    assert driver.write(path=table, how="upsert", rows=[["c", 30, "2"]], options=QUICK) == [0, 1, 0]
    done = driver.ask("write", path=table, how="upsert", rows=[["b", 20, "1"]], options={**QUICK, "retry.attempts": 20})
    assert done.get("value") == [0, 1, 0], done
    assert driver.read(path=table) == [["a", 100 if decided else 1, "1"], ["b", 20, "1"], ["c", 30, "2"]]
