"""Offers: rows of small writes that wait to be committed, by whichever writer decides next (ADR 42, 54).

An offer is one object. Its owner notes the head of the log, `since`, and puts the rows. The next writer to commit may take them
along: its decision names the offers whose rows it has, its `members`. So an offer is committed at most once by these rules:

* A commit takes an offer along only if no decision after `since` names it, all of these decisions were read, and none of them
  was collected. This is judged anew for each number of the log, by the look after which the number is put.
* The owner gives up by a decision that withdraws the offer, under the next number. No writer commits it afterwards.
* A writer that takes others along has its own rows on offer, too, and its decision names them: others may have committed them.

An offer without an owner is taken along like any other, or removed once it is older than a heartbeat may be. Which of the
waiting writers commits next is a matter of courtesy (`lakelock.engine.group_commit`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from lakelock.errors import LakelockError, StorageUnavailable, TransactionError
from lakelock.events import EventKind
from lakelock.identity import WriterIdentity
from lakelock.markers.liveness import StorageClock
from lakelock.occ import commit_keys as keys
from lakelock.occ.commit_keys import Member, members_of
from lakelock.occ.log import Decision, DecisionKind, LogView, decided_for_offer
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publish import finish_head, is_finished
from lakelock.parsing import JsonObject
from lakelock.storage import Created, create
from lakelock.table import layout
from lakelock.table.archive import archived_writes, read_commit
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Action, Instant, State
from lakelock.texts import command

FORMAT = 1
_NAME = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MOST_BYTES = 256 << 10
"""Rows that take more memory are committed by their own writer."""
MOST_MEMBERS, MOST_GROUP_BYTES = 256, 16 << 20
"""How much one commit takes along."""
READ_AT_ONCE = 64
"""How many commits are read before they are looked at, where only the timeline tells."""


@dataclass(frozen=True)
class Offer:
    """Rows on offer, for an INSERT, UPSERT or DELETE by key. `schema`: the table's when they were fitted to it; `since`: a
    number of the log that is older.
    """

    member: Member
    since: int
    schema: str
    rows: bytes = field(repr=False)
    operation: str

    @property
    def key(self) -> str:
        return layout.offer(self.since, self.member.id, self.operation)

    def to_bytes(self) -> bytes:
        header = {"format": FORMAT, **self.member.as_dict(), "schema": self.schema, "bytes": len(self.rows)}
        return json.dumps(header, separators=(",", ":")).encode() + b"\n" + self.rows

    @classmethod
    def from_bytes(cls, data: bytes, since: int, operation: str) -> Offer:
        """Read an offer; `ValueError` for one that is torn or of a newer release: its owner commits it."""
        head, _, rows = data.partition(b"\n")
        header = JsonObject.parse(head)
        if header.integer("format") > FORMAT or header.integer("bytes") != len(rows):
            raise ValueError("an offer that this release cannot read")
        return cls(Member.from_json(header), since, header.text("schema"), rows, operation)


@dataclass(frozen=True, order=True)
class Waiting:
    """The name of an offer that is there, in order of arrival by the storage's clock."""

    since_ms: int
    id: str
    since: int
    operation: str

    @property
    def key(self) -> str:
        return layout.offer(self.since, self.id, self.operation)


def is_offer(text: str) -> bool:
    """Whether a text looks like the id of an offer. `CommitOutcomeUnknown` gives that id in the place of an instant."""
    return _NAME.fullmatch(text) is not None


def put_offer(table: OpenTable, offer: Offer) -> None:
    """Put it. An offer whose reply was lost counts as there. `StorageUnavailable` if storage gave no answer at all."""
    if create(table.storage, offer.key, offer.to_bytes()) is Created.UNKNOWN:
        raise StorageUnavailable(f"{table.storage.uri} gave no answer to a write that waited for others", hint="run it again")


def waiting(table: OpenTable) -> list[Waiting]:
    """The offers that are there, the oldest first. One listing."""
    found = []
    for item in table.storage.list(layout.OFFERS):
        name = layout.offer_name(item.key)
        if name is not None:
            found.append(Waiting(item.modified_ms, name[1], name[0], name[2]))
    return sorted(found)


def read_offers(table: OpenTable, names: Sequence[Waiting]) -> list[Offer]:
    """Those of the offers that are still there and can be read. One request each, made at once."""
    found: list[Offer] = []
    stored = table.io.gather([partial(table.storage.get, name.key) for name in names])
    for name, each in zip(names, stored, strict=True):
        try:
            if each is not None:
                found.append(Offer.from_bytes(each.data, name.since, name.operation))
        except ValueError as error:
            table.emit(EventKind.ALERT, problem=f"{name.key} is left to its owner: {error}")
    return found


def is_undecided(table: OpenTable, offer: Offer, view: LogView, first: int) -> bool:
    """Whether nothing was decided about an offer, as far as a `view` of the log above `first` and its boundary can tell.

    A commit that takes it along judges it once more, by its last look: what is decided until then, and what is collected.
    """
    if offer.since < view.boundary or decided_for_offer(offer.member.id, view.decisions) is not None:
        return False
    earlier = table.log.between(offer.since, first)
    read = [decision for decision in earlier if decision is not None]
    return len(read) == len(earlier) and decided_for_offer(offer.member.id, read) is None


def settle(table: OpenTable, name: str, since: int) -> Decision | None:
    """End an offer for good: the commit that has its rows; None if it is withdrawn. `since`: as in the offer, or less.

    The lock is taken only if the head has to be finished first. `StorageUnavailable` if storage does not say what it is.
    """
    for _ in range(table.settings.decisions.slot_attempts):
        view = table.log.look(after=max(0, since - 1), newest=None)
        found = decided_for_offer(name, view.decisions)
        if found is None and view.boundary > since:
            found = _in_timeline(table, name)
        if found is not None:
            return found if found.kind is DecisionKind.COMMIT else None
        if not is_finished(view, table.timeline()):
            with table.locked(operation="ROLLBACK"):
                finish_head(table, table.log.look(), table.timeline())
        made = table.log.decide_rollback(view.head + 1, name, Action.COMMIT, table.writer, table.runtime.uuid())
        if made is Created.UNKNOWN:
            raise StorageUnavailable("no answer to the withdrawal of a write", hint="run it again")
        if made is Created.OURS:
            return None
    raise TransactionError(
        f"others took each decision number that was tried to withdraw the write {name}",
        hint=f"run again when fewer writers commit: {command('commits', 'ls', table.storage.uri)}",
    )


def _in_timeline(table: OpenTable, name: str) -> Decision | None:
    """The commit that has the rows of an offer, found where commits are kept: decisions after its beginning are collected."""
    commits = sorted(table.timeline().commits, key=lambda i: i.completion or "", reverse=True)
    for start in range(0, len(commits), READ_AT_ONCE):
        part = commits[start : start + READ_AT_ONCE]
        read = table.io.gather([partial(read_commit, table.storage, instant) for instant in part])
        for instant, metadata in zip(part, read, strict=True):
            found = _with_member(instant, metadata, b"", name)
            if found is not None:
                return found
    for _, writes in archived_writes(table.storage, holding=name.encode()):
        for write in writes:
            instant = Instant(write.requested, write.action, State.COMPLETED, write.completion)
            found = _with_member(instant, CommitMetadata.from_bytes(write.data, write.requested), write.data, name)
            if found is not None:
                return found
    return None


def _with_member(instant: Instant, metadata: CommitMetadata, data: bytes, name: str) -> Decision | None:
    members = members_of(metadata.extra)
    if name not in {member.id for member in members}:
        return None
    writer = next(member.writer for member in members if member.id == name)
    return Decision(
        number=int(metadata.extra.get(keys.DECISION, 0)),
        kind=DecisionKind.COMMIT,
        instant=instant.requested,
        action=instant.action,
        write_id=metadata.extra.get(keys.WRITE_ID, ""),
        writer=writer or WriterIdentity.from_dict({}),
        operation=metadata.extra.get(keys.OPERATION, ""),
        completion=instant.completion or "",
        payload=data or metadata.to_bytes(),
        members=tuple(member.id for member in members),
    )


def oldest_needed(table: OpenTable) -> int | None:
    """The number after which the offers of live owners need the decisions; None if there are none. One listing, or two."""
    there = _alive(table, waiting(table))
    return min((each.since for each in there), default=None)


def remove_old(table: OpenTable) -> int:
    """Remove the offers of owners that must be dead; how many."""
    there = waiting(table)
    alive = set(_alive(table, there))
    old = [each.key for each in there if each not in alive]
    table.storage.delete(old)
    return len(old)


def _alive(table: OpenTable, there: Sequence[Waiting]) -> list[Waiting]:
    if not there:
        return []
    now_ms = StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)
    return [each for each in there if now_ms - each.since_ms <= oldest_ms(table)]


def oldest_ms(table: OpenTable) -> float:
    """The age in ms beyond which no live owner waits for an offer."""
    return 1000 * (table.settings.lock.wait_s + table.settings.heartbeat.limit_s)


def remove(table: OpenTable, offers: Sequence[Offer]) -> None:
    """Remove offers that are decided. Never raises for storage: the next writer that tidies up does so."""
    try:
        table.storage.delete([offer.key for offer in offers])
    except LakelockError as error:
        table.emit(EventKind.ALERT, problem=f"an offer that is decided could not be removed: {error.message}")
