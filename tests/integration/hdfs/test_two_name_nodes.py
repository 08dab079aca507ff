"""Two name nodes, one of which stands by: lakelock asks the active one, finds the other after a fail-over, and writes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway
from tests.behaviour.tables import insert, new_table, writer
from tests.servers.stores.hdfs import JAVA_OPTIONS, class_path

from lakelock.storage.hdfs import HdfsStorage


@dataclass(frozen=True)
class Pair:
    """A cluster whose name nodes share their log. `cluster` is Hadoop's own, in another process."""

    cluster: Any

    def fail_over(self, active: int) -> None:
        self.cluster.transitionToStandby(1 - active)
        self.cluster.transitionToActive(active)

    @property
    def options(self) -> dict[str, str]:
        addresses = [f"http://localhost:{self.cluster.getNameNode(number).getHttpAddress().getPort()}" for number in (0, 1)]
        return {"namenodes": ",".join(addresses)}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    options = [*JAVA_OPTIONS, f"-Dtest.build.data={tmp_path}"]
    gateway = JavaGateway.launch_gateway(classpath=class_path(), javaopts=options, die_on_exit=True)
    try:
        hdfs = gateway.jvm.org.apache.hadoop.hdfs
        builder = gateway.jvm.org.apache.hadoop.hdfs.MiniDFSCluster.Builder(hdfs.HdfsConfiguration())
        cluster = builder.nnTopology(hdfs.MiniDFSNNTopology.simpleHATopology()).numDataNodes(1).build()
        cluster.transitionToActive(0)
        yield Pair(cluster)
    finally:
        gateway.shutdown()


def test_a_writer_goes_on_after_a_fail_over(pair: Pair) -> None:
    storage = HdfsStorage("hdfs://lake/t", pair.options)
    new_table(storage)
    one = writer(storage)
    insert(one, storage, "month=1", "f")
    pair.fail_over(active=1)
    insert(one, storage, "month=2", "g")
    pair.fail_over(active=0)
    assert [entry.operation for entry in one.history()] == ["INSERT", "INSERT"]
    assert {file.file_id for file in one.snapshot().files} == {"f", "g"}
