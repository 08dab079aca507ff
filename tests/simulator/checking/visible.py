"""The rows of a simulated table by Hudi's rule: of each file group the newest file of a completed instant, unless replaced."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from lakelock.table.log_files import LogFile
from tests.api import CommitMetadata, DataFile, FileGroupId
from tests.simulator.operations import State, state_of
from tests.simulator.rows import Changes, Row, changes_of, merged, rows_of
from tests.simulator.storage import SimServer

Commits = Sequence[tuple[str, CommitMetadata]]
"""Visible commits by their instants."""


def slices_as_of(commits: Commits, moment: str) -> dict[FileGroupId, DataFile]:
    """The file slices as of an instant, as far as these commits are visible."""
    newest: dict[FileGroupId, DataFile] = {}
    replaced: set[FileGroupId] = set()
    for requested, metadata in commits:
        if requested <= moment:
            replaced |= metadata.replaced_groups
            for file in files_of(metadata):
                if file.group not in newest or newest[file.group].instant < file.instant:
                    newest[file.group] = file
    return {group: file for group, file in newest.items() if group not in replaced}


def files_of(metadata: CommitMetadata) -> list[DataFile]:
    """The files that a commit names."""
    return [file for stat in metadata.stats if (file := DataFile.parse(stat.path or "")) is not None]


def logs_of(metadata: CommitMetadata) -> list[LogFile]:
    """The log files that a commit names."""
    return [log for stat in metadata.stats if (log := LogFile.parse(stat.path or "")) is not None]


class VisibleTable:
    """The file slices now and as of earlier times, and their rows, also those of files that were cleaned since."""

    def __init__(self, server: SimServer) -> None:
        self._server = server
        self.commits: list[tuple[str, CommitMetadata]] = []
        self._slices: dict[FileGroupId, DataFile] = {}
        self._logs: dict[FileGroupId, list[tuple[str, LogFile]]] = {}
        self._completions: dict[str, str] = {}
        self._changes: dict[str, Changes] = {}
        self._cleaned: dict[str, tuple[Row, ...]] = {}

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The file slices now."""
        return tuple(self._slices.values())

    @property
    def logs(self) -> list[LogFile]:
        """The log files on the file slices now."""
        return [log for file in self.files for log in self._logs_on(file)]

    def slice_of(self, group: FileGroupId) -> DataFile | None:
        return self._slices.get(group)

    def show(self, requested: str, completion: str, metadata: CommitMetadata) -> list[DataFile]:
        """Show a commit; the slices that are not visible any more."""
        self.commits.append((requested, metadata))
        self._completions[requested] = completion
        for log in logs_of(metadata):
            self._logs.setdefault(log.group, []).append((completion, log))
            self._changes[log.key] = changes_of(log.key, self._server.objects[log.key].data)
        hidden = []
        for file in files_of(metadata):
            known = self._slices.get(file.group)
            if known is None or known.instant < file.instant:
                hidden += [known] if known is not None else []
                self._slices[file.group] = file
        return hidden + [self._slices.pop(group) for group in metadata.replaced_groups if group in self._slices]

    def take_out(self, instants: Container[str]) -> None:
        """Do not show these commits any more: others have removed their files, and a repair has said so."""
        self._slices = {group: file for group, file in self._slices.items() if file.instant not in instants}

    def clean(self, file: DataFile) -> None:
        """Remember the rows of a file that is about to be removed."""
        self._cleaned[file.key] = rows_of(file.key, self._server.objects[file.key].data)

    def now(self) -> State:
        return state_of(row for file in self._slices.values() for row in self.rows_now(file))

    def rows_now(self, file: DataFile) -> tuple[Row, ...]:
        """The rows of a newest base file with those of its log files: those that completed no earlier than its instant."""
        return self._merged(file, self._logs_on(file))

    def _logs_on(self, file: DataFile) -> list[LogFile]:
        return [log for completion, log in self._logs.get(file.group, ()) if completion >= file.instant]

    def as_of(self, moment: str, commits: int | None = None) -> State:
        """The table as of an instant, as far as the first so many commits, by default all, made it visible.

        A log file that lies on a base file of a later instant is not shown, as in Java Hudi.
        """
        known, later = self.commits[:commits], dict[FileGroupId, str]()
        for requested, metadata in known:
            for file in files_of(metadata) if requested > moment else ():
                later[file.group] = min(requested, later.get(file.group, requested))
        logs: dict[FileGroupId, list[LogFile]] = {}
        for requested, metadata in known:
            for log in logs_of(metadata) if requested <= moment else ():
                if self._completions[requested] < later.get(log.group, "9"):
                    logs.setdefault(log.group, []).append(log)
        files = slices_as_of(known, moment).values()
        return state_of(
            row
            for file in files
            for row in self._merged(
                file, (each for each in logs.get(file.group, ()) if self._completions[each.instant] >= file.instant)
            )
        )

    def completed_by(self, completion: str, commits: int) -> State:
        """What those of the first so many commits made that had completed by a time, if none of them rewrote a file."""
        known = [metadata for requested, metadata in self.commits[:commits] if self._completions[requested] <= completion]
        return state_of(row for metadata in known for file in files_of(metadata) for row in self._rows(file.key))

    def _merged(self, file: DataFile, logs: Iterable[LogFile]) -> tuple[Row, ...]:
        return merged(self._rows(file.key), [self._changes[log.key] for log in sorted(logs)])

    def _rows(self, key: str) -> tuple[Row, ...]:
        return self._cleaned[key] if key in self._cleaned else rows_of(key, self._server.objects[key].data)


def difference(expected: State, seen: State) -> str:
    """The rows in which two states differ, at most four."""
    places = [place for place in sorted(expected.keys() | seen.keys()) if expected.get(place) != seen.get(place)]
    shown = [f"{part}/{key} should be {expected.get((part, key))} and is {seen.get((part, key))}" for part, key in places[:4]]
    return "; ".join(shown)
