"""Where the tables of a run are: on local disk, or on S3 or HDFS, as a service that is started for the run answers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lakelock.storage.base import METADATA_FOLDER
from tests.api import open_storage
from tests.demo.flights import DemoError
from tests.servers import ServerError

LOCAL, S3, HDFS = "local", "s3", "hdfs"
NAMES = (LOCAL, S3, HDFS)
"""What `--store` accepts."""
FLIGHTS_TABLE = "flights"
MERGE_ON_READ = "mor"
TYPES = {"cow": "COPY_ON_WRITE", MERGE_ON_READ: "MERGE_ON_READ"}
"""What `--type` accepts, and Hudi's name for it."""


@dataclass(frozen=True)
class Store:
    """Where the tables are. `options` are settings of lakelock, `confs` are Spark's, for every writer."""

    root: str
    options: Mapping[str, str] = field(default_factory=dict)
    confs: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        return "://" not in self.root

    def uri(self, table: str) -> str:
        return f"{self.root}/{table}"

    def for_spark(self, table: str, file: str) -> str:
        """A file of a table as Spark names it."""
        return self.uri(f"{table}/{file}").replace("s3://", "s3a://")

    def looked_at(self, table: str, to: Path) -> Path:
        """A folder with the table's files as they are now: the table itself on local disk, otherwise a copy below `to`."""
        if self.is_local:
            return Path(self.uri(table))
        options = {name.removeprefix("storage."): value for name, value in self.options.items()}
        storage = open_storage(self.uri(table), options)
        for folder in ("", METADATA_FOLDER):
            for found in storage.list(folder):
                file = to / table / found.key
                file.parent.mkdir(parents=True, exist_ok=True)
                with storage.open_input(found.key, size_bytes=found.size_bytes) as remote, file.open("wb") as local:
                    shutil.copyfileobj(remote, local)
        return to / table

    def told(self) -> dict[str, object]:
        """What writers need to know of it, as JSON."""
        return asdict(self)


@contextmanager
def opened(name: str, folder: Path) -> Iterator[Store]:
    """The store with this name in `NAMES`: `folder`, or a service's that is gone when the block ends."""
    if name == LOCAL:
        yield Store(str(folder))
        return
    with ExitStack() as stack:
        try:
            store = stack.enter_context(_on_s3() if name == S3 else _on_hdfs(folder))
        except ServerError as error:
            raise DemoError(f"--store {name}: {error}") from error
        yield store


@contextmanager
def _on_s3() -> Iterator[Store]:
    from tests.servers.fetched.hadoop_jars import hadoop_aws
    from tests.servers.stores.s3 import S3_OPTIONS, s3_server

    jars = sorted(str(jar) for jar in hadoop_aws().fetch().glob("*.jar"))
    with s3_server() as endpoint:
        options = {f"storage.{key}": value for key, value in {**S3_OPTIONS, "endpoint": endpoint}.items()}
        yield Store("s3://lake/demo", options, {"spark.jars": ",".join(jars)})


@contextmanager
def _on_hdfs(folder: Path) -> Iterator[Store]:
    from tests.servers.stores.hdfs import hdfs_server

    with hdfs_server(folder / "hdfs") as server:
        yield Store(f"{server.root}/demo", {f"storage.{key}": value for key, value in server.options.items()})
