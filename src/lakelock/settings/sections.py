"""What a user can tune, with defaults that are right for most.

A value comes from the first of: option of the call, Spark conf (`spark.lakelock.*`), file (TOML, or the Hudi properties
file of a Java writer as it is), default. Where it came from is kept, an unknown key is an error, and bounds are checked
before any work. Things that do work (clock, storage, lock provider) are handed to constructors instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from lakelock.errors import SettingsError
from lakelock.settings.catalog import CatalogSettings
from lakelock.settings.data_locks import DataLockSettings
from lakelock.settings.fields import Section, SettingRow, constant, section_rows, setting
from lakelock.settings.hive_metastore import HiveMetastoreSettings
from lakelock.settings.optimize import OptimizeSettings
from lakelock.settings.upkeep import ArchiveSettings, CleanSettings, UpkeepSettings

PARALLEL_REQUESTS = 16
"""The default of `listing.parallel_requests`, for reads without a table's settings at hand."""


@dataclass(frozen=True)
class ConcurrencySettings(Section):
    """How writers of one table get along."""

    section: ClassVar[str] = "concurrency"
    mode: Literal["OPTIMISTIC", "PESSIMISTIC", "SINGLE_WRITER"] = setting(
        "OPTIMISTIC",
        "How writers get along: OPTIMISTIC validates at commit, PESSIMISTIC also takes data locks, SINGLE_WRITER takes no lock",
    )
    profile: Literal["strict", "hudi", "delta", "hive"] = setting(
        "strict",
        "What counts as a conflict: strict is serializable, delta, hive and hudi have the rules of Delta, Hive 3 and Java Hudi",
    )
    isolation: Literal["Serializable", "WriteSerializable"] = setting(
        "Serializable", "The isolation level of the profile delta: with WriteSerializable a blind append never conflicts"
    )
    early_conflict_detection: bool = setting(True, "Find conflicts by markers and claims before the data is written")

    def check_together(self) -> None:
        if self.isolation != "Serializable" and self.profile != "delta":
            raise SettingsError(
                f"concurrency.isolation is {self.isolation}, which the profile {self.profile} does not have",
                hint="set concurrency.profile to delta, or leave concurrency.isolation out",
                key="concurrency.isolation",
            )


@dataclass(frozen=True)
class LockSettings(Section):
    """The table lock, held for milliseconds around validate and publish."""

    section: ClassVar[str] = "lock"
    provider: str = setting("storage:", "URI of the lock service; storage: keeps the lock next to the table", in_repr=False)
    wait_s: float = setting(
        60.0, "How long a commit waits for the lock before LockTimeout", unit="s", at_least=0, at_most=86_400
    )
    lease_s: float = setting(
        15.0,
        "A holder that is silent for this long may be replaced; at least three times renew_s",
        unit="s",
        at_least=1,
        at_most=3_600,
    )
    renew_s: float = setting(5.0, "How often a holder renews its lease", unit="s", at_least=0.1, at_most=1_200)
    poll_s: float = setting(
        0.5,
        "Longest pause between two checks of a held lock that sends no notice; longer if answers are slow or many wait",
        unit="s",
        at_least=0.01,
        at_most=60,
    )

    @property
    def answer_s(self) -> float:
        """How long to wait for an answer about a lock next to the table: without one, there is time for two more renewals."""
        return self.lease_s / 6

    def check_together(self) -> None:
        if self.lease_s < 3 * self.renew_s:
            raise SettingsError(
                f"lock.lease_s ({self.lease_s:g} s) must be at least three times lock.renew_s ({self.renew_s:g} s), "
                "so that one lost renewal does not lose the lock",
                hint=f"set lock.renew_s to {self.lease_s / 3:.3g} or less, or lock.lease_s to {3 * self.renew_s:g} or more",
                key="lock.lease_s",
            )


@dataclass(frozen=True)
class HeartbeatSettings(Section):
    """How others know that a transaction is still running. Java Hudi has the first two settings, too; keep them equal."""

    section: ClassVar[str] = "heartbeat"
    interval_s: float = setting(
        60.0, "How often a running transaction refreshes its heartbeat", unit="s", at_least=1, at_most=3_600
    )
    tolerable_misses: int = setting(
        2, "A writer whose heartbeat is older than this many intervals is dead", at_least=1, at_most=100
    )
    foreign_patience: int = constant(
        5,
        "For this many times that age, a dead writer of another engine is left to that engine, whose next commit rolls it back",
        at_least=1,
        at_most=1_000,
    )
    foreign_start_s: float = setting(
        5.0,
        "How long a writer of another engine may take to read the table after its instant appears",
        unit="s",
        at_least=0,
        at_most=600,
    )

    @property
    def limit_s(self) -> float:
        """The age at which a heartbeat's owner is dead, unless its record names another."""
        return self.interval_s * self.tolerable_misses


@dataclass(frozen=True)
class RetrySettings(Section):
    """Running a rejected transaction again, where that is safe."""

    section: ClassVar[str] = "retry"
    attempts: int = setting(5, "How many times a write is tried in total; 1 means no retries", at_least=1, at_most=1_000)
    first_wait_s: float = setting(
        0.2, "Longest wait before the second attempt; it doubles with each attempt", unit="s", at_least=0, at_most=3_600
    )
    longest_wait_s: float = setting(10.0, "Longest wait before any attempt", unit="s", at_least=0, at_most=3_600)
    redo_attempts: int = constant(
        20,
        "How many times in a write only what collided is done again, which does not count as an attempt; 0 means never",
        at_least=0,
        at_most=1_000,
    )
    reserve_after: int = constant(
        2,
        "After so many conflicts in one write, later writers of the same partitions wait until it has ended; 0 means never",
        at_least=0,
        at_most=1_000,
    )
    holder_wait_s: float = setting(
        600.0,
        "How long to wait for the other transaction to end: after an early conflict, or because it has a reservation",
        unit="s",
        at_least=0,
        at_most=86_400,
    )

    def check_together(self) -> None:
        if self.first_wait_s > self.longest_wait_s:
            raise SettingsError(
                f"retry.first_wait_s ({self.first_wait_s:g} s) is longer than retry.longest_wait_s ({self.longest_wait_s:g} s)",
                hint="lower the first or raise the second",
                key="retry.first_wait_s",
            )


@dataclass(frozen=True)
class DecisionSettings(Section):
    """The decision log of a table."""

    section: ClassVar[str] = "decisions"
    slot_attempts: int = constant(
        100, "How many times a commit tries for the next decision number", at_least=1, at_most=100_000
    )
    collect_above: int = constant(
        64, "Finished decisions are collected when there are more than this many", at_least=2, at_most=1_000_000
    )


@dataclass(frozen=True)
class TransactionSettings(Section):
    """Transactions over several tables."""

    section: ClassVar[str] = "transaction"
    allow_foreign: bool = setting(
        False, "Also write tables that another engine writes, whose rollback could void one table's part of a transaction"
    )


@dataclass(frozen=True)
class CheckpointSettings(Section):
    """Checkpoints of the file index, from which a process learns the table's files without reading its history."""

    section: ClassVar[str] = "checkpoint"
    every_commits: int = constant(
        25,
        "A checkpoint is written after this many commits, outside the lock; 0 writes and reads none: files are listed instead",
        at_least=0,
        at_most=10_000,
    )


@dataclass(frozen=True)
class StatisticsSettings(Section):
    """What a write records about its files, which lets reads skip files without opening them."""

    section: ClassVar[str] = "statistics"
    columns: int = setting(
        16,
        "Value ranges of this many columns, the first that are not nested, are recorded with each file",
        at_least=0,
        at_most=1_000,
    )


@dataclass(frozen=True)
class ListingSettings(Section):
    """Requests to storage."""

    section: ClassVar[str] = "listing"
    parallel_requests: int = setting(
        PARALLEL_REQUESTS, "How many storage requests one process has in flight at once", at_least=1, at_most=256
    )
    at_once: int = constant(
        300,
        "A listing of up to this many keys shows one moment (an object store answers in pages of 1,000, a disk some 340 names "
        "at a time); readers list a longer timeline twice",
        at_least=1,
        at_most=1000,
    )


MissingColumns = Literal["error", "keep", "null"]
"""What happens to columns of the table that the rows of an upsert lack, see `WriteSettings.missing_columns`."""


@dataclass(frozen=True)
class WriteSettings(Section):
    """The data files and what a write accepts."""

    section: ClassVar[str] = "write"
    target_file_rows: int = setting(
        1_000_000, "A data file is closed and a new one begun at this many rows", unit="rows", at_least=1
    )
    target_file_bytes: int = setting(
        128 << 20,
        "A data file is closed and a new one begun at about this size; the row group that reaches it is still written",
        unit="bytes",
        at_least=1,
    )
    row_group_rows: int = setting(250_000, "Rows of a Parquet row group", unit="rows", at_least=1, at_most=10_000_000)
    batch_rows: int = constant(65_536, "Rows that a task works on at once", at_least=1, at_most=1_000_000)
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"] = setting("zstd", "Parquet compression")
    bloom_entries: int = constant(
        1_000, "Number of record keys that the bloom filter of a file always has room for", at_least=1, at_most=100_000_000
    )
    bloom_max_entries: int = constant(
        1_000_000, "Number of record keys up to which the bloom filter of a file grows", at_least=1, at_most=100_000_000
    )
    bloom_fpp: float = constant(0.01, "Share of false positives of the bloom filter", at_least=1e-12, at_most=0.5)
    merge_schema: bool = setting(
        False, "Add new columns and fields of the written rows to the table, and widen its columns to their types"
    )
    missing_columns: Literal["error", "keep", "null"] = setting(
        "error",
        "What an upsert does when its rows lack columns of the table: refuse, keep the stored values of the rows that it "
        "updates, or write null over them",
    )
    index: str = setting(
        "",
        "The index of a table that has none on record: bucket:16 (or bucket:16:customer), the number of buckets and, if "
        "not all, the key columns of its Java writers; or global, if a key is in one partition at most. The first writer "
        "records it in the table; one that lakelock created with an index has the record from its beginning",
    )
    group_inserts: bool = setting(
        True,
        "Commit small inserts of several writers, processes or threads, together while they meet at the lock: one commit, one "
        "file for each partition. history() names the members",
    )
    driver_rows: int = setting(
        10_000,
        "A write by Spark of up to this many rows, and 16 MiB, is done in the driver, without tasks; 0 leaves all to executors",
        unit="rows",
        at_least=0,
        at_most=1_000_000,
    )
    progress: bool = setting(
        True,
        "Show the progress of a long write on a terminal or in a notebook; LAKELOCK_PROGRESS=0 hides it, too",
    )
    duplicates: Literal["error", "any"] = setting(
        "error", "Rows of one key with an equal ordering value in one upsert: an error, or take any one of them"
    )
    merge_may_duplicate_keys: bool = setting(
        False,
        "Let a merge whose condition does not equate the key insert rows whose key the table has already, as insert does; "
        "otherwise their keys are looked up, and one that is there is an error",
    )


SECTIONS: tuple[type[Section], ...] = (
    ConcurrencySettings,
    LockSettings,
    HeartbeatSettings,
    RetrySettings,
    DataLockSettings,
    DecisionSettings,
    TransactionSettings,
    CheckpointSettings,
    StatisticsSettings,
    ListingSettings,
    WriteSettings,
    CleanSettings,
    ArchiveSettings,
    UpkeepSettings,
    OptimizeSettings,
    HiveMetastoreSettings,
    CatalogSettings,
)


def settings_reference() -> list[SettingRow]:
    """Every setting but the free `storage.*` options, in order: the source of the parser, `explain` and the documents."""
    return [row for section in SECTIONS for row in section_rows(section)]
