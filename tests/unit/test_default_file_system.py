"""Which paths leave something to `fs.defaultFS`, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lakelock.errors import SettingsError
from lakelock.storage.hadoop import as_spark_reads, with_name_node

LOCAL: Mapping[str, str] = {"fs.defaultFS": "file:///"}
CLUSTER = {"fs.defaultFS": "hdfs://lake:8020/"}
BUCKET = {"fs.defaultFS": "s3a://lake"}
UNSET: Mapping[str, str] = {}
FULL = ("hdfs://other/t", "s3://b/t", "file:///data/t", "file:/data/t")


@pytest.mark.parametrize("path", ["/data/t", "data/t", "~/t", *FULL])
@pytest.mark.parametrize("settings", [LOCAL, UNSET])
def test_where_the_default_is_this_machine_a_path_stays_as_it_is(path: str, settings: Mapping[str, str]) -> None:
    assert as_spark_reads(path, settings.get) == path


@pytest.mark.parametrize(
    ("path", "settings", "full"),
    [
        ("/data/t", CLUSTER, "hdfs://lake:8020/data/t"),
        (" /data/t/ ", CLUSTER, "hdfs://lake:8020/data/t/"),
        ("/data/t", BUCKET, "s3a://lake/data/t"),
        ("hdfs:///data/t", CLUSTER, "hdfs://lake:8020/data/t"),
        ("HDFS:/data/t", CLUSTER, "hdfs://lake:8020/data/t"),
    ],
)
def test_the_default_file_system_completes_a_path(path: str, settings: Mapping[str, str], full: str) -> None:
    assert as_spark_reads(path, settings.get) == full
    assert as_spark_reads(full, settings.get) == full, "a second pass changes nothing"


@pytest.mark.parametrize("path", [*FULL, "~/t", Path("/data/t"), "hdfs:////data/t", ""])
def test_what_names_its_place_is_left_alone(path: str | Path) -> None:
    assert as_spark_reads(path, CLUSTER.get) == path


@pytest.mark.parametrize("settings", [LOCAL, BUCKET, UNSET])
def test_a_path_without_a_name_node_stays_so_where_the_default_is_not_hdfs(settings: Mapping[str, str]) -> None:
    assert as_spark_reads("hdfs:///t", settings.get) == with_name_node("hdfs:///t", settings.get) == "hdfs:///t"


def test_a_command_takes_only_the_name_node_from_the_default() -> None:
    assert with_name_node("hdfs:///t", CLUSTER.get) == "hdfs://lake:8020/t"
    assert with_name_node("/t", CLUSTER.get) == "/t"


def test_a_relative_path_elsewhere_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"'t' has no scheme.*hdfs://lake:8020 \(fs\.defaultFS\), and it is not absolute"):
        as_spark_reads("t", CLUSTER.get)


def test_a_default_that_lakelock_does_not_have_is_named() -> None:
    with pytest.raises(SettingsError, match=r"viewfs://views \(fs\.defaultFS\): storage of the kind viewfs: is not supported"):
        as_spark_reads("/data/t", {"fs.defaultFS": "viewfs://views"}.get)
