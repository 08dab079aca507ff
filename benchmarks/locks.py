"""What lakelock's locks cost beside the bare client of each service, how fast waiters wake, and what a crowd asks.

`python -m benchmarks.locks [--rounds 400] [--json]` starts every service itself. Needs Linux, no Spark.

* cost: taking and giving back a lock that nobody else wants. Bare client and lakelock take turns round by round, so a slow
  moment of the machine hits both; round trips are counted by a proxy, in a run of their own.
* wake: a waiter behind a proxy that makes every round trip 20 ms long, so that trips can be told from work.
* crowd: the round trips of 10, 25 and 50 writers that come at once, take the lock one after the other and go.
* data locks: a request for 1,000 partitions beside one for a single partition (`benchmarks.data_lock_requests`).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import perf_counter, sleep

from benchmarks.data_lock_requests import data_locks
from benchmarks.lock_clients import BARE, Round, local
from benchmarks.lock_places import PLACES, Place, running
from benchmarks.measuring import arguments, scratch, show, timed, verdict
from lakelock.providers import LockProvider
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

CROWDED = ("redis", "zookeeper", "dynamodb", "s3")
"""Not the metastore: with ten connections to Derby it stalls under 25 clients, whoever they are. And a disk has no requests."""


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


PARTS: tuple[Callable[[Place, int], dict[str, object]], ...] = (cost, wake, crowd, data_locks)
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
