"""The lock table: holders, waiters, and the rules of granting. A pure value, stored as a document in any register.

First come, first served: a request is granted when nothing before it, held or waiting, is in its way. So readers and
writers do not starve, and since a request is granted as a whole and holds nothing while it waits, there is no deadlock.

No clock of another machine is ever read: an entry is renewed by counting up its `beat`, and a process that sees an entry
unchanged for its whole lease, by its own monotonic clock (`Watch`), may remove it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from lakelock.clock import Runtime
from lakelock.data_locks.base import LockRequest, Mode, Resource, collide, lock_request
from lakelock.errors import CorruptTableError
from lakelock.identity import WriterIdentity
from lakelock.parsing import JsonObject
from lakelock.providers.base import DRIFT_MARGIN_S

FORMAT = 1


@dataclass(frozen=True)
class Entry:
    """One request in the table. `number` is its place in the queue and its token; `grant` names it, random.

    Times are milliseconds by the clock of the writer that noted them, for people: no decision depends on them.
    """

    grant: str
    request: LockRequest
    writer: WriterIdentity
    lease_s: float
    since_ms: int
    number: int = 0
    beat: int = 0
    acquired_ms: int | None = None

    @property
    def held(self) -> bool:
        return self.acquired_ms is not None

    @property
    def version(self) -> tuple[int, int]:
        """Changes with each sign of life."""
        return self.number, self.beat


@dataclass(frozen=True)
class LockTable:
    """All requests of one table in order of arrival, and the latest number ever given out."""

    latest: int = 0
    entries: tuple[Entry, ...] = field(default=())

    def find(self, grant: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.grant == grant), None)

    def blockers(self, entry: Entry) -> tuple[Entry, ...]:
        """The entries that keep `entry` from being granted: every earlier entry in its way."""
        return tuple(other for other in self._before(entry) if collide(entry.request, other.request))

    def enqueued(self, entry: Entry, now_ms: int) -> LockTable:
        """The table with `entry` last in the queue, granted if no request is in its way; unchanged if it is already there."""
        if self.find(entry.grant) is not None:
            return self
        number = self.latest + 1
        return replace(self, latest=number, entries=(*self.entries, replace(entry, number=number)))._settled(now_ms)

    def renewed(self, grant: str) -> LockTable:
        """The table with a sign of life of one entry."""
        return self._with(tuple(replace(e, beat=e.beat + 1) if e.grant == grant else e for e in self.entries))

    def without(self, grants: Collection[str], now_ms: int) -> LockTable:
        """The table without these entries, after granting every entry that waited only for them."""
        return self._with(tuple(entry for entry in self.entries if entry.grant not in grants))._settled(now_ms)

    def _with(self, entries: tuple[Entry, ...]) -> LockTable:
        return self if entries == self.entries else replace(self, entries=entries)

    def _settled(self, now_ms: int) -> LockTable:
        """The table after granting every entry that has no earlier one in its way.

        One pass looks at each resource once per entry, so a thousand partitions and fifty waiters are no trouble.
        """
        wanted: dict[Resource, Mode] = {}
        entries = []
        for entry in self.entries:
            free = entry.held or not any(
                Mode.EXCLUSIVE in (lock.mode, wanted[lock.resource]) for lock in entry.request.locks if lock.resource in wanted
            )
            entries.append(replace(entry, acquired_ms=now_ms) if free and not entry.held else entry)
            for lock in entry.request.locks:
                if wanted.get(lock.resource) is not Mode.EXCLUSIVE:
                    wanted[lock.resource] = lock.mode
        return self._with(tuple(entries))

    def _before(self, entry: Entry) -> Iterator[Entry]:
        return (other for other in self.entries if other.number < entry.number)

    def to_bytes(self) -> bytes:
        fields = {"format": FORMAT, "latest": self.latest, "entries": [_entry_fields(entry) for entry in self.entries]}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> LockTable:
        """Read what `to_bytes` wrote; `CorruptTableError` for anything else: an unknown state never counts as free."""
        try:
            fields = JsonObject.parse(data)
            if fields.get("format") != FORMAT:
                raise ValueError(f"format {fields.get('format')!r} is not known to this version")
            table = cls(fields.integer("latest", at_least=0), tuple(map(_entry, fields.children("entries"))))
            numbers = [entry.number for entry in table.entries]
            if numbers != sorted(set(numbers)) or (numbers and numbers[-1] > table.latest):
                raise ValueError("the numbers are out of order")
            return table
        except ValueError as error:
            raise CorruptTableError(
                f"the table of data locks cannot be read ({error}), so what is locked is unknown",
                hint="make sure that no writer runs, then clear it: lakelock locks break PATH --data --all --force",
            ) from error


def request_fields(request: LockRequest) -> dict[str, object]:
    """A request as plain values. Ancestors are left out: they follow from the rest."""
    leaves = request.leaves
    return {
        "shared": [lock.resource.path for lock in leaves if lock.mode is Mode.SHARED],
        "exclusive": [lock.resource.path for lock in leaves if lock.mode is Mode.EXCLUSIVE],
        "about": request.about,
    }


def request_of(fields: JsonObject) -> LockRequest:
    """Read what `request_fields` wrote; `ValueError` for anything else."""
    return lock_request(_resources(fields, "shared"), _resources(fields, "exclusive"), about=fields.text("about"))


def _entry_fields(entry: Entry) -> dict[str, object]:
    return {
        "number": entry.number,
        "grant": entry.grant,
        **request_fields(entry.request),
        "writer": entry.writer.as_dict(),
        "leaseMs": round(entry.lease_s * 1000),
        "since": entry.since_ms,
        "acquired": entry.acquired_ms,
        "beat": entry.beat,
    }


def _entry(fields: JsonObject) -> Entry:
    return Entry(
        grant=fields.text("grant"),
        request=request_of(fields),
        writer=WriterIdentity.from_dict(fields.child("writer").fields),
        lease_s=fields.integer("leaseMs", at_least=0) / 1000,
        since_ms=fields.integer("since"),
        number=fields.integer("number", at_least=1),
        beat=fields.integer("beat", at_least=0),
        acquired_ms=None if fields.get("acquired") is None else fields.integer("acquired"),
    )


def _resources(fields: JsonObject, name: str) -> list[Resource]:
    paths = fields.items(name)
    if not all(isinstance(path, str) for path in paths):
        raise ValueError(f"{name} is not a list of paths")
    return [Resource.of(path) for path in paths]


def watch_s(lease_s: float) -> float:
    """How long a silent holder with this lease is watched before it is removed."""
    return lease_s + DRIFT_MARGIN_S


class Watch:
    """What I have seen of other entries, and since when they have not changed. Several threads may use it.

    Not the watches of the lock providers: those also use an age that their service reports, which a document does not have.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._since_s: dict[str, tuple[tuple[int, int], float]] = {}

    def see(self, entries: Iterable[Entry]) -> None:
        """Start or continue watching these entries, and forget all others."""
        now_s, before = self._runtime.monotonic_s(), self._since_s
        seen = {}
        for entry in entries:
            version, since_s = before.get(entry.grant, (entry.version, now_s))
            seen[entry.grant] = (version, since_s) if version == entry.version else (entry.version, now_s)
        self._since_s = seen

    def over(self, entries: Iterable[Entry]) -> list[str]:
        """The grants of those that showed no sign of life for their whole lease."""
        now_s = self._runtime.monotonic_s()
        return [
            entry.grant
            for entry in entries
            if (seen := self._since_s.get(entry.grant)) is not None
            and seen[0] == entry.version
            and now_s - seen[1] >= watch_s(entry.lease_s)
        ]
