"""The text around the tables of the reference pages, as Markdown."""

from __future__ import annotations

NOTE = (
    "<!-- Written by docs/generate.py from the code. Do not edit: change the code or docs/reference_texts.py, and run it. -->"
)

SETTINGS_INTRO = f"""# Settings

{NOTE}

A value comes from the first of these that has it: option of the call, Spark conf (`spark.lakelock.<setting>`), file,
default. The file is TOML, or the properties file of a Java Hudi writer as it is. It is named by the argument `config`,
else the option `config`, else the Spark conf `spark.lakelock.config`. `lakelock config explain PATH` shows each value in
effect and where it came from.

* In options a setting may be written `lock.wait_s` or `lock_wait_s`, in any case. In TOML it is `wait_s` under `[lock]`.
* Hudi's keys (`hoodie.…`) may be options, too, and mean what they mean in a file. As an option one without effect is an error.
* An unknown setting is an error that names the nearest known one. A value out of bounds is an error, too. Both come
  before any work.
* Secrets are never shown.
* `format("lakelock")` gets options and, through `lakelock.spark_plugin.register(spark)`, the session's confs too: Spark does
  not pass them to data sources that are written in Python. If a conf has not reached it, or has changed since, its first
  task fails before it writes anything; a read checks only `storage.*`, `listing.*` and `config`. After a
  change, call `register` again.

`configs/default.toml` has every setting with its default; `configs/storage.toml` is a short example."""

SETTINGS_OPTIONS = """## lock.options

Options of the lock service's client, by the names that its driver has for them: of redis-py's connections, of kazoo's
`KazooClient`, of boto3's client and botocore's `Config`. lakelock passes them on: `lock.options.ssl_ca_certs`,
`lock.options.verify_certs`, `lock.options.proxies`. A name that the driver does not have is an error before any work,
with the name that was probably meant. The options below are read by lakelock itself. An option of a mapping has a dot:
`lock.options.sasl_options.mechanism`. Options go with the lock that the same source names: where a Spark conf names
another lock than the file does, those in the file are left out. The locks `storage:`, `memory:` and `hive_metastore:`
read none; the section `hive_metastore` says how a metastore is reached."""

SETTINGS_STORAGE = """## storage

Everything under `[storage]`, or as an option `storage.<name>`, is passed to the object store under the names that obstore uses:
`aws_region`, `aws_endpoint`, `google_service_account`, `azure_storage_account_name`, and so on. Whatever is left out comes
from the environment.

For tables on HDFS the names are `namenodes`, `user`, `delegation_token`, `ca_certificate` and `timeout_s`: [how HDFS is
reached](where-it-runs.md#how-hdfs-is-reached)."""

HUDI_INTRO = """## From a properties file of Java Hudi

Name the file that your Java writers use (`.properties` or `.conf`). These keys are translated:"""

HUDI_REST = """Every other key that begins with `hoodie.` has no effect here, and each is named in a warning. A lock
that other processes cannot use is an error, unless something stronger sets `lock.provider`. A file that does not
mention early conflict detection leaves it on here; in Java it is off."""

HIVE_INTRO = """## Keys of Hive

As an option, as a Spark conf (`spark.lakelock.hive...`), in TOML or in a properties file:"""

HIVE_REST = """`hive.support.concurrency` = `true` changes nothing: locking is on. `hive.lock.sleep.between.retries` takes
Hive's units (`60`, `60s`, `1500ms`)."""

ERRORS_INTRO = f"""# Errors

{NOTE}

Every error has a `message`, a `hint` (the next step), a stable `code`, `retryable`, and `details` with plain values.
`error.as_dict()` gives all of it for logs. Errors can be pickled. **An error never contradicts the table:** after any
error but [CommitOutcomeUnknown](#commitoutcomeunknown) the transaction is not in it, and its files are removed or will
be by the next writer.

```python
from lakelock import CommitOutcomeUnknown, ConflictError, InputError, LakelockError

try:
    table.upsert(corrections)
except ConflictError as error:          # rejected, also after the automatic retries
    print(error.conflict.rule, error.conflict.other.writer, error.conflict.overlap)
except CommitOutcomeUnknown as error:   # ask before running it again
    print(error.details["instant"], error.hint)
except InputError as error:             # the call is wrong; nothing was begun
    raise
except LakelockError as error:
    if not error.retryable:
        raise
    table.upsert(corrections)           # once more; it is better to let your scheduler do it
```"""

ERRORS_NOTES = """"Again?" says whether the same call may succeed later. It does not mean that lakelock runs it again
automatically: for that, see [concepts](concepts.md#what-is-run-again-and-what-never-is). "Exit" is the exit code of the
command line."""

RULES_INTRO = """## Conflict rules

A rule rejects my transaction if another one, which committed after mine had begun, did what the second column says. In
`error.conflict.rule` and in logs a rule has the name in the first column. The profile is the setting
`concurrency.profile`; rules with "all" are checked in every profile. A rule that says something else in the profile `delta`
has a second row."""

REMEDIES_INTRO = """`error.explanation` tells the same of one conflict: its rule, when it was found, over what, what helps.
[Read a conflict](howto-conflicts.md) goes through an example. "Claim" is before the data is
written, unless `concurrency.early_conflict_detection` is off. The other conflicts are found at the commit, or at the claim
if the other had committed by then."""

PARTICULAR_NOTE = """Where a read of the whole table caused the conflict, the first advice is:

> {scope}

And where only the level `Serializable` of the profile `delta` makes it a conflict:

> {weaker}"""

CONFLICTS_INTRO = f"""# What conflicts with what

{NOTE}

A transaction is judged when it commits, against what others committed since it began. The profile is the setting
`concurrency.profile`; `delta` has two levels, by the setting `concurrency.isolation`.
[Choose an isolation level](howto-conflicts.md#choose-a-level) says which is for whom. A cell says how much two operations must
have in common to collide; the least is different partitions, which never collide unless a condition spans both.

UPDATE stands for an update and a delete by a condition, and for a transaction that reads by one. UPSERT also stands for a
delete by key, and for a merge whose `on` equates the key and partition columns; MERGE is any other
[merge](howto-change-rows.md#merge). OVERWRITE replaces partitions. OPTIMIZE joins small files and changes no row."""

CONFLICTS_NOTES = """"The same partition" in the profile `delta` means: files of it whose recorded column ranges do not rule
out that they hold a row that was read. In the profiles `strict` and `delta`, keys that an upsert brings are rows that it
reads. `strict` looks into the other's files for them, `delta` does not. OPTIMIZE yields to a writer that rewrites one of its
file groups, even if it came first.

In a merge-on-read table "the same file group" becomes "a row that both change" in the profiles `strict` and `hudi`, where
one of the two has appended a log file to the group instead of rewriting it:
[which writers collide](howto-merge-on-read.md#which-writers-collide).

All profiles apply a version of an application once, and none lets two transactions rewrite one file group.
`lakelock conflicts explain` says why a transaction of yours was rejected ([read a conflict](howto-conflicts.md)).

## In a table with buckets

An INSERT rewrites the file groups of its buckets, as an UPSERT does, and an UPSERT reads the file groups of its buckets and no
others. So these pairs have another answer. To make the first file group of one bucket counts as the same file group. A delete
or merge by key is judged as in a table without buckets."""

CONFLICTS_OF_OTHERS = "## What other systems answer"

LOSSES_INTRO = """## Why a lease was lost

`LeaseLost.details["reason"]`, and the fact `reason` of the event `lease-lost`:"""

EXITS_INTRO = """## Exit codes of `lakelock`

With `--json` the result goes to stdout as JSON, an error to stderr as `{"error": {...}}`, and the exit code is the same."""

EVENTS_INTRO = """## Events

Each is one line in the logger `lakelock`, with its facts as extra fields `lakelock_<name>`. A program can listen, too:
`LakeTable.for_path(..., listeners=[function])`. A listener that raises is reported and never fails a write."""

PROVIDERS_INTRO = f"""# Lock providers

{NOTE}

A table has one lock. A writer holds it for milliseconds while it validates and publishes. The setting `lock.provider`
names it by one URI. The first writer records it in the table, and a writer that names another one is refused
([ProviderMismatch](reference-errors.md#providermismatch)).

**Between lakelock writers the lock is not what keeps the table right.** The decision log does that, even when a lease
runs out, a process sleeps through it, or a broken provider grants everybody. The lock makes commits cheap and orderly,
and it keeps Java Hudi writers apart from lakelock's: with a Java writer in the mix everything rests on it.

## Which one

| you have | use |
|---|---|
| the table on S3, Google Cloud Storage, Azure, HDFS, or a POSIX file system | `storage:` (the default; no server) |
| Java Hudi writers on the same table on S3 or GCS | `storage:`, and `StorageBasedLockProvider` in Java |
| AWS, or Java Hudi writers that lock by DynamoDB | `dynamodb:`, and `DynamoDBBasedLockProvider` in Java |
| Redis or Valkey already, and no Java writers | `redis:`, `rediss:` (TLS), `redis+sentinel:`, `redis+cluster:` |
| a ZooKeeper already, or Java Hudi writers that use one | `zookeeper://host:2181/base/key`, fair and without polling |
| a Hive metastore, with or without Java Hudi writers | `hive_metastore://host:9083/database/table` |
| one process that alone writes, ever | `concurrency.mode = "SINGLE_WRITER"`: no lock is taken |
| threads of one program, in a test | `memory:` |

## What each one promises

As each provider declares it in its code:"""

MANY_TABLES = """## One configuration for many tables

Tables that have the same lock wait for each other: for each other's commits, which take milliseconds, and for each other's data
locks on partitions of the same name, which are kept for whole writes. So a file that several tables share should name a lock
that depends on the table:

| `lock.provider` | which tables have one lock |
|---|---|
| `storage:`, `redis://host:6379/0`, `hive_metastore://host:9083` | none: each table has a lock of its own, by its path |
| `zookeeper://host:2181/base?key=table`, `dynamodb://TABLE` | tables of one name (`hoodie.table.name`), as in Java Hudi without a lock key. Where `prod/flights` and `dev/flights` are to be apart, give them another base path or DynamoDB table |
| `zookeeper://host:2181?implicit=true`, `dynamodb://TABLE?implicit=true` | none: by the path, as Java's implicit providers derive it |
| `zookeeper://host:2181/base/key`, `dynamodb://TABLE/KEY`, `redis://host:6379/0?key=name`, `hive_metastore://host:9083/database/table` | all tables with this setting |

`lakelock doctor PATH` warns of a lock that does not depend on the table, unless it bears the name of the table or of its folder. To give
a table another lock, use `lakelock locks migrate`: [a stuck lock](howto-stuck-lock.md).

Each open table has connections of its own to its lock service, and in ZooKeeper threads as well. A process that lives long and opens
many tables closes each of them:

```python
with LakeTable.for_path(spark, path) as table:  # or table.close()
    table.upsert(corrections)
```

A table that is no longer referred to is closed when Python collects it, which may be late. A ZooKeeper server lets in 60 connections
from one address by default (`maxClientCnxns`), and hangs up on the next one without a word; raise it where more tables are open at once
on one machine."""  # noqa: E501 - rows of a table

JAVA_INTRO = "## Together with Java Hudi"

JAVA_REST = """A lock that Java and lakelock share needs equal settings on both sides: see
[tables of Java Hudi](howto-hudi.md)."""

DATA_LOCKS = """## Data locks

With `concurrency.mode = "PESSIMISTIC"` a write also takes shared and exclusive locks on the partitions that it touches, as
Hive does, and keeps them until it ends. Whatever `lock.provider` is, they lie next to the table, in one document
(`.hoodie/.lakelock/data_locks`) that is replaced on a condition, so they do not disturb the commit lock. A request is granted
as a whole, in order of arrival: it also waits for earlier waiters that conflict with it. To take it, to renew it and to give
it back are two requests to the storage each, however many partitions it names; a waiter looks every `data_locks.sleep_s` or
sooner. Settings: [data_locks](reference-settings.md#data_locks).

**When a holder dies**, a waiter removes its entry after seeing it unchanged for one lease; no clock is compared across
machines. So a wait (`data_locks.attempts` x `data_locks.sleep_s`) that is shorter never gets past it. A holder that comes back
learns of it at its next renewal."""

PROVIDERS_REST = """## A provider of your own

A package adds one through the entry point group `lakelock.lock_providers`: the name is the scheme of the URI, the value
a callable that takes a `lakelock.providers.Opening` and returns a `lakelock.providers.LockProvider`.

```toml
[project.entry-points."lakelock.lock_providers"]
etcd = "our_package.etcd_lock:EtcdLockProvider"
```

[Write a lock provider](howto-write-a-lock-provider.md) has two examples, and the suite of tests that lakelock's own
providers pass: [what it shows of each](lock-matrix.md)."""

ARCHITECTURE_INTRO = f"""# Where things are

{NOTE}

Every folder is a package ([ADR 1](adr/0001-package-map.md)). An arrow points from a package to one that it imports; if a
longer path implies it, the direct arrow is left out. All arrows point down, and the import linter keeps them so
(`make layers`)."""

ARCHITECTURE_PACKAGES = """## Packages"""

ARCHITECTURE_MODULES = """## Modules

Each module is one thing. Its first sentence says which."""

ARCHITECTURE_WALK = """## A walk through one write

`LakeTable.upsert` (`spark_plugin/table_writes.py`) makes a `WriteRequest` (`occ/request.py`) and hands the write to
`with_retries` (`occ/retry.py`), which begins a transaction (`occ/coordinator.py`, `occ/begin.py`) for each
attempt.
`spark_plugin/changing.py` looks the keys up on the executors
(`spark_plugin/lookup_stages.py`), claims the file groups that hold them
(`occ/claims.py`, `markers/claims.py`) and rewrites them (`spark_plugin/change_stages.py`,
`engine/file_tasks.py`, `table/rewriting.py`), each file after its marker (`markers/data_files.py`). `Transaction.commit`
(`occ/transaction.py`) compares markers with write statistics and enters the critical section (`occ/commit.py`): what
others committed meanwhile (`occ/history.py`) is judged by the rules of the profile
(`occ/rules.py`), the commit takes the next number of the decision log (`occ/log.py`), which is the
commit point, and is published in Hudi's timeline (`occ/publish.py`)."""
