"""What lakelock's locks cost beside the bare client of each service, how fast waiters wake, and what a crowd asks.

`python -m benchmarks.locks [--rounds 400] [--json]` starts every service itself. Needs Linux, no Spark.

* cost: taking and giving back a lock that nobody else wants. Bare client and lakelock take turns round by round, so a slow
  moment of the machine hits both; round trips are counted by a proxy, in a run of their own. Where the bare client is not a
  lock at all, a second one that is a lock takes turns with them, too.
* wake: a waiter behind a proxy that makes every round trip 20 ms long, so that trips can be told from work.
* crowd: the requests of 10, 25 and 50 writers that come at once, take the lock one after the other and go.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from time import perf_counter, sleep

from tests.faulty_storage import CountingStorage

from benchmarks.lock_clients import BARE, CORRECT, Round, local
from benchmarks.lock_places import PLACES, Place, running
from benchmarks.measuring import arguments, scratch, show, timed, verdict
from lakelock.providers import LockProvider
from lakelock.storage.local import LocalStorage
from lakelock.testing.proxy import Proxy

TRIPS, TIME = 1.1, 1.2
BLOCKS = 5
COUNTED = 40
ROUND_TRIP_S = 0.02
WAKES = 7
CROWDS = (10, 25, 50)
ROOM_TOLD, ROOM_LOOKING = 1.2, 1.5
"""For chance; a waiter that polls also polls more often the longer the crowd takes, by its logarithm."""

WAIT_S = 300.0

Seconds = Sequence[float]

NOTIFIES = ("zookeeper", "redis")
"""The services that tell a waiter that it is its turn; with the others waiters look again."""


def round_of(provider: LockProvider) -> Round:
    return lambda: provider.release(provider.acquire(wait_s=WAIT_S))


def cost(place: Place, rounds: int) -> dict[str, object]:
    """Time and round trips of lakelock, and those of the bare client that takes turns with it."""
    bare = BARE[place.name] if place.service.port else partial(local, place.folder)
    correct = CORRECT.get(place.name)
    with bare(place.service.port) as theirs, correct(place.service.port) if correct else nullcontext(theirs) as least:
        ours = round_of(place.writer(place.table()))
        times = in_turns(rounds, ours, theirs, least) if correct else in_turns(rounds, ours, theirs)
    mine, bare_s, *lock_s = zip(*times, strict=True)
    found: dict[str, object] = {"bare_ms": statistics.median(bare_s) * 1000, "lakelock_ms": statistics.median(mine) * 1000}
    found |= compared("time", mine, bare_s)
    for other in lock_s:
        found |= {"lock_ms": statistics.median(other) * 1000, "lock_beside_bare_ratio": in_median(other, bare_s)}
        found |= compared("time_beside_a_lock", mine, other)
    if place.service.port:
        with bare((proxy := place.proxy()).port) as theirs:
            fewest = trips(proxy, theirs)
        asked = trips(proxy := place.proxy(), round_of(place.writer(place.table(), proxy)))
        found |= {"bare_trips": fewest, "lakelock_trips": asked}
        found |= {"trips_target": f"<= {TRIPS}: {verdict(asked / fewest, TRIPS)}"}
    return found


def compared(name: str, mine: Seconds, theirs: Seconds) -> dict[str, object]:
    """The ratio, that of parts of the run, and whether it is good enough."""
    ratio, size = in_median(mine, theirs), len(mine) // BLOCKS
    parts = [in_median(mine[start : start + size], theirs[start : start + size]) for start in range(0, size * BLOCKS, size)]
    return {
        f"{name}_ratio": ratio,
        f"{name}_ratio_of_parts": f"{min(parts):.2f} to {max(parts):.2f}",
        f"{name}_target": f"<= {TIME}: {verdict(ratio, TIME)}",
    }


def in_median(mine: Seconds, theirs: Seconds) -> float:
    """Round by round: both had the same machine at that moment."""
    return statistics.median(one / other for one, other in zip(mine, theirs, strict=True))


def in_turns(rounds: int, ours: Round, *others: Round) -> list[tuple[float, ...]]:
    """Seconds of each round, of all that take turns; the others forwards and backwards, as it matters whom one follows.

    Never two of ours in a row: where writers poll, one that has just held the lock stays away for a moment.
    """
    for _ in range(10):
        for one in (ours, *others):
            one()
    found = []
    for number in range(rounds):
        mine, turn = timed(ours), -1 if number % 2 else 1
        found.append((mine, *[timed(one) for one in others[::turn]][::turn]))
    return found


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
            sleep(15 * ROUND_TRIP_S)  # it is in the queue, and subscribed
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


def crowd_of(place: Place, table: str, waiters: int) -> tuple[list[LockProvider], Callable[[], int]]:
    """So many writers, and how to count what they asked so far: round trips, or calls where there is no service."""
    if place.service.port:
        proxy = place.proxy()
        return [place.writer(table, proxy) for _ in range(waiters)], lambda: proxy.round_trips
    storage = CountingStorage(LocalStorage(place.folder / table))
    return [place.writer(table, storage=storage) for _ in range(waiters)], lambda: storage.total


def asked_by(place: Place, waiters: int) -> tuple[float, float]:
    """Requests per writer when so many want the lock at once, and the seconds until all have had it."""
    table = place.table()
    holder, (writers, asked) = place.writer(table), crowd_of(place, table, waiters)
    with ThreadPoolExecutor(waiters) as pool:
        list(pool.map(lambda one: one.inspect(), writers))  # everybody is connected
        lease, before = holder.acquire(wait_s=WAIT_S), asked()
        work = [pool.submit(round_of(one)) for one in writers]
        sleep(1.0)
        began_s = perf_counter()
        holder.release(lease)
        for each in work:
            each.result(WAIT_S)
        took_s = perf_counter() - began_s
    for one in writers:
        one.close()
    return (asked() - before) / waiters, took_s


def crowd(place: Place, _: int) -> dict[str, object]:
    """Requests per writer of a growing crowd: the same where waiters are told, a few more where they look."""
    each = {number: asked_by(place, number) for number in CROWDS}
    found: dict[str, object] = {}
    for number, (asked, took_s) in each.items():
        found |= {f"requests_per_writer_of_{number}": asked, f"seconds_of_{number}": took_s}
    ratio, room = each[CROWDS[-1]][0] / each[CROWDS[0]][0], ROOM_TOLD if place.name in NOTIFIES else ROOM_LOOKING
    return found | {"crowd_ratio": ratio, "crowd_target": f"<= {room} each, where 5 would be square: {verdict(ratio, room)}"}


PARTS: tuple[Callable[[Place, int], dict[str, object]], ...] = (cost, wake, crowd)
"""What is measured on each service, given it and the number of rounds."""


def main() -> None:
    given = arguments(__doc__, rounds=400)
    with scratch() as folder:
        for name in PLACES:
            with running(name, Path(folder)) as place:
                found: dict[str, object] = {"service": place.service.name}
                for part in PARTS:
                    found |= part(place, given.rounds)
                show(found, given.json)


if __name__ == "__main__":
    main()
