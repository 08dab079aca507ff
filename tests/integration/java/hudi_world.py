"""One Hudi properties file per lock service, and writers in Java and Python that both read it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.api import LockProvider, MemoryStorage, Storage, SystemRuntime, WriterIdentity, open_provider
from tests.integration.zookeeper.zookeeper_world import Worker
from tests.servers.jvm import java
from tests.servers.locks.dynamodb import REGION, TABLE
from tests.servers.locks.zookeeper import JVM

from lakelock.settings import Settings
from lakelock.testing.service import Service

ROOT = Path(__file__).parents[3]
LEASE_S = 3.0
_numbers = count(1)

_LOCK = "hoodie.write.lock."
_CLASSES = {
    "zookeeper": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
    "hive_metastore": "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
    "dynamodb": "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider",
}
# Hudi's writers fill these in before they hand the file on to the provider, which has no defaults of its own.
_RETRIES = {"wait_time_ms_between_retry": 100, "max_wait_time_ms_between_retry": 1000, "num_retries": 3}


@dataclass
class World:
    """Writers that share one lock by sharing one properties file."""

    file: Path
    folder: Path
    class_path: str
    options: Mapping[str, bool] = field(default_factory=dict)
    started: list[Worker] = field(default_factory=list)
    opened: list[LockProvider] = field(default_factory=list)

    def writer(self, name: str, storage: Storage | None = None) -> LockProvider:
        """lakelock in this process, with the settings of the file."""
        runtime = SystemRuntime()
        settings = Settings.resolve(self.options, file=self.file).settings
        identity = WriterIdentity.of_this_process(runtime, name)
        storage = storage or MemoryStorage(runtime.now_ms, name="table")
        self.opened.append(open_provider(settings, storage, runtime, identity))
        return self.opened[-1]

    def python(self) -> Worker:
        """lakelock in a process of its own."""
        arena = {"file": str(self.file), "options": dict(self.options), "folder": str(self.folder)}
        return self._start([sys.executable, "-m", "tests.integration.java.hudi_worker", json.dumps(arena)])

    def java(self) -> Worker:
        """Hudi's provider in a Java process."""
        quiet = f"-Dlog4j2.configurationFile={self.folder}/log4j2.properties"
        return self._start([java(), "-Xmx256m", *JVM[1:], quiet, "-cp", self.class_path, "HudiLock", str(self.file)])

    def _start(self, command: list[str]) -> Worker:
        self.started.append(Worker(command, cwd=ROOT, env={**os.environ, "AWS_REGION": REGION}))
        return self.started[-1]


def compiled(source: Path, class_path: str, folder: Path) -> str:
    """The class path with what `javac` made of `source`."""
    subprocess.run(["javac", "-cp", class_path, "-d", str(folder), str(source)], check=True, timeout=120)
    return f"{folder}:{class_path}"


@contextmanager
def new_world(service: Service, folder: Path, class_path: str) -> Iterator[World]:
    """A lock of its own on `service`, and no writer left at the end."""
    kind = service.name.split()[0]
    name = f"Table_{os.getpid()}_{next(_numbers)}"
    keys = {"provider": _CLASSES[kind], "wait_time_ms": round(LEASE_S * 1000), **_RETRIES, **_keys(kind, service, name)}
    file = folder / "hudi.properties"
    file.write_text("".join(f"{_LOCK}{key}={value}\n" for key, value in keys.items()))
    (folder / "log4j2.properties").write_text("rootLogger.level=off\n")
    (folder / "count").write_text("0")
    # The one thing that Java's file has no key for.
    world = World(file, folder, class_path, {"lock.options.create_table": True} if kind == "dynamodb" else {})
    try:
        yield world
    finally:
        for worker in world.started:
            worker.process.kill()
            worker.process.communicate()
        for provider in world.opened:
            provider.close()


def _keys(kind: str, service: Service, name: str) -> dict[str, object]:
    if kind == "dynamodb":
        place = {
            "table": TABLE,
            "partition_key": name,
            "region": REGION,
            "endpoint_url": service.options["lock.options.endpoint_url"],
        }
        return {f"dynamodb.{key}": value for key, value in place.items()}
    servers, _, path = service.url(name).partition("://")[2].partition("/")
    if kind == "zookeeper":
        base, _, key = path.rpartition("/")
        place = {"url": servers, "base_path": f"/{base}", "lock_key": key, "session_timeout_ms": str(round(LEASE_S * 1000))}
        return {f"zookeeper.{key}": value for key, value in place.items()}
    database, _, table = path.partition("/")
    place = {"uris": f"thrift://{servers}", "database": database, "table": table}
    return {
        **{f"hivemetastore.{key}": value for key, value in place.items()},
        "heartbeat_interval_ms": round(LEASE_S * 1000 / 3),
    }
