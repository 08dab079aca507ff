"""What a user can tune, with defaults that are right for most.

A value comes from the first of: option of the call, Spark conf (`spark.lakelock.*`), file (TOML, or the Hudi properties
file of a Java writer as it is), default. Where it came from is kept, an unknown key is an error, and bounds are checked
before any work. Things that do work (clock, storage, lock provider) are handed to constructors instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

from lakelock.errors import SettingsError
from lakelock.settings.fields import Section, SettingRow, constant, section_rows, setting

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
    append_below: float = setting(
        0.3,
        "On a merge-on-read table a write that changes at most this share of a file group's rows appends a log file to it; a "
        "greater change makes a new base file, and so does 0",
        at_least=0,
        at_most=1,
    )
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
    group_commit: bool = setting(
        True,
        "Commit small inserts, upserts and deletes by key of several writers, processes or threads, together while they meet: "
        "one commit for each kind. history() names the members",
    )
    driver_rows: int = setting(
        10_000,
        "A write by Spark of up to this many rows, and 16 MiB, is done in the driver, without tasks; on a local Spark an "
        "upsert or delete by key of 25 times as many, and 32 MiB. 0 leaves all to executors",
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


@dataclass(frozen=True)
class DataLockSettings(Section):
    """Shared and exclusive locks on partitions, held for a whole write, with `concurrency.mode = "PESSIMISTIC"`."""

    section: ClassVar[str] = "data_locks"
    attempts: int = setting(
        600,
        "How many times a request is tried before LockTimeout; 1 means it is granted or refused at once",
        at_least=1,
        at_most=1_000_000,
    )
    sleep_s: float = setting(
        1.0, "Pause between two attempts; a service that notifies ends it early", unit="s", at_least=0.01, at_most=3_600
    )
    lease_s: float = setting(
        60.0,
        "A holder that is silent for this long may be replaced; at least three times renew_s",
        unit="s",
        at_least=1,
        at_most=3_600,
    )
    renew_s: float = setting(20.0, "How often a holder renews its lease", unit="s", at_least=0.1, at_most=1_200)
    escalate_above: int = setting(
        2_000,
        "A request for more partitions than this takes one exclusive lock on what they have in common instead",
        unit="partitions",
        at_least=1,
        at_most=100_000,
    )

    @property
    def wait_s(self) -> float:
        """How long a request waits in total."""
        return (self.attempts - 1) * self.sleep_s

    def check_together(self) -> None:
        if self.lease_s < 3 * self.renew_s:
            raise SettingsError(
                f"data_locks.lease_s ({self.lease_s:g} s) must be at least three times data_locks.renew_s ({self.renew_s:g} s)",
                hint=f"set data_locks.renew_s to {self.lease_s / 3:.3g} or less, or data_locks.lease_s to {3 * self.renew_s:g}",
                key="data_locks.lease_s",
            )


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
    compact_logs: int = setting(
        5,
        "On a merge-on-read table a run compacts the file groups with so many log files, and those with log files of more than "
        "30 % of their base file; 0: none",
        at_least=0,
        at_most=1_000,
    )


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


_NEEDED = {"PLAIN": ("user", "password"), "DIGEST": ("delegation_token",), "KERBEROS": ("principal",)}
_OF_ONE_AUTH = {"PLAIN": ("password",), "DIGEST": ("delegation_token",), "KERBEROS": ("principal", "keytab")}


@dataclass(frozen=True)
class HiveMetastoreSettings(Section):
    """How a metastore is reached, for `lock.provider = "hive_metastore://..."` and `catalog.type = "hive_metastore"`."""

    section: ClassVar[str] = "hive_metastore"
    uris: str = setting(
        "",
        "Metastores as Hive lists them (thrift://host:port, separated by commas), when lock.provider names no host",
        in_repr=False,
    )
    uri_selection: Literal["random", "sequential"] = constant(
        "random", "Which metastore of several is tried first: any, or always the first of the list"
    )
    connect_rounds: int = constant(3, "How many times all metastores are tried in turn", at_least=1, at_most=100)
    connect_delay_s: float = constant(1.0, "Pause between two rounds in which no metastore answered", at_least=0, at_most=600)
    socket_timeout_s: float = setting(
        10.0, "How long to wait for a connection and for each answer", unit="s", at_least=0.05, at_most=3_600
    )
    failure_retries: int = constant(
        1, "How many times a call that may be repeated is sent again, on a new connection", at_least=0, at_most=100
    )
    failure_delay_s: float = constant(0.1, "Pause before a call is sent again to the metastore", at_least=0, at_most=600)
    transport: Literal["buffered", "framed"] = setting(
        "buffered", "Use framed where the server has hive.metastore.thrift.framed.transport.enabled"
    )
    protocol: Literal["binary", "compact"] = setting(
        "binary", "Use compact where the server has hive.metastore.thrift.compact.protocol.enabled"
    )
    set_ugi: bool = constant(True, "Tell the metastore the user's name where auth is NONE")
    auth: Literal["NONE", "PLAIN", "DIGEST", "KERBEROS"] = setting(
        "NONE", "How to log in: PLAIN with user and password, DIGEST with a delegation token, KERBEROS with a ticket"
    )
    user: str = setting(
        "", "Name to log in with; empty means the user of this process, with KERBEROS the owner of the ticket or keytab"
    )
    password: str = setting("", "Password for auth PLAIN", secret=True, in_repr=False)
    delegation_token: str = setting(
        "", "Delegation token of the metastore as Hadoop writes it for URLs, for auth DIGEST", secret=True, in_repr=False
    )
    principal: str = setting("", "Kerberos principal of the metastore, such as hive/_HOST@EXAMPLE.ORG")
    keytab: str = setting("", "Keytab to get Kerberos tickets with; empty uses the tickets that kinit got")
    tls: bool = setting(False, "Encrypt the connection; the server's certificate and name are checked")
    tls_ca_file: str = setting("", "Certificates to trust, as a PEM file; empty means those of the system")
    tls_certificate_file: str = setting("", "Certificate to show to the server, as a PEM file")
    tls_key_file: str = setting("", "Private key of that certificate, as a PEM file")

    def check_together(self) -> None:
        missing = [name for name in _NEEDED.get(self.auth, ()) if not getattr(self, name)]
        if missing:
            raise SettingsError(
                f"hive_metastore.auth is {self.auth}, but hive_metastore.{missing[0]} is not set",
                hint=f"set hive_metastore.{missing[0]}",
                key=f"hive_metastore.{missing[0]}",
            )
        for auth, names in _OF_ONE_AUTH.items():
            if self.auth != auth:
                self.refuse_unused(
                    names,
                    f"hive_metastore.auth is {self.auth}, which does not use it",
                    instead=f"set hive_metastore.auth = {auth}",
                    key="hive_metastore.auth",
                )
        if self.auth != "NONE" and self.transport == "framed":
            raise SettingsError(
                f"hive_metastore.transport is framed, but with auth {self.auth} the login has its own framing",
                hint="leave hive_metastore.transport out",
                key="hive_metastore.transport",
            )
        if self.tls_key_file and not self.tls_certificate_file:
            raise SettingsError(
                "hive_metastore.tls_key_file is set without its certificate",
                hint="set hive_metastore.tls_certificate_file",
                key="hive_metastore.tls_certificate_file",
            )
        if not self.tls:
            self.refuse_unused(
                ("tls_ca_file", "tls_certificate_file"),
                "hive_metastore.tls is not: the connection would not be encrypted",
                instead="set hive_metastore.tls = true",
                key="hive_metastore.tls",
            )


_NAME_IN_CATALOG = re.compile(r"[A-Za-z0-9_]{1,128}(\.[A-Za-z0-9_]{1,128})?")


@dataclass(frozen=True)
class CatalogSettings(Section):
    """The catalog in which engines find the table by its name; each commit updates it."""

    section: ClassVar[str] = "catalog"
    type: Literal["none", "hive_metastore", "glue"] = setting(
        "none", "Which catalog is told: a Hive metastore, AWS Glue's data catalog, or none"
    )
    table: str = setting(
        "", "The table's name there, such as sales.orders; sales alone takes the name that the table has itself"
    )
    uris: str = setting(
        "",
        "Metastores as Hive lists them (thrift://host:port, separated by commas); empty means hive_metastore.uris. The section "
        "hive_metastore says how to log in",
        in_repr=False,
    )
    timeout_s: float = setting(
        10.0, "How long telling the catalog may take after a commit; the next commit tells the rest", unit="s", at_least=0.1,
        at_most=3_600,
    )  # fmt: skip
    create_database: bool = setting(True, "Make the database when it is missing")
    s3_scheme: Literal["auto", "s3", "s3a"] = setting(
        "auto", "How the catalog spells paths on S3: auto is s3a in a metastore, which has Hadoop's client, and s3 in Glue"
    )
    region: str = setting("", "AWS region of Glue; empty means that of the environment or profile, as for the AWS tools")
    endpoint_url: str = setting("", "Endpoint of Glue to use instead of the region's, for VPC endpoints and for tests")
    catalog_id: str = setting("", "Account whose Glue catalog is used; empty means the account of the credentials")

    def check_together(self) -> None:
        if self.table and not _NAME_IN_CATALOG.fullmatch(self.table):
            raise SettingsError(
                f"catalog.table is {self.table[:300]!r}, which is not the name of a table in a catalog",
                hint="write database.table, in letters, digits and _, such as sales.orders",
                key="catalog.table",
            )
        if self.table and self.type == "none":
            raise SettingsError(
                f"catalog.table is {self.table}, but catalog.type names no catalog",
                hint="set catalog.type to hive_metastore or glue",
                key="catalog.type",
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
