"""The timeline: which instants there are, how far each has come, and whose files may be read.

`Timeline` is a value made from one listing, so everything decided from it is decided from one moment. `FollowedTimeline` is
brought up to date by what is new, so that a look costs the same however long the timeline has become. What was requested
before a *border* and is completed stays as it is, but for archivers, restores, savepoints, and writers whose clocks are slow.
So one part is kept from look to look, and only what comes after the border is made anew: from the storage's own account of
what has changed (`lakelock.storage.Watching`: a local disk), else from a listing.

No look misses anything: an account tells of each change before the border, and a listing asks for the names before it, too,
a page at each place where one began before, all at the same time. Only if these are the known ones, the part is kept.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import islice, takewhile
from operator import attrgetter

from lakelock.errors import RESTORE_OR_ROLL_BACK, CorruptTableError, damage_of_table
from lakelock.storage import Listed, Storage, changed
from lakelock.storage.base import Changes
from lakelock.storage.location import TableIO
from lakelock.table import layout
from lakelock.table.history_files import HistoryFile
from lakelock.table.instants import WRITES, Action, Instant, State, completes_as, parse_file_name

_FOLDER = layout.TIMELINE + "/"
_HISTORY = layout.HISTORY + "/"


@dataclass(frozen=True)
class Timeline:
    """The active instants, one for each requested time and action, in its most advanced state, in order of request.

    `until`, when set, hides everything requested later (a look at the past); `first_active` stays that of the whole.
    `archive`: names of the archive's files in the same listing, each of which was there when it was made.
    `has_archive`: there may be instants that are older than all of these.
    """

    instants: tuple[Instant, ...]
    first_active: str
    until: str | None = None
    has_archive: bool = True
    archive: tuple[str, ...] = ()
    _older: Timeline | None = field(default=None, init=False, repr=False, compare=False)
    """The first of the instants, all completed, which one look shares with the next: what follows from them is found once."""

    @classmethod
    def of(cls, instants: Iterable[Instant], *, archived: bool = True, archived_to: str = "") -> Timeline:
        """The timeline of some instants, given in any order and any number of states.

        `archived`: there may be older ones. `archived_to`: the last instant of the archive, as far as it is known.
        """
        best: dict[tuple[str, str], Instant] = {}
        for instant in instants:
            key = (instant.requested, instant.action)
            known = best.get(key)
            if known is None or instant.state > known.state or _completed_earlier(instant, known):
                best[key] = instant
        for service in [i for i in best.values() if i.is_service]:
            done = best.get((service.requested, completes_as(service.action)))
            if done is not None and done.is_completed:
                del best[service.requested, service.action]
        ordered = tuple(best[key] for key in sorted(best))
        saved = _saved(ordered)
        # The active timeline begins after the end of the archive. An older instant, of a writer with a slow clock, does not
        # tell where. Nor does a commit with a savepoint if the end is not known: it stays while later ones are archived.
        telling = [i for i in ordered if i.is_write and (archived_to or i.requested not in saved)]
        first = next((i.requested for i in telling if i.requested > archived_to), "")
        # An archive always leaves completed commits. Where nothing was archived, a file older than all instants is that of a
        # writer with a slow clock that has only just begun, or that was rolled back while it was paused and wrote on.
        archivable = archived and any(i.is_completed for i in telling)
        return cls(ordered, first if archivable else "", has_archive=archived)

    def followed_by(self, names: Iterable[Listed]) -> Timeline:
        """The timeline that begins with these instants and goes on with files that were listed later, the archive's among them.

        All of these instants are completed, and requested before any in the list. What was archived of them since stays.
        """
        listed = list(names)
        found, archived_to = _read([item.key for item in listed], {item.key for item in listed if not item.size_bytes})
        first = found.first_active
        if found.has_archive and self.commits:
            # As in `of`.
            saved = frozenset[str]() if archived_to else _saved((*self.savepoints, *found.savepoints))
            mine = islice(self.commits, bisect_right(self.commits, archived_to, key=_requested), None)
            first = next((i.requested for i in mine if i.requested not in saved), "")
            telling = [i for i in found.instants if i.is_write and i.requested not in saved]
            if not first and (archived_to or any(i.is_completed for i in telling)):
                first = next((i.requested for i in telling if i.requested > archived_to), "")
        both = replace(found, instants=self.instants + found.instants, first_active=first)
        object.__setattr__(both, "_older", self)
        return both

    def requested_before(self, requested: str) -> Timeline:
        """The instants requested before a time, for `followed_by` if all of them are completed."""
        return Timeline(self.instants[: bisect_left(self.instants, requested, key=_requested)], "")

    @classmethod
    def from_listing(cls, files: Iterable[Listed]) -> Timeline:
        """The timeline that a listing of `.hoodie/timeline` shows; files that are no instants are skipped, as in Hudi.

        An empty completed commit is a torn write: Java would read it as a commit of nothing, so it is refused.
        """
        listed = list(files)
        return _shown(tuple([file.key for file in listed]), frozenset([file.key for file in listed if not file.size_bytes]))

    def up_to(self, earlier: Timeline) -> Timeline:
        """The timeline as it was at an earlier listing.

        What completed after that listing's newest commit is pending again, and cleans that the listing lacks are left out.
        """
        newest, known = earlier.newest_completion, {clean.requested for clean in earlier.cleanings}

        def then(instant: Instant) -> Instant:
            seen = not instant.is_completed or (instant.completion or instant.requested) <= newest
            return instant if seen else replace(instant, state=State.INFLIGHT, completion=None)

        there = (i for i in self.instants if i.action != Action.CLEAN or i.requested in known)
        return replace(self, instants=tuple(then(instant) for instant in there))

    def before(self, commits: Iterable[Instant]) -> Timeline:
        """The timeline as it was before these commits became visible, archived or not: it shows them as pending."""
        pending = {i.requested: replace(i, state=State.INFLIGHT, completion=None) for i in commits}
        others = [i for i in self.instants if not (i.is_completed and i.is_write and i.requested in pending)]
        return replace(self, instants=tuple(sorted([*others, *pending.values()], key=lambda i: (i.requested, i.action))))

    def with_completed(self, done: Instant) -> Timeline:
        """The timeline as it will be once a pending write is completed."""
        rest = (i for i in self.instants if (i.requested, i.action) != (done.requested, done.action))
        ordered = sorted((*rest, done), key=lambda i: (i.requested, i.action))
        return replace(self, instants=tuple(ordered))

    @cached_property
    def commits(self) -> tuple[Instant, ...]:
        """Completed instants that made data files visible, in order of request."""
        return self._first("commits") + tuple(i for i in self._newer if i.state is State.COMPLETED and i.is_write)

    def commits_since(self, earlier: Timeline) -> tuple[Instant, ...]:
        """Those of `commits` that an earlier look does not show as completed."""
        shared = self._older is not None and self._older is earlier._older
        commits = self.commits[len(self._first("commits")) :] if shared else self.commits
        return tuple(i for i in commits if not earlier.has_commit(i.requested))

    def latest(self, most: int) -> tuple[Instant, ...]:
        """The newest of `commits` by completion, newest first."""
        older = self._older.latest(most) if self._older is not None else ()
        return tuple(sorted((*self._newest_first[:most], *older), key=_completed, reverse=True)[:most])

    @cached_property
    def _newest_first(self) -> tuple[Instant, ...]:
        newer = self.commits[len(self._first("commits")) :]
        return tuple(sorted(newer, key=_completed, reverse=True))

    def has_commit(self, requested: str) -> bool:
        """Whether a commit of this requested time is among `commits`."""
        return self.state_of(requested) is State.COMPLETED

    @cached_property
    def completed_instants(self) -> frozenset[str]:
        """Requested times of `commits`."""
        older = self._older.completed_instants if self._older is not None else frozenset[str]()
        return older.union([i.requested for i in self._newer if i.state is State.COMPLETED and i.is_write])

    @cached_property
    def pending(self) -> tuple[Instant, ...]:
        """Writers that have not completed: commit, deltacommit and replacecommit, each with a heartbeat while it lives."""
        return self._first("pending") + tuple(i for i in self._newer if i.state is not State.COMPLETED and i.action in WRITES)

    @cached_property
    def pending_services(self) -> tuple[Instant, ...]:
        """Plans of table services (clustering, compaction) that have not completed; they outlive their planner.

        No other writer may rewrite their file groups.
        """
        found = (i for i in self._newer if i.state is not State.COMPLETED and i.is_write and i.action not in WRITES)
        return self._first("pending_services") + tuple(found)

    @cached_property
    def rollbacks(self) -> tuple[Instant, ...]:
        """Rollbacks in any state."""
        return self._first("rollbacks") + tuple(i for i in self._newer if i.action == Action.ROLLBACK)

    @cached_property
    def cleanings(self) -> tuple[Instant, ...]:
        """Removals of old file slices, in any state."""
        return self._first("cleanings") + tuple(i for i in self._newer if i.action == Action.CLEAN)

    @cached_property
    def savepoints(self) -> tuple[Instant, ...]:
        """Savepoints in any state; each has the time of the commit that it keeps."""
        return self._first("savepoints") + tuple(i for i in self._newer if i.action == Action.SAVEPOINT)

    @cached_property
    def oldest_writes(self) -> tuple[Instant, ...]:
        """The oldest commit that an archiver may take, which is one that no savepoint keeps, and all writes before it that
        have not completed.
        """
        saved = {i.requested for i in self.savepoints if i.is_completed}
        commits = list(islice((i.requested for i in self.commits if i.requested not in saved), 1))
        first = takewhile(lambda i: not commits or i.requested <= commits[0], self.instants)
        return tuple(i for i in first if i.is_write and i.requested not in saved)

    @cached_property
    def newest_time(self) -> str:
        """The greatest requested or completion time of anything, `""` when there is nothing."""
        older = self._older.newest_time if self._older is not None else ""
        return max([older, *(max(i.requested, i.completion or "") for i in self._newer)])

    @cached_property
    def newest_completion(self) -> str:
        """The latest time at which a commit became visible, `""` before the first."""
        older = self._older.newest_completion if self._older is not None else ""
        return max([older, *(i.completion or i.requested for i in self.commits[len(self._first("commits")) :])])

    @cached_property
    def _writes(self) -> dict[str, Instant]:
        # By state: should two writers share a requested time, what one of them committed is not hidden.
        return {i.requested: i for i in sorted(self._newer, key=lambda i: i.state) if i.is_write}

    @property
    def _newer(self) -> tuple[Instant, ...]:
        return self.instants if self._older is None else self.instants[len(self._older.instants) :]

    def _first(self, name: str) -> tuple[Instant, ...]:
        """What the older instants give under one of the names of this class."""
        found: tuple[Instant, ...] = () if self._older is None else getattr(self._older, name)
        return found

    def requested_from(self, requested: str) -> tuple[Instant, ...]:
        """What was requested at this time or later."""
        return self.instants[bisect_left(self.instants, requested, key=_requested) :]

    @cached_property
    def actions(self) -> frozenset[str]:
        """What there is."""
        older = self._older.actions if self._older is not None else frozenset[str]()
        return older.union([i.action for i in self._newer])

    @cached_property
    def restores(self) -> tuple[Instant, ...]:
        """Restores in any state, by which another engine undoes commits."""
        return self._first("restores") + tuple(i for i in self._newer if i.action == Action.RESTORE)

    def write_at(self, requested: str) -> Instant | None:
        """The instant that writes data files under this requested time."""
        found = self._writes.get(requested)
        return self._older.write_at(requested) if found is None and self._older is not None else found

    def state_of(self, requested: str) -> State | None:
        """How far the write of this requested time has come, None when the active timeline does not have it."""
        instant = self.write_at(requested)
        return instant.state if instant else None

    def is_visible(self, instant: str) -> bool:
        """Whether data files of this instant belong to the table.

        An instant from before the active timeline was archived, and only completed ones are.
        """
        if self.until is not None and instant > self.until:
            return False
        found = self.write_at(instant)
        return found.state is State.COMPLETED if found else instant < self.first_active

    def lacks(self, later: Timeline, as_of: str) -> bool:
        """Whether a later look at the timeline shows a commit from before or at `as_of` that this one does not show."""
        begun = (i.requested for i in (*later.commits, *self.pending) if i.requested <= as_of)
        return any(later.is_visible(instant) and not self.is_visible(instant) for instant in begun)

    def completed_after(self, completion: str, until: str | None = None) -> tuple[Instant, ...]:
        """Commits that completed after `completion` and not after `until`, in order of completion."""
        found = [
            i for i in self.commits if (i.completion or "") > completion and (until is None or (i.completion or "") <= until)
        ]
        return tuple(sorted(found, key=lambda i: (i.completion or "", i.requested)))

    def as_of(self, requested: str) -> Timeline:
        """The timeline without what was requested later."""
        return replace(self, instants=tuple(i for i in self.instants if i.requested <= requested), until=requested)


@lru_cache(maxsize=8)  # most listings show what the one before them showed
def _shown(keys: tuple[str, ...], empty: frozenset[str]) -> Timeline:
    return _read(keys, empty)[0]


def _read(keys: Iterable[str], empty: Container[str]) -> tuple[Timeline, str]:
    """The timeline that files show by their keys, and by being empty or not; and the last instant of the archive."""
    instants, archived, archive = [], False, []
    for key in keys:
        instant = _instant_at(key)
        if instant is None:
            archived = archived or key.startswith(_HISTORY)
            if key.startswith(_HISTORY) and key.endswith(".parquet"):
                archive.append(key[len(_HISTORY) :])
            continue
        if key in empty and instant.is_completed and instant.is_write:
            raise CorruptTableError(
                f"{key} is empty: the commit was torn while it was written",
                hint=RESTORE_OR_ROLL_BACK,
                file=key,
            )
        instants.append(instant)
    archived_to = max((file.last for name in archive if (file := HistoryFile.parse(name)) is not None), default="")
    found = Timeline.of(instants, archived=archived, archived_to=archived_to)
    return replace(found, archive=tuple(archive)), archived_to


_requested = attrgetter("requested")


def _completed(instant: Instant) -> tuple[str, str]:
    return instant.completion or instant.requested, instant.requested


def _saved(instants: Iterable[Instant]) -> frozenset[str]:
    """The commits that savepoints keep."""
    return frozenset(i.requested for i in instants if i.action == Action.SAVEPOINT and i.is_completed)


def _instant_at(key: str) -> Instant | None:
    name = key[len(_FOLDER) :]
    return parse_file_name(name) if key.startswith(_FOLDER) and "/" not in name else None


def _completed_earlier(instant: Instant, known: Instant) -> bool:
    """Whether `instant` is the first of two completions of one instant; the later one never happened."""
    both = instant.state is State.COMPLETED and known.state is State.COMPLETED
    return both and (instant.completion or "") < (known.completion or "")


def read_timeline(storage: Storage) -> Timeline:
    """The timeline as it is now. One listing."""
    with damage_of_table(storage.uri):
        return Timeline.from_listing(storage.list(layout.TIMELINE))


FEW = 60
"""How many files are enough after the border if the storage reports what has changed."""
MOST_AT_ONCE = 900
"""So many known names are asked for in one request: an object store answers with a thousand, and some may be new."""
_FROM = len(layout.TIMELINE) + 1


@dataclass(frozen=True)
class _Known:
    """What one look has found: the files before the border (`settled`) and the `older` timeline that they show; the files after
    it by key (`names`); and the whole `timeline`.

    `mark`: see `Watching`. `is_of_one_moment`: whether the whole timeline has ever been in exactly this state.
    """

    mark: int
    border: str
    settled: tuple[Listed, ...]
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
        """The mark that `listed` needs; to be called before the whole timeline is listed."""
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
        # A listing is of one moment if it is one answer: a store gives few names in one, a disk lists in no order.
        of_one_moment = mark > 0 or (self._has_pages and len(names) <= self._few)
        now = _Known(mark, known.border, known.settled, known.older, names, timeline, of_one_moment)
        self._known = now = self._cut(now) if len(names) > 2 * self._kept(now) else now
        return now.timeline

    def is_of_one_moment(self, timeline: Timeline) -> bool:
        """Whether the last look gave this timeline, and the table once had just this one: no commit lacks those before it."""
        known = self._known
        return known is not None and known.timeline is timeline and known.is_of_one_moment

    def files(self, timeline: Timeline) -> Sequence[Listed] | None:
        """The files that the last look found, if it gave this timeline."""
        known = self._known
        if known is None or known.timeline is not timeline:
            return None
        return [*known.settled, *(known.names[key] for key in sorted(known.names))]

    def _changed(self, known: _Known, found: Changes | None) -> Mapping[str, Listed] | None:
        if found is None or any(key < known.border for key in found):
            return None
        if not found:
            return known.names
        names = {**known.names, **found}
        return {key: item for key, item in names.items() if item is not None}

    def _names_now(self, known: _Known) -> Mapping[str, Listed] | None:
        """The files after the border; None if the names before it are not exactly the known ones."""
        starts = [""]
        if self._has_pages:
            starts += map(_key, known.settled[self._stretch - 1 :: self._stretch])
            if len(known.settled) % self._stretch + len(known.names) > self._stretch:
                starts.append(known.border)
        ends = [*starts[1:], ""]
        parts = self._io.gather([partial(self._between, start, end) for start, end in zip(starts, ends, strict=True)])
        files = [item for part in parts for item in part]
        moved = bisect_left(files, known.border, key=_key)
        if list(map(_key, files[:moved])) != list(map(_key, known.settled)):
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
        if not border or moved < self._kept(known) // 2:
            return known
        older = known.timeline.requested_before(border[_FROM:])
        names = {key: known.names[key] for key in keys[moved:]}
        timeline, settled = older.followed_by(names.values()), (*known.settled, *(known.names[key] for key in keys[:moved]))
        return _Known(known.mark, border, settled, older, names, timeline, known.is_of_one_moment)

    def _kept(self, known: _Known) -> int:
        """About so many files are after the border. Each look reads their names again."""
        return min(FEW, self._few) if known.mark else self._few

    def _border(self, known: _Known, keys: Sequence[str]) -> str:
        """The latest possible border: the beginning of the keys of the first instant after it."""
        times = [time for time in (key[_FROM : _FROM + 17] for key in keys) if time.isdigit()]
        if not times:
            return ""
        # Writers of other processes show in a moment what is a little older than what has been shown: so some are left.
        border = times[-max(1, self._kept(known) // 2) :][0]
        pending = (i.requested for i in known.timeline.instants[len(known.older.instants) :] if not i.is_completed)
        return f"{layout.TIMELINE}/{min([border, *pending])}"


def _key(item: Listed) -> str:
    return item.key
