"""One row of what `lakelock locks ls` shows, in the columns of Hive's SHOW LOCKS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakelock.data_locks import Resource
from lakelock.identity import WriterIdentity
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.locking.targets import within

COMMIT, DATA, RESERVATION = "commit", "data", "reservation"
RESERVED, DEAD = "RESERVED", "DEAD"


@dataclass(frozen=True)
class LockRow:
    """One lock or reservation of one holder or waiter. Times are milliseconds, None if not known; `blocked_by` are tokens.

    `lock_id` is the token of the request and the number of the lock in it, as Hive's. `instant` is that of the holder's
    transaction, where there is one. `kind` is `commit` for the table's commit lock, `data` for a data lock. `left_s` is how
    much longer the lease of the commit lock runs unless it is renewed, where the lock service can say it.

    A `reservation` has no token: its name is in `lock_id`, and in the `blocked_by` of those that came later. Its `state` is
    ACQUIRED if it is its turn, and DEAD if its writer is, so that nobody waits for it.
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
    """What all rows of one owner have in common."""
    properties = coordinator.properties
    return LockRow(
        lock_id="", kind="", database=properties.database, table=properties.name, partition="", state="", type="",
        blocked_by="", instant=instants.get(writer.writer_id, "") if writer else "", last_heartbeat_ms=None, acquired_ms=None,
        user=writer.user if writer else "", host=writer.host if writer else "",
        agent_info=writer.application if writer else owner, token=0,
        pid=writer.pid if writer else None, writer_id=writer.writer_id if writer else "",
    )  # fmt: skip


def touches(resource: Resource, targets: Sequence[Resource]) -> bool:
    """Whether it is one of the targets, below one or above one."""
    return any(within(resource.path, [each]) or within(each.path, [resource]) for each in targets)


def state_of(held: bool) -> str:
    return "ACQUIRED" if held else "WAITING"
