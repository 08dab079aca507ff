"""The change feed of random histories: applied to the state before, it gives the state after."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import takewhile

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.api import Action, ArrowEngine, Coordinator, MemoryStorage, StorageLocation, format_instant, parse_instant
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import QUICK, SCHEMA, new_table
from tests.sizes import examples

from lakelock.occ.change_feed import TableStream
from lakelock.settings import UpkeepSettings
from lakelock.table.change_feed import FeedMode, StreamOffset
from lakelock.table.instants import later_than
from lakelock.table.slice_differences import COMMIT_TIMESTAMP, COMMIT_VERSION, FeedRows
from lakelock.testing import ManualRuntime

Row = tuple[str, int, str]
KEPT = replace(QUICK, upkeep=UpkeepSettings(auto=False))


def rows_of(numbers: list[int], value: int) -> pa.Table:
    found = [(f"k{number % 6}", value, f"{number % 2}") for number in dict.fromkeys(n % 6 for n in numbers)]
    return pa.table([list(column) for column in zip(*found, strict=True)] if found else [[], [], []], schema=SCHEMA)


@dataclass
class Backdated(Peer):
    """An engine without a lock: its commit becomes visible long after the time at which it says that it was completed."""

    at: str = ""

    def later(self) -> str:
        return self.at or super().later()


@dataclass
class Life:
    """A table, what happens to it, and the state at each position."""

    runtime: ManualRuntime = field(default_factory=ManualRuntime)
    value: int = 0

    def __post_init__(self) -> None:
        self.storage = MemoryStorage(self.runtime.now_ms)
        new_table(self.storage)
        location = StorageLocation(self.storage.uri)
        self.coordinator = Coordinator.open(location, KEPT, runtime=self.runtime, storage=self.storage)
        self.engine = ArrowEngine(self.coordinator)
        self.instants: list[str] = []
        self.slow: list[str] = []
        self.states: list[tuple[str, Counter[Row]]] = [("", Counter())]

    def step(self, name: str, numbers: list[int]) -> None:
        self.value += 1
        self.runtime.advance(5)
        done = getattr(self, name)(numbers)
        if done is not None and done.instant:
            self.instants.append(done.instant)
        newest = self.coordinator.table.timeline().newest_completion
        if newest > self.states[-1][0]:
            self.states.append((newest, self.state()))

    def state(self) -> Counter[Row]:
        found = self.engine.read()
        return Counter(zip(*(found.column(name).to_pylist() for name in SCHEMA.names), strict=True))

    def insert(self, numbers: list[int]) -> object:
        return self.engine.insert(rows_of(numbers, self.value))

    def upsert(self, numbers: list[int]) -> object:
        return self.engine.upsert(rows_of(numbers, self.value))

    def delete(self, numbers: list[int]) -> object:
        return self.engine.delete(rows_of(numbers, 0))

    def delete_old(self, numbers: list[int]) -> object:
        return self.engine.delete(pc.field("v") < self.value - 1 - len(numbers))

    def overwrite(self, numbers: list[int]) -> object:
        return self.engine.overwrite_partitions(rows_of(numbers, self.value))

    def optimize(self, numbers: list[int]) -> object:
        self.engine.optimize()

    def restore(self, numbers: list[int]) -> object:
        there = [i.requested for i in self.coordinator.table.timeline().commits]
        first = self.coordinator.table.timeline().first_active
        known = [instant for instant in there if instant >= first]
        return self.engine.restore(known[sum(numbers) % len(known)]) if known else None

    def archive(self, numbers: list[int]) -> object:
        """The oldest commits go, but no replacecommit: its old files are still there."""
        commits = self.coordinator.table.timeline().commits
        plain = list(takewhile(lambda commit: commit.action == Action.COMMIT, commits[:-1]))
        if plain:
            Peer(self.storage).archive(*(commit.requested for commit in plain))

    def applied(self, before: Counter[Row], since: str, until: str, mode: FeedMode) -> Counter[Row]:
        """The state after the changes; each must fit what is there when its turn comes."""
        feed = self.engine.changes(int(since or 0), int(until or 0), mode).to_pylist()
        state = before.copy()
        for version in sorted({row[COMMIT_VERSION] for row in feed}):
            mine = [row for row in feed if row[COMMIT_VERSION] == version]
            assert len({row[COMMIT_TIMESTAMP] for row in mine}) == 1
            for lost in (True, False):
                for row in mine:
                    if (row["_change_type"] in ("delete", "update_preimage")) == lost:
                        state[row["id"], row["v"], row["month"]] += -1 if lost else 1
            assert min(state.values(), default=0) >= 0, "what it deletes is there"
        for kind, other in (("update_preimage", "update_postimage"), ("update_postimage", "update_preimage")):
            keys = Counter((row["month"], row["id"], row[COMMIT_VERSION]) for row in feed if row["_change_type"] == kind)
            assert keys == Counter((r["month"], r["id"], r[COMMIT_VERSION]) for r in feed if r["_change_type"] == other)
        if mode == "net" and max(Counter((key, month) for key, _, month in before.elements()).values(), default=1) == 1:
            kinds = Counter((row["month"], row["id"], row["_change_type"]) for row in feed)
            after = Counter((row[2], row[0]) for row in (+state).elements())
            assert all(count == 1 for (m, k, _), count in kinds.items() if after[m, k] <= 1), "one change for each key"
        return +state

    def peer(self, numbers: list[int]) -> object:
        """Another engine requests an instant, or completes one that it requested long before."""
        peer = Peer(self.storage)
        if len(self.slow) > len(numbers) % 2:
            peer.insert(rows_of([len(self.slow)], self.value), "month=9", instant=self.slow.pop(0))
        else:
            newest = self.coordinator.table.timeline().newest_time
            self.slow.append(peer.begin(instant=later_than(self.runtime.now_ms(), newest)))

    def straggler(self, numbers: list[int]) -> object:
        if self.slow:
            instant = self.slow.pop(0)
            peer = Backdated(self.storage, at=format_instant(parse_instant(instant) + 1))
            peer.insert(rows_of([len(self.slow)], self.value), "month=8", instant=instant)

    def streamed(self, stream: TableStream, offset: StreamOffset, state: Counter[Row], most_files: int | None) -> StreamOffset:
        """Read one batch, as Spark does: the end is fixed first, and the batch is asked for twice."""
        end = stream.next(offset, most_files)
        units = stream.units(offset, end)
        assert stream.units(StreamOffset.from_json(offset.to_json()), StreamOffset.from_json(end.to_json())) == units
        reader = FeedRows.of(self.coordinator.schema(), units, "UTC")
        for unit in units:
            for rows in reader.read(unit, self.storage):
                for row in rows.to_pylist():
                    lost = row["_change_type"] in ("delete", "update_preimage")
                    state[row["id"], row["v"], row["month"]] += -1 if lost else 1
        return end


STEPS = ["insert", "upsert", "upsert", "delete", "delete_old", "overwrite", "optimize", "restore", "archive", "peer", "peer"]
NUMBERS = st.lists(st.integers(0, 5), max_size=5)
HISTORY = st.lists(st.tuples(st.sampled_from(STEPS), NUMBERS), min_size=1, max_size=9)
BACKDATED = st.lists(st.tuples(st.sampled_from([*STEPS, "straggler", "straggler"]), NUMBERS), min_size=1, max_size=9)


@settings(max_examples=examples(25, 60), deadline=None)
@given(HISTORY)
@example([("upsert", [0, 1, 2]), ("overwrite", [0, 2]), ("restore", [0]), ("archive", []), ("optimize", [])])
@example([("insert", [1]), ("insert", [1]), ("optimize", []), ("delete_old", []), ("upsert", [1])])
def test_the_changes_between_any_two_states_lead_from_one_to_the_other(history: list[tuple[str, list[int]]]) -> None:
    life = Life()
    for name, numbers in history:
        life.step(name, numbers)
    for place, (since, before) in enumerate(life.states):
        for until, after in life.states[max(place, 1) :]:
            assert life.applied(before, since, until, "commits") == after
            assert life.applied(before, since, until, "net") == after


READS = st.lists(st.tuples(st.integers(0, 8), st.sampled_from([None, 1, 3])), max_size=6)
"""After which steps a batch is read, and of how many files."""


@settings(max_examples=examples(25, 60), deadline=None)
@given(BACKDATED, READS, st.integers(0, 8), st.booleans())
@example([("peer", []), ("insert", [1]), ("peer", []), ("insert", [2])], [(2, None), (3, None)], 0, True)
@example([("peer", []), ("insert", [1]), ("straggler", []), ("insert", [2])], [(1, None), (3, None)], 0, False)
def test_a_stream_tells_each_commit_once_however_late_it_completes(
    history: list[tuple[str, list[int]]], reads: list[tuple[int, int | None]], begin: int, since_the_beginning: bool
) -> None:
    life, stream, offset, state = Life(), None, None, Counter[Row]()
    for place, (name, numbers) in enumerate(history):
        life.step(name, numbers)
        if stream is None and place >= begin:
            stream = TableStream(life.coordinator.table, feed=True)
            offset = stream.first("" if since_the_beginning else None)
        for when, most_files in reads:
            if when == place and stream is not None and offset is not None:
                offset = life.streamed(stream, offset, state, most_files)
    stream = TableStream(life.coordinator.table, feed=True)
    offset = offset or stream.first(None)
    for _ in range(100):
        end = life.streamed(stream, offset, state, 1)
        if end == offset:
            break
        offset = end
    assert +state == life.state()
    assert min(state.values(), default=0) >= 0
