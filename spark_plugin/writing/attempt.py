"""One attempt of a write by Spark: the transaction, the session, and what the write has produced so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelock.clock import Runtime
from lakelock.occ.committed import Phase
from lakelock.occ.transaction import Transaction
from lakelock.occ.write_context import WriteContext
from lakelock.settings import MissingColumns, WriteSettings
from lakelock.spark_plugin.conditions import Condition
from lakelock.spark_plugin.frames import KeptFrames, arrow_schema, parallelism, spark_schema
from lakelock.spark_plugin.generated_columns import with_generated
from lakelock.spark_plugin.reading import read_files
from lakelock.spark_plugin.session.job_group import job_group
from lakelock.spark_plugin.session.progress import Step, progress_line
from lakelock.spark_plugin.writing.looked_up_keys import rows_changed
from lakelock.spark_plugin.writing.memory import Memory
from lakelock.spark_plugin.writing.reports import REPORT, received
from lakelock.storage import Storage
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.index import bucket_of_group
from lakelock.table.partitions import PartitionValues
from lakelock.table.properties import TableProperties
from lakelock.table.pruning import Pruning
from lakelock.table.rows import missing_since, spelled
from lakelock.table.schema import TableSchema, check_write, require_columns
from lakelock.table.snapshot import DataFile


@dataclass(frozen=True)
class Written:
    """What a write has stored, to be committed or removed. `schema` is the table's schema after it."""

    stats: tuple[WriteStat, ...] = ()
    schema: TableSchema | None = None
    replaced: Mapping[str, tuple[str, ...]] | None = None

    def __add__(self, other: Written) -> Written:
        replaced: dict[str, tuple[str, ...]] = dict(self.replaced or {})
        for partition, ids in (other.replaced or {}).items():
            replaced[partition] = tuple(sorted({*replaced.get(partition, ()), *ids}))
        none = self.replaced is None and other.replaced is None
        return Written(self.stats + other.stats, other.schema or self.schema, None if none else replaced)


@dataclass(frozen=True)
class Attempt:
    """A transaction, and everything that Spark needs to write for it. `root` is the table's path as Spark knows it.

    `known` tells the columns that the table's handle can know. `memory` is that of the call, whose attempts share it.
    """

    spark: SparkSession
    tx: Transaction
    storage: Storage
    root: str
    runtime: Runtime
    settings: WriteSettings
    known: Callable[[Transaction], Iterable[pa.Schema]]
    earlier: Written = field(default_factory=Written)
    kept: KeptFrames = field(default_factory=KeptFrames)
    memory: Memory = field(default_factory=Memory)

    @property
    def properties(self) -> TableProperties:
        return self.tx.baseline.properties

    @property
    def schema(self) -> TableSchema:
        """The table's schema as this write finds it, with what earlier writes of the transaction added."""
        return self.earlier.schema or self.tx.schema

    def context(self, schema: TableSchema | None = None) -> WriteContext:
        """What tasks need; with this write's own settings."""
        context = self.tx.write_context(schema or self.schema)
        return replace(context, settings=replace(context.settings, write=self.settings))

    @contextmanager
    def jobs(
        self, what: str, phase: Phase = Phase.LOOK_UP, *, rows: int = 0, check: Callable[[], None] | None = None
    ) -> Iterator[None]:
        """Spark jobs in the block fail with one readable error, and are cancelled as soon as the transaction is lost.

        `check` is called as well, and raises to cancel them. On a terminal a line shows how far they are; `rows`, if known, are
        those that they handle.
        """
        description = f"{self.tx.operation.lower()} {self.tx.instant}: {what}"

        def ensure_wanted() -> None:
            self.tx.check_alive()
            if check is not None:
                check()

        step, wanted = Step(description, rows), self.settings.progress
        with (
            self.tx.phase(phase, what),
            progress_line(step, self.runtime, self.tx.took_s(), wanted=wanted) as line,
            job_group(self.spark, description, self.runtime, ensure_wanted, line),
        ):
            yield

    def collected(self, frame: DataFrame) -> list[object]:
        """The reports in a frame."""
        return received(frame.select(REPORT).where(F.col(REPORT).isNotNull()).collect())

    def written(
        self, frame: DataFrame, what: str, *, rows: int = 0, check: Callable[[], None] | None = None
    ) -> tuple[WriteStat, ...]:
        """Run a stage that writes files, and return their stats; one file per file group."""
        with self.jobs(what, Phase.WRITE, rows=rows, check=check):
            stats = [report for report in self.collected(frame) if isinstance(report, WriteStat)]
        in_buckets = self.properties.bucket_index is not None
        groups = Counter(bucket_of_group(stat.group) if in_buckets else stat.group for stat in stats)
        twice = [group for group, count in groups.items() if count > 1]
        if twice:
            raise rows_changed(f"two tasks wrote the file group {twice[0]}")
        return tuple(stats)

    def keep(self, frame: DataFrame) -> None:
        """Persist a frame until the transaction has ended: its rows must not change, and its reads may be checked again."""
        self.kept.keep(frame)

    def forgetful(self) -> Attempt:
        """This attempt, which takes nothing over and leaves nothing to the next: what it computes would be different there."""
        return replace(self, memory=Memory(self.kept))

    def growing(self, schema: TableSchema) -> Attempt:
        """This attempt of a write by which the table gets this schema: rows of old files are null in what they lack."""
        return self if schema == self.schema else replace(self, earlier=replace(self.earlier, schema=schema))

    def close(self) -> None:
        """Unpersist what was kept."""
        self.kept.close()

    def read(self, files: Sequence[DataFile], *, meta: bool = False, pruned: bool = False) -> DataFrame:
        """The rows of these files, with the table's columns, or with Hudi's five before them. There is a column `_metadata`,
        unless the frame is to be `pruned` by Spark when it is filtered further."""
        columns = self.schema.file_schema if meta else self.schema.arrow
        by = PartitionValues.of(self.properties, columns) if pruned else None
        return read_files(self.spark, self.root, files, spark_schema(columns), by)

    def pruning(self, condition: Condition) -> Pruning:
        """Which files a condition rules out."""
        return Pruning(condition.predicate, PartitionValues.of(self.properties, self.schema.arrow))

    def condition(self, given: str | Column) -> Condition:
        """A condition on the table's rows, with the time fixed now."""
        return Condition.of(self.spark, spark_schema(self.schema.arrow), given)

    def missing_in(self, df: DataFrame) -> MissingColumns:
        """What becomes of the stored values of columns that the rows of an upsert lack."""
        given = arrow_schema(with_generated(df, self.properties).schema)
        return missing_since(self.schema.arrow, given, self.settings.missing_columns, partial(self.known, self.tx))

    @property
    def tasks(self) -> int:
        return parallelism(self.spark)


def prepared(attempt: Attempt, df: DataFrame, *, missing: MissingColumns = "null") -> tuple[DataFrame, TableSchema]:
    """The columns of `df` that the table has, under its names, and the table's schema after the write; `SchemaError` if they
    do not fit.

    Key, partition and ordering columns must be there. For an upsert, `missing` says what happens to other columns that are not.
    """
    df = with_generated(df, attempt.properties)
    require_columns(df.columns, attempt.properties.needed_columns)
    schema = check_write(attempt.schema, arrow_schema(df.schema), attempt.settings.merge_schema, missing)
    return _named(df, schema.names), schema


def prepared_keys(attempt: Attempt, df: DataFrame, *, partition: bool = True) -> tuple[DataFrame, TableSchema]:
    """The key and, unless told otherwise, `partition` columns of `df`, and these columns of the table; `SchemaError` if one is
    missing or misfits."""
    roles = ("key", "partition") if partition else ("key",)
    df = with_generated(df, attempt.properties) if partition else df
    needed = [(name, role) for name, role in attempt.properties.needed_columns if role in roles]
    require_columns(df.columns, needed)
    df = _named(df, list(dict.fromkeys(name for name, _ in needed)))
    columns = _only(attempt.schema, df.columns)
    check_write(columns, arrow_schema(df.schema))
    return df, columns


def _named(df: DataFrame, names: Sequence[str]) -> DataFrame:
    """Those of these columns that the frame has, in whatever case, under these names."""
    there = {name: spelled(name, df.columns) for name in names}
    return df.select(*[column(given).alias(name) for name, given in there.items() if given is not None])


def _only(schema: TableSchema, names: Sequence[str]) -> TableSchema:
    return TableSchema(pa.schema([field for field in schema.arrow if field.name in names]))


def column(name: str) -> Column:
    """The column of exactly this name, whatever characters the name has."""
    return F.col("`" + name.replace("`", "``") + "`")


Write = Callable[[Attempt], Written]
