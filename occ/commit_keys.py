"""The keys under which a commit records what Hudi has no field for.

They are in `extraMetadata` and start with `lakelock.`; a foreign commit, which lacks them, is judged conservatively.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakelock.identity import WriterIdentity
from lakelock.parsing import JsonObject

SCHEMA = "schema"
WRITE_ID = "lakelock.write_id"
DECISION = "lakelock.decision"
WRITER = "lakelock.writer"
OPERATION = "lakelock.operation"
APPLICATION = "lakelock.application"
QUERY = "lakelock.query"
"""The id of the streaming query whose batch it is, where its batches carry another name."""
READS = "lakelock.reads"
COMMIT_INFO = "lakelock.commit_info"
SAW = "lakelock.saw"
NEWEST_FOREIGN = "lakelock.beside"
TAG = "lakelock.tag"
KEPT = "lakelock.kept"
"""How many of the commit's files are copies of those of an attempt before that was rejected; absent for none."""
MEMBERS = "lakelock.members"
"""Whose rows a group commit has, as JSON: one offer each."""
RAN_ON = "lakelock.ran_on"
"""Where a write by Spark has run: on its executors, or, of few rows, in the driver; absent without Spark."""
DRIVER, EXECUTORS = "driver", "executors"
TRANSACTION = "lakelock.transaction"
"""The transaction over several tables that the commit is part of: its id, and its tables with their instants."""
OVER = "lakelock.over"
"""The tables over which the transaction was begun that the commit is part of, whether or not it wrote to all of them."""
REPAIRED = "lakelock.repaired"
"""The instants, with commas between them, of undone commits that a repair has taken out of the table."""
RESTORED = "lakelock.restored"
"""The instant time as of which a restore made the table what it was."""


@dataclass(frozen=True)
class AppTransaction:
    """An application's own numbering of its writes: each `(app_id, version)` is applied at most once, in growing order."""

    app_id: str
    version: int

    def __str__(self) -> str:
        return f"{self.app_id}: {self.version}"

    def to_json(self) -> str:
        return json.dumps({"id": self.app_id, "version": self.version})

    @classmethod
    def from_extra(cls, extra: Mapping[str, str]) -> AppTransaction | None:
        try:
            values = JsonObject.parse(extra[APPLICATION])
            return cls(values.text("id"), values.integer("version"))
        except (KeyError, ValueError):
            return None


@dataclass(frozen=True)
class Member:
    """One write of a group commit: `rows` were given; in the commit it says what became of them. `writer` is None if it is not
    known.
    """

    id: str
    writer: WriterIdentity | None
    tag: str
    rows: int
    partitions: tuple[str, ...]
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def as_dict(self) -> dict[str, object]:
        writer = None if self.writer is None else self.writer.as_dict()
        fields = {"id": self.id, "writer": writer, "tag": self.tag, "rows": self.rows, "partitions": self.partitions}
        return fields | {name: getattr(self, name) for name in _OF_MEMBER if getattr(self, name)}

    @classmethod
    def from_json(cls, found: JsonObject) -> Member:
        """Read what `as_dict` wrote; `ValueError` for anything else."""
        writer = None if found.get("writer") is None else WriterIdentity.from_dict(found.child("writer").fields)
        partitions = tuple(str(each) for each in found.items("partitions"))
        done = {name: found.integer(name, at_least=0) for name in _OF_MEMBER if found.get(name) is not None}
        return cls(found.text("id"), writer, found.text("tag"), found.integer("rows", at_least=0), partitions, **done)


_OF_MEMBER = ("inserted", "updated", "deleted")


def members_of(extra: Mapping[str, str]) -> tuple[Member, ...]:
    """Whose rows a commit has, by its extra metadata; empty for a commit that had no offer, or is damaged there."""
    try:
        found = JsonObject.parse(f'{{"members": {extra[MEMBERS]}}}')
        return tuple(map(Member.from_json, found.children("members")))
    except (KeyError, ValueError):
        return ()


def members_text(members: Sequence[Member]) -> str:
    """The same as text, empty for none."""
    return json.dumps([member.as_dict() for member in members], separators=(",", ":")) if members else ""


def uris_over(extra: Mapping[str, str]) -> tuple[str, ...]:
    """The tables over which the transaction of a commit was begun; none for a commit to one table."""
    return tuple(extra[OVER].split("\n")) if extra.get(OVER) else ()
