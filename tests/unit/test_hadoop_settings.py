"""What one client of an object store is told the other gets too, and what contradicts is named."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
from tests.api import StorageLocation

from lakelock.cli.arguments import hadoop_settings, location_of
from lakelock.cli.doctor_services import judge_clients
from lakelock.errors import SettingsError
from lakelock.settings import Settings
from lakelock.storage.hadoop import completed, from_environment, mismatches, settings_for_hadoop

TABLE = "s3://lake/sales/t"
S3A = {
    "fs.s3a.access.key": "hadoops-key",
    "fs.s3a.secret.key": "hadoops-secret",
    "fs.s3a.endpoint": "http://minio:9000/",
    "fs.s3a.endpoint.region": "eu-west-1",
    "fs.s3a.path.style.access": "true",
}


def test_what_the_options_leave_open_is_taken_from_hadoop() -> None:
    assert completed(TABLE, {}, S3A.get) == {
        "access_key_id": "hadoops-key",
        "secret_access_key": "hadoops-secret",
        "endpoint": "http://minio:9000",
        "allow_http": "true",
        "region": "eu-west-1",
    }
    assert StorageLocation.of(TABLE, completed(TABLE, {}, S3A.get)).open().uri == TABLE


def test_options_go_before_hadoops_settings_and_those_of_the_bucket_before_those_of_all() -> None:
    of_bucket = {**S3A, "fs.s3a.bucket.lake.endpoint": "https://other:9000", "fs.s3a.bucket.sea.endpoint.region": "us-east-2"}
    found = completed(TABLE, {"region": "us-west-1"}, of_bucket.get)
    assert (found["endpoint"], found["region"], "allow_http" in found) == ("https://other:9000", "us-west-1", False)


@pytest.mark.parametrize("option", ["access_key_id", "aws_access_key_id", "skip_signature", "aws_session_token", "token"])
def test_credentials_come_from_one_place_and_are_never_mixed(option: str) -> None:
    hadoop = {**S3A, "fs.s3a.session.token": "hadoops-token"}
    assert {"session_token", "secret_access_key"} <= completed(TABLE, {}, hadoop.get).keys()
    found = completed(TABLE, {option: "mine"}, hadoop.get)
    assert found == {option: "mine", "endpoint": "http://minio:9000", "allow_http": "true", "region": "eu-west-1"}


def test_half_a_pair_of_keys_is_none_and_an_anonymous_provider_signs_nothing() -> None:
    assert completed(TABLE, {}, {"fs.s3a.access.key": "k"}.get) == {}
    provider = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    assert completed(TABLE, {}, {"fs.s3a.aws.credentials.provider": provider}.get) == {"skip_signature": "true"}


@pytest.mark.parametrize(
    ("settings", "endpoint"),
    [
        ({"fs.s3a.endpoint": "minio:9000"}, "https://minio:9000"),
        ({"fs.s3a.endpoint": "minio:9000", "fs.s3a.connection.ssl.enabled": "false"}, "http://minio:9000"),
        ({"fs.s3a.endpoint": "s3.amazonaws.com"}, None),
    ],
)
def test_an_endpoint_without_a_scheme_is_read_as_hadoop_reads_it(settings: dict[str, str], endpoint: str | None) -> None:
    assert completed(TABLE, {}, settings.get).get("endpoint") == endpoint


def test_what_the_options_say_is_told_to_hadoop_for_that_bucket_only() -> None:
    options = {"aws_access_key_id": "k", "secret_access_key": "s", "endpoint_url": "http://minio:9000", "region": "eu-west-1"}
    assert settings_for_hadoop(TABLE, options) == {
        "fs.s3a.bucket.lake.access.key": "k",
        "fs.s3a.bucket.lake.secret.key": "s",
        "fs.s3a.bucket.lake.endpoint": "http://minio:9000",
        "fs.s3a.bucket.lake.endpoint.region": "eu-west-1",
        "fs.s3a.bucket.lake.connection.ssl.enabled": "false",
        "fs.s3a.bucket.lake.path.style.access": "true",
    }
    assert settings_for_hadoop(TABLE, {}) == settings_for_hadoop("gs://lake/t", {"service_account": "f"}) == {}


@pytest.mark.parametrize("options", [S3A, {**S3A, "fs.s3a.endpoint": "https://minio"}])
def test_the_two_directions_agree(options: dict[str, str]) -> None:
    mine = completed(TABLE, {}, options.get)
    told = settings_for_hadoop(TABLE, mine)
    assert completed(TABLE, {}, told.get) == mine


def test_the_endpoint_of_the_environment_is_known_to_hadoop_too() -> None:
    environ = {"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_REGION": "eu-west-1", "AWS_SECRET_ACCESS_KEY": "s"}
    assert from_environment(environ) == {"endpoint": "http://minio:9000", "region": "eu-west-1"}


def test_google_and_azure_have_their_settings_too() -> None:
    keyfile = {"google.cloud.auth.service.account.json.keyfile": "/key.json"}
    assert completed("gs://lake/t", {}, keyfile.get) == {"service_account": "/key.json"}
    assert completed("gs://lake/t", {"service_account": "mine"}, keyfile.get) == {"service_account": "mine"}
    azure, host = "abfs://c@acc.dfs.core.windows.net/t", "acc.dfs.core.windows.net"
    assert completed(azure, {}, {f"fs.azure.account.key.{host}": "k"}.get) == {"account_key": "k"}
    assert completed(azure, {}, {f"fs.azure.sas.fixed.token.{host}": "sv=1"}.get) == {"sas_key": "sv=1"}
    assert settings_for_hadoop(azure, {"account_key": "k"}) == {f"fs.azure.account.key.{host}": "k"}


def test_a_mismatch_is_named_by_both_names_and_without_the_values() -> None:
    options = {"endpoint": "http://minio:9000", "aws_secret_access_key": "my-secret", "region": "us-east-1"}
    assert [(each.option, each.setting) for each in mismatches(TABLE, options, S3A.get)] == [
        ("aws_secret_access_key", "fs.s3a.secret.key"),
        ("region", "fs.s3a.endpoint.region"),
    ]
    checks = list(judge_clients(TABLE, options, S3A))
    assert [check.status for check in checks] == ["warning", "warning"]
    said = " ".join(check.found + check.hint for check in checks)
    assert "storage.region and Hadoop's fs.s3a.endpoint.region differ" in said
    assert "my-secret" not in said and "hadoops-secret" not in said
    (fine,) = judge_clients(TABLE, {}, S3A)
    assert fine.status == "ok"


def test_a_command_finds_the_name_node_of_a_path_in_hadoops_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>hdfs://lake</value></property></configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert location_of("hdfs:///t", Settings()).uri == "hdfs://lake/t"
    assert location_of("/t", Settings()).uri == "file:///t"
    monkeypatch.delenv("HADOOP_CONF_DIR")
    with pytest.raises(SettingsError, match="names no name node"):
        location_of("hdfs:///t", Settings())


def test_commands_without_spark_read_hadoops_files(tmp_path: Path) -> None:
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.s3a.endpoint</name><value>http://a</value></property>"
        "<property><name>fs.s3a.access.key</name><value>k</value></property></configuration>"
    )
    (tmp_path / "spark-defaults.conf").write_text("# ours\nspark.hadoop.fs.s3a.endpoint   http://b\nspark.ui.enabled=false\n")
    site = {"HADOOP_CONF_DIR": str(tmp_path)}
    assert hadoop_settings(site) == {"fs.s3a.endpoint": "http://a", "fs.s3a.access.key": "k"}
    assert hadoop_settings({**site, "SPARK_CONF_DIR": str(tmp_path)})["fs.s3a.endpoint"] == "http://b"
    assert hadoop_settings({}) == {} == hadoop_settings({"SPARK_HOME": str(tmp_path)})
    (tmp_path / "hdfs-site.xml").write_text(
        "<configuration><property><name>dfs.namenode.http-address.lake</name><value>nn:9870</value></property></configuration>"
    )
    assert completed("hdfs://lake/t", {}, hadoop_settings(site).get) == {"namenodes": "http://nn:9870"}
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(SettingsError, match=r"core-site\.xml cannot be read"):
        hadoop_settings(site)


@pytest.mark.parametrize("between", [" ", "   ", "\t", "=", " = ", ":", " \t:\t"])
def test_the_defaults_of_spark_are_read_as_spark_reads_them(tmp_path: Path, between: str) -> None:
    file = tmp_path / "spark-defaults.conf"
    file.write_text(
        f"spark.hadoop.fs.azure.account.key{between}QUJD=RA==\nspark.hadoop.fs.s3a.endpoint{between}http://minio:9000 \n"
    )
    found = hadoop_settings({"SPARK_CONF_DIR": str(tmp_path)})
    assert found == {"fs.azure.account.key": "QUJD=RA==", "fs.s3a.endpoint": "http://minio:9000"}


def test_defaults_of_spark_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    file, conf = tmp_path / "spark-defaults.conf", {"SPARK_CONF_DIR": str(tmp_path)}
    file.write_text("spark.hadoop.fs.s3a.secret.key tiger\\u00\n")
    with pytest.raises(SettingsError, match=r"spark-defaults\.conf cannot be read") as malformed:
        hadoop_settings(conf)
    assert "tiger" not in str(malformed.value)
    denied = PermissionError(13, "Permission denied")
    with patch.object(Path, "read_bytes", side_effect=denied), pytest.raises(SettingsError, match="Permission denied"):
        hadoop_settings(conf)
