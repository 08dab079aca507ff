"""What tasks need in order to write files of a transaction: a plain value that travels to executors."""

from __future__ import annotations

from dataclasses import dataclass

from lakelock.identity import WriterIdentity
from lakelock.occ.baseline import Baseline
from lakelock.occ.open_table import OpenTable
from lakelock.occ.own_writes import OwnFile
from lakelock.settings import Settings
from lakelock.storage.location import StorageLocation, requests_at_once
from lakelock.table.base_files import Stamp
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile


@dataclass(frozen=True)
class WriteContext:
    """What a task needs to write files of a transaction; picklable.

    `schema` is that of the rows to write and of the files. The driver has claimed the file groups that tasks rewrite.
    """

    location: StorageLocation
    instant: str
    operation: str
    writer: WriterIdentity
    properties: TableProperties
    schema: TableSchema
    settings: Settings
    own: tuple[OwnFile, ...] = ()
    """What earlier writes of the transaction have written: these files are rewritten from, and do not stay."""

    @property
    def requests_at_once(self) -> int:
        """How many requests of a task are made at the same time."""
        return requests_at_once(self.location.uri, self.settings.listing.parallel_requests)

    @classmethod
    def of(cls, table: OpenTable, baseline: Baseline, schema: TableSchema, own: tuple[OwnFile, ...] = ()) -> WriteContext:
        """For files of the transaction that began with this baseline."""
        return cls(
            location=table.location,
            instant=baseline.instant,
            operation=baseline.operation,
            writer=table.writer,
            properties=baseline.properties,
            schema=schema,
            settings=table.settings,
            own=own,
        )

    def stamp(self, file: DataFile) -> Stamp:
        return Stamp(self.properties.name, self.instant, file.partition, file.name)
