"""Spark jobs in processes of their own write one table under each lock service, the real one: no update is lost."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.api import LocalStorage
from tests.behaviour.tables import leftovers
from tests.integration.matrix import mark
from tests.servers import SERVICES
from tests.sizes import but_in_ci
from tests.spark.processes import WriterProcess
from tests.spark.writer_process import COLUMNS, frame

from lakelock.occ.recorded_lock import recorded_provider
from lakelock.spark_plugin import LakeTable

START = [["counter", 0, "1"], ["other", 1, "2"]]
TIMES = 2
OPTIONS = {
    "heartbeat.interval_s": 10, "lock.lease_s": 6, "lock.renew_s": 2, "lock.wait_s": 60,
    "retry.attempts": 15, "retry.first_wait_s": 0.05, "retry.longest_wait_s": 1,
}  # fmt: skip


@pytest.fixture(scope="module", params=but_in_ci(SERVICES, {"redis"}))
def service(request, tmp_path_factory):
    with SERVICES[request.param](tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture(autouse=True)
def cell(request):
    """Says in the reports which cell of the lock matrix this is."""
    mark(request.node, request.node.callspec.params["service"], "Spark writers")


@pytest.mark.in_ci
def test_two_jobs_that_count_one_row_up_and_a_third_beside_them_lose_nothing(spark, service, path):
    options = {**service.options, **OPTIONS, "lock.provider": service.url("spark-writers")}
    schema = spark.createDataFrame([], COLUMNS).schema
    table = LakeTable.create(spark, path, schema=schema, key="id", partition_by="month", options=options, application="here")
    table.insert(frame(spark, START))
    order = {"id": "counter", "month": "1", "times": TIMES}
    jobs = [WriterProcess(path, "count_up", order, name=name, options=options) for name in ("one", "two")]
    with jobs[0], jobs[1]:
        table.upsert(frame(spark, [["other", 2, "2"]]))
        assert [job.answer()["outcome"] for job in jobs] == ["committed", "committed"]
    expected = [("counter", 2 * TIMES, "1"), ("other", 2, "2")]
    assert sorted(tuple(row) for row in table.read().collect()) == expected
    assert hudi_rows(path) == expected
    assert leftovers(LocalStorage(path)) == []
    assert service.name.partition(" ")[0] in str(recorded_provider(LocalStorage(path))).replace("hive:", "hive_metastore:")


def hudi_rows(path: str) -> list[tuple]:
    """The rows as hudi-rs, which shares no code with lakelock, reads them."""
    from hudi import HudiTable

    rows = pa.Table.from_batches(HudiTable(path).read()).select(["id", "v", "month"]).to_pylist()
    return sorted(tuple(row.values()) for row in rows)
