"""Reservations: the writers that have lost too often, in the order in which they are served (ADR 20).

They lie in the record of the boundary, which every transaction reads when it begins and again before it decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from lakelock.identity import WriterIdentity
from lakelock.parsing import JsonObject

MOST_RESERVATIONS = 32
"""How many may wait at once; whoever comes then goes on without one."""


@dataclass(frozen=True)
class Reservation:
    """One call's place in the queue: nobody commits to these partitions before it has ended. None: anywhere in the table.

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
        places = None if found.get("places") is None else frozenset(_texts(found, "places"))
        writer = WriterIdentity.from_dict(found.child("writer").fields)
        since_ms = 0 if found.get("since_ms") is None else found.integer("since_ms", at_least=0)
        return cls(found.text("id"), writer, found.text("operation"), places, frozenset(_texts(found, "before")), since_ms)

    def __str__(self) -> str:
        return f"{self.operation} by {self.writer}, which had lost too often"


def in_the_way(
    queue: Sequence[Reservation], partitions: Iterable[str], *, instant: str, own: str = "", ended: Collection[str] = ()
) -> Reservation | None:
    """The first reservation that a transaction which writes to these partitions has to wait for; None if it may go on.

    Whoever has a reservation itself (`own`) waits only for older ones, and whoever had claims when a reservation was made does
    not wait for it. So everybody waits only for what is older, and no chain of waiting closes.
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


def _texts(found: JsonObject, name: str) -> list[str]:
    texts = found.items(name)
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{name} is not a list of strings")
    return texts
