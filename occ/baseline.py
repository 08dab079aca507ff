"""The beginning of a transaction: an instant of its own, and what it has seen.

The order of the steps is the protocol (docs/concepts.md, step 1): look at the log and note its head, and start the heartbeat;
then the requested file; then list the timeline. What the log's head had decided must be visible in that listing, else it is
published and the beginning starts over. The window is whatever was decided after the noted head and is not visible in that
listing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from lakelock.conflict import Conflict, ConflictRule, Party
from lakelock.errors import ConflictError, LakelockError, TransactionError
from lakelock.events import EventKind
from lakelock.markers.heartbeat import Heartbeat, HeartbeatRecord
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publishing.fate import InstantFate, shown_fate
from lakelock.occ.publishing.publish import newest_commit
from lakelock.occ.publishing.settling import finish_head
from lakelock.occ.recorded_index import current_properties
from lakelock.occ.records.decisions import DecisionKind, LogView
from lakelock.occ.records.reservations import Reservation
from lakelock.occ.steps import Step, reached
from lakelock.table import layout
from lakelock.table.commit_metadata import requested_replace_bytes
from lakelock.table.eligibility import check_writable
from lakelock.table.instants import Action, Instant, State, later_than
from lakelock.table.properties import TableProperties
from lakelock.table.timeline import Timeline

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
        return instant in self.timeline.completed_instants


def begin(table: OpenTable, operation: str, action: Action) -> tuple[Baseline, Heartbeat]:
    """Take an instant and a baseline; the heartbeat runs. Raises `TableError` before any write if the table refuses."""
    for _ in range(BEGIN_ATTEMPTS):
        properties, numbers = table.at_once(partial(current_properties, table), table.log.numbers)
        check_writable(properties)
        instant = later_than(table.runtime.now_ms(), table.observed.newest_time or None)
        view, heartbeat = _look_and_beat(table, numbers, instant, operation)
        if heartbeat is None or not _take_instant(table, heartbeat, instant, action):
            table.observed.time_seen(instant)
            continue
        head, first = newest_commit(view), _noted_head(view)
        reached(Step.REQUESTED)
        try:
            timeline = table.timeline()
        except BaseException:
            give_up(table, heartbeat, instant, action)
            raise
        if head is not None and shown_fate(timeline, head.instant) is InstantFate.PENDING:
            give_up(table, heartbeat, instant, action)
            with table.locked(operation=operation):
                finish_head(table, table.log.look(), table.timeline())
            continue
        # Readers order slices by requested time, so a slice may only build on slices of older instants. Neither a requested
        # file nor a heartbeat, which its owner removes when it ends, keeps another action from taking the same time.
        # A rollback that was requested later may target an earlier use of this instant.
        shared = any(i.requested == instant and i.action != action for i in timeline.instants)
        if shared or any(i.requested > instant for i in (*timeline.commits, *timeline.rollbacks)):
            give_up(table, heartbeat, instant, action)
            continue
        reached(Step.BEGUN)
        table.emit(EventKind.BEGAN, instant, operation, commits=len(timeline.commits), decision=view.head)
        made = Baseline(instant, action.value, operation, first, timeline, properties, view.reservations)
        return made, heartbeat
    raise TransactionError(
        f"could not allocate an instant on {table.storage.uri} in {BEGIN_ATTEMPTS} attempts: "
        "others commit faster than this can begin",
        hint=f"run again; if it persists, check that this machine's clock is right: lakelock doctor {table.storage.uri}",
    )


def _noted_head(view: LogView) -> int:
    """The number before the window. A prepare at the head stays in the window: nobody waits here for its outcome."""
    prepared = bool(view.decisions) and view.decisions[-1].kind is DecisionKind.PREPARE
    return view.head - 1 if prepared else view.head


def _look_and_beat(table: OpenTable, numbers: Sequence[int], instant: str, operation: str) -> tuple[LogView, Heartbeat | None]:
    """Look at the log, and take the instant by a heartbeat: None when it is somebody else's. After an error nothing beats.

    What the heartbeat keeps from being collected begins at the window or one number before it: it does not wait for the look
    that tells whether the head is a prepare.
    """
    record = HeartbeatRecord(
        instant=instant,
        writer=table.writer,
        operation=operation,
        first=max(table.log.known_boundary, numbers[-1] - 1 if numbers else 0),
        interval_s=table.settings.heartbeat.interval_s,
        tolerable_misses=table.settings.heartbeat.tolerable_misses,
    )
    started: list[Heartbeat] = []

    def beat() -> None:
        heartbeat = Heartbeat.start(table.storage, record, table.runtime)
        if heartbeat is not None:
            started.append(heartbeat)
            reached(Step.HEARTBEAT_STARTED)

    try:
        view, _ = table.at_once(partial(table.log.look, listed=numbers), beat)
        table.ensure_same_lock(view)
    except BaseException:
        for heartbeat in started:
            heartbeat.stop(delete=True)
        raise
    return view, started[0] if started else None


def _take_instant(table: OpenTable, heartbeat: Heartbeat, instant: str, action: Action) -> bool:
    """Put the requested file of an instant that has a heartbeat; False when the instant is somebody else's."""
    content = requested_replace_bytes() if action is Action.REPLACE_COMMIT else b""
    try:
        made = table.storage.put_if_absent(requested_key(instant, action), content)
    except BaseException:
        # The file may exist. The heartbeat goes stale, and whoever finds the writer dead removes both.
        heartbeat.stop(delete=False)
        raise
    if made is None:
        heartbeat.stop(delete=True)
    return made is not None


def give_up(table: OpenTable, heartbeat: Heartbeat, instant: str, action: Action) -> None:
    """Give up an instant that has written and decided nothing. The next writer removes what cannot be removed now."""
    table.observed.time_seen(instant)
    heartbeat.stop(delete=False)
    with suppress(LakelockError):
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
