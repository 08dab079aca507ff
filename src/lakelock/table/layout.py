"""Where everything lives: the one module that knows the keys of a table's objects.

A partition path is `""` for a table without partitions; keys never start with a slash.
"""

from __future__ import annotations

from typing import NamedTuple

from lakelock.errors import CorruptTableError
from lakelock.storage.base import METADATA_FOLDER, TABLE_MARKERS

HOODIE = METADATA_FOLDER
PROPERTIES, PROPERTIES_BACKUP = TABLE_MARKERS
TIMELINE = f"{HOODIE}/timeline"
HISTORY = f"{HOODIE}/timeline/history"
TEMP = f"{HOODIE}/.temp"
HEARTBEATS = f"{HOODIE}/.heartbeat"
METADATA_TABLE = f"{HOODIE}/metadata"
COLUMN_HISTORY = f"{HOODIE}/.schema"
INDEX_DEFINITIONS = f"{HOODIE}/.index_defs/index.json"
LOCK = f"{HOODIE}/.locks/table_lock.json"
LAKELOCK = f"{HOODIE}/.lakelock"
LOCK_TOKEN = f"{LAKELOCK}/lock.token"
DATA_LOCKS = f"{LAKELOCK}/data_locks"
DECISIONS = f"{LAKELOCK}/decisions"
DECISIONS_BOUNDARY = f"{LAKELOCK}/decisions.boundary"
OUTCOMES = f"{LAKELOCK}/outcomes"
CLAIMS = f"{LAKELOCK}/claims"
CHECKPOINTS = f"{LAKELOCK}/checkpoints"
CLEANED_UNTIL = f"{LAKELOCK}/cleaned_until.json"
LOCK_IDENTITY = f"{LAKELOCK}/lock.json"
PROBES = f"{LAKELOCK}/probe"
AUDIT = f"{LAKELOCK}/audit"
ADOPTED = f"{LAKELOCK}/adopted.json"
REJECTIONS = f"{LAKELOCK}/rejections"
RESERVATIONS = f"{LAKELOCK}/reservations"
OFFERS = f"{LAKELOCK}/ready"
INDEX = f"{LAKELOCK}/index.json"
HUDI_BUCKETS = f"{HOODIE}/.bucket_index"
PARTITION_METADATA = f"{HOODIE}_partition_metadata"

DECISION_DIGITS = 20
CHECKPOINT_DIGITS = 20


class FileGroupId(NamedTuple):
    """One file group: the successive versions of one set of rows of a partition."""

    partition: str
    file_id: str

    def __str__(self) -> str:
        return f"{self.partition}/{self.file_id}" if self.partition else self.file_id


def in_partition(partition: str, name: str) -> str:
    """The key, or Hudi's relative path, of a file of a partition."""
    return f"{partition}/{name}" if partition else name


def split_path(path: str) -> tuple[str, str]:
    """The partition path and the file name of a relative path."""
    partition, _, name = path.rpartition("/")
    return partition, name


def timeline(file_name: str) -> str:
    """The key of a timeline file."""
    return f"{TIMELINE}/{file_name}"


def heartbeat(instant: str) -> str:
    return f"{HEARTBEATS}/{instant}"


def marker_folder(instant: str) -> str:
    return f"{TEMP}/{instant}"


def marker(instant: str, partition: str, file_name: str, kind: str) -> str:
    """The key of a direct marker; `kind` is CREATE, MERGE or APPEND."""
    return f"{TEMP}/{instant}/{in_partition(partition, file_name)}.marker.{kind}"


def claim(group: FileGroupId) -> str:
    """The key of the record that says who is rewriting the file group."""
    return f"{CLAIMS}/{in_partition(group.partition, group.file_id)}"


def decision(number: int) -> str:
    """The key of decision `number`; key order is number order."""
    if not 0 <= number < 10**DECISION_DIGITS:
        raise ValueError(f"a decision number has at most {DECISION_DIGITS} digits and no sign: {number}")
    return f"{DECISIONS}/{number:0{DECISION_DIGITS}}"


def decision_number(key: str) -> int:
    """The number in a decision's key; anything else under that folder means that the log was tampered with."""
    name = key.rpartition("/")[2]
    if len(name) != DECISION_DIGITS or not (name.isascii() and name.isdigit()):
        hint = f"move it out of {DECISIONS}: lakelock makes no such file"
        raise CorruptTableError(f"{key} is not a decision", hint=hint, file=key)
    return int(name)


def outcome(transaction: str) -> str:
    """The key of the outcome of a transaction over several tables, in its home table."""
    return f"{OUTCOMES}/{transaction}"


def checkpoint(number: int) -> str:
    """The key of checkpoint `number` of the file index; key order is number order."""
    return f"{CHECKPOINTS}/{number:0{CHECKPOINT_DIGITS}}"


def checkpoint_number(key: str) -> int | None:
    """The number in a checkpoint's key, None for anything else under that folder."""
    name = key.rpartition("/")[2]
    return int(name) if len(name) == CHECKPOINT_DIGITS and name.isascii() and name.isdigit() else None


def rejection(instant: str) -> str:
    """The key of the record that says why an instant was rejected."""
    return f"{REJECTIONS}/{instant}"


def reservation(name: str) -> str:
    """The key of the heartbeat of a reservation."""
    return f"{RESERVATIONS}/{name}"


def offer(since: int, name: str, operation: str) -> str:
    """The key of an offer: rows that any writer may commit. `since` is the number of a decision made before the offer."""
    kind = "" if operation == "INSERT" else f".{operation.lower()}"
    return f"{OFFERS}/{since:0{DECISION_DIGITS}}-{name}{kind}"


def offer_name(key: str) -> tuple[int, str, str] | None:
    """The number, the name and the operation in an offer's key, None for anything else under that folder."""
    since, _, rest = key.rpartition("/")[2].partition("-")
    name, _, kind = rest.partition(".")
    there = len(since) == DECISION_DIGITS and since.isascii() and since.isdigit() and name
    return (int(since), name, kind.upper() or "INSERT") if there else None


def probe(name: str) -> str:
    return f"{PROBES}/{name}"


def partition_metadata(partition: str) -> str:
    return in_partition(partition, PARTITION_METADATA)


def checked_partition(partition: str, source: str) -> str:
    """`partition` if it stays inside the table, else `CorruptTableError` that names `source`, where it was read."""
    if partition == "":
        return partition
    segments = partition.split("/")
    if "" in segments or "." in segments or ".." in segments or segments[0] == HOODIE or "\0" in partition:
        raise CorruptTableError(f"{source} names the partition path {partition!r}, which is not inside the table", file=source)
    return partition


def checked_file_name(name: str, source: str) -> str:
    """`name` if it is one plain path segment, else `CorruptTableError` that names `source`, where it was read."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise CorruptTableError(f"{source} names the file or file id {name!r}, which is not a plain name", file=source)
    return name
