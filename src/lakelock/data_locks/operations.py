"""What each operation locks, as in Hive's tables. Pure functions: `lakelock locks explain` shows what a write would take.

An operation is named as a user says it: `INSERT`, `overwrite_partitions`, `ALTER TABLE ADD COLUMNS`. In the text form a
partition may stand in it as in Hive, `INSERT OVERWRITE PARTITION (month=1, day)`, where a column without a value is a dynamic
one: its value is not known yet, so the lock is on the prefix before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum

from lakelock.data_locks.base import TABLE, DataLock, LockRequest, Mode, Resource, lock_request
from lakelock.errors import InputError


class Extent(Enum):
    """Which resources an operation locks: the partitions it names (the table if none), or the table whatever it names."""

    NAMED = "the partitions named, else the table"
    NAMED_ONLY = "the partitions named (at least one)"
    TABLE = "the table"


@dataclass(frozen=True)
class Operation:
    """One kind of statement: the mode and extent of its locks. `also` lists other names for it."""

    name: str
    mode: Mode
    extent: Extent
    also: tuple[str, ...] = ()

    @property
    def reads(self) -> bool:
        """Whether it only reads rows: it then locks every partition that it reads."""
        return self.mode is Mode.SHARED and self.extent is Extent.NAMED

    @property
    def locks(self) -> str:
        """For people: `S on the table`, `X on the partitions named, else the table`."""
        return f"{self.mode.short} on {self.extent.value}"


_S, _X = Mode.SHARED, Mode.EXCLUSIVE

OPERATIONS: tuple[Operation, ...] = (
    Operation("SELECT", _S, Extent.NAMED, ("READ", "READING", "SCAN")),
    Operation("INSERT", _X, Extent.NAMED, ("INSERT INTO", "APPEND", "INSERT BATCH", "LOAD", "LOAD DATA")),
    Operation("UPSERT", _X, Extent.NAMED, ("UPDATE", "MERGE", "MERGE INTO", "UPSERT BATCH", "TRANSACTION")),
    Operation("DELETE", _X, Extent.NAMED, ("DELETE FROM",)),
    Operation(
        "OVERWRITE",
        _X,
        Extent.NAMED,
        ("INSERT OVERWRITE", "OVERWRITE PARTITIONS", "INSERT OVERWRITE TABLE", "OVERWRITE TABLE", "OVERWRITE WHERE"),
    ),
    Operation("DELETE PARTITIONS", _X, Extent.NAMED_ONLY, ("DELETE PARTITION", "TRUNCATE PARTITION")),
    Operation("TRUNCATE", _X, Extent.TABLE, ("TRUNCATE TABLE",)),
    Operation("ADD PARTITION", _X, Extent.NAMED_ONLY, ("ADD PARTITIONS",)),
    Operation("DROP PARTITION", _X, Extent.NAMED_ONLY, ("DROP PARTITIONS",)),
    Operation("TOUCH PARTITION", _X, Extent.NAMED_ONLY, ("TOUCH",)),
    Operation("PARTITION CONCATENATE", _X, Extent.NAMED_ONLY, ("CONCATENATE PARTITION",)),
    Operation("CONCATENATE", _X, Extent.TABLE),
    Operation("RENAME", _X, Extent.TABLE, ("RENAME TO", "RENAME TABLE")),
    Operation("ADD COLUMNS", _X, Extent.TABLE, ("ADD COLUMN",)),
    Operation("REPLACE COLUMNS", _X, Extent.TABLE, ("REPLACE COLUMN",)),
    Operation("CHANGE COLUMN", _X, Extent.TABLE, ("CHANGE COLUMNS", "CHANGE", "ALTER SCHEMA")),
    Operation("SET SERDEPROPERTIES", _S, Extent.TABLE, ("SET SERDE PROPERTIES",)),
    Operation("SET SERDE", _S, Extent.TABLE, ("SET SERIALIZER",)),
    Operation("SET FILEFORMAT", _S, Extent.TABLE, ("SET FILE FORMAT",)),
    Operation("SET TBLPROPERTIES", _X, Extent.TABLE, ("SET TABLE PROPERTIES",)),
    Operation("DROP", _X, Extent.TABLE, ("DROP TABLE",)),
)
"""Hive's H3 to H11 and lakelock's own writes. A lock on a partition always brings shared locks on what is above it."""

_BY_WORDS: Mapping[str, Operation] = {words: each for each in OPERATIONS for words in (each.name, *each.also)}
_SPEC = re.compile(r"\bPARTITION\s*\(([^()]*)\)", re.IGNORECASE)
_ENTRY = re.compile(r"""\s*`?(\w+)`?\s*(?:=\s*(?:'([^']*)'|"([^"]*)"|([^\s'"=,]+))\s*)?""")


@dataclass(frozen=True)
class Statement:
    """An operation as a text names it, and the static part of its partition as columns and values, in their order."""

    operation: Operation
    partition: Mapping[str, str]


def operation_named(text: str) -> Operation:
    """The operation of this name; `InputError` that names the nearest one and lists them all."""
    words = " ".join(text.replace("_", " ").upper().split())
    words = words.removeprefix("ALTER TABLE ")
    found = _BY_WORDS.get(words) or _BY_WORDS.get(words.removesuffix(" PARTITION"))
    if found is not None:
        return found
    close = get_close_matches(words, _BY_WORDS, n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    raise InputError(
        f"there is no operation {text.strip()!r}{meant}", hint=f"operations: {', '.join(each.name for each in OPERATIONS)}"
    )


def statement_of(text: str) -> Statement:
    """Read `<operation> [PARTITION (column=value, column, ...)]`; `InputError` says what cannot be read."""
    specs = _SPEC.findall(text)
    if len(specs) > 1:
        raise InputError(f"{text!r} names two partitions", hint="name one in the text, and more with --partition")
    operation = operation_named(_SPEC.sub(" PARTITION ", text))
    return Statement(operation, _static(specs[0], text) if specs else {})


def _static(spec: str, text: str) -> dict[str, str]:
    """The columns with a value, up to the first without: what comes after a dynamic column cannot narrow the lock."""
    values: dict[str, str] = {}
    for part in spec.split(","):
        entry = _ENTRY.fullmatch(part)
        if entry is None:
            raise InputError(
                f"{part.strip()!r} in {text!r} is neither column=value nor a column", hint="PARTITION (month=1, day)"
            )
        column, *given = entry.groups()
        value = next((each for each in given if each is not None), None)
        if value is None:
            break
        values[column] = value
    return values


def locks_of(
    operation: Operation | str,
    partitions: Iterable[Resource] = (),
    *,
    about: str = "",
    escalate_above: int | None = None,
) -> LockRequest:
    """The request of an operation on these partitions or prefixes; an empty list means that they are not known.

    A reader names every partition that it reads, also those below a prefix: a shared lock on a prefix does not keep out
    a writer of one partition below it.
    """
    kind = operation_named(operation) if isinstance(operation, str) else operation
    named = tuple(dict.fromkeys(partitions))
    if kind.extent is Extent.NAMED_ONLY and TABLE in (named or (TABLE,)):
        raise InputError(f"{kind.name} needs a partition", hint="name it: --partition month=1")
    if kind.extent is Extent.TABLE and named and named != (TABLE,):
        raise InputError(
            f"{kind.name} concerns the whole table and locks it: it takes no partition", hint="leave the partition out"
        )
    wanted = named or (TABLE,)
    shared, exclusive = (wanted, ()) if kind.mode is Mode.SHARED else ((), wanted)
    return lock_request(shared, exclusive, about=about or kind.name, escalate_above=escalate_above)


def covers(held: LockRequest, asked: LockRequest) -> bool:
    """Whether the holder of `held` has everything that `asked` asks for."""
    modes = held.modes

    def has(lock: DataLock) -> bool:
        above = (modes.get(up) for up in (*lock.resource.ancestors, lock.resource))
        return Mode.EXCLUSIVE in above or (lock.mode is Mode.SHARED and lock.resource in modes)

    return all(has(lock) for lock in asked.locks)
