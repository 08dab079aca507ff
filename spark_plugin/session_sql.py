"""SQL for a whole session, `sql(spark, "...")`: statements about lake tables run here, and every other one is Spark's.

Temporary views of `format("lakelock")` that a statement reads are made again before. Spark keeps what it planned for the first
query over such a view, so later ones would see the table as it was then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructType

from lakelock.checked_calls import checked
from lakelock.errors import InputError
from lakelock.occ.committed import WriteResult
from lakelock.spark_plugin.lake_table import LakeTable
from lakelock.spark_plugin.source_options import settings_given
from lakelock.spark_plugin.spark_session import condition_of, quoted, require_classic, sparks_own
from lakelock.spark_plugin.sql_operations import (
    Alter,
    By,
    Call,
    Change,
    ColumnChange,
    Command,
    Describe,
    Moment,
    Name,
    OfOneTable,
    Optimize,
    Procedure,
    Query,
    Relation,
    Restore,
    Unreadable,
    Vacuum,
    is_path,
)
from lakelock.spark_plugin.sql_planning import options_of_view, path_of_view, relation_of_view
from lakelock.spark_plugin.sql_refusals import CHANGES, FOR_A_NAME, no_version, refused_command, refused_function

if TYPE_CHECKING:
    from lakelock.spark_plugin.sql_words import Words


def read_afresh(spark: SparkSession, names: Iterable[Name]) -> None:
    """Have those of the names that are such views show their tables as they are now; all others stay as they are.

    A view that is cached, or that shows a table as of a time, stays, too.
    """
    for name in dict.fromkeys(names):
        is_global = _is_global(spark, name)
        relation = relation_of_view(spark, name) if is_global is not None else None
        if relation is None or relation.options().containsKey("as_of") or spark.catalog.isCached(quoted(*name)):
            continue
        options = dict(relation.options().asCaseSensitiveMap())
        frame = spark.read.format("lakelock").options(**options).load()
        named = _named_by_the_view(sparks_own(SparkSession.table)(spark, quoted(*name)).schema, frame.schema)
        if named is not None:
            frame = spark.read.format("lakelock").options(**options).schema(named).load()
        if is_global:
            frame.createOrReplaceGlobalTempView(quoted(name[1]))
        else:
            frame.createOrReplaceTempView(quoted(name[0]))


def views_in(spark: SparkSession, statement: str) -> list[Name]:
    """The temporary views of the session whose names stand in a statement, as names of relations or not."""
    text, database = statement.lower().replace("``", "`"), str(spark.conf.get("spark.sql.globalTempDatabase", "global_temp"))
    try:
        catalog = spark._jsparkSession.sessionState().catalog()
        names: list[Name] = [(name,) for name in _listed(catalog.getTempViewNames())]
        if database.lower() in text:
            names += [(database, name) for name in _listed(catalog.globalTempViewManager().listViewNames("*"))]
    except Py4JError:  # another Spark's catalog: its views stay as they are
        return []
    return [name for name in names if re.search(rf"(?<!\w){re.escape(name[-1].lower())}(?!\w)", text)]


def _listed(names: Any) -> list[str]:
    """Names in a collection of Scala's, which may have spaces in them; none is empty."""
    return [name for name in names.mkString("\0").split("\0") if name]


def _is_global(spark: SparkSession, name: Name) -> bool | None:
    """Whether a temporary view is one of all sessions; None for what is no temporary view. No metastore is asked."""
    catalog = spark._jsparkSession.sessionState().catalog()
    if len(name) == 1:
        return False if catalog.getTempView(name[0]).isDefined() else None
    if len(name) == 2 and name[0].lower() == str(spark.conf.get("spark.sql.globalTempDatabase", "global_temp")).lower():
        return True if catalog.getGlobalTempView(name[1]).isDefined() else None
    return None


def _named_by_the_view(shown: StructType, now: StructType) -> StructType | None:
    """The columns for a view that was made with some of the table's; None for one of them all, which new ones come behind."""
    if not set(shown.names) < set(now.names) or now.names[: len(shown)] == shown.names:
        return None
    return StructType([now[name] for name in shown.names])


DONE = "operation string, instant string, rows_inserted long, rows_updated long, rows_deleted long, summary string"
"""The columns of the one row that tells what a statement did."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_numbers = count(1)


def concerns(spark: SparkSession, statement: str) -> bool:
    """Whether a statement that Spark has refused is about a lake table, so that `sql` runs it or says what to type."""
    try:
        from lakelock.spark_plugin.sql_commands import command_of
        from lakelock.spark_plugin.sql_words import Words
    except ModuleNotFoundError:
        return False
    try:
        words = Words.of(statement)
    except InputError:  # an open quote or comment, of which Spark has said so
        return False
    command = command_of(words)
    if isinstance(command, Call) or words[0] == "CONVERT" or any(name in words for name in CHANGES):
        return True
    if command is None:
        return False
    named = command.relations if isinstance(command, Query) else (command.target,)
    return any(is_path(each.name) or path_of_view(spark, each.name) is not None for each in named)


@checked
def sql(
    spark: SparkSession,
    statement: str,
    args: Mapping[str, object] | None = None,
    *,
    config: str | Path | None = None,
    options: Mapping[str, object] | None = None,
) -> DataFrame:
    """Run a statement that may name lake tables, by path or by the name of a temporary view; any other one is `spark.sql`'s.

    >>> sql(spark, "UPDATE lakelock.`s3://lake/goods` SET price = price * 2 WHERE shop = 'berlin'")      # doctest: +SKIP
    >>> sql(spark, "SELECT * FROM lakelock.`s3://lake/goods` TIMESTAMP AS OF '2026-11-20 12:00'")        # doctest: +SKIP
    >>> sql(spark, "CREATE TEMPORARY VIEW goods USING lakelock OPTIONS (path 's3://lake/goods')")        # doctest: +SKIP
    >>> sql(spark, "DESCRIBE HISTORY goods")                                                             # doctest: +SKIP

    It takes `UPDATE`, `DELETE FROM`, `MERGE INTO` and `INSERT` as `LakeTable.sql` does; `SELECT` with `TIMESTAMP AS OF` (a time
    in the session's zone) and `VERSION AS OF` (an instant); `DESCRIBE HISTORY` and `DESCRIBE DETAIL`; `VACUUM … RETAIN n HOURS
    DRY RUN`; `OPTIMIZE … WHERE … ZORDER BY (…)`, which sorts; `RESTORE TABLE … TO …`; `ALTER TABLE` with `ADD`,
    `RENAME`, `DROP` and `ALTER COLUMN`. What changes the table returns one row that tells what was done. `args` are values for
    markers such as `:shop`. `config` and `options` are those of `LakeTable.for_path`.

    A temporary view of `format("lakelock")` that the statement reads by its name is made again first, so that it shows the
    table as it is now: Spark by itself goes on with what it planned for the first query over the view.

    `CALL` takes the procedures of Hudi that have a counterpart: `show_commits`, `run_clustering`, `run_clean`, and those of
    savepoints. A query of a path that names a meta column, such as `_hoodie_commit_time`, reads all five.

    After `register(spark)`, `spark.sql` hands over what names a path, and what Spark refuses.

    `InputError` before any work for what cannot be run. Needs sqlglot: `pip install 'lakelock[sql]'`.
    """
    try:
        from lakelock.spark_plugin.sql_commands import command_of, names_in
        from lakelock.spark_plugin.sql_words import Words
    except ModuleNotFoundError as error:
        if error.name != "sqlglot":
            raise
        raise InputError("sql() needs sqlglot, which is not installed", hint="pip install 'lakelock[sql]'") from error
    if not str(statement).strip():
        raise InputError("sql() takes the text of one statement", hint='sql(spark, "DESCRIBE HISTORY lakelock.`/lake/goods`")')
    require_classic(spark)
    words = Words.of(statement)
    command = command_of(words)
    read_afresh(spark, names_in(words))

    def opened(path: str, of_view: Mapping[str, str]) -> LakeTable:
        given, file = settings_given(of_view)
        return LakeTable.for_path(spark, path, config=config or file, options={**given, **(options or {})})

    return _Session(spark, words, args, opened).run(command)


@dataclass(frozen=True)
class _Session:
    spark: SparkSession
    words: Words
    args: Mapping[str, object] | None
    open: Callable[[str, Mapping[str, str]], LakeTable]

    def run(self, command: Command | None) -> DataFrame:
        if command is None:
            return self._sparks(self.words.text)
        if isinstance(command, Query):
            return self._query(command)
        path = self._path(command.target)
        if path is None:
            return self._sparks(self.words.text, command)
        of_view = self._of_view(command.target)
        with self.open(path, of_view) as table:
            return self._run(command, table, of_view)

    def _run(self, command: OfOneTable, table: LakeTable, of_view: Mapping[str, str]) -> DataFrame:
        match command:
            case Unreadable():
                raise command.error
            case Describe():
                if not command.history:
                    return table.detail()
                limit = () if command.limit is None else (command.limit,)
                return table.history(*limit, full=True)
            case Vacuum():
                return self._done("VACUUM", table.vacuum(command.keep_hours, dry_run=command.dry_run))
            case Optimize():
                optimize = table.optimize(command.where, partition=of_view.get("partition"), sort_by=command.sort_by)
                return self._done("OPTIMIZE", optimize.execute())
            case Restore():
                return self._done("RESTORE", table.restore(self._moment(command.moment, restores=True)))
            case Alter():
                return self._done("ALTER", _altered(table, command))
            case Call():
                return self._called(table, command.procedure)
            case Change():
                return self._change(table, command, of_view)

    def _called(self, table: LakeTable, procedure: Procedure) -> DataFrame:
        given, done = procedure.arguments, partial(self._done, procedure.name)
        texts = {name: str(value) for name, value in given.items()}
        match procedure.name:
            case "show_commits":
                return table.history(int(given.get("limit", 10)))
            case "show_savepoints":
                rows = [(each.name, each.instant) for each in table.upkeep.savepoints()]
                return self.spark.createDataFrame(rows, "name string, instant string")
            case "run_clustering":
                order = [each.strip() for each in texts.get("order", "").split(",") if each.strip()]
                return done(table.optimize(texts.get("predicate"), sort_by=order).execute())
            case "run_compaction":
                if texts.get("op", "run").lower() not in ("run", "scheduleandexecute"):
                    hint = "leave op out: lakelock compacts at once, and Java carries out what Java has planned"
                    raise InputError("lakelock plans no compaction, and carries out none that is planned", hint=hint)
                return done(table.optimize(small_file_bytes=1).execute())
            case "run_clean":
                return done(table.vacuum(None if "hours_retained" not in given else float(given["hours_retained"])))
            case "create_savepoint":
                name = procedure.required("name", "commit_time")
                return done(table.upkeep.savepoint(name, as_of=texts.get("commit_time")))
            case "delete_savepoint":
                return done(table.upkeep.delete_savepoint(procedure.required("name", "instant_time")))
            case _:
                return done(table.restore(procedure.required("instant_time")))

    def _change(self, table: LakeTable, command: Change, of_view: Mapping[str, str]) -> DataFrame:
        """Where a view shows one part of the table only, the statement may change no other row."""
        name, partition = command.target.name, of_view.get("partition")
        _require_rows(name, of_view)
        with self._views(command.sources) as views:
            statement = self.words.replaced(views) if views else self.words
            return self._done(self.words[0], table._run_statement(statement, self.args, own=name, partition=partition))

    def _query(self, command: Query) -> DataFrame:
        with self._views(command.relations) as views:
            return self._sparks(self.words.replaced(views))

    @contextmanager
    def _views(self, relations: tuple[Relation, ...]) -> Iterator[list[tuple[int, int, str]]]:
        """Where the statement names these tables, and the names of temporary views of them, which are there during the block.

        The views show the tables as of now, or as of their moments.
        """
        names: list[str] = []
        found: list[tuple[int, int, str]] = []
        try:
            for relation in relations:
                path = self._path(relation)
                if path is None:
                    continue
                of_view = self._of_view(relation)
                _require_rows(relation.name, of_view)
                with self.open(path, of_view) as table:
                    moment = None if relation.moment is None else self._moment(relation.moment)
                    meta = "_hoodie_" in self.words.text.lower() or of_view.get("include_meta", "").lower() == "true"
                    frame = table.read(as_of=moment, partition=of_view.get("partition"), include_meta=meta)
                names.append(f"_lakelock_{next(_numbers)}")
                frame.createOrReplaceTempView(names[-1])
                found.append((relation.start, relation.stop, names[-1]))
            yield found
        finally:
            for name in names:
                self.spark.catalog.dropTempView(name)

    def _path(self, relation: Relation) -> str | None:
        return relation.path if is_path(relation.name) else path_of_view(self.spark, relation.name)

    def _of_view(self, relation: Relation) -> dict[str, str]:
        """The options of a view that is named; none of a path."""
        return {} if is_path(relation.name) else options_of_view(self.spark, relation.name)

    def _moment(self, moment: Moment, *, restores: bool = False) -> str | datetime:
        """A time as Spark understands it in the session's zone, or an instant."""
        if moment.by is By.INSTANT:
            text = moment.value.strip("()'\" ")
            if (not restores and not re.fullmatch(r"\d{14}(\d{3})?", text)) or (text.isdigit() and len(text) < 14):
                raise no_version(moment.value)
            return text
        try:
            row = self._sparks(f"SELECT unix_micros(CAST({moment.value} AS TIMESTAMP))").head()
        except (PySparkException, Py4JError) as error:
            raise _no_time(moment.value) from error
        if row is None or row[0] is None:
            raise _no_time(moment.value)
        return _EPOCH + timedelta(microseconds=row[0])

    def _sparks(self, text: str, command: Command | None = None) -> DataFrame:
        """What Spark makes of a text; `InputError` for what it does not know, and Delta or Hudi has."""
        run: Callable[..., DataFrame] = sparks_own(SparkSession.sql)
        try:
            return run(self.spark, text) if self.args is None else run(self.spark, text, dict(self.args))
        except PySparkException as error:
            function = next((name for name in CHANGES if name in self.words), "")
            if function and condition_of(error) == "UNRESOLVABLE_TABLE_VALUED_FUNCTION":
                raise refused_function(function) from error
            if self.words[0] == "CONVERT":
                raise refused_command("CONVERT") from error
            if isinstance(command, Call):
                raise InputError(
                    f"{command.procedure.name}: {'.'.join(command.target.name)} is no view of a lake table",
                    hint=f"name its path, CALL {command.procedure.name}(path => '/lake/table'), or {FOR_A_NAME}",
                ) from error
            raise

    def _done(self, operation: str, result: object) -> DataFrame:
        counts: tuple[object, ...] = (None, None, None, None)
        if isinstance(result, WriteResult):
            operation = str(result.operation)
            counts = (result.instant, result.rows_inserted, result.rows_updated, result.rows_deleted)
        return self.spark.createDataFrame([(operation, *counts, repr(result))], DONE)


_ALL_ROWS = {"change_feed": "false", "query_type": "snapshot"}


def _require_rows(name: Name, of_view: Mapping[str, str]) -> None:
    """`InputError` if a view shows other rows than the table has."""
    for option, value in of_view.items():
        if option in _ALL_ROWS and value.strip().lower() != _ALL_ROWS[option]:
            raise InputError(
                f"the view {quoted(*name)} has the option {option}={value}, so it does not show the rows that the table has",
                hint="name the table by its path, lakelock.`/lake/table`, or by a view without this option",
            )


def _altered(table: LakeTable, command: Alter) -> WriteResult:
    columns, names = dict(command.columns), [name for name, _ in command.columns]
    match command.change:
        case ColumnChange.ADD:
            return table.columns.add(columns)
        case ColumnChange.WIDEN:
            return table.columns.widen(columns)
        case ColumnChange.RELAX:
            return table.columns.relax(names)
        case ColumnChange.RENAME:
            return table.columns.rename(columns)
        case ColumnChange.DROP:
            return table.columns.drop(names)
        case ColumnChange.PLACE:
            ((name, before),) = command.columns
            parent, dot, leaf = name.rpartition(".")
            first = [*_up_to(_names_in(table.schema, parent), before.rpartition(".")[2], but=leaf), leaf]
            return table.columns.reorder([f"{parent}{dot}{each}" for each in first])


def _names_in(schema: StructType, parent: str) -> list[str]:
    """The names of the columns, or of the fields of the struct at a path; none where there is no struct."""
    found: DataType = schema
    for part in parent.split(".") if parent else ():
        if isinstance(found, ArrayType):
            found = found.elementType
        elif isinstance(found, MapType):
            found = found.valueType
        else:
            inside = list(found) if isinstance(found, StructType) else []
            found = next((field.dataType for field in inside if field.name.lower() == part.lower()), NullType())
    return found.names if isinstance(found, StructType) else []


def _up_to(names: list[str], last: str, *, but: str) -> list[str]:
    """The names up to one, without another; none for no name."""
    if not last:
        return []
    lower = [name.lower() for name in names]
    end = lower.index(last.lower()) + 1 if last.lower() in lower else 0
    return [name for name in names[:end] if name.lower() != but.lower()] or [last]


def _no_time(value: str) -> InputError:
    return InputError(f"TIMESTAMP AS OF {value} is no time", hint="write TIMESTAMP AS OF '2026-11-20 12:00', or with a zone")
