"""A transaction's claims: made when older reservations have ended, and followed by one look at what was decided meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lakelock.conflict import Conflict
from lakelock.events import EventKind
from lakelock.markers.claim_context import ClaimContext
from lakelock.markers.claims import Claim, Held, Refusal
from lakelock.markers.heartbeat import Heartbeat
from lakelock.occ.baseline import Baseline
from lakelock.occ.early.detection import early_conflict
from lakelock.occ.open_table import OpenTable
from lakelock.occ.reserving.waiting import OthersReservations
from lakelock.occ.steps import Step, reached
from lakelock.occ.touched import Touched
from lakelock.table.layout import FileGroupId


def claim(
    table: OpenTable, baseline: Baseline, touched: Touched, reserved: OthersReservations, heartbeat: Heartbeat,
    groups: Iterable[FileGroupId], new_buckets: Iterable[FileGroupId], *, leave_held: bool, always: Iterable[FileGroupId],
) -> Conflict | None:  # fmt: skip
    """Announce these groups and claim those that are not claimed yet; the conflict that can be known by now, if any.

    What is claimed is noted in `touched`. With `leave_held` what others hold or have reserved is left to them. `always`:
    claimed without early detection, too.
    """
    announced = touched.announced
    fresh = announced.add(groups, new_buckets)
    touched.write_to(group.partition for group in fresh)
    if not (leave_held or table.settings.concurrency.early_conflict_detection):
        fresh = sorted({*fresh} & {*always})
    if not fresh:
        return None
    fresh = _unreserved(baseline, reserved, heartbeat, fresh, leave=leave_held)
    mine = Claim(baseline.instant, table.writer, baseline.operation, touched.written)
    context = ClaimContext(mine, baseline.timeline.completed_instants, heartbeat.record.limit_s)
    refused = announced.claim(table, context, fresh)
    overruled = [each for each in refused if _overrules(reserved, each)]
    if leave_held:
        refused = []
    # What it overrules it writes without a claim, and has to look at all the same.
    footprint = touched.footprint
    looked_at = replace(footprint, rewritten=footprint.rewritten.union(each.group for each in overruled))
    conflict = early_conflict(table, baseline, looked_at, [each for each in refused if each not in overruled])
    if conflict is not None:
        return replace(conflict, early=True)
    reached(Step.CLAIMED)
    table.emit(EventKind.CLAIMED, baseline.instant, baseline.operation, groups=len(fresh))
    return None


def _unreserved(
    baseline: Baseline, reserved: OthersReservations, heartbeat: Heartbeat, groups: list[FileGroupId], *, leave: bool
) -> list[FileGroupId]:
    """The groups, once no older reservation is in the way; if it may `leave` some, at once those that are not reserved."""
    queue = baseline.reservations
    if leave:
        return [group for group in groups if reserved.in_the_way(queue, [group.partition]) is None]
    while (reservation := reserved.in_the_way(queue, (group.partition for group in groups))) is not None:
        reserved.wait_for(reservation)
    heartbeat.ensure_alive()
    return groups


def _overrules(reserved: OthersReservations, refusal: Refusal) -> bool:
    return isinstance(refusal, Held) and reserved.overrules(refusal.by.instant, refusal.group.partition)
