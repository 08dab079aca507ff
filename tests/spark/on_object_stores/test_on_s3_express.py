"""A table in a directory bucket of S3: lakelock's client and Hadoop's each come to its own address, by their own sessions."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("moto")

from tests.directory_bucket import BUCKET, DirectoryBucket, directory_bucket
from tests.servers.fetched.hadoop_jars import hadoop_aws
from tests.servers.stores.s3 import S3_OPTIONS, s3_server
from tests.spark.on_object_stores.remote import DATA_SOURCE, EVERY_WRITE, SMALL, Remote, assert_every_write_is_read
from tests.spark.sparks import since_spark_4

pytestmark = [pytest.mark.in_ci, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectoryBucket]:
    with s3_server() as endpoint, directory_bucket(endpoint, tmp_path_factory.mktemp("express")) as found:
        yield found


@pytest.fixture(scope="module")
def driver(bucket: DirectoryBucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    """Other buckets are reached by an address of the region. This one is not, so it has the setting that means none."""
    trusted = tmp_path_factory.mktemp("trusted") / "trusted.p12"
    subprocess.run(
        ["keytool", "-importcert", "-noprompt", "-alias", "express", "-file", bucket.certificate, "-keystore", str(trusted),
         "-storetype", "PKCS12", "-storepass", "changeit"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    proxy = urlsplit(bucket.proxy)
    reached = {
        "access.key": S3_OPTIONS["access_key_id"], "secret.key": S3_OPTIONS["secret_access_key"],
        "endpoint.region": S3_OPTIONS["region"], "endpoint": "s3.amazonaws.com",
        "proxy.host": str(proxy.hostname), "proxy.port": str(proxy.port),
    }  # fmt: skip
    java = f"-Djavax.net.ssl.trustStore={trusted} -Djavax.net.ssl.trustStorePassword=changeit"
    driver = Remote(
        {
            "spark.jars": ",".join(map(str, sorted(hadoop_aws().fetch().glob("*.jar")))),
            "spark.driver.extraJavaOptions": java,
            "spark.hadoop.fs.s3a.endpoint": f"s3.{S3_OPTIONS['region']}.amazonaws.com",
            **{f"spark.hadoop.fs.s3a.bucket.{BUCKET}.{key}": value for key, value in reached.items()},
            "spark.lakelock.storage.proxy_url": bucket.proxy,
            "spark.lakelock.storage.root_certificate": Path(bucket.certificate).read_text(),
            **SMALL,
        },
        {},
    )
    yield driver
    driver.close()


@pytest.mark.sampled(promise=EVERY_WRITE)
def test_every_write_is_read_by_sparks_own_client(driver: Remote, bucket: DirectoryBucket) -> None:
    path = f"s3a://{BUCKET}/t"
    assert driver.create(path=path) == f"s3://{BUCKET}/t"
    assert_every_write_is_read(driver, path)
    signed = {re.search(r"us-east-1/(\w+)/", session)[1] for session in bucket.sessions}  # type: ignore[index]
    assert signed == {"s3", "s3express"}  # by obstore, and by the AWS SDK for Java


@pytest.mark.sampled(promise=DATA_SOURCE)
@since_spark_4
def test_the_data_source_reads_and_appends(driver: Remote) -> None:
    path = f"s3://{BUCKET}/d"
    driver.create(path=path)
    driver.register()
    driver.save(path=path, rows=[["a", 1, "1"], ["b", 2, "2"]])
    driver.save(path=path, rows=[["c", 3, "2"]])
    assert driver.load(path=path) == [["a", 1, "1"], ["b", 2, "2"], ["c", 3, "2"]]
    assert driver.load(path=path, partition="month=2") == [["b", 2, "2"], ["c", 3, "2"]]
