"""A real HDFS: Hadoop's own cluster for tests, a name node and a data node in one JVM, with the Hadoop that PySpark ships."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from tests.servers import jvm
from tests.servers.fetched.hadoop_jars import fitting
from tests.servers.fetched.maven import Jars
from tests.servers.jvm import write_configuration
from tests.servers.process import ServerProcess

_MAIN = "org.apache.hadoop.test.MiniDFSClusterManager"
# The last one is for name nodes of Hadoop 3.3, which were made for Java 8 and 11.
JAVA_OPTIONS = ("-Xmx256m", *jvm.SHORT_LIVED, "--add-opens=java.base/java.lang=ALL-UNNAMED")

# A client asks whether its file is complete; where the name node has not heard of the last block yet, it waits that long.
_QUICK = {"dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "5"}

HADOOP = {
    "3.3.4": Jars(
        "hadoop-minicluster-3.3.4",
        """
junit:junit:4.13.2 8e495b634469d64fb8acfa3495a065cbacc8a0fff55ce1e31007be4c16dc57d3
org.apache.hadoop:hadoop-client-minicluster:3.3.4 cd8a1703393946c302bb3a52d0fcd23f6f8ded4554bc0dac5d2ee673dbe2b40e
org.hamcrest:hamcrest-core:1.3 66fdef91e9739348df7a096aa384a5685f4e875584cce89386a7a47251c4d8e9
""",
    ),
    "3.5.0": Jars(
        "hadoop-minicluster-3.5.0",
        """
org.apache.hadoop:hadoop-client-minicluster:3.5.0 06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c
org.apiguardian:apiguardian-api:1.1.2 b509448ac506d607319f182537f0b35d71007582ec741832a1f111e5b5b70b38
org.junit.jupiter:junit-jupiter-api:5.10.2 afff77c186cd317275803872fa5133aa801fd6ac40bd91c78a6cf8009b4b17cc
org.junit.platform:junit-platform-commons:1.10.2 b56a5ec000a479df4973b18bba24c98fe0db8faa14c8907d3ef451d8c71fd8ae
org.opentest4j:opentest4j:1.3.0 48e2df636cab6563ced64dcdff8abb2355627cb236ef0bf37598682ddf742f1b
""",
    ),
}


class Hdfs(ServerProcess):
    """One cluster, which keeps its data in `folder`; `port` is that of an `hdfs:` URI, `web_port` serves WebHDFS.

    It chooses its ports when it starts, and keeps them: its start takes so long that others would take one chosen before.
    """

    title = "HDFS"
    up_within_s = 90.0

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None, java_options: Sequence[str] = ()) -> None:
        super().__init__(folder)
        self.port = self.web_port = 0
        self._class_path, self._java_options = class_path(), (*JAVA_OPTIONS, *java_options)
        for name in ("core-site.xml", "hdfs-site.xml"):
            write_configuration(self.folder / "conf" / name, {**_QUICK, **(settings or {})})

    def command(self) -> list[str]:
        path = f"{self.folder}/conf:{self._class_path}"
        own = [f"-Dtest.build.data={self.folder}/data", f"-Djava.io.tmpdir={self.folder}"]
        java = [jvm.java(), *self._java_options, *own, "-cp", path, _MAIN]
        ports = ["-nnport", str(self.port), "-httpport", str(self.web_port), "-datanodes", "1"]
        said = ["-writeConfig", str(self._said), "-writeDetails", str(self._serving)]
        return [*java, *ports, *said, *([] if (self.folder / "data").exists() else ["-format"])]

    def start(self) -> None:
        self._serving.unlink(missing_ok=True)
        super().start()
        said = {each.findtext("name"): each.findtext("value") for each in ElementTree.parse(self._said).iter("property")}
        self.port = _port(said["fs.defaultFS"])
        self.web_port = _port(said["dfs.namenode.http-address"])

    def is_up(self) -> bool:
        """Whether the data node serves, too: then the cluster writes this file."""
        return self._serving.exists()

    @property
    def _said(self) -> Path:
        return self.folder / "said.xml"

    @property
    def _serving(self) -> Path:
        return self.folder / "serving.json"

    @property
    def web(self) -> str:
        return f"http://localhost:{self.web_port}"

    @property
    def root(self) -> str:
        """The URI below which tables can be."""
        return f"hdfs://localhost:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """Settings of lakelock below `storage.`."""
        return {"namenodes": self.web}


def _port(address: str | None) -> int:
    return int((address or "").rpartition(":")[2])


def class_path() -> str:
    """The class path of Hadoop's cluster for tests, with the Hadoop of PySpark."""
    return f"{fitting(HADOOP, 'HDFS').fetch()}/*:{jvm.jars()}/*"


@contextmanager
def hdfs_server(folder: Path, settings: Mapping[str, str] | None = None, java_options: Sequence[str] = ()) -> Iterator[Hdfs]:
    """A running cluster."""
    with Hdfs(folder, settings, java_options) as server:
        yield server
