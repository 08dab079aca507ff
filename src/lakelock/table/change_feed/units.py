"""From commits to the file slices to compare: a unit for each file group that a commit, or a range of commits, changed.

A commit changes what readers see of a file group in three ways: it adds the group, gives it another slice, or replaces it by
nothing. The rows before and after are those of two files, or of one, so every unit can be compared on its own. Table services
change which files hold the rows, and no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from lakelock.errors import InputError
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Instant, as_of_time
from lakelock.table.layout import FileGroupId
from lakelock.table.snapshot import DataFile

FeedMode = Literal["commits", "net"]
"""`commits`: what each commit changed. `net`: what they changed together, from the first state to the last."""

FEED_MODES: tuple[FeedMode, ...] = get_args(FeedMode)

SERVICES = frozenset({"CLUSTER", "COMPACT", "LOG_COMPACT", "INDEX"})
"""Hudi's names of operations that move rows without changing any."""


class Commit(NamedTuple):
    """A completed write and what it did."""

    instant: Instant
    metadata: CommitMetadata

    @property
    def position(self) -> str:
        """When it became visible, which is its place in the feed."""
        return self.instant.completion or self.instant.requested

    @property
    def is_service(self) -> bool:
        """Whether it changed no row."""
        return (self.metadata.operation or "").upper() in SERVICES


class Unit(NamedTuple):
    """A file group as it was `before` and as it is `after` the commits up to `position`; None where it did not, or does not,
    exist. Both are not None, or the rows of the one that is are all inserted or all deleted.
    """

    before: DataFile | None
    after: DataFile | None
    position: str

    @property
    def partition(self) -> str:
        file = self.after or self.before
        assert file is not None, "a unit has a file"
        return file.partition

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in (self.before, self.after) if file is not None)


class MissingSlice(Exception):
    """The slice that a commit rewrote is not in the listing."""


@dataclass
class Shown:
    """What readers see of some file groups, as commit after commit becomes visible."""

    slices: dict[FileGroupId, DataFile]
    replaced: set[FileGroupId]

    @classmethod
    def before(cls, files: Iterable[DataFile], is_before: Callable[[DataFile], bool]) -> Shown:
        """What they see before the first commit: of each group the newest slice that was visible then."""
        newest: dict[FileGroupId, DataFile] = {}
        for file in filter(is_before, files):
            known = newest.get(file.group)
            if known is None or (file.instant, file.token) > (known.instant, known.token):
                newest[file.group] = file
        return cls(newest, set())

    def add(self, commit: Commit) -> dict[FileGroupId, tuple[DataFile | None, DataFile | None]]:
        """Make a commit visible; the slices before and after of each group of which readers see another slice now.

        `MissingSlice` if it rewrote a group whose slice is not known.
        """
        changed: dict[FileGroupId, tuple[DataFile | None, DataFile | None]] = {}
        for stat in commit.metadata.stats:
            file = DataFile.parse(stat.path, stat.file_size_bytes or 0) if stat.path else None
            if file is None or file.group in self.replaced:
                continue
            known = self.slices.get(file.group)
            if not stat.is_new_group and (known is None or known.instant < (stat.prev_commit or "")):
                raise MissingSlice(file.key)
            if known is None or file.instant > known.instant:
                changed[file.group] = (known, file)
                self.slices[file.group] = file
        for group in commit.metadata.replaced_groups - self.replaced:
            self.replaced.add(group)
            gone = self.slices.pop(group, None)
            first = changed.pop(group, (gone, None))[0]
            if first is not None:
                changed[group] = (first, None)
        return changed


def units_of(shown: Shown, commits: Sequence[Commit], mode: FeedMode, position: str = "") -> tuple[Unit, ...]:
    """The units of some commits, in the order in which they became visible, and of each in order of the file groups.

    In mode `net` all have the same `position`, by default that of the last commit. `MissingSlice` as above.
    """
    if mode == "net":
        return _net(shown, commits, position or (commits[-1].position if commits else ""))
    units = []
    for commit in commits:
        changed = shown.add(commit)
        if not commit.is_service:
            units += [Unit(*changed[group], commit.position) for group in sorted(changed)]
    return tuple(units)


def _net(shown: Shown, commits: Sequence[Commit], position: str) -> tuple[Unit, ...]:
    first: dict[FileGroupId, DataFile | None] = {}
    for commit in commits:
        for group, (before, _) in shown.add(commit).items():
            first.setdefault(group, before)
    ends = ((before, shown.slices.get(group)) for group, before in sorted(first.items()))
    return tuple(Unit(before, after, position) for before, after in ends if before != after)


def checked_mode(mode: str) -> FeedMode:
    """`InputError` for anything but a mode."""
    if mode not in FEED_MODES:
        raise InputError(
            f"there is no change feed of the kind {mode!r}",
            hint='use feed="commits" for what each commit changed, or feed="net" for what they changed together',
        )
    return mode


def in_need_of_pairs(units: Sequence[Unit]) -> frozenset[str]:
    """The partitions where one unit may delete and another insert the same row, or one with the same key."""
    counts: dict[str, int] = {}
    losing: set[str] = set()
    for unit in units:
        counts[unit.partition] = counts.get(unit.partition, 0) + 1
        if unit.before is not None:
            losing.add(unit.partition)
    return frozenset(partition for partition in losing if counts[partition] > 1)


def version_of(position: str) -> int:
    """A position as the number in `_commit_version`: 17 digits, so that they sort as the commits do."""
    return int(as_of_time(position)) if position else 0


def position_of(version: int) -> str:
    """The position with this number."""
    return as_of_time(str(version)) if version else ""
