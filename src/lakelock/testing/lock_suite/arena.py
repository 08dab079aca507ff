"""What the tests of the suite share: a table, its lock, and the writers that compete for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest

from lakelock.clock import Runtime, SystemRuntime
from lakelock.errors import LockTimeout
from lakelock.events import Event, EventKind, Events
from lakelock.identity import WriterIdentity
from lakelock.providers import Lease, LockProvider, open_provider
from lakelock.settings import Settings
from lakelock.storage import Storage
from lakelock.storage.location import open_storage
from lakelock.testing.lock_processes import Worker
from lakelock.testing.proxy import Proxy
from lakelock.testing.service import Service

COLUMNS = (
    "behaviour suite",
    "exclusion",
    "crash",
    "pause",
    "restart",
    "unreachable",
    "lost reply",
    "expiry",
    "fairness",
)
"""The columns of a table of what the tests show, with one provider in each row."""

NOT_FOR_THIS = "does not apply: "
"""How the reason begins when a promise does not apply to a provider."""

SLACK_S = 5.0
"""How much a slow machine, and a service that counts in ticks, may add to a lease."""
STORE_RETRIES_S = 0.2 + 0.4 + 0.8 + 1.6 + 3.2
"""The longest pauses that an object store's client makes by itself: five, each of random length up to these."""

Test = TypeVar("Test", bound=Callable[..., object])
_COLUMN = "lock_suite_column"
_numbers = count()


def column(name: str) -> Callable[[Test], Test]:
    """Put a test into a column other than the first."""

    def mark(test: Test) -> Test:
        setattr(test, _COLUMN, name)
        return test

    return mark


def column_of(test: Callable[..., object]) -> str:
    """The column that a test of the suite belongs to."""
    return str(getattr(test, _COLUMN, COLUMNS[0]))


def not_for_this(why: str) -> NoReturn:
    pytest.skip(NOT_FOR_THIS + why)


@dataclass(frozen=True)
class LockedTable:
    """How the writers of one table are configured: `settings` by their full names, and the table's `uri` and `options`."""

    settings: Mapping[str, object]
    uri: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    lease_s: float = 1.5
    gives_up_s: float = 2.5
    """How much longer than its `wait_s` an `acquire` without an answer may take."""
    queues: bool = False
    """Whether waiters are served in order of arrival, so none starves."""
    sessions: bool = False
    """Whether a session holds the lock: a silent holder then keeps it as long as its process and connection live."""
    tells_since: bool = True
    """Whether `inspect` shows since when the lock is held; an earlier renewal must not change it."""
    tells_left: bool = True
    """Whether `inspect` shows how much longer the lease runs."""
    forks: bool = True
    """Whether a forked process can use the client of the service; obstore, for tables in object storage, hangs there."""
    server: Service | None = None
    """The service, for the promises that stop it and cut it off. Its address is in `settings` or `options`."""
    runtime: Runtime | None = None
    """A `ManualRuntime`, for a lock that takes all time from its runtime: then no test in one process waits in real time."""
    storage: Storage | None = None
    """The table's storage where no other process can open it by `uri`."""

    @staticmethod
    def of(service: Service, folder: Path) -> LockedTable:
        """A new table whose lock is in `service`; a service without storage of its own gets some in `folder`."""
        name = f"table{os.getpid()}-{next(_numbers)}"
        return LockedTable(
            {"lock.provider": service.url(name), **service.options},
            uri=f"{service.tables}/{name}" if service.tables else str(folder / name),
            options=service.table_options,
            gives_up_s=STORE_RETRIES_S + 0.8 if service.tables else 2.5,
            queues=service.queues,
            sessions=service.sessions,
            tells_left=service.tells_left,
            forks=service.forks,
            server=service if service.port else None,
        )


@dataclass
class Arena:
    """One table and its writers: in this process, where the runtime holds the time, and in processes of their own."""

    table: LockedTable
    folder: Path
    runtime: Runtime = field(init=False)
    seen: list[Event] = field(default_factory=list)
    """What the writers of this process reported."""
    opened: list[LockProvider] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.runtime = self.table.runtime or SystemRuntime()
        (self.folder / "count").write_text("0")

    @property
    def lease_s(self) -> float:
        return self.table.lease_s

    def writer(
        self, name: str, *, lease_s: float = 0, proxy: Proxy | None = None, runtime: Runtime | None = None
    ) -> LockProvider:
        """A writer in this process; `proxy` stands between it and the service."""
        runtime, lease_s = runtime or self.runtime, lease_s or self.lease_s
        values = {**self._through(proxy, self._settings()), "lock.lease_s": lease_s, "lock.renew_s": lease_s / 3}
        storage = self.table.storage or open_storage(self.table.uri, self._through(proxy, self.table.options))
        identity = WriterIdentity(runtime.uuid(), name, "host", os.getpid(), "user")
        settings = Settings.resolve(values).settings
        self.opened.append(open_provider(settings, storage, runtime, identity, Events((self.seen.append,))))
        return self.opened[-1]

    def worker(self, *, lease_s: float = 0) -> Worker:
        """A writer process, which may be killed and stopped."""
        lease_s = lease_s or self.lease_s
        place = {"uri": self.table.uri, "options": dict(self.table.options), "folder": str(self.folder)}
        self.workers.append(Worker(place | {"lease_s": lease_s, "renew_s": lease_s / 3, "settings": self._settings()}))
        return self.workers[-1]

    def _settings(self) -> dict[str, object]:
        # Waiters look often; on a lock without notification one of them would otherwise finish before the other looks again.
        return {"lock.poll_s": 0.1, **self.table.settings}

    def _through(self, proxy: Proxy | None, values: Mapping[str, Any]) -> dict[str, Any]:
        if proxy is None or self.table.server is None:
            return dict(values)
        return self.table.server.through(proxy.port, values)

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.seen]

    def until(self, what: Callable[[], Any], within_s: float = 60.0) -> Any:
        """The result of `what` as soon as it is true."""
        until_s = self.runtime.monotonic_s() + within_s
        while not (found := what()):
            assert self.runtime.monotonic_s() < until_s, "it did not happen in time"
            self.runtime.sleep(0.01)
        return found

    def grants(self) -> list[tuple[int, str]]:
        """Token and process of every grant to a hammering worker, in the order in which they used it."""
        lines = [line.split() for line in (self.folder / "tokens").read_text().splitlines()]
        return [(int(token), pid) for token, pid in lines]

    def close(self) -> None:
        for worker in self.workers:
            worker.end()
        for provider in self.opened:
            provider.close()


def taken(provider: LockProvider, wait_s: float = 0.0) -> Lease | None:
    """The lease, or None if another writer holds the lock."""
    try:
        return provider.acquire(wait_s=wait_s)
    except LockTimeout:
        return None


class Promises:
    """The fixtures of the suite; `locked_table` is the one to override."""

    @pytest.fixture
    def locked_table(self) -> LockedTable:
        """How a writer of a new table, with a new lock, is configured."""
        raise NotImplementedError("override the fixture `locked_table` and return a LockedTable")

    @pytest.fixture
    def arena(self, locked_table: LockedTable, tmp_path: Path) -> Iterator[Arena]:
        with closing(Arena(locked_table, tmp_path)) as arena:
            yield arena
