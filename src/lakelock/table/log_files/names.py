"""Names of log files: `.<file id>_<instant>.log.<version>_<write token>`, as Hudi 1.x has them."""

from __future__ import annotations

import re
from typing import NamedTuple

from lakelock.table.layout import FileGroupId

_NAME = re.compile(r"\.([^_/]+)_([0-9]{17}|[0-9]{14})\.log\.([0-9]{1,9})(?:_([^_/]+))?", re.ASCII).fullmatch


class LogFile(NamedTuple):
    """One log file; since table version 8 `instant` is that of the commit which wrote it. Their order is that of reading."""

    partition: str
    file_id: str
    instant: str
    version: int
    token: str
    size_bytes: int = 0

    @classmethod
    def parse(cls, path: str, size_bytes: int = 0) -> LogFile | None:
        """The log file that a relative path names, None for anything else, such as a log of changes (`.cdc`)."""
        partition, _, name = path.rpartition("/")
        match = _NAME(name)
        return cls(partition, match[1], match[2], int(match[3]), match[4] or "", size_bytes) if match else None

    @property
    def key(self) -> str:
        """Where the file is."""
        token = f"_{self.token}" if self.token else ""
        name = f".{self.file_id}_{self.instant}.log.{self.version}{token}"
        return f"{self.partition}/{name}" if self.partition else name

    @property
    def group(self) -> FileGroupId:
        return FileGroupId(self.partition, self.file_id)
