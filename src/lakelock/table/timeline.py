"""The timeline: which instants there are, how far each has come, and whose files may be read.

`Timeline` is a value made from one listing, so everything decided from it is decided from one moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from lakelock.errors import RESTORE_OR_ROLL_BACK, CorruptTableError, damage_of_table
from lakelock.storage import Listed, Storage
from lakelock.table import layout
from lakelock.table.history_files import HistoryFile
from lakelock.table.instants import WRITES, Action, Instant, State, completes_as, parse_file_name

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
        saved = {i.requested for i in ordered if i.action == Action.SAVEPOINT and i.is_completed}
        # Nothing after the end of the archive is archived. The instant of a writer with a slow clock, which is older than that,
        # says nothing about where the rest starts. If the end is not known, neither does a saved commit: it stays while later
        # ones are archived.
        telling = [i for i in ordered if i.is_write and (archived_to or i.requested not in saved)]
        first = next((i.requested for i in telling if i.requested > archived_to), "")
        # An archive always leaves completed commits. Where nothing was archived, a file older than all instants is that of a
        # writer with a slow clock that has only just begun, or that was rolled back while it was paused and wrote on.
        archivable = archived and any(i.is_completed for i in telling)
        return cls(ordered, first if archivable else "", has_archive=archived)

    @classmethod
    def from_listing(cls, files: Iterable[Listed]) -> Timeline:
        """The timeline that a listing of `.hoodie/timeline` shows; files that are no instants are skipped, as in Hudi.

        An empty completed commit is a torn write: Java would read it as a commit of nothing, so it is refused.
        """
        listed = list(files)
        return _shown(tuple([file.key for file in listed]), frozenset([file.key for file in listed if not file.size_bytes]))

    def up_to(self, earlier: Timeline) -> Timeline:
        """The timeline as it was at an earlier listing, which may lack something: what completed after that listing's newest
        commit was still pending, and cleans that it does not show had not begun.
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
        return tuple(i for i in self.instants if i.state is State.COMPLETED and i.is_write)

    @cached_property
    def completed_instants(self) -> frozenset[str]:
        """Requested times of `commits`."""
        return frozenset(i.requested for i in self.commits)

    @cached_property
    def pending(self) -> tuple[Instant, ...]:
        """Writers that have not completed: commit, deltacommit and replacecommit, each with a heartbeat while it lives."""
        return tuple(i for i in self.instants if i.state is not State.COMPLETED and i.action in WRITES)

    @cached_property
    def pending_services(self) -> tuple[Instant, ...]:
        """Plans of table services (clustering, compaction) that have not completed; they outlive their planner."""
        return tuple(i for i in self.instants if i.state is not State.COMPLETED and i.is_write and i.action not in WRITES)

    @cached_property
    def pending_clustering(self) -> tuple[Instant, ...]:
        """Clustering plans that were not executed yet: no other writer may rewrite their file groups."""
        return tuple(i for i in self.pending_services if i.action == Action.CLUSTERING)

    @cached_property
    def rollbacks(self) -> tuple[Instant, ...]:
        """Rollbacks in any state."""
        return tuple(i for i in self.instants if i.action == Action.ROLLBACK)

    @cached_property
    def cleanings(self) -> tuple[Instant, ...]:
        """Removals of old file slices, in any state."""
        return tuple(i for i in self.instants if i.action == Action.CLEAN)

    @cached_property
    def savepoints(self) -> tuple[Instant, ...]:
        """Savepoints in any state; each has the time of the commit that it keeps."""
        return tuple(i for i in self.instants if i.action == Action.SAVEPOINT)

    @cached_property
    def oldest_writes(self) -> tuple[Instant, ...]:
        """The oldest commit that an archiver may take, which is one that no savepoint keeps, and all writes before it that
        have not completed.
        """
        saved = {i.requested for i in self.savepoints if i.is_completed}
        commits = [i.requested for i in self.commits if i.requested not in saved]
        return tuple(
            i for i in self.instants if i.is_write and i.requested not in saved and (not commits or i.requested <= commits[0])
        )

    @cached_property
    def newest_time(self) -> str:
        """The greatest requested or completion time of anything, `""` when there is nothing."""
        return max((max(i.requested, i.completion or "") for i in self.instants), default="")

    @cached_property
    def newest_completion(self) -> str:
        """The latest time at which a commit became visible, `""` before the first."""
        return max((i.completion or i.requested for i in self.commits), default="")

    @cached_property
    def _writes(self) -> dict[str, Instant]:
        # By state: should two writers share a requested time, what one of them committed is not hidden.
        return {i.requested: i for i in sorted(self.instants, key=lambda i: i.state) if i.is_write}

    def write_at(self, requested: str) -> Instant | None:
        """The instant that writes data files under this requested time."""
        return self._writes.get(requested)

    def state_of(self, requested: str) -> State | None:
        """How far the write of this requested time has come, None when the active timeline does not have it."""
        instant = self._writes.get(requested)
        return instant.state if instant else None

    def is_visible(self, instant: str) -> bool:
        """Whether data files of this instant belong to the table.

        An instant from before the active timeline was archived, and only completed ones are.
        """
        if self.until is not None and instant > self.until:
            return False
        found = self._writes.get(instant)
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
    """The timeline that files show by their keys, and by being empty or not."""
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
    return replace(Timeline.of(instants, archived=archived, archived_to=archived_to), archive=tuple(archive))


@lru_cache(maxsize=4_096)
def _instant_at(key: str) -> Instant | None:
    folder, _, name = key.rpartition("/")
    return parse_file_name(name) if folder == layout.TIMELINE else None


def _completed_earlier(instant: Instant, known: Instant) -> bool:
    """Whether `instant` is the first of two completions of one instant; the later one never happened."""
    both = instant.state is State.COMPLETED and known.state is State.COMPLETED
    return both and (instant.completion or "") < (known.completion or "")


def read_timeline(storage: Storage) -> Timeline:
    """The timeline as it is now. One listing."""
    with damage_of_table(storage.uri):
        return Timeline.from_listing(storage.list(layout.TIMELINE))
