"""A timeline that is brought up to date by what is new on it, so that a look costs the same however long it has become.

What was requested before a *border* and is completed stays as it is, but for archivers, restores and savepoints. So one part is
kept from look to look, and what comes after the border is made anew: from the storage's own account of what has changed, which
misses nothing (`lakelock.storage.Watching`: a local disk), else from a listing of all names after the border.

A listing after the border misses what appears before it: an instant of a writer whose clock is slow by more than `SLACK_MS`, or
that took its time long before it showed it. So the border is never after an instant that is pending, and the whole timeline is
listed once in `WHOLE_EVERY_S` all the same, and when something is rolled back or restored. A short timeline is always listed
whole: that costs no more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakelock.clock import Runtime
from lakelock.storage import Listed, Storage, changed
from lakelock.storage.base import Changes
from lakelock.table import layout
from lakelock.table.instants import format_instant, parse_instant
from lakelock.table.timeline import Timeline

WHOLE_EVERY_S = 60.0
SLACK_MS = 30_000
"""Java's writers order their own instants right if their clocks differ by less than 0.2 s."""
ROOMY_SLACK_MS = 600_000
"""As long as the names of this time are few anyway."""
_FROM = len(layout.TIMELINE) + 1


@dataclass(frozen=True)
class _Known:
    """One state: the `older` part, all that has been listed of the rest, by key, and the whole. `mark`: see `Watching`."""

    since_s: float
    mark: int
    border: str
    older: Timeline
    names: Mapping[str, Listed]
    timeline: Timeline


class FollowedTimeline:
    """The timeline of one table as a process knows it. Shared by threads: each look replaces the state as a whole."""

    def __init__(self, storage: Storage, runtime: Runtime, *, few: int) -> None:
        """`few`: up to so many files, the timeline is listed whole."""
        self._storage, self._runtime, self._few = storage, runtime, few
        self._known: _Known | None = None
        self._is_watched = False

    def begin_listing(self) -> int:
        """Before the whole is listed: a mark for `listed`."""
        return changed(self._storage, layout.TIMELINE)[0] if self._is_watched else 0

    def listed(self, mark: int, files: Sequence[Listed], timeline: Timeline) -> None:
        """Go on from a listing of the whole, which began after `begin_listing`, and the timeline that it shows."""
        self._known = None
        if len(files) <= self._few:
            return
        if not mark:
            self._is_watched = changed(self._storage, layout.TIMELINE)[0] > 0
            if self._is_watched:
                return  # the next listing begins with a mark
        keys = [item.key for item in files]
        names = dict(zip(keys, files, strict=True))
        whole = _Known(self._runtime.monotonic_s(), mark, "", Timeline((), ""), names, timeline)
        self._known = self._cut(whole)

    def look(self, *, exactly: bool) -> Timeline | None:
        """The timeline as it is now; None if it has to be listed. `exactly`: nothing that has appeared may be missed.

        `CorruptTableError` for a commit that is torn, or is being written just now.
        """
        known = self._known
        if known is None or self._runtime.monotonic_s() - known.since_s >= WHOLE_EVERY_S:
            return None
        if known.mark:
            mark, found = changed(self._storage, layout.TIMELINE, known.mark)
            names = self._changed(known, found)
        else:
            mark, names = 0, None if exactly else self._after(known.border)
        if names is None:
            return None
        timeline = known.timeline
        if names is not known.names:
            timeline = known.older.followed_by(names[key] for key in sorted(names))
            # They may remove what is older than themselves.
            if timeline.restores != known.timeline.restores or timeline.rollbacks != known.timeline.rollbacks:
                return None
        if not all(i.is_completed for i in timeline.restores):
            return None
        now = _Known(known.since_s, mark, known.border, known.older, names, timeline)
        self._known = self._cut(now) if len(names) > 2 * self._few else now
        return timeline

    def is_long(self) -> bool:
        """Whether the last look listed so many names that they may not be of one moment."""
        known = self._known
        return known is not None and not known.mark and len(known.names) > self._few

    def _changed(self, known: _Known, found: Changes | None) -> Mapping[str, Listed] | None:
        if found is None or any(key < known.border for key in found):
            return None
        if not found:
            return known.names
        names = {**known.names, **found}
        return {key: item for key, item in names.items() if item is not None}

    def _after(self, border: str) -> Mapping[str, Listed]:
        return {item.key: item for item in self._storage.list(layout.TIMELINE, start_after=border)}

    def _cut(self, known: _Known) -> _Known:
        """The same with a later border, if that makes what is after it much shorter."""
        keys = sorted(known.names)
        border = self._border(known, keys)
        moved = bisect_left(keys, border)
        if not border or moved < self._few // 2:
            return known
        older = known.timeline.requested_before(border[_FROM:])
        names = {key: known.names[key] for key in keys[moved:]}
        return _Known(known.since_s, known.mark, border, older, names, older.followed_by(names.values()))

    def _border(self, known: _Known, keys: Sequence[str]) -> str:
        """The latest border: a key with which those of the first instant after it begin."""
        times = [time for time in (key[_FROM : _FROM + 17] for key in keys) if time.isdigit()]
        if not times:
            return ""
        # Writers of other processes show in a moment what is a little older than what has been shown: so some are left.
        border = times[-max(1, self._few // 2) :][0]
        if not known.mark:
            newest = max(times[-1], known.timeline.newest_completion)
            border = min(_before(newest, SLACK_MS), max(_before(newest, ROOMY_SLACK_MS), border))
        pending = (i.requested for i in known.timeline.instants[len(known.older.instants) :] if not i.is_completed)
        return f"{layout.TIMELINE}/{min([border, *pending])}"


def _before(instant: str, ms: int) -> str:
    return format_instant(max(0, parse_instant(instant) - ms))
