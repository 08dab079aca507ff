"""The decision log: numbered records that decide about one instant each, created put-if-absent, never rewritten.

The log is what makes commits safe when the lock is not: two writers can both believe that they hold the lock, but only one
creates number n+1. The writer that creates it has seen and judged everything up to n.

Rules that all users of the log keep (`docs/adr/0003`):

* The boundary is read *after* a listing and the records that it shows, and numbers at or below it are ignored: they may be
  half collected, or created again by a request that took very long.
* If n decides a commit, n+1 is created only once that commit is published. So at any time at most the newest decision awaits
  publication, and finding it takes one read, however long the log is.
* A prepare decides nothing by itself: its instant is committed if the outcome of its transaction says so
  (`lakelock.occ.publish`). Number n+1 is created only once that outcome is known. So a prepare below the head is committed if
  the timeline shows its instant as completed; otherwise it is void.

A record is one line of JSON (the header), a newline, and the bytes of the completed instant, whose length and SHA-256 the
header holds. Records of a newer format or an unknown kind are refused, not skipped.

The record of the boundary says how far decisions are collected. It also holds the reservations (ADR 20), because every
transaction reads it when it begins and again before it decides.

The prepares of a transaction over several tables (`docs/adr/0021`) name the transaction. Its *home* table, the first in
canonical order, gets one outcome record, put if absent: the commit point of all tables. An outcome alone proves nothing,
since a late request may use its name again after it was deleted: every reader of an outcome lists the timeline after it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from functools import partial

from lakelock.clock import Runtime
from lakelock.errors import LISTED_BY_DOCTOR, RESTORE_FILE, CorruptTableError, TableError, damage_of_table
from lakelock.identity import WriterIdentity
from lakelock.occ.commit_keys import AppTransaction
from lakelock.parsing import JsonObject
from lakelock.settings.sections import PARALLEL_REQUESTS
from lakelock.storage import Created, Storage, Stored, create
from lakelock.table import layout
from lakelock.table.instants import Action, Instant, is_instant_time

OUTCOME_FORMAT = 1
MOST_TABLES = 100
"""How many tables one transaction may write or read."""

_TRANSACTION_ID = re.compile(r"[0-9]{17}-[0-9A-Za-z-]{1,64}")
_OUTCOME_HINT = f"{RESTORE_FILE}{LISTED_BY_DOCTOR}"


class Verdict(str, Enum):
    """What an outcome says of its transaction, in all of its tables."""

    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True)
class TableInstant:
    """One table that a transaction writes, by its canonical URI, and the transaction's instant there."""

    uri: str
    instant: str
    action: str


@dataclass(frozen=True)
class TransactionName:
    """A transaction over several tables, as each of its prepares names it. `id` is new for each attempt.

    `tables`: what it writes, in canonical order; the first is its home. `reads`: the URIs of tables that it only reads.
    """

    id: str
    tables: tuple[TableInstant, ...]
    reads: tuple[str, ...] = ()

    @property
    def home(self) -> str:
        """The URI of the table that has the outcome."""
        return self.tables[0].uri

    def as_dict(self) -> dict[str, object]:
        """Plain values, for a record, and for people with `--json`."""
        return {"id": self.id, "home": self.home, "tables": [asdict(each) for each in self.tables], "reads": list(self.reads)}

    @classmethod
    def of(cls, found: JsonObject) -> TransactionName:
        """`ValueError` for what `as_dict` did not write."""
        tables = tuple(
            TableInstant(each.text("uri"), each.text("instant"), each.text("action")) for each in found.children("tables")
        )
        reads = tuple(str(each) for each in found.items("reads"))
        if _TRANSACTION_ID.fullmatch(found.text("id")) is None:
            raise ValueError("the id of its transaction is none")
        if not 1 <= len(tables) + len(reads) <= MOST_TABLES or not tables:
            raise ValueError(f"its transaction has {len(tables)} tables")
        if found.text("home") != tables[0].uri or not all(is_instant_time(each.instant) for each in tables):
            raise ValueError("its transaction names its tables wrongly")
        return cls(found.text("id"), tables, reads)

    @classmethod
    def parse(cls, text: str) -> TransactionName | None:
        """What a commit's extra metadata says; None for anything else."""
        try:
            return cls.of(JsonObject.parse(text))
        except ValueError:
            return None

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), separators=(",", ":"))


@dataclass(frozen=True)
class OutcomeRecord:
    """The outcome of one transaction. `write_id` is random: it says which request wrote the record.

    `writer`: who put it, which need not be the transaction's own. `at_ms`: when, by the clock of that writer. `why` is for
    people. `applications`: the `(app id, version)` by which the transaction is applied at most once, if it has one.
    """

    name: TransactionName
    verdict: Verdict
    write_id: str
    writer: WriterIdentity
    at_ms: int
    why: str = ""
    applications: tuple[AppTransaction, ...] = ()

    def to_bytes(self) -> bytes:
        values = {
            "format": OUTCOME_FORMAT,
            "verdict": self.verdict.value,
            "transaction": self.name.as_dict(),
            "write_id": self.write_id,
            "writer": self.writer.as_dict(),
            "at_ms": self.at_ms,
            "why": self.why,
            "applications": [{"id": each.app_id, "version": each.version} for each in self.applications],
        }
        return json.dumps(values, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> OutcomeRecord:
        """Read a record; `CorruptTableError` names it when it is damaged, `TableError` when it is newer than this release."""
        try:
            found = JsonObject.parse(data)
            version, verdict = found.integer("format"), found.text("verdict")
            transaction = TransactionName.of(found.child("transaction"))
            write_id, at_ms, why = found.text("write_id"), found.integer("at_ms"), found.text("why", "")
            writer = WriterIdentity.from_dict(found.child("writer").fields)
            applications = tuple(AppTransaction(a.text("id"), a.integer("version")) for a in found.children("applications"))
        except ValueError as error:
            raise CorruptTableError(f"outcome {name} is not readable: {error}", hint=_OUTCOME_HINT, file=name) from error
        if version > OUTCOME_FORMAT or verdict not in {each.value for each in Verdict}:
            raise TableError(
                f"outcome {name} has format {version} and verdict {verdict!r}, written by a newer lakelock",
                hint="pip install --upgrade lakelock",
            )
        return cls(transaction, Verdict(verdict), write_id, writer, at_ms, why, applications)


def read_outcome(home: Storage, transaction: str) -> OutcomeRecord | None:
    """The outcome of a transaction whose home this is; None if there is none, or none any more. One request."""
    key = layout.outcome(transaction)
    stored = home.get(key)
    if stored is None:
        return None
    record = OutcomeRecord.from_bytes(stored.data, key)
    if record.name.id != transaction:
        raise CorruptTableError(f"outcome {key} is that of {record.name.id}", hint=_OUTCOME_HINT, file=key)
    return record


MOST_RESERVATIONS = 32
"""How many may wait at once; later writers go on without one."""


@dataclass(frozen=True)
class Reservation:
    """One call's place in the queue: no other commits to these partitions before it has ended. None: anywhere in the table.

    `before` are the instants that had claims when it was made. They are older, so they wait for none of it. `since_ms` is
    when it was made by its machine's clock, 0 if that is not known: for people only.
    """

    id: str
    writer: WriterIdentity
    operation: str
    places: frozenset[str] | None
    before: frozenset[str] = field(default=frozenset(), repr=False)
    since_ms: int = field(default=0, compare=False)

    def covers(self, partition: str) -> bool:
        return self.places is None or partition in self.places

    def covers_all(self, places: frozenset[str] | None) -> bool:
        """Whether nothing of `places`, None for the whole table, is outside."""
        return self.places is None or (places is not None and places <= self.places)

    def meets(self, other: Reservation) -> bool:
        """Whether the two have a partition in common."""
        if self.places is None or other.places is None:
            return True
        return not self.places.isdisjoint(other.places)

    def as_dict(self) -> dict[str, object]:
        return {
            "id": self.id,
            "writer": self.writer.as_dict(),
            "operation": self.operation,
            "places": None if self.places is None else sorted(self.places),
            "before": sorted(self.before),
            "since_ms": self.since_ms,
        }

    @classmethod
    def from_json(cls, found: JsonObject) -> Reservation:
        """Read what `as_dict` wrote; `ValueError` for anything else."""
        places = None if found.get("places") is None else frozenset(_texts_of(found, "places"))
        writer = WriterIdentity.from_dict(found.child("writer").fields)
        since_ms = 0 if found.get("since_ms") is None else found.integer("since_ms", at_least=0)
        return cls(found.text("id"), writer, found.text("operation"), places, frozenset(_texts_of(found, "before")), since_ms)

    def __str__(self) -> str:
        return f"{self.operation} by {self.writer}, which had lost too often"


def in_the_way(
    queue: Sequence[Reservation], partitions: Iterable[str], *, instant: str, own: str = "", ended: Collection[str] = ()
) -> Reservation | None:
    """The first reservation that a transaction which writes to these partitions has to wait for; None if it may go on.

    A writer with a reservation (`own`) waits only for older ones, and a writer that had claims when a reservation was made does
    not wait for it. So each writer waits only for older ones, and no deadlock can arise.
    """
    written = frozenset(partitions)
    for reservation in queue:
        if reservation.id == own:
            return None
        if reservation.id in ended or instant in reservation.before:
            continue
        if any(map(reservation.covers, written)):
            return reservation
    return None


def _texts_of(found: JsonObject, name: str) -> list[str]:
    texts = found.items(name)
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{name} is not a list of strings")
    return texts


BOUNDARY_FORMAT = 1


@dataclass(frozen=True)
class Boundary:
    """Decisions up to `number` may have been deleted; 0 when none ever was.

    `lock`: the lock that the table was moved to, if it was. `reservations`: oldest first.
    """

    number: int = 0
    lock: str = ""
    reservations: tuple[Reservation, ...] = ()

    def to_bytes(self) -> bytes:
        fields: dict[str, object] = {"format": BOUNDARY_FORMAT, "boundary": self.number}
        if self.lock:
            fields["lock"] = self.lock
        if self.reservations:
            fields["reservations"] = [reservation.as_dict() for reservation in self.reservations]
        return json.dumps(fields, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes, *, hint: str) -> Boundary:
        """Read the record; `CorruptTableError` with this hint when it is torn, `TableError` for one of a newer release."""
        try:
            header = JsonObject.parse(data)
            version, number = header.integer("format"), header.integer("boundary", at_least=0)
            lock = header.text("lock", "")
            queue = header.children("reservations") if header.get("reservations") is not None else []
            reservations = tuple(Reservation.from_json(each) for each in queue)
        except ValueError as error:
            key = layout.DECISIONS_BOUNDARY
            raise CorruptTableError(f"{key} is not readable: {error}", hint=hint, file=key) from error
        if version > BOUNDARY_FORMAT:
            raise TableError("the decision boundary was written by a newer lakelock", hint="pip install --upgrade lakelock")
        return cls(number, lock, reservations)


FORMAT = 1


class DecisionKind(str, Enum):
    COMMIT = "commit"
    ROLLBACK = "rollback"
    PREPARE = "prepare"


class Resolution(Enum):
    """What a decision means for its instant. UNDECIDED: there is no decision about it yet, or its log alone does not say."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Decision:
    """One decision about one instant. `completion` and `payload` are empty for a rollback.

    `write_id` is random and says which attempt wrote the record; `payload` are the very bytes of the completed instant.
    `transaction`: what a prepare is part of; None for every other kind. `members`: the offers whose rows a commit has. An
    offer is withdrawn by a rollback that names it in the place of an instant (`lakelock.occ.offers`).
    """

    number: int
    kind: DecisionKind
    instant: str
    action: str
    write_id: str
    writer: WriterIdentity
    operation: str
    completion: str = ""
    payload: bytes = b""
    transaction: TransactionName | None = None
    members: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        header: dict[str, object] = {
            "format": FORMAT,
            "number": self.number,
            "kind": self.kind.value,
            "instant": self.instant,
            "action": self.action,
            "completion": self.completion,
            "write_id": self.write_id,
            "writer": self.writer.as_dict(),
            "operation": self.operation,
            "payload_bytes": len(self.payload),
            "payload_sha256": hashlib.sha256(self.payload).hexdigest(),
        }
        if self.transaction is not None:
            header["transaction"] = self.transaction.as_dict()
        if self.members:
            header["members"] = self.members
        return json.dumps(header, separators=(",", ":")).encode() + b"\n" + self.payload

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Decision:
        """Read a record; `CorruptTableError` names it when it is torn, `TableError` when it is newer than this release."""
        head, _, payload = data.partition(b"\n")
        try:
            header = JsonObject.parse(head)
            number, version, kind = header.integer("number"), header.integer("format"), header.text("kind")
            fields = {key: header.text(key) for key in ("instant", "action", "completion", "write_id", "operation")}
            writer = WriterIdentity.from_dict(header.child("writer").fields)
            size, digest = header.integer("payload_bytes"), header.text("payload_sha256")
            prepares = kind == DecisionKind.PREPARE.value and version <= FORMAT
            transaction = TransactionName.of(header.child("transaction")) if prepares else None
            members = tuple(_texts_of(header, "members")) if header.get("members") is not None else ()
        except ValueError as error:
            raise CorruptTableError(f"decision {name} is not readable: {error}", hint=_RESTORE, file=name) from error
        if version > FORMAT or kind not in {k.value for k in DecisionKind}:
            raise TableError(
                f"decision {name} has format {version} and kind {kind!r}, written by a newer lakelock",
                hint="pip install --upgrade lakelock",
            )
        if len(payload) != size or hashlib.sha256(payload).hexdigest() != digest:
            raise CorruptTableError(f"decision {name} is torn: {len(payload)} of {size} bytes", hint=_RESTORE, file=name)
        known = DecisionKind(kind)
        return cls(
            number=number, kind=known, writer=writer, payload=payload, transaction=transaction, members=members, **fields
        )  # fmt: skip


def resolve(decision: Decision | None) -> Resolution:
    """What a decision alone means for its instant; without one it is undecided. Every use of a decision asks here.

    A prepare is undecided by itself: `lakelock.occ.publish` tells what became of its transaction.
    """
    if decision is None or decision.kind is DecisionKind.PREPARE:
        return Resolution.UNDECIDED
    return Resolution.COMMITTED if decision.kind is DecisionKind.COMMIT else Resolution.ROLLED_BACK


REMEMBERED = 64
"""How many collected decisions a process keeps in memory, because it may want their schemas."""

_RESTORE = f"{RESTORE_FILE}{LISTED_BY_DOCTOR}"


@dataclass(frozen=True)
class LogView:
    """One consistent look at the log: the numbers above the boundary, dense and sorted, and the records that were asked for.

    `floor`: the number before the first that this look could show. `lock`: the lock that the table was moved to, if it was.
    `reservations`: as they were when the boundary was read.
    """

    boundary: int
    floor: int
    numbers: tuple[int, ...]
    decisions: tuple[Decision, ...] = ()
    lock: str = ""
    reservations: tuple[Reservation, ...] = ()

    @property
    def head(self) -> int:
        """The greatest number ever used, as far as this look can tell."""
        return self.numbers[-1] if self.numbers else self.floor


class DecisionLog:
    """Reads and extends the log of one table. Records are immutable, so what was read once is kept.

    Shared by threads: while one looks through what is known, another may add to it.
    """

    def __init__(self, storage: Storage, runtime: Runtime | None = None, *, parallel: int = PARALLEL_REQUESTS) -> None:
        """With a `runtime` several records are read at a time, at most `parallel`."""
        self._storage, self._runtime, self._parallel = storage, runtime, parallel
        self._known: dict[int, Decision] = {}
        self.known_boundary = 0
        self.newest = 0
        """The greatest number that this process has met; 0 if it has not looked yet."""

    def look(
        self, *, after: int = 0, newest: int | None = 1, listed: Sequence[int] | None = None, judged_by: Boundary | None = None
    ) -> LogView:
        """List the numbers above `after`, read the `newest` records (None: all), then the boundary, in this order.

        `listed`: what `numbers` or `ahead` returned for the same `after`. Then nothing is listed, so newer decisions are
        missing, but a writer that puts the next number finds it taken. `judged_by`: a boundary that was read after the records,
        in place of reading it now.
        """
        listed = self.numbers(after) if listed is None else listed
        records = self._records(listed, newest)
        record = self.read_boundary() if judged_by is None else judged_by
        boundary = record.number
        numbers = tuple(n for n in listed if n > boundary)
        floor = max(boundary, after)
        if numbers:
            # Above the boundary nothing was deleted before it was read, so whatever is listed has its record.
            there = {n for n in numbers if records.get(n, n) is not None}
            missing = next((n for n in range(floor + 1, numbers[-1] + 1) if n not in there), None)
            if missing is not None:
                raise CorruptTableError(
                    f"decision {missing} is missing although {numbers[-1]} exists and the boundary is {boundary}",
                    hint=_RESTORE,
                    file=layout.decision(missing),
                )
        decisions = tuple(d for n, d in records.items() if d is not None and n > boundary)
        return LogView(boundary, floor, numbers, decisions, record.lock, record.reservations)

    def ahead(self, *, after: int) -> tuple[int, ...]:
        """The numbers above `after`; their records are read now, so that a later look finds them read."""
        listed = self.numbers(after)
        self._records(listed, None)
        return tuple(listed)

    def numbers(self, after: int = 0) -> list[int]:
        """The numbers above `after`, sorted. One listing."""
        listed = self._storage.list(layout.DECISIONS, start_after=layout.decision(after))
        numbers = sorted(layout.decision_number(item.key) for item in listed)
        newest = max([after, *numbers[-1:]])
        if newest < self.newest and not after:
            # The head is never collected, so a smaller one means that the table was dropped and made anew.
            self._known, self.known_boundary = {}, 0
        self.newest = newest if not after else max(self.newest, newest)
        return numbers

    def _records(self, numbers: Sequence[int], newest: int | None) -> dict[int, Decision | None]:
        wanted = [n for n in numbers if n > self.known_boundary]
        wanted = wanted if newest is None else wanted[max(0, len(wanted) - newest) :]
        return dict(zip(wanted, self._read_all(wanted), strict=True))

    def peek(self, *, after: int) -> tuple[Decision, ...]:
        """The decisions above `after` that are there now: one listing, and a read for each. For advice, never for a commit."""
        return tuple(d for d in self._read_all(self.numbers(after)) if d is not None)

    def between(self, after: int, up_to: int) -> list[Decision | None]:
        """The records above `after`, up to a number; None where there is none (any more). A read for each that is not known."""
        return self._read_all(range(after + 1, up_to + 1))

    def _read_all(self, numbers: Sequence[int]) -> list[Decision | None]:
        reads = [partial(self.read, number) for number in numbers]
        if self._runtime is None or all(number in self._known for number in numbers):
            return [read() for read in reads]
        return self._runtime.gather(reads, limit=self._parallel)

    def boundary(self) -> int:
        """The number up to which decisions may have been deleted; 0 when none ever was."""
        return self.read_boundary().number

    def reservations(self) -> tuple[Reservation, ...]:
        """The reservations that there are now, oldest first. One request."""
        return self.read_boundary().reservations

    def read_boundary(self) -> Boundary:
        """The record of the boundary as it is now. One request."""
        stored = self._storage.get(layout.DECISIONS_BOUNDARY)
        boundary = _boundary_of(stored)
        self.known_boundary = boundary.number
        if len(self._known) > 2 * REMEMBERED:
            self._known = {n: d for n, d in list(self._known.items()) if n > boundary.number - REMEMBERED}
        return boundary

    def known(self, instant: str) -> Decision | None:
        """The decision by which an instant that is completed was committed, if this process has read it; no request."""
        read = list(self._known.values())
        return next((d for d in read if d.instant == instant and d.kind is not DecisionKind.ROLLBACK), None)

    def known_since(self, number: int) -> list[Decision]:
        """The decisions above a number that this process has read, whether they count or not; no request."""
        return [d for n, d in list(self._known.items()) if n > number]

    def without_decision(self, completed: Iterable[Instant], *, after: int, up_to: int) -> list[Instant]:
        """Completed instants of which no decision was read, if they outnumber the unread records; else none. No request.

        Only records above `after`, up to `up_to`, can be unread. If there are more such instants than unread records, some of
        the instants have no decision.
        """
        read = {d.instant for d in list(self._known.values()) if d.kind is not DecisionKind.ROLLBACK}
        found = [i for i in completed if i.requested not in read]
        unread = sum(number not in self._known for number in range(after + 1, up_to + 1)) if found else 0
        return found if len(found) > unread else []

    def read(self, number: int) -> Decision | None:
        """The record, or None if it is not there (any more). Only a boundary read afterwards tells whether it counts."""
        known = self._known.get(number)
        if known is not None:
            return known
        key = layout.decision(number)
        stored = self._storage.get(key)
        if stored is None:
            return None
        with damage_of_table(self._storage.uri):
            decision = Decision.from_bytes(stored.data, key)
            if decision.number != number:
                raise CorruptTableError(f"decision {key} says that it is number {decision.number}", hint=_RESTORE, file=key)
        self._known[number] = decision
        return decision

    def decide(self, decision: Decision) -> Created:
        """Create the record under its number, and tell truthfully whose record is there now."""
        outcome = create(self._storage, layout.decision(decision.number), decision.to_bytes())
        if outcome is Created.OURS:
            self._known[decision.number] = decision
        return outcome

    def decide_rollback(self, number: int, about: str, action: Action, writer: WriterIdentity, write_id: str) -> Created:
        """Decide under this number that an instant, or an offer, is rolled back. `Created.OURS` only if the record counts.

        A number at or below the boundary was used and collected before: a record under it means nothing, and it is `THEIRS`.
        """
        record = Decision(
            number=number,
            kind=DecisionKind.ROLLBACK,
            instant=about,
            action=action.value,
            write_id=write_id,
            writer=writer,
            operation="ROLLBACK",
        )
        made = self.decide(record)
        if made is Created.OURS and self.boundary() >= number:
            return Created.THEIRS
        return made

    def raise_boundary(self, to: int) -> bool:
        """Move the boundary up to `to` by compare-and-swap; False when another process moved it meanwhile."""
        return self._change_boundary(lambda found: replace(found, number=to) if to > found.number else None)

    def move_lock(self, lock: str) -> bool:
        """Note which lock the table has moved to, where every commit looks anyway; False when the boundary moved meanwhile."""
        return self._change_boundary(lambda found: replace(found, lock=lock))

    def change_reservations(self, change: Callable[[tuple[Reservation, ...]], tuple[Reservation, ...] | None]) -> bool:
        """Change the queue by compare-and-swap; False when the boundary changed meanwhile, or `change` gives None."""

        def changed(found: Boundary) -> Boundary | None:
            queue = change(found.reservations)
            return None if queue is None else replace(found, reservations=queue)

        return self._change_boundary(changed)

    def _change_boundary(self, change: Callable[[Boundary], Boundary | None]) -> bool:
        stored = self._storage.get(layout.DECISIONS_BOUNDARY)
        changed = change(_boundary_of(stored))
        if changed is None:
            return False
        if stored is None:
            return self._storage.put_if_absent(layout.DECISIONS_BOUNDARY, changed.to_bytes()) is not None
        return self._storage.put_if_match(layout.DECISIONS_BOUNDARY, changed.to_bytes(), stored.etag) is not None

    def delete_up_to(self, number: int) -> int:
        """Delete the decisions at or below `number`, which the boundary must already cover; how many there were."""
        keys = [item.key for item in self._storage.list(layout.DECISIONS) if layout.decision_number(item.key) <= number]
        self._storage.delete(keys)
        self._known = {n: d for n, d in list(self._known.items()) if n > number}
        return len(keys)


def tombstone(decision: Decision, write_id: str) -> Decision:
    """A rollback of the same instant under the same number: putting it settles a decision whose reply was lost."""
    return replace(decision, kind=DecisionKind.ROLLBACK, write_id=write_id, completion="", payload=b"", members=())


def decided_for(instant: str, decisions: Sequence[Decision]) -> Decision | None:
    """The decision about `instant`, if there is one."""
    return next((d for d in decisions if d.instant == instant), None)


def decided_for_offer(offer: str, decisions: Iterable[Decision]) -> Decision | None:
    """The decision about an offer, if there is one: the commit that has its rows, or its withdrawal."""
    return next((d for d in decisions if offer in d.members or d.instant == offer), None)


def _boundary_of(stored: Stored | None) -> Boundary:
    return Boundary() if stored is None else Boundary.from_bytes(stored.data, hint=_RESTORE)
