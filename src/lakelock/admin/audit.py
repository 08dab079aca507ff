"""What people did to a table's locks: one record before the act, one after it, and neither is ever changed.

A record without its second half means that the act was begun, and that nobody knows how it ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace

from lakelock.clock import Runtime
from lakelock.errors import LakelockError
from lakelock.identity import WriterIdentity
from lakelock.parsing import JsonObject
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.table.instants import format_instant

FORMAT = 1
_BEGUN, _ENDED = "begun", "ended"


@dataclass(frozen=True)
class AuditRecord:
    """One act: who did what to which lock, and why. Times are milliseconds by the clock of whoever acted.

    `outcome` is empty while the act is under way, and stays so when its end could not be recorded.
    """

    id: str
    at_ms: int
    action: str
    by: WriterIdentity
    lock: str
    token: int = 0
    holder: str = ""
    forced: bool = False
    reason: str = ""
    outcome: str = ""
    ended_ms: int | None = None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


@contextmanager
def audited(
    storage: Storage,
    runtime: Runtime,
    by: WriterIdentity,
    action: str,
    lock: str,
    *,
    token: int = 0,
    holder: str = "",
    forced: bool = False,
    reason: str = "",
) -> Iterator[AuditRecord]:
    """Record the act in the block, before and after it. An act that cannot be recorded is not begun."""
    now_ms = runtime.now_ms()
    name = f"{format_instant(now_ms)}-{runtime.uuid()[:8]}"
    record = AuditRecord(name, now_ms, action, by, lock, token, holder, forced, reason)
    _put(storage, record, _BEGUN)
    try:
        yield record
    except BaseException as error:
        what = error.message if isinstance(error, LakelockError) else type(error).__name__
        with suppress(LakelockError):
            _put(storage, replace(record, outcome=f"failed: {what}", ended_ms=runtime.now_ms()), _ENDED)
        raise
    with suppress(LakelockError):
        _put(storage, replace(record, outcome="done", ended_ms=runtime.now_ms()), _ENDED)


def read_audit(storage: Storage, limit: int = 100) -> list[AuditRecord]:
    """The newest records, newest first; what cannot be read is shown as such."""
    keys = [item.key for item in storage.list(layout.AUDIT)]
    names = sorted({key.rpartition("/")[2].rpartition(".")[0] for key in keys}, reverse=True)[:limit]
    known = set(keys)
    found = []
    for name in names:
        ended = _key(name, _ENDED)
        found.append(_read(storage, ended if ended in known else _key(name, _BEGUN), name))
    return found


def _put(storage: Storage, record: AuditRecord, half: str) -> None:
    fields = {"format": FORMAT, **asdict(record)}
    storage.put_if_absent(_key(record.id, half), json.dumps(fields, ensure_ascii=False).encode())


def _key(name: str, half: str) -> str:
    return f"{layout.AUDIT}/{name}.{half}"


def _read(storage: Storage, key: str, name: str) -> AuditRecord:
    stored = storage.get(key)
    try:
        fields = JsonObject.parse(stored.data if stored else b"")
        ended = fields.get("ended_ms")
        return AuditRecord(
            id=name,
            at_ms=fields.integer("at_ms", at_least=0),
            action=fields.text("action"),
            by=WriterIdentity.from_dict(fields.child("by").fields),
            lock=fields.text("lock"),
            token=fields.integer("token"),
            holder=fields.text("holder"),
            forced=fields.get("forced") is True,
            reason=fields.text("reason"),
            outcome=fields.text("outcome"),
            ended_ms=None if ended is None else fields.integer("ended_ms", at_least=0),
        )
    except ValueError:
        nobody = WriterIdentity("", "", "", 0, "")
        return AuditRecord(name, 0, "unreadable record", nobody, "", outcome=f"{key} cannot be read")
