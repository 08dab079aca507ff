"""Checkpoints: the state of the file index as one Parquet file, of which a reader loads only the part that it needs.

The file holds the rows of `rows.py` in row groups of `GROUP_ROWS`, each page with a checksum. Two entries of its metadata hold
the rest: `lakelock.header`, JSON with what the checkpoint covers, schemas, applications and which partitions each row group
holds, and `lakelock.checksum`, the header's SHA-256. Equal states give equal bytes: nothing in them tells who wrote them when.
"""

from __future__ import annotations

import io
import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import sha256
from sys import intern
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelock.errors import CorruptTableError, LakelockError
from lakelock.json_object import JsonObject
from lakelock.table.file_index.coverage import Coverage
from lakelock.table.file_index.effects import Applied, SchemaTold
from lakelock.table.file_index.rows import NO_ROWS, ROWS, LoadedRows

FORMAT = 1
GROUP_ROWS = 8_192
"""Rows of a row group: the least that is read for one partition."""
HEADER, CHECKSUM = b"lakelock.header", b"lakelock.checksum"

_HINT = "nothing to do: the checkpoint before it, or the timeline, says the same, and the next one replaces it"


class DamagedCheckpoint(CorruptTableError):
    """The checkpoint cannot be read; its content is available elsewhere."""


class LaterFormat(CorruptTableError):
    """The checkpoint is of a later version of lakelock."""


class Rows(Protocol):
    """The rows of a checkpoint, loaded or not; both raise `DamagedCheckpoint`, or what the storage raises."""

    @property
    def partitions(self) -> tuple[str, ...]: ...
    def of(self, partition: str) -> pa.Table: ...
    def all(self) -> pa.Table: ...


@dataclass(frozen=True)
class Checkpoint:
    """The state of the index after the commits that `coverage` names."""

    coverage: Coverage = field(default_factory=Coverage)
    rows: Rows = field(default_factory=lambda: LoadedRows(NO_ROWS))
    schemas: Mapping[str, SchemaTold] = field(default_factory=dict)
    applications: Mapping[str, Applied] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The file of the checkpoint."""
        table, output = self.rows.all(), io.BytesIO()
        header = json.dumps(self._header(table.column("partition")), separators=(",", ":"), sort_keys=True).encode()
        with pq.ParquetWriter(
            output, ROWS, compression="zstd", store_schema=False, write_page_checksum=True, version="2.6"
        ) as writer:
            if table.num_rows:  # else it would write an empty row group
                writer.write_table(table, row_group_size=GROUP_ROWS)
            writer.add_key_value_metadata({HEADER: header, CHECKSUM: sha256(header).hexdigest()})
        return output.getvalue()

    def _header(self, partitions: pa.ChunkedArray) -> dict[str, Any]:
        starts, count = range(0, len(partitions), GROUP_ROWS), len(partitions)
        return {
            "format": FORMAT,
            "low": self.coverage.low,
            "instants": sorted(self.coverage.instants),
            "archive": sorted(self.coverage.archive),
            "restores": sorted(self.coverage.restores),
            "schemas": sorted([*told, text] for text, told in self.schemas.items()),
            "applications": sorted(self.applications.values()),
            "groups": [[partitions[i].as_py(), partitions[min(i + GROUP_ROWS, count) - 1].as_py()] for i in starts],
        }

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "a checkpoint") -> Checkpoint:
        """The checkpoint in a file, read as a whole."""
        lazy = cls.opened(lambda: pa.BufferReader(data), source)
        return cls(lazy.coverage, LoadedRows(lazy.rows.all()), lazy.schemas, lazy.applications)

    @classmethod
    def opened(cls, open_input: Callable[[], IO[bytes]], source: str = "a checkpoint") -> Checkpoint:
        """The checkpoint in a file; each partition's rows are read on demand.

        `LaterFormat`, or `DamagedCheckpoint`, also later from its rows.
        """
        rows = StoredRows(open_input, source)
        found = rows.header
        try:
            coverage = Coverage(
                # Each checkpoint names nearly the same as the one before it, of which a process remembers some.
                found.text("low"),
                *(frozenset(map(intern, found.fields[name])) for name in ("instants", "archive", "restores")),
            )
            schemas = {text: SchemaTold(completion, instant) for completion, instant, text in found.fields["schemas"]}
            applications = {one.app_id: one for one in (Applied(*values) for values in found.fields["applications"])}
        except (ValueError, TypeError, KeyError) as error:
            raise _damaged(source, error) from error
        return cls(coverage, rows, schemas, applications)


class StoredRows:
    """Rows that are read from the file on demand; the latest few row groups are kept."""

    def __init__(self, open_input: Callable[[], IO[bytes]], source: str) -> None:
        self._open, self._source = open_input, source
        self._group = lru_cache(maxsize=4)(self._read_group)

    @cached_property
    def _file(self) -> pq.ParquetFile:
        return self._guarded(lambda: pq.ParquetFile(self._open(), page_checksum_verification=True, pre_buffer=True))

    @cached_property
    def header(self) -> JsonObject:
        """The content of the file's metadata."""
        entries = self._file.metadata.metadata or {}
        text = entries.get(HEADER, b"")
        if sha256(text).hexdigest().encode() != entries.get(CHECKSUM):
            raise _damaged(self._source, "its header does not match its checksum")
        try:
            found = JsonObject.parse(text.decode())
            version = found.integer("format")
        except ValueError as error:
            raise _damaged(self._source, error) from error
        if version > FORMAT:
            hint = "upgrade lakelock here; until then the commits themselves are read"
            raise LaterFormat(f"{self._source} has format {version}; this lakelock reads {FORMAT}", hint=hint)
        return found

    @cached_property
    def _bounds(self) -> tuple[list[str], list[str]]:
        """The first and the last partition of each row group."""
        groups = self.header.fields["groups"]
        if len(groups) != self._file.metadata.num_row_groups:
            raise _damaged(self._source, "row groups are missing")
        return [str(first) for first, _ in groups], [str(last) for _, last in groups]

    @cached_property
    def partitions(self) -> tuple[str, ...]:
        table = self._guarded(lambda: self._file.read(columns=["partition", "replaced_by"]))
        live = table.filter(pc.is_null(table.column("replaced_by")))
        return tuple(sorted(pc.unique(live.column("partition")).to_pylist()))

    def of(self, partition: str) -> pa.Table:
        firsts, lasts = self._bounds
        # Rows are in order, so the groups that may hold the partition follow each other.
        start, end = bisect_left(lasts, partition), bisect_right(firsts, partition)
        tables = [self._group(number) for number in range(start, end)]
        found = [table.filter(pc.equal(table.column("partition"), partition)) for table in tables]
        return pa.concat_tables(found) if found else NO_ROWS

    def all(self) -> pa.Table:
        several = len(self._bounds[0]) > 1  # to hand one group to threads costs more than they save
        return _as_rows(self._guarded(lambda: self._file.read(use_threads=several)), self._source)

    def _read_group(self, number: int) -> pa.Table:
        return _as_rows(self._guarded(lambda: self._file.read_row_group(number)), self._source)

    def _guarded(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except LakelockError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _damaged(self._source, error) from error


def _as_rows(table: pa.Table, source: str) -> pa.Table:
    if table.schema.equals(ROWS):
        return table
    try:
        return table.select(ROWS.names).cast(ROWS)
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise _damaged(source, error) from error


def _damaged(source: str, why: object) -> DamagedCheckpoint:
    return DamagedCheckpoint(f"{source} cannot be read: {why}", hint=_HINT)
