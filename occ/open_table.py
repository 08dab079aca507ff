"""One open table: its storage, configuration, log and locks, and all that this process has observed of it.

`OpenTable` has everything that the steps of a transaction need. `HeldLock` is the table's commit lock while it is held: the
requests that went out while it was taken, and those that go on while it is given back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar, overload

import pyarrow as pa

from lakelock.clock import Runtime
from lakelock.errors import (
    CorruptTableError,
    LakelockError,
    LockError,
    LockTimeout,
    ProviderMismatch,
    SnapshotTooOld,
    TableError,
    damage_of_table,
)
from lakelock.events import Event, EventKind, Events
from lakelock.identity import WriterIdentity
from lakelock.occ.file_index import FileIndex
from lakelock.occ.log import DecisionKind, DecisionLog, LogView
from lakelock.occ.recorded_lock import compare_locks
from lakelock.providers import LockProvider, renewing
from lakelock.providers.base import Lease
from lakelock.settings import Settings
from lakelock.storage import Listed, Storage
from lakelock.storage.base import gone
from lakelock.storage.location import StorageLocation, TableIO, requests_at_once
from lakelock.table import layout
from lakelock.table.archive import archived_write
from lakelock.table.eligibility import VERSIONS
from lakelock.table.index import TableIndex
from lakelock.table.instants import Instant, State
from lakelock.table.metadata_records import FILES
from lakelock.table.properties import TableProperties, read_properties
from lakelock.table.service_metadata import RollbackPlan
from lakelock.table.snapshot import Snapshot, restores_of
from lakelock.table.timeline import FollowedTimeline, Timeline

CROWD_S = 10.0
"""For how long a process that has met others at the lock expects to meet them again."""
MOST_ALERTS = 1_000
"""How many alerts a process remembers, so as not to raise them again."""


@dataclass
class Observations:
    """What this process has seen of a table. All transactions on the open table share it, in whatever thread.

    Observations only save requests or add caution, so a value that is a moment old does no harm.
    """

    newest_time: str = ""
    """The latest instant or completion time met so far, from any writer; new instants are later."""
    same_lock: bool = False
    """Whether the lock that the table has on record was found to be this process's."""
    others_at_lock: bool = False
    """Whether another process held the commit lock between the last two times that this process did."""
    crowded_until_s: float = 0.0
    """Until then, by the monotonic clock, small writes of this process are put on offer."""
    foreign_writers: bool = False
    """Whether another engine writes the table; then a few more checks are made."""
    newest_foreign: str = ""
    """The newest known commit of another engine, empty as long as only pending instants were seen."""
    looked_through: tuple[int, Timeline, frozenset[str]] | None = None
    """When this process last looked for commits of which the log has no decision: the head, the commits that were shown, and
    those that were decided.
    """
    known_ours: frozenset[str] = frozenset()
    """Instants of lakelock's writers, as of the last time that this process looked for dead writers."""
    index: TableIndex | None = None
    """The index that the table has on record, once `index_known`: such a record never changes."""
    index_known: bool = False
    index_checked: bool = False
    """Whether this process has made sure that Java keeps no buckets of another kind."""
    foreign_buckets: bool = False
    """Whether a commit of another engine was met whose files look like buckets."""
    newest_commit: str | None = None
    """The newest commit that the timeline has shown, `""` if there was none yet; None before the first look."""
    opened_as: TableProperties | None = None
    """What the table said of itself when it was opened."""
    name: str = ""
    """The name in the catalog under which this process registered the table, besides that of the settings."""
    rollback_targets: dict[str, str] = field(default_factory=dict)
    """By rollback, the instant that its plan names; plans never change."""

    own_columns: tuple[pa.Field, ...] = ()
    """What writes of this process added to the table's columns: it knows these, whatever the table was when it was opened."""
    metadata_schemas: tuple[tuple[str, str], tuple[str, str]] | None = None
    """The schemas of the metadata table's records, and the first instant of the metadata table that has them."""
    columns_in_statistics: tuple[str, frozenset[str]] = "", frozenset()
    """As of a completion in the metadata table: columns that were added, and of which each file had statistics there."""
    compact: Callable[[Callable[[], bool]], int] | None = None
    """Compacts due file groups until its argument returns True; returns how many. An engine sets it."""
    keeping_up: bool = False
    """Whether a thread of this process is at a run of upkeep."""
    void: set[str] = field(default_factory=set)
    """Instants that are decided and will never be visible: another engine rolled them back, or removed files of them."""
    swept_until_s: dict[str, float] = field(default_factory=dict)
    """By undone commit, until when late tasks may leave files of it, by the monotonic clock; 0 once this process is through."""
    alerted: dict[str, None] = field(default_factory=dict)
    """What alerts about other engines were about, oldest first: each is raised once."""

    def meets_others(self, now_s: float) -> None:
        """Expect other writers for a while."""
        self.crowded_until_s = now_s + CROWD_S

    def is_news(self, about: str) -> bool:
        """Whether an alert about this is the first one, as far as this process remembers; remembers it."""
        if about in self.alerted:
            return False
        self.alerted[about] = None
        if len(self.alerted) > MOST_ALERTS:
            del self.alerted[next(iter(self.alerted))]
        return True

    def brought(self, columns: Iterable[pa.Field]) -> None:
        """Remember that a write of this process brings these columns."""
        self.own_columns = tuple(dict.fromkeys((*self.own_columns, *columns)))

    def time_seen(self, instant: str) -> None:
        """Remember an instant or completion time that is taken."""
        self.newest_time = max(self.newest_time, instant)

    def met_foreign(self, committed: str = "") -> None:
        """Remember that another engine writes this table, too, and the instant that it has `committed`."""
        self.foreign_writers = True
        self.newest_foreign = max(self.newest_foreign, committed)


@dataclass
class HeldLock:
    """One hold of a table's lock. `lease` is None in SINGLE_WRITER mode, which takes no lock.

    `answers`: those to the requests that were made while it was taken. `undisturbed`: no other has held it since before
    these requests were made. So whatever is changed only under the lock is still as they read it.
    """

    lease: Lease | None = None
    since_s: float = 0.0
    """When it was taken, by the monotonic clock."""
    waited_s: float = 0.0
    answers: tuple[Any, ...] = ()
    undisturbed: bool = True
    once_released: list[Callable[[], object]] = field(default_factory=list)
    """Called as soon as the lock is given back."""
    at_release: list[Callable[[], object]] = field(default_factory=list)
    """Requests that are made while the lock is given back."""


A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")

TORN_LOOKS, TORN_WAIT_S = 20, 0.05
"""How often a commit that looks torn is looked at again, for a second in all."""


@dataclass(frozen=True)
class OpenTable:
    """A table that this process has open for writing: what it is, and how it is reached. What the process has seen of it so far
    is in `observed`. `provider` is None in SINGLE_WRITER mode: no lock is taken. `for_locks`: the same storage, but it does not
    wait for an answer for as long as a lease runs.
    """

    location: StorageLocation
    storage: Storage
    runtime: Runtime
    settings: Settings
    provider: LockProvider | None
    writer: WriterIdentity
    events: Events
    log: DecisionLog
    neighbours: Callable[[str], Storage] | None = None
    for_locks: Storage | None = None
    observed: Observations = field(default_factory=Observations, compare=False)

    @property
    def parallel_requests(self) -> int:
        """How many requests this process has under way at once on the table's storage."""
        return self.settings.listing.parallel_requests

    @cached_property
    def io(self) -> TableIO:
        """The same storage, for steps that need nothing else of the table."""
        return TableIO(self.storage, self.runtime, self.parallel_requests)

    @overload
    def at_once(self, one: Callable[[], A], two: Callable[[], B], /) -> tuple[A, B]: ...

    @overload
    def at_once(self, one: Callable[[], A], two: Callable[[], B], three: Callable[[], C], /) -> tuple[A, B, C]: ...

    @overload
    def at_once(self, *calls: Callable[[], Any]) -> tuple[Any, ...]: ...

    def at_once(self, *calls: Callable[[], Any]) -> tuple[Any, ...]:
        """Make requests that do not depend on each other at the same time: all of them, before the first error is raised.

        On a local disk one after the other.
        """
        return tuple(self.runtime.gather(calls, limit=requests_at_once(self.storage.uri, self.parallel_requests)))

    def storage_of(self, uri: str) -> Storage:
        """The storage of a table that takes part in a transaction with this one; nothing is contacted yet."""
        if uri == self.storage.uri:
            return self.storage
        return self.neighbours(uri) if self.neighbours is not None else self.location.sibling(uri).open()

    @cached_property
    def index(self) -> FileIndex:
        """What this process knows of the table's files by its commits."""

        def has_metadata_table() -> bool:
            opened = self.observed.opened_as
            return opened is not None and FILES in opened.metadata_partitions and opened.version in VERSIONS

        def alert(text: str) -> None:
            self.emit(EventKind.ALERT, problem=text)

        return FileIndex(self.io, self.settings, self.log, alert, has_metadata_table)

    def timeline(self) -> Timeline:
        """The timeline as it is now, by its changes if they can be had, else by one listing.

        `TableError` if the table is gone, or another table is in its place. The newest commit that this process has seen must
        be on the timeline or in the archive. More requests are made only if it is not on the timeline, or if that is empty.
        """
        return self._timeline_now()[0]

    def timeline_and_files(self) -> tuple[Timeline, Sequence[Listed]]:
        """The timeline as it is now and the files that show it, in order. One listing more if it is short."""
        timeline = self.timeline()
        files = self._followed.files(timeline)
        if files is None:
            files = list(self.storage.list(layout.TIMELINE))
            timeline = Timeline.from_listing(files)
        return timeline, files

    def _timeline_now(self) -> tuple[Timeline, bool]:
        """The timeline as it is now, and whether it is of one moment."""
        known = self.observed.newest_commit
        if known:
            with suppress(CorruptTableError), damage_of_table(self.storage.uri):
                look = self._followed.look()
                is_of_one_moment = look is not None and self._followed.is_of_one_moment(look)
                if look is not None and look.has_commit(known) and (is_of_one_moment or self._is_whole(look)):
                    self.observed.time_seen(look.newest_time)
                    self.observed.newest_commit = look.commits[-1].requested
                    return look, is_of_one_moment
        timeline, is_long = self._listed_timeline()
        if not timeline.instants:
            self.ensure_as_opened(self.properties(), strictly=True)
            timeline = self.ensure_timeline_is_whole(timeline)
            # What is there now was listed after an empty listing, and may be long.
            is_long = bool(timeline.instants)
        if known and timeline.state_of(known) is not State.COMPLETED:
            self._ensure_same_table(timeline, known)
        self.observed.newest_commit = timeline.commits[-1].requested if timeline.commits else ""
        return timeline, not is_long

    @cached_property
    def _followed(self) -> FollowedTimeline:
        return FollowedTimeline(self.io, few=self.settings.listing.at_once)

    def _ensure_same_table(self, timeline: Timeline, known: str) -> None:
        """`TableError` if the table was made anew: the timeline lacks a `known` commit that was neither undone nor archived."""
        self.ensure_as_opened(self.properties(), strictly=True)
        undone = any(restore > known for restore in restores_of(timeline)) or any(
            self.rollback_target(rollback) == known for rollback in timeline.rollbacks if rollback.requested >= known
        )
        if not undone and (not timeline.has_archive or archived_write(self.storage, known) is None):
            raise self._made_anew(f"its commit {known} is not there any more")

    def rollback_plan(self, rollback: Instant) -> RollbackPlan | None:
        """What a rollback is going to delete, None if that is unknown yet. One read."""
        requested = Instant(rollback.requested, rollback.action, State.REQUESTED)
        stored = self.storage.get(layout.timeline(requested.file_name))
        # A plan without content is Java's between create and write: it may target anything, so look again next time.
        if stored is None or not stored.data:
            return None
        return RollbackPlan.from_bytes(stored.data, requested.file_name)

    def rollback_target(self, rollback: Instant) -> str | None:
        """The instant that a rollback is about, None if its plan does not say so yet. Read once."""
        if rollback.requested not in self.observed.rollback_targets:
            plan = self.rollback_plan(rollback)
            if plan is None:
                return None
            self.observed.rollback_targets[rollback.requested] = plan.target_instant
        return self.observed.rollback_targets[rollback.requested]

    def ensure_timeline_is_whole(self, timeline: Timeline) -> Timeline:
        """Check a timeline without commits; returns it, or a newer one. `TableError` if the log has commits that it lacks."""
        decided = [d.instant for d in self.log.look(newest=None).decisions if d.kind is DecisionKind.COMMIT]
        if not decided:
            return timeline
        # What is in the log by now was begun, and so was on the timeline, before it is listed again.
        timeline, _ = self._listed_timeline()
        lost = [instant for instant in decided if timeline.state_of(instant) is None]
        if lost and not (timeline.commits or timeline.rollbacks or timeline.has_archive):
            raise TableError(
                f"{self.storage.uri} has lost its timeline: {layout.TIMELINE} does not show the commit {lost[-1]}, which "
                f"{layout.DECISIONS} has",
                hint=f"restore {layout.TIMELINE} from a backup; nothing was read or written",
            )
        return timeline

    def properties(self) -> TableProperties:
        """What the table's own file says of it now. `TableError` if there is none any more."""
        try:
            return read_properties(self.storage)
        except TableError:
            raise gone(self.storage.uri) from None

    def change_properties(self, changes: Mapping[str, str | None]) -> None:
        """Give properties other values, None takes one out; hold the lock. `LockError` if another process changes them, too."""
        properties, etag = stored_properties(self.storage)
        data = properties.changed(changes).serialize(self.runtime.now_ms())
        if self.storage.put_if_match(layout.PROPERTIES, data, etag) is None:
            what = f"the properties of {self.storage.uri} were changed by another process meanwhile"
            raise LockError(what, hint="run it again")

    @property
    def is_merge_on_read(self) -> bool:
        """Whether file groups may have log files. A table's type never changes."""
        return (self.observed.opened_as or self.properties()).is_merge_on_read

    def ensure_as_opened(self, now: TableProperties, *, strictly: bool = False) -> None:
        """`TableError` if the table was opened with another key or other partitions; `strictly`: or made with other columns."""
        opened = self.observed.opened_as
        if opened is None:
            return
        pairs = {"key": (opened.record_keys, now.record_keys), "partition_by": (opened.partition_by, now.partition_by)}
        if strictly:
            pairs |= {"columns": ((opened.create_schema or "",), (now.create_schema or "",))}
        changed = [name for name, (before, after) in pairs.items() if before != after]
        if changed or opened.type != now.type:
            raise self._made_anew(f"it was opened with another {' and other '.join(changed) or 'type'}")

    def _made_anew(self, why: str) -> TableError:
        return TableError(
            f"{self.storage.uri} is not the table that was opened, but one that was made anew at that place: {why}",
            hint="open it again. A stream needs a new checkpoint, too",
        )

    def _listed_timeline(self) -> tuple[Timeline, bool]:
        """One listing, and whether it is so long that it may not be of one moment.

        Java creates a file of the timeline on a disk before it writes to it, so one that looks torn is looked at again.
        A listing of several answers may miss what an archiver removed in between: the oldest instants go first, so it is whole
        if the oldest that it shows are still there.
        """
        for looks in range(TORN_LOOKS):
            mark = self._followed.begin_listing()
            listed = list(self.storage.list(layout.TIMELINE))
            try:
                with damage_of_table(self.storage.uri):
                    timeline = Timeline.from_listing(listed)
            except CorruptTableError:
                if looks + 1 == TORN_LOOKS:
                    raise
                self.runtime.sleep(TORN_WAIT_S)
                continue
            is_long = len(listed) > self.settings.listing.at_once
            if not is_long or self._is_whole(timeline):
                break
        self._followed.listed(mark, listed, timeline)
        self.observed.time_seen(timeline.newest_time)
        return timeline, is_long

    def _is_whole(self, timeline: Timeline) -> bool:
        """Whether nothing was archived while the timeline was listed: the archive's names come last in a listing.

        A commit that was archived meanwhile may look pending, if its completed file was gone before the listing came to it. So
        unfinished writes older than the oldest commit are checked, too; there are few, since they hold up the archiver.
        """
        if not timeline.has_archive:
            return True
        files = [partial(self.storage.get, layout.timeline(instant.file_name)) for instant in timeline.oldest_writes]
        return all(found is not None for found in self.io.gather(files))

    def timeline_of_one_moment(self) -> Timeline:
        """The timeline with each commit before the newest, for readers outside a transaction: one listing, or two if long.

        A listing that takes several requests may show a commit without the one before it. Commits become visible in the order
        of their completion times, so the second of two listings shows everything up to the newest commit of the first.
        A transaction does not need this: the log says what is committed, and the transaction is judged against what it missed.
        """
        if self.observed.newest_commit:
            timeline, is_of_one_moment = self._timeline_now()
        else:
            # Without a commit seen before, only the properties tell whether this is still the table that was opened.
            (timeline, is_of_one_moment), now = self.at_once(self._timeline_now, self.properties)
            self.ensure_as_opened(now, strictly=True)
        return timeline if is_of_one_moment else self.timeline().up_to(timeline)

    def shown_now(self) -> tuple[Snapshot, Timeline]:
        """The file slices visible now, and the timeline that shows them."""
        return retry_if_overtaken(self._look)

    def _look(self) -> tuple[Snapshot, Timeline]:
        timeline = self.timeline_of_one_moment()
        return self.index.snapshot_at(timeline), timeline

    def checkpoint(self, *, at_once: bool = False) -> int | None:
        """Make a checkpoint of the file index if one is due, or `at_once`; its number, None if nothing was to be done."""
        number = self.index.make_checkpoint(self.timeline_of_one_moment, at_once=at_once)
        if number is not None:
            self.emit(EventKind.CHECKPOINTED, number=number)
        return number

    def checkpoint_when_due(self, decision: int) -> None:
        """Make a checkpoint if it is the turn of this decision, which is published. Whatever goes wrong: the commit stands."""
        if not self.index.checkpoint_is_due(decision):
            return
        try:
            self.checkpoint()
        except Exception as error:  # noqa: BLE001  an error would contradict the table
            self.emit(EventKind.ALERT, problem=f"no checkpoint of the file index could be written: {error}")

    def ensure_same_lock(self, view: LogView) -> None:
        """`ProviderMismatch` if the table has moved to another lock since this process looked; costs no request."""
        if self.provider is not None and view.lock:
            try:
                compare_locks(self.storage, view.lock, self.provider.identity)
            except ProviderMismatch:
                self.observed.same_lock = False
                raise

    def emit(self, kind: EventKind, instant: str = "", operation: str = "", **facts: object) -> None:
        self.events.emit(Event(kind, self.storage.uri, instant, operation, facts))

    @property
    def is_likely_alone(self) -> bool:
        """Whether the lock is likely to be as this process left it, so that what is asked while it is taken counts."""
        return self.provider is None or (self.provider.last_release != "" and not self.observed.others_at_lock)

    @contextmanager
    def locked(self, instant: str = "", operation: str = "") -> Iterator[Lease | None]:
        """Hold the table's commit lock; `LockTimeout` after `lock.wait_s`. The lease is renewed while the block runs."""
        with self.holding(instant, operation) as held:
            yield held.lease

    @contextmanager
    def holding(
        self,
        instant: str = "",
        operation: str = "",
        meanwhile: Sequence[Callable[[], Any]] = (),
        wait_s: float | None = None,
    ) -> Iterator[HeldLock]:
        """As `locked`; `meanwhile` are requests that are made while the lock is taken. The first error of them all is raised.

        `wait_s`: in the place of `lock.wait_s`, for a caller that has something else to try.
        """
        held, renewals = HeldLock(since_s=self.runtime.monotonic_s()), ExitStack()
        last_release = "" if self.provider is None else self.provider.last_release
        try:
            with renewals:
                take = partial(self._take, held, renewals, last_release, instant, operation, wait_s)
                held.answers = self.at_once(*meanwhile, take)[:-1]
                yield held
        finally:
            self.at_once(partial(self._give_back, held), *held.at_release)

    def _take(
        self, held: HeldLock, renewals: ExitStack, last_release: str, instant: str, operation: str, wait_s: float | None
    ) -> None:  # fmt: skip
        """Take the lock. `last_release`: the provider's before any concurrent request."""
        provider, asked_s = self.provider, held.since_s
        if provider is None:
            return
        try:
            lease = held.lease = provider.acquire(wait_s=self.settings.lock.wait_s if wait_s is None else wait_s)
        except LockTimeout as error:
            self.observed.meets_others(self.runtime.monotonic_s())
            if wait_s is not None:
                raise
            waited_s = round(self.runtime.monotonic_s() - asked_s, 3)
            self.emit(EventKind.LOCK_TIMED_OUT, instant, operation, waited_s=waited_s, problem=error.message)
            raise
        held.undisturbed = last_release != "" and lease.follows == last_release
        self.observed.others_at_lock = last_release != "" and not held.undisturbed
        held.since_s = self.runtime.monotonic_s()
        if lease.awaited:
            self.observed.meets_others(held.since_s)
        held.waited_s = held.since_s - asked_s
        self.emit(EventKind.LOCKED, instant, operation, waited_s=round(held.waited_s, 3), token=lease.token)
        renewals.enter_context(renewing(provider, lease, self.runtime, self.settings.lock.renew_s, self.events))

    def _give_back(self, held: HeldLock) -> None:
        if self.provider is not None and held.lease is not None:
            self._release(self.provider, held.lease)
        for call in held.once_released:
            call()

    def _release(self, provider: LockProvider, lease: Lease) -> None:
        """Release without ever hiding what happened under the lock: a lease that cannot be released runs out."""
        try:
            provider.release(lease)
        except LakelockError as error:
            self.emit(EventKind.ALERT, problem=f"the lock could not be released and will run out: {error.message}")


OVERTAKEN_LOOKS = 3
"""How often a reader looks at a table whose cleaner keeps overtaking it."""


def stored_properties(storage: Storage) -> tuple[TableProperties, str]:
    """What the table's own file says of it now, and the version of that file."""
    stored = storage.get(layout.PROPERTIES)
    if stored is None:
        raise TableError(f"{storage.uri} has no {layout.PROPERTIES} now: a writer is replacing it", hint="run it again")
    return TableProperties.parse(stored.data), stored.etag


def retry_if_overtaken(look: Callable[[], A]) -> A:
    """What `look` finds. It looks again, a few times at most, if a cleaner has removed what it was about to read.

    The last `SnapshotTooOld` passes through.
    """
    for _ in range(OVERTAKEN_LOOKS - 1):
        try:
            return look()
        except SnapshotTooOld:
            continue
    return look()
