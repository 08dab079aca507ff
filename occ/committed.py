"""What a committed transaction did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lakelock.conflict import Conflict
from lakelock.occ.decisions import Decision
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
    took_s: float = 0.0
    attempts: int = 1
    conflicts: tuple[Conflict, ...] = field(default_factory=tuple)
    already_applied: bool = False
    """True when the application transaction had been committed before: this call changed nothing."""

    @classmethod
    def of(cls, decision: Decision, stats: Sequence[WriteStat], *, lock_wait_s: float, took_s: float) -> Committed:
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
            size_bytes=sum(s.file_size_bytes or 0 for s in stats),
            lock_wait_s=round(lock_wait_s, 3),
            took_s=round(took_s, 3),
        )
