"""The rows of one write, where they go, and the tasks that write them, in this process.

`AttemptCache` keeps, from attempt to attempt, the results that cannot change (ADR 19): which of the call's rows a file holds,
and which file came of it. These are facts about files that never change. An attempt on a later snapshot asks for the files
that it finds there, so it knows everything about those that are the same.

The tasks of an optimize or restore run here, too, in plain loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import pyarrow as pa

from lakelock.clock import Runtime
from lakelock.engine.file_tasks import EarlierFiles, FileTasks
from lakelock.events import Tasks, current
from lakelock.markers.data_files import TaskToken
from lakelock.occ.begin import WriteContext
from lakelock.occ.committed import Phase
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.footprint import Read
from lakelock.occ.optimize import Join, Optimized, compact
from lakelock.occ.request import Targets, resources_of, within
from lakelock.occ.restore import Copy
from lakelock.occ.transaction import Transaction
from lakelock.occ.upkeep import is_due
from lakelock.storage import Storage
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.index import BucketIndex, bucket_group, bucket_of
from lakelock.table.layout import FileGroupId
from lakelock.table.partitions import partition_values
from lakelock.table.record_index import Answer
from lakelock.table.rewriting import ARROW, DeleteMask, Kernels, KeyedRows
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile


class AttemptCache(EarlierFiles):
    """Belongs to one call, whose rows or condition are the same in each attempt. Rows are kept by reference."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[str, KeyedRows | None] = {}
        self._matched: dict[str, bool] = {}

    def forget(self) -> None:
        super().forget()
        self._held, self._matched = {}, {}

    def tag(
        self, rows: KeyedRows, files: Sequence[DataFile], kernels: Kernels, storage: Storage
    ) -> tuple[list[tuple[DataFile, KeyedRows]], KeyedRows]:
        """As `Kernels.tag`, but looks only into files that no attempt has looked into."""
        fresh = [file for file in files if file.content not in self._held]
        found, rest = kernels.tag(rows, fresh, storage)
        known = [self._held[file.content] for file in files if file.content in self._held]
        rest = kernels.without(rest, [held for held in known if held is not None])
        self._held |= dict.fromkeys((file.content for file in fresh), None) | {file.content: mine for file, mine in found}
        held = [(file, self._held[file.content]) for file in files]
        return [(file, mine) for file, mine in held if mine is not None], rest

    def matches(self, file: DataFile, read: Read) -> bool:
        """Whether the call's condition selects rows of a file. Only the first attempt that meets the file reads it."""
        if file.content not in self._matched:
            self._matched[file.content] = read.matches([file]) is not None
        return self._matched[file.content]


@dataclass
class Place:
    """Where the rows of a write go: existing file groups, new ones by partition, and the first one of each empty bucket."""

    known: list[tuple[DataFile, KeyedRows]] = field(default_factory=list)
    new: dict[str, KeyedRows] = field(default_factory=dict)
    buckets: dict[tuple[str, int], KeyedRows] = field(default_factory=dict)

    @property
    def new_targets(self) -> list[tuple[str, int | None, KeyedRows]]:
        """Partition, bucket if there are buckets, and rows of each new file group; without buckets of one or several."""
        plain = [(partition, None, rows) for partition, rows in self.new.items()]
        return [*plain, *((partition, bucket, rows) for (partition, bucket), rows in self.buckets.items())]

    @property
    def files(self) -> dict[DataFile, int | None]:
        """The files that are there, with how many rows go there."""
        return {file: len(rows) for file, rows in self.known}

    @property
    def claims(self) -> list[FileGroupId]:
        """The names under which the new buckets are claimed."""
        return [bucket_group(partition, bucket) for partition, bucket in self.buckets]


@dataclass
class Batch:
    """The rows of one write in one transaction, and the tasks that write them."""

    coordinator: Coordinator
    kernels: Kernels
    tx: Transaction
    schema: TableSchema
    rows: pa.Table | None
    memory: AttemptCache
    context: WriteContext = field(init=False)
    _claimed: int = field(init=False, default=0)
    _written: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.context = self.tx.write_context(self.schema)
        properties, earlier = self.tx.baseline.properties, self.tx.redo.earlier
        self._before, self._mine = self.memory.begin(self.tx.instant, earlier, self.schema, properties)

    @property
    def storage(self) -> Storage:
        return self.coordinator.table.storage

    @property
    def ordering(self) -> str | None:
        return self.tx.baseline.properties.ordering_field

    @property
    def runtime(self) -> Runtime:
        return self.coordinator.table.runtime

    @property
    def tasks(self) -> FileTasks:
        """The tasks of this process."""
        return FileTasks(self.context, self.storage, self.runtime, self.kernels)

    def task(self) -> TaskToken:
        return TaskToken(next(self.tx.task_numbers), 0, 0)

    def by_partition(self) -> Mapping[str, KeyedRows]:
        """The rows and their keys by partition path."""
        return self.kernels.by_partition(self.rows, self.tx.baseline.properties)

    @property
    def index(self) -> BucketIndex | None:
        return self.tx.baseline.properties.bucket_index

    def claim(
        self, files: Mapping[DataFile, int | None], new_buckets: Iterable[FileGroupId] = (), new_in: Iterable[str] = ()
    ) -> None:  # fmt: skip
        """Claim what will be rewritten; without early conflict detection only what collided in the attempt before.

        The claims on what collided let redos that want the same file group queue for it before they copy the other files.

        `files`: with how many of their rows change, if known. `new_in`: the partitions that get new file groups, which cannot
        be claimed.
        """
        again = self.tx.redo.earlier is not None
        collided = [file.group for file in files if again and self._before.made_from(file) is None]
        self.tx.writes_to(new_in)
        self.tx.claim_changed(files, new_buckets, always=collided)
        self.context = self.tx.write_context(self.schema)
        self._claimed, self._written = len(files), 0
        self._show("writing")

    def _show(self, step: str = "") -> None:
        """Report the step that begins now, or how many of the claimed file groups are written, as the write's progress."""
        progress = current()
        if progress is not None:
            if step:
                progress.step(step, 0 if self.rows is None else self.rows.num_rows)
            progress.tasks(Tasks(0, self._written, self._claimed, "file group"))

    def tagged(self, keyed: Mapping[str, KeyedRows]) -> Place:
        """For each file group the rows whose keys it holds, and by partition the rows whose keys no group holds.

        A key is looked up in all files of its partition, or in that of its bucket.
        """
        self._show("looking up keys")
        with self.tx.phases.during(Phase.LOOK_UP):
            return self._tagged(keyed)

    def _tagged(self, keyed: Mapping[str, KeyedRows]) -> Place:
        place, snapshot, asked = Place(), self.tx.current(), list[tuple[str, KeyedRows, Sequence[DataFile]]]()
        for partition, rows in keyed.items():
            apart = [(rows, list(snapshot.in_partition(partition)))]
            if self.index is not None:
                apart = [(mine, [file]) for file, mine in self.placed({partition: rows}).known]
            asked += ((partition, mine, self.kernels.may_hold(mine, files, snapshot.stats_of)) for mine, files in apart)
        answers: Mapping[str, Answer] = {}
        if self.tx.asks_record_index:
            keys = {partition: mine.keys.to_pylist() for partition, mine, _ in asked}
            answers = self.tx.by_record_index(keys, {partition: possible for partition, _, possible in asked})
        for partition, mine, possible in asked:
            answer = answers.get(partition)
            found, rest = self.memory.tag(mine, possible if answer is None else answer.files, self.kernels, self.storage)
            if answer is not None and not answer.keys.isdisjoint(rest.keys.to_pylist()):
                self.tx.doubt_record_index(f"{min(answer.keys.intersection(rest.keys.to_pylist()))!r} is not where it says")
                found, rest = self.memory.tag(mine, possible, self.kernels, self.storage)
            place.known += found
            if len(rest):
                place.new[partition] = rest
        return place

    def placed(self, keyed: Mapping[str, KeyedRows], *, anew: bool = False) -> Place:
        """Where rows go without a look at keys: into new file groups, or to their buckets; `anew`: as if there were no file."""
        if self.index is None:
            return Place(new=dict(keyed))
        place, properties = Place(), self.tx.baseline.properties
        for partition, rows in keyed.items():
            files = () if anew else self.tx.current().in_partition(partition)
            there = {bucket_of(file.file_id): file for file in files}
            for bucket, mine in self.kernels.by_bucket(rows, self.index, properties).items():
                if bucket in there:
                    place.known.append((there[bucket], mine))
                else:
                    place.buckets[partition, bucket] = mine
        return place

    def new_files(self, place: Place) -> list[WriteStat]:
        """The files of new rows: copies, if the attempt before made files of the same rows."""
        stats: list[WriteStat] = []
        for partition, bucket, keyed in place.new_targets:
            with self.tx.phases.during(Phase.WRITE):
                mine = self._copied(self._before.made_of((partition, bucket), keyed.keys) or ())
                if not mine:
                    mine = self.write_new(partition, bucket, keyed)
            self._mine.new[partition, bucket] = keyed.keys, mine
            stats += mine
        return stats

    def rewritten(
        self,
        file: DataFile,
        *,
        upserts: KeyedRows | None = None,
        delete_mask: DeleteMask | None = None,
        added: KeyedRows | None = None,
    ) -> list[WriteStat]:
        """The next slice of a file group, none if no row changes: a copy, if the attempt before made one from the same file.

        The attempt before had the same changes for the file, since they follow from the file and the rows of the call.
        """
        before = self._before.made_from(file)
        with self.tx.phases.during(Phase.WRITE):
            copies = self._copied([before] if before is not None else [])
            stat = copies[0] if copies else self.rewrite(file, upserts=upserts, delete_mask=delete_mask, added=added)
        self._written += 1
        self._show()
        if stat is None:
            return []
        self._mine.rewritten[file.content] = stat
        return [stat]

    def _copied(self, files: Sequence[WriteStat]) -> list[WriteStat]:
        """Copies of all these files; none if one of them cannot be copied: then the commit removes the others."""
        copies: list[WriteStat] = []
        for earlier in files:
            copy = self.copy(earlier)
            if copy is None:
                return []
            copies.append(copy)
        self.tx.redo.kept += len(copies)
        return copies

    def copy(self, earlier: WriteStat) -> WriteStat | None:
        """The task that copies a file."""
        return self.tasks.copy_file(earlier, self.task())

    def write_new(self, partition: str, bucket: int | None, keyed: KeyedRows) -> list[WriteStat]:
        """The tasks that write new rows: those of several files at once, as many as Arrow has threads."""
        announced = self.tx.take_announced(partition) if bucket is None else None
        rows, count, of_file = keyed.rows, len(keyed), self.context.settings.write.target_file_rows
        files = 1 if bucket is not None or announced is not None else -(-count // of_file)
        of_task = of_file * -(-files // pa.cpu_count())
        parts = [rows] if files <= 1 else [rows.slice(start, of_task) for start in range(0, count, of_task)]
        write = partial(self.tasks.write_new_files, bucket=bucket, announced=announced)
        calls = [partial(write, partition, [part], self.task()) for part in parts]
        return list(chain.from_iterable(self.runtime.gather(calls, limit=len(calls))))

    def rewrite(
        self, file: DataFile, *, upserts: KeyedRows | None, delete_mask: DeleteMask | None, added: KeyedRows | None
    ) -> WriteStat | None:
        """The task that rewrites a file group."""
        return self.tasks.rewrite_group(file, self.task(), upserts=upserts, delete_mask=delete_mask, added=added)


PATH = "path of the partition"
"""With spaces, as no column of a table has."""


def chosen_partitions(
    coordinator: Coordinator, partition: Targets, matching: Callable[[pa.Table], Iterable[str]] | None = None
) -> Callable[[str], bool]:
    """Which partitions are named, and are among the `matching` ones of a table of their columns and `PATH`."""
    targets = resources_of(partition, coordinator.properties)
    if matching is None:
        return lambda path: not targets or within(path, targets)
    paths = coordinator.snapshot().partitions
    values = partition_values(paths, coordinator.schema().arrow, coordinator.properties)
    chosen = frozenset(matching(values.append_column(PATH, pa.array(paths, pa.string()))))
    return lambda path: path in chosen and (not targets or within(path, targets))


def write_joins(
    coordinator: Coordinator,
    kernels: Kernels,
    sort_by: Sequence[str],
    tx: Transaction,
    joins: Sequence[Join],
    ensure_wanted: Callable[[], None],
) -> list[WriteStat]:
    """Write the rows of each join into its new files, one join after the other."""
    table, stats = coordinator.table, list[WriteStat]()
    tasks = FileTasks(tx.write_context(), table.storage, table.runtime, kernels)
    for number, join in enumerate(joins):
        ensure_wanted()
        batches, file_rows = tasks.stored(join.sources), None
        if sort_by and (found := list(batches)):
            rows = kernels.in_order(found, sort_by)
            batches, file_rows = iter([rows]), max(1, -(-rows.num_rows // join.files))
        stats += tasks.move_rows(join.partition, batches, TaskToken(number, 0, 0), file_rows=file_rows)
    return stats


def compacts(coordinator: Coordinator, kernels: Kernels = ARROW) -> None:
    """Let the upkeep of an open table compact its log files, in this process and in commits of about one file of the target
    size.
    """

    def run(is_spent: Callable[[], bool]) -> int:
        table, done = coordinator.table, Optimized()
        compact(
            coordinator, partial(write_copies, coordinator, kernels), done, is_due=partial(is_due, table),
            most_bytes=table.settings.optimize.target_file_bytes, is_spent=is_spent,
        )  # fmt: skip
        return done.compacted

    coordinator.table.observed.compact = run


def write_copies(
    coordinator: Coordinator, kernels: Kernels, tx: Transaction, copies: Sequence[Copy], ensure_wanted: Callable[[], None]
) -> list[WriteStat]:
    """Write the rows of slices again, one after the other."""
    table, stats = coordinator.table, list[WriteStat]()
    tasks = FileTasks(tx.write_context(), table.storage, table.runtime, kernels)
    for number, copy in enumerate(copies):
        ensure_wanted()
        stats += tasks.copy_slice(copy, TaskToken(number, 0, 0))
    return stats
