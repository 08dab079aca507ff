"""Cleans as Java Hudi 1.2 has them: the plan in `.clean.requested`, and what was deleted in the completed `.clean`.

Java's cleaner carries out a plan of ours that it finds pending, and continues from the newest completed clean,
so both say what Java's own would: every file that no reader as of `retained` or later needs is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.table.avro.container import Record, decode, encode
from lakelock.table.avro.schemas import CLEAN, CLEANER_PLAN
from lakelock.table.instants import Instant, State
from lakelock.table.layout import checked_file_name, checked_partition, in_partition

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
        return _readable_from(self.extra, self.retained, self.files)

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
        return _readable_from(self.extra, self.retained, self.files)

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


def _readable_from(extra: Mapping[str, str], retained: str, files: Files) -> str:
    """The instant that the clean names, otherwise the one that its policy kept.

    A clean of another engine that kept a number of versions names no instant: the newest file that it deleted then shows
    that the table is not complete as of that file's time.
    """
    deleted = (name.rpartition("_")[2].removesuffix(".parquet") for names in files.values() for name in names)
    return extra.get(READABLE_FROM) or retained or max(deleted, default="")


def _name(path: str, source: str) -> str:
    return checked_file_name(path.rpartition("/")[2], source)
