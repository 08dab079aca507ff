"""Tables that Java Hudi and lakelock share: one properties file for both, and the rows as each of three readers sees them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from hudi import HudiTableBuilder
from tests.api import (
    ArrowEngine,
    Coordinator,
    Event,
    LocalStorage,
    StorageLocation,
    SystemRuntime,
    TableProperties,
    TableSchema,
    create_table,
)
from tests.interop.witness import Pending, Witness
from tests.servers.fetched.hudi_jars import HUDI_DYNAMODB
from tests.servers.locks import dynamodb
from tests.tuning import settings_of

from lakelock.testing.service import Service

# Promises that several tests show, each another way: a build shows some of the ways (`tests/sampling.py`).
CHANGED_COLUMNS = "either side reads and writes on with the columns that the other has changed"
CHANGED_IN_SPARK = "Java goes on with what changes of lakelock in Spark left"
DEAD_WRITERS = "either side removes what a dead writer of the other left, and nothing of a live one"
FOUND_BY_STATISTICS = "with its statistics Java finds the rows that it finds without"
INDEXED = "the record index has each key where its row is, whatever either side has written"
KEPT_METADATA = "Java goes on with a metadata table that lakelock has kept"
LOGGED = "Java finds the rows of log files by its metadata table, and both write on"
MADE_BY_EITHER = "both write a table that either has made"
NOTICED = "what a careless Java writer undoes is found or reported, and nothing else is"
REPLACED = "Java reads and writes on after an optimize or a restore"
TIDIED = "both clean and archive a table, and write on"

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64()), ("region", pa.string())])
Row = tuple[Any, ...]
_numbers = count(1)


def rows(*values: Row, schema: pa.Schema = SCHEMA) -> pa.Table:
    """Rows in the order of the schema's columns."""
    columns = list(zip(*values, strict=True)) if values else [[] for _ in schema]
    return pa.table([pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)], schema=schema)


@dataclass(frozen=True)
class Layout:
    """How a table names its rows and its folders, for both sides."""

    name: str
    keys: tuple[str, ...] = ("id",)
    partitions: tuple[str, ...] = ("region",)
    hive_style: bool = True
    ordering: str | None = None
    schema: pa.Schema = SCHEMA
    hudi_rs: bool = True
    """Whether hudi-rs reads these columns at all."""
    version: int = 9
    table_type: str = "COPY_ON_WRITE"

    def properties(self, table: str) -> TableProperties:
        avro = TableSchema.from_arrow(self.schema).to_avro_json(table, null_first=False)
        return TableProperties.new(
            table, self.keys, self.partitions, self.ordering,
            hive_style=self.hive_style, create_schema=avro, version=self.version, table_type=self.table_type,
        )  # fmt: skip

    def options(self) -> dict[str, str]:
        """What a Java writer has to say about them; the table itself says the same."""
        said = {
            "hoodie.datasource.write.hive_style_partitioning": str(self.hive_style).lower(),
            "hoodie.datasource.write.partitionpath.urlencode": "true",
            "hoodie.write.table.version": str(self.version),
            "hoodie.datasource.write.table.type": self.table_type,
        }
        if self.keys:
            said["hoodie.datasource.write.recordkey.field"] = ",".join(self.keys)
        if self.partitions:
            said["hoodie.datasource.write.partitionpath.field"] = ",".join(self.partitions)
        if self.ordering:
            said["hoodie.datasource.write.precombine.field"] = self.ordering
        return said


HIVE_STYLE = Layout("hive_style")

# What the handbook asks of every Java writer, and nothing else.
ASKED = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.table.version": "9",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.client.heartbeat.interval_in_ms": "60000",
    "hoodie.client.heartbeat.tolerable.misses": "2",
    "hoodie.rollback.avoid.duplicate.plan": "true",
}
EARLY = {
    "hoodie.write.concurrency.early.conflict.detection.enable": "true",
    "hoodie.write.concurrency.early.conflict.check.commit.conflict": "true",
    "hoodie.write.markers.type": "DIRECT",
}
# Only to be quick: small tables need no parallelism, and a writer that polls a lock ten times a second has to poll more often.
QUICK = {
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.insert.shuffle.parallelism": "2",
    "hoodie.delete.shuffle.parallelism": "2",
    "hoodie.bulkinsert.shuffle.parallelism": "2",
    "hoodie.simple.index.parallelism": "2",
    "hoodie.bloom.index.parallelism": "2",
    "hoodie.index.bloom.num_entries": "1000",
    "hoodie.write.lock.wait_time_ms_between_retry": "100",
    "hoodie.write.lock.client.wait_time_ms_between_retry": "100",
    "hoodie.write.lock.wait_time_ms": "20000",
    "hoodie.write.lock.client.num_retries": "1000",
}


DYNAMODB = "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider"


@dataclass
class Shared:
    """One table, written by Java Hudi and by lakelock under one lock."""

    java: Witness
    folder: Path
    lock: Mapping[str, str]
    layout: Layout = HIVE_STYLE
    name: str = field(default_factory=lambda: f"t{os.getpid()}_{next(_numbers)}")
    model: dict[Row, Row] = field(default_factory=dict)
    opened: list[Coordinator] = field(default_factory=list)
    statistics: Mapping[str, str] = field(default_factory=lambda: {"hoodie.metadata.index.column.stats.enable": "false"})
    """Whether Java makes statistics, its default. Off only to be quick: `test_metadata_statistics.py` is about them."""

    @property
    def path(self) -> str:
        return str(self.folder / self.name)

    @property
    def storage(self) -> LocalStorage:
        return LocalStorage(self.path)

    @property
    def hudi_file(self) -> Path:
        """The writer configuration that both sides read."""
        file = self.folder / f"{self.name}.properties"
        if not file.exists():
            file.write_text("".join(f"{key}={value}\n" for key, value in {**ASKED, **self.lock}.items()))
        return file

    def java_options(self, operation: str = "upsert", **more: str) -> dict[str, str]:
        """Options of one Java write; `more` replaces, with `__` for each dot."""
        told = dict(line.split("=", 1) for line in self.hudi_file.read_text().splitlines())
        told |= {"hoodie.table.name": self.name, "hoodie.datasource.write.operation": operation, **QUICK}
        told |= self.statistics
        if told["hoodie.write.lock.provider"] == DYNAMODB:
            # Its last release on Maven Central is 0.15, which does not fit the classes of 1.2.
            told |= {"older.provider": DYNAMODB, "older.jars": str(HUDI_DYNAMODB.fetch())}
            told["hoodie.write.lock.provider"] = "OlderLock"
        return {**told, **self.layout.options(), **{key.replace("__", "."): value for key, value in more.items()}}

    def create(self) -> Shared:
        """Make the table with lakelock."""
        create_table(self.storage, self.layout.properties(self.name), SystemRuntime())
        return self

    def coordinator(self, listener: Callable[[Event], None] | None = None, **options: object) -> Coordinator:
        """One more lakelock writer, configured by Java's own file."""
        settings = settings_of(options, file=self.hudi_file)
        listeners = (listener,) if listener else ()
        location = StorageLocation(self.storage.uri)
        self.opened.append(Coordinator.open(location, settings, storage=self.storage, listeners=listeners))
        return self.opened[-1]

    def engine(self, **options: object) -> ArrowEngine:
        return ArrowEngine(self.coordinator(**options))  # type: ignore[arg-type]

    def java_changes(self, operation: str, *rows: Row, **options: str) -> None:
        """Let Java write or delete these rows, and the model, too."""
        self.java_write(operation, *rows, **options)
        if operation == "delete":
            self.drop(*map(self.key, rows))
        else:
            self.put(*rows)

    def java_write(self, operation: str, *values: Row, **more: str) -> None:
        self.java.write(self.path, self.rows(*values), self.java_options(operation, **more))

    def begin_java(self, operation: str, *values: Row, gate: Path | None = None, half: str = "", **more: str) -> Pending:
        """A Java write that stands still until `gate` exists: all of it, or a task with the rows that satisfy `half`."""
        where = {"gate": str(gate), "half": half} if gate else {}
        return self.java.begin_write(self.path, self.rows(*values), self.java_options(operation, **more), **where)

    def rows(self, *values: Row) -> pa.Table:
        return rows(*values, schema=self.layout.schema)

    def key(self, row: Row) -> Row:
        names = self.layout.schema.names
        return tuple(row[names.index(name)] for name in (*self.layout.partitions, *self.layout.keys))

    def put(self, *values: Row) -> None:
        """The model after an insert or upsert."""
        self.model.update({self.key(row): row for row in values})

    def drop(self, *keys: Row) -> None:
        for key in keys:
            del self.model[key]

    def replace_partition(self, partition: Row, *values: Row) -> None:
        width = len(partition)
        self.model = {key: row for key, row in self.model.items() if key[:width] != partition}
        self.put(*values)

    def by_java(self) -> pa.Table:
        return self.java.read(self.path)

    def by_hudi_rs(self) -> pa.Table:
        batches = HudiTableBuilder.from_base_uri(self.storage.uri).build().read()
        return pa.Table.from_batches([pa.record_batch(batch) for batch in batches]) if batches else self.rows()

    def by_lakelock(self) -> pa.Table:
        return ArrowEngine(self.coordinator()).read()

    def agree(self) -> None:
        """Java Hudi, hudi-rs and lakelock see the rows of the model, each row once; a metadata table lists what is there."""
        expected = as_rows(self.rows(*self.model.values()), self.layout.schema)
        readers = (self.by_lakelock, self.by_hudi_rs, self.by_java) if self.layout.hudi_rs else (self.by_lakelock, self.by_java)
        for reader in readers:
            assert as_rows(reader(), self.layout.schema) == expected, reader.__name__
        if (Path(self.path) / ".hoodie" / "metadata").exists():
            self.is_listed()

    def is_listed(self) -> None:
        """Java's metadata table has the data files that are in the folders, but for those of pending instants."""
        pending, folder = self.pending(), Path(self.path)
        there = {str(file): file.stat().st_size for file in folder.rglob("*") if ".hoodie" not in file.parts and file.is_file()}
        told, there = (
            {name: size for name, size in files.items() if _is_data(name) and not any(f"_{i}." in name for i in pending)}
            for files in (self.java.listing(self.path), there)
        )
        assert sorted(told.items() ^ there.items()) == []

    def instants(self, *states: str) -> list[str]:
        """Names of the timeline's files that end with one of `states`."""
        folder = Path(self.path) / ".hoodie" / "timeline"
        found = sorted(file.name for file in folder.iterdir() if not file.name.startswith(".") and file.is_file())
        return [name for name in found if not states or name.endswith(states)]

    def traces(self, instant: str) -> list[str]:
        """Every file of the table with this instant in its path."""
        # Java may remove a folder meanwhile, which `os.walk` passes over.
        found = (os.path.join(os.path.relpath(folder, self.path), name) for folder, _, files in os.walk(self.path)
                 for name in files if not name.startswith("."))  # fmt: skip
        return sorted(os.path.normpath(file) for file in found if instant in file)

    def pending(self) -> list[str]:
        """Instants that were requested and not completed, oldest first."""
        names = self.instants()
        completed = {name.partition("_")[0] for name in names if "_" in name}
        return sorted({name.partition(".")[0] for name in names if "_" not in name} - completed)

    def age(self, instant: str, by_s: float = 900.0) -> None:
        """Let a heartbeat be as old as if its writer had died so long ago that even lakelock does not leave it to Java."""
        beat = Path(self.path) / ".hoodie" / ".heartbeat" / instant
        then = beat.stat().st_mtime - by_s
        os.utime(beat, (then, then))

    def close(self) -> None:
        for coordinator in self.opened:
            coordinator.close()


def _is_data(name: str) -> bool:
    file = name.rpartition("/")[2]
    return not file.endswith(".crc") and (file.endswith(".parquet") or ".log." in file)


def as_rows(table: pa.Table, schema: pa.Schema) -> list[Row]:
    """The rows as plain values, sorted, in the order and the types of `schema`; the order within a map is nobody's."""
    chosen = table.select(schema.names).cast(schema)
    found: list[list[Any]] = [chosen.column(name).to_pylist() for name in schema.names]
    for index, column in enumerate(schema):
        if pa.types.is_map(column.type):
            found[index] = [None if value is None else sorted(value) for value in found[index]]
    return sorted(zip(*found, strict=True), key=repr)


def metastore_lock(service: Service, table: str) -> dict[str, str]:
    """The keys of a Java writer's file for one table's lock in a Hive metastore."""
    servers, _, path = service.url(table).partition("://")[2].partition("/")
    database, _, name = path.partition("/")
    return {
        "hoodie.write.lock.provider": "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
        "hoodie.write.lock.hivemetastore.uris": f"thrift://{servers}",
        "hoodie.write.lock.hivemetastore.database": database,
        "hoodie.write.lock.hivemetastore.table": name,
    }


def zookeeper_lock(service: Service, table: str) -> dict[str, str]:
    """The keys of a Java writer's file for one table's lock on a ZooKeeper."""
    servers, _, path = service.url(table).partition("://")[2].partition("/")
    base, _, key = path.rpartition("/")
    return {
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
        "hoodie.write.lock.zookeeper.url": servers,
        "hoodie.write.lock.zookeeper.base_path": f"/{base}",
        "hoodie.write.lock.zookeeper.lock_key": key,
        "hoodie.write.lock.zookeeper.session_timeout_ms": "20000",
    }


def dynamodb_lock(service: Service, table: str) -> dict[str, str]:
    """The keys of a Java writer's file for one table's lock in DynamoDB."""
    return {
        "hoodie.write.lock.provider": DYNAMODB,
        "hoodie.write.lock.dynamodb.table": dynamodb.TABLE,
        "hoodie.write.lock.dynamodb.partition_key": table,
        "hoodie.write.lock.dynamodb.region": dynamodb.REGION,
        "hoodie.write.lock.dynamodb.endpoint_url": service.options["lock.options.endpoint_url"],
    }


LOCKS = {"zookeeper": zookeeper_lock, "hive_metastore": metastore_lock, "dynamodb": dynamodb_lock}
"""What a Java writer's file says of the lock, by lock service."""
