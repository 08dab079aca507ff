"""A server that the environment names is used instead of one of our own. That of the metastore is in its own file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.given_servers import Place
from tests.integration.given import check_given
from tests.integration.matrix import SERVICES_OF_ROWS, Services
from tests.servers import SERVICES, Service
from tests.servers.stores.s3 import S3_OPTIONS

VARIABLES = {
    "redis": ("LAKELOCK_TEST_REDIS_URL", "redis://localhost:{port}/0"),
    "zookeeper": ("LAKELOCK_TEST_ZOOKEEPER", "localhost:{port}/given"),
    "dynamodb": ("LAKELOCK_TEST_DYNAMODB_URL", "http://localhost:{port}"),
    "storage on S3": ("LAKELOCK_TEST_S3_URL", "http://localhost:{port}/lake"),
}


@pytest.mark.parametrize("row", VARIABLES)
def test_the_server_that_the_environment_names_is_used_and_is_not_ours_to_stop(
    row: str, services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, (variable, value) = services(row), VARIABLES[row]
    monkeypatch.setenv(variable, value.format(port=own.port))
    for name in ("access_key_id", "secret_access_key"):
        monkeypatch.setenv(f"AWS_{name.upper()}", S3_OPTIONS[name])
    check_given(SERVICES_OF_ROWS[row], tmp_path, variable, own)


def test_every_service_has_a_variable_but_the_one_that_has_no_server() -> None:
    assert {*VARIABLES, "hive_metastore"} == {*SERVICES_OF_ROWS} - {"storage"} >= {*SERVICES} - {"storage"}


@pytest.mark.parametrize(
    ("url", "host", "port", "through"),
    [
        ("redis://redis/0?key=redis", "redis", 6379, "redis://127.0.0.1:4711/0?key=redis"),
        ("redis://u:p@redis:6390/0", "redis", 6390, "redis://u:p@127.0.0.1:4711/0"),
        ("http://[::1]:8000", "::1", 8000, "http://127.0.0.1:4711"),
        ("zookeeper://a:2181,b:2182/base/t", "a", 2181, "zookeeper://127.0.0.1:4711/base/t"),
        ("hive_metastore://h1,h2/db/t", "h1", 6379, "hive_metastore://127.0.0.1:4711/db/t"),
    ],
)
def test_a_proxy_stands_for_a_server_however_its_url_is_written(url: str, host: str, port: int, through: str) -> None:
    place = Place.of(url, 6379)
    assert (place.host, place.port) == (host, port)
    service = Service("s", str, place.port, host=place.host, address=place.text)
    assert service.through(4711, {"a": url, "b": 1, "c": "redis"}) == {"a": through, "b": 1, "c": "redis"}


def test_a_server_of_this_machine_is_told_apart_by_its_port_and_nothing_else_is_changed() -> None:
    service = Service("s", str, 40123)
    values = {"a": "x://localhost:40123/table40123-1", "b": "40123", "c": "x:401234", "d": "table40123"}
    changed = {"a": "x://localhost:4711/table40123-1", "b": "4711"}
    assert service.through(4711, values) == values | changed
    assert replace(service, address="h:40123").through(4711, values) == values
