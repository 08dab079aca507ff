"""Claims: which transaction is rewriting which file group, so that a collision is found before the data is written.

One conditional write per file group, whatever the number of live writers. A claim is advice: losing one, or finding a stale
one, costs time and never safety, because the commit checks everything again. `ClaimContext` lets a task learn, without the
driver, whether the owner of a claim still blocks it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from lakelock.conflict import Conflict, ConflictRule, Party
from lakelock.errors import StorageUnavailable
from lakelock.identity import WriterIdentity
from lakelock.markers.liveness import is_too_old
from lakelock.parsing import JsonObject
from lakelock.storage import Listed, Storage
from lakelock.storage.location import TableIO
from lakelock.table import layout
from lakelock.table.instants import parse_file_name
from lakelock.table.layout import FileGroupId
from lakelock.texts import StrEnum

FORMAT = 1

MOST_PLACES = 100
"""More partitions than this are recorded as the whole table."""


def capped(places: frozenset[str] | None) -> frozenset[str] | None:
    """The partitions as a claim records them; None for the whole table."""
    return None if places is None or len(places) > MOST_PLACES else places


@dataclass(frozen=True)
class Claim:
    """One transaction's announcement that it rewrites a file group.

    `places` are the partitions to which the transaction is known to write, this group's and others; None: anywhere. So a
    writer that finds one of several claims while the others are still on their way knows where they will be.
    """

    instant: str
    writer: WriterIdentity
    operation: str
    places: frozenset[str] | None = frozenset()

    def to_bytes(self) -> bytes:
        places = capped(self.places)
        fields = {
            "instant": self.instant,
            "writer": self.writer.as_dict(),
            "operation": self.operation,
            "places": None if places is None else sorted(places),
        }
        return json.dumps({"format": FORMAT, **fields}, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Claim | None:
        """The claim, or None for bytes that are not a claim (a power loss may leave an empty file)."""
        try:
            found = JsonObject.parse(data)
            writer = WriterIdentity.from_dict(found.child("writer").fields)
            places: frozenset[str] | None = frozenset()
            if "places" in found.fields:  # a claim of an earlier lakelock has none
                places = None if found.get("places") is None else frozenset(map(str, found.items("places")))
            return cls(found.text("instant"), writer, found.text("operation"), places)
        except ValueError:
            return None


class OwnerFate(StrEnum):
    """What became of a claim's owner. FINISHED: committed before my baseline, or rolled back; neither conflicts with me."""

    FINISHED = "finished"
    DEAD = "dead"
    COMMITTED_SINCE = "committed since"
    ALIVE = "alive"


@dataclass(frozen=True)
class OwnerState:
    """What is known about a claim's owner. `seen_ago_s` is the age of its heartbeat, `completion` when it committed."""

    fate: OwnerFate
    seen_ago_s: float | None = None
    completion: str | None = None


@dataclass(frozen=True)
class Claimed:
    """The group is mine; it was free, or I had claimed it before (a repeated task)."""

    group: FileGroupId


@dataclass(frozen=True)
class TakenOver:
    """The group is mine; its claim was stale. `previous` is None when the stale claim could not be read."""

    group: FileGroupId
    previous: Claim | None


@dataclass(frozen=True)
class Held:
    """A live writer is rewriting the group."""

    group: FileGroupId
    by: Claim
    seen_ago_s: float | None = None


@dataclass(frozen=True)
class CommittedSince:
    """Another rewrote the group and committed after my baseline."""

    group: FileGroupId
    by: Claim
    completion: str | None = None


ClaimResult = Claimed | TakenOver | Held | CommittedSince
Refusal = Held | CommittedSince


def claim_group(storage: Storage, group: FileGroupId, claim: Claim, state_of: Callable[[str], OwnerState]) -> ClaimResult:
    """Claim `group`, or say who has it.

    One request when the group is free; else at most five, besides those that `state_of` makes about the owner's instant.
    """
    key, data = layout.claim(group), claim.to_bytes()
    if _put(storage, key, data):
        return Claimed(group)
    found = storage.get(key)
    if found is None:
        # Its owner released it a moment ago. Its owner after the second try has only just come, and is alive.
        if _put(storage, key, data):
            return Claimed(group)
        return _claim_of_another(storage, key, group, claim) or Claimed(group)
    other = Claim.from_bytes(found.data)
    if other is not None:
        if _same(other, claim):
            return Claimed(group)
        owner = state_of(other.instant)
        if owner.fate is OwnerFate.ALIVE:
            return Held(group, other, owner.seen_ago_s)
        if owner.fate is OwnerFate.COMMITTED_SINCE:
            return CommittedSince(group, other, owner.completion)
    # A stale claim that cannot be swapped any more was swept a moment ago, or another was faster.
    if _swap(storage, key, data, found.etag) or _put(storage, key, data):
        return TakenOver(group, other)
    return _claim_of_another(storage, key, group, claim) or TakenOver(group, other)


def conflict_of(refusals: Sequence[Refusal], mine: Party) -> Conflict:
    """The early conflict that follows from these refusals: with the first owner, over all groups that it owns."""
    first = min(refusals, key=lambda refusal: refusal.group)
    seen_ago_s = first.seen_ago_s if isinstance(first, Held) else None
    completion = first.completion if isinstance(first, CommittedSince) else None
    other = Party(first.by.instant, first.by.operation, first.by.writer, completion, seen_ago_s)
    overlap = [str(refusal.group) for refusal in refusals if refusal.by.instant == first.by.instant]
    detail = (
        "committed since this transaction began"
        if isinstance(first, CommittedSince)
        else "is rewriting the same file group now"
    )
    return Conflict.over(ConflictRule.FILE_GROUP, mine, other, overlap, detail=f"the other {detail}", early=True)


def all_claims(io: TableIO) -> dict[str, Claim]:
    """Every claim there is, by key: one listing, and a read for each."""
    keys = [entry.key for entry in io.storage.list(layout.CLAIMS)]
    stored = io.gather([partial(io.storage.get, key) for key in keys])
    claims = {key: Claim.from_bytes(found.data) for key, found in zip(keys, stored, strict=True) if found}
    return {key: claim for key, claim in claims.items() if claim is not None}


@dataclass(frozen=True)
class OwnClaims:
    """What a transaction knows of its own claims. `unsure` are those that got no answer, or may be another's by now."""

    sure: frozenset[FileGroupId] = frozenset()
    unsure: frozenset[FileGroupId] = frozenset()

    def keys(self, io: TableIO, instant: str) -> tuple[str, ...]:
        """Keys of the claims that are there. A read for each `unsure` one, whatever others have claimed."""
        keys = [layout.claim(group) for group in sorted(self.unsure - self.sure)]
        stored = io.gather([partial(io.storage.get, key) for key in keys])
        found = {key: Claim.from_bytes(item.data) for key, item in zip(keys, stored, strict=True) if item}
        mine = [key for key, claim in found.items() if claim is not None and claim.instant == instant]
        return (*map(layout.claim, sorted(self.sure)), *mine)


def claims_of(io: TableIO, instant: str) -> tuple[str, ...]:
    return tuple(key for key, claim in all_claims(io).items() if claim.instant == instant)


def _same(found: Claim, mine: Claim) -> bool:
    return found.instant == mine.instant and found.writer.writer_id == mine.writer.writer_id


def _put(storage: Storage, key: str, data: bytes) -> bool:
    """Create the claim; False when it exists or no answer came, which a read tells apart."""
    try:
        return storage.put_if_absent(key, data, durable=False) is not None
    except StorageUnavailable:
        return False


def _swap(storage: Storage, key: str, data: bytes, etag: str) -> bool:
    try:
        return storage.put_if_match(key, data, etag) is not None
    except StorageUnavailable:
        return False


def _claim_of_another(storage: Storage, key: str, group: FileGroupId, mine: Claim) -> Held | None:
    """The claim of the faster writer; None when the group is free after all, or the claim is mine (a lost reply)."""
    found = storage.get(key)
    other = Claim.from_bytes(found.data) if found else None
    return None if other is None or _same(other, mine) else Held(group, other)


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
            return OwnerState(OwnerFate.FINISHED)
        beats = _beats(storage, instant, self.claim.instant)
        theirs, mine = beats.get(instant), beats.get(self.claim.instant)
        if theirs is not None:
            age_ms = max(0, mine.modified_ms - theirs.modified_ms) if mine else 0
            dead = is_too_old(age_ms, self.limit_s)
            return OwnerState(OwnerFate.DEAD if dead else OwnerFate.ALIVE, seen_ago_s=age_ms / 1000)
        completion = _completion(storage, instant)
        return (
            OwnerState(OwnerFate.FINISHED)
            if completion is None
            else OwnerState(OwnerFate.COMMITTED_SINCE, completion=completion)
        )


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
