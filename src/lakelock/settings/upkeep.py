"""Settings of upkeep: which old files are kept, how long the active timeline is, and what a run may cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from lakelock.errors import SettingsError
from lakelock.settings.fields import Section, constant, setting


@dataclass(frozen=True)
class CleanSettings(Section):
    """Which old versions of the data stay readable, with the names that Hudi has for the policies."""

    section: ClassVar[str] = "clean"
    policy: Literal["KEEP_LATEST_COMMITS", "KEEP_LATEST_BY_HOURS", "KEEP_LATEST_FILE_VERSIONS"] = setting(
        "KEEP_LATEST_BY_HOURS",
        "What is kept besides the current rows: by commits, by hours, or a number of files of each file group",
    )
    keep_commits: int = setting(
        10, "Number of commits as of which the table stays readable, for KEEP_LATEST_COMMITS", at_least=1, at_most=1_000_000
    )
    keep_hours: float = setting(
        168.0,
        "How far back the table stays readable, for KEEP_LATEST_BY_HOURS",
        unit="hours",
        at_least=0,
        at_most=876_000,
    )
    keep_versions: int = setting(
        3, "Files that each file group keeps, for KEEP_LATEST_FILE_VERSIONS", at_least=1, at_most=1_000_000
    )
    readers_s: float = setting(
        3_600.0,
        "An old file stays for at least this long after the commit that replaced it, for readers that still use it",
        unit="s",
        at_least=0,
        at_most=31_536_000,
    )


@dataclass(frozen=True)
class ArchiveSettings(Section):
    """How long the active timeline gets before its oldest instants move to the history."""

    section: ClassVar[str] = "archive"
    min_commits: int = setting(20, "Commits that stay on the active timeline", at_least=2, at_most=1_000_000)
    max_commits: int = setting(
        30, "Commits on the active timeline above which the oldest are archived", at_least=2, at_most=1_000_000
    )
    min_age_s: float = setting(
        600.0,
        "An instant is archived no sooner than this after it completed, so that no request for it is still in flight",
        unit="s",
        at_least=0,
        at_most=31_536_000,
    )
    merge_files: int = constant(
        10, "Number of files of one level of the history that are merged into one of the next level", at_least=2, at_most=1_000
    )

    def check_together(self) -> None:
        if self.min_commits > self.max_commits:
            raise SettingsError(
                f"archive.min_commits ({self.min_commits}) is greater than archive.max_commits ({self.max_commits})",
                hint="lower the first or raise the second",
                key="archive.min_commits",
            )


@dataclass(frozen=True)
class UpkeepSettings(Section):
    """Cleaning, archiving and tidying up, as one run alongside live writers."""

    section: ClassVar[str] = "upkeep"
    auto: bool = setting(True, "Run upkeep after a commit when it is due; if this is off, run `lakelock upkeep` regularly")
    every_commits: int = setting(
        20, "Upkeep is due after each commit whose decision number is a multiple of this", at_least=1, at_most=1_000_000
    )
    budget_s: float = setting(
        10.0, "How long one run begins new work; the next run does the rest", unit="s", at_least=0.1, at_most=86_400
    )
