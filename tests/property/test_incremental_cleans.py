"""Cleans that look at few partitions delete what cleans that list the whole table delete, whatever happens in between."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.api import FileGroupId, MemoryStorage, Transaction, WriteStat, layout
from tests.behaviour.foreign import Peer
from tests.behaviour.tables import put_file
from tests.behaviour.test_every_fault import Dying, Killed
from tests.behaviour.upkeep.upkeep_tables import KEEPING_TWO, AgingTable
from tests.faulty_storage import CountingStorage
from tests.sizes import examples

from lakelock.errors import LakelockError
from lakelock.settings import CleanSettings, ListingSettings, Settings

PARTITIONS = 6
HOURS, VERSIONS = "KEEP_LATEST_BY_HOURS", "KEEP_LATEST_FILE_VERSIONS"
POLICIES: list[dict[str, object]] = [
    {},
    {"keep_commits": 1},
    {"keep_commits": 6},
    {"readers_s": 300},
    {"policy": HOURS, "keep_hours": 0.05},
    {"policy": HOURS, "keep_hours": 1},
    {"policy": VERSIONS, "keep_versions": 2},
]


def kept_by(policy: dict[str, object]) -> Settings:
    clean: CleanSettings = replace(KEEPING_TWO.clean, **policy)  # type: ignore[arg-type]
    return replace(KEEPING_TWO, clean=clean, listing=ListingSettings(parallel_requests=3))


@dataclass
class Life:
    """A table and all that may happen to it; each method is a step, and does nothing where it makes no sense."""

    table: AgingTable = field(default_factory=AgingTable)
    running: list[tuple[Transaction, WriteStat]] = field(default_factory=list)
    plans: list[tuple[str, FileGroupId]] = field(default_factory=list)
    notes: list[bytes] = field(default_factory=list)
    whole: int = 0
    part: int = 0

    def write(self, number: int) -> None:
        self.table.write("ab"[number // PARTITIONS % 2], partition=self.partition(number))

    def add(self, number: int) -> None:
        self.table.write(f"new-{self.table.runtime.now_ms()}", partition=self.partition(number))

    def foreign(self, number: int) -> None:
        Peer(self.table.storage).commit(self.partition(number), "j")

    def overwrite(self, number: int) -> None:
        self.table.runtime.advance(5)
        partition = self.partition(number)
        with self.table.coordinator().begin("INSERT_OVERWRITE") as tx:
            gone = [f.file_id for f in tx.snapshot().in_partition(partition) if f.file_id.startswith("new")][:2]
            file = put_file(tx, self.table.storage, partition, f"new-{self.table.runtime.now_ms()}")
            tx.commit([file], replaced={partition: gone})
        self.table.runtime.advance(5)

    def begin(self, number: int) -> None:
        group = FileGroupId(self.partition(number), f"slow-{number % 2}")
        if any(stat.group == group for _, stat in self.running):
            return
        if not self.table.coordinator().snapshot().group(group):
            self.table.write(group.file_id, partition=group.partition)
        tx = self.table.coordinator().begin("UPSERT")
        tx.claim([group])
        self.running.append((tx, put_file(tx, self.table.storage, *group)))
        self.table.runtime.advance(2)

    def end(self, number: int) -> None:
        if self.running:
            tx, stat = self.running.pop(0)
            if number % 3:
                tx.commit([stat])
            else:
                tx.abort()

    def savepoint(self, number: int) -> None:
        commits = self.table.timeline().commits[-6:]
        if commits:
            name = f"s{self.table.runtime.now_ms()}"
            self.table.coordinator().savepoint(name, commits[number % len(commits)].requested)
            self.table.runtime.advance(1)

    def release(self, number: int) -> None:
        for instant in self.table.timeline().savepoints[:1]:
            self.table.coordinator().delete_savepoint(instant.requested)

    def plan(self, number: int) -> None:
        group = FileGroupId(self.partition(number), "j")
        if not self.plans and self.table.coordinator().snapshot().group(group):
            self.plans.append((Peer(self.table.storage).plan_clustering(group), group))

    def end_plan(self, number: int) -> None:
        for instant, group in self.plans:
            if number % 2:
                Peer(self.table.storage).execute_clustering(instant, group, f"new-{instant}")
            else:
                self.table.storage.delete([layout.timeline(f"{instant}.clustering.requested")])
        self.plans = []

    def wait(self, number: int) -> None:
        # Heartbeats make a long time slow to simulate.
        self.table.runtime.advance((60, 400, 4_000, 4_000 if self.running else 90_000)[number % 4])

    def die(self, number: int) -> None:
        """A cleaner that dies at one of its requests."""
        with contextlib.suppress(Killed):
            self.table.coordinator(Dying(self.table.storage, 1 + number, sent=bool(number % 2)), kept_by({})).clean()
        self.table.runtime.advance(30)

    def note(self, number: int) -> None:
        """An older note takes the place of a newer one, as when a put arrives late."""
        if self.notes:
            self.table.storage.put(layout.CLEANED_UNTIL, self.notes[number % len(self.notes)])

    def clean(self, number: int) -> None:
        """A clean leaves exactly what one that lists everything leaves."""
        self.table.runtime.advance(2)
        kept, twin = kept_by(POLICIES[number % len(POLICIES)]), twin_of(self.table)
        storage = CountingStorage(self.table.storage)
        done = self.table.coordinator(storage, kept).clean()
        full = self.table.coordinator(twin, kept).clean()
        assert data_files(self.table.storage) == data_files(twin)
        assert (done.files, done.retained, done.readable_from) == (full.files, full.retained, full.readable_from)
        looked = [key for op, key in storage.calls if op == "list" and not key.startswith(layout.HOODIE)]
        self.whole, self.part = self.whole + looked.count(""), self.part + ("" not in looked)
        stored = self.table.storage.get(layout.CLEANED_UNTIL)
        self.notes += [stored.data] if stored is not None else []

    @staticmethod
    def partition(number: int) -> str:
        return f"month={number % PARTITIONS}"


def twin_of(table: AgingTable) -> MemoryStorage:
    """The same table, of which nobody knows how far it was cleaned."""
    twin = table.storage.copy()
    twin.delete([layout.CLEANED_UNTIL])
    return twin


def data_files(storage: MemoryStorage) -> list[str]:
    return [item.key for item in storage.list("") if item.key.endswith(".parquet") and not item.key.startswith(layout.HOODIE)]


EVENTS = [
    "foreign", "overwrite", "begin", "begin", "end", "end", "savepoint", "savepoint", "release", "release", "plan", "end_plan",
    "wait", "die", "note",
]  # fmt: skip
NUMBERS = st.integers(0, 55)
ROUNDS = st.lists(
    st.tuples(
        st.lists(NUMBERS, max_size=3),  # partitions that are written to
        st.lists(st.tuples(st.sampled_from(EVENTS), NUMBERS), max_size=3),
        st.integers(0, 4),  # commits that supersede nothing
        st.booleans(),  # whether an archiver comes before the cleaner
        st.sampled_from([0, 0, 0, 0, *range(len(POLICIES))]),
    ),
    min_size=2,
    max_size=12,
)
"""What happens between two cleans, and what the second of them keeps."""


@pytest.mark.in_ci
@settings(max_examples=examples(40, 100))
@given(ROUNDS)
def test_a_clean_leaves_what_a_clean_of_the_whole_table_leaves(
    rounds: list[tuple[list[int], list[tuple[str, int]], int, bool, int]],
) -> None:
    life = Life()
    for written, events, more, archived, policy in rounds:
        for number in written:
            life.write(number)
        for name, number in events:
            # What is refused, such as a savepoint of what was cleaned, changes nothing.
            with contextlib.suppress(LakelockError):
                getattr(life, name)(number)
        for _ in range(more):
            life.add(0)
        if archived:
            life.table.coordinator().archive()
        life.clean(policy)
    life.clean(0)


def test_most_of_these_cleans_look_at_some_partitions_only() -> None:
    life = Life()
    for number in range(20):
        life.write(number)
        life.add(0)
        life.clean(0)
    assert life.part > 3 * life.whole > 0
