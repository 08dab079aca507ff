"""ZooKeeper from the jars that PySpark ships: needs nothing but Java."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from lakelock.testing.service import Service
from tests.given_servers import Place, not_ours
from tests.servers.jvm import SHORT_LIVED, jars, java
from tests.servers.process import ServerProcess, free_port

ENVIRONMENT = "LAKELOCK_TEST_ZOOKEEPER"
"""`host:port,host:port/base` of an existing server; tests that must restart it are then skipped."""

JVM = ["-Xmx128m", *SHORT_LIVED, "-Xshare:auto"]
_TICK_MS = 200


def mode(port: int) -> str:
    """The role of the server on this port: standalone, leader, follower; empty while it serves nobody."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as talking:
            talking.sendall(b"srvr")
            told = b"".join(iter(lambda: talking.recv(4096), b"")).decode()
    except OSError:
        return ""
    return next((line.partition(": ")[2] for line in told.splitlines() if line.startswith("Mode")), "")


class _Process(ServerProcess):
    """One server; `number` is its number in an ensemble."""

    title = "ZooKeeper"
    up_within_s = 30.0

    def __init__(
        self, folder: Path, extra: Mapping[str, str], jvm: Sequence[str] = (), port: int = 0, number: int | None = None
    ) -> None:
        super().__init__(folder, port)
        self._jvm = jvm
        self._main = "ZooKeeperServerMain" if number is None else "quorum.QuorumPeerMain"
        config = {
            "dataDir": str(self.folder / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "tickTime": str(_TICK_MS),
            "minSessionTimeout": "400",
            "maxSessionTimeout": "40000",
            "maxClientCnxns": "0",
            "4lw.commands.whitelist": "*",
            **extra,
        }
        (self.folder / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        (self.folder / "data").mkdir(exist_ok=True)
        if number is not None:
            (self.folder / "data" / "myid").write_text(str(number))
        (self.folder / "log4j2.properties").write_text(
            "rootLogger.level=warn\nrootLogger.appenderRef.out.ref=out\nappender.out.type=Console\nappender.out.name=out\n"
            "appender.out.layout.type=PatternLayout\nappender.out.layout.pattern=%d %p %c %m%n\n"
        )

    def command(self) -> list[str]:
        # Without fsync: tests do not cut the power.
        options = [*JVM, "-Dzookeeper.forceSync=no", f"-Dlog4j2.configurationFile={self.folder}/log4j2.properties", *self._jvm]
        main = f"org.apache.zookeeper.server.{self._main}"
        return [java(), *options, "-cp", f"{jars()}/*", main, str(self.folder / "zoo.cfg")]

    def is_up(self) -> bool:
        return bool(mode(self.port))


@contextmanager
def zookeeper_server(
    folder: Path, extra: Mapping[str, str] | None = None, jvm: Sequence[str] = (), *, own: bool = False
) -> Iterator[Service]:
    """A ZooKeeper server with sessions from 0.4 s. `own` ignores the environment, for tests that configure the server."""
    given = os.environ.get(ENVIRONMENT)
    if given and not own:
        yield _given(given)
        return
    with _Process(folder, extra or {}, jvm) as process:
        yield Service(
            name="zookeeper",
            url=lambda table: f"zookeeper://127.0.0.1:{process.port}/lakelock/tests/{table}",
            port=process.port,
            stop=process.stop,
            start=process.start,
            pause=process.pause,
            resume=process.resume,
            queues=True,
            sessions=True,
            tells_left=False,
        )


@dataclass(frozen=True)
class Ensemble:
    """Three servers that elect a leader."""

    service: Service
    stop_leader: Callable[[], None]


@contextmanager
def zookeeper_ensemble(folder: Path) -> Iterator[Ensemble]:
    """Three servers of our own, of which one may fail."""
    ports = [free_port() for _ in range(3)]
    peers = {f"server.{number}": f"127.0.0.1:{free_port()}:{free_port()}" for number in (1, 2, 3)}
    extra = {"initLimit": "50", "syncLimit": "25", **peers}
    processes = [_Process(folder / str(number), extra, port=port, number=number) for number, port in enumerate(ports, start=1)]

    def stop_leader() -> None:
        next(process for process, port in zip(processes, ports, strict=True) if mode(port) == "leader").stop()

    def everyone(does: Callable[[_Process], None]) -> None:
        for process in processes:
            does(process)

    def start() -> None:
        everyone(_Process.launch)
        everyone(_Process.wait_until_it_serves)

    def stop() -> None:
        everyone(_Process.stop)

    try:
        start()
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        yield Ensemble(replace(_given(f"{hosts}/lakelock"), stop=stop, start=start), stop_leader)
    finally:
        stop()


def _given(address: str) -> Service:
    hosts, _, base = address.partition("/")
    place, cannot = Place.of(f"zookeeper://{hosts}", 2181), not_ours(ENVIRONMENT)
    return Service(
        name="zookeeper",
        url=lambda table: f"zookeeper://{hosts}/{base}/{table}" if base else f"zookeeper://{hosts}/{table}",
        port=place.port,
        stop=cannot,
        start=cannot,
        pause=cannot,
        resume=cannot,
        queues=True,
        sessions=True,
        tells_left=False,
        host=place.host,
        address=place.text,
    )
