"""A Hudi properties file, shared with Java writers as it is, becomes our settings or says what it cannot become."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelock.errors import SettingsError
from lakelock.parsing import parse_java_properties
from lakelock.providers.dynamodb_table import LockItem, Sighting
from lakelock.settings import Settings
from lakelock.settings.resolver import Resolved

_JAVA = "org.apache.hudi.client.transaction.lock."
_ZOOKEEPER = f"""
# shared with the Java writers
hoodie.write.concurrency.mode=optimistic_concurrency_control
hoodie.write.lock.provider={_JAVA}ZookeeperBasedLockProvider
hoodie.write.lock.zookeeper.url=zk1:2181,zk2:2181
hoodie.write.lock.zookeeper.base_path=/hudi/locks
hoodie.write.lock.zookeeper.lock_key=flights
hoodie.write.lock.zookeeper.session_timeout_ms=30000
"""


def resolved(tmp_path: Path, text: str, **options: object) -> Resolved:
    path = tmp_path / "hudi.properties"
    path.write_text(text)
    return Settings.resolve({key.replace("__", "."): value for key, value in options.items()}, file=path)


def test_zookeeper_keys_become_one_uri_and_a_lease(tmp_path: Path) -> None:
    found = resolved(tmp_path, _ZOOKEEPER)
    lock = found.settings.lock
    assert lock.provider == "zookeeper://zk1:2181,zk2:2181/hudi/locks/flights"
    assert (lock.lease_s, lock.renew_s) == (30.0, 10.0)
    assert found.warnings == ()
    assert found.origins["lock.provider"].origin.endswith("hudi.properties, hoodie.write.lock.provider")


@pytest.mark.parametrize(
    ("lines", "uri"),
    [
        (f"hoodie.write.lock.provider={_JAVA}StorageBasedLockProvider", "storage:"),
        (
            f"hoodie.write.lock.provider={_JAVA}ZookeeperBasedImplicitBasePathLockProvider\nhoodie.write.lock.zookeeper.url=zk:1",
            "zookeeper://zk:1?implicit=true",
        ),
        (
            f"hoodie.write.lock.provider={_JAVA}ZookeeperBasedImplicitBasePathLockProvider\n"
            "hoodie.write.lock.zookeeper.url=zk:1,zk:2/lake/50%25",
            "zookeeper://zk:1,zk:2/lake/50%2525?implicit=true",
        ),
        ("hoodie.write.lock.zookeeper.url=zk:1\nhoodie.write.lock.zookeeper.base_path=/b", "zookeeper://zk:1/b?key=table"),
        (
            "hoodie.write.lock.zookeeper.url=zk:1,zk:2/lake\nhoodie.write.lock.zookeeper.base_path=/b\n"
            "hoodie.write.lock.zookeeper.lock_key=flights",
            "zookeeper://zk:1,zk:2/lake/b/flights",
        ),
        (
            "hoodie.write.lock.zookeeper.url=zk:1\nhoodie.write.lock.zookeeper.base_path=/b\nhoodie.table.name=flights",
            "zookeeper://zk:1/b/flights",
        ),
        (
            "hoodie.write.lock.provider=org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider\n"
            "hoodie.write.lock.dynamodb.table=locks\nhoodie.write.lock.dynamodb.partition_key=my table/1",
            "dynamodb://locks/my%20table%2F1",
        ),
        (
            "hoodie.write.lock.provider=org.apache.hudi.aws.transaction.lock.DynamoDBBasedImplicitPartitionKeyLockProvider",
            "dynamodb://hudi_locks?implicit=true",
        ),
        (
            "hoodie.write.lock.provider=org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider\n"
            "hoodie.write.lock.hivemetastore.uris=thrift://h1:9083,thrift://h2:9083\n"
            "hoodie.write.lock.hivemetastore.database=DB\nhoodie.write.lock.hivemetastore.table=Flights",
            "hive_metastore://h1:9083,h2:9083/DB/Flights",
        ),
    ],
)
def test_each_java_provider_has_its_uri(tmp_path: Path, lines: str, uri: str) -> None:
    found = resolved(tmp_path, lines)
    assert found.settings.lock.provider == uri
    assert found.warnings == ()


def test_the_dynamodb_keys_become_options_of_its_client(tmp_path: Path) -> None:
    prefix = "hoodie.write.lock.dynamodb"
    text = (
        "hoodie.write.lock.provider=org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider\n"
        f"{prefix}.region=eu-west-1\n{prefix}.endpoint_url=http\\://h\\:8000\n"
    )
    found = resolved(tmp_path, text)
    assert found.settings.lock.provider == "dynamodb://hudi_locks"
    assert found.settings.lock_options == {"region_name": "eu-west-1", "endpoint_url": "http://h:8000"}
    assert found.warnings == ()


def test_the_connection_time_out_of_zookeeper_is_kept(tmp_path: Path) -> None:
    found = resolved(tmp_path, _ZOOKEEPER + "hoodie.write.lock.zookeeper.connection_timeout_ms=5000\n")
    assert found.settings.lock_options == {"connect_timeout_s": 5.0}
    assert found.warnings == ()


def test_storage_lock_timing_and_heartbeats_keep_the_java_values(tmp_path: Path) -> None:
    text = (
        f"hoodie.write.lock.provider={_JAVA}StorageBasedLockProvider\n"
        "hoodie.write.lock.wait_time_ms=90000\nhoodie.write.lock.storage.validity.timeout.secs=300\n"
        "hoodie.write.lock.storage.renew.interval.secs=30\nhoodie.client.heartbeat.interval_in_ms=30000\n"
        "hoodie.client.heartbeat.tolerable.misses=4\nhoodie.write.num.retries.on.conflict.failures=3\n"
        "hoodie.write.concurrency.early.conflict.detection.enable=false\nhoodie.parquet.compression.codec=UNCOMPRESSED\n"
        "hoodie.parquet.max.file.size=62914560\n"
    )
    found = resolved(tmp_path, text)
    settings = found.settings
    assert (settings.lock.wait_s, settings.lock.lease_s, settings.lock.renew_s) == (90.0, 300.0, 30.0)
    assert (settings.heartbeat.interval_s, settings.heartbeat.tolerable_misses, settings.retry.attempts) == (30.0, 4, 4)
    assert (settings.concurrency.early_conflict_detection, settings.write.compression) == (False, "none")
    assert settings.write.target_file_bytes == 60 << 20
    assert found.warnings == ()


def test_a_renewal_interval_alone_brings_a_lease_that_allows_it(tmp_path: Path) -> None:
    text = (
        f"hoodie.write.lock.provider={_JAVA}StorageBasedLockProvider\nhoodie.write.lock.storage.heartbeat.poll.secs=20\n"
        "hoodie.write.lock.wait_time_ms=1000"
    )
    lock = resolved(tmp_path, text).settings.lock
    assert (lock.renew_s, lock.lease_s, lock.wait_s) == (20.0, 60.0, 1.0)


def test_the_lease_of_dynamodb_is_its_wait_time_as_in_java_and_a_wait_gets_past_a_dead_holder(tmp_path: Path) -> None:
    text = (
        "hoodie.write.lock.provider=org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider\n"
        "hoodie.write.lock.wait_time_ms=30000"
    )
    lock = resolved(tmp_path, text).settings.lock
    assert (lock.lease_s, lock.renew_s) == (30.0, 10.0)
    assert lock.wait_s > Sighting(LockItem("t", "one", "v1", 30_000), since_s=0.0).over_at_s + 1


@pytest.mark.parametrize("name", ["InProcessLockProvider", "FileSystemBasedLockProvider", "ZookeperBasedProvider", "my.Own"])
def test_a_lock_nobody_else_can_take_part_in_is_refused_unless_overridden(tmp_path: Path, name: str) -> None:
    text = f"hoodie.write.lock.provider={_JAVA}{name}"
    with pytest.raises(SettingsError, match=r"lock\.provider \(file .*hoodie\.write\.lock\.provider\)"):
        resolved(tmp_path, text)
    assert resolved(tmp_path, text, lock__provider="storage:").settings.lock.provider == "storage:"


def test_writers_that_do_not_look_at_what_others_commit_are_refused_unless_overridden(tmp_path: Path) -> None:
    text = "hoodie.write.concurrency.mode=NON_BLOCKING_CONCURRENCY_CONTROL"
    with pytest.raises(SettingsError, match="can lose an acknowledged row by themselves") as caught:
        resolved(tmp_path, text)
    assert "optimistic_concurrency_control" in caught.value.hint
    assert resolved(tmp_path, text, concurrency__mode="OPTIMISTIC").settings.concurrency.mode == "OPTIMISTIC"


@pytest.mark.parametrize(("missing", "named"), [("url", "zookeeper.url"), ("base_path", "zookeeper.base_path")])
def test_a_provider_without_its_address_names_the_missing_key(tmp_path: Path, missing: str, named: str) -> None:
    text = "\n".join(line for line in _ZOOKEEPER.splitlines() if f"zookeeper.{missing}=" not in line)
    with pytest.raises(SettingsError, match=named):
        resolved(tmp_path, text)


def test_what_has_no_effect_is_named_and_a_slip_of_the_pen_is_guessed(tmp_path: Path) -> None:
    text = (
        "hoodie.write.concurrency.mode=SOME_OTHER_MODE\nhoodie.write.lock.client.num_retries=50\n"
        "hoodie.write.lock.wait_time_millis=1\nhoodie.datasource.write.recordkey.field=id\nspark.master=x\n"
    )
    warnings = resolved(tmp_path, text).warnings
    assert len(warnings) == 4
    assert "SOME_OTHER_MODE has no equivalent" in warnings[0]
    assert "client.num_retries has no effect here: one bound is enough: lock.wait_s" in warnings[1]
    assert 'wait_time_millis is not known and has no effect; did you mean "hoodie.write.lock.wait_time_ms"' in warnings[2]
    assert "recordkey.field has no effect here" in warnings[3]


@pytest.mark.parametrize("key", ["lock.provider", "spark.lakelock.lock.provider", "storage.endpoint", "write_compression"])
def test_a_setting_of_lakelock_among_the_properties_is_not_passed_over_in_silence(tmp_path: Path, key: str) -> None:
    file = tmp_path / "hudi.properties"
    file.write_text(f"{key}=redis://locks:6379/0\nspark.executor.memory=1g\n")
    resolved = Settings.resolve(file=file)
    assert resolved.settings == Settings()
    (warning,) = resolved.warnings
    assert f"{key} has no effect here" in warning and "belongs in a .toml file" in warning


def test_a_value_that_is_no_number_is_refused_with_its_hudi_key(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"lock\.wait_s \(file .*wait_time_ms\) is 'long'"):
        resolved(tmp_path, "hoodie.write.lock.wait_time_ms=long")


@pytest.mark.parametrize(("java", "ours"), [("true", "null"), ("TRUE", "null"), ("false", "error")])
def test_hudis_switch_for_missing_columns_chooses_between_null_and_an_error(tmp_path: Path, java: str, ours: str) -> None:
    found = resolved(tmp_path, f"hoodie.write.set.null.for.missing.columns={java}")
    assert found.settings.write.missing_columns == ours
    assert found.origins["write.missing_columns"].origin.endswith("hoodie.write.set.null.for.missing.columns")
    assert found.warnings == ()


def test_a_switch_for_missing_columns_that_is_neither_is_refused_with_its_hudi_key(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"hoodie\.write\.set\.null\.for\.missing\.columns"):
        resolved(tmp_path, "hoodie.write.set.null.for.missing.columns=maybe")


def test_java_properties_are_read_as_java_reads_them() -> None:
    text = "# c\n! c\n a = b \nk:v\nsp ace value\nempty\nlong=1,\\\n   2\ntab\\:k=\\u00e9\\t|\\\\\nlast=1\r\nlast=2\nodd=\\#\n"
    assert parse_java_properties(text.encode(), "test") == {
        "a": "b ",
        "k": "v",
        "sp": "ace value",
        "empty": "",
        "long": "1,2",
        "tab:k": "é\t|\\",
        "last": "2",
        "odd": "#",
    }


def test_a_line_that_java_could_not_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"hudi\.properties: malformed"):
        resolved(tmp_path, "hoodie.write.lock.provider=\\u12")
