"""Who holds and who waits for the locks of a table, in the columns of Hive's SHOW LOCKS, and what an operation would lock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lakelock.admin.lock_rows import COMMIT, DATA, LockRow, common_row, state_of, touches
from lakelock.admin.shown_reservations import reservation_rows
from lakelock.data_locks import LockedData, Resource
from lakelock.data_locks.operations import statement_of
from lakelock.markers.liveness import judge_all
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.locking.targets import Targets, resource_of_values, resources_of
from lakelock.providers import Holder, LockState


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
        common_row(coordinator, seen.owner, seen.writer, instants),
        kind=DATA,
        state=state_of(seen.held),
        blocked_by=", ".join(map(str, seen.blocked_by)),
        last_heartbeat_ms=seen.renewed_ms,
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
