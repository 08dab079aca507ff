"""What a committed transaction did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakelock.conflict import Conflict
from lakelock.occ.locking.lock_use import LockUse
from lakelock.occ.records.decisions import Decision
from lakelock.table.commit_metadata import WriteStat


@dataclass(frozen=True)
class Committed:
    """What a committed transaction did. Counts are rows unless named otherwise; `attempts` counts begun transactions."""

    instant: str
    completion: str
    decision: int
    operation: str
    rows_written: int = 0
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    files: int = 0
    size_bytes: int = 0
    lock_wait_s: float = 0.0
    lock_held_s: float = 0.0
    lock_requests: int = 0
    """What was asked of the table's storage under the lock. A listing counts as one request for each 1,000 keys."""
    took_s: float = 0.0
    files_kept: int = 0
    """How many of the `files` are copies of those of an attempt that a conflict rejected: the others were made again."""
    attempts: int = 1
    conflicts: tuple[Conflict, ...] = field(default_factory=tuple)
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase, as `lakelock.occ.phases` names them. What no phase covers is the difference to `took_s`."""
    already_applied: bool = False
    """True when the application transaction had been committed before: this call changed nothing."""

    @classmethod
    def of(
        cls,
        decision: Decision,
        stats: Sequence[WriteStat],
        *,
        kept: int,
        lock: LockUse,
        took_s: float,
        phases: Mapping[str, float],
    ) -> Committed:
        """The result of a published decision and the files that it made visible."""
        return cls(
            instant=decision.instant,
            completion=decision.completion,
            decision=decision.number,
            operation=decision.operation,
            rows_written=sum((s.num_inserts or 0) + (s.num_update_writes or 0) for s in stats),
            rows_inserted=sum(s.num_inserts or 0 for s in stats),
            rows_updated=sum(s.num_update_writes or 0 for s in stats),
            rows_deleted=sum(s.num_deletes or 0 for s in stats),
            files=len(stats),
            files_kept=kept,
            size_bytes=sum(s.file_size_bytes or 0 for s in stats),
            lock_wait_s=round(lock.wait_s, 3),
            lock_held_s=round(lock.held_s, 3),
            lock_requests=lock.requests,
            took_s=round(took_s, 3),
            phases=phases,
        )

    @property
    def facts(self) -> dict[str, object]:
        """What the event of the commit tells."""
        return {"decision": self.decision, "rows": self.rows_written, **{name: getattr(self, name) for name in _TOLD}}


_TOLD = (
    "files", "rows_inserted", "rows_updated", "rows_deleted", "size_bytes", "took_s", "lock_wait_s", "lock_held_s",
    "lock_requests", "phases",
)  # fmt: skip
