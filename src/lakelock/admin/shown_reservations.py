"""The reservations of writers that have lost too often, as rows beside the table's locks (ADR 20)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lakelock.admin.lock_rows import DEAD, RESERVATION, RESERVED, LockRow, common_row, state_of, touches
from lakelock.data_locks import Resource
from lakelock.markers.liveness import StorageClock, is_too_old
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.records.reservations import Reservation
from lakelock.occ.reserving.waiting import limit_s
from lakelock.table import layout


def reservation_rows(
    coordinator: Coordinator, queue: Sequence[Reservation], targets: Sequence[Resource], instants: Mapping[str, str]
) -> list[LockRow]:
    """A row for each reserved partition, oldest reservation first; that of a dead writer is in nobody's way.

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
