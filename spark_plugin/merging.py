"""Merge: Spark joins the rows of a source with those of the table, and the clauses say what becomes of each.

The plan says which clause applies to each row, and which changes it makes. What is read is as little as the condition allows.
If it equates the key and partition columns, the keys of the source are looked up as in an upsert, and nothing else is read.
Otherwise the rows are read that the part of the condition about the target selects. Clauses about rows that the source does
not match read the rows that their own conditions select.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakelock.errors import InputError, SchemaError
from lakelock.occ.footprint import WholeTable
from lakelock.spark_plugin.arguments import (
    ColumnNames,
    as_column,
    as_the_table_spells,
    fitting_values,
    grown_by_values,
    require_column,
    require_settable,
)
from lakelock.spark_plugin.change_stages import (
    ACTION,
    DELETE,
    DRAWN,
    INSERT,
    MISFIT,
    TWIN,
    UPDATE,
    ChangePlan,
    NewPlaces,
)
from lakelock.spark_plugin.changing import write_changes
from lakelock.spark_plugin.conditions import Condition, condition_text, is_repeatable
from lakelock.spark_plugin.lookup import KeysRead, files_with, look_up
from lakelock.spark_plugin.lookup_stages import KeysByPartition, LookedUpKeys, TagPlan
from lakelock.spark_plugin.merge_builder import (
    Clause,
    MergeCondition,
    MergeSpec,
    Then,
    When,
    may_match_often,
    require_sensible,
    source_column,
)
from lakelock.spark_plugin.spark_session import (
    FILE,
    ROW,
    apart,
    arrow_schema,
    column,
    computed,
    local_frame,
    spark_schema,
    with_generated,
)
from lakelock.spark_plugin.stage_rows import FewRows, Rows, is_few_bytes, is_little
from lakelock.spark_plugin.write_attempt import Attempt, Memory, Written
from lakelock.table.base_files import BaseFile
from lakelock.table.column_types import OWN_PREFIX, refuse_own_name
from lakelock.table.merged_slices import open_slice
from lakelock.table.properties import TableProperties
from lakelock.table.record_keys import require_key
from lakelock.table.rows import KnownSchemas, spelled
from lakelock.table.schema import TableSchema, require_columns
from lakelock.table.snapshot import DataFile
from lakelock.texts import column_hint

HERE = "_lakelock_here"
"""A column of the source that has a number in every row, and null where the join found no source row."""
_DRAWN = "cast(cast(reflect('java.lang.Math', 'random') as double) * 9007199254740992 as bigint)"
_CLAUSE = "_lakelock_clause"


@dataclass(frozen=True)
class WriteByKey:
    """A write by key that does what a merge does: `operation`, and by column of its rows the source's column with its values.

    `keys` are those by which rows are the same.
    """

    operation: str
    columns: Mapping[str, str]
    keys: tuple[str, ...]

    def rows(self, source: pa.Table) -> pa.Table | None:
        """Its rows, from those of the source. A null equals nothing: None if the merge would insert a row beside its equals."""
        rows = source.select([*self.columns.values()]).rename_columns([*self.columns])
        if self.operation == "DELETE":
            return rows.drop_null()
        return None if any(rows.column(name).null_count for name in self.keys) else rows


@dataclass(frozen=True)
class MergePlan:
    """A merge after Spark's analysis, which takes about as long as a small merge's jobs, so each merge is analysed once.

    `source`: the rows of the spec's source, numbered. `before` is the table's schema, and `schema` that after the merge.
    `values` are those of each clause in the table's types, None for a delete; `changed` are the columns that updates set.
    `compared`: columns that `when_matched_update_all` must not change and `on` does not equate with the source's column of this
    name, so each row is checked. `keys`: the source's expressions for the key and partition columns, None unless `on` equates
    them all. `by_source`: which rows each clause about rows without a source row selects; None stands for all.
    """

    spec: MergeSpec
    source: DataFrame
    before: TableSchema
    schema: TableSchema
    properties: TableProperties
    on: MergeCondition
    values: tuple[Mapping[str, Column] | None, ...]
    changed: tuple[str, ...]
    compared: tuple[str, ...]
    keys: dict[str, Column] | None
    by_source: tuple[Condition | None, ...]
    repeatable: bool = True
    """Whether the same rows on both sides give the same changes in each attempt."""
    inserts_equated: bool = False
    """Whether new rows have the key and partition values of the source that `on` equates, each with one, and no others."""
    new_keys: tuple[str, ...] = ()
    """Columns of which no stored row has the values of a new row with the same key, if none of these is null: all key columns,
    where `on` equates those and nothing but key and partition columns, with what the new row has there. Else none."""

    @classmethod
    def of(
        cls,
        spec: MergeSpec,
        schema: TableSchema,
        properties: TableProperties,
        known: KnownSchemas,
        source: DataFrame | None = None,
    ) -> MergePlan:
        """Analyse the merge without any work. `InputError`, `SchemaError` or Spark's AnalysisException say what is wrong.

        A column that came after the schemas that its writer has `known` may be missing in the source of an update or insert of
        all columns. `source` are the rows where an earlier analysis has numbered them.
        """
        require_sensible(spec.clauses)
        require_key(properties, "a merge")
        if spec.target_alias.lower() == spec.source_alias.lower():
            raise InputError(f"target and source have the same alias {spec.source_alias!r}", hint="choose two")
        spark = spec.source.sparkSession
        source = numbered(spec, properties) if source is None else source
        given, before = source.alias(spec.source_alias), schema
        fixed = tuple(dict.fromkeys((*properties.record_keys, *properties.partition_fields)))
        if spec.merge_schema:
            schema = _grown(spec, given, before, fixed)
        stored = spark.createDataFrame([], spark_schema(schema.arrow)).alias(spec.target_alias)
        on = MergeCondition.of(stored, given, spec.on)
        sides = {
            When.MATCHED: stored.join(given, as_column(spec.on)),
            When.NOT_MATCHED: given,
            When.NOT_MATCHED_BY_SOURCE: stored,
        }
        equated = _with_generated(on.equated, schema, properties)
        by_key = equated.keys() >= set(fixed)
        if by_key and spec.has(When.NOT_MATCHED) and properties.keys_span_partitions:
            raise InputError(
                "the condition equates the partition, too, so a key of another partition would be there twice; the table has "
                "index=global",
                hint="equate the key alone, or call table.upsert(df), which moves such a row",
            )
        # Where a key column is equated with two columns, a row without a partner may still have a stored key by one of them.
        values, inserts_equated = [], by_key and on.at_most_once
        apart = set(properties.record_keys if properties.keys_span_partitions else fixed)
        compares_keys = on.only_equates and on.at_most_once and set(properties.record_keys) <= on.compared.keys() <= apart
        new_keys = tuple(on.compared) if compares_keys else ()
        repeatable = is_repeatable(stored.crossJoin(given).where(as_column(spec.on)), spec.on)
        for clause in spec.clauses:
            side = sides[clause.when]
            _require_certain(side, clause)
            if clause.when is When.MATCHED and clause.then is Then.UPDATE and clause.values is not None:
                clause = replace(clause, values=_without_equated(clause.values, spec, side, given, on))
            if clause.then is Then.INSERT:
                inserts_equated = inserts_equated and _inserts_equated(clause, spec, side, source, on.same, fixed)
                if not (inserts_equated or _inserts_equated(clause, spec, side, source, on.compared, new_keys)):
                    new_keys = ()
            values.append(_values(spec, clause, side, source, schema, properties, fixed, known))
            repeatable = repeatable and _is_repeatable(side, clause, values[-1])
        updates = [each for clause, each in zip(spec.clauses, values, strict=True) if clause.then is Then.UPDATE and each]
        changes_all = any(clause.then is Then.UPDATE and clause.values is None for clause in spec.clauses)
        compared = tuple(name for name in fixed if changes_all and name not in on.same.get(name, ()))
        plan = cls(
            spec, source, before, schema, properties, on, tuple(values),
            tuple(name for name in schema.names if any(name in each for each in updates)), compared,
            {name: equated[name] for name in fixed} if by_key else None,
            tuple(_clause_condition(spark, stored, each) for each in spec.clauses if each.when is When.NOT_MATCHED_BY_SOURCE),
            repeatable, inserts_equated, new_keys,
        )  # fmt: skip
        # The whole is analysed once: clauses may set a column to types that do not go together.
        places = stored.select("*", F.lit("").alias(FILE), F.lit(0).cast("long").alias(ROW))
        plan.changes(places)
        return plan

    def now(self, schema: TableSchema, properties: TableProperties, known: KnownSchemas) -> MergePlan:
        """The plan for what the table is now, of the same rows."""
        if (schema, properties) == (self.before, self.properties):
            return self
        return MergePlan.of(self.spec, schema, properties, known, self.source)

    def as_write_by_key(self) -> WriteByKey | None:
        """The upsert, or delete by key, that does the same as this merge, whatever the table holds; None if none does.

        An upsert of every row of the source, or a delete of all rows that it matches, by the whole key and partition.
        """
        clauses = {(each.when, each.then) for each in self.spec.clauses if each.values is None and each.condition is None}
        apart = len(clauses) < len(self.spec.clauses) or self.schema != self.before or self.properties.keys_span_partitions
        if apart or self.keys is None or not (self.on.only_equates and self.on.at_most_once):
            return None
        if self.on.compared.keys() != self.keys.keys() or any(len(names) != 1 for names in self.on.same.values()):
            return None
        equated = {name: next(iter(self.on.same[name])) for name in self.keys}
        if clauses == {(When.MATCHED, Then.DELETE)}:
            return self._by_key("DELETE", equated)
        everything = {(When.MATCHED, Then.UPDATE), (When.NOT_MATCHED, Then.INSERT)}
        if clauses != everything or self.compared or self.properties.ordering_field is not None:
            return None
        return self._by_key("UPSERT", {name: spelled(name, self.source.columns) for name in self.schema.names})

    def _by_key(self, operation: str, columns: Mapping[str, str | None]) -> WriteByKey | None:
        """None unless the source has these columns in the table's types, so that nothing is computed from them."""
        given = arrow_schema(self.source.schema)
        there = {name: column for name, column in columns.items() if column is not None}
        if any(given.field(column).type != self.schema.arrow.field(name).type for name, column in there.items()):
            return None
        return WriteByKey(operation, there, (*self.keys,)) if self.keys and len(there) == len(columns) else None

    def changes(self, stored: DataFrame, *, few: bool = False) -> DataFrame:
        """The changes to stored rows, which come with their places, and the new rows; both sides may be in the plan, as few."""
        spec = self.spec
        inserts, unmatched = spec.has(When.NOT_MATCHED), spec.has(When.NOT_MATCHED_BY_SOURCE)
        how = {(True, True): "full", (True, False): "left", (False, True): "right", (False, False): "inner"}[inserts, unmatched]
        # Without the hint Spark may collect the stored rows on the driver, to send all of them to every task.
        right = stored.alias(spec.target_alias) if few else stored.alias(spec.target_alias).hint("merge")
        joined = self.source.alias(spec.source_alias).join(right, as_column(spec.on), how)
        is_stored, is_given = F.col(FILE).isNotNull(), F.col(HERE).isNotNull()
        kinds = {
            When.MATCHED: is_stored & is_given,
            When.NOT_MATCHED: is_given & ~is_stored,
            When.NOT_MATCHED_BY_SOURCE: is_stored & ~is_given,
        }
        number, action = F.lit(None).cast("int"), F.lit(None).cast("int")
        for at, clause in reversed(list(enumerate(spec.clauses))):
            holds = kinds[clause.when]
            if clause.condition is not None:
                holds = holds & F.coalesce(as_column(clause.condition), F.lit(False))
            number = F.when(holds, F.lit(at)).otherwise(number)
            action = F.when(F.col(_CLAUSE) == at, self._action(clause)).otherwise(action)
        joined = joined.withColumn(_CLAUSE, number).where(F.col(_CLAUSE).isNotNull())
        names = self.schema.names if inserts else self.changed
        values = [self._value(name).alias(name) for name in names]
        drawn = [F.col(HERE).alias(DRAWN)] if inserts else []
        changes = joined.select(F.col(FILE), F.col(ROW), action.alias(ACTION), *values, *drawn)
        return self._with_twins(changes) if inserts and self.properties.keys_span_partitions else changes

    def _with_twins(self, changes: DataFrame) -> DataFrame:
        """The changes with the new rows marked that have a key in common: in different partitions, no task would see that."""
        is_new = F.col(ACTION) == INSERT
        alone = F.when(~is_new, F.struct(FILE, ROW))
        same = Window.partitionBy(*[column(name) for name in self.properties.record_keys], alone)
        return changes.withColumn(ACTION, F.when(is_new & (F.count(F.lit(1)).over(same) > 1), TWIN).otherwise(F.col(ACTION)))

    def _action(self, clause: Clause) -> Column:
        if clause.then is not Then.UPDATE:
            return F.lit(DELETE if clause.then is Then.DELETE else INSERT)
        if clause.values is not None or not self.compared:
            return F.lit(UPDATE)
        spec = self.spec
        same = [of(spec.target_alias, name).eqNullSafe(of(spec.source_alias, name)) for name in self.compared]
        return F.when(reduce(Column.__and__, same), F.lit(UPDATE)).otherwise(F.lit(MISFIT))

    def _value(self, name: str) -> Column:
        """The value of a column in a row of changes: that of its clause, the stored one in an update that does not set it."""
        value = F.lit(None).cast(spark_schema(self.schema.arrow)[name].dataType)
        for at, (clause, values) in enumerate(zip(self.spec.clauses, self.values, strict=True)):
            new = None if values is None else values.get(name)
            if new is None and clause.then is Then.UPDATE and name in self.changed:
                new = of(self.spec.target_alias, name)
            if new is not None:
                value = F.when(F.col(_CLAUSE) == at, new).otherwise(value)
        return value


def numbered(spec: MergeSpec, properties: TableProperties) -> DataFrame:
    """The source with a number in each row: one that is drawn whenever the row is computed, if the merge has new rows.

    So rows with the same numbers are the same rows, and come of the same computation. Where whole rows of the source become
    rows of the table, it has the computed partition columns, too.
    """
    for name in spec.source.columns:
        if name.lower().startswith(OWN_PREFIX):
            refuse_own_name(name)
    whole = any(clause.values is None and clause.then is not Then.DELETE for clause in spec.clauses)
    source = with_generated(spec.source, properties) if whole else spec.source
    return source.withColumn(HERE, F.expr(_DRAWN)) if spec.has(When.NOT_MATCHED) else apart(source, HERE)


def of(alias: str, name: str) -> Column:
    """A column of one side."""
    quoted = [part.replace("`", "``") for part in (alias, name)]
    return F.col("`{}`.`{}`".format(*quoted))


def _require_certain(side: DataFrame, clause: Clause) -> None:
    if clause.condition is None:
        return
    if not side.where(as_column(clause.condition))._jdf.queryExecution().analyzed().condition().deterministic():
        raise InputError(
            f"{clause.name}: the condition {condition_text(clause.condition)} may give a different answer each time",
            hint="compute such values in the source",
        )


def _is_repeatable(side: DataFrame, clause: Clause, values: Mapping[str, Column] | None) -> bool:
    if clause.condition is not None and not is_repeatable(side.where(as_column(clause.condition)), clause.condition):
        return False
    given = () if clause.values is None else clause.values.values()
    return values is None or is_repeatable(side.select(*values.values()), *given)


def _clause_condition(spark: SparkSession, stored: DataFrame, clause: Clause) -> Condition | None:
    if clause.condition is None:
        return None
    return Condition.of_filter(spark, stored.where(as_column(clause.condition)), condition_text(clause.condition))


def _values(
    spec: MergeSpec, clause: Clause, side: DataFrame, source: DataFrame, schema: TableSchema, properties: TableProperties,
    fixed: tuple[str, ...], known: KnownSchemas,
) -> Mapping[str, Column] | None:  # fmt: skip
    """The new values of a clause in the table's types."""
    if clause.then is Then.DELETE:
        return None
    names = ColumnNames.of(source.sparkSession, schema)
    if clause.values is None:
        missing = names.missing_in(source.columns)
        if missing and not any(set(missing).isdisjoint(columns.names) for columns in known()):
            has = [name for name in source.columns if name != HERE]
            raise SchemaError(
                f"{clause.name}: the source has no column {missing[0]!r}",
                hint=f"{column_hint(missing[0], has)}; or name the columns to set",
                column=missing[0],
            )
        there = [name for name in schema.names if name not in missing]
        every = {name: of(spec.source_alias, name) for name in there if clause.then is Then.INSERT or name not in fixed}
        return fitting_values(side, every, schema, whole=clause.then is Then.INSERT)
    given = as_the_table_spells(_unqualified(clause, spec), names)
    if clause.then is Then.UPDATE:
        require_settable(list(given), schema, properties, clause.name)
        return fitting_values(side, given, schema)
    for name in given:
        require_column(name, schema, clause.name)
    given = _with_generated(given, schema, properties)
    require_columns(list(given), properties.needed_columns)
    return fitting_values(side, given, schema, whole=True)


def _grown(spec: MergeSpec, source: DataFrame, schema: TableSchema, fixed: tuple[str, ...]) -> TableSchema:
    """The table's schema after a merge that may change it: a clause writes whole rows of the source, or names a column.

    A new column is one of the source, so a misspelled one is not added.
    """
    stored = source.sparkSession.createDataFrame([], spark_schema(schema.arrow)).alias(spec.target_alias)
    columns = [name for name in source.columns if name != HERE]
    for clause in spec.clauses:
        side = source if clause.when is When.NOT_MATCHED else stored
        if clause.when is When.MATCHED:
            side = stored.join(source, as_column(spec.on))
        names = ColumnNames.of(source.sparkSession, schema)
        if clause.then is Then.DELETE:
            continue
        if clause.values is None:
            every: dict[str, object] = {names.spelling(name): of(spec.source_alias, name) for name in columns}
            values = {name: value for name, value in every.items() if clause.then is Then.INSERT or name not in fixed}
        else:
            given = as_the_table_spells(_unqualified(clause, spec), names)
            values = {name: value for name, value in given.items() if name in schema.names or name in columns}
        if values:
            schema = grown_by_values(side, values, schema)
    return schema


def _with_generated(values: Mapping[str, object], schema: TableSchema, properties: TableProperties) -> dict[str, Any]:
    """Values of columns, with those of the partition columns that are computed from them."""
    found, types = dict(values), spark_schema(schema.arrow)
    for transform in properties.transforms:
        if transform.source in values:
            kind = types[transform.source].dataType
            found[transform.name] = computed(transform, as_column(values[transform.source]).cast(kind), kind)
    return found


def _unqualified(clause: Clause, spec: MergeSpec) -> dict[str, object]:
    """The values of a clause by column: `target.v` is `v`."""
    given: dict[str, object] = {}
    for name, value in (clause.values or {}).items():
        column = name.removeprefix(f"{spec.target_alias}.")
        if column in given:
            raise InputError(f"{clause.name} sets {column} twice", hint="leave out one of the two values")
        given[column] = value
    return given


def _inserts_equated(
    clause: Clause, spec: MergeSpec, side: DataFrame, source: DataFrame, same: Mapping[str, frozenset[str]],
    fixed: tuple[str, ...],
) -> bool:  # fmt: skip
    """Whether the new rows of a clause have such columns of the source in these columns as are the `same`."""
    given = {name: of(spec.source_alias, name) for name in fixed} if clause.values is None else _unqualified(clause, spec)
    return all(name in given and source_column(side, as_column(given[name]), source) in same.get(name, ()) for name in fixed)


def _without_equated(
    values: Mapping[str, object], spec: MergeSpec, side: DataFrame, source: DataFrame, on: MergeCondition
) -> Mapping[str, object]:
    """The values without those that stored rows have anyway: a column gets that of the source which `on` says it equals."""
    same = {f"{prefix}{name}": columns for name, columns in on.same.items() for prefix in ("", f"{spec.target_alias}.")}
    left = {
        name: value
        for name, value in values.items()
        if name not in same or source_column(side, as_column(value), source) not in same[name]
    }
    return left or values


def merge(attempt: Attempt, plan: MergePlan) -> Written:
    """Run a merge. The source is computed once, for all attempts."""
    memory = attempt.memory
    if not isinstance(memory.plan, MergePlan):
        keep_source(plan, attempt.few(plan.source), memory)
    plan = cast("MergePlan", memory.plan).now(attempt.schema, attempt.properties, partial(attempt.known, attempt.tx))
    spec, attempt = plan.spec, attempt.growing(plan.schema)
    after = plan.schema if plan.schema != plan.before else None
    if not plan.repeatable:
        attempt = attempt.forgetful()
    read = files = _read(attempt, plan)
    places = None
    if spec.has(When.NOT_MATCHED):
        # In buckets new rows join a file group that is there, whether or not it was read.
        files = tuple(dict.fromkeys((*read, *_joinable(attempt))))
        may_repeat = attempt.settings.merge_may_duplicate_keys and not attempt.properties.keys_span_partitions
        equated = None if may_repeat else plan.new_keys
        looked_up = _looked_up(attempt) if plan.inserts_equated else None
        places = NewPlaces(attempt.context(), files, looked_up=looked_up, equated=equated, may_repeat=may_repeat)
    elif not read:
        return Written((), after)
    misfit = f"when_matched_update_all would give a stored row another value of {', '.join(plan.compared)}"
    once = not may_match_often(spec.clauses)
    changes = ChangePlan(attempt.context(), files, plan.changed, places, once=once, misfit=misfit)
    return Written(write_changes(attempt, changes, read, partial(_changes, attempt, plan)), after)


def keep_source(plan: MergePlan, few: FewRows | None, memory: Memory) -> None:
    """Have the rows of the source computed once for all attempts; in the plan if they are few."""
    memory.plan = plan if few is None else replace(plan, source=few.frame)
    if few is None:
        memory.frames.keep(plan.source)


def _changes(attempt: Attempt, plan: MergePlan, files: Sequence[DataFile]) -> Rows:
    """Where few keys were looked up, only the stored rows with such a key are read from the files, and here."""
    staged, size_bytes = attempt.memory.staged, sum(file.size_bytes for file in files)
    by_key = plan.keys is not None and not plan.spec.has(When.NOT_MATCHED_BY_SOURCE)
    if by_key and staged is not None and staged.rows.few and staged.keys is not None and is_little(len(files), size_bytes):
        return attempt.rows(plan.changes(_with_keys(attempt, files, staged.keys), few=True), little=True)
    is_few = plan.source._jdf.queryExecution().analyzed().nodeName() == "LocalRelation"
    return attempt.rows(plan.changes(attempt.placed(files)), little=is_few and is_few_bytes(files))


def _with_keys(attempt: Attempt, files: Sequence[DataFile], keys: KeysByPartition) -> DataFrame:
    """The rows of these files that have one of the keys, and their places."""
    schema = pa.schema([*attempt.schema.arrow, (FILE, pa.string()), (ROW, pa.int64())])
    found = [schema.empty_table()]
    for file in files:
        with BaseFile(open_slice(file, attempt.storage, attempt.schema), file.key) as base:
            wanted = keys[file.partition]
            stored = pa.chunked_array([chunk for part in base.key_batches() for chunk in part.chunks], pa.string())
            places = np.flatnonzero(pc.is_in(stored, wanted).to_numpy())
            if len(places):
                rows = pa.concat_tables(base.rows_at(places, attempt.schema))
                named = [*rows.columns, pa.repeat(file.name, len(places)), pa.array(places, pa.int64())]
                found.append(pa.table(named, schema=schema))
    return local_frame(attempt.spark, pa.concat_tables(found), spark_schema(schema))


def _joinable(attempt: Attempt) -> tuple[DataFile, ...]:
    return attempt.tx.current().files if attempt.properties.bucket_index is not None else ()


def _read(attempt: Attempt, plan: MergePlan) -> tuple[DataFile, ...]:
    """Record what the merge reads, and return the files that may hold such rows."""
    files: list[DataFile] = []
    conditions = list(plan.by_source)
    if plan.spec.has(When.MATCHED, When.NOT_MATCHED):
        if plan.keys is None:
            conditions.append(plan.on.of_target)
        elif None not in conditions:
            files += _look_up(attempt, plan.keys, plan.source.alias(plan.spec.source_alias))
    if None in conditions:
        attempt.tx.reads(WholeTable())
        return attempt.tx.current().files
    for condition in conditions:
        assert condition is not None
        files += files_with(attempt, condition)
    return tuple(dict.fromkeys(files))


def _looked_up(attempt: Attempt) -> LookedUpKeys | None:
    """The keys that were looked up for the merge; None if none were, or too many for the driver."""
    staged = attempt.memory.staged
    return None if staged is None or staged.keys is None else LookedUpKeys.of(staged.keys.values())


def _look_up(attempt: Attempt, keys: dict[str, Column], source: DataFrame) -> Iterable[DataFile]:
    """Look up the keys of the source. One with a null equals none."""
    columns = pa.schema([field for field in attempt.schema.arrow if field.name in keys])
    types = spark_schema(columns)
    frame = source.select(*[keys[name].cast(types[name].dataType).alias(name) for name in columns.names])
    frame = frame.where(reduce(Column.__and__, [column(name).isNotNull() for name in columns.names]))
    tagged = look_up(attempt, frame, TagPlan(attempt.context(), TableSchema(columns)), attempt.memory)
    if tagged is None:
        return ()
    partitions = frozenset(partition for partition, _ in tagged.counts)
    attempt.tx.reads(KeysRead("the keys of the merge", partitions, attempt, tagged.looked_up, tagged.keys))
    held = sorted({route for _, route in tagged.counts if route < len(tagged.plan.files)})
    return [tagged.plan.files[number] for number in held]
