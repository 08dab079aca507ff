"""What the tests of the ZooKeeper lock share: writers in this process, writers in others, and Java's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.api import Event, Events, Lease, LockProvider, MemoryStorage, SystemRuntime, WriterIdentity, open_provider
from tests.servers.locks.zookeeper import JVM, jars
from tests.waiting import eventually

from lakelock.providers.zookeeper.lock import ZooKeeperLockProvider
from lakelock.providers.zookeeper.session import ZooKeeperSession
from lakelock.settings import LockSettings, Settings
from lakelock.testing.service import Service

LEASE_S = 1.5
_numbers = count()


def expire(locks: ZooKeeperLockProvider) -> None:
    """On return the session that has this writer's nodes has ended behind its back, as with one that is silent.

    A twin takes the session over and closes it. The writer comes back within some 20 ms and takes the session over in turn; a
    twin that was not faster has ended nothing, and another one follows.
    """
    from kazoo.client import KazooClient

    hosts, _, path = locks.identity.partition("://")[2].partition("/")
    looking = KazooClient(hosts)
    looking.start(30)
    node, session = next(_nodes_of(locks.writer, looking, f"/{path}"))

    def is_over() -> bool:
        twin = KazooClient(hosts, client_id=(session, _password(session)), connection_retry={"max_tries": -1})
        twin.start(30)
        twin.stop()
        twin.close()
        looking.sync(node)
        return looking.exists(node) is None

    eventually(is_over, saying="the session ends")
    looking.stop()
    looking.close()


def _nodes_of(writer: WriterIdentity, client: Any, path: str) -> Iterator[tuple[str, int]]:
    """The writer's nodes below a path, each with the session that it lives as long as."""
    for name in client.get_children(path):
        data, stat = client.get(f"{path}/{name}")
        if stat.ephemeralOwner and writer.writer_id.encode() in data:
            yield f"{path}/{name}", stat.ephemeralOwner
        yield from _nodes_of(writer, client, f"{path}/{name}")


def _password(session: int) -> bytes:
    """The server's password for a session follows from its number: `java.util.Random`, as in its `generatePasswd`."""
    low48, password = (1 << 48) - 1, b""
    state = (session ^ 0xB3415C00 ^ 0x5DEECE66D) & low48
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & low48
        password += (state >> 16).to_bytes(4, "little")
    return password


def after_a_change_of_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session may end while a request waits for a connection: the next request arrives in the session that follows."""
    ask = ZooKeeperSession.ask

    def changing(session: ZooKeeperSession, within_s: float, *requests: Any) -> list[Any]:
        monkeypatch.setattr(ZooKeeperSession, "ask", ask)
        session.epoch += 1
        return ask(session, within_s, *requests)

    monkeypatch.setattr(ZooKeeperSession, "ask", changing)


def before_a_watch(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> threading.Event:
    """Do `action`, which ends the session of a waiter, as soon as one has seen its queue and is about to set its watch.

    It goes on when its client is in the next session. The event is set then.
    """
    from kazoo.client import KazooClient

    get_async, changed = KazooClient.get_async, threading.Event()

    def in_the_next_session(client: KazooClient, path: str, watch: Callable[..., object] | None = None) -> Any:
        if watch is not None:
            monkeypatch.setattr(KazooClient, "get_async", get_async)
            before = client.client_id
            action()
            eventually(lambda: client.connected and client.client_id != before, 30, saying="the client is in the next session")
            changed.set()
        return get_async(client, path, watch)

    monkeypatch.setattr(KazooClient, "get_async", in_the_next_session)
    return changed


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
            lock=LockSettings(provider=uri, lease_s=lease_s, renew_s=lease_s / 3),
            lock_options={name.replace("__", "."): value for name, value in options.items()},
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
