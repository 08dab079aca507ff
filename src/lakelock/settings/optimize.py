"""Joining small files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lakelock.errors import SettingsError
from lakelock.settings.fields import Section, setting

MIB = 1 << 20


@dataclass(frozen=True)
class OptimizeSettings(Section):
    """Joining small files into bigger ones, with `table.optimize().execute()`."""

    section: ClassVar[str] = "optimize"
    small_file_bytes: int = setting(
        64 * MIB, "Files below this size are joined with others of their partition", unit="bytes", at_least=1
    )
    target_file_bytes: int = setting(128 * MIB, "Approximate size of the joined files", unit="bytes", at_least=1)
    commit_bytes: int = setting(
        4096 * MIB,
        "One commit of optimize rewrites about this much; a conflicting write undoes no more than that",
        unit="bytes",
        at_least=1,
    )

    def check_together(self) -> None:
        if self.target_file_bytes < self.small_file_bytes:
            raise SettingsError(
                f"optimize.target_file_bytes ({self.target_file_bytes}) is less than optimize.small_file_bytes "
                f"({self.small_file_bytes}), so joined files would still count as small",
                hint="raise the first or lower the second",
                key="optimize.target_file_bytes",
            )
