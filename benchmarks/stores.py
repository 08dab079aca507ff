"""Commits a second on each kind of storage: by one writer, and by four processes, each with a partition of its own.

`python -m benchmarks.stores [--seconds 10] [--json]`. Each commit inserts one row, with the lock beside the table. The
services are those of the tests, on this machine: they show what lakelock's requests cost, and not how fast a real service
is. `s3_20ms` is the same S3 with each piece of an answer 20 ms later; moto sends some answers in two pieces. The ratios are
those of a commit's time to that on local disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
from tests.servers import S3_OPTIONS, s3_server
from tests.servers.stores.azure import CONTAINER, azure_server
from tests.servers.stores.gcs import BUCKET, gcs_server
from tests.servers.stores.hdfs import hdfs_server

from benchmarks.measuring import arguments, scratch, show
from lakelock.clock import SystemRuntime
from lakelock.engine.arrow import ArrowEngine
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.create import create_table
from lakelock.storage.location import StorageLocation
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema
from lakelock.testing.proxy import Proxy

SCHEMA = pa.schema([("id", pa.string()), ("writer", pa.string())])
PROPERTIES = TableProperties.new(
    "stores", ["id"], ["writer"], create_schema=TableSchema.from_arrow(SCHEMA).to_avro_json("stores")
)
WRITERS = 4
LATER_S = 0.02


@contextmanager
def places(folder: Path) -> Iterator[dict[str, StorageLocation]]:
    """One place for tables on each kind of storage, by its name."""
    with (
        s3_server() as s3,
        Proxy(int(s3.rpartition(":")[2])) as slow,
        azure_server(folder / "azure") as azure,
        gcs_server(folder / "gcs") as gcs,
        hdfs_server(folder / "hdfs") as hdfs,
    ):
        slow.delay(LATER_S)
        yield {
            "local": StorageLocation.of(folder / "local"),
            "s3": StorageLocation.of("s3://lake/fast", {**S3_OPTIONS, "endpoint": s3}),
            "s3_20ms": StorageLocation.of("s3://lake/slow", {**S3_OPTIONS, "endpoint": f"http://127.0.0.1:{slow.port}"}),
            "azure": StorageLocation.of(f"az://{CONTAINER}/t", azure),
            "gcs": StorageLocation.of(f"gs://{BUCKET}/t", gcs.options),
            "hdfs": StorageLocation.of(f"{hdfs.root}/t", hdfs.options),
        }


def commits(location: StorageLocation, writer: str, seconds: float) -> int:
    """How many rows a writer inserts in that time, one in each transaction; the first one does not count."""
    with Coordinator.open(location) as coordinator:
        engine, number = ArrowEngine(coordinator), 0
        engine.insert(pa.table([[f"{writer}-first"], [writer]], schema=SCHEMA))
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            engine.insert(pa.table([[f"{writer}-{number}"], [writer]], schema=SCHEMA))
            number += 1
        return number


def measure(location: StorageLocation, seconds: float) -> tuple[float, float]:
    """Commits a second of one writer, and of several at once."""
    create_table(location.open(), PROPERTIES, SystemRuntime())
    alone = commits(location, "alone", seconds)
    with get_context("spawn").Pool(WRITERS) as pool:
        together = pool.starmap(commits, [(location, f"w{number}", seconds) for number in range(WRITERS)], chunksize=1)
    return alone / seconds, sum(together) / seconds


def main() -> None:
    given = arguments(__doc__, seconds=10)
    found: dict[str, object] = {}
    with scratch() as folder, places(Path(folder)) as known:
        rates = {name: measure(location, given.seconds) for name, location in known.items()}
    for name, (alone, together) in rates.items():
        found[name] = f"{alone:.1f} commits/s by one writer, {together:.1f} by {WRITERS} at once"
        found[f"{name}_to_local"] = round(rates["local"][0] / alone, 1)
    show(found, given.json)


if __name__ == "__main__":
    main()
