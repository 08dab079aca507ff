"""What lakelock's locks cost beside the bare client of each service, how fast waiters wake, and what a crowd asks.

`python -m benchmarks.locks [--rounds 400] [--json]` starts every service itself. Needs Linux, no Spark.

* cost: taking and giving back a lock that nobody else wants. Bare client and lakelock take turns round by round, so a slow
  moment of the machine hits both; round trips are counted by a proxy, in a run of their own.
* wake: a waiter behind a proxy that makes every round trip 20 ms long, so that trips can be told from work.
* crowd: the round trips of 10, 25 and 50 writers that come at once, take the lock one after the other and go.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter, sleep

from benchmarks.lock_clients import BARE, LEASE_MS, Round, local
from benchmarks.measuring import arguments, scratch, show, verdict
from lakelock.clock import SystemRuntime
from lakelock.identity import WriterIdentity
from lakelock.providers import LockProvider, open_provider
from lakelock.settings import Settings
from lakelock.storage_open import StorageLocation
from lakelock.testing.servers import S3_OPTIONS, SERVICES, Service, s3_server
from lakelock.testing.servers.proxy import Proxy

TRIPS, TIME = 1.1, 1.2
BLOCKS = 5
COUNTED = 40
ROUND_TRIP_S = 0.02
WAKES = 7
CROWDS = (10, 25, 50)
WAIT_S = 300.0

NOTIFIES = ("zookeeper", "redis")
"""The services that tell a waiter that it is its turn; with the others waiters look again."""

PATIENT = {"hive_metastore": {"hive_metastore.socket_timeout_s": "30"}}
"""The metastore of the tests keeps its locks in Derby, which takes its time with many clients."""

CROWDED = ("redis", "zookeeper", "dynamodb", "s3")
"""Not the metastore: with ten connections to Derby it stalls under 25 clients, whoever they are. And a disk has no requests."""

_names = count()


@dataclass
class Place:
    """One running service, and a table for which locks are taken there."""

    name: str
    service: Service
    folder: Path
    options: dict[str, str] = field(default_factory=dict)
    opened: ExitStack = field(default_factory=ExitStack)

    def writer(self, table: str, proxy: Proxy | None = None) -> LockProvider:
        """A lock provider as a process of its own would have it."""
        runtime = SystemRuntime()
        values = {"lock.provider": self.service.url(table), **self.service.options, **PATIENT.get(self.name, {})}
        options, lease_s = dict(self.options), LEASE_MS / 1000
        if proxy is not None:
            ports = str(self.service.port), str(proxy.port)
            values = {key: value.replace(*ports) for key, value in values.items()}
            options = {key: value.replace(*ports) for key, value in options.items()}
        settings = Settings.resolve(values | {"lock.lease_s": lease_s, "lock.renew_s": lease_s / 3}).settings
        where = f"s3://lake/{table}" if options else str(self.folder / table)
        storage = StorageLocation.of(where, options).open()
        provider = open_provider(settings, storage, runtime, WriterIdentity.of_this_process(runtime, "benchmark"))
        self.opened.callback(provider.close)
        return provider

    def table(self) -> str:
        return f"{self.name}{next(_names)}"

    def proxy(self) -> Proxy:
        return self.opened.enter_context(Proxy(self.service.port, severs=self.service.sessions))


@contextmanager
def s3(folder: Path) -> Iterator[Service]:
    """The storage provider on S3, as moto answers."""
    with s3_server() as endpoint:
        yield Service("storage", lambda name: "storage:", int(endpoint.rpartition(":")[2]), options={"lock.poll_s": "0.1"})


PLACES: dict[str, Callable[[Path], AbstractContextManager[Service]]] = {**SERVICES, "s3": s3}


@contextmanager
def running(name: str, folder: Path) -> Iterator[Place]:
    with PLACES[name](folder / name) as service:
        options = {**S3_OPTIONS, "endpoint": f"http://127.0.0.1:{service.port}"} if name == "s3" else {}
        place = Place(name, service, folder, options)
        with place.opened:
            yield place


def round_of(provider: LockProvider) -> Round:
    return lambda: provider.release(provider.acquire(wait_s=WAIT_S))


def cost(place: Place, rounds: int) -> dict[str, object]:
    """Time and round trips of lakelock, and those of the bare client that takes turns with it."""
    bare = BARE[place.name] if place.service.port else partial(local, place.folder)
    with bare(place.service.port) as theirs:
        ours = round_of(place.writer(place.table()))
        times = in_turns(theirs, ours, rounds)
    # Round by round: both had the same machine at that moment.
    ratios = [mine / other for other, mine in times]
    size, ratio = rounds // BLOCKS, statistics.median(ratios)
    blocks = [statistics.median(ratios[start : start + size]) for start in range(0, rounds - size + 1, size)]
    found: dict[str, object] = {
        "bare_ms": statistics.median(other for other, _ in times) * 1000,
        "lakelock_ms": statistics.median(mine for _, mine in times) * 1000,
        "time_ratio": ratio,
        "time_ratio_of_parts": f"{min(blocks):.2f} to {max(blocks):.2f}",
        "time_target": f"<= {TIME}: {verdict(ratio, TIME)}",
    }
    if place.service.port:
        with bare((proxy := place.proxy()).port) as theirs:
            least = trips(proxy, theirs)
        mine = trips(proxy := place.proxy(), round_of(place.writer(place.table(), proxy)))
        found |= {"bare_trips": least, "lakelock_trips": mine, "trips_target": f"<= {TRIPS}: {verdict(mine / least, TRIPS)}"}
    return found


def in_turns(theirs: Round, ours: Round, rounds: int) -> list[tuple[float, float]]:
    """Seconds of each round, of both.

    Never two of ours in a row: where writers poll, one that has just held the lock stays away for a moment.
    """
    for _ in range(10):
        theirs()
        ours()
    return [(timed(theirs), timed(ours)) for _ in range(rounds)]


def timed(one: Round) -> float:
    began_s = perf_counter()
    one()
    return perf_counter() - began_s


def trips(proxy: Proxy, one: Round) -> float:
    """Round trips of one round, once everything is connected."""
    one()
    one()
    before = proxy.round_trips
    for _ in range(COUNTED):
        one()
    return (proxy.round_trips - before) / COUNTED


def wake(place: Place, _: int) -> dict[str, object]:
    """In round trips after a release was sent: when the waiter is woken, and when it has the lock."""
    if place.name not in NOTIFIES:
        return {}
    table, woken, granted = place.table(), [], []
    near, far = place.proxy(), place.proxy()
    holder, waiter = place.writer(table, near), place.writer(table, far)
    waiter.release(waiter.acquire(wait_s=WAIT_S))
    wakes: list[float] = []
    pause = waiter.pause  # type: ignore[attr-defined]

    def noting(*how: object) -> None:
        pause(*how)
        wakes.append(perf_counter())

    waiter.pause = noting  # type: ignore[attr-defined]
    for proxy in (near, far):
        proxy.delay(ROUND_TRIP_S)
    with ThreadPoolExecutor(1) as pool:
        for _ in range(WAKES):
            lease = holder.acquire(wait_s=WAIT_S)
            waiting = pool.submit(lambda: (waiter.acquire(wait_s=WAIT_S), perf_counter()))
            sleep(15 * ROUND_TRIP_S)  # it is in the queue, and hears
            wakes.clear()
            began_s = perf_counter()
            holder.release(lease)
            got, got_s = waiting.result(WAIT_S)
            woken.append((wakes[0] - began_s) / ROUND_TRIP_S)
            granted.append((got_s - began_s) / ROUND_TRIP_S)
            waiter.release(got)
    return {
        "woken_after_trips": statistics.median(woken),
        "granted_after_trips": statistics.median(granted),
        "wake_target": f"woken within 1 (and 0.2 for work): {verdict(statistics.median(woken), 1.2)}",
    }


def asked_by(place: Place, waiters: int) -> float:
    """Round trips per writer when so many want the lock at once."""
    table, proxy = place.table(), place.proxy()
    holder, writers = place.writer(table), [place.writer(table, proxy) for _ in range(waiters)]
    with ThreadPoolExecutor(waiters) as pool:
        list(pool.map(lambda one: one.inspect(), writers))  # everybody is connected
        lease, before = holder.acquire(wait_s=WAIT_S), proxy.round_trips
        work = [pool.submit(round_of(one)) for one in writers]
        sleep(1.0)
        holder.release(lease)
        for each in work:
            each.result(WAIT_S)
    for one in writers:
        one.close()
    return (proxy.round_trips - before) / waiters


def crowd(place: Place, _: int) -> dict[str, object]:
    """Round trips per writer of a growing crowd: the same where waiters are told, more where they look."""
    if place.name not in CROWDED:
        return {}
    each = {number: asked_by(place, number) for number in CROWDS}
    found: dict[str, object] = {f"trips_per_writer_of_{number}": asked for number, asked in each.items()}
    if place.name in NOTIFIES:
        ratio = each[CROWDS[-1]] / each[CROWDS[0]]
        found["crowd_target"] = f"no more each in the largest (and 0.2 for chance): {verdict(ratio, 1.2)}"
    return found


PARTS: tuple[Callable[[Place, int], dict[str, object]], ...] = (cost, wake, crowd)
"""What is measured on each service, given it and the number of rounds."""


def main() -> None:
    given = arguments(__doc__, rounds=400)
    with scratch() as folder:
        for name in PLACES:
            with running(name, Path(folder)) as place:
                found: dict[str, object] = {"service": name}
                for part in PARTS:
                    found |= part(place, given.rounds)
                show(found, given.json)


if __name__ == "__main__":
    main()
