"""Storage requests of a whole transaction that writes one file, at a short and at a long history, on local disk.

`python -m benchmarks.requests [--few 10] [--many 2000] [--json]`. Begin, write, validate, decide, publish, tidy up by the
real write path; the opening of data files is not counted. Inserts go to a partition that is new, where they also write
its metadata, and upserts rewrite a file group of one partition that grows no further. The target is at most 24 for the
insert, and the same number at both lengths.

Its round trips are the requests that it waits for one after the other, its data file among them: on an object store most
requests that do not depend on each other are made at once. The target of the insert is 8.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pyarrow as pa
from tests.faulty_storage import DATA_OPERATIONS, CountingStorage
from tests.round_trips import RoundTrips, SideBySide

from benchmarks.measuring import arguments, scratch, show
from lakelock.clock import SystemRuntime
from lakelock.engine.arrow import ArrowEngine
from lakelock.occ.committed import Committed
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.create import create_table
from lakelock.settings import Settings
from lakelock.storage import Storage
from lakelock.storage.location import StorageLocation
from lakelock.storage.memory import MemoryStorage
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema

TARGET, ROUND_TRIPS = 24, 8
SCHEMA = pa.schema([("id", pa.string()), ("value", pa.int64()), ("month", pa.string())])
PROPERTIES = TableProperties.new(
    "requests", ["id"], ["month"], create_schema=TableSchema.from_arrow(SCHEMA).to_avro_json("requests")
)
IN_A_ROW = 70
"""More transactions than there are between two collections of old decisions."""


def make_table(folder: str) -> StorageLocation:
    """An empty table partitioned by month."""
    location = StorageLocation.of(folder)
    create_table(location.open(), PROPERTIES, SystemRuntime())
    return location


@contextmanager
def new_writer(location: StorageLocation, storage: Storage | None = None) -> Iterator[Coordinator]:
    """A writer that knows as little as one in a new process."""
    with Coordinator.open(location, Settings(), application="benchmark", storage=storage or location.open()) as coordinator:
        yield coordinator


def row(number: int, month: str) -> pa.Table:
    return pa.table([[f"k{number}"], [number], [month]], schema=SCHEMA)


def fill(location: StorageLocation, commits: int) -> None:
    """Bring the table to so many commits, all of one row."""
    with new_writer(location) as coordinator:
        engine = ArrowEngine(coordinator)
        for number in range(len(coordinator.table.timeline().commits), commits):
            engine.insert(row(number, f"m{number % 12}"))


def counted(location: StorageLocation, write: Callable[[ArrowEngine], Committed], times: int) -> list[Counter[str]]:
    """The requests of each of the first `times` transactions of a process."""
    storage, found = CountingStorage(location.open()), []
    with new_writer(location, storage) as coordinator:
        engine = ArrowEngine(coordinator)
        for _ in range(times):
            storage.reset()
            done = write(engine)
            assert done.files == 1, done
            found.append(Counter({op: n for op, n in storage.requests.items() if op not in DATA_OPERATIONS}))
    return found


def measure(location: StorageLocation, lengths: tuple[int, int], in_a_row: int) -> dict[str, object]:
    numbers = count(1_000_000)
    found: dict[str, object] = {}

    def insert(engine: ArrowEngine) -> Committed:
        number = next(numbers)
        return engine.insert(row(number, f"new{number}"))

    def upsert(engine: ArrowEngine) -> Committed:
        return engine.upsert(row(0, "m0"))

    totals: dict[tuple[str, str], set[int]] = defaultdict(set)
    for length in lengths:
        fill(location, length)
        for name, write in (("insert", insert), ("upsert", upsert)):
            for place, requests in zip(("first", "later"), counted(location, write, 2), strict=True):
                found[f"{name}_at_{length}_{place}"] = requests.total()
                totals[name, place].add(requests.total())
    long_run = [requests.total() for requests in counted(location, insert, in_a_row)]
    found[f"insert_mean_of_{in_a_row}_in_a_row"] = sum(long_run) / len(long_run)
    found["insert_most_in_a_row"] = max(long_run)
    found["an_insert_is"] = _spelled(counted(location, insert, 2)[1])
    found["an_upsert_is"] = _spelled(counted(location, upsert, 2)[1])
    inserts = [seen for (name, _), seen in totals.items() if name == "insert"]
    reached = all(len(seen) == 1 and max(seen) <= TARGET for seen in inserts)
    found["target"] = f"insert <= {TARGET}, the same at both lengths: {'reached' if reached else 'MISSED'}"
    return found


def round_trips() -> dict[str, object]:
    """The round trips of the second transaction of each kind in a process."""
    storage = RoundTrips(MemoryStorage(name="requests"))
    runtime = SideBySide(storage)
    create_table(storage, PROPERTIES, runtime)
    found: dict[str, object] = {}
    with Coordinator.open(StorageLocation("memory://requests"), runtime=runtime, storage=storage) as coordinator:
        engine = ArrowEngine(coordinator)
        for number in range(2):
            for name, write, rows in (
                ("insert", engine.insert, row(number, f"m{number}")),
                ("upsert", engine.upsert, row(0, "m0")),
            ):
                runtime.sleep(1)
                before = storage.waited_for
                write(rows)
                found[f"{name}_round_trips"] = storage.waited_for - before
    few = found["insert_round_trips"] <= ROUND_TRIPS
    return {**found, "target_round_trips": f"insert <= {ROUND_TRIPS}: {'reached' if few else 'MISSED'}"}


def _spelled(requests: Counter[str]) -> str:
    return ", ".join(f"{times} {op}" for op, times in requests.most_common())


def main() -> None:
    given = arguments(__doc__, few=10, many=2000, in_a_row=IN_A_ROW)
    with scratch() as folder:
        counted_ones = measure(make_table(f"{folder}/table"), (given.few, given.many), given.in_a_row)
        show({**counted_ones, **round_trips()}, given.json)


if __name__ == "__main__":
    main()
