"""Memory and open files of a process over time, and whether they are flat."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

WARM_UP_SHARE = 0.25
LONG_ENOUGH = 60
"""Samples, one a second, below which a process tells nothing about its growth."""

MEMORY_MB = 24.0
"""How much the last third may use more than the first: what the allocator keeps differs from moment to moment."""

FILES = 8


@dataclass(frozen=True)
class Usage:
    memory_mb: float
    files: int

    @classmethod
    def of(cls, pid: int) -> Usage:
        """What the process uses now; nothing when it has just ended."""
        try:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            return cls(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, len(os.listdir(f"/proc/{pid}/fd")))
        except (OSError, IndexError):
            return cls(0.0, 0)


def growth(processes: Sequence[Sequence[Usage]]) -> tuple[float, int, list[str]]:
    """The most memory and open files that any process had, and what is wrong with those that grew."""
    every = [usage for samples in processes for usage in samples]
    grown = []
    for samples in processes:
        warm = [usage for usage in samples[int(len(samples) * WARM_UP_SHARE) :] if usage.files]
        if len(samples) < LONG_ENOUGH:
            continue
        third = len(warm) // 3
        first, last = warm[:third], warm[-third:]
        more_mb = median(u.memory_mb for u in last) - median(u.memory_mb for u in first)
        more_files = median(u.files for u in last) - median(u.files for u in first)
        if more_mb > MEMORY_MB or more_files > FILES:
            grown.append(f"a writer grew by {more_mb:.0f} MB and {more_files:.0f} open files")
    return max((u.memory_mb for u in every), default=0.0), max((u.files for u in every), default=0), grown
