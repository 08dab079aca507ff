"""Files that writers uploaded after they had been rolled back, and that nothing announces any more.

A writer may stand still in the middle of an upload until others have rolled it back and removed its markers, and die before it
finds that out. Nobody sees its file as long as the timeline reaches back to its instant. From then on readers take the file for
that of an archived commit, so it has to go before. The rollback names it: it records what the markers announced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from lakelock.markers.leftovers import is_data_file_of
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publishing.fate import rollback_plan, rollback_target
from lakelock.storage import Listed
from lakelock.table import layout
from lakelock.table.instants import Instant
from lakelock.table.service_metadata import RollbackPlan
from lakelock.table.timeline import Timeline


def rolled_back_ms(table: OpenTable, timeline: Timeline, listed: Iterable[Listed]) -> Mapping[str, int]:
    """When each instant was rolled back, in the storage's time, as far as the timeline shows it. Each plan is read once."""
    done_ms = {item.key.rpartition("/")[2]: item.modified_ms for item in listed}
    return {target: done_ms[rollback.file_name] for rollback, target in _rolled_back(table, timeline)}


def remove_late_files(table: OpenTable, timeline: Timeline, *, after: str, before: str) -> None:
    """Delete what instants announced that were rolled back and lie between the end of the archive (`after`) and `before`.

    One read for each, and the deletes. Whatever is older is left alone: the timeline cannot tell whether it has committed.
    """
    rolled = [rollback for rollback, target in _rolled_back(table, timeline) if after < target < before]
    plans = [partial(rollback_plan, table, rollback) for rollback in rolled]
    for plan in table.io.gather(plans):
        if plan is not None:
            table.storage.delete(_announced(plan))


def _rolled_back(table: OpenTable, timeline: Timeline) -> list[tuple[Instant, str]]:
    """Completed rollbacks, each with its target; a commit that shares the time of one that was rolled back is not one."""
    completed = [i for i in timeline.rollbacks if i.is_completed]
    looks = [partial(rollback_target, table, rollback) for rollback in completed]
    targets = table.io.gather(looks)
    return [(r, t) for r, t in zip(completed, targets, strict=True) if t is not None and timeline.state_of(t) is None]


def _announced(plan: RollbackPlan) -> list[str]:
    keys = (layout.in_partition(partition, name) for partition, names in plan.files.items() for name in names)
    return sorted(key for key in keys if is_data_file_of(key, plan.target_instant))
