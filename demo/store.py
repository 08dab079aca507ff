"""Where the tables of a run are: on local disk, or on S3, as a service that is started for the run answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lakelock.demo.flights import DemoError
from lakelock.testing.servers import ServerError

LOCAL, S3 = "local", "s3"
NAMES = (LOCAL, S3)
"""What `--store` accepts."""
FLIGHTS_TABLE = "flights"
_BUCKET = "lake"


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
        import boto3

        prefix = self.uri(table).removeprefix(f"s3://{_BUCKET}/")
        client: Any = boto3.client(
            "s3",
            endpoint_url=self.options["storage.endpoint"],
            region_name=self.options["storage.region"],
            aws_access_key_id=self.options["storage.access_key_id"],
            aws_secret_access_key=self.options["storage.secret_access_key"],
        )
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=_BUCKET, Prefix=f"{prefix}/"):
            for found in page.get("Contents", ()):
                file = to / table / found["Key"].removeprefix(f"{prefix}/")
                file.parent.mkdir(parents=True, exist_ok=True)
                client.download_file(_BUCKET, found["Key"], str(file))
        return to / table

    def told(self) -> dict[str, object]:
        """What writers need to know of it, as JSON."""
        return asdict(self)


@contextmanager
def opened(name: str, folder: Path) -> Iterator[Store]:
    """The store with this name in `NAMES`: `folder`, or a bucket that is gone when the block ends."""
    if name == LOCAL:
        yield Store(str(folder))
        return
    from lakelock.testing.servers.hadoop_jars import hadoop_aws
    from lakelock.testing.servers.s3 import S3_OPTIONS, s3_server

    try:
        jars = sorted(str(jar) for jar in hadoop_aws().fetch().glob("*.jar"))
    except ServerError as error:
        raise DemoError(f"--store {name}: {error}") from error
    with s3_server() as endpoint:
        options = {f"storage.{key}": value for key, value in {**S3_OPTIONS, "endpoint": endpoint}.items()}
        yield Store(f"s3://{_BUCKET}/demo", options, {"spark.jars": ",".join(jars)})
