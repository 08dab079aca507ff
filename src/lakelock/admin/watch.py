"""Looks at a table again and again, and sends few requests for it: what cannot change is read once."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import islice

from lakelock.admin.watched import Seen
from lakelock.markers.claims import Claim
from lakelock.markers.heartbeat import HeartbeatRecord
from lakelock.occ.conflicts.window import read_summary
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.outcomes.history import HistoryEntry, entry_of
from lakelock.storage import Listed
from lakelock.table import layout
from lakelock.table.instants import is_instant_time
from lakelock.table.timeline import Timeline

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
        # The timeline comes last: whoever committed meanwhile is then shown as committed, and not as at work.
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
