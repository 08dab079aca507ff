"""A table on Google Cloud Storage: lakelock's client writes by one API, Google's connector for Spark reads by the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.servers.fetched.hadoop_jars import GCS_CONNECTOR
from tests.servers.stores.gcs import BUCKET, gcs_server
from tests.spark.on_object_stores.remote import EVERY_WRITE, SMALL, Remote, assert_every_write_is_read

pytestmark = [pytest.mark.in_ci, pytest.mark.timeout(600)]

CONNECTOR = "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem"
SIZES = {
    "block.size": 64 << 20,
    "inputstream.inplace.seek.limit": 8 << 20,
    "inputstream.min.range.request.size": 2 << 20,
    "outputstream.buffer.size": 8 << 20,
    "rewrite.max.chunk.size": 512 << 20,
}
"""Since Hadoop 3.5 the defaults of these are written `64m`, which this connector does not understand."""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with gcs_server(tmp_path_factory.mktemp("gcs")) as server:
        reached = {
            "impl": CONNECTOR,
            "storage.root.url": f"{server.json_endpoint}/",
            "auth.service.account.enable": "false",
            "auth.null.enable": "true",
            **{key: str(size) for key, size in SIZES.items()},
        }
        driver = Remote(
            {
                "spark.jars": ",".join(map(str, GCS_CONNECTOR.fetch().glob("*.jar"))),
                **{f"spark.hadoop.fs.gs.{key}": value for key, value in reached.items()},
                **{f"spark.lakelock.storage.{key}": value for key, value in server.options.items()},
                **SMALL,
            },
            {},
        )
        yield driver
        driver.close()


@pytest.mark.sampled(promise=EVERY_WRITE)
def test_every_write_is_read_by_google_s_connector(driver: Remote) -> None:
    path = f"gs://{BUCKET}/t"
    assert driver.create(path=path) == path
    assert_every_write_is_read(driver, path)
