"""Joining small files, and compacting log files: which file groups are written anew, and the transactions that do it.

They change no row, so they do not disturb appends or reads. Where a write rewrites one of the same file groups, they
yield, even if they came first: the writer puts a rollback decision for a live optimize in the log, and only then takes
its claim over (`lakelock.occ.claims`). For Hudi a join is clustering that is completed: a replacecommit of the
operation CLUSTER. A compaction is a deltacommit of the operation COMPACT, whose base files have the rows of the log files
below them; Java's writers who append meanwhile do not collide with it. Neither has a plan in the timeline, so Java's writers
are not refused in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

from lakelock.errors import ConflictError, InputError, RolledBackError
from lakelock.events import shown
from lakelock.occ.committed import Committed
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.ending import rolled_back
from lakelock.occ.footprint import CLUSTER, COMPACT
from lakelock.occ.foreign import planned_groups
from lakelock.occ.live_logs import logged_files
from lakelock.occ.log import Resolution, decided_for, resolve
from lakelock.occ.open_table import OpenTable
from lakelock.occ.request import WriteRequest
from lakelock.occ.restore import Copy, Copying
from lakelock.occ.transaction import Transaction
from lakelock.settings import OptimizeSettings
from lakelock.table.archive import read_commit
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.eligibility import check_writable, look_like_buckets
from lakelock.table.instants import Instant
from lakelock.table.layout import FileGroupId
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile, Snapshot
from lakelock.texts import counted, did_you_mean, size_text

MOST_FILES = 5_000
"""How many files one commit joins at most, whatever their size."""


@dataclass(frozen=True)
class Join:
    """File groups of one partition whose rows go into `files` new ones, into none if they have no rows."""

    partition: str
    sources: tuple[DataFile, ...]
    files: int = 1

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.sources)


IsEmpty = Callable[[DataFile], bool]
"""Whether a file is known to have no rows."""


def plan_joins(
    files: Iterable[DataFile], sizes: OptimizeSettings, *, in_order: bool = False, is_empty: IsEmpty = lambda file: False
) -> list[Join]:
    """What to join of these files: the small ones of each partition, the oldest first; two at least, or one without rows.

    Each join fills one new file of `target_file_bytes`. Files that are to be sorted (`in_order`) are joined all together, up
    to `commit_bytes`, so that each of the new files has a range of its own.
    """
    small = [file for file in files if file.size_bytes < sizes.small_file_bytes]
    small.sort(key=lambda file: (file.partition, file.instant, file.file_id))
    most = sizes.commit_bytes if in_order else sizes.target_file_bytes
    joins: list[Join] = []
    for partition, mine in groupby(small, key=lambda file: file.partition):
        for sources in _packed(mine, most):
            if _is_worth_it(sources, is_empty):
                wanted = sum(file.size_bytes for file in sources) // sizes.target_file_bytes
                joins.append(Join(partition, sources, max(1, wanted) if in_order else 1))
    return joins


def first_commit(joins: Sequence[Join], sizes: OptimizeSettings) -> list[Join]:
    """As many joins as one commit takes, at least one."""
    taken: list[Join] = []
    count = size_bytes = 0
    for join in joins:
        count, size_bytes = count + len(join.sources), size_bytes + join.size_bytes
        if taken and (count > MOST_FILES or size_bytes > sizes.commit_bytes):
            break
        taken.append(join)
    return taken


def without(joins: Iterable[Join], taken: Container[FileGroupId], is_empty: IsEmpty = lambda file: False) -> list[Join]:
    """The joins without the file groups that another writer is rewriting."""
    left = (Join(j.partition, tuple(f for f in j.sources if f.group not in taken), j.files) for j in joins)
    return [join for join in left if _is_worth_it(join.sources, is_empty)]


def _is_worth_it(sources: Sequence[DataFile], is_empty: IsEmpty) -> bool:
    return len(sources) > 1 or any(map(is_empty, sources))


def _packed(files: Iterable[DataFile], most_bytes: int) -> Iterable[tuple[DataFile, ...]]:
    pack: list[DataFile] = []
    size_bytes = 0
    for file in files:
        if pack and (size_bytes + file.size_bytes > most_bytes or len(pack) == MOST_FILES):
            yield tuple(pack)
            pack, size_bytes = [], 0
        pack.append(file)
        size_bytes += file.size_bytes
    if pack:
        yield tuple(pack)


@dataclass(repr=False)
class Optimized:
    """What was joined and compacted. `yielded` are the file groups that were left to other writers: the next run picks them up.

    `compacted` are file groups whose log files went into a new base file.
    """

    commits: list[Committed] = field(default_factory=list)
    files_before: int = 0
    files_after: int = 0
    size_bytes: int = 0
    compacted: int = 0
    yielded: int = 0
    reasons: list[str] = field(default_factory=list)
    """For each commit that had to yield, to whom."""

    def note_yielded(self, count: int, error: ConflictError | RolledBackError) -> None:
        """Note that so many file groups were left to the writer that the error names."""
        self.yielded += count
        self.reasons.append(error.message.splitlines()[0])

    def __repr__(self) -> str:
        joined = f"{counted(self.files_before, 'file')} became {self.files_after:,}" if self.files_before else ""
        compacted = f"log files of {counted(self.compacted, 'file group')} compacted" if self.compacted else ""
        done = ", ".join(filter(None, (joined, compacted)))
        left = f"{counted(self.yielded, 'file group')} left to other writers" if self.yielded else ""
        summary = "; ".join(filter(None, (f"{done} ({size_text(self.size_bytes)})" if done else "", left)))
        return f"OPTIMIZE: {summary or 'nothing to do'}"


_EVERYWHERE: Callable[[str], bool] = lambda partition: True  # noqa: E731

Writing = Callable[[Transaction, Sequence[Join], Callable[[], None]], Sequence[WriteStat]]
"""Writes the files of some joins in a transaction, and regularly calls a check that raises if it must stop."""


def has_buckets(coordinator: Coordinator, snapshot: Snapshot) -> bool:
    """Whether each file group is a bucket, which is never joined with another."""
    return coordinator.properties.bucket_index is not None or look_like_buckets(file.file_id for file in snapshot.files)


def optimize(
    coordinator: Coordinator,
    write: Writing,
    copy: Copying,
    *,
    partitions: Callable[[str], bool] = _EVERYWHERE,
    sort_by: Sequence[str] = (),
    sizes: OptimizeSettings | None = None,
    tag: str = "",
) -> Optimized:
    """Join the present small files, in as many commits as `optimize.commit_bytes` requires, and drop those without rows. Then
    compact every file group that still has log files; `copy` writes them.

    It never waits: files that others are writing are left to them. A table with a bucket index has one file group for
    each bucket, and nothing to join. `InputError` for a column to sort by that the table does not have, `TableError` for a
    table that lakelock does not write.
    """
    check_writable(coordinator.properties)
    check_columns(sort_by, coordinator.schema())
    table, sizes = coordinator.table, sizes or coordinator.table.settings.optimize
    wanted = table.settings.write.progress
    with shown("OPTIMIZE", table.runtime, table.events, wanted=wanted, operations=(CLUSTER, COMPACT)):
        return _optimized(coordinator, write, copy, partitions, sort_by, sizes, tag)


def _optimized(
    coordinator: Coordinator,
    write: Writing,
    copy: Copying,
    partitions: Callable[[str], bool],
    sort_by: Sequence[str],
    sizes: OptimizeSettings,
    tag: str,
) -> Optimized:
    result, snapshot, in_order = Optimized(), coordinator.snapshot(), bool(sort_by)
    chosen = [] if has_buckets(coordinator, snapshot) else [file for file in snapshot.files if partitions(file.partition)]
    joins = plan_joins(chosen, sizes, in_order=in_order, is_empty=without_rows(snapshot))
    left = {file.group for join in joins for file in join.sources}
    while left:
        with coordinator.begin(WriteRequest(CLUSTER, overwrites=True, tag=tag)) as tx:
            files = _named(coordinator.table, tx, [file for file in tx.snapshot().files if file.group in left])
            is_empty = without_rows(tx.snapshot())
            joins = first_commit(plan_joins(files, sizes, in_order=in_order, is_empty=is_empty), sizes)
            tried = {file.group for join in joins for file in join.sources}
            if not tried:
                break
            left -= tried
            try:
                _one_commit(coordinator, tx, joins, write, result)
            except (ConflictError, RolledBackError) as error:
                result.note_yielded(len(tried), error)
    compact(coordinator, copy, result, partitions=partitions, most_bytes=sizes.commit_bytes, tag=tag)
    return result


def compact(
    coordinator: Coordinator,
    copy: Copying,
    result: Optimized,
    *,
    partitions: Callable[[str], bool] = _EVERYWHERE,
    is_due: Callable[[DataFile], bool] = lambda file: True,
    most_bytes: int,
    is_spent: Callable[[], bool] = lambda: False,
    tag: str = "",
) -> None:
    """Write the file groups with log files anew that are due, those with most log files first; `result` notes what was done.

    Each commit rewrites about `most_bytes`; none is begun once the time `is_spent`. It never waits, as `optimize`.
    """
    table = coordinator.table
    left = {file.group for file in logged_files(table) if partitions(file.partition) and is_due(file)}
    while left and not is_spent():
        with coordinator.begin(WriteRequest(COMPACT, tag=tag)) as tx:
            files = _named(table, tx, [file for file in tx.snapshot().files if file.logs and file.group in left])
            files.sort(key=lambda file: (-len(file.logs), file))
            tried = next(iter(_packed(files, most_bytes)), ())
            if not tried:
                break
            left.difference_update(file.group for file in tried)
            mine = list(tried)
            try:
                claimed = _claimed(table, tx, [file.group for file in tried])
                mine = [file for file in tried if file.group in claimed]
                result.yielded += len(tried) - len(mine)
                if mine:
                    stats = copy(tx, [Copy(file, file) for file in mine], partial(_ensure_wanted, table, tx))
                    result.commits.append(tx.commit(stats))
                    result.compacted += len(mine)
                    result.size_bytes += sum(stat.file_size_bytes or 0 for stat in stats)
            except (ConflictError, RolledBackError) as error:
                result.note_yielded(len(mine), error)


def without_rows(snapshot: Snapshot) -> IsEmpty:
    """Which of its files have no rows, as far as their commits say: no file is read."""
    return lambda file: snapshot.stats_of(file).rows == 0


def check_columns(sort_by: Sequence[str], schema: TableSchema) -> None:
    """`InputError` if a column is not among the table's."""
    for name in sort_by:
        if name not in schema.names:
            raise InputError(
                f"there is no column {name!r} to sort by{did_you_mean(name, schema.names)}",
                hint=f"the columns are {', '.join(schema.names[:20])}",
            )


def _named(table: OpenTable, tx: Transaction, files: Sequence[DataFile]) -> list[DataFile]:
    """The files that their commits name. One read for each commit on the active timeline.

    A listing also shows the file of a task that was killed late, until it is swept: its rows must not be made permanent.
    """
    timeline = tx.baseline.timeline
    commits = {file.instant: timeline.write_at(file.instant) for file in files}
    reads = [partial(_paths, table, instant) for instant in commits.values() if instant is not None]
    named = frozenset[str]().union(*table.io.gather(reads))
    return [file for file in files if file.key in named or not file.token or commits[file.instant] is None]


def _paths(table: OpenTable, instant: Instant) -> frozenset[str]:
    return frozenset(stat.path for stat in read_commit(table.storage, instant).stats if stat.path)


def _claimed(table: OpenTable, tx: Transaction, wanted: Sequence[FileGroupId]) -> frozenset[FileGroupId]:
    """Those of the file groups that no other writer writes, and no other engine plans to."""
    planned = planned_groups(table, tx.baseline.timeline)
    tx.claim((group for group in wanted if group not in planned), leave_held=True)
    return tx.claimed


def _ensure_wanted(table: OpenTable, tx: Transaction) -> None:
    """Raise `RolledBackError` if a writer has made this yield."""
    tx.check_alive()
    mine = decided_for(tx.instant, table.log.peek(after=tx.baseline.first))
    if resolve(mine) is Resolution.ROLLED_BACK and mine is not None:
        raise rolled_back(tx.party, mine)


def _one_commit(coordinator: Coordinator, tx: Transaction, joins: Sequence[Join], write: Writing, result: Optimized) -> None:
    table = coordinator.table
    wanted = [file.group for join in joins for file in join.sources]
    joins = without(joins, frozenset(wanted) - _claimed(table, tx, wanted), without_rows(tx.snapshot()))
    if not joins:
        result.yielded += len(wanted)
        return
    stats = write(tx, joins, partial(_ensure_wanted, table, tx))
    sources = [file for join in joins for file in join.sources]
    replaced: dict[str, list[str]] = {}
    for file in sources:
        replaced.setdefault(file.partition, []).append(file.file_id)
    result.commits.append(tx.commit(stats, replaced=replaced))
    result.files_before += len(sources)
    result.files_after += len(stats)
    result.size_bytes += sum(stat.file_size_bytes or 0 for stat in stats)
    result.yielded += len(wanted) - len(sources)
