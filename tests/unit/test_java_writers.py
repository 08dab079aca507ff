"""What Java's writers need is written so that it names the same lock when it is read."""

from __future__ import annotations

import pytest

from lakelock.admin.java_writers import java_lock
from lakelock.settings import Settings
from lakelock.settings.hudi import from_hudi_properties


@pytest.mark.parametrize(
    "uri",
    [
        "storage:",
        "zookeeper://zk1:2181,zk2:2181/hudi/locks/orders",
        "zookeeper://zk1:2181/locks?key=table",
        "zookeeper://zk1:2181/chroot?implicit=true",
        "zookeeper://zk1:2181?implicit=true",
        "dynamodb://hudi_locks/orders",
        "dynamodb://hudi_locks?implicit=true",
        "hive_metastore://h1:9083,h2:9083/sales/orders",
    ],
)
def test_the_properties_for_java_name_the_same_lock_when_they_are_read(uri: str) -> None:
    settings = Settings.resolve({"lock.provider": uri, "lock.lease_s": "30", "lock.renew_s": "10"}).settings
    read = from_hudi_properties("x.properties", dict(line.split("=", 1) for line in java_lock(settings)))
    assert read.values["lock.provider"][0] == uri
    assert read.values["lock.lease_s"][0] == 30 and not read.warnings


def test_the_region_and_the_endpoint_of_dynamodb_are_those_of_the_options() -> None:
    options = {"lock.options.region_name": "eu-west-1", "lock.options.endpoint_url": "http://h:1"}
    lines = java_lock(Settings.resolve({"lock.provider": "dynamodb://t/k", **options}).settings)
    assert {"hoodie.write.lock.dynamodb.region=eu-west-1", "hoodie.write.lock.dynamodb.endpoint_url=http://h:1"} <= {*lines}


@pytest.mark.parametrize("uri", ["redis://h:6379/orders", "memory:"])
def test_a_lock_that_java_has_not_got_has_no_properties(uri: str) -> None:
    assert java_lock(Settings.resolve({"lock.provider": uri}).settings) == ()
