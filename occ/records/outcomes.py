"""What ties the prepares of a transaction over several tables together: its name, and the one record of its outcome.

Each written table has a *prepare* in its decision log, which names the transaction; the *home* table, the first in canonical
order, gets one outcome record, put if absent: the commit point of all tables (`docs/adr/0021`). An outcome alone proves
nothing, since a late request may use its name again after it was deleted: whoever acts on one lists the timeline after it.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from enum import Enum

from lakelock.errors import LISTED_BY_DOCTOR, RESTORE_FILE, CorruptTableError, TableError
from lakelock.identity import WriterIdentity
from lakelock.occ.records.commit_keys import AppTransaction
from lakelock.parsing import JsonObject
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.table.instants import is_instant_time

FORMAT = 1
MOST_TABLES = 100
"""How many tables one transaction may write or read."""

_ID = re.compile(r"[0-9]{17}-[0-9A-Za-z-]{1,64}")
_HINT = f"{RESTORE_FILE}{LISTED_BY_DOCTOR}"


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
        if _ID.fullmatch(found.text("id")) is None:
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
            "format": FORMAT,
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
            raise CorruptTableError(f"outcome {name} is not readable: {error}", hint=_HINT, file=name) from error
        if version > FORMAT or verdict not in {each.value for each in Verdict}:
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
        raise CorruptTableError(f"outcome {key} is that of {record.name.id}", hint=_HINT, file=key)
    return record
