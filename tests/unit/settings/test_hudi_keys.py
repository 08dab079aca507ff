"""Each lock key of Hudi, one by one: it becomes a setting, or a warning that names it and says why not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from pathlib import Path

import pytest

from lakelock.settings import Settings

_LOCK = "hoodie.write.lock."
_CHOICES = {
    "storage": ["provider=org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"],
    "zookeeper": [
        "provider=org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
        "zookeeper.url=zk:2181",
        "zookeeper.base_path=/base",
        "zookeeper.lock_key=key",
    ],
    "dynamodb": ["provider=org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider"],
    "hive_metastore": [
        "provider=org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
        "hivemetastore.uris=thrift://h:9083",
        "hivemetastore.database=db",
        "hivemetastore.table=t",
    ],
}

HONOURED = [
    # provider, key, value that is not Java's default, our setting, what it becomes
    ("storage", "hoodie.write.lock.wait_time_ms", "61000", "lock.wait_s", 61.0),
    ("dynamodb", "hoodie.write.lock.wait_time_ms", "61000", "lock.lease_s", 61.0),
    ("hive_metastore", "hoodie.write.lock.heartbeat_interval_ms", "60000", "lock.renew_s", 60.0),
    ("hive_metastore", "hoodie.write.lock.heartbeat_interval_ms", "60000", "lock.lease_s", 180.0),
    ("zookeeper", "hoodie.write.lock.zookeeper.url", "a:1,b:2", "lock.provider", "zookeeper://a:1,b:2/base/key"),
    ("zookeeper", "hoodie.write.lock.zookeeper.base_path", "/x/y", "lock.provider", "zookeeper://zk:2181/x/y/key"),
    ("zookeeper", "hoodie.write.lock.zookeeper.lock_key", "other", "lock.provider", "zookeeper://zk:2181/base/other"),
    ("zookeeper", "hoodie.write.lock.zookeeper.session_timeout_ms", "60000", "lock.lease_s", 60.0),
    ("zookeeper", "hoodie.write.lock.zookeeper.connection_timeout_ms", "16000", "lock.options.connect_timeout_s", 16.0),
    ("hive_metastore", "hoodie.write.lock.hivemetastore.uris", "thrift://o:1", "lock.provider", "hive_metastore://o:1/db/t"),
    ("hive_metastore", "hoodie.write.lock.hivemetastore.database", "DB", "lock.provider", "hive_metastore://h:9083/DB/t"),
    ("hive_metastore", "hoodie.write.lock.hivemetastore.table", "T", "lock.provider", "hive_metastore://h:9083/db/T"),
    ("dynamodb", "hoodie.write.lock.dynamodb.table", "my_locks", "lock.provider", "dynamodb://my_locks"),
    ("dynamodb", "hoodie.write.lock.dynamodb.partition_key", "k", "lock.provider", "dynamodb://hudi_locks/k"),
    ("dynamodb", "hoodie.table.name", "flights", "lock.provider", "dynamodb://hudi_locks/flights"),
    ("dynamodb", "hoodie.write.lock.dynamodb.region", "eu-west-1", "lock.options.region_name", "eu-west-1"),
    ("dynamodb", "hoodie.write.lock.dynamodb.endpoint_url", "http://h:1", "lock.options.endpoint_url", "http://h:1"),
    ("storage", "hoodie.write.lock.storage.validity.timeout.secs", "301", "lock.lease_s", 301.0),
    ("storage", "hoodie.write.lock.storage.renew.interval.secs", "31", "lock.renew_s", 31.0),
    ("storage", "hoodie.write.lock.storage.heartbeat.poll.secs", "31", "lock.renew_s", 31.0),
    ("storage", "hoodie.client.heartbeat.interval_in_ms", "61000", "heartbeat.interval_s", 61.0),
    ("storage", "hoodie.client.heartbeat.tolerable.misses", "3", "heartbeat.tolerable_misses", 3),
    ("storage", "hoodie.write.num.retries.on.conflict.failures", "2", "retry.attempts", 3),
    ("storage", "hoodie.write.set.null.for.missing.columns", "true", "write.missing_columns", "null"),
]

NAMED = [
    ("wait_time_ms_between_retry", "1000", "lock.poll_s"),
    ("max_wait_time_ms_between_retry", "16000", "lock.poll_s"),
    ("num_retries", "15", "lock.wait_s"),
    ("client.num_retries", "50", "lock.wait_s"),
    ("client.wait_time_ms_between_retry", "5000", "lock.wait_s"),
    ("conflict.resolution.strategy", "org.example.Own", "concurrency.profile"),
    ("app_id", "etl", "by itself"),
    ("dynamodb.billing_mode", "PROVISIONED", "billed by request"),
    ("dynamodb.read_capacity", "21", "billed by request"),
    ("dynamodb.write_capacity", "11", "billed by request"),
    ("dynamodb.table_creation_timeout", "90000", "billed by request"),
    ("filesystem.path", "/locks", "hoodie.write.lock.provider"),
    ("filesystem.expire", "5", "hoodie.write.lock.provider"),
    ("zookeeper.port", "2181", "hoodie.write.lock.zookeeper.url"),
]


def resolved(tmp_path: Path, provider: str, *lines: str) -> tuple[Callable[[str], object], tuple[str, ...]]:
    """The settings by their full names, and the warnings."""
    path = tmp_path / "hudi.properties"
    chosen = [_LOCK + line for line in _CHOICES[provider]]
    path.write_text("\n".join([*chosen, *lines]))
    found = Settings.resolve({}, file=path)
    return partial(_value, found.settings), found.warnings


def _value(settings: Settings, name: str) -> object:
    option = name.removeprefix("lock.options.")
    return settings.lock_options.get(option) if option != name else attrgetter(name)(settings)


@pytest.mark.parametrize(("provider", "key", "value", "setting", "becomes"), HONOURED)
def test_a_key_with_an_equivalent_becomes_that_setting(
    tmp_path: Path, provider: str, key: str, value: str, setting: str, becomes: object
) -> None:
    before, _ = resolved(tmp_path, provider)
    values, warnings = resolved(tmp_path, provider, f"{key}={value}")
    assert before(setting) != becomes, "the test would see nothing"
    assert values(setting) == becomes
    assert warnings == ()


@pytest.mark.parametrize("provider", _CHOICES)
@pytest.mark.parametrize(("key", "value", "instead"), NAMED)
def test_a_key_without_an_equivalent_is_named_with_what_there_is_instead(
    tmp_path: Path, provider: str, key: str, value: str, instead: str
) -> None:
    _, warnings = resolved(tmp_path, provider, f"{_LOCK}{key}={value}")
    assert len(warnings) == 1
    assert f"{_LOCK}{key} has no effect here: " in warnings[0] and instead in warnings[0].partition("here: ")[2]


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        ("zookeeper.base_path", "Zookeeper"),
        ("zookeeper.session_timeout_ms", "Zookeeper"),
        ("dynamodb.partition_key", "DynamoDB"),
        ("hivemetastore.table", "HiveMetastore"),
        ("heartbeat_interval_ms", "HiveMetastore"),
    ],
)
def test_a_key_of_another_lock_is_said_to_be_one(tmp_path: Path, key: str, owner: str) -> None:
    _, warnings = resolved(tmp_path, "storage", f"{_LOCK}{key}=1")
    assert [warning.partition("here: ")[2] for warning in warnings] == [
        f"it is for {owner} locks, and {_LOCK}provider chooses another"
    ]
    _, warnings = resolved(tmp_path, "dynamodb", f"{_LOCK}storage.validity.timeout.secs=300")
    assert "it is for StorageBased locks" in warnings[0]


def test_two_names_of_one_key_are_noticed(tmp_path: Path) -> None:
    lines = [f"{_LOCK}storage.renew.interval.secs=20", f"{_LOCK}storage.heartbeat.poll.secs=30"]
    values, warnings = resolved(tmp_path, "storage", *lines)
    assert values("lock.renew_s") == 20.0
    assert len(warnings) == 1 and "means the same" in warnings[0]


@pytest.mark.parametrize(("variable", "region"), [("", "us-east-1"), ("eu-central-1", "eu-central-1")])
def test_the_region_of_dynamodb_is_by_default_that_of_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, region: str
) -> None:
    monkeypatch.setenv("AWS_REGION", variable)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "ap-south-1")
    values, warnings = resolved(tmp_path, "dynamodb")
    assert values("lock.options.region_name") == region and warnings == ()


def test_credentials_in_the_file_are_not_used_and_not_shown(tmp_path: Path) -> None:
    _, warnings = resolved(tmp_path, "dynamodb", "hoodie.aws.access.key=AKIAID", "hoodie.aws.secret.key=open-sesame")
    assert len(warnings) == 2 and all("profile or role" in warning for warning in warnings)
    assert "AKIAID" not in str(warnings) and "sesame" not in str(warnings)
