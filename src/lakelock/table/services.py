"""Table services of other writers that matter here: plans to cluster and to clean, and rollbacks as Java writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakelock.errors import CorruptTableError
from lakelock.table.avro.container import Record, decode, encode
from lakelock.table.avro.schemas import CLEANER_PLAN, REQUESTED_REPLACE, ROLLBACK, ROLLBACK_PLAN
from lakelock.table.layout import FileGroupId, checked_file_name, checked_partition, in_partition

Files = Mapping[str, Sequence[str]]
"""Names of data files by partition path."""


def pending_clustering_groups(data: bytes, source: str = "a clustering plan") -> frozenset[FileGroupId]:
    """The file groups that a `.clustering.requested` or `.replacecommit.requested` file plans to rewrite.

    Nobody may rewrite or replace one of these, however old the plan: Java executes it later without looking.
    """
    _, record = decode(data, source, REQUESTED_REPLACE)
    groups = ((record["clusteringPlan"] or {}).get("inputGroups")) or []
    slices = [piece for group in groups for piece in group["slices"] or []]
    found = {FileGroupId(piece["partitionPath"] or "", piece["fileId"] or "") for piece in slices}
    for group in found:
        checked_partition(group.partition, source)
        checked_file_name(group.file_id, source)
    return frozenset(found)


def partitions_to_clean(data: bytes, source: str = "a cleaner's plan") -> frozenset[str]:
    """The partitions whose whole folder a `.clean.requested` file plans to remove."""
    _, record = decode(data, source, CLEANER_PLAN)
    # An empty name is the table itself; there Java removes only files.
    return frozenset(checked_partition(partition, source) for partition in record["partitionsToBeDeleted"] or [] if partition)


@dataclass(frozen=True)
class RollbackPlan:
    """What a rollback is going to delete: the data files of one instant.

    `root` is the table's URI: Hudi records absolute paths.
    """

    target_instant: str
    target_action: str
    files: Files
    root: str = ""

    def to_bytes(self) -> bytes:
        """The content of `.rollback.requested`: one request per file, as Java 1.2 makes them from markers."""
        requests = [
            {
                "partitionPath": partition,
                "fileId": name.partition("_")[0],
                "latestBaseInstant": self.target_instant,
                "filesToBeDeleted": [_absolute(self.root, partition, name)],
                "logBlocksToBeDeleted": {},
            }
            for partition, names in self.files.items()
            for name in names
        ]
        target = {"commitTime": self.target_instant, "action": str(self.target_action)}
        return encode(ROLLBACK_PLAN, {"instantToRollback": target, "RollbackRequests": requests, "version": 1})

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "a rollback plan") -> RollbackPlan:
        """The plan in a `.rollback.requested` file, with the names of the files only."""
        _, record = decode(data, source, ROLLBACK_PLAN)
        target = record["instantToRollback"]
        if target is None:
            raise CorruptTableError(f"{source} does not say which instant it rolls back", file=source)
        files: dict[str, tuple[str, ...]] = {}
        for request in record["RollbackRequests"] or []:
            partition = checked_partition(request["partitionPath"], source)
            names = tuple(_name(path, source) for path in request["filesToBeDeleted"])
            files[partition] = files.get(partition, ()) + names
        return cls(target["commitTime"], target["action"], files)


@dataclass(frozen=True)
class RollbackMetadata:
    """What a rollback deleted. `start_instant` is the requested time of the rollback itself."""

    start_instant: str
    took_ms: int
    target_instant: str
    target_action: str
    files: Files
    root: str = ""

    def to_bytes(self) -> bytes:
        """The content of the completed `.rollback`."""
        record: Record = {
            "startRollbackTime": self.start_instant,
            "timeTakenInMillis": self.took_ms,
            "totalFilesDeleted": sum(len(names) for names in self.files.values()),
            "commitsRollback": [self.target_instant],
            "partitionMetadata": {
                partition: {
                    "partitionPath": partition,
                    "successDeleteFiles": [_absolute(self.root, partition, name) for name in names],
                    "failedDeleteFiles": [],
                    "rollbackLogFiles": {},
                    "logFilesFromFailedCommit": {},
                }
                for partition, names in self.files.items()
            },
            "version": 1,
            "instantsRollback": [{"commitTime": self.target_instant, "action": str(self.target_action)}],
        }
        return encode(ROLLBACK, record)

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "a rollback") -> RollbackMetadata:
        """The rollback in a completed `.rollback` file, with the names of the files only."""
        _, record = decode(data, source, ROLLBACK)
        targets = record["instantsRollback"]
        if len(targets) != 1:
            raise CorruptTableError(f"{source} rolls back {len(targets)} instants where one belongs", file=source)
        files = {
            checked_partition(partition, source): tuple(_name(path, source) for path in found["successDeleteFiles"])
            for partition, found in record["partitionMetadata"].items()
        }
        start, took_ms = record["startRollbackTime"], record["timeTakenInMillis"]
        return cls(start, took_ms, targets[0]["commitTime"], targets[0]["action"], files)


def _absolute(root: str, partition: str, name: str) -> str:
    path = in_partition(partition, name)
    return f"{root.removeprefix('file://').rstrip('/')}/{path}" if root else path


def _name(path: str, source: str) -> str:
    return checked_file_name(path.rpartition("/")[2], source)
