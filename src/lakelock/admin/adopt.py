"""Making a table that Java Hudi made one that lakelock writes, where its first write cannot do that by itself.

Its owner says that its instants are in UTC although its files do not prove it, or gives up its metadata table or indexes in it.
Only properties and the metadata table change, no row and no instant. Hudi removes its metadata table, or one index, in the same
order: first `hoodie.properties`, which tells every reader to do without, then the files under `.hoodie/metadata`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from lakelock.admin.manual_changes import AuditRecord, audited, live_users, refuse_live, users_but_the_dead
from lakelock.errors import TableError
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.create import proven_utc
from lakelock.occ.open_table import OpenTable, stored_properties
from lakelock.occ.recorded_lock import ensure_recorded
from lakelock.parsing import JsonObject
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.table.eligibility import check_writable
from lakelock.table.metadata_records import FILES, unkept
from lakelock.table.properties import METADATA_INFLIGHT, METADATA_PARTITIONS, TIMEZONE
from lakelock.table.timeline import read_timeline

FORMAT = 1


@dataclass(frozen=True)
class Adoption:
    """What adopting a table does or would do. `changes` are properties with their new values, None for one that is taken out.

    `dropped`: folders of the metadata table that are deleted, or all of it. `proven`: how many instants were seen to be in UTC.
    `archived`: there are older ones, which cannot be looked at.
    `live` names the writers that must end first.
    """

    table: str
    changes: Mapping[str, str | None]
    dropped: tuple[str, ...]
    proven: int
    archived: bool
    live: tuple[str, ...]
    done: bool = False

    @property
    def needed(self) -> bool:
        return bool(self.changes) or bool(self.dropped)


@dataclass(frozen=True)
class Wishes:
    """What the owner of a table asks for: `drop_metadata_table`, or only `remove_indexes` that lakelock does not keep."""

    assume_utc: bool = False
    drop_metadata_table: bool = False
    remove_indexes: bool = False


AS_IT_IS = Wishes()


def plan_adoption(coordinator: Coordinator, wishes: Wishes = AS_IT_IS) -> Adoption:
    """What adopting the table would do; changes nothing.

    `TableError` for whatever else keeps lakelock from writing it, or if an instant is not proven to be in UTC, unless the
    caller vouches for that by `assume_utc`.
    """
    return _planned(coordinator.table, live_users(coordinator, held_by_me=False), wishes)


def adopt(coordinator: Coordinator, wishes: Wishes = AS_IT_IS, *, reason: str = "") -> Adoption:
    """Make the table writable, under its lock. `LockError` names every live writer; nothing was changed then."""
    table = coordinator.table
    plan = plan_adoption(coordinator, wishes)
    if not plan.needed:
        return plan
    refuse_live(table, users_but_the_dead(coordinator))
    if table.provider is not None:
        ensure_recorded(table.storage, table.provider, table.runtime.uuid())
    with _acting(table, "adopt", reason), table.locked(operation="adopt") as lease:
        plan = _planned(table, live_users(coordinator, held_by_me=True), wishes)
        refuse_live(table, plan.live)
        if lease is not None:
            lease.ensure_active()
        _record_zone(table.storage)
        table.change_properties(plan.changes)
        for folder in plan.dropped:
            table.storage.delete_folder(folder)
    return replace(plan, done=True)


def undo(coordinator: Coordinator, *, reason: str = "") -> Mapping[str, str | None]:
    """Give the table the zone back that it had; the properties that changed.

    A metadata table that was dropped stays off until a Java writer builds it anew. `TableError` if it was not adopted, or a
    commit has come since, whose instant is in UTC.
    """
    table = coordinator.table
    refuse_live(table, users_but_the_dead(coordinator))
    with _acting(table, "undo adopt", reason), table.locked(operation="undo adopt") as lease:
        stored = table.storage.get(layout.ADOPTED)
        if stored is None:
            raise TableError(f"{table.storage.uri} was not adopted", hint="there is nothing to undo")
        record = JsonObject.parse(stored.data)
        if any(completion > record.text("newest", "") for completion in _completed(table.storage)):
            raise TableError(
                f"a commit has come since {table.storage.uri} was adopted, and its instant is in UTC: the table cannot go back",
                hint="keep it in UTC; a Java writer builds its metadata table anew if that was dropped",
            )
        if lease is not None:
            lease.ensure_active()
        zone = record.get("zone")
        changes = {TIMEZONE: None if zone is None else str(zone)}
        table.change_properties(changes)
        table.storage.delete([layout.ADOPTED])
    return changes


def _planned(table: OpenTable, live: tuple[str, ...], wishes: Wishes) -> Adoption:
    properties = stored_properties(table.storage)[0]
    changes: dict[str, str | None] = {}
    dropped: list[str] = []
    others = unkept(properties.metadata_partitions)
    if wishes.drop_metadata_table and (properties.metadata_partitions or properties.metadata_partitions_underway):
        changes |= {METADATA_PARTITIONS: "", METADATA_INFLIGHT: ""}
    elif wishes.remove_indexes and others and FILES in properties.metadata_partitions:
        kept = [name for name in properties.metadata_partitions if name not in others]
        changes |= {METADATA_PARTITIONS: ",".join(dict.fromkeys(kept)), METADATA_INFLIGHT: ""}
        dropped += [f"{layout.METADATA_TABLE}/{name}" for name in others]
    if changes.get(METADATA_PARTITIONS, ",".join(properties.metadata_partitions)) == "" and _has_metadata_table(table.storage):
        dropped.append(layout.METADATA_TABLE)
    proven = 0
    if properties.timezone != "UTC":
        proven = 0 if wishes.assume_utc else proven_utc(table.storage)
        changes[TIMEZONE] = "UTC"
    check_writable(properties.changed(changes))
    archived = TIMEZONE in changes and read_timeline(table.storage).has_archive
    return Adoption(table.storage.uri, changes, tuple(dropped), proven, archived, live)


def _has_metadata_table(storage: Storage) -> bool:
    """Whether there are files of a metadata table."""
    return next(iter(storage.list(layout.METADATA_TABLE)), None) is not None


def _record_zone(storage: Storage) -> None:
    """Record what `undo` needs, before anything changes.

    A later run, such as one after another that was killed, finds the table in UTC already: the record of the zone stays.
    """
    zone = stored_properties(storage)[0].values.get(TIMEZONE)
    if zone == "UTC" and storage.get(layout.ADOPTED) is not None:
        return
    newest = max(_completed(storage), default="")
    storage.put(layout.ADOPTED, json.dumps({"format": FORMAT, "zone": zone, "newest": newest}).encode())


def _completed(storage: Storage) -> list[str]:
    """Completion times on the timeline."""
    return [instant.completion for instant in read_timeline(storage).instants if instant.completion]


def _acting(table: OpenTable, action: str, reason: str) -> AbstractContextManager[AuditRecord]:
    lock = table.provider.identity if table.provider else ""
    return audited(table.storage, table.runtime, table.writer, action, lock, reason=reason)
