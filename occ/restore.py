"""Restoring a table to an earlier state, or repairing it after another engine has undone commits: a new commit does it.

Nothing is lost until it is cleaned. A file group that has changed since gets its old rows again as its next slice; one that
was replaced since comes back as a new group, because Hudi's readers never show a replaced one again; one that was created
since is replaced by nothing; all others are left alone. Rows keep their meta columns. For Hudi it is a replacecommit, so that
restoring to before it works as well.

Repair. Another engine may undo a commit of lakelock by rolling back an instant that it had seen pending. The commit still shows
as completed, but some of its files are gone: readers that go by the commits fail, and readers that list files see fewer rows
than were committed. A repair takes the whole commit out, so that every reader sees the same rows. A file group whose newest
slice is the commit's gets its older rows again, a file group that the commit created is replaced by nothing, and one that it
replaced comes back. Later commits stay, even if they have built on a slice of it that was left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from lakelock.errors import InputError, StorageError
from lakelock.markers.liveness import LivenessState, judge_all
from lakelock.occ import commit_keys as keys
from lakelock.occ.committed import RESTORE, Committed
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.footprint import WholeTable
from lakelock.occ.foreign import Undone, is_undoing, rolled_back_commits, unrepaired
from lakelock.occ.live_logs import with_committed_logs, with_their_logs
from lakelock.occ.open_table import OpenTable
from lakelock.occ.request import WriteRequest
from lakelock.occ.retry import with_retries
from lakelock.occ.savepoints import all_that_is_kept, saved_at, slices_kept
from lakelock.occ.transaction import Transaction
from lakelock.table import layout
from lakelock.table.archive import read_commit
from lakelock.table.commit_metadata import CommitMetadata, WriteStat
from lakelock.table.eligibility import check_writable, require_slices
from lakelock.table.index import bucket_of, bucket_of_group
from lakelock.table.instants import Action, Instant, State, as_of_time, format_instant
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import LogFile
from lakelock.table.properties import TableProperties
from lakelock.table.schema import is_readable_as
from lakelock.table.snapshot import DataFile, Snapshot, read_replaced, read_snapshot
from lakelock.table.timeline import Timeline

_RESTORE_IN_HUDI = "INSERT_OVERWRITE"


@dataclass(frozen=True)
class Copy:
    """An old slice whose rows are to be shown again: as the next slice of the group of `base`, or in a new group."""

    source: DataFile
    base: DataFile | None = None

    def bucket(self, properties: TableProperties) -> int | None:
        """The bucket that a new group is for, None in a table without buckets."""
        return None if properties.bucket_index is None else bucket_of(self.source.file_id)


@dataclass(frozen=True)
class RestorePlan:
    """The changes that restore the table. `removed`: groups to replace by nothing."""

    copies: tuple[Copy, ...]
    removed: tuple[FileGroupId, ...]

    @property
    def touched(self) -> tuple[FileGroupId, ...]:
        """The existing file groups that are rewritten or replaced."""
        changed = [copy.base.group for copy in self.copies if copy.base is not None]
        return (*changed, *self.removed)

    @property
    def replaced(self) -> Mapping[str, Sequence[str]]:
        """The ids of the removed file groups by partition, as a commit names them."""
        found: dict[str, list[str]] = {}
        for group in self.removed:
            found.setdefault(group.partition, []).append(group.file_id)
        return found


@dataclass(frozen=True)
class RestorePreview:
    """What a restore would do now. `kept` is the newest commit that stays, `undone` are those that came later, oldest first."""

    kept: str
    undone: tuple[str, ...]
    plan: RestorePlan


@dataclass
class Expected:
    """What commits say about the file groups as of a time: the slice of each, as far as known, and which came later."""

    slices: dict[FileGroupId, str] = field(default_factory=dict)
    """The instant of the group's slice as of that time; `""` if it is only known that there was one."""
    made_since: set[FileGroupId] = field(default_factory=set)
    instants: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    """Keys of the data files of these commits."""

    def counts(self, file: DataFile) -> bool:
        """False for the file of a task that was killed late, which a listing shows until it is swept."""
        return not file.token or file.instant not in self.instants or file.key in self.named

    @classmethod
    def of(cls, commits: Iterable[tuple[str, CommitMetadata]], as_of: str) -> Expected:
        """From commits by their instants."""
        found, replaced = cls(), set[FileGroupId]()
        for instant, metadata in sorted(commits, key=lambda commit: commit[0]):
            found.instants.add(instant)
            found.named |= {stat.path for stat in metadata.stats if stat.path}
            if instant <= as_of:
                bases = [stat.group for stat in metadata.stats if stat.path and DataFile.parse(stat.path) is not None]
                found.slices.update(dict.fromkeys(bases, instant))
                for group in metadata.rewritten_groups:  # it is only known that log files were appended to it
                    found.slices.setdefault(group, "")
                replaced |= metadata.replaced_groups
                continue
            found.made_since |= metadata.added_groups
            for stat in metadata.stats:
                is_log = LogFile.parse(stat.path or "") is not None
                if not stat.is_new_group and not is_log and (stat.prev_commit or "") <= as_of:
                    found.slices.setdefault(stat.group, stat.prev_commit or "")
            for group in metadata.replaced_groups - found.made_since - replaced:
                found.slices.setdefault(group, "")
        found.slices = {group: instant for group, instant in found.slices.items() if group not in replaced}
        return found


def plan_restore(now: Snapshot, then: Snapshot, expected: Expected, as_of: str) -> RestorePlan:
    """What to copy and what to remove. `StorageError` if a slice that the table had is not there any more."""
    current = [file for file in now.files if expected.counts(file)]
    gone = [
        (group, instant)
        for group, instant in sorted(expected.slices.items())
        if (file := then.group(group)) is None or (instant and file.instant != instant) or _lacks_base(file, now.group(group))
    ]
    removed = [file for file in current if then.group(file.group) is None]
    unknown = [file.group for file in removed if file.token and file.group not in expected.made_since]
    gone += [(group, "") for group in unknown if group not in expected.slices]
    if gone:
        group, instant = gone[0]
        raise StorageError(
            f"the table cannot be restored to {as_of}: {len(gone)} of the file slices that it had are cleaned, or are being "
            f"cleaned; the first is that of {group}{f' at {instant}' if instant else ''}",
            hint="restore to a later time; to keep old slices for longer, let the cleaner retain more commits or hours",
            gone=[f"{group}@{instant}" for group, instant in gone[:5]],
        )
    copies = []
    for file in then.files:
        base = now.group(file.group)
        if expected.counts(file) and (base is None or base.content != file.content):
            copies.append(Copy(file, base))
    return RestorePlan(tuple(copies), tuple(file.group for file in removed))


def _lacks_base(then: DataFile, now: DataFile | None) -> bool:
    """Whether log files are all that is left of a slice, which may have had a base file that is cleaned: a group has log files
    only as long as it never had one.
    """
    return not then.token and (now is None or bool(now.token))


Copying = Callable[[Transaction, Sequence[Copy], Callable[[], None]], Sequence[WriteStat]]
"""Writes the copies in a transaction, and regularly calls a check that raises if it must stop."""


def restore(coordinator: Coordinator, as_of: str, write: Copying, *, tag: str = "") -> Committed:
    """Restore the table as of an instant time. `InputError` if it had no commit then, if its columns were replaced
    since, or if what followed is archived and no savepoint keeps that state.

    It reads the whole table: a change that is committed meanwhile makes it start over, and is undone, too.
    """
    require_slices(coordinator.properties, "restore")
    _check_columns(coordinator, as_of)
    work = partial(_restored, coordinator, as_of, write)
    return replace(with_retries(coordinator, WriteRequest(_RESTORE_IN_HUDI, tag=tag, called=RESTORE), work), operation=RESTORE)


def preview_restore(coordinator: Coordinator, as_of: str) -> RestorePreview:
    """What `restore` would do without commits in the meantime; errors as there. Reads only, and no rows."""
    check_writable(coordinator.properties)
    require_slices(coordinator.properties, "restore")
    _check_columns(coordinator, as_of)
    bases, timeline = coordinator.table.shown_now()
    now = with_their_logs(coordinator.table, bases, timeline)
    plan = plan_restore(now, *_as_it_was(coordinator.table, timeline, now, as_of), as_of)
    return RestorePreview(kept_by(timeline, as_of), undone_by(timeline, as_of), plan)


def kept_by(timeline: Timeline, as_of: str) -> str:
    """The newest commit that a restore to this time keeps: this time itself if that commit is archived."""
    return max((i.requested for i in timeline.commits if i.requested <= as_of), default=as_of)


def undone_by(timeline: Timeline, as_of: str) -> tuple[str, ...]:
    """The commits that a restore to this time undoes, oldest first."""
    return tuple(sorted(i.requested for i in timeline.commits if i.requested > as_of))


def _check_columns(coordinator: Coordinator, as_of: str) -> None:
    if not is_readable_as(coordinator.schema(as_of), coordinator.schema()):
        raise InputError(
            f"the table cannot be restored to {as_of}: its columns have been replaced since, and the old files do not fit them",
            hint="write the rows of then as a new state: table.overwrite(table.read(as_of=...), overwrite_schema=True)",
        )


def _restored(coordinator: Coordinator, as_of: str, write: Copying, tx: Transaction) -> Committed:
    tx.reads(WholeTable())
    now = tx.snapshot()
    plan = plan_restore(now, *_as_it_was(coordinator.table, tx.baseline.timeline, now, as_of), as_of)
    new = [copy.source.group for copy in plan.copies if copy.base is None and tx.baseline.properties.bucket_index is not None]
    tx.claim(plan.touched, map(bucket_of_group, new))
    tx.extra.update({keys.OPERATION: RESTORE, keys.RESTORED: as_of})
    return tx.commit(write(tx, plan.copies, tx.check_alive), replaced=plan.replaced)


def _as_it_was(table: OpenTable, timeline: Timeline, now: Snapshot, as_of: str) -> tuple[Snapshot, Expected]:
    """The file slices as of a time, and what commits say about them; from before the active timeline only by a savepoint."""
    try:
        saved = saved_at(table, timeline, as_of) if as_of < timeline.first_active else all_that_is_kept(table, timeline, as_of)
    except InputError as error:
        raise InputError(
            f"the table cannot be restored to {as_of}: files of that time were cleaned",
            hint=error.hint.replace("read as of", "restore to", 1),
        ) from error
    if saved is None:
        check_moment(timeline, as_of, table.runtime.now_ms())
        then = with_their_logs(table, read_snapshot(table.io, timeline, as_of), timeline, as_of)
        return then, Expected.of(_commits(table, timeline).items(), as_of)
    then = slices_kept(saved)
    # The savepoint names every slice of that time, so all others have been added since.
    since = {file.group for file in now.files if then.group(file.group) is None}
    return then, Expected({file.group: file.instant for file in then.files}, since)


def moment_of(coordinator: Coordinator, as_of: str) -> str:
    """The instant time that the name of a savepoint, an instant or a time stands for."""
    saved = {each.name: each.instant for each in coordinator.savepoints()}
    if as_of in saved:
        return saved[as_of]
    try:
        return as_of_time(as_of, coordinator.properties.timezone)
    except InputError as error:
        names = ", ".join(map(repr, list(saved)[:10])) or "none"
        raise InputError(f"{error.message}, nor the name of a savepoint", hint=f"{error.hint}; savepoints: {names}") from None


def check_moment(timeline: Timeline, as_of: str, now_ms: int) -> None:
    """`InputError` unless the active timeline has everything that happened since, and the moment has come."""
    first = min((instant.requested for instant in timeline.commits), default="")
    now = format_instant(now_ms)
    if as_of > max(now, timeline.newest_time):
        newest = max((instant.requested for instant in timeline.commits), default="")
        raise InputError(
            f"the table cannot be restored to {as_of}: that is later than now, which is {now} in UTC",
            hint=f"its newest instant is {newest}; table.history() lists all" if newest else "it has no commit now",
        )
    if timeline.first_active and as_of < timeline.first_active:
        raise InputError(
            f"the table cannot be restored to {as_of}: what was committed before {timeline.first_active} is archived",
            hint=f"restore to {timeline.first_active} or later, or to a savepoint: lakelock savepoint ls PATH",
        )
    if not first or as_of < first:
        raise InputError(
            f"the table cannot be restored to {as_of}: it had no commit then",
            hint=f"its first commit is {first}" if first else "it has none now",
        )


def _commits(table: OpenTable, timeline: Timeline) -> Mapping[str, CommitMetadata]:
    """What each commit of the active timeline did. One read for each."""

    def read(number: int) -> CommitMetadata:
        return read_commit(table.storage, timeline.commits[number])

    reads = [partial(read, number) for number in range(len(timeline.commits))]
    found = table.io.gather(reads)
    return {instant.requested: metadata for instant, metadata in zip(timeline.commits, found, strict=True)}


REPAIR = "REPAIR"
"""The name for people; Hudi has no such commit operation, so the commit carries the other name."""
_REPAIR_IN_HUDI = "INSERT_OVERWRITE"


@dataclass(frozen=True)
class Repaired:
    """What a repair did: the commits that it took out of the table, and its own, None if there was nothing to do.

    `again` are file groups whose older rows show again, `dropped` those that have no rows any more. `plans` are rollbacks of
    commits that were left half done and abandoned.
    """

    undone: tuple[Undone, ...]
    committed: Committed | None
    again: tuple[FileGroupId, ...] = ()
    dropped: tuple[FileGroupId, ...] = ()
    plans: tuple[str, ...] = ()


def repair(coordinator: Coordinator, write: Copying, *, tag: str = "") -> Repaired:
    """Take every undone commit out of the table, in one new commit; `write` writes the older rows again."""
    require_slices(coordinator.properties, "repair")
    plans = _remove_plans(coordinator.table)
    if not _to_take_out(coordinator.table, coordinator.table.timeline()):
        return Repaired((), None, plans=plans)
    done: list[Repaired] = []

    def work(tx: Transaction) -> Committed:
        undone = _to_take_out(coordinator.table, tx.baseline.timeline)
        plan = plan_repair(coordinator.table, tx.baseline.timeline, tx.snapshot(), undone)
        new = [
            copy.source.group for copy in plan.copies if copy.base is None and tx.baseline.properties.bucket_index is not None
        ]
        tx.claim(plan.touched, map(bucket_of_group, new))
        tx.extra.update({keys.OPERATION: REPAIR, keys.REPAIRED: ",".join(each.instant for each in undone)})
        committed = tx.commit(write(tx, plan.copies, tx.check_alive), replaced=plan.replaced)
        again = tuple(copy.source.group for copy in plan.copies)
        done[:] = [Repaired(tuple(undone), committed, again, plan.removed)]
        return committed

    committed = with_retries(coordinator, WriteRequest(_REPAIR_IN_HUDI, tag=tag, called=REPAIR), work)
    return replace(done[0], committed=replace(committed, operation=REPAIR), plans=plans)


def preview_repair(coordinator: Coordinator) -> Repaired:
    """What `repair` would do without commits in the meantime. Reads only."""
    bases, timeline = coordinator.table.shown_now()
    now = with_their_logs(coordinator.table, bases, timeline)
    undone = _to_take_out(coordinator.table, timeline)
    plan = plan_repair(coordinator.table, timeline, now, undone)
    again = tuple(copy.source.group for copy in plan.copies)
    return Repaired(tuple(undone), None, again, plan.removed, left_plans(coordinator.table, timeline))


def _to_take_out(table: OpenTable, timeline: Timeline) -> list[Undone]:
    return [each for each in unrepaired(table, timeline) if each.gone]


def _remove_plans(table: OpenTable) -> tuple[str, ...]:
    """Remove rollbacks of commits whose writer died over them: another engine would carry them out, or fail, at each write."""
    timeline = table.timeline()
    if not is_undoing(table, timeline):
        return ()
    with table.locked(operation=REPAIR):
        plans = left_plans(table, table.timeline())
        for state in (State.INFLIGHT, State.REQUESTED):
            names = [Instant(each, Action.ROLLBACK.value, state).file_name for each in plans]
            table.storage.delete(map(layout.timeline, names))
    return plans


def left_plans(table: OpenTable, timeline: Timeline) -> tuple[str, ...]:
    """Unfinished rollbacks of completed instants whose writers have died."""
    named = rolled_back_commits(table, timeline).values()
    plans = [each for rollbacks in named for each in rollbacks if not each.is_completed]
    judged = judge_all(table.io, table.settings.heartbeat, plans)
    dead = {instant for instant, liveness in judged.items() if liveness.state is LivenessState.DEAD}
    return tuple(each.requested for each in plans if each.requested in dead)


def plan_repair(table: OpenTable, timeline: Timeline, now: Snapshot, undone: Sequence[Undone]) -> RestorePlan:
    """What to copy and what to remove, so that the table is as if the undone commits had never been."""
    if not undone:
        return RestorePlan((), ())
    out = {each.instant for each in undone}
    without = replace(timeline, instants=tuple(i for i in timeline.instants if i.requested not in out))
    then = with_committed_logs(table, read_snapshot(table.io, without), without)
    touched, replaced = _touched_by(table, timeline, out), read_replaced(table.io, without)
    copies, removed = [], []
    for group in sorted(touched.keys() - replaced.keys()):
        older = then.group(group)
        if older is None:
            removed.append(group)
        elif older.instant <= touched[group]:  # else a later commit has written all of the group again
            copies.append(Copy(older, now.group(group)))
    return RestorePlan(tuple(copies), tuple(removed))


def _touched_by(table: OpenTable, timeline: Timeline, instants: set[str]) -> dict[FileGroupId, str]:
    """The file groups that these commits wrote or replaced, each with the last of them.

    What is seen of them does not tell: a listing lacks the files that are gone, and a reader that goes by the commits, as a
    checkpoint and Hudi's metadata table do, shows them.
    """
    last: dict[FileGroupId, str] = {}
    for instant in (i for i in timeline.commits if i.requested in instants):
        metadata = read_commit(table.storage, instant)
        for group in metadata.replaced_groups.union(stat.group for stat in metadata.stats if stat.path):
            last[group] = max(last.get(group, ""), instant.requested)
    return last
