"""What commits did, read from the timeline or the archive, each once per process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from lakelock.errors import RESTORE_FILE, CorruptTableError, StorageError, StorageUnavailable, damage_of_table
from lakelock.occ.records import commit_keys as keys
from lakelock.occ.records.commit_keys import AppTransaction
from lakelock.occ.records.decisions import DecisionLog
from lakelock.table import layout
from lakelock.table.archive import archive_names, completed_write, instants_in, writes_in
from lakelock.table.commit_effects import Applied, Coverage, Effect
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Instant
from lakelock.table.io import TableIO
from lakelock.table.timeline import Timeline

MOST_KEPT = 4_096
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
        unread = [instant for instant in active if instant.requested not in self._known]
        self._keep(self._gather(partial(self._read, timeline, instant) for instant in unread))
        # Read the archive after the active instants: an instant archived since the timeline was listed is in it.
        archived = self._archived_after(coverage, timeline)
        wanted = {instant.requested for instant in active}
        return [*(self._known[i.requested] for i in active), *(e for e in archived if e.instant not in wanted)]

    def forget(self, covered: Coverage) -> None:
        """Forget the effects that are in a checkpoint behind which nobody goes back."""
        self._known = {instant: effect for instant, effect in self._known.items() if not covered.covers(instant)}
        self._archived = {name: found for name, found in self._archived.items() if name not in covered.archive}

    def _read(self, timeline: Timeline, instant: Instant) -> Effect:
        decided = self._log.known(instant.requested)
        data = decided.payload if decided is not None else None
        if data is None:
            stored = self._storage.get(layout.timeline(instant.file_name))
            found = None if stored is not None else completed_write(self._storage, timeline, instant.requested)
            data = stored.data if stored is not None else found.data if found is not None else None
        if data is None:
            hint = "somebody archived or removed it just now; run the command again"
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
        new = [name for name in names if name not in self._archived]
        instants = self._gather(partial(instants_in, self._storage, name) for name in new)
        self._archived.update(zip(new, instants, strict=True))
        wanted = {
            name: {i for i in self._archived[name] if not coverage.covers(i) and timeline.is_visible(i)} for name in names
        }
        unread = {name: {i for i in found if i not in self._known} for name, found in wanted.items()}
        reads = (partial(writes_in, self._storage, name, found) for name, found in unread.items() if found)
        for writes in self._gather(reads):
            self._keep(effect_of(write.requested, write.completion, write.data) for write in writes)
        found = sorted(set().union(*wanted.values()))
        lost = [i for i in found if i not in self._known]
        if lost:
            raise CorruptTableError(f"the archive has {lost[0]} without its metadata", hint=RESTORE_FILE)
        return [self._known[i] for i in found]

    def _gather(self, calls: Iterable[Callable[[], object]]) -> list:  # type: ignore[type-arg]
        return self._io.gather(list(calls))

    def _keep(self, effects: Iterable[Effect]) -> None:
        if len(self._known) > MOST_KEPT:
            self._known = {}
        self._known.update((effect.instant, effect) for effect in effects)


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
