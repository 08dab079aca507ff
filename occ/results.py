"""What a write did, for people and programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

from lakelock.conflict import Conflict
from lakelock.occ.committed import Committed
from lakelock.occ.restore import RESTORE
from lakelock.texts import counted, size_text

Returned = TypeVar("Returned")


@dataclass(frozen=True, repr=False)
class WriteResult:
    """A committed write. `instant` names it in `table.read(as_of=...)` and `table.changes(since=...)`.

    Counts are rows. `rows_inserted` are new rows, `rows_updated` replaced ones; rows that were merely copied into a new
    file are not counted. `redone` counts the attempts lost to conflicts, `conflicts` says with whom. `files_kept` of the files
    were taken over from such an attempt. `phases` are the seconds of the last attempt by phase, as far as
    they can be told apart: `look-up`, `shuffle`, `write` (merge and encode), `lock-wait`, `validate`, `publish`.
    """

    operation: str
    instant: str
    completion: str
    rows_inserted: int
    rows_updated: int
    rows_deleted: int
    files: int
    size_bytes: int
    files_kept: int
    lock_wait_s: float
    lock_held_s: float
    lock_requests: int
    took_s: float
    attempts: int
    conflicts: tuple[Conflict, ...]
    phases: Mapping[str, float]
    already_applied: bool

    @classmethod
    def of(cls, done: Committed) -> WriteResult:
        return cls(**{field.name: getattr(done, field.name) for field in fields(WriteResult)})

    @property
    def redone(self) -> int:
        """The attempts that were lost to conflicts."""
        return self.attempts - 1

    def as_dict(self) -> dict[str, object]:
        """Plain values, for logs and JSON."""
        values: dict[str, object] = {field.name: getattr(self, field.name) for field in fields(WriteResult)}
        return {**values, "conflicts": [conflict.as_dict() for conflict in self.conflicts], "phases": {**self.phases}}

    def __repr__(self) -> str:
        if self.already_applied:
            return f"{self.operation} {self.instant}: applied before, nothing changed"
        changes = [
            f"{count:,} {what}"
            for count, what in (
                (self.rows_inserted, "inserted"),
                (self.rows_updated, "updated"),
                (self.rows_deleted, "deleted"),
            )
            if count
        ]
        rows = ", ".join(changes) or ("restored" if self.operation == RESTORE else "no rows changed")
        waited = f", waited {self.lock_wait_s:.1f} s for the lock" if self.lock_wait_s >= 0.05 else ""
        again = f", attempt {self.attempts}" if self.attempts > 1 else ""
        if self.files_kept:
            again += f", which redid {self.files - self.files_kept} of {counted(self.files, 'file')}"
        files = f"{counted(self.files, 'file')}, {size_text(self.size_bytes)}"
        return f"{self.operation} {self.instant}: {rows} ({files}) in {self.took_s:.1f} s{waited}{again}"


@dataclass(frozen=True, repr=False)
class RunResult(WriteResult, Generic[Returned]):
    """What `LakeTable.run` committed. `value` is what the function returned in the attempt that was committed.

    None if that was `already_applied`: then the function was not called, or all that it wrote was withdrawn.
    """

    value: Returned | None = None

    @classmethod
    def of_run(cls, done: Committed, value: Returned | None) -> RunResult[Returned]:
        return cls(**{field.name: getattr(done, field.name) for field in fields(WriteResult)}, value=value)
