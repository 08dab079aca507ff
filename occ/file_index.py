"""The file index of one open table: the files at any timeline that a process has listed.

A reader lists the timeline first. It then takes the newest checkpoint that covers only what that timeline shows, and adds the
commits that the checkpoint does not cover, from the timeline and from files of the archive that are new since. Where that is
not possible the files are listed, as readers without an index do: `docs/adr/0016-a-file-index.md`. Checkpoints are numbered;
the first writer to put a number makes it, and the newest two are kept.

The cleaner can overtake a reader. If the reader takes longer than `clean.readers_s` of a cleaner, a file that the timeline
shows may be superseded and deleted before it is listed, and a listing does not tell that a file is missing. But a clean is on
the timeline, with the names of its files, before it deletes the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TypeVar

from lakelock.errors import (
    RESTORE_FILE,
    CorruptTableError,
    LakelockError,
    SnapshotTooOld,
    StorageError,
    StorageUnavailable,
    damage_of_table,
)
from lakelock.occ import commit_keys as keys
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.log import DecisionLog
from lakelock.settings import Settings
from lakelock.storage import Listed, Storage
from lakelock.storage.location import TableIO
from lakelock.table import layout
from lakelock.table.archive import archive_names, completed_write, instants_in, writes_in
from lakelock.table.checkpoint import Checkpoint, IndexState, LaterFormat
from lakelock.table.commit_metadata import CommitMetadata, FileStatistics
from lakelock.table.instants import Instant
from lakelock.table.layout import FileGroupId
from lakelock.table.metadata_table import listed_files
from lakelock.table.service_metadata import read_clean
from lakelock.table.snapshot import (
    Applied,
    CompletedLog,
    Coverage,
    DataFile,
    Effect,
    Slice,
    Slices,
    Snapshot,
    read_replaced,
    read_snapshot,
)
from lakelock.table.timeline import Timeline, read_timeline

MOST_EFFECTS = 4_096
"""The most effects to remember; those that a checkpoint covers are forgotten earlier."""


class Effects:
    """The effects of commits that no checkpoint covers yet. A commit's bytes never change."""

    def __init__(self, io: TableIO, log: DecisionLog) -> None:
        self._io, self._storage, self._log = io, io.storage, log
        self._known: dict[str, Effect] = {}
        self._archived: dict[str, frozenset[str]] = {}

    def after(self, coverage: Coverage, timeline: Timeline) -> list[Effect]:
        """The effects of all commits that the timeline shows, or has archived, and that are not covered.

        `CorruptTableError` or `StorageError` if one of them cannot be read.
        """
        active = [instant for instant in timeline.commits if not coverage.covers(instant.requested)]
        found = self._remembered(instant.requested for instant in active)
        unread = [instant for instant in active if instant.requested not in found]
        found |= self._keep(self._gather(partial(self._read, timeline, instant) for instant in unread))
        # Read the archive after the active instants: an instant archived since the timeline was listed is in it.
        archived = self._archived_after(coverage, timeline)
        return [*(found[i.requested] for i in active), *(e for e in archived if e.instant not in found)]

    def forget(self, covered: Coverage) -> None:
        """Forget the effects that are in a checkpoint behind which no reader goes back."""
        self._known = {instant: effect for instant, effect in list(self._known.items()) if not covered.covers(instant)}
        self._archived = {name: found for name, found in list(self._archived.items()) if name not in covered.archive}

    def _read(self, timeline: Timeline, instant: Instant) -> Effect:
        decided = self._log.known(instant.requested)
        data = decided.payload if decided is not None else None
        if data is None:
            stored = self._storage.get(layout.timeline(instant.file_name))
            found = None if stored is not None else completed_write(self._storage, timeline, instant.requested)
            data = stored.data if stored is not None else found.data if found is not None else None
        if data is None:
            hint = "another process archived or removed it just now; run the command again"
            raise CorruptTableError(f"{instant.file_name} is in the timeline but cannot be read", hint=hint)
        with damage_of_table(self._storage.uri):
            return effect_of(instant.requested, instant.completion or "", data, layout.timeline(instant.file_name))

    def _archived_after(self, coverage: Coverage, timeline: Timeline) -> list[Effect]:
        names = [name for name in timeline.archive if name not in coverage.archive]
        if not names:
            return []
        try:
            return self._of_archive(names, coverage, timeline)
        except StorageUnavailable:
            raise
        except StorageError:
            # Its files were merged since the timeline was listed; their content is in the present files.
            return self._of_archive([n for n in archive_names(self._storage) if n not in coverage.archive], coverage, timeline)

    def _of_archive(self, names: list[str], coverage: Coverage, timeline: Timeline) -> list[Effect]:
        known = self._archived
        new = [name for name in names if name not in known]
        instants = self._gather(partial(instants_in, self._storage, name) for name in new)
        known.update((name, its) for name, its in zip(new, instants, strict=True) if its is not None)
        counted = {name: known[name] for name in names if name in known}
        wanted = {name: {i for i in its if not coverage.covers(i) and timeline.is_visible(i)} for name, its in counted.items()}
        instants_wanted = sorted(set().union(*wanted.values()))
        found = self._remembered(instants_wanted)
        unread = {name: {i for i in its if i not in found} for name, its in wanted.items()}
        reads = (partial(writes_in, self._storage, name, its) for name, its in unread.items() if its)
        for writes in self._gather(reads):
            found |= self._keep([effect_of(write.requested, write.completion, write.data) for write in writes])
        lost = [i for i in instants_wanted if i not in found]
        if lost:
            raise CorruptTableError(f"the archive has {lost[0]} without its metadata", hint=RESTORE_FILE)
        return [found[i] for i in instants_wanted]

    def _gather(self, calls: Iterable[Callable[[], object]]) -> list:  # type: ignore[type-arg]
        return self._io.gather(list(calls))

    def _remembered(self, instants: Iterable[str]) -> dict[str, Effect]:
        """The effects of these commits that are known. Whoever goes on with them holds them: others may forget meanwhile."""
        known = self._known
        return {instant: known[instant] for instant in instants if instant in known}

    def _keep(self, effects: Sequence[Effect]) -> dict[str, Effect]:
        """Remember these effects; they are returned by their instants."""
        found = {effect.instant: effect for effect in effects}
        if len(self._known) > MOST_EFFECTS:
            self._known = {}
        self._known.update(found)
        return found


def effect_of(instant: str, completion: str, data: bytes, source: str = "") -> Effect:
    """The effect of the commit with these bytes, which are those of the file `source`."""
    metadata = CommitMetadata.from_bytes(data, source or instant)
    application = AppTransaction.from_extra(metadata.extra)
    applied = None
    if application is not None:
        operation = metadata.extra.get(keys.OPERATION) or metadata.operation or "write"
        writer = metadata.extra.get(keys.WRITER, "")
        applied = Applied(completion, instant, application.app_id, application.version, operation, writer)
    return Effect.of(instant, completion, metadata, applied)


READ_WHOLE_BYTES = 8_000_000
"""Up to this size a checkpoint is read by one request, and kept in memory; of a larger one, only the needed parts are read."""
CACHED_CHECKPOINTS = 3
"""How many checkpoints a process remembers."""


class CheckpointFolder:
    """The checkpoints of a table, as this process has read them. `alert` is called for those that cannot be read."""

    def __init__(self, storage: Storage, alert: Callable[[str], None]) -> None:
        self._storage, self._alert = storage, alert
        self._loaded: dict[int, Checkpoint] = {}
        self._unreadable: set[int] = set()
        self._sizes: dict[int, int] = {}

    @property
    def loaded(self) -> list[Checkpoint]:
        """The checkpoints already in memory, newest first."""
        return [one for _, one in sorted(self._loaded.items(), key=itemgetter(0), reverse=True)]

    @property
    def listed(self) -> list[int]:
        """The numbers of the newest listing, newest first."""
        return sorted(self._sizes, reverse=True)

    def is_settled(self, number: int) -> bool:
        """Whether looking again would not help: it was loaded, or cannot be read."""
        return number in self._loaded or number in self._unreadable

    def numbers(self) -> list[int]:
        """The existing numbers, newest first. One listing."""
        found = {layout.checkpoint_number(item.key): item.size_bytes for item in self._storage.list(layout.CHECKPOINTS)}
        self._sizes = {number: size for number, size in found.items() if number is not None}
        # One that others have removed still serves a transaction whose baseline is old.
        self._loaded = dict(sorted(self._loaded.items(), key=itemgetter(0))[-CACHED_CHECKPOINTS:])
        return self.listed

    def load(self, number: int) -> Checkpoint | None:
        """A checkpoint that was listed; None if it is gone, damaged, or of a later version of lakelock."""
        if number in self._loaded or number in self._unreadable:
            return self._loaded.get(number)
        key = layout.checkpoint(number)
        try:
            if self._sizes.get(number, 0) <= READ_WHOLE_BYTES:
                stored = self._storage.get(key)
                if stored is None:
                    return None
                self._loaded[number] = Checkpoint.from_bytes(stored.data, key)
            else:
                self._loaded[number] = Checkpoint.opened(partial(self._storage.open_input, key), key)
        except LaterFormat:
            self._unreadable.add(number)
        except StorageUnavailable:
            raise
        except (CorruptTableError, StorageError) as error:
            self.give_up(number, error)
        return self._loaded.get(number)

    def give_up(self, number: int, error: CorruptTableError | StorageError) -> None:
        """Do without a checkpoint that turned out to be unreadable."""
        self._loaded.pop(number, None)
        if number not in self._unreadable:
            self._unreadable.add(number)
            self._alert(f"checkpoint {number} of the file index is not used: {error.message}")

    def number_of(self, checkpoint: Checkpoint) -> int | None:
        """The number under which it was loaded."""
        return next((number for number, one in list(self._loaded.items()) if one is checkpoint), None)

    def put(self, number: int, checkpoint: Checkpoint) -> bool:
        """Make a checkpoint unless another process has made it, and remove those that it made superfluous."""
        if self._storage.put_if_absent(layout.checkpoint(number), checkpoint.to_bytes()) is None:
            return False
        readable = [known for known in sorted(self._sizes, reverse=True) if known not in self._unreadable]
        self._loaded[number] = checkpoint
        if readable:
            self._storage.delete(layout.checkpoint(known) for known in sorted(self._sizes) if known < readable[0])
        self._sizes[number] = 0
        return True


def ensure_not_overtaken(io: TableIO, timeline: Timeline, snapshot: Snapshot) -> None:
    """`SnapshotTooOld` if a clean that the timeline does not show has deleted what belongs to the listed snapshot.

    One listing, and one read of each clean that has begun since.
    """
    now = read_timeline(io.storage)
    known = {clean.requested for clean in timeline.cleanings}
    begun = [partial(read_clean, io.storage, clean) for clean in now.cleanings if clean.requested not in known]
    records = (record for record in io.gather(begun) if record is not None)
    deleted = (DataFile.parse(key) for record in records for key in record.keys)
    lost = [file for file in deleted if file and timeline.is_visible(file.instant) and _is_newer(file, snapshot)]
    if not lost:
        return
    replaced = read_replaced(io, timeline)
    missed = next((file for file in lost if file.group not in replaced), None)
    if missed is not None:
        raise SnapshotTooOld(
            f"{io.storage.uri}: {missed.key} was cleaned while the table's files were listed",
            hint="read again; if it happens often, raise clean.readers_s for the cleaner",
            file=missed.key,
        )


def _is_newer(file: DataFile, snapshot: Snapshot) -> bool:
    shown = snapshot.group(file.group)
    return shown is None or shown.instant < file.instant


T = TypeVar("T")

EMPTY_CHECKPOINT = Checkpoint()
READ_ATTEMPTS = 3
"""How often the folder is listed when checkpoints vanish while they are read: the newest ones replace them."""


class FileIndex:
    """The states of one table, and the making of checkpoints. Shared by the threads of a process: what is remembered never
    changes, so at worst two threads read the same thing twice. `alert` receives a description of each problem.
    """

    def __init__(
        self,
        io: TableIO,
        settings: Settings,
        log: DecisionLog,
        alert: Callable[[str], None],
        has_metadata_table: Callable[[], bool] = lambda: False,
    ) -> None:
        """`has_metadata_table`: whether Hudi's may list the files."""
        self._io, self._storage, self._alert, self._has_metadata_table = io, io.storage, alert, has_metadata_table
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

    def logs_at(self, timeline: Timeline) -> Mapping[FileGroupId, frozenset[CompletedLog]] | None:
        """The log files on the newest base files that the timeline shows; None if a few requests cannot tell."""
        state = self.state_at(timeline)
        try:
            return None if state is None else state.logs()
        except StorageUnavailable:
            raise
        except (CorruptTableError, StorageError) as error:
            self._give_up(state, error)
            return None

    def checkpoint_is_due(self, decision: int) -> bool:
        """Whether the writer of a decision, which is published, should make the next checkpoint. No request.

        Decisions are numbered without a gap, so one in `every_commits` of their writers does it. Commits missed, and those of
        other engines, are seen when a snapshot is taken.
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
            known.append(EMPTY_CHECKPOINT)
        if known and _behind(known[0], timeline) <= self._every:
            return known[0]
        for _ in range(READ_ATTEMPTS):
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
            for item in self._files(timeline):
                file = DataFile.parse(item.key, item.size_bytes)
                if file is not None and file.instant not in known and timeline.is_visible(file.instant):
                    older.setdefault(file.instant, []).append(Slice(file))
        effects += [Effect(instant, "", tuple(slices)) for instant, slices in older.items()]
        return IndexState.after(EMPTY_CHECKPOINT, effects)

    def _listed(self, timeline: Timeline) -> Snapshot:
        snapshot = read_snapshot(self._io, timeline, files=self._files(timeline))
        ensure_not_overtaken(self._io, timeline, snapshot)
        return snapshot

    def _files(self, timeline: Timeline) -> Iterable[Listed]:
        """The files of the table: as Hudi's metadata table lists them, if there is one and it is whole."""
        found = listed_files(self._io, timeline) if self._has_metadata_table() else None
        return self._storage.list("") if found is None else found

    def _without(self, state: IndexState, timeline: Timeline, error: CorruptTableError | StorageError) -> Snapshot:
        """The snapshot by other means, when the checkpoint that it rests on turned out to be unreadable."""
        self._give_up(state, error)
        return self._listed(timeline)

    def _give_up(self, state: IndexState | None, error: CorruptTableError | StorageError) -> None:
        number = self._folder.number_of(state.base) if state is not None else None
        if number is not None:
            self._folder.give_up(number, error)

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
