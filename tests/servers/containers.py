"""Servers in containers, where Docker runs and a local server cannot start (or with LAKELOCK_TEST_DOCKER=1).

A server that the environment names comes first, then a container if one is asked for, then a local server, then a container.
The engine has to run on this machine: ports are expected on its loopback address.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from lakelock.testing.service import Service
from tests.given_servers import ServerFailed, ServerMissing
from tests.servers.process import free_port

WISH = "LAKELOCK_TEST_DOCKER"
"""Environment: `1` asks for containers, even where a local server could start."""

_SOCKET = "unix:///var/run/docker.sock"
_ANSWER_S, _START_S = 2.0, 120.0

Local = Callable[[Path], AbstractContextManager[Service]]


@dataclass(frozen=True)
class Image:
    """A server's image: its port, environment, and the service that it gives on a port of this machine."""

    name: str
    port: int
    service: Callable[[int], Service]
    environment: dict[str, str] = field(default_factory=dict)


def _redis(port: int) -> Service:
    options = {"lock.options.socket_timeout": "0.5", "lock.options.socket_connect_timeout": "0.5"}
    return Service("redis", lambda name: f"redis://127.0.0.1:{port}/0?key={quote(name)}", port, options=options, queues=True)


def _zookeeper(port: int) -> Service:
    place = f"zookeeper://127.0.0.1:{port}/lakelock/tests"
    return Service("zookeeper", lambda name: f"{place}/{name}", port, queues=True, sessions=True, tells_left=False)


def _hive_metastore(port: int) -> Service:
    place = f"hive_metastore://127.0.0.1:{port}/lakelock_test"
    options = {"hive_metastore.socket_timeout_s": "1"}
    return Service("hive_metastore", lambda name: f"{place}/{quote(name, safe='')}", port, options=options, queues=True)


IMAGES = {
    "redis": Image("redis:7", 6379, _redis),
    "zookeeper": Image("zookeeper:3.9", 2181, _zookeeper, {"ZOO_TICK_TIME": "200", "ZOO_MAX_CLIENT_CNXNS": "0"}),
    "hive_metastore": Image(
        "apache/hive:4.0.1",
        9083,
        _hive_metastore,
        {
            "SERVICE_NAME": "metastore",
            "SERVICE_OPTS": "-Dhive.support.concurrency=true -Dhive.txn.timeout=60s"
            " -Dhive.txn.manager=org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
        },
    ),
}
"""DynamoDB and S3 need no container: moto is a Python package."""


def server(kind: str, given: str, local: Local, folder: Path) -> AbstractContextManager[Service]:
    """The service of one kind, from the first place that has one. `given` is the environment variable that names a server."""
    return _first(kind, os.environ.get(given, ""), os.environ.get(WISH, "") == "1", local, folder)


@contextmanager
def _first(kind: str, given: str, wished: bool, local: Local, folder: Path) -> Iterator[Service]:
    with ExitStack() as stack:
        if wished and not given:
            yield stack.enter_context(container(IMAGES[kind]))
            return
        try:
            service = stack.enter_context(local(folder))
        except ServerMissing:
            if given or engine() != "answers":
                raise
            service = stack.enter_context(container(IMAGES[kind]))
        yield service


def engine() -> Literal["answers", "silent"]:
    """Whether a Docker engine answers at DOCKER_HOST or at the usual socket of this machine."""
    place = urlsplit(os.environ.get("DOCKER_HOST") or _SOCKET)
    try:
        with _connected(place.path if place.scheme == "unix" else (place.hostname or "", place.port or 2375)) as talking:
            talking.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            status = talking.recv(64)
    except OSError:
        return "silent"
    return "answers" if status.startswith(b"HTTP/1.") and b" 200 " in status else "silent"


def _connected(address: str | tuple[str, int]) -> socket.socket:
    if not isinstance(address, str):
        return socket.create_connection(address, timeout=_ANSWER_S)
    talking = socket.socket(socket.AF_UNIX)
    talking.settimeout(_ANSWER_S)
    try:
        talking.connect(address)
    except OSError:
        talking.close()
        raise
    return talking


@contextmanager
def container(image: Image) -> Iterator[Service]:
    """A server in a container of its own, removed at the end; `ServerMissing` says what is missing."""
    if engine() != "answers":
        raise ServerMissing("needs a Docker engine: start one, or name it in DOCKER_HOST")
    try:
        from testcontainers.core.container import DockerContainer
    except ImportError as error:
        raise ServerMissing("needs testcontainers: pip install 'lakelock[containers]'") from error
    port = free_port()
    made: Any = DockerContainer(image.name)
    for name, value in image.environment.items():
        made.with_env(name, value)
    # The same port across restarts, and only for this machine.
    made.ports[str(image.port)] = ("127.0.0.1", port)
    with made:
        wrapped = made.get_wrapped_container()

        def start() -> None:
            wrapped.start()
            _wait(port, image.name)

        _wait(port, image.name)
        service = image.service(port)
        yield replace(service, stop=wrapped.stop, start=start, pause=wrapped.pause, resume=wrapped.unpause)


def _wait(port: int, name: str) -> None:
    """Wait until the server keeps a connection open: Docker's own forwarder accepts connections before the server is up."""
    until_s = time.monotonic() + _START_S
    while time.monotonic() < until_s:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as talking:
                talking.settimeout(0.5)
                try:
                    if talking.recv(1):
                        return
                except TimeoutError:
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise ServerFailed(f"the container of {name} did not answer within {_START_S:g} s")
