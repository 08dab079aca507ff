"""Repairing a table after another engine has undone commits of lakelock, by rollbacks of instants that it had seen pending.

Such a commit is completed, and files of it are gone: readers that go by the commits fail, and readers that list files show
less than was committed. A repair takes the whole commit out, so that every reader sees the same rows: a file group whose newest
slice is the commit's gets its older rows again, one that the commit has made is replaced by nothing, and one that it has
replaced comes back. What later commits have built on a slice of it that was left stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakelock.markers.liveness import LivenessState, judge_all
from lakelock.occ.attempts.retrying import with_retries
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.foreign.undone import Undone, is_undoing, rolled_back_commits, unrepaired
from lakelock.occ.open_table import OpenTable
from lakelock.occ.outcomes.committed import Committed
from lakelock.occ.records import commit_keys as keys
from lakelock.occ.request import WriteRequest
from lakelock.occ.services.restore import Copy, Copying, RestorePlan
from lakelock.occ.transaction import Transaction
from lakelock.table import layout
from lakelock.table.archive import read_commit
from lakelock.table.index import bucket_of_group
from lakelock.table.instants import Action, Instant, State
from lakelock.table.layout import FileGroupId
from lakelock.table.snapshot import Snapshot, read_snapshot
from lakelock.table.timeline import Timeline

REPAIR = "REPAIR"
"""The name for people; Hudi has no such commit operation, so the commit carries the other name."""
_HUDIS_NAME = "INSERT_OVERWRITE"


@dataclass(frozen=True)
class Repaired:
    """What a repair did: the commits that it took out of the table, and its own, None if there was nothing to do.

    `again` are file groups whose older rows show again, `dropped` those that have no rows any more. `plans` are rollbacks of
    commits that were left half done, and that nobody carries out any more.
    """

    undone: tuple[Undone, ...]
    committed: Committed | None
    again: tuple[FileGroupId, ...] = ()
    dropped: tuple[FileGroupId, ...] = ()
    plans: tuple[str, ...] = ()


def repair(coordinator: Coordinator, write: Copying, *, tag: str = "") -> Repaired:
    """Take every undone commit out of the table, in one new commit; `write` writes the older rows again."""
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
        replaced: dict[str, list[str]] = {}
        for file in plan.removed:
            replaced.setdefault(file.partition, []).append(file.file_id)
        tx.extra.update({keys.OPERATION: REPAIR, keys.REPAIRED: ",".join(each.instant for each in undone)})
        committed = tx.commit(write(tx, plan.copies), replaced=replaced)
        again = tuple(copy.source.group for copy in plan.copies)
        done[:] = [Repaired(tuple(undone), committed, again, tuple(file.group for file in plan.removed))]
        return committed

    committed = with_retries(coordinator, WriteRequest(_HUDIS_NAME, tag=tag), work)
    return replace(done[0], committed=replace(committed, operation=REPAIR), plans=plans)


def preview_repair(coordinator: Coordinator) -> Repaired:
    """What `repair` would do if nobody commits meanwhile. Reads only."""
    now, timeline = coordinator.table.shown_now()
    undone = _to_take_out(coordinator.table, timeline)
    plan = plan_repair(coordinator.table, timeline, now, undone)
    again = tuple(copy.source.group for copy in plan.copies)
    dropped = tuple(file.group for file in plan.removed)
    return Repaired(tuple(undone), None, again, dropped, left_plans(coordinator.table, timeline))


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
    """Rollbacks of completed instants that are not over, and of which nothing shows that somebody is at work on them."""
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
    then = read_snapshot(table.io, without)
    touched = {file.group for file in now.files if file.instant in out} | _replaced_by(table, timeline, out)
    copies = [Copy(file, now.group(group)) for group in sorted(touched) if (file := then.group(group)) is not None]
    removed = [file for file in now.files if file.group in touched and then.group(file.group) is None]
    return RestorePlan(tuple(copies), tuple(removed))


def _replaced_by(table: OpenTable, timeline: Timeline, instants: set[str]) -> frozenset[FileGroupId]:
    """The file groups that these commits replaced: they are not shown any more, whatever became of the new files."""
    commits = [i for i in timeline.commits if i.requested in instants]
    return frozenset(group for i in commits for group in read_commit(table.storage, i).replaced_groups)
