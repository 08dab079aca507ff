"""Plans and metadata of table services as Java Hudi 1.2 has them: cleans, savepoints, clustering and rollbacks.

Java's cleaner carries out a pending plan of ours, and continues from the newest completed clean. So the plan in
`.clean.requested` and the completed `.clean` say what Java's own would: every file that no reader as of `retained` or
later needs is gone.

`CleanedUntil` is a note of our own next to the timeline, so that a clean need not look where nothing has changed since. It
stays true once it is true, whichever engine cleans or writes afterwards. So a note that is late, old or lost costs a
longer look and no more. Other engines neither read nor need it.

A completed `.savepoint` lists the files of the table as of its instant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakelock.errors import CorruptTableError
from lakelock.parsing import JsonObject
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.table.avro import (
    CLEAN,
    CLEANER_PLAN,
    COMPACTION_PLAN,
    REQUESTED_REPLACE,
    ROLLBACK,
    ROLLBACK_PLAN,
    SAVEPOINT,
    Record,
    decode,
    encode,
)
from lakelock.table.instants import Instant, State
from lakelock.table.layout import FileGroupId, checked_file_name, checked_partition, in_partition

SAVEPOINTS = "savepointed_timestamps"
"""Hudi's key for the savepoints that a clean respected: Java examines their partitions again once one of them is gone."""

READABLE_FROM = "lakelock.readable_from"
"""Our key for the first instant as of which the table is complete after the clean."""

Files = Mapping[str, Sequence[str]]
"""Names of data files by partition path."""

_VERSION = 2


@dataclass(frozen=True)
class CleanPlan:
    """What a clean will delete.

    `retained` is the instant that the policy keeps, and its action; `("", "")` where the policy names none. `newest` is the
    newest completed commit that the planner knew. `root` is the table's URI: Hudi records absolute paths.
    """

    policy: str
    retained: str
    action: str
    newest: str
    files: Files
    extra: Mapping[str, str] = field(default_factory=dict)
    root: str = ""
    partitions_to_remove: tuple[str, ...] = ()

    @property
    def keys(self) -> list[str]:
        """The keys of the files, in order."""
        return _keys(self.files)

    def to_bytes(self) -> bytes:
        """The content of `.clean.requested`."""
        retained = {"timestamp": self.retained, "action": self.action, "state": "COMPLETED"} if self.retained else None
        record: Record = {
            "earliestInstantToRetain": retained,
            "lastCompletedCommitTimestamp": self.newest,
            "policy": self.policy,
            "filesToBeDeletedPerPartition": {},
            "version": _VERSION,
            "filePathsToBeDeletedPerPartition": {
                partition: [{"filePath": _absolute(self.root, partition, name), "isBootstrapBaseFile": False} for name in names]
                for partition, names in self.files.items()
            },
            "partitionsToBeDeleted": list(self.partitions_to_remove),
            "extraMetadata": dict(self.extra),
        }
        return encode(CLEANER_PLAN, record)

    @property
    def readable_from(self) -> str:
        """The first instant as of which the table is complete once the plan is being carried out."""
        return _readable_from(self.extra, self.retained, self.newest, self.files)

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "a cleaner's plan") -> CleanPlan:
        """The plan in a `.clean.requested` file, with the names of the files only; those of older releases, too."""
        _, record = decode(data, source, CLEANER_PLAN)
        retained = record["earliestInstantToRetain"] or {}
        files: dict[str, tuple[str, ...]] = {}
        for partition, infos in (record["filePathsToBeDeletedPerPartition"] or {}).items():
            files[checked_partition(partition, source)] = tuple(_name(info["filePath"] or "", source) for info in infos)
        for partition, names in (record["filesToBeDeletedPerPartition"] or {}).items():
            known = files.get(checked_partition(partition, source), ())
            files[partition] = known + tuple(_name(name, source) for name in names)
        return cls(
            policy=record["policy"],
            retained=retained.get("timestamp", ""),
            action=retained.get("action", ""),
            newest=record["lastCompletedCommitTimestamp"],
            files={partition: names for partition, names in files.items() if names},
            extra=record["extraMetadata"] or {},
            # An empty name is the table itself; there Java removes only files.
            partitions_to_remove=tuple(checked_partition(p, source) for p in record["partitionsToBeDeleted"] or [] if p),
        )


@dataclass(frozen=True)
class CleanMetadata:
    """What a clean deleted. `start` is the requested time of the clean itself."""

    start: str
    took_ms: int
    policy: str
    retained: str
    newest: str
    files: Files
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        """The keys of the files, in order."""
        return _keys(self.files)

    @classmethod
    def of(cls, start: str, took_ms: int, plan: CleanPlan) -> CleanMetadata:
        """The result of a plan that was carried out completely."""
        return cls(start, took_ms, plan.policy, plan.retained, plan.newest, plan.files, plan.extra)

    @property
    def readable_from(self) -> str:
        """The first instant as of which the table is complete."""
        return _readable_from(self.extra, self.retained, self.newest or self.start, self.files)

    def to_bytes(self) -> bytes:
        """The content of the completed `.clean`."""
        record: Record = {
            "startCleanTime": self.start,
            "timeTakenInMillis": self.took_ms,
            "totalFilesDeleted": sum(len(names) for names in self.files.values()),
            "earliestCommitToRetain": self.retained,
            "lastCompletedCommitTimestamp": self.newest,
            "partitionMetadata": {
                partition: {
                    "partitionPath": partition,
                    "policy": self.policy,
                    "deletePathPatterns": list(names),
                    "successDeleteFiles": list(names),
                    "failedDeleteFiles": [],
                    "isPartitionDeleted": False,
                }
                for partition, names in self.files.items()
            },
            "version": _VERSION,
            "bootstrapPartitionMetadata": {},
            "extraMetadata": dict(self.extra),
        }
        return encode(CLEAN, record)

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "a clean") -> CleanMetadata:
        """The clean in a completed `.clean` file, with the names of the files only."""
        _, record = decode(data, source, CLEAN)
        found = record["partitionMetadata"]
        files = {
            checked_partition(partition, source): tuple(_name(path, source) for path in entry["successDeleteFiles"])
            for partition, entry in found.items()
        }
        return cls(
            start=record["startCleanTime"],
            took_ms=record["timeTakenInMillis"],
            policy=next((entry["policy"] for entry in found.values()), ""),
            retained=record["earliestCommitToRetain"],
            newest=record["lastCompletedCommitTimestamp"],
            files=files,
            extra=record["extraMetadata"] or {},
        )


def read_clean(storage: Storage, clean: Instant) -> CleanMetadata | CleanPlan | None:
    """What a completed clean deleted, or what a pending one is deleting. None if it is archived, or says nothing."""
    key = layout.timeline((clean if clean.is_completed else replace(clean, state=State.REQUESTED)).file_name)
    stored = storage.get(key)
    if stored is None or not stored.data:
        return None
    return (CleanMetadata if clean.is_completed else CleanPlan).from_bytes(stored.data, key)


def _keys(files: Files) -> list[str]:
    return [in_partition(partition, name) for partition in sorted(files) for name in sorted(files[partition])]


def _absolute(root: str, partition: str, name: str) -> str:
    path = in_partition(partition, name)
    return f"{root}/{path}" if root else path


def _readable_from(extra: Mapping[str, str], retained: str, newest: str, files: Files) -> str:
    """The instant that the clean names, otherwise the one that its policy kept.

    A clean of another engine that kept a number of versions names no instant. What it deleted had been superseded by the newest
    commit that its planner knew, or before; a plan of an old release does not say that either.
    """
    deleted = (name.rpartition("_")[2].removesuffix(".parquet") for names in files.values() for name in names)
    return extra.get(READABLE_FROM) or retained or (newest if any(files.values()) else "") or max(deleted, default="")


def _name(path: str, source: str) -> str:
    return checked_file_name(path.rpartition("/")[2], source)


_NOTE_VERSION = 1


@dataclass(frozen=True)
class CleanedUntil:
    """Every data file that a commit requested before `until` superseded is gone, except what `holds` kept.

    `holds` are savepoints and plans to cluster, as `<instant>.<action>`. `listed_ms`: when the whole table was last
    listed, by the storage's time, and how many `objects` it had.
    """

    until: str
    holds: frozenset[str]
    listed_ms: int
    objects: int = 0

    def to_bytes(self) -> bytes:
        fields = {
            "version": _NOTE_VERSION,
            "until": self.until,
            "holds": sorted(self.holds),
            "listed_ms": self.listed_ms,
            "objects": self.objects,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> CleanedUntil | None:
        """The note in an object; None if it is torn or of another version: then nothing is known."""
        try:
            fields = JsonObject.parse(data)
            holds = fields.items("holds")
            if fields.integer("version") != _NOTE_VERSION or not all(isinstance(hold, str) for hold in holds):
                return None
            listed_ms, objects = fields.integer("listed_ms"), fields.integer("objects", at_least=0)
            return cls(fields.text("until"), frozenset(holds), listed_ms, objects)
        except ValueError:
            return None


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


def planned_groups(data: bytes, source: str = "a plan") -> frozenset[FileGroupId]:
    """The file groups that a `.clustering.requested`, `.replacecommit.requested` or `.compaction.requested` file plans to
    rewrite.

    No writer may rewrite or replace one of these, however old the plan: Java executes it later without looking.
    """
    schema, record = decode(data, source, REQUESTED_REPLACE, COMPACTION_PLAN)
    if schema is COMPACTION_PLAN:
        slices = record["operations"] or []
    else:
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
                "fileId": name.removeprefix(".").partition("_")[0],
                "latestBaseInstant": self.target_instant,
                "filesToBeDeleted": [_plain_path(self.root, partition, name)],
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
                    "successDeleteFiles": [_plain_path(self.root, partition, name) for name in names],
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


def _plain_path(root: str, partition: str, name: str) -> str:
    path = in_partition(partition, name)
    return f"{root.removeprefix('file://').rstrip('/')}/{path}" if root else path
