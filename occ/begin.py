"""The beginning of a transaction: an instant of its own, and the baseline, which is the state that it has seen.

The order of the steps is the protocol (docs/concepts.md, step 1): list the log and note its head, and start the heartbeat;
then the requested file; then list the timeline. If the log's head had decided a commit, it must be visible in that listing,
else it is published and the beginning starts over. The window is everything that was decided after the noted head and is not
visible in that listing.

`WriteContext` and `Detached` are plain values that carry an open transaction to other processes: to the tasks that write its
files, and to its next driver. `OwnWrites` is what it has written so far. Its next write may rewrite these files before they are
committed. A file group still gets one file: the commit counts the newest, and removes the others as those of failed tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from lakelock.conflict import Conflict, ConflictRule, Party
from lakelock.errors import ConflictError, LakelockError, TableError, TransactionError
from lakelock.events import EventKind, Step, reached
from lakelock.identity import WriterIdentity
from lakelock.markers.data_files import Announced, MarkerKind, announcements, first_file
from lakelock.markers.heartbeat import Heartbeat, HeartbeatRecord
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.create import current_properties, ensure_writable
from lakelock.occ.log import DecisionKind, LogView, Reservation, decided_for
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publish import InstantFate, finish_head, newest_commit, shown_fate
from lakelock.settings import Settings
from lakelock.storage.location import StorageLocation, TableIO, requests_at_once
from lakelock.table import layout
from lakelock.table.base_files import Stamp
from lakelock.table.commit_metadata import UNKNOWN, FileStatistics, WriteStat, requested_replace_bytes
from lakelock.table.eligibility import check_writable
from lakelock.table.instants import Action, Instant, State, later_than
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import LogFile
from lakelock.table.metadata_table import GoneMeanwhile
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile, Snapshot
from lakelock.table.timeline import Timeline
from lakelock.texts import command

BEGIN_ATTEMPTS = 50


@dataclass(frozen=True)
class Baseline:
    """What a transaction had seen when it began. Picklable.

    `first` is the head of the decision log noted before the instant existed, or the number before it if the head is a
    prepare: every decision up to it is finished, and visible in `timeline` if it committed; every later one that is not visible
    there belongs to the window. `reservations` are those that there were
    then.
    """

    instant: str
    action: str
    operation: str
    first: int
    timeline: Timeline
    properties: TableProperties
    reservations: tuple[Reservation, ...] = ()

    def saw(self, instant: str) -> bool:
        """True when the transaction's snapshot contains what this instant did."""
        return self.timeline.has_commit(instant)


def begin(
    table: OpenTable, operation: str, action: Action, new_group: FileGroupId | None = None
) -> tuple[Baseline, Heartbeat, Announced | None]:
    """Take an instant and a baseline; the heartbeat runs. `TableError` if the table must not be written: nothing stays then.

    The first file of a `new_group` is announced together with the last request.
    """
    looked = False
    for _ in range(BEGIN_ATTEMPTS):
        instant = later_than(table.runtime.now_ms(), table.observed.newest_time or None)
        properties, numbers, heartbeat = _note_and_beat(table, instant, operation)
        # What is noted here is older than the instant, whatever the concurrent look at the log shows.
        known = table.log.known_boundary
        first = max([known, *numbers[-1:]])
        view = _take_instant(table, heartbeat, instant, action, numbers) if heartbeat is not None else None
        if heartbeat is None or view is None:
            table.observed.time_seen(instant)
            continue
        # Another may have had the instant, and gave it up after its rollback was decided.
        if not known <= view.boundary <= first or decided_for(instant, view.decisions) is not None:
            give_up(table, heartbeat, instant, action)
            continue
        timeline, announced = _begun(table, heartbeat, instant, action, new_group, has_decided=bool(view.decisions))
        try:
            ensure_not_restored(table, timeline)
        except TableError:
            give_up(table, heartbeat, instant, action, new_group)
            raise
        head = newest_commit(view)
        unpublished = head is not None and shown_fate(timeline, head.instant) is InstantFate.PENDING
        if head is not None and unpublished and head.instant not in table.observed.void:
            give_up(table, heartbeat, instant, action, new_group)
            with suppress(GoneMeanwhile), table.locked(operation=operation):
                finish_head(table, table.log.look(), table.timeline())
            continue
        # A log file lies on the newest base file that is not younger than its completion. So a base file into which log files
        # are merged has to be younger than the completion of each.
        if properties.is_merge_on_read and timeline.newest_completion >= instant:
            if not looked:  # the clock of another may be fast
                looked = True
                table.observed.time_seen(timeline.newest_completion)
                give_up(table, heartbeat, instant, action, new_group)
                continue
            # Leave out what completes during this call: otherwise many fast writers could keep a transaction from beginning.
            timeline = timeline.before(i for i in timeline.commits if (i.completion or i.requested) >= instant)
        # Readers order slices by requested time, so a slice may only build on slices of older instants. Neither a requested
        # file nor a heartbeat, which its owner removes when it ends, keeps another action from taking the same time.
        # A rollback that was requested later may target an earlier use of this instant.
        others = [i for i in timeline.requested_from(instant) if (i.requested, i.action) != (instant, action)]
        shared = any(i.requested == instant for i in others)
        if shared or any(i.action == Action.ROLLBACK or (i.is_write and i.is_completed) for i in others):
            give_up(table, heartbeat, instant, action, new_group)
            continue
        reached(Step.BEGUN)
        table.emit(EventKind.BEGAN, instant, operation, commits=len(timeline.commits), decision=view.head)
        if view.decisions and view.decisions[-1].kind is DecisionKind.PREPARE:
            first -= 1  # it stays in the window: its outcome is not awaited here
        baseline = Baseline(instant, action.value, operation, first, timeline, properties, view.reservations)
        return baseline, heartbeat, announced
    raise TransactionError(
        f"could not allocate an instant on {table.storage.uri} in {BEGIN_ATTEMPTS} attempts: "
        "others commit faster than this can begin",
        hint="run again; if it persists, check that this machine's clock is right: " + command("doctor", table.storage.uri),
    )


def ensure_not_restored(table: OpenTable, timeline: Timeline) -> None:
    """`TableError` while another engine restores the table: it takes one commit after the other out. Java refuses, too."""
    restore = next((each for each in timeline.restores if not each.is_completed), None)
    if restore is not None:
        raise TableError(
            f"{table.storage.uri} is not written: the {restore} of another engine takes commits out of it",
            hint="let it end; if it has died, run it again in that engine, with the same savepoint",
        )


def _note_and_beat(table: OpenTable, instant: str, operation: str) -> tuple[TableProperties, list[int], Heartbeat | None]:
    """Read the properties and the numbers of the log, and start the heartbeat: None if another writer has the instant.

    An error leaves no heartbeat. The heartbeat keeps decisions from being collected, from the start of the window or one number
    earlier, since the head may be a prepare. A process that has listed the log before starts it with the number known from
    then, which saves waiting for a request. If that number turns out to be old, the heartbeat is started again, because it
    would keep decisions that no one needs.
    """
    started: list[Heartbeat] = []

    def beat(newest: int) -> None:
        record = HeartbeatRecord(
            instant=instant,
            writer=table.writer,
            operation=operation,
            first=max(table.log.known_boundary, newest - 1),
            interval_s=table.settings.heartbeat.interval_s,
            tolerable_misses=table.settings.heartbeat.tolerable_misses,
        )
        heartbeat = Heartbeat.start(table.storage, record, table.runtime)
        if heartbeat is not None:
            started.append(heartbeat)
            reached(Step.HEARTBEAT_STARTED)

    known = table.log.newest
    properties_now = partial(current_properties, table)
    try:
        if known:
            properties, numbers, _ = table.at_once(properties_now, table.log.numbers, partial(beat, known))
        else:
            properties, numbers = table.at_once(properties_now, table.log.numbers)
        table.ensure_as_opened(properties)
        properties = ensure_writable(table, properties, record=True)
        newest = numbers[-1] if numbers else 0
        if not known:
            beat(newest)
        elif started and newest - known > table.settings.decisions.collect_above:
            old = started.pop()
            old.stop(delete=True)
            # A heartbeat that is too old may have been rolled back, by a decision below the window of this transaction.
            if old.alive():
                beat(newest)
    except BaseException:
        for heartbeat in started:
            heartbeat.stop(delete=True)
        raise
    return properties, numbers, started[0] if started else None


def _take_instant(
    table: OpenTable, heartbeat: Heartbeat, instant: str, action: Action, numbers: Sequence[int]
) -> LogView | None:
    """Put the requested file of an instant that has a heartbeat, and look at the log; None when it is another's."""
    made: list[bool] = []

    def put() -> None:
        content = requested_replace_bytes() if action is Action.REPLACE_COMMIT else b""
        made.append(table.storage.put_if_absent(requested_key(instant, action), content) is not None)
        reached(Step.REQUESTED)

    try:
        _, view = table.at_once(put, partial(table.log.look, listed=numbers))
        table.ensure_same_lock(view)
    except BaseException:
        if made == [True]:
            give_up(table, heartbeat, instant, action)
        # Else the file may exist. The heartbeat goes stale, and the process that finds the writer dead removes both.
        heartbeat.stop(delete=made == [False])
        raise
    if made == [True]:
        return view
    heartbeat.stop(delete=True)
    return None


def _begun(
    table: OpenTable,
    heartbeat: Heartbeat,
    instant: str,
    action: Action,
    new_group: FileGroupId | None,
    *,
    has_decided: bool,
) -> tuple[Timeline, Announced | None]:
    """List the timeline, put the inflight file, and announce the first file of a `new_group`, all at the same time.

    Call it after the requested file is put: an inflight file never exists alone. `has_decided`: whether the log has decisions.
    """
    made: list[bool] = []

    def put() -> None:
        table.storage.put_if_absent(inflight_key(instant, action), b"")
        made.append(True)
        reached(Step.INFLIGHT)

    announced, requests = None, list[Callable[[], object]]()
    if new_group is not None:
        announced = Announced(first_file(new_group, instant), table.runtime.monotonic_s())
        requests = announcements(table.storage, announced.file, MarkerKind.CREATE, with_partition=True)
    try:
        timeline: Timeline = table.at_once(table.timeline, put, *requests)[0]
        if has_decided and not timeline.commits:
            timeline = table.ensure_timeline_is_whole(timeline)
    except BaseException as error:
        # Of a table that is gone, or is another one, nothing is left behind; on a disk the inflight file was not put yet then.
        if made or isinstance(error, TableError):
            give_up(table, heartbeat, instant, action, new_group)
        heartbeat.stop(delete=False)
        raise
    if announced is not None:
        reached(Step.MARKED)
    return timeline, announced


def give_up(table: OpenTable, heartbeat: Heartbeat, instant: str, action: Action, new_group: FileGroupId | None = None) -> None:
    """Give up an instant that has written and decided nothing. The next writer removes what cannot be removed now.

    The inflight file is deleted before the requested one: an inflight file alone makes Java's rollback fail, and so every Java
    writer. `new_group`: the one that was announced.
    """
    table.observed.time_seen(instant)
    heartbeat.stop(delete=False)
    with suppress(LakelockError):
        if new_group is not None:
            file = first_file(new_group, instant)
            table.storage.delete([layout.marker(instant, file.partition, file.name, MarkerKind.CREATE.value)])
        table.storage.delete([inflight_key(instant, action)])
        table.storage.delete([requested_key(instant, action)])
        reached(Step.GIVEN_UP)
        heartbeat.stop(delete=True)


def check_unchanged(baseline: Baseline, now: TableProperties, party: Party) -> None:
    """Raise if properties that matter to a writer have changed since the baseline."""
    check_writable(now)
    changed = sorted(baseline.properties.differences(now))
    if changed:
        conflict = Conflict.over(
            ConflictRule.PROTOCOL,
            party,
            Party("", "change of hoodie.properties"),
            changed,
            detail="the table's properties changed while this transaction was running",
        )
        raise ConflictError(replace(conflict, retry_helps=True))


def requested_key(instant: str, action: Action) -> str:
    return layout.timeline(Instant(instant, action.value, State.REQUESTED).file_name)


def inflight_key(instant: str, action: Action) -> str:
    return layout.timeline(Instant(instant, action.value, State.INFLIGHT).file_name)


@dataclass(frozen=True)
class OwnFile:
    """A file of this transaction, and the one of the table from which it was made; None in a new file group."""

    file: DataFile
    made_from: DataFile | None


@dataclass(frozen=True)
class OwnWrites:
    """The files of a transaction's writes up to now: one for each file group, which counts the rows of all writes."""

    stats: tuple[WriteStat, ...] = ()

    def followed_by(self, stats: Iterable[WriteStat]) -> OwnWrites:
        """With the files of a later write."""
        found = {stat.group: stat for stat in self.stats}
        for stat in stats:
            before = found.get(stat.group)
            found[stat.group] = stat if before is None else _merged(before, stat)
        return OwnWrites(tuple(found.values()))

    def over(self, snapshot: Snapshot) -> Snapshot:
        """The `snapshot` of the transaction's baseline with these files in it: what its next write sees."""
        files = [(_own_file(stat, snapshot), stat) for stat in self.stats]
        rows = {file: UNKNOWN if file.logs else FileStatistics(rows=stat.num_writes) for file, stat in files}
        return snapshot.with_files(rows) if rows else snapshot

    def files(self, snapshot: Snapshot) -> tuple[OwnFile, ...]:
        return tuple(OwnFile(_own_file(stat, snapshot), snapshot.group(stat.group)) for stat in self.stats)


def _own_file(stat: WriteStat, snapshot: Snapshot) -> DataFile:
    """The file, or, where a log file was appended, the slice with it."""
    path, size_bytes = stat.path or "", stat.file_size_bytes or 0
    if (log := LogFile.parse(path, size_bytes)) is not None:
        below = snapshot.group(stat.group)
        assert below is not None, "a log file was appended to something"
        return below._replace(logs=(*below.logs, log))
    found = DataFile.parse(path, size_bytes)
    assert found is not None, "a file that was written has a path"
    return found


def _merged(first: WriteStat, later: WriteStat) -> WriteStat:
    return replace(
        later,
        num_inserts=(first.num_inserts or 0) + (later.num_inserts or 0),
        num_update_writes=(first.num_update_writes or 0) + (later.num_update_writes or 0),
        num_deletes=(first.num_deletes or 0) + (later.num_deletes or 0),
    )


@dataclass(frozen=True)
class WriteContext:
    """What a task needs to write files of a transaction; picklable.

    `schema` is that of the rows to write and of the files. The driver has claimed the file groups that tasks rewrite, as far as
    that is known before.
    """

    location: StorageLocation
    instant: str
    operation: str
    writer: WriterIdentity
    properties: TableProperties
    schema: TableSchema
    settings: Settings
    own: tuple[OwnFile, ...] = ()
    """What earlier writes of the transaction have written: these files are rewritten from, and do not stay."""
    to_rewrite: frozenset[FileGroupId] = frozenset()
    """The file groups that get new base files, however few of their rows change."""
    planned: frozenset[FileGroupId] = frozenset()
    """Those that another engine is going to compact: they get log files, however many of their rows change."""

    def append_below(self, base: DataFile) -> float:
        """The share of a file group's rows up to which a change of them is appended as a log file; 0: none is."""
        below = self.settings.write.append_below if self.properties.is_merge_on_read else 0.0
        if not base.token or base.group in self.to_rewrite:
            return 0.0
        return inf if below and base.group in self.planned else below

    @property
    def requests_at_once(self) -> int:
        """How many requests of a task are made at the same time."""
        return requests_at_once(self.location.uri, self.settings.listing.parallel_requests)

    def io(self) -> TableIO:
        """The table's storage, opened in this process."""
        return TableIO(self.location.open(), concurrent_requests=self.settings.listing.parallel_requests)

    @classmethod
    def of(
        cls, table: OpenTable, baseline: Baseline, schema: TableSchema, own: tuple[OwnFile, ...] = (),
        to_rewrite: frozenset[FileGroupId] = frozenset(), planned: frozenset[FileGroupId] = frozenset(),
    ) -> WriteContext:  # fmt: skip
        """For files of the transaction that began with this baseline."""
        return cls(
            location=table.location,
            instant=baseline.instant,
            operation=baseline.operation,
            writer=table.writer,
            properties=baseline.properties,
            schema=schema,
            settings=table.settings,
            own=own,
            to_rewrite=to_rewrite,
            planned=planned,
        )

    def stamp(self, file: DataFile) -> Stamp:
        return Stamp(self.properties.name, self.instant, file.partition, file.name)


@dataclass(frozen=True)
class Detached:
    """What the other process needs to go on with it; small and picklable."""

    baseline: Baseline
    schema: TableSchema
    heartbeat: HeartbeatRecord
    application: AppTransaction | None = None
    tag: str = ""
