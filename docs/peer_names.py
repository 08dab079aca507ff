"""The page for users of Delta and Hudi: what becomes of the names that they bring along."""

from __future__ import annotations

from collections.abc import Iterator

from lakelock.spark_plugin.arguments import ALIASES, INSTEAD
from lakelock.spark_plugin.source_option_names import READS, SPELLINGS, Spelling

INTRO = """# Names of Delta and Hudi

{note}

Options and methods of Delta and Hudi are taken where they mean the same here. Any other is an error before any work,
which says what to type instead; one error names all options that cannot be taken. An option that only tunes the other
engine changes no result: it is passed over, with one warning."""

OPTIONS = """## Options

Of `spark.read`, `df.write` and `df.writeStream` with `format("lakelock")`; those of reads also of
`table.read(options={...})`. The case of a name does not matter. Hudi's keys for locks and for writing
(`hoodie.write.lock.provider` and so on) are settings, as in [a properties
file](reference-settings.md#from-a-properties-file-of-java-hudi), also in `LakeTable.for_path(options={...})`; as an
option a key without effect is an error.

An append through `format("lakelock")` looks up no key, as Hudi's operation `insert`. With a record key by one of Hudi's
names (`hoodie.datasource.write.recordkey.field`, `hoodie.table.recordkey.fields`) and no operation, the operation is
Hudi's default, `upsert`. It and the others than `insert` need the driver: [after `register(spark)`](#calls-of-dfwrite)
`df.write` runs them, without it and in a stream they are an error. In the mode `overwrite` an upsert replaces the table
by one row for each key; `insert_overwrite` and `insert_overwrite_table` replace the same in every mode."""

TABLE = """What the table is like (`key`, `partition_by`, `order_by`, `name`, `hive_style`, `index`) is used when a write finds
no table and makes it. Where there is one, it must be true: otherwise the write is a `TableError` that names both
sides. Without `key` it is [a table without a key](concepts.md#tables-without-a-key)."""

WRITE_CALLS = """## Calls of `df.write`

Spark decides some calls before it asks a data source in Python. After `lakelock.spark_plugin.register(spark)`, which the
driver calls once, they are answered here. Writers of other formats get Spark's own calls as before, and
`lakelock.spark_plugin.unregister(spark)` undoes it."""

CALLS_OF_WRITERS = (
    (
        '`.mode("error")`, the default, and `"ignore"`',
        "look for the table before the write",
        "Spark's error, which names the other two modes",
    ),
    ('`.partitionBy("month")`', "is the option `partition_by`", "Spark's error about the partitioning"),
    (
        '`.partitionBy("month")` of `df.writeStream`',
        "is the option `partition_by`",
        "Spark forgets it: a stream makes a table only with the option `partition_by`, which may be empty; a table that is "
        "there records how it is partitioned",
    ),
    (
        "`hoodie.datasource.write.operation` other than `insert` and `bulk_insert`",
        "runs, as the method of `LakeTable`",
        "an error that says what to type",
    ),
    ('`df.writeStream.outputMode("update")`', "an error that names `upsert_batch`", "Spark's error"),
    ("`.bucketBy`, `.clusterBy`", "an error that says what to type", "Spark's error"),
    (
        '`.saveAsTable("t")`, `df.writeTo("t").using("lakelock")`, `df.writeStream.toTable("t")`',
        "an error that says what to type, before Spark's catalog gets the name",
        "fails in its first task, before it writes; Spark takes the name back, but not that of `toTable` (`DROP TABLE t`)",
    ),
    (
        "a temporary view `USING lakelock OPTIONS (path …)`: SELECT, `INSERT INTO`, `INSERT OVERWRITE`",
        "work; a view [shows the table as it is now](reference-sql.md#what-a-view-shows), a frame that is used again "
        "as its first query found it",
        "work; **a view that is read again, too, shows the table as its first query found it**; once the table has changed "
        "since the application first read it, `INSERT OVERWRITE` by its own rows is refused, in a cluster by any rows",
    ),
    (
        "`CREATE TABLE … USING lakelock`, with LOCATION or AS SELECT",
        "an error when the table is used; [`sql`](howto-change-rows.md#sql) refuses it before any work",
        "an error when the table is used",
    ),
)

METHODS = """## Methods

`condition` is taken for `where` of `update`, `what` of `delete` and `on` of `merge`, and `retentionHours` for
`keep_hours` of `vacuum`. `update` takes Delta's order of arguments, too: `table.update("id = 1", {"v": "v + 1"})`.
`table.alias("t").merge(df.alias("s"), "t.id = s.id")` works as in Delta."""

SQL = """## Statements

[`lakelock.spark_plugin.sql(spark, "…")`](howto-change-rows.md#sql) runs most of these statements as they are, by path or by the
name of a view, and hands all others to Spark. After `register(spark)` so does `spark.sql`; without it `spark.sql` answers with
Spark's own errors, because Python data sources of Spark have no SQL beyond SELECT and INSERT. Or type:"""

STATEMENTS = (
    ("`UPDATE`, `DELETE FROM`, `MERGE INTO`, `INSERT`", '`table.sql("…")`, with the same text'),
    ("``SELECT … FROM lakelock.`path` ``", '`table.read().createOrReplaceTempView("t")`, then `spark.sql("SELECT … FROM t")`'),
    ("`SELECT … TIMESTAMP AS OF`, `VERSION AS OF`", '`table.read(as_of="2026-11-20 12:00")`, in UTC, or an instant'),
    ("`DESCRIBE HISTORY`, `DESCRIBE DETAIL`", "`table.history()`, `table.detail()`"),
    ("`OPTIMIZE … ZORDER BY (a)`", '`table.optimize(sort_by="a").execute()`'),
    ("`VACUUM … RETAIN 24 HOURS`", "`table.vacuum(keep_hours=24)`"),
    ("`RESTORE TABLE … TO`", "`table.restore(as_of)`"),
    (
        "`CALL run_clean`, `run_clustering`, `create_savepoint`",
        "`table.vacuum()`, `table.optimize().execute()`, `table.upkeep.savepoint(name)`",
    ),
    ("`ALTER TABLE … ADD COLUMNS`", '`table.columns.add({"note": "string"})`'),
    ("`ALTER TABLE … ALTER COLUMN … TYPE`", '`table.columns.widen({"stock": "bigint"})`'),
    (
        "`ALTER TABLE … RENAME COLUMN`, `DROP COLUMN`",
        '`table.columns.rename({"price": "cost"})`, `table.columns.drop("note")`, which write the table again',
    ),
    ("`ALTER TABLE … ALTER COLUMN … FIRST`, `AFTER`", '`table.columns.reorder(["price"])`'),
    ("`PARTITIONED BY (days(ts))`, `GENERATED ALWAYS AS`", '`LakeTable.create(…, partition_by="days(ts)")`, or as an option'),
    ("`CREATE TABLE … USING lakelock`", "`LakeTable.create(spark, path, …)`: Spark's catalog keeps no path for such a table"),
    ("`df.write.saveAsTable`, `df.mergeInto`", "`df.write.save(path)`, `table.merge(df, on)`"),
)


def options(peer: str) -> Iterator[tuple[str, ...]]:
    """Name, what it is here, and what to type for what it is not, of one peer's options."""
    for spelling in SPELLINGS:
        if spelling.peer == peer:
            yield f"`{spelling.name}`", _here(spelling), _sentence(spelling.instead)


def _here(spelling: Spelling) -> str:
    if spelling.tunes:
        return "passed over" + (" by reads, refused by writes" if set(spelling.tunes) == set(READS) else "")
    if spelling.ours:
        return f"`{spelling.ours}`" + (f", {spelling.only_text}" if spelling.only_text else "")
    return ", ".join(f"`{value}`" for value in spelling.same) + " (what happens anyway)" if spelling.same else "refused"


def methods() -> Iterator[tuple[str, ...]]:
    """Delta's names, and what to type."""
    yield from ((f"`{name}`", f"works: it is `{ours}`") for name, ours in ALIASES.items())
    yield from ((f"`{name}`", _sentence(instead)) for name, instead in INSTEAD.items())


def _sentence(text: str) -> str:
    text = text.replace("*", "\\*")
    return f"{text[:1].upper()}{text[1:]}" if text[:1].islower() and not text.startswith("table.") else text
