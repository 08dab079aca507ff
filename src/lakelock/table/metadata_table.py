"""Hudi's metadata table, read: which of its delta commits count, and the records that they and its base files make.

It is a merge-on-read table in `.hoodie/metadata` with a timeline of its own. A delta commit of it counts if it is completed
there and the instant of the same time is not pending in the table's own timeline. A log file belongs to the newest base
file whose instant is before the log file's completion, and log files are merged in the order of their instants. Delta commits
that Java has moved to the archive are older than the newest base files.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import NamedTuple

from lakelock.errors import DROP_METADATA_TABLE, CorruptTableError, StorageError
from lakelock.storage import Listed, Storage
from lakelock.storage.base import is_missing
from lakelock.storage.location import TableIO
from lakelock.table import layout
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.hfile import MAX_KEY_INFO, MIN_KEY_INFO, SCHEMA_INFO, find_in_hfile, hfile_bytes, read_hfile
from lakelock.table.instants import BETWEEN_DIGITS, MILLIS_DIGITS, Action, Instant, parse_instant
from lakelock.table.layout import checked_file_name, checked_partition, in_partition
from lakelock.table.log_files import BlockHeader, BlockKind, LogFile, block_bytes, blocks_of, deletes_bytes, deletes_in
from lakelock.table.metadata_records import (
    ALL_PARTITIONS,
    FILES,
    JOINED,
    NOT_PARTITIONED,
    Record,
    Records,
    RecordSchema,
    file_groups_of,
    files_in,
    joined,
    settles,
)
from lakelock.table.timeline import Timeline

BOOTSTRAP = "00000000000000"
"""The prefix of the instants at which Java builds the metadata table from a listing."""
BASE_FILE = ".hfile"
_TOKEN = "0-0-0"
NEVER = "9" * 17
"""A completion time that does not come."""
MOST_LOGS, WORTH = 50, 20
"""A file group is compacted when it has so many log files, or when its base file has at most so many times their bytes."""
READ_BACK = 4
"""Log files are read from the newest back, until older ones do not count: first one, then each time so many times as many."""


class _Log(NamedTuple):
    """A log file and when it was completed."""

    completion: str
    file: LogFile


class _Slices(NamedTuple):
    """The newest files of a partition: instant and key of the base file of each file group, and log files in order."""

    bases: Mapping[str, tuple[str, str]]
    logs: Sequence[_Log]


class Piece(NamedTuple):
    """What a compaction makes one base file of: the newest base file of a file group, `""` if it has none, and its log files,
    oldest first.
    """

    partition: str
    file_id: str
    base_instant: str
    base: str
    logs: tuple[LogFile, ...]
    base_bytes: int = 0

    @property
    def is_due(self) -> bool:
        """Whether it is worth merging now: a large base file waits for more log files."""
        return len(self.logs) >= MOST_LOGS or self.base_bytes <= WORTH * sum(log.size_bytes for log in self.logs)

    @property
    def since(self) -> str:
        """The instant of the slice: of its base file, or of its first log file."""
        return self.base_instant or min(log.instant for log in self.logs)

    def name_at(self, instant: str) -> str:
        """The name of the base file that a compaction at this instant makes."""
        return f"{self.file_id}_{_TOKEN}_{instant}{BASE_FILE}"


class GoneMeanwhile(CorruptTableError):
    """A file of the metadata table that a listing has shown is not there: others have removed it since, so look again."""


@dataclass(frozen=True)
class MetadataTable:
    """The metadata table at one look. `timeline` is its own, `data` that of the table, which was listed before."""

    io: TableIO
    timeline: Timeline
    data: Timeline

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

    def without_later(self) -> MetadataTable:
        """The metadata table without the delta commits that `data` lacks; `CorruptTableError` if one of them was compacted."""
        shown = {instant.requested for instant in self.data.instants if instant.is_completed}
        later = {
            instant
            for instant in self.timeline.commits
            if instant.action == Action.DELTA_COMMIT
            and not instant.requested.startswith(BOOTSTRAP)
            and instant.requested >= self.data.first_active
            and instant.requested not in shown
        }
        newest = max((i.requested for i in self.timeline.commits if i.action == Action.COMMIT), default="")
        compacted = [instant.requested for instant in later if (instant.completion or "") < newest]
        if compacted:
            raise CorruptTableError(f"it was compacted with {min(compacted)}, which came later", file=layout.METADATA_TABLE)
        return replace(self, timeline=Timeline.of(i for i in self.timeline.instants if i not in later))

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
        slices = self._slices(list_partition(self.io.storage, name))
        found: dict[str, Record] = {}
        for records in self.io.gather([partial(_base_records, self.io.storage, key) for _, key in slices.bases.values()]):
            found.update(records)
        changes = self.io.gather([partial(_log_records, self.io.storage, log.file.key, None) for log in slices.logs])
        for file in changes:
            _merge(name, found, file)
        return found

    def newest(self, name: str, keys: Collection[str], listed: Sequence[Listed]) -> dict[str, Record]:
        """The records of these keys in a partition that was `listed`. Reads back from its newest log files, and stops where
        nothing older counts.
        """
        groups = file_groups(name, listed)
        concerned = {groups[number] for number in file_groups_of(keys, len(groups))}
        slices, later = self._slices(listed), {key: list[Record]() for key in keys}
        unsettled = set(keys)
        logs, count = [log for log in slices.logs if log.file.file_id in concerned], 1
        while unsettled and logs:
            part, logs, count = logs[-count:], logs[:-count], count * READ_BACK
            files = self.io.gather([partial(_log_records, self.io.storage, log.file.key, unsettled) for log in part])
            for key, record in (change for file in reversed(files) for change in reversed(file)):
                if key in unsettled:
                    if record is not None:
                        later[key].append(record)
                    if record is None or settles(name, record):
                        unsettled.discard(key)
        if unsettled:
            bases = [key for group, (_, key) in slices.bases.items() if group in concerned]
            for base in self.io.gather([partial(_found_in_base, self.io.storage, key, unsettled) for key in bases]):
                for key, record in base.items():
                    later[key].append(record)
        return {key: reduce(partial(joined, name), reversed(records)) for key, records in later.items() if records}

    def all_said(self, name: str, keys: Collection[str], listed: Sequence[Listed]) -> dict[str, list[Record]]:
        """All records of these keys in a partition that was `listed`, in order, whatever later ones say."""
        slices, groups = self._slices(listed), file_groups(name, listed)
        concerned = {groups[number] for number in file_groups_of(keys, len(groups))}
        found = {key: list[Record]() for key in keys}
        bases = [key for group, (_, key) in slices.bases.items() if group in concerned]
        for base in self.io.gather([partial(_found_in_base, self.io.storage, key, found) for key in bases]):
            for key, record in base.items():
                found[key].append(record)
        logs = [log.file.key for log in slices.logs if log.file.file_id in concerned]
        for file in self.io.gather([partial(_log_records, self.io.storage, key, found) for key in logs]):
            for key, change in file:
                if key in found and change is not None:
                    found[key].append(change)
        return found

    def said_later(self, listed: Sequence[Listed], instant: str, named: dict[str, list[str]]) -> set[str]:
        """The keys of which log files of a later instant say something, in a partition that was `listed`.

        `named`: the keys in each log file that was read; what is read now is added.
        """
        later = [log.file.key for log in self._slices(listed).logs if log.file.instant > instant]
        unread = [key for key in later if key not in named]
        files = self.io.gather([partial(_named_in, self.io.storage, key) for key in unread])
        named.update(zip(unread, files, strict=True))
        return {name for key in later for name in named[key]}

    def pieces(self, name: str, listed: Sequence[Listed], at: str) -> list[Piece]:
        """What a compaction at an instant merges in a partition that was `listed`: what was completed before that instant."""
        slices = self._slices(listed)
        logs: dict[str, list[LogFile]] = {}
        for log in slices.logs:
            if log.completion < at:
                logs.setdefault(log.file.file_id, []).append(log.file)
        sizes = {item.key: item.size_bytes for item in listed}
        bases = {group: slices.bases.get(group, ("", "")) for group in logs}
        return [Piece(name, g, *bases[g], tuple(logs[g]), sizes.get(bases[g][1], 0)) for g in sorted(logs)]

    def merged(self, piece: Piece, text: str) -> tuple[int, bytes]:
        """How many records a base file of this piece has, and its bytes; `text` is the schema of its records."""
        schema, storage, found = RecordSchema.of(text, "the metadata table"), self.io.storage, dict[bytes, bytes]()
        if piece.partition in JOINED:
            records = dict(_base_records(storage, piece.base)) if piece.base else {}
            for log in piece.logs:
                _merge(piece.partition, records, _log_records(storage, log.key, None))
            found = {key.encode(): schema.encoded(record) for key, record in records.items()}
        else:  # the newest record counts, as it is
            for key, value, its in _base_values(storage, piece.base) if piece.base else ():
                found[key] = value if its.text == text else schema.encoded(its.decoded(value, piece.base))
            for log in piece.logs:
                for key, changed, its in _log_values(storage, log.key):
                    if changed is None:
                        found.pop(key, None)
                    else:
                        found[key] = changed if its.text == text else schema.encoded(its.decoded(changed, log.key))
        entries = sorted(found.items())
        info = {SCHEMA_INFO: text.encode()}
        if entries:
            info |= {MIN_KEY_INFO: entries[0][0], MAX_KEY_INFO: entries[-1][0]}
        return len(entries), hfile_bytes(entries, info, created_ms=0, gzipped=True)

    def outdated(self, listed: Sequence[Listed]) -> dict[str, str]:
        """The files of a partition older than the last but one base file of their group, each with that base file's key."""
        bases: dict[str, list[tuple[str, str]]] = {}
        completions = {instant.requested: instant.completion or "" for instant in self.timeline.commits}
        first = min(completions, default="")
        for item in listed:
            parts = _base_parts(item.key)
            if parts is not None and self.timeline.is_visible(parts[2]):
                bases.setdefault(parts[0], []).append((parts[2], item.key))
        kept, old = {group: sorted(files)[-2] for group, files in bases.items() if len(files) > 1}, {}
        for item in listed:
            parts, log = _base_parts(item.key), LogFile.parse(item.key)
            group, since = (log.file_id, "") if log is not None else (parts[0], parts[2]) if parts is not None else ("", NEVER)
            if log is not None:
                # A commit older than the timeline was archived, so it completed. Others may still complete.
                archived = log.instant < first and not is_pending(self.data, log.instant)
                since = completions.get(log.instant, log.instant if archived else NEVER)
            if group in kept and (since < kept[group][0] or (log is not None and since == kept[group][0])):
                old[item.key] = kept[group][1]
        return old

    def needed_from(self, listed: Iterable[Listed]) -> str:
        """The completion of the first delta commit of which a partition that was `listed` has a log file on a base file."""
        return min((log.completion for log in self._slices(listed).logs), default=NEVER)

    def _slices(self, listed: Iterable[Listed]) -> _Slices:
        """The newest base files of a partition, and the log files that belong to them, in order."""
        bases: dict[str, tuple[str, str]] = {}
        files = []
        for item in listed:
            parts = _base_parts(item.key)
            file = LogFile.parse(item.key, item.size_bytes)
            if file is not None:
                files.append(file)
            elif parts is not None and self.timeline.is_visible(parts[2]):
                bases[parts[0]] = max(bases.get(parts[0], ("", "")), (parts[2], item.key))
        completions = {instant.requested: instant.completion or "" for instant in self.counting}
        logs = (_Log(completions[file.instant], file) for file in files if file.instant in completions)
        mine = (log for log in logs if log.completion > bases.get(log.file.file_id, ("", ""))[0])
        return _Slices(bases, sorted(mine, key=lambda log: (log.file.instant, log.file.version, log.file.token)))


def _base_parts(key: str) -> list[str] | None:
    """File group, write token and instant in the name of a base file."""
    parts = key.rpartition("/")[2].removesuffix(BASE_FILE).split("_")
    return parts if key.endswith(BASE_FILE) and len(parts) == 3 else None


def list_partition(storage: Storage, name: str) -> list[Listed]:
    """The files of a partition of the metadata table. One listing."""
    return list(storage.list(f"{layout.METADATA_TABLE}/{name}"))


def file_groups(name: str, listed: Iterable[Listed]) -> tuple[str, ...]:
    """The file groups of a partition that was listed, in their order: each has a file from the beginning.

    `CorruptTableError` if their numbers have a gap: then it is not known which group a key is in.
    """
    logs = (LogFile.parse(item.key) for item in listed)
    bases = (_base_parts(item.key) for item in listed)
    found = sorted({*(log.file_id for log in logs if log), *(parts[0] for parts in bases if parts)})
    numbers = [group.split("-")[-2:-1] for group in found]
    if not found or numbers != [[f"{number:04d}"] for number in range(len(found))]:
        raise CorruptTableError(
            f"the metadata table's partition {name} has the file groups {', '.join(found) or 'none'}, which leaves out some",
            hint=DROP_METADATA_TABLE,
            file=name,
        )
    return tuple(found)


def read_metadata_timeline(storage: Storage) -> Timeline:
    """The metadata table's own timeline as it is now. One listing."""
    before = len(layout.METADATA_TABLE) + 1
    listed = storage.list(f"{layout.METADATA_TABLE}/{layout.TIMELINE}")
    return Timeline.from_listing(replace(file, key=file.key[before:]) for file in listed)


def schemas_of(table: MetadataTable) -> tuple[str, str]:
    """The schema of records as log files have it, and as commits have it, which lack the columns that Hudi adds.

    From the newest commit of which a log file or base file of `files` is still there. Two reads or three.
    """
    compactions = (instant for instant in table.timeline.commits if instant.action == Action.COMMIT)
    for instant in sorted((*table.counting, *compactions), key=lambda i: i.completion or "", reverse=True):
        _, commit = _commit(table.io.storage, instant)
        for stat in commit.write_stats.get(FILES, ()):
            key = f"{layout.METADATA_TABLE}/{stat.path}"
            schema = _schema_in(table.io.storage, key)
            if schema and commit.schema_json:
                return schema, commit.schema_json
    raise CorruptTableError(
        "no delta commit of the metadata table tells the schema of its records",
        hint=DROP_METADATA_TABLE,
        file=layout.METADATA_TABLE,
    )


def _schema_in(storage: Storage, key: str) -> str:
    stored = storage.get(key)
    if stored is None:  # compacted, and cleaned
        return ""
    if key.endswith(BASE_FILE):
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
    # All keys of one data file share one record, which is encoded once.
    encoded: dict[int, bytes] = {}

    def value_of(record: Record) -> bytes:
        if id(record) not in encoded:
            encoded[id(record)] = schema.encoded(record)
        return encoded[id(record)]

    for partition, changes in records.items():
        apart: list[dict[str, Record | None]] = [{} for _ in groups[partition]]
        for (key, each), number in zip(changes.items(), file_groups_of(changes, len(apart)), strict=True):
            apart[number][key] = each
        for file_id, mine in zip(groups[partition], apart, strict=True):
            entries = sorted((key.encode(), value_of(each)) for key, each in mine.items() if each is not None)
            gone = [key for key, each in mine.items() if each is None]
            data = block_bytes(BlockKind.DELETE, header, deletes_bytes(sorted(gone), partition)) if gone else b""
            if entries:
                content = hfile_bytes(entries, {SCHEMA_INFO: text.encode()}, created_ms=parse_instant(instant))
                data += block_bytes(BlockKind.HFILE, header, content)
            if data:
                logs.append(GroupLog(partition, file_id, log_name(file_id, instant), len(entries), data))
    return logs


def lacking(metadata: Timeline, data: Timeline) -> list[Instant]:
    """The completed commits of a table that its metadata table lacks, oldest first."""
    known = {i.requested for i in metadata.commits if i.action == Action.DELTA_COMMIT}
    # Commits that completed before the metadata table was built are in the listing that it was built from.
    made = min((i.completion or "" for i in metadata.commits if i.requested.startswith(BOOTSTRAP)), default="")
    return [
        i
        for i in data.commits
        if i.requested not in known and not metadata.is_visible(i.requested) and (i.completion or i.requested) > made
    ]


def overtaken(metadata: Timeline, data: Timeline) -> list[Instant]:
    """The commits of a table that came into its metadata table after one with a later instant, oldest first.

    Where both say something of the same file, readers believe the later instant. Commits are left out if a delta commit that
    belongs to no commit of the table (`own_time`) has followed: its writer had looked for them. A delta commit older than the
    table's timeline is not one of these: its commit was archived.
    """
    done = sorted((i for i in metadata.commits if i.action == Action.DELTA_COMMIT), key=lambda each: each.completion or "")
    known, commits = {i.requested for i in data.instants}, {i.requested: i for i in data.commits}
    found, newest = list[Instant](), ""
    for delta in done:
        if delta.requested not in known and delta.requested >= data.first_active:
            found = []
        elif delta.requested < newest and delta.requested in commits:
            found.append(commits[delta.requested])
        newest = max(newest, delta.requested)
    return found


def own_time(metadata: Timeline) -> str:
    """The time for a delta commit that belongs to no commit of the table and has the last word.

    It is between the time of the newest delta commit and the next millisecond, so no transaction has it, or takes it later:
    readers would ignore the delta commit while that is pending, and its rollback would remove it. Java cuts such a time to 17
    digits where it needs a moment, as services of metadata tables had them in Hudi 0.
    """
    newest = max(i.requested for i in metadata.instants if i.action == Action.DELTA_COMMIT)
    moment, number = newest[:MILLIS_DIGITS], newest[MILLIS_DIGITS:]
    return f"{moment}{int(number or 0) + 1:0{BETWEEN_DIGITS}}"


def is_own_time(instant: str) -> bool:
    """Whether no transaction has this time."""
    return len(instant) > MILLIS_DIGITS


def listed_files(io: TableIO, data: Timeline) -> list[Listed] | None:
    """The data files of a table as its metadata table lists them, for a timeline that was listed before.

    None if the metadata table is incomplete: it lacks a commit of `data`, the table's own timeline, or cannot be read.
    """
    try:
        table = MetadataTable.look(io, data)
        if not table.timeline.commits or lacking(table.timeline, data):
            return None
        files = table.files()
    except CorruptTableError:  # compacted and cleaned meanwhile, or damaged
        return None
    return [
        Listed(in_partition(partition, name), size, 0) for partition, names in files.items() for name, size in names.items()
    ]


def is_pending(data: Timeline, requested: str) -> bool:
    """Whether an instant of the table, of any action, has begun and not completed."""
    at = [instant for instant in data.instants if instant.requested == requested and instant.action != Action.SAVEPOINT]
    return bool(at) and not any(instant.is_completed for instant in at)


def _commit(storage: Storage, instant: Instant) -> tuple[str, CommitMetadata]:
    key = f"{layout.METADATA_TABLE}/{layout.timeline(instant.file_name)}"
    return instant.requested, CommitMetadata.from_bytes(_read(storage, key), key)


def _merge(name: str, into: dict[str, Record], changes: Iterable[tuple[str, Record | None]]) -> None:
    """Apply the changes of a log file to the records of a partition."""
    for key, record in changes:
        if record is None:
            into.pop(key, None)
        else:
            into[key] = joined(name, into.get(key), record)


def _base_values(storage: Storage, key: str) -> Iterator[tuple[bytes, bytes, RecordSchema]]:
    """The records in a base file as they are stored, with their schema."""
    found = read_hfile(_read(storage, key), key)
    schema = RecordSchema.of(_text(found.info.get(SCHEMA_INFO, b""), key), key)
    return ((name, value, schema) for name, value in found.entries)


def _base_records(storage: Storage, key: str) -> Mapping[str, Record]:
    """The records in a base file."""
    return {_text(name, key): schema.decoded(value, key) for name, value, schema in _base_values(storage, key)}


def _found_in_base(storage: Storage, key: str, wanted: Collection[str]) -> Mapping[str, Record]:
    """The records of some keys in a base file."""
    try:
        with storage.open_input(key) as source:
            found = find_in_hfile(source, [name.encode() for name in wanted], key)
    except StorageError as error:
        if not is_missing(error):
            raise
        raise _missing(key) from error
    schema = RecordSchema.of(_text(found.info.get(SCHEMA_INFO, b""), key), key)
    return {_text(name, key): schema.decoded(value, key) for name, value in found.entries}


def _log_records(storage: Storage, key: str, wanted: Collection[str] | None) -> list[tuple[str, Record | None]]:
    """The changes in a log file in their order, of all keys or of the wanted ones; None for a record that is deleted."""
    named = ((_text(name, key), value, schema) for name, value, schema in _log_values(storage, key))
    return [
        (name, None if value is None else schema.decoded(value, key))
        for name, value, schema in named
        if value is None or wanted is None or name in wanted
    ]


def _named_in(storage: Storage, key: str) -> list[str]:
    """The keys of which a log file says something."""
    return [_text(name, key) for name, _, _ in _log_values(storage, key)]


_NO_SCHEMA = RecordSchema("", None)


def _log_values(storage: Storage, key: str) -> Iterator[tuple[bytes, bytes | None, RecordSchema]]:
    """The changes in a log file in their order as they are stored, with the schema of records; None for one that is deleted."""
    data = _read(storage, key)
    with io.BytesIO(data) as file:
        for block in blocks_of(file, len(data), key):
            if block.kind is BlockKind.DELETE:
                yield from ((name.encode(), None, _NO_SCHEMA) for name, _ in deletes_in(block))
            elif block.kind is BlockKind.HFILE:
                schema = RecordSchema.of(block.header.get(BlockHeader.SCHEMA, ""), block.source)
                yield from ((name, value, schema) for name, value in read_hfile(block.content, block.source).entries)
            else:
                raise CorruptTableError(
                    f"{block.source} is a block of {block.kind.name}, not of a metadata table",
                    hint=DROP_METADATA_TABLE,
                    file=key,
                )


def _read(storage: Storage, key: str) -> bytes:
    stored = storage.get(key)
    if stored is None:
        raise _missing(key)
    return stored.data


def _missing(key: str) -> GoneMeanwhile:
    return GoneMeanwhile(f"others have removed {key} since it was listed, or write it anew", hint="run it again", file=key)


def _text(data: bytes, source: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CorruptTableError(f"{source} has a text that is not UTF-8", hint=DROP_METADATA_TABLE, file=source) from None
