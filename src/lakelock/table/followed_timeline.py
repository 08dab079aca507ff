"""A timeline that is brought up to date by what is new on it, so that a look costs the same however long it has become.

What was requested before a *border* and is completed stays as it is, but for archivers, restores, savepoints, and writers whose
clocks are slow. So one part is kept from look to look, and only what comes after the border is made anew: from the storage's
own account of what has changed (`lakelock.storage.Watching`: a local disk), else from a listing.

No look misses anything: an account tells of each change before the border, and a listing asks for the names before it, too,
a page at each place where one began before, all at the same time. Only if these are the known ones, the part is kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

from lakelock.storage import Listed, changed
from lakelock.storage.base import Changes
from lakelock.table import layout
from lakelock.table.io import TableIO
from lakelock.table.timeline import Timeline

MOST_AT_ONCE = 900
"""So many known names are asked for in one request: an object store answers with a thousand, and some may be new."""
_FROM = len(layout.TIMELINE) + 1


@dataclass(frozen=True)
class _Known:
    """One state: the keys before the border and the `older` part that they show; all that has been listed of the rest, by key;
    and the whole. `mark`: see `Watching`. `is_of_one_moment`: whether the whole is a state that there was.
    """

    mark: int
    border: str
    settled: tuple[str, ...]
    older: Timeline
    names: Mapping[str, Listed]
    timeline: Timeline
    is_of_one_moment: bool


class FollowedTimeline:
    """The timeline of one table as a process knows it. Shared by threads: each look replaces the state as a whole."""

    def __init__(self, io: TableIO, *, few: int) -> None:
        """`few`: up to so many files, the timeline is listed whole."""
        self._io, self._few, self._stretch = io, few, min(3 * few, MOST_AT_ONCE)
        self._known: _Known | None = None
        self._is_watched = False
        self._has_pages = io.storage.listing_seeks

    def begin_listing(self) -> int:
        """Before the whole is listed: a mark for `listed`."""
        return changed(self._io.storage, layout.TIMELINE)[0] if self._is_watched else 0

    def listed(self, mark: int, files: Sequence[Listed], timeline: Timeline) -> None:
        """Go on from a listing of the whole, which began after `begin_listing`, and the timeline that it shows."""
        self._known = None
        if len(files) <= self._few:
            return
        if not mark:
            self._is_watched = changed(self._io.storage, layout.TIMELINE)[0] > 0
            if self._is_watched:
                return  # the next listing begins with a mark
        names = {item.key: item for item in files}
        self._known = self._cut(_Known(mark, "", (), Timeline((), ""), names, timeline, False))

    def look(self) -> Timeline | None:
        """The timeline as it is now, with all that was there before this call; None if it has to be listed.

        `CorruptTableError` for a commit that is torn, or is being written just now.
        """
        known = self._known
        if known is None:
            return None
        if known.mark:
            mark, found = changed(self._io.storage, layout.TIMELINE, known.mark)
            names = self._changed(known, found)
        else:
            mark, names = 0, self._names_now(known)
        if names is None:
            return None
        timeline = known.timeline
        if names is not known.names:
            timeline = known.older.followed_by(names[key] for key in sorted(names))
        # On a disk, names come in no order. After the border of a store, they come in one answer if they are few.
        of_one_moment = mark > 0 or (self._has_pages and len(names) <= self._few)
        now = _Known(mark, known.border, known.settled, known.older, names, timeline, of_one_moment)
        self._known = now = self._cut(now) if len(names) > 2 * self._few else now
        return now.timeline

    def is_of_one_moment(self, timeline: Timeline) -> bool:
        """Whether the last look gave this timeline, and it is a state that there was: each commit with those before it."""
        known = self._known
        return known is not None and known.timeline is timeline and known.is_of_one_moment

    def _changed(self, known: _Known, found: Changes | None) -> Mapping[str, Listed] | None:
        if found is None or any(key < known.border for key in found):
            return None
        if not found:
            return known.names
        names = {**known.names, **found}
        return {key: item for key, item in names.items() if item is not None}

    def _names_now(self, known: _Known) -> Mapping[str, Listed] | None:
        """What is listed after the border; None if others than the known names are listed before it."""
        starts = [""]
        if self._has_pages:
            starts += known.settled[self._stretch - 1 :: self._stretch]
            if len(known.settled) % self._stretch + len(known.names) > self._stretch:
                starts.append(known.border)
        ends = [*starts[1:], ""]
        parts = self._io.gather([partial(self._between, start, end) for start, end in zip(starts, ends, strict=True)])
        files = [item for part in parts for item in part]
        moved = bisect_left(files, known.border, key=_key)
        if tuple(map(_key, files[:moved])) != known.settled:
            return None
        return {item.key: item for item in files[moved:]}

    def _between(self, start_after: str, last: str) -> list[Listed]:
        """The files after a key up to another one; "" for the last of all."""
        found = self._io.storage.list(layout.TIMELINE, start_after=start_after)
        return list(takewhile(lambda item: item.key <= last, found) if last else found)

    def _cut(self, known: _Known) -> _Known:
        """The same with a later border, if that makes what is after it much shorter."""
        keys = sorted(known.names)
        border = self._border(known, keys)
        moved = bisect_left(keys, border)
        if not border or moved < self._few // 2:
            return known
        older = known.timeline.requested_before(border[_FROM:])
        names = {key: known.names[key] for key in keys[moved:]}
        timeline, settled = older.followed_by(names.values()), (*known.settled, *keys[:moved])
        return _Known(known.mark, border, settled, older, names, timeline, known.is_of_one_moment)

    def _border(self, known: _Known, keys: Sequence[str]) -> str:
        """The latest border: a key with which those of the first instant after it begin."""
        times = [time for time in (key[_FROM : _FROM + 17] for key in keys) if time.isdigit()]
        if not times:
            return ""
        # Writers of other processes show in a moment what is a little older than what has been shown: so some are left.
        border = times[-max(1, self._few // 2) :][0]
        pending = (i.requested for i in known.timeline.instants[len(known.older.instants) :] if not i.is_completed)
        return f"{layout.TIMELINE}/{min([border, *pending])}"


def _key(item: Listed) -> str:
    return item.key
