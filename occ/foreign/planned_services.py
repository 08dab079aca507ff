"""What another engine's table services are about to do to what a transaction writes: clustering, and cleaning.

Both carry out later, and without looking again, what they planned before the transaction committed.
"""

from __future__ import annotations

from dataclasses import replace

from lakelock.conflict import Conflict, ConflictRule, Party
from lakelock.occ.baseline import Baseline
from lakelock.occ.conflicts.footprint import Footprint
from lakelock.occ.conflicts.rules import pending_service
from lakelock.occ.open_table import OpenTable
from lakelock.table import layout
from lakelock.table.instants import Instant, State
from lakelock.table.layout import FileGroupId
from lakelock.table.service_metadata import partitions_to_clean, pending_clustering_groups
from lakelock.table.timeline import Timeline


def planned_clustering(table: OpenTable, timeline: Timeline, mine: Footprint) -> Conflict | None:
    """A conflict if a pending clustering plan covers a file group that `mine` rewrites or replaces."""
    for plan in timeline.pending_clustering:
        name, data = _plan(table, plan)
        conflict = pending_service(mine, plan.requested, pending_clustering_groups(data, name)) if data is not None else None
        if conflict is not None:
            return conflict
    return None


def planned_groups(table: OpenTable, timeline: Timeline) -> frozenset[FileGroupId]:
    """The file groups in pending clustering plans, of any age. One request for each plan."""
    plans = (_plan(table, plan) for plan in timeline.pending_clustering)
    return frozenset(group for name, data in plans if data is not None for group in pending_clustering_groups(data, name))


def planned_cleaning(table: OpenTable, baseline: Baseline, timeline: Timeline, mine: Footprint) -> Conflict | None:
    """A conflict if a cleaner removes a whole partition that `mine` writes to, or has done so since the baseline.

    Java Hudi removes the folder of a partition in which it found no file, with all that was written to it since (HUDI-7969).
    """
    cleaned_before = {i.requested for i in baseline.timeline.cleanings if i.is_completed}
    for cleaning in timeline.cleanings:
        if cleaning.requested in cleaned_before:
            continue
        name, data = _plan(table, cleaning)
        # Without content it is a plan that is being written, or was torn: Java does not carry that out.
        both = mine.written_partitions & partitions_to_clean(data, name) if data else frozenset()
        if both:
            conflict = Conflict.over(
                ConflictRule.PENDING_TABLE_SERVICE,
                mine.party,
                Party(cleaning.requested, "clean", completion=cleaning.completion),
                sorted(both),
                detail="the other engine's cleaner removes the folder of this partition, which was empty when it looked. "
                "If this happens again, let the other engine finish its cleaning: hoodie.clean.automatic",
            )
            return replace(conflict, retry_helps=True)
    return None


def _plan(table: OpenTable, service: Instant) -> tuple[str, bytes | None]:
    """The name and the content of the file that says what a service is going to do; None when it is gone."""
    name = replace(service, state=State.REQUESTED, completion=None).file_name
    stored = table.storage.get(layout.timeline(name))
    return name, stored.data if stored is not None else None
