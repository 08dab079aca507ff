"""What one write by Spark remembers from attempt to attempt, so that none does again what would come out the same (ADR 19).

The rows that the call brought stay packed where the first attempt has put them: in the memory and on the disks of the
executors. An attempt persists them anyway, so that they are computed once; they only stay until the call has ended. What is
known about keys and files is on the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from lakelock.engine.file_tasks import EarlierFiles
from lakelock.spark_plugin.frames import KeptFrames
from lakelock.spark_plugin.writing.tagging import FileKeys, KeysByPartition


@dataclass
class Staged:
    """The rows of a call, complete: a persisted frame of parcels, how many are in each partition, and their size in memory.

    `keys` are those of the rows, in a fixed order, unless they are too many for the driver.
    """

    frame: DataFrame
    counts: Mapping[str, int] = field(default_factory=dict)
    keys: KeysByPartition | None = None
    size_bytes: int = 0

    @property
    def row_bytes(self) -> int:
        """What a row takes, on average."""
        return self.size_bytes // max(1, sum(self.counts.values()))


class Memory(EarlierFiles):
    """Belongs to one call, whose rows or condition are the same in each attempt. Whoever makes `frames` closes them."""

    def __init__(self, frames: KeptFrames | None = None) -> None:
        super().__init__()
        self._frames = frames or KeptFrames()
        self.staged: Staged | None = None
        self.held: dict[str, FileKeys | None] = {}
        """By the key of a file that was looked into: which of the staged keys it holds, if any."""
        self._rows: DataFrame | None = None
        self.matched: dict[str, bool] = {}
        """By the key of a file that was looked into: whether the call changes rows of it."""

    def keep(self, frame: DataFrame) -> None:
        """Persist a frame until the call has ended."""
        self._frames.keep(frame)

    def kept_rows(self, compute: Callable[[], DataFrame]) -> DataFrame:
        """The rows that the call brought, as the first attempt has computed them."""
        if self._rows is None:
            self._rows = compute()
            self.keep(self._rows)
        return self._rows

    def unstage(self) -> None:
        """Let the rows go."""
        if self.staged is not None:
            self._frames.drop(self.staged.frame)
            self.staged = None

    def forget(self) -> None:
        super().forget()
        self.unstage()
        if self._rows is not None:
            self._frames.drop(self._rows)
            self._rows = None
        self.held, self.matched = {}, {}

    def close(self) -> None:
        """Free what is persisted."""
        self._frames.close()

    def has_files_of(self, instant: str) -> bool:
        """Whether the next attempt may take over files of this one."""
        files = self._files.get(instant)
        return files is not None and bool(files.rewritten or files.new)
