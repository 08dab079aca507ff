"""What one request for data locks costs: for a single partition, and for 1,000 at once.

The two sizes take turns round by round, so that a slow moment of the machine hits both; a round is taking and giving back.
Round trips are counted by a proxy and writes where the document is swapped, in a run of their own.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

from benchmarks.lock_places import Place
from benchmarks.measuring import timed, verdict
from lakelock.data_locks import DataLocks, LockRequest, Resource, lock_request
from lakelock.data_locks.document import DocumentDataLocks, Version

MANY = 1_000
WITHIN_S = 1.0
WRITES = 1
WAIT_S = 60.0
COUNTED = 9
ROUNDS = 10
"""A tenth of the rounds that the commit lock gets: one for 1,000 partitions is longer."""


def request(partitions: int, column: str = "day") -> LockRequest:
    return lock_request(exclusive=[Resource.of(f"{column}={number:04}") for number in range(partitions)])


def data_locks(place: Place, rounds: int) -> dict[str, object]:
    """Time, round trips and writes of a request for one partition and of one for many."""
    found = times(place, max(1, rounds // ROUNDS))
    if place.service.port:
        proxy = place.proxy()
        locks = place.data_locks(place.table(), proxy)
        for size in (1, MANY):
            # The least: a session's sign of life may come in between, and requests that were sent one behind the other
            # count twice if the first is answered before the second has arrived.
            taken, given = map(min, counted(locks, request(size), lambda: proxy.round_trips))
            found[f"data_trips_of_{size}"] = f"{taken} and {given}"
    locks = place.data_locks(place.table())
    if isinstance(locks, DocumentDataLocks):
        writes = writes_of(locks)
        for size in (1, MANY):
            taken, given = map(max, counted(locks, request(size), lambda: len(writes)))
            found[f"data_writes_of_{size}"] = f"{taken} and {given}"
        found["data_writes_target"] = f"<= {WRITES} each: {verdict(max(taken, given), WRITES)}"
    return found


def times(place: Place, rounds: int) -> dict[str, object]:
    """Milliseconds of a round; the first one finds partitions that were never locked."""
    table = place.table()
    locks, neighbour = place.data_locks(table), place.data_locks(table)
    locks.inspect()  # it is connected
    one, many = (partial(take_and_give, locks, request(size)) for size in (1, MANY))
    first_s = timed(many)
    one()
    turns = [(timed(one), timed(many)) for _ in range(rounds)]
    # Somebody holds another partition meanwhile, so that those who come have to look whether they are in the way.
    lease = neighbour.acquire(request(1, "month"), wait_s=WAIT_S)
    beside = []
    for _ in range(rounds):
        neighbour.renew(lease)
        beside.append(timed(many))
    neighbour.release(lease)
    slowest_s = max(first_s, *(large for _, large in turns), *beside)
    found: dict[str, object] = {
        "data_ms_of_1": statistics.median(small for small, _ in turns) * 1000,
        f"data_ms_of_{MANY}": statistics.median(large for _, large in turns) * 1000,
        "data_time_ratio": statistics.median(large / small for small, large in turns),
        f"data_ms_of_{MANY}_first": first_s * 1000,
        f"data_ms_of_{MANY}_beside_another": statistics.median(beside) * 1000,
        f"data_ms_of_{MANY}_slowest": slowest_s * 1000,
    }
    if place.name == "zookeeper":
        found["data_time_target"] = f"each within {WITHIN_S:g} s: {verdict(slowest_s, WITHIN_S)}"
    return found


def take_and_give(locks: DataLocks, wanted: LockRequest) -> None:
    locks.release(locks.acquire(wanted, wait_s=WAIT_S))


def counted(locks: DataLocks, wanted: LockRequest, count: Callable[[], int]) -> tuple[list[int], list[int]]:
    """What taking adds to the count and what giving back adds, each time."""
    take_and_give(locks, wanted)
    taken, given = [], []
    for _ in range(COUNTED):
        before = count()
        lease = locks.acquire(wanted, wait_s=WAIT_S)
        between = count()
        locks.release(lease)
        taken.append(between - before)
        given.append(count() - between)
    return taken, given


def writes_of(locks: DocumentDataLocks) -> list[int]:
    """The size in bytes of each document that is written from now on."""
    register, sizes = locks._register, list[int]()
    swap = register.swap

    def counting(data: bytes, before: Version | None) -> Version | None:
        sizes.append(len(data))
        return swap(data, before)

    register.swap = counting  # type: ignore[method-assign]
    return sizes
