"""How a task learns, without the driver, whether the owner of a claim still blocks it."""

from __future__ import annotations

from dataclasses import dataclass

from lakelock.markers.claims import Claim, ClaimResult, Fate, OwnerState, claim_group
from lakelock.markers.liveness import is_too_old
from lakelock.storage import Listed, Storage
from lakelock.table import layout
from lakelock.table.instants import parse_file_name
from lakelock.table.layout import FileGroupId


@dataclass(frozen=True)
class ClaimContext:
    """What a task needs to claim file groups for its transaction; small and picklable.

    `saw` are the instants that were completed at the baseline; `limit_s` is the age at which a heartbeat counts as dead.
    """

    claim: Claim
    saw: frozenset[str]
    limit_s: float

    def claim_group(self, storage: Storage, group: FileGroupId) -> ClaimResult:
        """Claim `group`, or say who has it: one request when it is free, at most seven in total."""
        return claim_group(storage, group, self.claim, lambda instant: self.owner_state(storage, instant))

    def owner_state(self, storage: Storage, instant: str) -> OwnerState:
        """What became of the owner of a claim: at most two requests, whatever the number of writers.

        The time stamp of the transaction's own heartbeat, a little old, stands for the storage's time now, so that only the
        storage's clock counts. An owner is found dead a little late, never too early.
        """
        if instant in self.saw:
            return OwnerState(Fate.FINISHED)
        beats = _beats(storage, instant, self.claim.instant)
        theirs, mine = beats.get(instant), beats.get(self.claim.instant)
        if theirs is not None:
            age_ms = max(0, mine.modified_ms - theirs.modified_ms) if mine else 0
            dead = is_too_old(age_ms, self.limit_s)
            return OwnerState(Fate.DEAD if dead else Fate.ALIVE, seen_ago_s=age_ms / 1000)
        completion = _completion(storage, instant)
        return OwnerState(Fate.FINISHED) if completion is None else OwnerState(Fate.COMMITTED_SINCE, completion=completion)


def _beats(storage: Storage, *instants: str) -> dict[str, Listed]:
    """The heartbeats of these instants, by one listing that starts at the first and stops after the last."""
    keys = {layout.heartbeat(instant): instant for instant in instants}
    last = max(keys)
    found: dict[str, Listed] = {}
    for beat in storage.list(layout.HEARTBEATS, start_after=min(keys)[:-1]):
        if beat.key > last:
            break
        if beat.key in keys:
            found[keys[beat.key]] = beat
    return found


def _completion(storage: Storage, instant: str) -> str | None:
    """When an instant's write was completed, None if it was not: one listing that starts at the instant and ends after it."""
    start = layout.timeline(instant)
    for file in storage.list(layout.TIMELINE, start_after=start):
        if not file.key.startswith(start):
            break
        found = parse_file_name(file.key[len(layout.TIMELINE) + 1 :])
        if found is not None and found.requested == instant and found.is_completed and found.is_write:
            return found.completion
    return None
