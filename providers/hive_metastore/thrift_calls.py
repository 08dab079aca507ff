"""The handful of metastore calls that a lock needs. Field numbers are the same from Hive 1.3 to Hive 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakelock.providers.hive_metastore.messages import I32, I64, LIST, STRING, STRUCT, Fields, Messages, get

SHARED_READ, EXCLUSIVE = 1, 3
_TABLE_LEVEL, _PARTITION_LEVEL, _UNSET_OPERATION = 2, 3, 5
ACQUIRED, WAITING, ABORTED, NOT_ACQUIRED = 1, 2, 3, 4

_THROWS: Mapping[str, Mapping[int, str]] = {
    "set_ugi": {1: "MetaException"},
    "get_config_value": {1: "ConfigValSecurityException"},
    "get_delegation_token": {1: "MetaException"},
    "lock": {1: "NoSuchTxnException", 2: "TxnAbortedException"},
    "check_lock": {1: "NoSuchTxnException", 2: "TxnAbortedException", 3: "NoSuchLockException"},
    "heartbeat": {1: "NoSuchLockException", 2: "NoSuchTxnException", 3: "TxnAbortedException"},
    "unlock": {1: "NoSuchLockException", 2: "TxnOpenException"},
    "show_locks": {},
}

Part = tuple[int, str | None]
"""The kind of a lock, and the partition that it is for; None: the table itself, which in Hive overlaps all its partitions."""


@dataclass(frozen=True)
class LockAnswer:
    """The id of a lock request, and whether it is granted."""

    lock_id: int
    state: int


@dataclass(frozen=True)
class LockRow:
    """One request in the metastore's lock table. `heartbeat_ms` is by the clock of the metastore's database."""

    lock_id: int
    database: str
    table: str | None
    partition: str | None
    state: int
    kind: int
    heartbeat_ms: int
    acquired_ms: int
    user: str
    host: str
    agent: str


class Calls(Messages):
    """The calls of a lock over one connection."""

    def call(self, name: str, arguments: Fields, throws: Mapping[int, str] | None = None) -> object:
        return super().call(name, arguments, _THROWS.get(name, {}) if throws is None else throws)

    def set_ugi(self, user: str) -> None:
        self.call("set_ugi", ((1, STRING, user), (2, LIST, (STRING, []))))

    def get_config_value(self, name: str, default: str) -> str:
        return str(self.call("get_config_value", ((1, STRING, name), (2, STRING, default))))

    def get_delegation_token(self, owner: str, renewer: str) -> str:
        """A token for `hive_metastore.delegation_token`; only over a connection that Kerberos logged in."""
        return str(self.call("get_delegation_token", ((1, STRING, owner), (2, STRING, renewer))))

    def lock(
        self, database: str, table: str, *, user: str, host: str, agent: str, parts: Sequence[Part] = ((EXCLUSIVE, None),)
    ) -> LockAnswer:
        """Ask for all these locks in a table; an EXCLUSIVE one on the table itself in Java Hudi's bytes. Twice makes two."""
        components = [_component(database, table, *part) for part in parts]
        request = (1, LIST, (STRUCT, components)), (3, STRING, user), (4, STRING, host), (5, STRING, agent)
        return _lock_answer(self.call("lock", ((1, STRUCT, request),)))

    def check_lock(self, lock_id: int) -> LockAnswer:
        return _lock_answer(self.call("check_lock", ((1, STRUCT, ((1, I64, lock_id),)),)))

    def heartbeat(self, lock_id: int) -> None:
        self.call("heartbeat", ((1, STRUCT, ((1, I64, lock_id), (2, I64, 0))),))

    def unlock(self, lock_id: int) -> None:
        self.call("unlock", ((1, STRUCT, ((1, I64, lock_id),)),))

    def show_locks(self, database: str, table: str) -> list[LockRow]:
        """All requests for this table, waiting ones too, by id."""
        answer = self.call("show_locks", ((1, STRUCT, ((1, STRING, database), (2, STRING, table))),))
        rows = [_row(each) for each in get(answer, 1, list, [])]
        return sorted((row for row in rows if (row.database, row.table) == (database, table)), key=lambda row: row.lock_id)


def _lock_answer(fields: object) -> LockAnswer:
    return LockAnswer(get(fields, 1, int), get(fields, 2, int))


def _component(database: str, table: str, kind: int, partition: str | None) -> Fields:
    level = _TABLE_LEVEL if partition is None else _PARTITION_LEVEL
    where = () if partition is None else ((5, STRING, partition),)
    names = (3, STRING, database), (4, STRING, table), *where
    return (1, I32, kind), (2, I32, level), *names, (6, I32, _UNSET_OPERATION)


def _row(fields: object) -> LockRow:
    def text(number: int) -> str:
        found: str = get(fields, number, str, "")
        return found

    def count(number: int) -> int:
        found: int = get(fields, number, int, 0)
        return found

    table, partition = text(3) or None, text(4) or None
    return LockRow(
        get(fields, 1, int), text(2), table, partition, count(5), count(6), count(8), count(9), text(10), text(11), text(13)
    )
