"""A transaction's claims: made when older reservations have ended, and followed by one look at what was decided meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

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


@dataclass(frozen=True)
class Claiming:
    """Claims file groups for one open transaction, and notes in `touched` what it claims."""

    table: OpenTable
    baseline: Baseline
    touched: Touched
    reserved: OthersReservations
    heartbeat: Heartbeat

    def claim(
        self, groups: Iterable[FileGroupId], new_buckets: Iterable[FileGroupId], *, leave_held: bool,
        always: Iterable[FileGroupId],
    ) -> Conflict | None:  # fmt: skip
        """Announce these groups and claim those that are not claimed yet; the conflict that can be known by now, if any.

        With `leave_held` what others hold or have reserved is left to them. `always`: claimed without early detection, too.
        """
        table, baseline, announced = self.table, self.baseline, self.touched.announced
        fresh = announced.add(groups, new_buckets)
        self.touched.write_to(group.partition for group in fresh)
        if not (leave_held or table.settings.concurrency.early_conflict_detection):
            fresh = sorted({*fresh} & {*always})
        if not fresh:
            return None
        fresh = self._unreserved(fresh, leave=leave_held)
        claim = Claim(baseline.instant, table.writer, baseline.operation, self.touched.written)
        context = ClaimContext(claim, baseline.timeline.completed_instants, self.heartbeat.record.limit_s)
        refused = announced.claim(table, context, fresh)
        overruled = [each for each in refused if self._overrules(each)]
        if leave_held:
            refused = []
        # What it overrules it writes without a claim, and has to look at all the same.
        footprint = self.touched.footprint
        mine = replace(footprint, rewritten=footprint.rewritten.union(each.group for each in overruled))
        conflict = early_conflict(table, baseline, mine, [each for each in refused if each not in overruled])
        if conflict is not None:
            return replace(conflict, early=True)
        reached(Step.CLAIMED)
        table.emit(EventKind.CLAIMED, baseline.instant, baseline.operation, groups=len(fresh))
        return None

    def _unreserved(self, groups: list[FileGroupId], *, leave: bool) -> list[FileGroupId]:
        """The groups, once no older reservation is in the way; if it may `leave` some, at once those that are not reserved."""
        queue = self.baseline.reservations
        if leave:
            return [group for group in groups if self.reserved.in_the_way(queue, [group.partition]) is None]
        while (reservation := self.reserved.in_the_way(queue, (group.partition for group in groups))) is not None:
            self.reserved.wait_for(reservation)
        self.heartbeat.ensure_alive()
        return groups

    def _overrules(self, refusal: Refusal) -> bool:
        return isinstance(refusal, Held) and self.reserved.overrules(refusal.by.instant, refusal.group.partition)
