"""The file index of one open table: the state at any timeline that a process has listed.

A reader lists the timeline first. It then takes the newest checkpoint that covers nothing but what that timeline shows,
and adds the commits that the checkpoint does not cover, from the timeline and from files of the archive that are new since.
Where that is not possible the files are listed, as readers without an index do: `docs/adr/0016-a-file-index.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from lakelock.errors import CorruptTableError, LakelockError, StorageError, StorageUnavailable
from lakelock.occ.file_index.effects import Effects
from lakelock.occ.file_index.folder import CheckpointFolder
from lakelock.occ.file_index.overtaken import ensure_not_overtaken
from lakelock.occ.records.decisions import DecisionLog
from lakelock.settings import Settings
from lakelock.table.checkpoint import Checkpoint, IndexState
from lakelock.table.commit_effects import Coverage, Effect, Slice
from lakelock.table.io import TableIO
from lakelock.table.snapshot import DataFile, Slices, Snapshot, read_snapshot
from lakelock.table.statistics import FileStatistics
from lakelock.table.timeline import Timeline

T = TypeVar("T")

NOTHING = Checkpoint()
LOOKS = 3
"""How often the folder is listed when checkpoints vanish while they are read: the newest ones replace them."""


class FileIndex:
    """The states of one table, and the making of checkpoints. Shared by the threads of a process: what is remembered never
    changes, so at worst two threads read the same thing twice. `alert` receives a description of each problem.
    """

    def __init__(self, io: TableIO, settings: Settings, log: DecisionLog, alert: Callable[[str], None]) -> None:
        self._io, self._storage, self._alert = io, io.storage, alert
        self._every = settings.checkpoint.every_commits
        self._folder = CheckpointFolder(io.storage, alert)
        self._effects = Effects(io, log)
        # Some decisions are rollbacks, so the writer whose turn it is may find fewer commits.
        self._least = self._every // 2
        self._alerted = False
        self._behind = 0

    @property
    def is_on(self) -> bool:
        """Whether there is an index: `checkpoint.every_commits` is not 0."""
        return self._every > 0

    def state_at(self, timeline: Timeline) -> IndexState | None:
        """The state that the timeline shows; None if a few requests cannot tell, and the files have to be listed."""
        if not self.is_on or timeline.until is not None:
            return None
        try:
            base = self._base_for(timeline)
            if base is None:
                return None
            effects = self._effects.after(base.coverage, timeline)
        except StorageUnavailable:
            raise
        except (CorruptTableError, StorageError) as error:
            self._alert_once(error)
            return None
        self._behind = len(effects)
        return IndexState.after(base, effects)

    def snapshot_at(self, timeline: Timeline) -> Snapshot:
        """The snapshot that the timeline shows; `SnapshotTooOld` if it had to be listed and a cleaner was faster."""
        state = self.state_at(timeline)
        if state is None:
            return self._listed(timeline)
        return Snapshot(slices=_Guarded(state, partial(self._without, state, timeline)))

    def checkpoint_is_due(self, decision: int) -> bool:
        """Whether the writer of a decision, which is published, should make the next checkpoint. No request.

        Decisions are numbered without a gap, so one in `every_commits` of their writers does it. Commits missed, and those of
        other engines, are seen by whoever takes a snapshot.
        """
        self._behind += 1
        return self.is_on and (decision % self._every == 0 or self._behind > self._every)

    def make_checkpoint(self, list_timeline: Callable[[], Timeline], *, at_once: bool = False) -> int | None:
        """Make the next checkpoint if `every_commits` were made since the newest, or `at_once`; its number.

        None if none is due, or another writer was first. The checkpoint gets the number after the newest that was
        there before the timeline was listed, so it never covers less than one that it replaces.
        """
        self._behind = 0
        numbers = self._folder.numbers()
        newest = self._newest()
        timeline = list_timeline()
        if newest is not None and newest.coverage.is_within(timeline):
            effects = self._effects.after(newest.coverage, timeline)
            if not effects or (len(effects) < self._least and not at_once):
                return None
            state = IndexState.after(newest, effects)
        else:
            if not timeline.commits or (len(timeline.commits) < self._least and not at_once):
                return None
            state = self._rebuilt(timeline)
        made, number = state.checkpoint(timeline), numbers[0] + 1 if numbers else 1
        if not self._folder.put(number, made):
            return None
        if newest is not None:
            self._effects.forget(newest.coverage)
        return number

    def _base_for(self, timeline: Timeline) -> Checkpoint | None:
        """The newest checkpoint that the timeline can be reached from; lists only if the known ones are too far behind."""
        known = [one for one in self._folder.loaded if one.coverage.is_within(timeline)]
        if not timeline.archive and not timeline.first_active:
            known.append(NOTHING)
        if known and _behind(known[0], timeline) <= self._every:
            return known[0]
        for _ in range(LOOKS):
            numbers = self._folder.numbers()
            for number in numbers:
                found = self._folder.load(number)
                if found is not None and found.coverage.is_within(timeline):
                    return found
            if all(self._folder.is_settled(number) for number in numbers):
                break
        # Without any checkpoint, reading a long history to the last commit would cost more than listing the files.
        return known[0] if known and _behind(known[0], timeline) <= 2 * self._every else None

    def _newest(self) -> Checkpoint | None:
        found = (self._folder.load(number) for number in self._folder.listed)
        return next((one for one in found if one is not None), None)

    def _rebuilt(self, timeline: Timeline) -> IndexState:
        """The state from the timeline and the archive, and for what neither has, from the names of the files."""
        effects = self._effects.after(Coverage(), timeline)
        known = {effect.instant for effect in effects}
        older: dict[str, list[Slice]] = {}
        if timeline.first_active:
            for item in self._storage.list(""):
                file = DataFile.parse(item.key, item.size_bytes)
                if file is not None and file.instant not in known and timeline.is_visible(file.instant):
                    older.setdefault(file.instant, []).append(Slice(file))
        effects += [Effect(instant, "", tuple(slices)) for instant, slices in older.items()]
        return IndexState.after(NOTHING, effects)

    def _listed(self, timeline: Timeline) -> Snapshot:
        snapshot = read_snapshot(self._io, timeline)
        ensure_not_overtaken(self._io, timeline, snapshot)
        return snapshot

    def _without(self, state: IndexState, timeline: Timeline, error: CorruptTableError | StorageError) -> Snapshot:
        """The snapshot by other means, when the checkpoint that it rests on turned out to be unreadable."""
        number = self._folder.number_of(state.base)
        if number is not None:
            self._folder.give_up(number, error)
        return self._listed(timeline)

    def _alert_once(self, error: LakelockError) -> None:
        if not self._alerted:
            self._alerted = True
            self._alert(f"the files are listed, because the commits do not name them all: {error.message}")


def _behind(base: Checkpoint, timeline: Timeline) -> int:
    """How many commits of the timeline the checkpoint does not cover."""
    return sum(not base.coverage.covers(instant.requested) for instant in timeline.commits)


@dataclass
class _Guarded:
    """A state whose checkpoint is read piece by piece: if a piece is damaged or has been removed, the files are listed."""

    state: Slices
    otherwise: Callable[[CorruptTableError | StorageError], Snapshot]

    @property
    def partitions(self) -> tuple[str, ...]:
        return self._ask(lambda state: state.partitions)

    def in_partition(self, partition: str) -> tuple[DataFile, ...]:
        return self._ask(lambda state: state.in_partition(partition))

    def statistics(self, file: DataFile) -> FileStatistics:
        return self._ask(lambda state: state.statistics(file))

    def preload(self) -> None:
        self._ask(lambda state: state.preload())

    def _ask(self, question: Callable[[Slices], T]) -> T:
        try:
            return question(self.state)
        except StorageUnavailable:
            raise
        except (CorruptTableError, StorageError) as error:
            if not isinstance(self.state, IndexState):
                raise
            self.state = self.otherwise(error).slices
            return question(self.state)
