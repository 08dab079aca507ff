"""The files of the timeline's history as Java Hudi 1.2 has them: Parquet by level, and manifests that list what is valid.

`<first instant>_<last instant>_<level>.parquet` holds one row for each instant, in order. `manifest_<n>` lists the files
of one version of the history, and `_version_` says which manifest is the newest. Files of a level are merged into one of
the next level when there are enough of them, some rows at a time: the metadata of thousands of commits is large.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakelock.errors import CorruptTableError, SnapshotTooOld
from lakelock.parsing import JsonObject
from lakelock.storage import Listed, Storage
from lakelock.table import layout

VERSION = f"{layout.HISTORY}/_version_"
_NAME = re.compile(r"([0-9]{14}|[0-9]{17})_([0-9]{14}|[0-9]{17})_([0-9]{1,4})\.parquet", re.ASCII).fullmatch
_MANIFEST = re.compile(r"manifest_([0-9]{1,18})", re.ASCII).fullmatch
_ROW_VERSION = 1
ROWS_AT_ONCE = 1_000
"""Rows of a row group: a reader of a few instants does not read the whole of a merged file."""
_LOOKS = 10
HINT = "restore the file from a backup; until then the history is not extended"

_TEXT = ["null", {"type": "string", "avro.java.string": "String"}]
_AVRO = {
    "type": "record",
    "name": "HoodieLSMTimelineInstant",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "instantTime", "type": _TEXT, "default": None},
        {"name": "completionTime", "type": _TEXT, "default": None},
        {"name": "action", "type": _TEXT, "default": None},
        {"name": "metadata", "type": ["null", "bytes"], "default": None},
        {"name": "plan", "type": ["null", "bytes"], "default": None},
        {"name": "version", "type": "int", "default": 1},
    ],
}
COLUMNS = pa.schema(
    [
        ("instantTime", pa.string()),
        ("completionTime", pa.string()),
        ("action", pa.string()),
        ("metadata", pa.binary()),
        ("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ],
    metadata={b"writer.model.name": b"avro", b"parquet.avro.schema": json.dumps(_AVRO, separators=(",", ":")).encode()},
)


@dataclass(frozen=True)
class HistoryRow:
    """One archived instant: the bytes of its completed timeline file, and of its plan where its kind has one."""

    requested: str
    completion: str
    action: str
    metadata: bytes
    plan: bytes | None = None


@dataclass(frozen=True, order=True)
class HistoryFile:
    """One file of the history, by its name; in order of its first instant."""

    first: str
    last: str
    level: int
    size_bytes: int = 0

    @classmethod
    def parse(cls, name: str, size_bytes: int = 0) -> HistoryFile | None:
        match = _NAME(name)
        return cls(match[1], match[2], int(match[3]), size_bytes) if match else None

    @property
    def name(self) -> str:
        return f"{self.first}_{self.last}_{self.level}.parquet"

    @property
    def key(self) -> str:
        return f"{layout.HISTORY}/{self.name}"


@dataclass(frozen=True)
class History:
    """One version of the history; `etag` is the version that `_version_` must still have for the next one, `""` if missing."""

    version: int
    files: tuple[HistoryFile, ...]
    etag: str = ""

    @property
    def last(self) -> str:
        """The last instant of the history, `""` if it has none."""
        return max((file.last for file in self.files), default="")

    def level(self, level: int) -> tuple[HistoryFile, ...]:
        return tuple(sorted(file for file in self.files if file.level == level))


def read_history(storage: Storage) -> History:
    """The newest version. Two reads; one listing where `_version_` is missing, as happens briefly while Java replaces it.

    A version that is superseded before its manifest is read is not damaged: the history is read again, `_LOOKS` times at most.
    Then `SnapshotTooOld`: a retry helps. `CorruptTableError` if the newest manifest is missing.
    """
    before = None
    for _ in range(_LOOKS):
        version, etag = _newest(storage)
        if version == before:
            raise CorruptTableError(
                f"{manifest_key(version)} is missing although {VERSION} names it", hint=HINT, file=manifest_key(version)
            )
        files = read_manifest(storage, version) if version else ()
        if files is not None:
            return History(version, files, etag)
        before = version
    raise SnapshotTooOld(f"others replaced the history of the timeline {_LOOKS} times while it was read", hint="retry")


def is_superseded(storage: Storage, history: History) -> bool:
    """Whether another version has followed, so that files of this one may be gone."""
    return _newest(storage)[0] != history.version


def _newest(storage: Storage) -> tuple[int, str]:
    stored = storage.get(VERSION)
    if stored is None:
        return max(manifests(storage.list(layout.HISTORY)), default=0), ""
    return _number(stored.data), stored.etag


def manifests(listed: Iterable[Listed]) -> list[int]:
    """The numbers of the manifests in a listing of the history's folder, in order."""
    found = (_MANIFEST(item.key.rpartition("/")[2]) for item in listed)
    return sorted(int(match[1]) for match in found if match is not None)


def manifest_key(version: int) -> str:
    return f"{layout.HISTORY}/manifest_{version}"


def read_manifest(storage: Storage, version: int) -> tuple[HistoryFile, ...] | None:
    """The files of one version; None if its manifest does not exist, or does not any more."""
    key = manifest_key(version)
    stored = storage.get(key)
    return parse_manifest(stored.data, key) if stored is not None else None


def parse_manifest(data: bytes, source: str = "a manifest of the history") -> tuple[HistoryFile, ...]:
    """The files that a manifest lists; `CorruptTableError` for anything that is not a manifest."""
    try:
        entries = [
            (each.text("fileName"), each.integer("fileLen", at_least=0)) for each in JsonObject.parse(data).children("files")
        ]
        files = [HistoryFile.parse(name, size) for name, size in entries]
    except ValueError as error:
        raise CorruptTableError(f"{source} is not readable: {error}", hint=HINT, file=source) from error
    unknown = [name for (name, _), file in zip(entries, files, strict=True) if file is None]
    if unknown:
        raise CorruptTableError(f"{source} lists {unknown[0][:80]!r}, which is not a history file", hint=HINT, file=source)
    return tuple(file for file in files if file is not None)


def manifest_bytes(files: Iterable[HistoryFile]) -> bytes:
    entries = [{"fileName": file.name, "fileLen": file.size_bytes} for file in files]
    return json.dumps({"files": entries}, indent=2, separators=(",", " : ")).encode()


def rows_bytes(rows: Iterable[HistoryRow]) -> bytes:
    """A file with these rows, in order of their instants. Equal rows give equal bytes."""
    ordered = sorted(rows, key=lambda row: (row.requested, row.action))
    columns = [
        [row.requested for row in ordered],
        [row.completion for row in ordered],
        [row.action for row in ordered],
        [row.metadata for row in ordered],
        [row.plan for row in ordered],
        [_ROW_VERSION] * len(ordered),
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, COLUMNS, strict=True)]
    return _written(pa.Table.from_arrays(arrays, schema=COLUMNS))


def instants_in(storage: Storage, file: HistoryFile) -> set[tuple[str, str]]:
    """Requested time and action of each row of a file."""
    with storage.open_input(file.key) as source:
        try:
            rows = pq.ParquetFile(source).read(columns=["instantTime", "action"])
        except (pa.ArrowException, OSError) as error:
            raise CorruptTableError(f"{file.key} cannot be read: {error}", hint=HINT, file=file.key) from error
    return set(zip(rows.column("instantTime").to_pylist(), rows.column("action").to_pylist(), strict=True))


def _written(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, compression="gzip", store_schema=False, row_group_size=ROWS_AT_ONCE)
    return out.getvalue()


def _number(data: bytes) -> int:
    text = data.decode("ascii", "replace").strip()
    if not text.isdigit() or len(text) > 18:
        raise CorruptTableError(f"{VERSION} holds {text[:40]!r}, which is not a number", hint=HINT, file=VERSION)
    return int(text)


_READ_AT_ONCE = 64
"""Rows of each file that are in memory."""
_instant, _action = itemgetter(COLUMNS.names.index("instantTime")), itemgetter(COLUMNS.names.index("action"))


def merged_bytes(storage: Storage, files: Iterable[HistoryFile]) -> bytes:
    """One file with the rows of several, each instant once, in order."""
    rows, out = _unique(_in_order(storage, files)), io.BytesIO()
    with pq.ParquetWriter(out, COLUMNS, compression="gzip", store_schema=False) as writer:
        while group := list(islice(rows, ROWS_AT_ONCE)):
            columns = zip(*group, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, COLUMNS, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=COLUMNS))
    return out.getvalue()


def _unique(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    for _, same in groupby(rows, key=_instant):
        actions: dict[str, tuple[Any, ...]] = {}
        for row in same:
            actions.setdefault(_action(row), row)
        yield from (actions[action] for action in sorted(actions))


def _in_order(storage: Storage, files: Iterable[HistoryFile]) -> Iterator[tuple[Any, ...]]:
    """The rows of all files in order of their instants. Files are open together only where their ranges overlap."""
    run: list[HistoryFile] = []
    for file in sorted(files):
        if run and file.first > max(each.last for each in run):
            yield from merge(*(_rows_of(storage, each) for each in run), key=_instant)
            run = []
        run.append(file)
    yield from merge(*(_rows_of(storage, each) for each in run), key=_instant)


def _rows_of(storage: Storage, file: HistoryFile) -> Iterator[tuple[Any, ...]]:
    with storage.open_input(file.key) as source:
        try:
            for batch in pq.ParquetFile(source).iter_batches(_READ_AT_ONCE, columns=COLUMNS.names):
                yield from zip(*(batch.column(name).to_pylist() for name in COLUMNS.names), strict=True)
        except (pa.ArrowException, OSError, KeyError) as error:
            raise CorruptTableError(f"{file.key} cannot be read: {error}", hint=HINT, file=file.key) from error
