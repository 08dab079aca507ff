"""What a rejected transaction leaves behind: one small record of the conflict, for later questions.

Records are for people. Nothing in the protocol reads them: they may be missing, and old ones are deleted by upkeep.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from lakelock.clock import Runtime
from lakelock.conflict import SHOWN, Conflict, ConflictRule, Explanation, Party
from lakelock.errors import ConflictError, CorruptTableError, RolledBackError
from lakelock.identity import WriterIdentity
from lakelock.parsing import JsonObject
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.table.instants import is_instant_time, parse_instant

FORMAT = 1
MOST_RECORDS = 1_000
KEPT_DAYS = 7
MOST_CHARACTERS = 300
"""The longest text in a record."""


@dataclass(frozen=True)
class Rejection:
    """Why one instant was rejected. `conflict` is None for one that another process rolled back; `message` says so then.

    `at_ms`: when, by its writer's clock.
    """

    instant: str
    operation: str
    writer: WriterIdentity
    at_ms: int
    message: str
    conflict: Conflict | None = None

    @classmethod
    def of(cls, party: Party, writer: WriterIdentity, at_ms: int, error: ConflictError | RolledBackError) -> Rejection:
        """The record for an error, without the row that collided: the record may outlive the erasure of that row."""
        conflict = error.conflict.without_rows() if isinstance(error, ConflictError) else None
        return cls(party.instant, party.operation, writer, at_ms, str(conflict or error.message), conflict)

    @property
    def explanation(self) -> Explanation | None:
        return Explanation.of(self.conflict) if self.conflict is not None else None

    def as_dict(self) -> dict[str, object]:
        """Plain values, for `--json`."""
        found = self.explanation
        return {
            "instant": self.instant,
            "operation": self.operation,
            "writer": str(self.writer),
            "at_ms": self.at_ms,
            "message": self.message,
            "early": self.conflict is not None and self.conflict.early,
            "explanation": found.as_dict() if found is not None else None,
        }

    def to_bytes(self) -> bytes:
        values = {**asdict(self), "format": FORMAT, "conflict": self.conflict.as_dict() if self.conflict else None}
        return json.dumps(_cut(values), ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Rejection:
        """`ValueError` for bytes that are no such record, or that of a later lakelock version."""
        found = JsonObject.parse(data)
        if found.integer("format") != FORMAT:
            raise ValueError("a later version wrote it")
        return cls(
            found.text("instant"),
            found.text("operation"),
            WriterIdentity.from_dict(found.child("writer").fields),
            found.integer("at_ms"),
            found.text("message"),
            _conflict_of(found.child("conflict")) if found.get("conflict") is not None else None,
        )


def write_rejection(storage: Storage, rejection: Rejection) -> None:
    """Leave the record. One request."""
    storage.put(layout.rejection(rejection.instant), rejection.to_bytes())


def read_rejection(storage: Storage, instant: str) -> Rejection | None:
    """The record of an instant, None if there is none (any more). `CorruptTableError` if it cannot be understood."""
    key = layout.rejection(instant)
    stored = storage.get(key)
    if stored is None:
        return None
    try:
        return Rejection.from_bytes(stored.data)
    except ValueError as error:
        hint = "it is for people only: read it as it is, or delete it"
        raise CorruptTableError(f"{key} is not a record of a rejection: {error}", hint=hint, file=key) from error


def rejected_instants(storage: Storage) -> list[str]:
    """The instants that have a record, newest first. One listing."""
    names = (entry.key.rpartition("/")[2] for entry in storage.list(layout.REJECTIONS))
    return sorted(filter(is_instant_time, names), reverse=True)


def outdated_rejections(storage: Storage, runtime: Runtime) -> list[str]:
    """The instants whose records are no longer needed: all but the newest thousand of the last week. One listing."""
    oldest_ms = runtime.now_ms() - KEPT_DAYS * 86_400_000
    found = rejected_instants(storage)
    return [instant for at, instant in enumerate(found) if at >= MOST_RECORDS or parse_instant(instant) < oldest_ms]


def forget_rejections(storage: Storage, runtime: Runtime) -> int:
    """Delete the outdated records; how many."""
    old = outdated_rejections(storage, runtime)
    storage.delete(map(layout.rejection, old))
    return len(old)


def _cut(value: object) -> object:
    """The value with every text at most `MOST_CHARACTERS` long."""
    if isinstance(value, dict):
        return {name: _cut(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_cut(each) for each in value]
    return value[: MOST_CHARACTERS - 1] + "…" if isinstance(value, str) and len(value) > MOST_CHARACTERS else value


def _conflict_of(found: JsonObject) -> Conflict:
    return Conflict(
        rule=ConflictRule(found.text("rule")),
        mine=_party_of(found.child("mine")),
        other=_party_of(found.child("other")),
        overlap=tuple(str(each) for each in found.items("overlap")[:SHOWN]),
        overlap_count=found.integer("overlap_count", at_least=0),
        detail=found.text("detail", ""),
        retry_helps=found.get("retry_helps") is not False,
        early=found.get("early") is True,
        read=found.text("read", ""),
        profile=found.text("profile", ""),
        level=found.text("level", ""),
        passes_at=found.text("passes_at", ""),
    )


def _party_of(found: JsonObject) -> Party:
    writer, completion = found.get("writer"), found.get("completion")
    return Party(
        found.text("instant", ""),
        found.text("operation", ""),
        WriterIdentity.from_dict(found.child("writer").fields) if writer is not None else None,
        str(completion) if completion is not None else None,
        found.number("seen_ago_s") if found.get("seen_ago_s") is not None else None,
    )
