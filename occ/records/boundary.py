"""The record of the boundary: how far decisions are collected, and what else every transaction has to see."""

from __future__ import annotations

import json
from dataclasses import dataclass

from lakelock.errors import CorruptTableError, TableError
from lakelock.occ.records.reservations import Reservation
from lakelock.parsing import JsonObject
from lakelock.table import layout

FORMAT = 1


@dataclass(frozen=True)
class Boundary:
    """Decisions up to `number` may have been deleted; 0 when none ever was.

    `lock`: the lock that the table was moved to, if it was. `reservations`: oldest first.
    """

    number: int = 0
    lock: str = ""
    reservations: tuple[Reservation, ...] = ()

    def to_bytes(self) -> bytes:
        fields: dict[str, object] = {"format": FORMAT, "boundary": self.number}
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
        if version > FORMAT:
            raise TableError("the decision boundary was written by a newer lakelock", hint="pip install --upgrade lakelock")
        return cls(number, lock, reservations)
