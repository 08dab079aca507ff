"""Which old files are kept, as of when the table can be read, and how long a run of upkeep may take.

The policy is pure: everything is decided from one listing of the timeline and the data files. A file is dead once a later one
of its group, or a replacement of the group, is in the table. It may go when:

* the policy does not keep it: the table stays readable as of `retained` and everything later, as Hudi defines that;
* its replacement has been in the table for `clean.readers_s`, so readers have had time to finish;
* every running transaction began after its replacement was there, so none has the file in its baseline.

The last two compare times that the storage stamped on timeline files, never clocks of two machines. Both make `retained`
earlier, never later, so our cleans state the same as those of Java's cleaner: everything older than `retained` is gone.
Cleans record it, and reads from before are refused.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Final

from lakelock.clock import Runtime
from lakelock.errors import InputError
from lakelock.markers.liveness import CLOCK_GRAIN_MS
from lakelock.occ.open_table import OpenTable
from lakelock.settings import CleanSettings
from lakelock.storage import Listed
from lakelock.table import layout
from lakelock.table.archive import archived_cleans
from lakelock.table.instants import Action, Instant, State, format_instant
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import LogFile
from lakelock.table.service_metadata import CleanMetadata, CleanPlan, read_clean
from lakelock.table.snapshot import DataFile
from lakelock.table.timeline import Timeline

READERS = "clean.readers_s"
COMMITS: Final = "KEEP_LATEST_COMMITS"
HOURS: Final = "KEEP_LATEST_BY_HOURS"
VERSIONS: Final = "KEEP_LATEST_FILE_VERSIONS"
HOUR_MS = 3_600_000
_NEVER = "9" * 17
"""Later than every instant."""


@dataclass(frozen=True)
class Appearances:
    """When writes appeared, by the storage's time: that of the files of the timeline, by key."""

    file_ms: Mapping[str, int]

    @classmethod
    def of(cls, files: Iterable[Listed]) -> Appearances:
        """From the files of the timeline."""
        return cls({item.key: item.modified_ms for item in files})

    def completed_ms(self, commit: Instant) -> int | None:
        """When it was completed; None if that is not known."""
        return self.file_ms.get(layout.timeline(commit.file_name))

    def pending_ms(self, write: Instant) -> int:
        """When it began; 0 if that is not known."""
        keys = (layout.timeline(replace(write, state=state).file_name) for state in (State.REQUESTED, State.INFLIGHT))
        return min((self.file_ms[key] for key in keys if key in self.file_ms), default=0)


@dataclass(frozen=True)
class Retention:
    """What has to stay: the table as of `retained` and later; `""` where nothing may be removed.

    `settled`: no transaction or reader still needs files that were superseded by a commit requested before this instant; `""`:
    all may be needed. `held_by` says what keeps more than the policy asks for; `wanted` is what the policy alone would retain.
    """

    policy: str
    retained: str
    action: str
    settled: str
    held_by: str = ""
    wanted: str = ""

    @property
    def by_policy_alone(self) -> Retention:
        """What would have to stay if no transaction and no reader needed more."""
        return replace(self, retained=self.wanted, settled=_NEVER, held_by="")

    @property
    def limit(self) -> str:
        """Whatever was superseded before it is needed by savepoints only; `""`: nothing may be removed."""
        return self.settled if self.policy == VERSIONS else min(self.retained, self.settled)


def retention(settings: CleanSettings, timeline: Timeline, shown: Appearances, now_ms: int, wall_ms: int) -> Retention:
    """What the settings, running transactions and readers need. `now_ms` is the storage's time, `wall_ms` this machine's.

    Hours are counted back from the earlier of the two: a machine whose clock is ahead removes nothing too early.
    """
    commits = timeline.commits
    wanted, action = _wanted_from(settings, timeline, min(now_ms, wall_ms))
    unsettled, why = _first_unsettled(commits, timeline, shown, now_ms - round(settings.readers_s * 1000))
    settled = unsettled.requested if unsettled is not None else _NEVER
    if unsettled is not None and (settings.policy == VERSIONS or (wanted and settled < wanted)):
        return Retention(settings.policy, settled, unsettled.action, settled, why, wanted)
    if settings.policy == VERSIONS:
        return Retention(settings.policy, "", "", settled)
    return Retention(settings.policy, wanted, action, settled, wanted=wanted)


def _wanted_from(settings: CleanSettings, timeline: Timeline, now_ms: int) -> tuple[str, str]:
    """The earliest instant that the policy keeps, and its action; nothing where all is kept, or the policy names none."""
    commits = timeline.commits
    if settings.policy == COMMITS and len(commits) > settings.keep_commits:
        first = commits[-settings.keep_commits]
        return first.requested, first.action
    if settings.policy == HOURS and commits:
        since = format_instant(max(0, now_ms - round(settings.keep_hours * HOUR_MS)))
        if since < timeline.first_active:
            return since, Action.COMMIT.value
        first = next((i for i in commits if i.requested >= since), commits[-1])
        return first.requested, first.action
    return "", ""


def _first_unsettled(
    commits: Sequence[Instant], timeline: Timeline, shown: Appearances, readers_since_ms: int
) -> tuple[Instant | None, str]:
    """The first commit whose superseded files a transaction or reader may still need, or None; and who needs them."""
    began = [(shown.pending_ms(i), i) for i in timeline.pending]
    oldest = min(began, key=lambda each: each[0], default=None)
    for commit in commits:
        shown_ms = shown.completed_ms(commit)
        if shown_ms is None or (oldest is not None and shown_ms + CLOCK_GRAIN_MS >= oldest[0]):
            return commit, f"{oldest[1].action} {oldest[1].requested}, which is still running" if oldest else ""
        if shown_ms > readers_since_ms:
            return commit, f"{READERS}, for readers that still use it"
    return None, ""


@dataclass(frozen=True)
class DeadFiles:
    """Files that may go. `readable_from`: the table is complete without them as of this instant and later."""

    files: tuple[DataFile | LogFile, ...]
    readable_from: str

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def by_partition(self) -> dict[str, tuple[str, ...]]:
        """Names by partition, both in order."""
        found: dict[str, list[str]] = defaultdict(list)
        for file in self.files:
            found[file.partition].append(file.name)
        return {partition: tuple(found[partition]) for partition in sorted(found)}


NO_DEAD_FILES = DeadFiles((), "")


def dead_files(
    retention: Retention,
    keep_versions: int,
    timeline: Timeline,
    files: Iterable[Listed],
    replaced: Mapping[FileGroupId, str],
    held: frozenset[str],
    held_groups: frozenset[FileGroupId],
    live_logs: Callable[[], Set[LogFile]] = frozenset,
) -> DeadFiles:
    """The files that are not needed. `files` were listed after the timeline; `held` are keys that a savepoint keeps.

    Invisible files (of active writers, or of writers that were rolled back) are none of a clean's business. A log file goes
    with the base file below it. `live_logs`, asked where there are log files: those on the newest base files, without sizes.
    """
    groups: defaultdict[FileGroupId, list[DataFile]] = defaultdict(list)
    logs: defaultdict[FileGroupId, list[LogFile]] = defaultdict(list)
    for listed in files:
        file = DataFile.parse(listed.key, listed.size_bytes)
        if file is not None and timeline.is_visible(file.instant):
            groups[file.group].append(file)
        log = LogFile.parse(listed.key, listed.size_bytes) if file is None else None
        if log is not None and timeline.is_visible(log.instant):
            logs[log.group].append(log)
    live = live_logs() if logs else frozenset()
    gone: list[DataFile | LogFile] = []
    readable_from = ""
    for group in groups.keys() | logs.keys():
        if group in held_groups:
            continue
        slices = sorted(groups[group], key=lambda file: file.instant)
        times, replacement = sorted({file.instant for file in slices}), replaced.get(group, "")
        ends = _superseded(retention, keep_versions, times, replacement, timeline)
        found: list[tuple[DataFile | LogFile, str]] = [(f, ends[f.instant]) for f in slices if f.instant in ends]
        for log in logs[group]:
            is_live = log._replace(size_bytes=0) in live
            end = _end_of_log(log, times, ends, timeline, is_live=is_live, is_replaced=bool(replacement))
            found += [(log, end)] if end else []
        for each, successor in found:
            if each.key not in held:
                gone.append(each)
                readable_from = max(readable_from, successor)
    return DeadFiles(tuple(sorted(gone, key=lambda file: file.key)), readable_from)


_BEFORE_ALL = ""
"""In place of the instant of a base file: what lies before the oldest one that is left."""


def _end_of_log(
    log: LogFile, times: Sequence[str], ends: Mapping[str, str], timeline: Timeline, *, is_live: bool, is_replaced: bool
) -> str:
    """The instant that superseded the slice of a log file that may be deleted; "" for a log file that stays.

    A log file belongs to the newest base file that began before the log file was completed. The completion of an archived one
    is not known here: if it is live it belongs to the newest base file, else it is deleted with the second newest. In a group
    that is replaced no log file is live, so there it is deleted with the newest.
    """
    commit = timeline.write_at(log.instant)
    if commit is not None:
        below = bisect_right(times, commit.completion or "")
        return ends.get(times[below - 1] if below else _BEFORE_ALL, "")
    below = len(times) - (1 if is_replaced else 2)
    return "" if is_live else ends.get(times[below] if below >= 0 else _BEFORE_ALL, "")


def _superseded(
    retention: Retention, keep_versions: int, times: Sequence[str], replacement: str, timeline: Timeline
) -> dict[str, str]:
    """The instants of one group's base files that may go, each with the one that replaced it."""
    by_versions = retention.policy == VERSIONS
    limit = retention.limit
    older = [_BEFORE_ALL, *times]
    if replacement and timeline.is_visible(replacement) and replacement < limit:
        return dict.fromkeys(older, replacement)
    kept = times[-keep_versions] if by_versions and len(times) >= keep_versions else _BEFORE_ALL if by_versions else "9"
    # The last file from before the limit stays: the table as of the limit has it.
    return {one: next_ for one, next_ in pairwise(older) if next_ < limit and one < kept}


_CLEAN_READS = 3
"""A pending clean vanishes between two requests once in a while, and hardly twice in a row."""


def newest_readable_from(table: OpenTable, timeline: Timeline) -> str:
    """The first instant as of which nothing is missing, `""` if no clean says. One read for each clean on the timeline.

    A pending clean counts: it may be deleting. The archiver leaves the newest clean there, and each clean of ours repeats what
    the ones before it said. If a pending one is gone when it is read, it was withdrawn, or has been completed and archived:
    then the timeline of now tells.
    """
    for look in range(_CLEAN_READS):
        cleans = timeline.cleanings
        looks = [partial(read_clean, table.storage, clean) for clean in cleans]
        records = table.io.gather(looks)
        known = all(record is not None or clean.is_completed for clean, record in zip(cleans, records, strict=True))
        if known or look + 1 == _CLEAN_READS:
            break
        timeline = table.timeline()
    return max((_recorded_by(clean, record) for clean, record in zip(cleans, records, strict=True)), default="")


def _recorded_by(clean: Instant, record: CleanMetadata | CleanPlan | None) -> str:
    if record is None:
        # What a pending clean deletes is not known without its plan.
        return "" if clean.is_completed else clean.requested
    return record.readable_from


def ensure_readable(table: OpenTable, timeline: Timeline, as_of: str) -> bool:
    """`InputError` that names the first readable instant when old files as of `as_of` were cleaned.

    A savepoint keeps the table readable as of exactly its instant. The answer says whether only a savepoint does.
    """
    first = newest_readable_from(table, timeline)
    if as_of < timeline.first_active:
        first = max(first, _archived_readable_from(table))
    if as_of >= first:
        return False
    saved = [i.requested for i in timeline.savepoints if i.is_completed]
    if as_of in saved:
        return True
    kept = f", or as of a savepoint: {', '.join(saved)}" if saved else ""
    raise InputError(
        f"{table.storage.uri} cannot be read as of {as_of}: files of that time were cleaned",
        hint=f"read as of {first} or later{kept}; to keep more, raise clean.keep_commits or clean.keep_hours",
    )


def _archived_readable_from(table: OpenTable) -> str:
    """The same by the cleans in the archive, where other engines move the newest one, too: as of later times it says nothing.

    Reads the whole archive.
    """
    cleans = (CleanMetadata.from_bytes(data, f"the archived clean {clean}") for clean, data in archived_cleans(table.storage))
    return max((clean.readable_from for clean in cleans), default="")


def hides_what_was_cleaned(table: OpenTable, timeline: Timeline, now: Timeline, as_of: str) -> bool:
    """Whether files as of `as_of` may have been cleaned after a commit superseded them that `timeline` does not show yet.

    That commit began before `as_of`, and became visible between `timeline` and the later listing `now`.
    """
    return timeline.lacks(now, as_of) and timeline.lacks(now, min(as_of, newest_readable_from(table, now)))


Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


def _no_progress(what: str, done: int, total: int) -> None:
    pass


@dataclass(frozen=True)
class Budget:
    """A deadline on the monotonic clock. Work that has begun is finished; the next run does the rest."""

    runtime: Runtime
    until_s: float
    progress: Progress = _no_progress

    @classmethod
    def of(cls, runtime: Runtime, budget_s: float, progress: Progress | None = None) -> Budget:
        return cls(runtime, runtime.monotonic_s() + budget_s, progress or _no_progress)

    def half(self) -> Budget:
        """A budget of half the time that is left, for a step that must leave time for those after it."""
        now_s = self.runtime.monotonic_s()
        return replace(self, until_s=now_s + max(0.0, self.until_s - now_s) / 2)

    @property
    def is_spent(self) -> bool:
        return self.runtime.monotonic_s() >= self.until_s
