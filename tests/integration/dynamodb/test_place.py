"""The table of the DynamoDB lock, its place, and what a person gets to see."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.api import LocalStorage, MemoryStorage, WriterIdentity, open_provider, open_storage
from tests.integration.dynamodb.dynamodb_world import (
    World,
    take,
)
from tests.servers.locks.dynamodb import TABLE
from tests.servers.stores.s3 import S3_OPTIONS

from lakelock.errors import LockError, ProviderRefused, ProviderUnavailable, SettingsError
from lakelock.providers.dynamodb import DynamodbLockProvider
from lakelock.providers.dynamodb_table import place_of
from lakelock.settings import Settings


def named(world: World, **given: Any) -> DynamodbLockProvider:
    provider = world.writer("one", **given)
    assert isinstance(provider, DynamodbLockProvider)
    return provider


def test_a_missing_table_is_created_only_where_the_settings_say_so(world: World) -> None:
    name = f"locks-{os.getpid()}"
    uri = f"dynamodb://{name}/flights"
    with pytest.raises(ProviderRefused, match="ResourceNotFound") as refused:
        named(world, lock__provider=uri, lock__options__create_table=False).probe()
    assert f"aws dynamodb create-table --table-name {name}" in refused.value.hint
    assert "lock.options.create_table" in refused.value.hint
    provider = named(world, lock__provider=uri)
    provider.release(take(provider, wait_s=30))
    table = world.request("describe_table", TableName=name)["Table"]
    assert table["KeySchema"] == [{"AttributeName": "key", "KeyType": "HASH"}]
    assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    named(world, lock__provider=uri, lock__options__create_table=False).probe()


def test_a_table_with_another_key_is_refused_by_the_probe(world: World) -> None:
    name = f"other-{os.getpid()}"
    world.request(
        "create_table",
        TableName=name,
        KeySchema=[{"AttributeName": "tablePath", "KeyType": "HASH"}, {"AttributeName": "fileName", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": one, "AttributeType": "S"} for one in ("tablePath", "fileName")],
        BillingMode="PAY_PER_REQUEST",
    )
    with pytest.raises(LockError, match=r"tablePath S \(HASH\), fileName S \(RANGE\)"):
        named(world, lock__provider=f"dynamodb://{name}/flights").probe()


def test_the_identity_tells_regions_and_foreign_endpoints_apart(world: World) -> None:
    here = named(world)
    assert here.identity == f"{world.uri}?region=us-east-1&endpoint=127.0.0.1:{world.service.port}"
    eu = {"lock__provider": "dynamodb://locks/a%20b", "lock__options__region_name": "eu-west-1"}
    aws = named(world, **eu, lock__options__endpoint_url="")
    assert aws.identity == "dynamodb://locks/a%20b?region=eu-west-1"
    inside = named(world, **eu, lock__options__endpoint_url="https://vpce-1.dynamodb.eu-west-1.vpce.amazonaws.com")
    assert inside.identity == aws.identity


@pytest.mark.parametrize(
    "uri", ["dynamodb:", "dynamodb://AKIAKEY:s3cret@locks/x", "dynamodb://ab/x", "dynamodb://locks/x?region=a"]
)
def test_a_uri_that_is_not_table_and_key_is_refused_without_showing_it(world: World, uri: str) -> None:
    with pytest.raises(SettingsError, match="TABLE/PARTITION-KEY") as refused:
        named(world, lock__provider=uri)
    assert "s3cret" not in str(refused.value) + repr(refused.value.details)


def test_without_a_partition_key_it_is_the_name_of_the_table_as_in_java(world: World) -> None:
    with pytest.raises(SettingsError, match="which item"):
        named(world, lock__provider=f"dynamodb://{TABLE}")
    storage = MemoryStorage(world.runtime.now_ms, name="named")
    storage.put(".hoodie/hoodie.properties", b"#Properties\nhoodie.table.name=trips\nhoodie.table.version=9\n")
    settings = Settings.resolve({"lock.provider": f"dynamodb://{TABLE}", **world.service.options}).settings
    writer = WriterIdentity.of_this_process(world.runtime)
    assert open_provider(settings, storage, world.runtime, writer).identity.startswith(f"dynamodb://{TABLE}/trips?")


def test_credentials_are_never_shown(world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    secret = "not-to-be-seen"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    monkeypatch.setenv("AWS_SESSION_TOKEN", secret)
    provider = named(world, lock__options__endpoint_url="http://127.0.0.1:1")
    with pytest.raises(ProviderUnavailable) as refused:
        take(provider)
    shown = f"{refused.value!s}{json.dumps(refused.value.as_dict(), default=str)}{provider!r}{provider.identity}{caplog.text}"
    assert secret not in shown


def test_missing_credentials_and_a_missing_region_say_what_to_do(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    began_s = world.runtime.monotonic_s()
    with pytest.raises(ProviderRefused, match="NoCredentialsError") as refused:
        take(named(world), wait_s=60)
    assert world.runtime.monotonic_s() - began_s < 20, "it went on trying what cannot help"
    assert "AWS_PROFILE" in refused.value.hint and not refused.value.retryable
    with pytest.raises(SettingsError) as unset:
        take(named(world, lock__options__region_name=""))
    assert "AWS_REGION" in unset.value.hint


@pytest.mark.parametrize("uri", ["s3://bkt/warehouse/tbl", "s3a://bkt/warehouse/tbl/"])
def test_the_implicit_key_is_the_hash_of_the_path_that_java_takes(uri: str) -> None:
    assert place_of(f"dynamodb://{TABLE}?implicit=true", open_storage(uri, S3_OPTIONS)) == (TABLE, "0F4477E0DC06AAF2")


def test_the_implicit_key_of_a_local_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="several locks"):
        place_of("dynamodb://hudi_locks?implicit=true", LocalStorage(str(tmp_path)))
