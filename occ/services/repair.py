"""Repairing a table after another engine has undone commits of lakelock, by rollbacks of instants that it had seen pending.

Such a commit is completed, and files of it are gone: readers that go by the commits fail, and readers that list files show less
than was committed. A repair takes the whole commit out, so that every reader sees the same rows: a file group whose newest
slice is the commit's gets its older rows again, one that the commit has made is replaced by nothing, and one that it has replaced
comes back. What later commits have built on a slice of it that was left stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from lakelock.occ.attempts.retrying import with_retries
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.foreign.undone import Undone, undone_commits
from lakelock.occ.open_table import OpenTable
from lakelock.occ.outcomes.committed import Committed
from lakelock.occ.records import commit_keys as keys
from lakelock.occ.services.restore import Copy, Copying, RestorePlan
from lakelock.occ.transaction import Transaction
from lakelock.table.archive import read_commit
from lakelock.table.buckets import bucket_of_group
from lakelock.table.layout import FileGroupId
from lakelock.table.snapshot import Snapshot, read_snapshot
from lakelock.table.timeline import Timeline

REPAIR = "REPAIR"
"""The name for people; Hudi has no such commit operation, so the commit carries the other name."""
_HUDIS_NAME = "INSERT_OVERWRITE"


@dataclass(frozen=True)
class Repaired:
    """What a repair did: the commits that it took out of the table, and its own, None if there was nothing to do.

    `again` are file groups whose older rows show again, `dropped` those that have no rows any more.
    """

    undone: tuple[Undone, ...]
    committed: Committed | None
    again: tuple[FileGroupId, ...] = ()
    dropped: tuple[FileGroupId, ...] = ()


def repair(coordinator: Coordinator, write: Copying, *, tag: str = "") -> Repaired:
    """Take every undone commit out of the table, in one new commit; `write` writes the older rows again."""
    if not to_repair(coordinator.table, coordinator.table.timeline()):
        return Repaired((), None)
    done: list[Repaired] = []

    def work(tx: Transaction) -> Committed:
        undone = to_repair(coordinator.table, tx.baseline.timeline)
        plan = plan_repair(coordinator.table, tx.baseline.timeline, tx.snapshot(), undone)
        new = [copy.source.group for copy in plan.copies if copy.base is None and tx.baseline.properties.bucket_index is not None]
        tx.claim(plan.touched, map(bucket_of_group, new))
        replaced: dict[str, list[str]] = {}
        for file in plan.removed:
            replaced.setdefault(file.partition, []).append(file.file_id)
        tx.extra.update({keys.OPERATION: REPAIR, keys.REPAIRED: ",".join(each.instant for each in undone)})
        committed = tx.commit(write(tx, plan.copies), replaced=replaced)
        again = tuple(copy.source.group for copy in plan.copies)
        done[:] = [Repaired(tuple(undone), committed, again, tuple(file.group for file in plan.removed))]
        return committed

    committed = with_retries(coordinator, _HUDIS_NAME, work, tag=tag)
    return replace(done[0], committed=replace(committed, operation=REPAIR))


def preview_repair(coordinator: Coordinator) -> Repaired:
    """What `repair` would do if nobody commits meanwhile. Reads only."""
    now, timeline = coordinator.table.shown_now()
    undone = to_repair(coordinator.table, timeline)
    plan = plan_repair(coordinator.table, timeline, now, undone)
    again = tuple(copy.source.group for copy in plan.copies)
    return Repaired(tuple(undone), None, again, tuple(file.group for file in plan.removed))


def to_repair(table: OpenTable, timeline: Timeline) -> list[Undone]:
    """The undone commits that no repair has taken out yet, oldest first."""
    undone = undone_commits(table, timeline)
    if not undone:
        return []
    later = [i for i in timeline.commits if i.requested > undone[0].instant]
    read = table.runtime.gather([partial(read_commit, table.storage, i) for i in later], limit=table.parallel_requests)
    repaired = {instant for metadata in read for instant in metadata.extra.get(keys.REPAIRED, "").split(",")}
    return [each for each in undone if each.gone and each.instant not in repaired]


def plan_repair(table: OpenTable, timeline: Timeline, now: Snapshot, undone: Sequence[Undone]) -> RestorePlan:
    """What to copy and what to remove, so that the table is as if the undone commits had never been."""
    if not undone:
        return RestorePlan((), ())
    out = {each.instant for each in undone}
    without = replace(timeline, instants=tuple(i for i in timeline.instants if i.requested not in out))
    then = read_snapshot(table.storage, without, runtime=table.runtime, parallel=table.parallel_requests)
    touched = {file.group for file in now.files if file.instant in out} | _replaced_by(table, timeline, out)
    copies = [Copy(file, now.group(group)) for group in sorted(touched) if (file := then.group(group)) is not None]
    removed = [file for file in now.files if file.group in touched and then.group(file.group) is None]
    return RestorePlan(tuple(copies), tuple(removed))


def _replaced_by(table: OpenTable, timeline: Timeline, instants: set[str]) -> frozenset[FileGroupId]:
    """The file groups that these commits replaced: they are not shown any more, whatever became of the new files."""
    commits = [i for i in timeline.commits if i.requested in instants]
    return frozenset(group for i in commits for group in read_commit(table.storage, i).replaced_groups)
