"""Savepoints as Java Hudi 1.2 has them: a completed `.savepoint` that lists the files of the table as of its instant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakelock.table.avro.container import Record, decode, encode
from lakelock.table.avro.schemas import SAVEPOINT
from lakelock.table.layout import checked_file_name, checked_partition, in_partition


@dataclass(frozen=True)
class SavepointMetadata:
    """Who took a savepoint, when (`at_ms` since 1970 UTC), as what (`comments`), and the names of its files by partition."""

    by: str
    at_ms: int
    comments: str
    files: Mapping[str, Sequence[str]]

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(in_partition(partition, name) for partition, names in self.files.items() for name in names)

    def to_bytes(self) -> bytes:
        """The content of the completed `.savepoint`."""
        record: Record = {
            "savepointedBy": self.by,
            "savepointedAt": self.at_ms,
            "comments": self.comments,
            "partitionMetadata": {
                partition: {"partitionPath": partition, "savepointDataFile": list(names)}
                for partition, names in self.files.items()
            },
            "version": 1,
        }
        return encode(SAVEPOINT, record)

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "a savepoint") -> SavepointMetadata:
        _, record = decode(data, source, SAVEPOINT)
        files = {
            checked_partition(partition, source): tuple(checked_file_name(n, source) for n in entry["savepointDataFile"])
            for partition, entry in record["partitionMetadata"].items()
        }
        return cls(record["savepointedBy"], record["savepointedAt"], record["comments"], files)
