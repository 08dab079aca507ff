"""What upkeep may remove from a table: old files that nobody needs, and completed instants that the history has."""

from __future__ import annotations

from collections.abc import Iterable

from lakelock.occ.retention import COMMITS, VERSIONS
from lakelock.settings import ArchiveSettings, CleanSettings
from lakelock.table.history_files import HistoryFile, instants_in, read_history
from lakelock.table.service_metadata import SavepointMetadata
from tests.api import DataFile, Instant, Timeline, layout
from tests.simulator.checking.visible import Commits, files_of, slices_as_of
from tests.simulator.scheduler import Hub
from tests.simulator.storage import ObserversStorage, SimServer

_GRAIN_S = 0.001
"""The storage stamps whole milliseconds."""


class Deletions:
    """Judges each deletion at the moment when it takes effect."""

    def __init__(self, hub: Hub, server: SimServer, clean: CleanSettings, archive: ArchiveSettings) -> None:
        self._hub, self._storage, self._clean = hub, ObserversStorage(server), clean
        self._stays_s = max(archive.min_age_s, clean.readers_s)
        self._completed_s: dict[str, float] = {}
        self._superseded_s: dict[str, float] = {}
        self._saved: dict[str, SavepointMetadata] = {}
        self.broken: dict[str, str] = {}
        """By the name of a savepoint: which file was deleted while it kept that. Nobody may be told of such a savepoint."""
        self._archived: dict[str, frozenset[tuple[str, str]]] = {}

    def superseded(self, files: Iterable[DataFile]) -> None:
        """Later slices, or the replacements of their groups, have become visible."""
        self._superseded_s.update((file.key, self._hub.now_s) for file in files)

    def completed(self, requested: str) -> None:
        """A write has become visible."""
        self._completed_s[requested] = self._hub.now_s

    def too_young(self, requested: str) -> str:
        """Why this write must not leave the timeline yet, `""` if it may: whoever has listed it looks for it there."""
        age_s = self._hub.now_s - self._completed_s[requested]
        return f"it was completed {age_s:.3f} s ago" if age_s < self._stays_s - _GRAIN_S else ""

    def saved(self, key: str, data: bytes) -> None:
        """A savepoint was completed."""
        self._saved[key] = SavepointMetadata.from_bytes(data, key)

    def released(self, key: str) -> None:
        """A savepoint was deleted."""
        del self._saved[key]

    def promised_from(self, commits: Commits) -> str:
        """The instant as of which, and as of everything later, the settings promise to keep the table readable."""
        count = self._clean.keep_commits if self._clean.policy == COMMITS else 1
        return min(sorted(requested for requested, _ in commits)[-count:], default="")

    def still_needed(self, file: DataFile, commits: Commits, running: Iterable[tuple[str, float]]) -> str:
        """Why this file of a commit must not go now, `""` if it may. `running`: transactions, and when they began."""
        since_s = self._superseded_s.get(file.key)
        if since_s is None:
            return "nothing has superseded it"
        if self._hub.now_s - since_s < self._clean.readers_s - _GRAIN_S:
            return f"it was superseded only at {since_s:.3f} s, and readers may use it"
        for instant, began_s in running:
            if began_s < since_s:
                return f"the transaction {instant}, which began at {began_s:.3f} s, may use it"
        if self._clean.policy == VERSIONS:
            return self._of_newest(file, commits)
        promised = self.promised_from(commits)
        moments = [requested for requested, _ in commits if requested >= promised]
        kept = next((m for m in moments if slices_as_of(commits, m).get(file.group) == file), "")
        return kept and f"the table as of {kept} has it"

    def deleted(self, file: DataFile, by: str) -> None:
        """A file of a commit goes. Whoever took a savepoint that keeps it has to notice, and to withdraw the savepoint."""
        for savepoint, metadata in self._saved.items():
            if file.key in metadata.keys:
                detail = f"{by} deletes {file.key} at {self._hub.now_s:.3f} s: {savepoint} keeps it"
                self.broken.setdefault(metadata.comments, detail)

    def _of_newest(self, file: DataFile, commits: Commits) -> str:
        if any(file.group in metadata.replaced_groups for _, metadata in commits):
            return ""
        made = sorted(requested for requested, metadata in commits if any(s.group == file.group for s in metadata.stats))
        return "it is one of the newest files of its group" if file.instant in made[-self._clean.keep_versions :] else ""

    def superfluous(self, commits: Commits) -> list[str]:
        """Files that the settings, or a savepoint, have no reason to keep, once nobody is at work and readers have finished."""
        if self._clean.policy != COMMITS:
            return []
        promised = self.promised_from(commits)
        # A file stays as long as its successor, or the replacement of its group, is among the commits that are kept.
        before = [commit for commit in commits if commit[0] < promised]
        moments = [(commits, requested) for requested, _ in commits if requested >= promised] + [(before, promised)]
        kept = {file.key for some, moment in moments for file in slices_as_of(some, moment).values()}.union(
            *(metadata.keys for metadata in self._saved.values())
        )
        replaced = {group for requested, metadata in commits if requested >= promised for group in metadata.replaced_groups}
        named = {file.key for _, metadata in commits for file in files_of(metadata) if file.group not in replaced}
        return [item.key for item in self._storage.list("") if item.key in named - kept]

    def pending(self) -> list[str]:
        """The pending transactions on the timeline."""
        return [instant.requested for instant in self._timeline().pending]

    def archived(self) -> frozenset[tuple[str, str]]:
        """Requested time and action of each instant that the history has."""
        return frozenset().union(*(self._instants_in(file) for file in read_history(self._storage).files))

    def _instants_in(self, file: HistoryFile) -> frozenset[tuple[str, str]]:
        stored = self._storage.get(file.key)
        version = stored.etag if stored is not None else ""
        if version not in self._archived:
            self._archived[version] = frozenset(instants_in(self._storage, file))
        return self._archived[version]

    def lost(self, completed: Iterable[Instant]) -> list[str]:
        """Which of these instants are neither on the timeline nor in the history."""
        kept = {(i.requested, i.action) for i in self._timeline().instants if i.is_completed} | self.archived()
        return [i.file_name for i in completed if (i.requested, i.action) not in kept]

    def _timeline(self) -> Timeline:
        return Timeline.from_listing(self._storage.list(layout.TIMELINE))
