"""What the reference pages say beyond what the code says itself: one text for each thing that has a name there.

`generate.py` fails when a name has no text here, so a new error, event, exit code or provider cannot stay undocumented. The
texts of the conflict rules are in `lakelock.conflict`, because errors and the command line say them, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakelock import errors as e
from lakelock.cli.output import Exit
from lakelock.events import EventKind


@dataclass(frozen=True)
class Advice:
    """For one error: what leads to it, and what to do, each as sentences."""

    causes: str
    what_to_do: str


ADVICE: dict[type[e.LakelockError], Advice] = {
    e.LakelockError: Advice(
        "It is never raised itself.",
        "Catch it where you want every error of lakelock and no others.",
    ),
    e.InputError: Advice(
        "The call cannot be right: a table without a key, a streaming frame given to `upsert`, a condition with `rand()`, a "
        "Spark Connect session.",
        "Correct the call. Nothing was changed.",
    ),
    e.SettingsError: Advice(
        "A misspelt key, a value out of bounds, values that contradict each other, an unknown lock provider; a "
        "session without Spark's connector for the storage that the table is on.",
        "The message names the key, where the value came from, and the nearest known key: [settings](reference-settings.md). "
        "For a connector it names the jars and Spark's settings.",
    ),
    e.SchemaError: Advice(
        "A key, partition or ordering column is missing or null; a column has another type; a column is new and "
        "`write.merge_schema` is off; the rows of an upsert lack columns of the table; an update or a merge sets a key or "
        "partition column.",
        "Cast or add the column. For new columns and wider types pass `merge_schema=True`: [change "
        "columns](howto-change-columns.md). To update only the columns that the rows "
        'have, pass `missing_columns="keep"`: [rows that lack columns](concepts.md#rows-that-lack-columns).',
    ),
    e.DuplicateKeyError: Advice(
        "One upsert holds a key twice, and `order_by` does not say which row is newer (or the table has no `order_by`). "
        "Or several source rows of a merge would change one stored row, or insert one key, or a merge whose condition is not "
        "the key would insert a key that the table has.",
        'Remove the duplicates before the upsert, give the table an `order_by`, or pass `duplicates="any"`. For a merge leave '
        "one source row for each row of the table, and equate the key in its condition; `upsert` replaces rows of a key, and "
        "`insert` stores them beside the others.",
    ),
    e.TableError: Advice(
        "There is no table at the path, or one already, or the table must not be read or written. A table that another engine "
        "wrote is the usual case.",
        "The hint names the setting of the other writer. See [tables of Java Hudi](howto-hudi.md).",
    ),
    e.CorruptTableError: Advice(
        "A timeline file, decision, marker or property file is damaged, or files were edited or removed under `.hoodie/`.",
        "`lakelock doctor PATH` names the file. Restore it from a backup or an older object version. Do not delete decisions.",
    ),
    e.StorageError: Advice(
        "Storage refused: the disk is full, the file system is read-only, there is no permission, the bucket does not exist.",
        "Remove the cause, then run the operation again. The transaction is not in the table.",
    ),
    e.StorageUnavailable: Advice(
        "Storage gave no definite answer: time-outs, dropped connections, 5xx.",
        "Run the operation again when storage answers. lakelock does not run it again by itself.",
    ),
    e.StorageUnsafe: Advice(
        "The service accepts a second create of one object, or overwrites a changed one, although it is told not to. Some "
        "S3-compatible services do this silently.",
        "Use storage that honours conditional writes. There is no setting to go on without them.",
    ),
    e.SnapshotTooOld: Advice(
        "The table has no file index that fits, so its files were listed. That took longer than a cleaner's `clean.readers_s`, "
        "and the cleaner deleted some of them.",
        "Read again; lakelock has looked three times itself, except in a transaction. If it happens often, raise "
        "`clean.readers_s` for the cleaner.",
    ),
    e.LockError: Advice(
        "An operator's `locks break` does not fit the lock as it is now: another grant has followed, or the lease still runs.",
        "Look again with `lakelock locks ls PATH`. See [a stuck lock](howto-stuck-lock.md).",
    ),
    e.LockTimeout: Advice(
        "Another writer held the table's lock for longer than `lock.wait_s`. It is named.",
        "Run the operation again. If it happens often, raise `lock.wait_s`; if the lock is stuck, see "
        "[a stuck lock](howto-stuck-lock.md). lakelock does not run it again by itself.",
    ),
    e.LeaseLost: Advice(
        "This process was paused for longer than `lock.lease_s`, or the lock service could not be reached, or an operator "
        "broke the lock. The reason is in `error.details`.",
        "Run the operation again. A commit first tries a few times by itself. If it persists, look for long pauses "
        "(memory, overloaded machine) or raise `lock.lease_s`.",
    ),
    e.ProviderUnavailable: Advice(
        "The lock service cannot be reached, or is too busy to answer in time.",
        "The message names its address. `lakelock doctor PATH` tries the lock once.",
    ),
    e.ProviderRefused: Advice(
        "The lock service does not accept the credentials, does not permit what the lock needs or is set up so that no lock is "
        "safe in it; or its Python driver is not installed. The error comes at once, not after `lock.wait_s`.",
        "Do what the hint says: the message holds the service's own words. `lakelock doctor PATH` tries the lock once.",
    ),
    e.ProviderMismatch: Advice(
        "The table's first lakelock writer recorded which lock guards it, and this writer is configured for another.",
        "Set `lock.provider` to the recorded one. To move a table to another lock: stop its writers, run "
        "`lakelock locks migrate` with their present settings, and start them with the new one.",
    ),
    e.SecondWriter: Advice(
        "`concurrency.mode` is SINGLE_WRITER (or `hive.support.concurrency` is false), and another transaction is pending "
        "whose writer is alive, or was a moment ago.",
        "Set `concurrency.mode` to OPTIMISTIC in all writers. A writer that was killed counts as alive until its heartbeat is "
        "too old, 120 seconds by default: run it again after that. Nothing was written.",
    ),
    e.TransactionError: Advice(
        "Others were faster in each of many attempts (to begin, to take a decision number, to look at what changed).",
        "Run again when fewer writers commit. If it persists, `lakelock doctor PATH` checks the lock and the clock.",
    ),
    e.ConflictError: Advice(
        "After this transaction had begun, another writer committed a change that it conflicts with. `error.conflict` has the "
        "rule, both sides, and the first five things that both touch.",
        "`error.conflict.retry_helps` says whether running again can succeed. Writes of `LakeTable` were already run again "
        "`retry.attempts` times. See the rules below.",
    ),
    e.EarlyConflictError: Advice(
        "The same, found before the data was written: another live writer is rewriting one of the same file groups, or has "
        "just committed it.",
        "As above. Split long backfills that hold many file groups into smaller ones, one partition at a time.",
    ),
    e.ConcurrentAppendException: Advice(
        "In the profile `delta`: another added files that may hold rows which this transaction read, or should have read: a "
        "condition, the keys of an upsert, a partition that it overwrites.",
        'Run again. Narrow the condition to partitions; with `concurrency.isolation = "WriteSerializable"` blind appends do '
        "not count.",
    ),
    e.ConcurrentDeleteReadException: Advice(
        "In the profile `delta`: another rewrote or replaced a file that this transaction read, as an update, a delete or a "
        "merge does.",
        "Run again. Let writers work in different partitions, and name these in their conditions.",
    ),
    e.ConcurrentDeleteDeleteException: Advice(
        "In the profile `delta`: another rewrote or replaced file groups that this transaction also replaces, without having "
        "read their rows: two overwrites, or an overwrite and an `optimize`.",
        "Run again.",
    ),
    e.ConcurrentTransactionException: Advice(
        "In the profile `delta`: another run of the same application has applied this version already.",
        "Nothing is to be done: the batch is in the table. Look for a second query that uses the same application id.",
    ),
    e.MetadataChangedException: Advice(
        "In the profile `delta`: another writer changed the table's columns after this transaction had begun.",
        "Run again: the operation then sees the new columns.",
    ),
    e.ProtocolChangedException: Advice(
        "In the profile `delta`: `hoodie.properties` changed in something that matters to a writer.",
        "Run again, if the table may still be written.",
    ),
    e.RolledBackError: Advice(
        "Others took this writer for dead, because its heartbeat was older than `heartbeat.interval_s` x "
        "`heartbeat.tolerable_misses`; or a Java Hudi writer with the EAGER policy rolled it back; or storage gave no answer "
        "to the commit and it was withdrawn.",
        "Run the operation again. Where long pauses are normal, raise `heartbeat.tolerable_misses`. In Java writers set "
        "`hoodie.clean.failed.writes.policy=LAZY`.",
    ),
    e.TransactionStateError: Advice(
        "A transaction was used after it had ended, or in the wrong order.",
        "It is a bug in the program: begin a new transaction.",
    ),
    e.CommitOutcomeUnknown: Advice(
        "Storage stopped answering at the moment of the decision. The commit may or may not be in the table. Nothing was "
        "cleaned up.",
        "Do not run the operation again yet. Ask `lakelock commits show PATH INSTANT` until it says committed (exit code 0) or "
        "rejected (4). Only then go on, or run it again. Exit code 1 is no answer: there is no trace of such an instant in "
        "this table, so compare the path and the instant first.",
    ),
    e.CommitUndone: Advice(
        "Another engine without the lock saw the transaction pending and rolled it back while it was committed: it is on the "
        "timeline, and files of it are gone. Java Hudi's defaults (`SINGLE_WRITER`, `EAGER`) do that.",
        "Run `lakelock repair PATH`, or `table.upkeep.repair()`: it takes the whole commit out, so that the table can be read "
        "again. Then run the operation again. "
        "[What the other engine lacks](howto-hudi.md#java-jobs-that-stay).",
    ),
    e.TransactionTorn: Advice(
        "A transaction over several tables was committed, and another engine rolled back its instant in one of them before it "
        "was visible there. This needs `transaction.allow_foreign`, a writer that dies or loses its lock at that moment, and a "
        "Java writer whose rollback does not wait for the lock.",
        "Its details name the tables where it is visible and those where it is void. Write what is missing again, or undo the "
        "rest with `restore`. In the Java writers set `hoodie.clean.failed.writes.policy=LAZY`.",
    ),
    e.CatalogError: Advice(
        "The Hive metastore or Glue did not answer in `catalog.timeout_s`, refused a change, or its client is not installed. "
        "Only `register` and `for_name` raise it: after a commit it is an alert, and the commit stands.",
        "Nothing has to be done about a commit: the next one tells the catalog everything that it lacks. "
        "`lakelock register PATH` does it now. See [names in a catalog](howto-names.md).",
    ),
    e.WriteFailed: Advice(
        "A Spark task failed, an executor lacks a package, or something removed marker files while the write ran.",
        "The cause is in the first line; the rest is in Spark's log. The transaction was rolled back.",
    ),
    e.SparkGone: Advice(
        "The driver's JVM ended or was killed, or `spark.stop()` was called, before a call or while a write ran. The "
        "message says what became of the write: storage does not need the JVM, so lakelock rolls it back at once.",
        "Start a new Spark session (if the JVM died, in a new Python process), open the table in it, and run the "
        "operation again.",
    ),
    e.UnsupportedSpark: Advice(
        "`lakelock.spark_plugin` was imported into a Python without PySpark, or with one older than 3.5; or a PySpark met a "
        "JVM with a Spark of another generation; or `register` or `LakelockDataSource` was imported with PySpark 3.5, which "
        "has no data sources in Python.",
        "`pip install 'lakelock[spark]'` in the Python of the driver and of every worker, for a cluster that runs Spark 3.5 or "
        "newer. With 3.5 use `LakeTable`.",
    ),
}

EVENTS: dict[EventKind, str] = {
    EventKind.BEGAN: "a transaction has its instant and its baseline",
    EventKind.WRITING: "the first data file may be written now",
    EventKind.CLAIMED: "file groups are claimed for rewriting",
    EventKind.EARLY_CONFLICT: "a conflict was found before the data was written; says with whom",
    EventKind.CONFLICT: "a conflict was found at commit; says with whom",
    EventKind.WAITING_FOR_LOCK: "once a second while waiting; says for whom",
    EventKind.LOCKED: "the table's lock is held; says after how long",
    EventKind.LOCK_TIMED_OUT: "the table's lock was not to be had within `lock.wait_s`; says who holds it",
    EventKind.SLOW_READS: "this Spark's internal classes are not the known ones: reads list the folders again, and do not "
    "prune partitions; once per session's JVM, in the log only",
    EventKind.ZONE_RECORDED: "the first write to a table of Java noted there that its instants are in UTC, as they prove to be",
    EventKind.LEASE_LOST: "a held lock was lost; says why",
    EventKind.PREPARED: "a transaction over several tables has its prepare in the table's log; its outcome decides about it",
    EventKind.DECIDED: "the decision is made: the transaction is committed, and will be visible",
    EventKind.PUBLISHED: "the transaction is visible to every reader",
    EventKind.COMMITTED: "done; says decision, rows, files, bytes, how long it took, and what it cost under the lock",
    EventKind.REJECTED: "the transaction is withdrawn; says why",
    EventKind.OUTCOME_UNKNOWN: "storage does not say whether the transaction is committed",
    EventKind.RETRY: "a rejected operation is run again",
    EventKind.FINISHED_FOR_ANOTHER: "a commit was published for a writer that had decided it and died",
    EventKind.ROLLED_BACK: "the files of a withdrawn or dead transaction are removed",
    EventKind.COLLECTED: "old decisions were deleted",
    EventKind.ALERT: "something went wrong that does not change the outcome, such as files that could not be removed yet",
    EventKind.DATA_LOCKED: "the data locks of an operation are held; says which, and after how long",
    EventKind.CHECKPOINTED: "a checkpoint of the file index was written; carries its number",
    EventKind.CLEANED: "old files that are not needed any more were deleted; says how many",
    EventKind.ARCHIVED: "old instants were moved from the timeline to its history; says how many",
    EventKind.RESERVED: "a write that has lost too often has reserved these `places`; `ahead` is what it waits for first",
    EventKind.WAITING_FOR_RESERVATION: "a transaction waits for `holder`, whose reservation is older",
    EventKind.NAMED: "the catalog was told of the table; says which name, up to which commit, and how many partitions changed",
    EventKind.PHASE_DONE: "a long part of the work on Spark is over; says which phase, what it did, and how long it took",
    EventKind.SET_ASIDE: "a rejected attempt keeps its files for the next; counts file groups that are kept and that collided",
}

EXITS: dict[Exit, str] = {
    Exit.OK: "done; for `commits show`: this instant is committed",
    Exit.ERROR: "an error of the table, the storage or the lock service; for `doctor`: a check failed (warnings end with 0); "
    "for `commits show`: there is no trace of such an instant",
    Exit.USAGE: "the command line or a setting is wrong; nothing was done",
    Exit.LOCK_HELD: "another writer holds the lock",
    Exit.CONFLICT: "a conflict; for `commits show`: this instant was rejected",
    Exit.OUTCOME_UNKNOWN: "not known; for `commits show`: this instant is still pending",
}

LOSSES: dict[str, str] = {
    "expired": "it was not renewed in time, usually because the process was paused",
    "taken-over": "another writer holds the lock now, or an operator broke it",
    "unreachable": "the lock service did not answer before the lease was over",
    "session-lost": "the connection that the lock belongs to is gone, or the process was forked",
    "released": "it was given back; no loss",
}

STRENGTHS: dict[str, str] = {
    "exclusion": "which writers are kept apart, and when two could still hold the lock",
    "token": "the number that grows with every grant and distinguishes an old holder from a new one",
    "crash_release": "when the lock of a dead holder is free again",
    "failover": "what happens to a held lock when the service's leader changes",
    "clock_assumption": "what must be true of the clocks",
    "fairness": "who gets the lock next",
    "cost": "what one lock and unlock costs",
}

JAVA_PEERS: dict[str, str] = {
    "storage": "`StorageBasedLockProvider`: on S3 and GCS, since Hudi 1.2 also on Azure; on no other storage",
    "memory": "none: no other process can use it",
    "dynamodb": "`DynamoDBBasedLockProvider`, with the same table, partition key and region",
    "redis": "none: Java Hudi has no lock in Redis, so keep Java writers off the table",
    "zookeeper": "`ZookeeperBasedLockProvider`, at the path `<base_path>/<lock_key>`, and "
    "`ZookeeperBasedImplicitBasePathLockProvider`, with `?implicit=true`. The chroot of Java's `url` comes before both",
    "hive_metastore": "`HiveMetastoreBasedLockProvider` with the same URIs, database and table, spelt exactly alike",
}

SECTION_NOTES: dict[str, str] = {
    "concurrency": "When to use which: [concepts](concepts.md#data-locks). `SINGLE_WRITER` is also what "
    "`hive.support.concurrency` = `false` means; a second live writer is then an error when a write begins, "
    "and an alert when it commits.",
    "lock": "The providers are described in [lock providers](reference-providers.md).",
    "heartbeat": "A writer is dead when its heartbeat is older than `interval_s` x `tolerable_misses`: 120 s by default. A "
    "shorter limit frees what a dead writer left sooner, and costs a paused one its work sooner.",
    "dynamodb": 'For `lock.provider = "dynamodb://TABLE/PARTITION-KEY"`. Without a partition key, the key is the '
    "name of the guarded table, as in Java Hudi: tables of one name then have one lock.",
    "retry": "For which operations are run again, see [concepts](concepts.md#what-is-run-again-and-what-never-is).",
    "hive_metastore": "`lock.wait_s` bounds rounds, delays and repetitions as well. Kerberos needs "
    "`pip install 'lakelock[kerberos]'`, which compiles code: gcc and Debian's `libkrb5-dev` must be installed.",
}


PEERS = (
    (
        "INSERT", "INSERT", "no", "no", "no", "no",
        "No. With an upsert in place of the second insert, `strict` finds a key that both bring, which none of the four finds.",
    ),
    (
        "UPDATE, DELETE, MERGE", "INSERT", "Serializable: the same partition. WriteSerializable: no", "no",
        "serializable: files that the condition may select. snapshot: no", "no",
        "`strict` looks for rows that match; `delta` is Delta's answer, narrowed by column ranges.",
    ),
    (
        "INSERT", "UPDATE, DELETE, MERGE", "no, if blind", "no", "no", "no", "No.",
    ),
    (
        "UPDATE, DELETE, MERGE", "UPDATE, DELETE, MERGE", "files that were read", "the same partition",
        "the same files; serializable: also files that the condition may select", "the same file group",
        "`strict`: the same file group, or rows that match; `hive` and `hudi` are Hive's and Hudi's answers.",
    ),
    (
        "overwrite of a partition", "INSERT", "Serializable: the same partition. WriteSerializable: no",
        "excluded by a lock", "only with validation asked for", "no",
        "The same partition, but in `hudi` and with WriteSerializable.",
    ),
    (
        "OPTIMIZE", "INSERT", "no", "no (compaction)", "no", "no", "No.",
    ),
    (
        "OPTIMIZE", "UPDATE, DELETE, MERGE", "the same files; the second to commit loses", "excluded by a lock",
        "the same files; the second to commit loses", "the same file group; a setting says who yields",
        "The same file group; OPTIMIZE always yields.",
    ),
)  # fmt: skip
"""Operation, operation, the answers of Delta, Hive 3, Iceberg and Hudi, and how lakelock differs."""
