"""How far cleaning has come: a note beside the timeline, so that a clean need not look where nothing has changed since.

It says something that stays true once it is true, whoever cleans or writes afterwards. So a note that is late, old or lost
costs a longer look and no more. Its format is our own; other engines neither read nor need it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from lakelock.json_object import JsonObject

_VERSION = 1


@dataclass(frozen=True)
class CleanedUntil:
    """Every data file that a commit requested before `until` superseded is gone, except what `holds` kept.

    `holds` are savepoints and plans to cluster, as `<instant>.<action>`. `listed_ms`: when the whole table was last
    listed, by the storage's time, and how many `objects` it had.
    """

    until: str
    holds: frozenset[str]
    listed_ms: int
    objects: int = 0

    def to_bytes(self) -> bytes:
        fields = {
            "version": _VERSION,
            "until": self.until,
            "holds": sorted(self.holds),
            "listed_ms": self.listed_ms,
            "objects": self.objects,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> CleanedUntil | None:
        """The note in an object; None if it is torn or of another version: then nothing is known."""
        try:
            fields = JsonObject.parse(data)
            holds = fields.items("holds")
            if fields.integer("version") != _VERSION or not all(isinstance(hold, str) for hold in holds):
                return None
            listed_ms, objects = fields.integer("listed_ms"), fields.integer("objects", at_least=0)
            return cls(fields.text("until"), frozenset(holds), listed_ms, objects)
        except ValueError:
            return None
