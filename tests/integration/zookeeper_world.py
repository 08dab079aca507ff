"""What the tests of the ZooKeeper lock share: writers in this process, writers in others, and Java's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from lakelock.clock import SystemRuntime
from lakelock.events import Event, Events
from lakelock.identity import WriterIdentity
from lakelock.providers import Lease, LockProvider, open_provider
from lakelock.providers.zookeeper.lock import ZooKeeperLockProvider
from lakelock.providers.zookeeper.session import ZooKeeperSession
from lakelock.settings import LockSettings, Settings
from lakelock.settings.zookeeper import ZooKeeperSettings
from lakelock.storage.memory import MemoryStorage
from lakelock.testing.servers.service import Service
from lakelock.testing.servers.zookeeper import JVM, jars
from tests.waiting import eventually

LEASE_S = 1.5
_numbers = count()
_TOLD_WITHIN_S = 1.0
"""Longer than a client pauses before it connects again, and is told then that its session is over."""


def expire(provider: ZooKeeperLockProvider) -> None:
    """End the provider's session behind its back, as the server does with one that is silent."""
    assert provider._session is not None
    end_session(provider._session)


def end_session(session: ZooKeeperSession) -> None:
    """On return the session has ended, and its owner knows.

    A twin takes the session over and closes it. The owner, who lost its connection by that, comes back within some 20 ms and
    takes the session over in turn; a twin that was not faster has ended nothing, and another one follows.
    """
    from kazoo.client import KazooClient

    epoch, victim = session.epoch, session._client
    hosts = ",".join(f"{host}:{port}" for host, port in victim.hosts)
    identity = eventually(lambda: victim.client_id, saying="the session is connected")

    def is_over() -> bool:
        twin = KazooClient(hosts, client_id=identity, connection_retry={"max_tries": -1})
        twin.start(30)
        twin.stop()
        twin.close()
        until_s = time.monotonic() + _TOLD_WITHIN_S
        while session.epoch == epoch and time.monotonic() < until_s:
            time.sleep(0.01)
        return session.epoch != epoch

    eventually(is_over, saying="the session ends")


@dataclass
class World:
    """One lock of its own on one server, and any number of writers."""

    service: Service
    name: str = field(default_factory=lambda: f"{os.getpid()}-{next(_numbers)}")
    runtime: SystemRuntime = field(default_factory=SystemRuntime)
    seen: list[Event] = field(default_factory=list)
    opened: list[ZooKeeperLockProvider] = field(default_factory=list)

    @property
    def uri(self) -> str:
        return self.service.url(self.name)

    @property
    def path(self) -> str:
        return "/" + self.uri.partition("://")[2].partition("/")[2]

    def writer(
        self, name: str, *, lease_s: float = LEASE_S, uri: str = "", port: int = 0, **options: Any
    ) -> ZooKeeperLockProvider:
        uri = uri or (self.service.through(port, {"uri": self.uri})["uri"] if port else self.uri)
        settings = Settings(
            lock=LockSettings(provider=uri, lease_s=lease_s, renew_s=lease_s / 3), zookeeper=ZooKeeperSettings(**options)
        )
        identity = WriterIdentity(self.runtime.uuid(), name, "host", os.getpid(), "user")
        storage = MemoryStorage(self.runtime.now_ms, name=self.name)
        provider = open_provider(settings, storage, self.runtime, identity, Events((self.seen.append,)))
        assert isinstance(provider, ZooKeeperLockProvider)
        self.opened.append(provider)
        return provider

    def close(self) -> None:
        for provider in self.opened:
            provider.close()


class Worker:
    """A process that obeys commands; `ask` sends one, `answer` waits for the reply."""

    def __init__(self, command: list[str], **started: Any) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **started)

    def ask(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the worker died"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __call__(self, command: str) -> dict[str, Any]:
        self.ask(command)
        return self.answer()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)


def take(provider: LockProvider, wait_s: float = 0.0) -> Lease:
    return provider.acquire(wait_s=wait_s)


def nodes(provider: LockProvider) -> list[str]:
    """The owners in the queue, the holder first."""
    state = provider.inspect()
    return [one.owner for one in (state.holder, *state.queue) if one]


@contextmanager
def workers(world: World, folder: Path) -> Iterator[tuple[Callable[..., Worker], Callable[[Path], Worker]]]:
    """Start Python writers, and Java writers from a folder of classes, that are gone at the end."""
    started: list[Worker] = []
    (folder / "count").write_text("0")

    def python(lease_s: float = LEASE_S) -> Worker:
        arena = {"uri": str(folder / "table"), "options": {}, "settings": {"lock.provider": world.uri}, "folder": str(folder)}
        started.append(Worker([sys.executable, "-m", "lakelock.testing.lock_worker"]))
        started[-1].ask(json.dumps({**arena, "lease_s": lease_s, "renew_s": lease_s / 3}))
        return started[-1]

    def java(classes: Path) -> Worker:
        hosts = world.uri.partition("://")[2].partition("/")[0]
        quiet = f"-Dlog4j2.configurationFile={classes}/log4j2.properties"
        command = ["java", *JVM, quiet, "-cp", f"{classes}:{jars()}/*", "CuratorLock", hosts, world.path]
        started.append(Worker([*command, str(round(LEASE_S * 1000))]))
        return started[-1]

    try:
        yield python, java
    finally:
        for worker in started:
            worker.process.kill()
            worker.process.communicate()
