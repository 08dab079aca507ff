"""From a statement to a write: its names are those of the table, its sources are frames, and Spark agrees on its pieces.

A source that reads the table that the statement changes is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelock.errors import InputError, SchemaError, SettingsError
from lakelock.spark_plugin import changing, inserting, merging
from lakelock.spark_plugin.arguments import ColumnNames, as_assigned, checked_assignments
from lakelock.spark_plugin.conditions import Condition
from lakelock.spark_plugin.hadoop import in_full
from lakelock.spark_plugin.merge_builder import Clause, MergeSpec
from lakelock.spark_plugin.merging import MergePlan
from lakelock.spark_plugin.source_option_names import READS, translated
from lakelock.spark_plugin.spark_session import quoted, spark_schema, sparks_own
from lakelock.spark_plugin.sql_operations import (
    Assignment,
    Delete,
    Insert,
    Merge,
    Name,
    Statement,
    Target,
    Update,
)
from lakelock.spark_plugin.write_attempt import Write
from lakelock.storage.location import canonical_uri
from lakelock.table.properties import TableProperties
from lakelock.table.rows import KnownSchemas
from lakelock.table.schema import TableSchema
from lakelock.texts import column_hint

if TYPE_CHECKING:
    from lakelock.spark_plugin.sql_words import Words

IN_A_TRANSACTION = (
    "read it in a transaction, which watches what it reads: with table.transaction() as tx: "
    "tx.read().createOrReplaceTempView('before'), and then tx.sql('… FROM before …')"
)

IN_A_TRANSACTION_OF_FRAMES = (
    "change the rows with table.update, table.merge or table.delete; or read them in a transaction, which watches what it "
    "reads: with table.transaction() as tx: rows = tx.read(); tx.delete(); tx.insert(rows.…). To go back to an earlier state: "
    "table.restore(as_of)"
)


def is_path_of(spark: SparkSession, path: object, uri: str, *, within: bool = False) -> bool:
    """Whether a path is that of the table or, if asked for, one within it."""
    try:
        found = canonical_uri(in_full(spark, str(path)))
    except SettingsError:
        return False
    return found == uri or (within and found.startswith(f"{uri}/"))


def require_foreign(frame: DataFrame, uri: str, hint: str = IN_A_TRANSACTION) -> None:
    """`InputError` if a frame reads files of the table outside a transaction, such as a view of `table.read()`."""
    _require_foreign(frame.sparkSession, frame._jdf.queryExecution().analyzed(), uri, hint)


def _require_foreign(spark: SparkSession, plan: Any, uri: str, hint: str = IN_A_TRANSACTION) -> None:
    for leaf in (node for node in nodes_of(plan) if node.children().isEmpty()):
        if any(is_path_of(spark, path, uri, within=True) for path in _paths(leaf)):
            raise InputError("the source reads the table that the statement changes", hint=hint)


def nodes_of(plan: Any) -> Iterator[Any]:
    """A plan and all that is in it, subqueries and common table expressions, too."""
    yield plan
    for plans in (plan.subqueries(), plan.children(), plan.innerChildren()):
        for number in range(plans.size()):
            yield from nodes_of(plans.apply(number))


def _paths(leaf: Any) -> Sequence[object]:
    """Where a leaf of a plan reads its rows; nothing for a relation that has no files."""
    try:
        if leaf.getClass().getSimpleName() == "LogicalRelation":
            roots = leaf.relation().location().rootPaths()
            return [roots.apply(number).toString() for number in range(roots.size())]
        if leaf.getClass().getSimpleName() == "DataSourceV2Relation":
            return [leaf.options().get("path")]
    except Py4JError:
        pass
    return []


def path_of_view(spark: SparkSession, name: Name) -> str | None:
    """The path of a temporary view `USING lakelock OPTIONS (path ...)`; None for any other relation, and for no relation."""
    options = options_of_view(spark, name)
    return None if "as_of" in options else options.get("path") or None


def options_of_view(spark: SparkSession, name: Name) -> dict[str, str]:
    """The options of such a view, in our spelling; none of any other relation."""
    plan = relation_of_view(spark, name)
    return {} if plan is None else translated(dict(plan.options().asCaseSensitiveMap()), READS).options


def relation_of_view(spark: SparkSession, name: Name) -> Any:
    """Spark's own relation of such a view, which has its options; None for any other relation, and for no relation."""
    try:
        plan: Any = sparks_own(SparkSession.table)(spark, quoted(*name))._jdf.queryExecution().analyzed()
        while plan.getClass().getSimpleName() in ("SubqueryAlias", "View"):
            plan = plan.children().apply(0)
        if plan.getClass().getSimpleName() == "DataSourceV2Relation" and plan.table().name() == "lakelock":
            return plan
    except (Py4JError, PySparkException):
        pass
    return None


@dataclass(frozen=True)
class PlannedWrite:
    """A write, and what a table or a transaction has to know of it."""

    operation: str
    write: Write
    where: str | None = None
    replaces: bool = False


@dataclass(frozen=True)
class StatementPlanner:
    """Plans statements about one table. In a transaction, views of what it has read are sources like any other."""

    spark: SparkSession
    schema: TableSchema
    properties: TableProperties
    uri: str
    known: KnownSchemas
    in_transaction: bool = False
    merge_schema: bool = False

    def plan(self, text: str | Words, args: Mapping[str, object] | None = None, *, own: Name | None = None) -> PlannedWrite:
        """Everything that can be known before any work is checked: `InputError`, `SchemaError` or Spark's AnalysisException.

        `own` is a name that is known to mean this table, such as that of a view.
        """
        statement = _read(self.spark, text, args)
        if statement.target.name != own:
            self._require_target(statement.target)
        match statement:
            case Update():
                return self._update(statement)
            case Delete():
                condition = self._condition(statement.where or "true", statement.target, statement.reads)
                write = partial(changing.delete_where, condition=condition)
                return PlannedWrite("DELETE", write, statement.where)
            case Insert():
                return self._insert(statement)
            case Merge():
                return self._merge(statement)

    def _update(self, statement: Update) -> PlannedWrite:
        target = statement.target
        given = self._values(statement.assignments, target)
        values = checked_assignments(
            self.spark, given, self.schema, self.properties, "UPDATE", alias=target.qualifier, merge_schema=self.merge_schema
        )
        condition = None if statement.where is None else self._condition(statement.where, target, statement.reads)
        write = partial(changing.update_where, values=values, condition=condition, alias=target.qualifier)
        return PlannedWrite("UPDATE", write, statement.where)

    def _merge(self, statement: Merge) -> PlannedWrite:
        target = statement.target
        source = self._columns.spelled(self._source(f"SELECT * FROM {statement.source}", statement.reads))
        clauses = tuple(
            Clause(
                clause.when,
                clause.then,
                None if clause.assignments is None else self._values(clause.assignments, target),
                clause.condition,
            )
            for clause in statement.clauses
        )
        aliases = target.qualifier, statement.source_alias
        spec = MergeSpec(source, statement.on, *aliases, clauses, merge_schema=self.merge_schema)
        plan = MergePlan.of(spec, self.schema, self.properties, self.known)
        return PlannedWrite("MERGE", partial(merging.merge, plan=plan))

    def _insert(self, statement: Insert) -> PlannedWrite:
        fixed = self._fixed(statement)
        df = self._as_assigned(self._rows(statement, fixed))
        mode = str(self.spark.conf.get("spark.sql.sources.partitionOverwriteMode")).lower()
        by_rows = (
            mode == "dynamic" and self.properties.partition_fields and (not fixed or len(fixed) < len(statement.partition))
        )
        where = statement.replace_where
        if statement.overwrite and fixed and not by_rows:
            where = " AND ".join(
                f"{quoted(name)} {'IS NULL' if value.upper() == 'NULL' else f'= {value}'}" for name, value in fixed.items()
            )
        if where is not None:
            condition = self._condition(where, statement.target)
            df = self._with_nulls(df)
            return PlannedWrite("UPSERT", partial(inserting.overwrite_where, df=df, condition=condition), where, replaces=True)
        if not statement.overwrite:
            return PlannedWrite("INSERT", partial(inserting.insert, df=df))
        if by_rows:
            return PlannedWrite("INSERT_OVERWRITE", partial(inserting.overwrite_partitions, df=df), replaces=True)
        return PlannedWrite("INSERT_OVERWRITE_TABLE", partial(inserting.overwrite_table, df=df), replaces=True)

    def _fixed(self, statement: Insert) -> dict[str, str]:
        """The partition columns that `PARTITION (…)` gives a value."""
        columns = [self._column(name, statement.target) for name, _ in statement.partition]
        _require_once(columns)
        generated = [transform.name for transform in self.properties.transforms]
        for name in columns:
            if name not in self.properties.partition_fields or name in generated:
                taken = [field for field in self.properties.partition_fields if field not in generated]
                raise InputError(
                    f"PARTITION names {name}, which is {'computed' if name in generated else 'no partition column'}",
                    hint=f"it takes {', '.join(taken)}" if taken else "leave PARTITION out",
                )
        given = zip(columns, statement.partition, strict=True)
        return {name: self._of_its_type(name, value) for name, (_, value) in given if value is not None}

    def _of_its_type(self, name: str, value: str) -> str:
        """A value that `PARTITION (…)` gives, of the column's type: a column of texts would be compared with 1 as a number."""
        wanted = spark_schema(self.schema.arrow)[name].dataType.simpleString()
        cast = f"CAST({value} AS {wanted})"
        found = self.spark.sql(f"SELECT typeof({value}), {cast} <=> {value}").head()
        if found is None or not found[1]:
            raise InputError(f"PARTITION gives {name} the value {value}, which is no {wanted}", hint="write it as it is stored")
        return value if found[0] in (wanted, "void") else cast

    def _rows(self, statement: Insert, fixed: Mapping[str, str]) -> DataFrame:
        """The rows of the query, under the names of the table's columns, with the values that `PARTITION (…)` gives."""
        df = self._named(statement, self._source(statement.query, statement.reads), fixed)
        types = {field.name: field.dataType for field in spark_schema(self.schema.arrow)}
        return df.withColumns({name: F.expr(value).cast(types[name]) for name, value in fixed.items()}) if fixed else df

    def _named(self, statement: Insert, df: DataFrame, fixed: Mapping[str, str]) -> DataFrame:
        """The columns of the query under the names of those of the table that they are for."""
        names = self.schema.names
        if statement.by_name:
            self._columns.refuse_other_case(df.columns)
            df = self._columns.spelled(df)
            _require_once([*df.columns, *fixed])
            return df
        columns = [name for name in names if name not in fixed]
        if statement.columns is None and len(df.columns) < len(columns):
            generated = [transform.name for transform in self.properties.transforms]
            columns = [name for name in columns if name not in generated]
        if statement.columns is not None:
            columns = [self._column(name, statement.target) for name in statement.columns]
            _require_once([*columns, *fixed])
        for name in columns:
            if name not in names:
                raise SchemaError(f"INSERT: the table has no column {name!r}", hint=column_hint(name, names), column=name)
        if len(df.columns) != len(columns):
            raise InputError(
                f"the query has {len(df.columns)} columns for the {len(columns)} columns {', '.join(columns)}",
                hint=f"name the columns, INSERT INTO {self.properties.name} (a, b) …, or write BY NAME before the query",
            )
        return df.toDF(*columns)

    def _as_assigned(self, df: DataFrame) -> DataFrame:
        """The rows with numbers as SQL assigns them: 30.0, for one, is a decimal of Spark, whatever the column is."""
        stored = {field.name: field for field in spark_schema(self.schema.arrow)}
        given = {each.name: each.dataType for each in df.schema if each.name in stored}
        meant = {name: as_assigned(df[name], kind, stored[name]) for name, kind in given.items()}
        cast = {name: column for name, column in meant.items() if column is not None and given[name] != stored[name].dataType}
        return df.withColumns(cast) if cast else df

    def _with_nulls(self, df: DataFrame) -> DataFrame:
        """The rows with null in every column that they lack, so that a condition can be asked about them."""
        needed = {name for name, _ in self.properties.needed_columns}
        types = {field.name: field.dataType for field in spark_schema(self.schema.arrow)}
        missing = [name for name in self.schema.names if name not in df.columns and name not in needed]
        return df.withColumns({name: F.lit(None).cast(types[name]) for name in missing}) if missing else df

    def _source(self, query: str, reads: Iterable[Name]) -> DataFrame:
        self._require_others(reads)
        frame = self.spark.sql(query)
        if not self.in_transaction:
            require_foreign(frame, self.uri)
        return frame

    def _require_others(self, reads: Iterable[Name]) -> None:
        for name in reads:
            if self._is_table(name):
                raise InputError(
                    f"the source reads {quoted(*name)}, the table that the statement changes", hint=IN_A_TRANSACTION
                )

    def _values(self, assignments: Iterable[Assignment], target: Target) -> dict[str, object]:
        columns = [self._column(each.column, target) for each in assignments]
        _require_once(columns)
        return {column: each.value for column, each in zip(columns, assignments, strict=True)}

    def _column(self, name: Name, target: Target) -> str:
        own = len(name) == 2 and name[0].lower() == target.qualifier.lower()
        if len(name) > (2 if own else 1):
            raise InputError(
                f"{quoted(*name)} is not a column of {target.qualifier}",
                hint="a field of a struct is set with its column: address = named_struct('city', 'x', 'zip', address.zip)",
            )
        return self._columns.spelling(name[-1])

    def _condition(self, text: str, target: Target, reads: Iterable[Name] = ()) -> Condition:
        self._require_others(reads)
        found = Condition.of(self.spark, spark_schema(self.schema.arrow), text, alias=target.qualifier)
        if not found.repeatable and not self.in_transaction:
            _require_foreign(self.spark, found.filled, self.uri)
        return found

    def _require_target(self, target: Target) -> None:
        if not self._is_table(target.name):
            own = self.properties.name
            raise InputError(
                f"the statement changes {quoted(*target.name)}, but this table is {own} in {self.uri}",
                hint=f"write {quoted(own)}, or lakelock.{quoted(self.uri)}; an alias of your own may follow",
            )

    def _is_table(self, name: Name) -> bool:
        *database, last = (part.lower() for part in name)
        if database == ["lakelock"] and is_path_of(self.spark, name[-1], self.uri):
            return True
        return last == self.properties.name.lower() and database in ([], [self.properties.database.lower()])

    @property
    def _columns(self) -> ColumnNames:
        return ColumnNames.of(self.spark, self.schema)


def _read(spark: SparkSession, text: str | Words, args: Mapping[str, object] | None) -> Statement:
    try:
        from lakelock.spark_plugin.sql_changes import require_same_reading, statement_of
        from lakelock.spark_plugin.sql_words import Words, filled_in, literals_of
    except ModuleNotFoundError as error:
        if error.name != "sqlglot":
            raise
        raise InputError("sql() needs sqlglot, which is not installed", hint="pip install 'lakelock[sql]'") from error
    if args is not None and isinstance(text, str | Words):
        text = filled_in(text, literals_of(spark, args))
    statement = statement_of(text)
    require_same_reading(spark, text.text if isinstance(text, Words) else text, statement)
    return statement


def _require_once(columns: list[str]) -> None:
    twice = next((column for column in columns if columns.count(column) > 1), None)
    if twice is not None:
        raise InputError(f"the statement gives {twice} two values", hint="name each column once")
