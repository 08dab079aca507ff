"""Hudi's metadata table, read: which of its delta commits count, and the records that they and its base files make.

It is a merge-on-read table in `.hoodie/metadata` with a timeline of its own. A delta commit of it counts if it is completed
there and the instant of the same time is not pending in the table's own timeline. A log file belongs to the newest base
file whose instant is before the log file's completion. Delta commits name their log files, so none has to be listed; those
that Java has moved to the archive are older than the newest base files.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from lakelock.errors import RESTORE_OR_ROLL_BACK, CorruptTableError
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.hfile import SCHEMA_INFO, hfile_bytes, read_hfile
from lakelock.table.instants import Action, Instant, parse_instant
from lakelock.table.io import TableIO
from lakelock.table.layout import checked_file_name, checked_partition
from lakelock.table.log_files import BlockHeader, BlockKind, LogFile, block_bytes, blocks_of, deletes_in
from lakelock.table.metadata_records import (
    ALL_PARTITIONS,
    FILES,
    NOT_PARTITIONED,
    Record,
    Records,
    RecordSchema,
    file_group_of,
    files_in,
    joined,
)
from lakelock.table.timeline import Timeline

_BASE_FILE = ".hfile"
_TOKEN = "0-0-0"


class _Log(NamedTuple):
    """A log file and when it was completed. Their order is that of merging."""

    completion: str
    file: LogFile


@dataclass(frozen=True)
class MetadataTable:
    """The metadata table at one look. `timeline` is its own, `data` that of the table, which was listed before."""

    io: TableIO
    timeline: Timeline
    data: Timeline
    _commits: dict[str, CommitMetadata] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def look(cls, io: TableIO, data: Timeline) -> MetadataTable:
        """The metadata table as it is now. One listing."""
        return cls(io, read_metadata_timeline(io.storage), data)

    @property
    def counting(self) -> tuple[Instant, ...]:
        """The delta commits that readers take into account, in order of completion."""
        done = (i for i in self.timeline.commits if i.action == Action.DELTA_COMMIT and not is_pending(self.data, i.requested))
        return tuple(sorted(done, key=lambda i: (i.completion or "", i.requested)))

    @property
    def uncompacted(self) -> int:
        """How many delta commits readers merge: those since the newest compaction."""
        newest = max((i.requested for i in self.timeline.commits if i.action == Action.COMMIT), default="")
        return sum((i.completion or "") > newest for i in self.counting)

    def files(self) -> dict[str, dict[str, int]]:
        """The names and sizes in bytes of the files that it lists, by partition path.

        Files of pending writes may be among them, and partitions without files.
        `CorruptTableError` if a file of it is missing, torn, or does not list files.
        """
        found: dict[str, dict[str, int]] = {}
        for key, record in self.records(FILES).items():
            source = f"{layout.METADATA_TABLE}/{FILES}"
            if key != ALL_PARTITIONS:
                names = files_in(record, source)
                found[checked_partition("" if key == NOT_PARTITIONED else key, source)] = {
                    checked_file_name(name, source): size for name, size in names.items()
                }
        return found

    def records(self, name: str) -> dict[str, Record]:
        """The records of one of its partitions, by key. Lists it, and reads its newest base files and their log files."""
        bases = self._base_files(name)
        logs = [log for log in self._logs(name) if log.completion > bases.get(log.file.file_id, ("", ""))[0]]
        reads = [*(partial(_base_records, self.io.storage, key) for _, key in bases.values())]
        found: dict[str, Record] = {}
        for records in self.io.gather(reads):
            found.update(records)
        changes = self.io.gather([partial(_log_records, self.io.storage, log.file.key) for log in sorted(logs)])
        for change in (change for file in changes for change in file):
            key, record = change
            if record is None:
                found.pop(key, None)
            else:
                found[key] = joined(name, found.get(key), record)
        return found

    def _base_files(self, name: str) -> dict[str, tuple[str, str]]:
        """The instant and the key of each file group's newest base file that is completed."""
        newest: dict[str, tuple[str, str]] = {}
        for listed in self.io.storage.list(f"{layout.METADATA_TABLE}/{name}"):
            parts = listed.key.rpartition("/")[2].removesuffix(_BASE_FILE).split("_")
            if listed.key.endswith(_BASE_FILE) and len(parts) == 3 and self.timeline.is_visible(parts[2]):
                newest[parts[0]] = max(newest.get(parts[0], ("", "")), (parts[2], listed.key))
        return newest

    def _logs(self, name: str) -> Iterator[_Log]:
        """The log files of a partition that count, whichever base file they belong to."""
        counting = self.counting
        new = [instant for instant in counting if instant.requested not in self._commits]
        self._commits.update(self.io.gather([partial(_commit, self.io.storage, instant) for instant in new]))
        for instant in counting:
            for stat in self._commits[instant.requested].write_stats.get(name, ()):
                file = LogFile.parse(f"{layout.METADATA_TABLE}/{stat.path}")
                if file is not None:
                    yield _Log(instant.completion or "", file)


def read_metadata_timeline(storage: Storage) -> Timeline:
    """The metadata table's own timeline as it is now. One listing."""
    before = len(layout.METADATA_TABLE) + 1
    listed = storage.list(f"{layout.METADATA_TABLE}/{layout.TIMELINE}")
    return Timeline.from_listing(replace(file, key=file.key[before:]) for file in listed)


def schemas_of(table: MetadataTable) -> tuple[str, str]:
    """The schema of records as log files have it, and as commits have it, which lack the columns that Hudi adds.

    From the newest delta commit that wrote a log file of `files`, or from its newest base file. Two reads or three.
    """
    for instant in reversed(table.counting):
        _, commit = _commit(table.io.storage, instant)
        for stat in commit.write_stats.get(FILES, ()):
            key = f"{layout.METADATA_TABLE}/{stat.path}"
            schema = _schema_in(table.io.storage, key)
            if schema and commit.schema_json:
                return schema, commit.schema_json
    raise CorruptTableError(
        "no delta commit of the metadata table tells the schema of its records",
        hint=RESTORE_OR_ROLL_BACK,
        file=layout.METADATA_TABLE,
    )


def _schema_in(storage: Storage, key: str) -> str:
    stored = storage.get(key)
    if stored is None:  # compacted, and cleaned
        return ""
    if key.endswith(_BASE_FILE):
        return _text(read_hfile(stored.data, key).info.get(SCHEMA_INFO, b""), key)
    with io.BytesIO(stored.data) as file:
        return next((block.header.get(BlockHeader.SCHEMA, "") for block in blocks_of(file, len(stored.data), key)), "")


class GroupLog(NamedTuple):
    """What one delta commit says in one file group of a partition of the metadata table."""

    partition: str
    file_id: str
    name: str
    records: int
    data: bytes

    @property
    def path(self) -> str:
        return f"{self.partition}/{self.name}"


def log_name(file_id: str, instant: str) -> str:
    """The name of the log file of a delta commit in a file group."""
    return LogFile("", file_id, instant, 1, _TOKEN).name


def group_logs(instant: str, records: Mapping[str, Records], groups: Mapping[str, Sequence[str]], text: str) -> list[GroupLog]:
    """The log files of a delta commit with these records, by partition. Equal arguments give equal bytes.

    `groups`: the file groups of each partition, in order; `text`: the schema of records.
    """
    schema, logs = RecordSchema.of(text, "the metadata table"), []
    header = {BlockHeader.SCHEMA.value: text, BlockHeader.INSTANT.value: instant}
    for partition, changes in records.items():
        for number, file_id in enumerate(groups[partition]):
            mine = {key: each for key, each in changes.items() if file_group_of(key, len(groups[partition])) == number}
            entries = sorted((key.encode(), schema.encoded(each)) for key, each in mine.items() if each is not None)
            if entries:
                content = hfile_bytes(entries, {SCHEMA_INFO: text.encode()}, created_ms=parse_instant(instant))
                data = block_bytes(BlockKind.HFILE, header, content)
                logs.append(GroupLog(partition, file_id, log_name(file_id, instant), len(entries), data))
    return logs


def is_pending(data: Timeline, requested: str) -> bool:
    """Whether an instant of the table, of any action, has begun and not completed."""
    at = [instant for instant in data.instants if instant.requested == requested and instant.action != Action.SAVEPOINT]
    return bool(at) and not any(instant.is_completed for instant in at)


def _commit(storage: Storage, instant: Instant) -> tuple[str, CommitMetadata]:
    key = f"{layout.METADATA_TABLE}/{layout.timeline(instant.file_name)}"
    return instant.requested, CommitMetadata.from_bytes(_read(storage, key), key)


def _base_records(storage: Storage, key: str) -> Mapping[str, Record]:
    found = read_hfile(_read(storage, key), key)
    schema = RecordSchema.of(_text(found.info.get(SCHEMA_INFO, b""), key), key)
    return {_text(name, key): schema.decoded(value, key) for name, value in found.entries}


def _log_records(storage: Storage, key: str) -> list[tuple[str, Record | None]]:
    """The changes in a log file in their order; None for a record that is deleted."""
    found: list[tuple[str, Record | None]] = []
    data = _read(storage, key)
    with io.BytesIO(data) as file:
        for block in blocks_of(file, len(data), key):
            if block.kind is BlockKind.DELETE:
                found.extend((name, None) for name, _ in deletes_in(block))
            elif block.kind is BlockKind.HFILE:
                schema = RecordSchema.of(block.header.get(BlockHeader.SCHEMA, ""), block.source)
                entries = read_hfile(block.content, block.source).entries
                found.extend((_text(name, key), schema.decoded(value, block.source)) for name, value in entries)
            else:
                raise CorruptTableError(f"{block.source} is a block of {block.kind.name}, not of a metadata table", file=key)
    return found


def _read(storage: Storage, key: str) -> bytes:
    stored = storage.get(key)
    if stored is None:
        raise CorruptTableError(f"the metadata table names {key}, which is not there", hint=RESTORE_OR_ROLL_BACK, file=key)
    return stored.data


def _text(data: bytes, source: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CorruptTableError(f"{source} has a text that is not UTF-8", file=source) from None
