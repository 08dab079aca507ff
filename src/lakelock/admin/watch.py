"""Who writes a table right now, who waits for whom, and what was committed last, looked at again and again.

A look sends few requests: what cannot change is read once. The view is a function of what one look showed (`view_of`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice

from lakelock.data_locks import LockedData
from lakelock.identity import name_of
from lakelock.markers.claims import Claim
from lakelock.markers.heartbeat import HeartbeatRecord
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.history import HistoryEntry, entry_of, read_summary
from lakelock.occ.log import Reservation
from lakelock.providers import LockState
from lakelock.storage import Listed
from lakelock.table import layout
from lakelock.table.instants import is_instant_time, parse_instant
from lakelock.table.timeline import Timeline


@dataclass(frozen=True)
class Seen:
    """What one look showed. `now_ms` is this machine's clock; `beats` are the storage's times of the heartbeats, by instant.

    `markers` counts by instant, up to the bound of a look. `unread_claims` have not been read yet; the next looks do it.
    `limit_s` is the age at which a heartbeat without a record counts as old.
    """

    now_ms: int
    timeline: Timeline
    beats: Mapping[str, int]
    records: Mapping[str, HeartbeatRecord]
    markers: Mapping[str, int]
    claims: Mapping[str, Claim]
    unread_claims: int
    lock: LockState | None
    data: tuple[LockedData, ...]
    reservations: tuple[Reservation, ...]
    commits: tuple[HistoryEntry, ...]
    limit_s: float


@dataclass(frozen=True)
class Writing:
    """One transaction at work, or what a dead one left. `beat_age_s` is None for one without a heartbeat.

    `sign`: `beats`, `silent` for a heartbeat older than its limit, `none`. `running_s` counts from its instant.
    """

    instant: str
    state: str
    operation: str
    writer: str
    sign: str
    beat_age_s: float | None
    running_s: float
    markers: int
    claims: int


@dataclass(frozen=True)
class Waiting:
    """A writer that waits: for what, and for whom, as far as that is known."""

    who: str
    what: str
    on: tuple[str, ...]


@dataclass(frozen=True)
class View:
    """One refresh. `holder` has the commit lock, and is empty if it is free; `reserved` are the reservations, oldest first."""

    at_ms: int
    writing: tuple[Writing, ...]
    waiting: tuple[Waiting, ...]
    holder: str
    data_locks: tuple[str, ...]
    reserved: tuple[str, ...]
    commits: tuple[HistoryEntry, ...]
    unread_claims: int


def view_of(seen: Seen) -> View:
    claims = Counter(claim.instant for claim in seen.claims.values())
    pending = {instant.requested for instant in seen.timeline.pending}
    instants = sorted({*pending, *seen.beats, *seen.markers, *claims})
    return View(
        at_ms=seen.now_ms,
        writing=tuple(_writing(seen, instant, claims[instant]) for instant in instants),
        waiting=(*_for_the_lock(seen.lock), *_for_data(seen.data)),
        holder=str(seen.lock.holder) if seen.lock is not None and seen.lock.holder is not None else "",
        data_locks=tuple(str(each) for each in seen.data if each.held),
        reserved=tuple(f"{each}: {_places(each)}" for each in seen.reservations),
        commits=seen.commits,
        unread_claims=seen.unread_claims,
    )


def _writing(seen: Seen, instant: str, claims: int) -> Writing:
    record, beat_ms = seen.records.get(instant), seen.beats.get(instant)
    state = seen.timeline.state_of(instant)
    age_s = None if beat_ms is None else max(0, seen.now_ms - beat_ms) / 1000
    limit_s = seen.limit_s if record is None else record.limit_s
    sign = "none" if age_s is None else "beats" if age_s <= limit_s else "silent"
    announced = next((claim for claim in seen.claims.values() if claim.instant == instant), None)
    known = record or announced
    return Writing(
        instant=instant,
        state=str(state) if state is not None else "not on the timeline",
        operation=known.operation if known is not None else "",
        writer=name_of(known.writer if known is not None else None),
        sign=sign,
        beat_age_s=None if age_s is None else round(age_s, 1),
        running_s=round(max(0, seen.now_ms - parse_instant(instant)) / 1000, 1),
        markers=seen.markers.get(instant, 0),
        claims=claims,
    )


def _for_the_lock(lock: LockState | None) -> tuple[Waiting, ...]:
    if lock is None:
        return ()
    first = (str(lock.holder),) if lock.holder is not None else ()
    return tuple(Waiting(str(each), "the commit lock", first) for each in lock.queue)


def _for_data(data: tuple[LockedData, ...]) -> tuple[Waiting, ...]:
    names = {each.token: str(each) for each in data}

    def waiting(seen: LockedData) -> Waiting:
        what = ", ".join(map(str, seen.request.leaves[:3]))
        return Waiting(str(seen), what, tuple(names.get(token, f"token {token}") for token in seen.blocked_by))

    return tuple(waiting(each) for each in data if not each.held)


def _places(reservation: Reservation) -> str:
    if reservation.places is None:
        return "the whole table"
    places = sorted(reservation.places)
    return ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")


MOST_LISTED = 10_000
"""How many markers, and how many claims, a look lists: ten requests of an object store for each."""

MOST_READS = 100
"""How many claims a look reads. The others are read by the next looks."""


class Watch:
    """One table under observation. Nothing is written, neither to the table nor to its lock service.

    A look lists the timeline, the heartbeats, the markers and the claims, reads the boundary and asks for both kinds of
    locks. Besides that it reads only heartbeats, claims and commits that it has not met before.
    """

    def __init__(self, coordinator: Coordinator, commits: int) -> None:
        """`commits`: how many of the newest commits a look shows."""
        self._coordinator, self._commits = coordinator, commits
        self._records: dict[str, HeartbeatRecord | None] = {}
        self._claims: dict[tuple[str, int], Claim | None] = {}
        self._entries: dict[str, HistoryEntry] = {}

    def look(self) -> Seen:
        table = self._coordinator.table
        beats = {b.key.rpartition("/")[2]: b for b in table.storage.list(layout.HEARTBEATS)}
        beats = {instant: beat for instant, beat in beats.items() if is_instant_time(instant)}
        markers = self._markers()
        claims, unread = self._claims_now()
        # The timeline comes last: a writer that committed meanwhile is then shown as committed, and not as at work.
        timeline = table.timeline()
        return Seen(
            now_ms=table.runtime.now_ms(),
            timeline=timeline,
            beats={instant: beat.modified_ms for instant, beat in beats.items()},
            records=self._records_of(beats),
            markers=markers,
            claims=claims,
            unread_claims=unread,
            lock=None if table.provider is None else table.provider.inspect(),
            data=self._coordinator.data.locks.inspect(),
            reservations=table.log.reservations(),
            commits=self._newest(timeline),
            limit_s=table.settings.heartbeat.limit_s,
        )

    def _markers(self) -> Counter[str]:
        start = len(layout.TEMP) + 1
        listed = islice(self._coordinator.table.storage.list(layout.TEMP), MOST_LISTED)
        found = Counter(entry.key[start:].partition("/")[0] for entry in listed)
        return Counter({instant: count for instant, count in found.items() if is_instant_time(instant)})

    def _records_of(self, beats: dict[str, Listed]) -> dict[str, HeartbeatRecord]:
        """A heartbeat's record never changes while it beats, so each is read once; an empty one is another engine's."""
        table = self._coordinator.table
        self._records = {instant: record for instant, record in self._records.items() if instant in beats}
        new = [instant for instant, beat in beats.items() if instant not in self._records and beat.size_bytes]
        reads = [partial(table.storage.get, layout.heartbeat(instant)) for instant in new]
        for instant, stored in zip(new, table.io.gather(reads), strict=True):
            if stored is not None:
                self._records[instant] = HeartbeatRecord.from_bytes(stored.data)
        return {instant: record for instant, record in self._records.items() if record is not None}

    def _claims_now(self) -> tuple[dict[str, Claim], int]:
        table = self._coordinator.table
        listed = {(each.key, each.modified_ms) for each in islice(table.storage.list(layout.CLAIMS), MOST_LISTED)}
        self._claims = {at: claim for at, claim in self._claims.items() if at in listed}
        unknown = sorted(listed - self._claims.keys())
        new, left = unknown[:MOST_READS], unknown[MOST_READS:]
        reads = [partial(table.storage.get, key) for key, _ in new]
        for at, stored in zip(new, table.io.gather(reads), strict=True):
            if stored is not None:
                self._claims[at] = Claim.from_bytes(stored.data)
        return {key: claim for (key, _), claim in self._claims.items() if claim is not None}, len(left)

    def _newest(self, timeline: Timeline) -> tuple[HistoryEntry, ...]:
        table = self._coordinator.table
        newest = sorted(timeline.commits, key=lambda i: i.completion or i.requested, reverse=True)[: self._commits]
        new = [instant for instant in newest if instant.requested not in self._entries]
        reads = [partial(read_summary, table.storage, instant) for instant in new]
        for instant, summary in zip(new, table.io.gather(reads), strict=True):
            self._entries[instant.requested] = entry_of(instant, summary)
        self._entries = {instant.requested: self._entries[instant.requested] for instant in newest}
        return tuple(self._entries.values())
