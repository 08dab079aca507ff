"""A lock service that goes away in the middle of a commit: the writer tells the truth in time, and the next one proceeds.

The writers are the Arrow engine, the services are real. The service goes away at a named moment of a commit: its connections
are cut, or it is frozen. For the lock next to the table on local disk the writer's requests to the lock fail, or are carried
out without an answer; in tests of their own, those to all of storage. On S3 all of storage goes away: the writer's connections
are cut, or carry no answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow as pa
import pytest
from tests.api import ArrowEngine, Coordinator, Event, EventKind, LocalStorage, Outcome, Storage, layout, open_storage
from tests.behaviour.tables import SCHEMA, leftovers, new_table, writer
from tests.faulty_storage import Fault, FaultyStorage, Rule
from tests.integration.matrix import SERVICES_OF_ROWS, Services, mark
from tests.servers import SERVICES, Service
from tests.sizes import but, but_in_ci, in_ci, long
from tests.waiting import Stopwatch, eventually

from lakelock.errors import CommitOutcomeUnknown, LakelockError
from lakelock.settings import Settings
from lakelock.testing.lock_suite.arena import STORE_RETRIES_S
from lakelock.testing.proxy import Proxy

WAIT_S, LEASE_S, REQUEST_S = 1.0, 2.0, 1.0
PATIENT_S = 40.0
SLACK_S = 8.0
"""What three requests without an answer (the last of a wait, its withdrawal, a release) and a slow machine may add."""
BACK_SOON_S = 1.0

MOMENTS = {
    "before the lock": EventKind.WRITING,
    "lock held": EventKind.LOCKED,
    "lock lost": EventKind.LOCKED,
    "decided": EventKind.DECIDED,
    "at release": EventKind.PUBLISHED,
}
"""When the service goes away. With `lock lost` the writer then pauses until its lease has run out."""

WAITS_S = {"before the lock": WAIT_S, "lock held": LEASE_S + WAIT_S, "lock lost": LEASE_S + WAIT_S}

TOLD = {
    "before the lock": ("rejected",),
    # A lease that still runs is enough; a service with sessions is asked for it first.
    "lock held": ("committed", "rejected"),
    "lock lost": ("rejected",),
    "decided": ("committed",),
    "at release": ("committed",),
}
TOLD_WITHOUT_STORAGE = {**TOLD, "lock held": ("rejected", "unknown"), "decided": ("unknown",)}
"""A writer that held this lock last has looked at the table beside taking it, so its next request is the decision (ADR 37),
unless it learns before that its lease is lost.
"""

tables = count(1)


@dataclass
class Scene:
    """A table, its lock service, and the means to take that away from the writer `first`."""

    direct: Storage
    storage: Storage
    settings: dict[str, Any]
    pull: Callable[[], None]
    restore: Callable[[], None]
    failures: list[Exception] = field(default_factory=list)
    opened: list[Coordinator] = field(default_factory=list)
    since_pulled: Stopwatch = field(default_factory=Stopwatch)
    armed: bool = False

    def writer(self, name: str, wait_s: float = PATIENT_S) -> ArrowEngine:
        """Another writer, whose way to storage is never disturbed."""
        return self._open(name, self.direct, wait_s)

    def first(self, at: EventKind, then: Callable[[], None], wait_s: float) -> ArrowEngine:
        """The writer that the service is taken from when it next comes to `at` once `armed`; then `then` is done."""

        def listen(event: Event) -> None:
            if event.kind is at and self.armed:
                self.armed = False
                self.since_pulled.__enter__()
                self.pull()
                # What a listener raises stays with the listener, so the test asks for it.
                try:
                    then()
                except Exception as failure:
                    self.failures.append(failure)
                    raise

        return self._open("first", self.storage, wait_s, listen)

    def _open(self, name: str, storage: Storage, wait_s: float, listener: Any = None) -> ArrowEngine:
        settings = Settings.resolve({**self.settings, "lock.wait_s": wait_s}).settings
        self.opened.append(writer(storage, settings, name, listener))
        return ArrowEngine(self.opened[-1])

    def ids(self) -> list[str]:
        """What a reader sees that has nothing to do with the writers."""
        return sorted(ArrowEngine(writer(self.direct)).read().column("id").to_pylist())


@pytest.fixture(scope="module", params=but_in_ci(SERVICES_OF_ROWS, {"storage", "redis"}))
def service(request: pytest.FixtureRequest, services: Services) -> Service:
    return services(request.param)


@pytest.fixture(autouse=True)
def cell(request: pytest.FixtureRequest) -> None:
    """Says in the reports which cell of the lock matrix this is."""
    mark(request.node, request.node.callspec.params["service"], "pulled away")


@pytest.fixture(params=["silent", *in_ci("gone")])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def reach() -> str:
    """Which objects cannot be reached while a service without a server is away: those of its lock."""
    return layout.LOCK


@pytest.fixture
def scene(service: Service, way: str, reach: str, tmp_path: Path) -> Iterator[Scene]:
    name = f"pulled{next(tables)}"
    options = {
        "lock.provider": service.url(name),
        **service.options,
        "lock.lease_s": LEASE_S,
        "lock.renew_s": LEASE_S / 3,
        "heartbeat.interval_s": 1,
        "heartbeat.tolerable_misses": 4,
        **({"lock.options.read_timeout": REQUEST_S} if service.name == "dynamodb" else {}),
        "retry.attempts": 1,
    }
    with ExitStack() as stack:
        if service.port:
            proxy = stack.enter_context(Proxy(service.port, host=service.host, severs=service.sessions))
            made = behind(proxy, service, way, name, tmp_path, options)
        else:
            direct = LocalStorage(str(tmp_path / "table"))
            faulty = FaultyStorage(direct)
            away = (Rule(key=reach, nth=None, fault=Fault.FAIL if way == "gone" else Fault.LOST_REPLY),)
            made = Scene(direct, faulty, options, lambda: setattr(faulty, "plan", away), lambda: setattr(faulty, "plan", ()))
        new_table(made.direct)
        made.writer("early")
        early = made.opened[0].table.provider
        assert early is not None
        early.release(early.acquire(wait_s=PATIENT_S))  # a service that has just come up may take its time
        yield made
        made.restore()
        for coordinator in made.opened:
            coordinator.close()


def behind(proxy: Proxy, service: Service, way: str, name: str, folder: Path, options: dict[str, Any]) -> Scene:
    """A table whose lock, and its storage where that is the service, the first writer reaches through the proxy."""

    def through(values: Mapping[str, Any]) -> dict[str, Any]:
        return service.through(proxy.port, values)

    if service.tables:
        uri, ways = f"{service.tables}/{name}", {**service.table_options, "timeout": f"{REQUEST_S}s"}
        gone = (proxy.cut if way == "gone" else proxy.drop_replies, lambda: proxy.heal(reconnect=True))
        return Scene(open_storage(uri, ways), open_storage(uri, through(ways)), options, *gone)
    direct = LocalStorage(str(folder / "table"))
    gone = (proxy.cut, proxy.heal) if way == "gone" else (service.pause, service.resume)
    return Scene(direct, direct, through(options), *gone)


def rows(key: str) -> pa.Table:
    return pa.table([[key], [1], ["1"]], schema=SCHEMA)


def told(engine: ArrowEngine, key: str) -> tuple[str, str]:
    """What the writer is told about its insert, and the instant where it needs to be asked for."""
    try:
        engine.insert(rows(key))
    except CommitOutcomeUnknown as error:
        return "unknown", str(error.details["instant"])
    except LakelockError:
        return "rejected", ""
    return "committed", ""


def check_the_rest(scene: Scene, first: ArrowEngine, outcome: str, instant: str) -> None:
    """The next writer proceeds, the pulled one too, the table holds what was told, and nothing is left over."""
    second = scene.writer("second")
    second.insert(rows("second"))
    first.insert(rows("first again"))
    last = scene.opened[-1]
    if outcome == "unknown":

        def known() -> str:
            last.reap()
            found = last.outcome(instant)
            return "" if found is Outcome.PENDING else found.value

        outcome = eventually(known)
    expected = {"before", "second", "first again"} | ({"pulled"} if outcome == "committed" else set())
    assert scene.ids() == sorted(expected)
    eventually(lambda: (last.reap(), not leftovers(scene.direct))[1])
    assert scene.ids() == sorted(expected)
    assert eventually(lambda: last.table.provider.inspect().holder is None)


def pulled(scene: Scene, moment: str, then: Callable[[], None], wait_s: float) -> tuple[ArrowEngine, str, str]:
    """Take the service away from a writer at this moment; the writer, and what it was told."""

    def lose() -> None:
        assert set(scene.ids()) - {"pulled"} == {"before"}, "the table is readable meanwhile"
        if moment == "lock lost":
            pulled_s = monotonic()
            eventually(lambda: monotonic() > pulled_s + LEASE_S)
        then()

    first = scene.first(MOMENTS[moment], lose, wait_s)
    eventually(lambda: told(first, "before") == ("committed", ""))  # within `wait_s` a busy machine may not get the lock
    scene.armed = True
    outcome, instant = told(first, "pulled")
    assert not scene.failures
    scene.since_pulled.__exit__()
    return first, outcome, instant


def check_without_the_service(scene: Scene, moment: str, allowed: tuple[str, ...], slack_s: float = SLACK_S) -> None:
    """Of a service that comes back only when the writer has ended."""
    first, outcome, instant = pulled(scene, moment, lambda: None, WAIT_S)
    assert scene.since_pulled.took_s < WAITS_S.get(moment, 0.0) + slack_s
    assert outcome in allowed
    assert (outcome == "committed") <= ("pulled" in scene.ids()) <= (outcome != "rejected")
    scene.restore()
    check_the_rest(scene, first, outcome, instant)


@pytest.mark.parametrize("moment", but(MOMENTS, {"lock held"}, {"decided"}))
def test_a_service_that_stays_away_never_makes_a_writer_hang_or_lie(scene: Scene, service: Service, moment: str) -> None:
    if service.tables:  # the table is there, too
        check_without_the_service(scene, moment, TOLD_WITHOUT_STORAGE[moment], SLACK_S + STORE_RETRIES_S)
    else:
        check_without_the_service(scene, moment, TOLD[moment])


@pytest.mark.parametrize("service", ["storage"], indirect=True)
@pytest.mark.parametrize("reach", ["*"])
@pytest.mark.parametrize("moment", but(MOMENTS, {"decided"}, {"lock held"}))
def test_storage_that_stays_away_never_makes_a_writer_hang_or_lie(scene: Scene, moment: str) -> None:
    check_without_the_service(scene, moment, TOLD_WITHOUT_STORAGE[moment])


# What storage that comes back costs is told in tests/faults/test_object_store.py.
@pytest.mark.parametrize("service", but_in_ci(SERVICES, {"redis", "zookeeper"}), indirect=True)
@pytest.mark.parametrize("moment", ["lock held", "before the lock", *long("lock lost")])
def test_a_service_that_comes_back_in_time_costs_time_only(scene: Scene, moment: str) -> None:
    back = threading.Timer(BACK_SOON_S, scene.restore)
    back.daemon = True
    first, outcome, instant = pulled(scene, moment, back.start, PATIENT_S)
    back.join()
    assert outcome == "committed"
    check_the_rest(scene, first, outcome, instant)
