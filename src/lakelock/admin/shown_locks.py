"""Holders and waiters of a table's locks, in the columns of Hive's SHOW LOCKS, and the locks that an operation would take.

One row is one row of `lakelock locks ls`. The reservations of writers that have lost too often are rows, too (ADR 20).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lakelock.data_locks import LockedData, Resource
from lakelock.data_locks.operations import statement_of
from lakelock.identity import WriterIdentity
from lakelock.markers.liveness import StorageClock, is_too_old, judge_all
from lakelock.occ.claims import limit_s
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.log import Reservation
from lakelock.occ.request import Targets, resource_of_values, resources_of, within
from lakelock.providers import Holder, LockState
from lakelock.table import layout

COMMIT, DATA, RESERVATION = "commit", "data", "reservation"
RESERVED, DEAD = "RESERVED", "DEAD"


@dataclass(frozen=True)
class LockRow:
    """One lock or reservation of one holder or waiter. Times are milliseconds, None if not known; `blocked_by` are tokens.

    `lock_id` is the token of the request and the number of the lock in it, as Hive's. `instant` is that of the holder's
    transaction, where there is one. `kind` is `commit` for the table's commit lock, `data` for a data lock. `left_s` is how
    much longer the lease of the commit lock runs unless it is renewed, where the lock service can say it.

    A `reservation` has no token: its name is in `lock_id`, and in the `blocked_by` of those that came later. Its `state` is
    ACQUIRED if it is its turn, and DEAD if its writer is, so that no other writer waits for it.
    """

    lock_id: str
    kind: str
    database: str
    table: str
    partition: str
    state: str
    type: str
    blocked_by: str
    instant: str
    last_heartbeat_ms: int | None
    acquired_ms: int | None
    user: str
    host: str
    agent_info: str
    token: int
    since_ms: int | None = None
    lease_s: float | None = None
    left_s: float | None = None
    pid: int | None = None
    writer_id: str = ""


def common_row(coordinator: Coordinator, owner: str, writer: WriterIdentity | None, instants: Mapping[str, str]) -> LockRow:
    properties = coordinator.properties
    return LockRow(
        lock_id="", kind="", database=properties.database, table=properties.name, partition="", state="", type="",
        blocked_by="", instant=instants.get(writer.writer_id, "") if writer else "", last_heartbeat_ms=None, acquired_ms=None,
        user=writer.user if writer else "", host=writer.host if writer else "",
        agent_info=writer.application if writer else owner, token=0,
        pid=writer.pid if writer else None, writer_id=writer.writer_id if writer else "",
    )  # fmt: skip


def touches(resource: Resource, targets: Sequence[Resource]) -> bool:
    """Whether the resource is one of the targets, lies in one, or contains one."""
    return any(within(resource.path, [each]) or within(each.path, [resource]) for each in targets)


def state_of(held: bool) -> str:
    return "ACQUIRED" if held else "WAITING"


def reservation_rows(
    coordinator: Coordinator, queue: Sequence[Reservation], targets: Sequence[Resource], instants: Mapping[str, str]
) -> list[LockRow]:
    """A row for each reserved partition, oldest reservation first; that of a dead writer is in no other writer's way.

    With `targets`, only those on these partitions, below them and on what contains them. `instants`: the running transactions
    by writer.
    """
    table, beats = coordinator.table, _beats(coordinator)
    now_ms = StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)
    rows: list[LockRow] = []
    alive: list[Reservation] = []
    for each in queue:
        beat_ms, most_s = beats.get(each.id, (None, 0.0))
        dead = beat_ms is None or is_too_old(now_ms - beat_ms, most_s)
        ahead = [] if dead else [older.id for older in alive if older.meets(each)]
        if not dead:
            alive.append(each)
        common = common_row(coordinator, str(each.writer), each.writer, instants)
        row = replace(
            common, lock_id=each.id, kind=RESERVATION, state=DEAD if dead else state_of(not ahead), type=RESERVED,
            blocked_by=", ".join(ahead), last_heartbeat_ms=beat_ms, since_ms=each.since_ms or None,
            agent_info=f"{common.agent_info}: {each.operation}",
        )  # fmt: skip
        places = [Resource()] if each.places is None else [Resource.of(place) for place in sorted(each.places)]
        rows += [replace(row, partition=place.path) for place in places if not targets or touches(place, targets)]
    return rows


def _beats(coordinator: Coordinator) -> dict[str, tuple[int, float]]:
    """By reservation, when its holder was last heard of by the storage's time, and how old in seconds that may be."""
    table = coordinator.table
    listed = {item.key.rpartition("/")[2]: item for item in table.storage.list(layout.RESERVATIONS)}
    return {name: (item.modified_ms, limit_s(table, table.storage.get(item.key))) for name, item in listed.items()}


@dataclass(frozen=True)
class ExplainedLock:
    """One lock that an operation would take."""

    number: int
    database: str
    table: str
    partition: str
    type: str


def shown_locks(
    coordinator: Coordinator,
    targets: Sequence[Resource] = (),
    *,
    extended: bool = False,
    state: LockState | None = None,
) -> list[LockRow]:
    """The commit lock's holder and waiters, then the data locks in order of arrival, then the reservations (ADR 20).

    With `targets`, the data locks and reservations on these partitions, on those below them and on what contains them.
    `extended` also shows the shared locks that only accompany another. `state` is the commit lock's where the caller has
    asked for it already.
    """
    provider = coordinator.table.provider
    if state is None and provider is not None:
        state = provider.inspect()
    data = coordinator.data.locks.inspect()
    holders = [(True, state.holder)] if state is not None and state.holder else []
    holders += [(False, each) for each in state.queue] if state is not None else []
    reserved = coordinator.table.log.reservations()
    instants = _instants(coordinator) if holders or data or reserved else {}
    rows = [_commit_row(coordinator, held, holder, instants) for held, holder in holders]
    for seen in data:
        rows += _data_rows(coordinator, seen, targets, instants, extended=extended)
    return rows + (reservation_rows(coordinator, reserved, targets, instants) if reserved else [])


def _instants(coordinator: Coordinator) -> dict[str, str]:
    """The running transactions by writer, from their heartbeats."""
    table = coordinator.table
    judged = judge_all(table.io, table.settings.heartbeat, ())
    found: dict[str, list[str]] = {}
    for instant, liveness in sorted(judged.items()):
        if liveness.record is not None:
            found.setdefault(liveness.record.writer.writer_id, []).append(instant)
    return {writer: ", ".join(instants) for writer, instants in found.items()}


def _commit_row(coordinator: Coordinator, held: bool, holder: Holder, instants: dict[str, str]) -> LockRow:
    return replace(
        common_row(coordinator, holder.owner, holder.writer, instants),
        lock_id=str(holder.token),
        kind=COMMIT,
        state=state_of(held),
        type="EXCLUSIVE",
        last_heartbeat_ms=holder.renewed_ms,
        acquired_ms=holder.since_ms if held else None,
        since_ms=holder.since_ms,
        lease_s=holder.lease_s,
        left_s=holder.left_s,
        token=holder.token,
    )


def _data_rows(
    coordinator: Coordinator, seen: LockedData, targets: Sequence[Resource], instants: dict[str, str], *, extended: bool
) -> Iterable[LockRow]:
    common = replace(
        common_row(coordinator, "", seen.writer, instants),
        kind=DATA,
        state=state_of(seen.held),
        blocked_by=", ".join(map(str, seen.blocked_by)),
        acquired_ms=seen.acquired_ms,
        since_ms=seen.since_ms,
        lease_s=seen.lease_s,
        token=seen.token,
    )
    agent = f"{common.agent_info}: {seen.request.about}" if seen.request.about else common.agent_info
    shown = seen.request.locks if extended else seen.request.leaves
    for number, lock in enumerate(seen.request.locks, start=1):
        if lock in shown and (not targets or touches(lock.resource, targets)):
            yield replace(
                common,
                lock_id=f"{seen.token}.{number}",
                partition=lock.resource.path,
                type=lock.mode.value,
                agent_info=agent,
            )


def explained_locks(coordinator: Coordinator, text: str, partition: Targets = None) -> list[ExplainedLock]:
    """The data locks that the operation in `text` would take, in their order; takes none.

    A partition may also stand in the text: `INSERT OVERWRITE PARTITION (month=1, day)`.
    """
    properties = coordinator.properties
    statement = statement_of(text)
    targets = resources_of(partition, properties)
    if statement.partition:
        targets = (resource_of_values(statement.partition, properties), *targets)
    request = coordinator.data.request(statement.operation, tuple(dict.fromkeys(targets)))
    return [
        ExplainedLock(number, properties.database, properties.name, lock.resource.path, lock.mode.value)
        for number, lock in enumerate(request.locks, start=1)
    ]
