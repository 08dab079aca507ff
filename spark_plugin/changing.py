"""The driver's part in upserts, deletes and updates: rows are found, their file groups claimed, and rewritten.

An upsert or delete by key looks the keys up, claims the file groups that hold them, and rewrites those: three stages of tasks
(`lookup_stages.py`), then a shuffle and the stage that writes. The driver claims all file groups before that, so that a
conflict costs the look-up only. A redo shuffles and writes only the rows of what collided.

Where keys are looked up in all partitions, a row moves to the partition of its new version. Moves are changes to rows by their
places: Spark joins the rows of the call with those that the table has of their keys. The row in the old partition is deleted
and the new version inserted in one commit, with the claims of both. All keys of the call are watched in every partition, so of
two writers who move or insert one key the later commit is rejected.

Changes to rows at their places, as of an update, a move or a merge, are computed once. A redo (ADR 19) takes over what the
attempt before has made of the same. What becomes of a stored row follows from the row and from what the call brought, so a
file whose base file is still there is the same. Whether a row of a merge is new depends on all stored rows: they are compared
with it in each attempt, and files with new rows are taken over only if these are the same.

New rows of a merge whose keys the table may have are looked up before anything is claimed or written. A condition that equates
the whole key has compared each new row with all stored rows of its key, so there is nothing to look up. Any other condition,
and an equation with a null, says nothing about the key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lakelock.engine.file_tasks import Target
from lakelock.errors import DuplicateKeyError, SchemaError
from lakelock.occ.transaction import ALL_ROWS
from lakelock.spark_plugin.arguments import Assignments, fitting_values, grown_by_values, values_are_repeatable
from lakelock.spark_plugin.bucketing import write_buckets
from lakelock.spark_plugin.change_stages import (
    ACTION,
    DELETE,
    DRAWN,
    INSERT,
    PLACE,
    UPDATE,
    ChangePlan,
    ChangeReport,
    NewPlaces,
    RewritePlan,
    change_stage,
    pack_stage,
    rewrite_stage,
)
from lakelock.spark_plugin.conditions import Condition
from lakelock.spark_plugin.lookup import FoundAnywhere, KeysRead, Tagged, files_with, look_up, look_up_anywhere
from lakelock.spark_plugin.lookup_stages import LookedUpKeys, TagPlan
from lakelock.spark_plugin.spark_session import FILE, ROW, arrow_schema, column, spark_schema
from lakelock.spark_plugin.stage_rows import Rows, is_few_bytes
from lakelock.spark_plugin.write_attempt import Attempt, KeptFiles, Memory, Redoing, Written, prepared, prepared_keys
from lakelock.spark_plugin.write_stages import PARCELS, REPORT_SCHEMA, FileTarget, Routes, plan_routes, tasks_for
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.index import bucket_group
from lakelock.table.record_keys import Keyed
from lakelock.table.rows import lacking
from lakelock.table.schema import TableSchema, columns_of_upserts
from lakelock.table.snapshot import DataFile
from lakelock.texts import counted


def _upsert_in_place(attempt: Attempt, df: DataFrame) -> Written:
    """Insert or replace the rows of `df` by key."""
    missing = attempt.missing_in(df)
    frame, schema = prepared(attempt, df, missing=missing)
    columns = columns_of_upserts(schema, arrow_schema(frame.schema), missing)
    if attempt.properties.bucket_index is not None:
        redoing = Redoing.of(attempt, schema)
        return Written(write_buckets(attempt, frame, columns, schema, "upsert", redoing=redoing), schema)
    return _by_key(attempt, frame, columns, schema, deletes=False)


def _delete_keys_in_place(attempt: Attempt, df: DataFrame) -> Written:
    """Delete the rows that have the keys in `df`, which needs the key and partition columns only."""
    frame, columns = prepared_keys(attempt, df)
    return _by_key(attempt, frame, columns, attempt.schema, deletes=True)


def _by_key(attempt: Attempt, frame: DataFrame, columns: TableSchema, schema: TableSchema, *, deletes: bool) -> Written:
    context = attempt.context(schema)
    redoing = Redoing.of(attempt, schema)
    rows = frame if attempt.memory.staged is not None else attempt.rows(frame, by_key=True)
    tagged = look_up(attempt, rows, TagPlan(context, columns), attempt.memory)
    if tagged is None:
        return Written((), None if deletes else schema)
    partitions = frozenset(partition for partition, _ in tagged.counts)
    # Keys were read, found or not: an insert of one of them meanwhile would make this a different write.
    what = "the keys of the delete" if deletes else "the keys of the upsert"
    attempt.tx.reads(KeysRead(what, partitions, attempt, tagged.looked_up, tagged.keys))
    files = tagged.plan.files
    new: dict[Target, object] = {} if deletes else {(partition, None): keys for partition, keys in tagged.new.items()}
    found = {route: count for (_, route), count in tagged.counts.items() if route < len(files)}
    kept = redoing.claimed_and_kept(files, found, new, counts=found)
    settled = frozenset(partition for partition, _ in kept.new)
    work = {
        (partition, route): count
        for (partition, route), count in tagged.counts.items()
        if (route not in kept.files if route < len(files) else not deletes and partition not in settled)
    }
    routes = _routes_by_key(attempt, tagged, work)
    plan = RewritePlan(redoing.context, columns, files, routes, settled, deletes=deletes)
    stats = redoing.note(files, _rewritten_by_key(attempt, tagged, plan, work), kept, new, routes.adopted)
    return Written(stats, None if deletes else schema)


def _routes_by_key(attempt: Attempt, tagged: Tagged, work: Mapping[tuple[str, int], int]) -> Routes:
    targets = [
        FileTarget(file.partition, file.size_bytes, tagged.file_rows.get(number, 0))
        for number, file in enumerate(tagged.plan.files)
    ]
    settings = attempt.settings
    return plan_routes(
        work, targets, tasks=tasks_for(sum(work.values()), attempt.tasks), target_rows=settings.target_file_rows,
        target_bytes=settings.target_file_bytes, row_bytes=tagged.row_bytes, adopts=not attempt.appends,
    )  # fmt: skip


def _rewritten_by_key(
    attempt: Attempt, tagged: Tagged, plan: RewritePlan, work: Mapping[tuple[str, int], int]
) -> tuple[WriteStat, ...]:
    if not work:
        return ()
    rows, wanted = tagged.rows, {route for _, route in work}
    if wanted != {route for _, route in tagged.counts}:
        rows = rows.on_routes(wanted)
    packed = _gathered(rows, plan.routes, plan.files, work)
    what = _rewriting(plan.routes)
    return attempt.written(packed.through(partial(rewrite_stage, plan), REPORT_SCHEMA), what, count=sum(work.values()))


def _rewriting(routes: Routes) -> str:
    return f"rewriting {counted(len(routes.rewritten), 'file group')}" if routes.rewritten else "writing rows"


def _gathered(rows: Rows, routes: Routes, files: Sequence[DataFile], work: Mapping[tuple[str, int], int]) -> Rows:
    size_bytes = sum(files[number].size_bytes for number in routes.rewritten)
    new = {partition for partition, route in work if route >= len(files)}
    return rows.gathered(routes, files=len(routes.rewritten) + len(new - routes.adopted.keys()), size_bytes=size_bytes)


def require_new_keys(attempt: Attempt, plan: ChangePlan, packed: Rows) -> None:
    """`DuplicateKeyError` if the table has the key of a new row among the `packed` changes: in the row's partition or, where
    keys are looked up in all partitions, in any. The keys count as read: an insert of one meanwhile is a conflict.
    """
    properties, memory = attempt.properties, Memory(attempt.kept)
    names = {*properties.record_keys, *(() if properties.keys_span_partitions else properties.partition_fields)}
    columns = pa.schema([field for field in plan.carried if field.name in names])
    keys = packed.without_reports().through(partial(_keys_of_new_rows, plan, columns), columns)
    if properties.keys_span_partitions:
        context = replace(plan.context, properties=properties.unpartitioned())
        anywhere = look_up_anywhere(attempt, keys, TagPlan(context, TableSchema(columns)), memory)
        assert anywhere is not None, "there are new rows"
        partitions, files, looked_up, searched = None, anywhere.files, anywhere.looked_up, anywhere.keys
    else:
        tagged = look_up(attempt, keys, TagPlan(plan.context, TableSchema(columns)), memory)
        assert tagged is not None, "there are new rows"
        partitions, looked_up, searched = frozenset(partition for partition, _ in tagged.counts), tagged.looked_up, tagged.keys
        all_files = tagged.plan.files
        files = tuple(all_files[number] for number in sorted({route for _, route in tagged.counts if route < len(all_files)}))
    read = KeysRead("the keys of the merge's new rows", partitions, attempt, looked_up, searched)
    attempt.tx.reads(read)
    held = read.matches(files) if files else None
    if held is not None:
        raise DuplicateKeyError(
            f"the merge would insert a row whose key the table has already: {held}",
            hint="equate the key in the condition of the merge; table.upsert(df) replaces such rows, and table.insert(df) "
            "stores them beside the others, as does this merge with write.merge_may_duplicate_keys=true",
            keys=[held],
        )


def _keys_of_new_rows(plan: ChangePlan, columns: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    assert plan.inserts is not None
    for _, rows in plan.parcels.unpacked(batches):
        new = rows.filter(pc.is_null(rows.column(PLACE)))
        yield from new.filter(plan.inserts.may_be_stored(new)).select(columns.names).to_batches()


Changes = Callable[[Sequence[DataFile]], Rows]
"""The changes to the rows of some files, and all new rows."""


def write_changes(attempt: Attempt, plan: ChangePlan, read: Sequence[DataFile], changes: Changes) -> tuple[WriteStat, ...]:
    """Apply the changes to the files that are `read`, which the plan has among its own; each change is computed once."""
    if plan.inserts is not None:
        return _with_new_rows(attempt, plan, plan.inserts, changes(read))
    files, matched = plan.files, attempt.memory.matched
    redoing = Redoing.of(attempt, plan.context.schema)
    # An attempt before has looked into these, and has either found nothing to change or written what came of it.
    known = {number for number, file in enumerate(files) if redoing.before.made_from(file) is not None}
    asked = [number for number, file in enumerate(files) if number not in known and matched.get(file.content, True)]
    packed, report = _packed(attempt, plan, changes([files[number] for number in asked])) if asked else (None, ChangeReport())
    found = {number for _, number in report.counts}
    matched.update((files[number].content, number in found) for number in asked)
    if not known | found:
        return ()
    kept = redoing.claimed_and_kept(files, known | found, {}, counts=_by_file(report))
    plan = replace(plan, context=redoing.context)
    written: tuple[WriteStat, ...] = ()
    if packed is not None and found:
        written = _rewritten(attempt, plan, packed, _routes(attempt, files, report.counts, report.row_bytes), report.counts)
    if lost := [files[number] for number in sorted(known - kept.files.keys())]:
        packed, report = _packed(attempt, plan, changes(lost))
        written += _rewritten(attempt, plan, packed, _routes(attempt, files, report.counts, report.row_bytes), report.counts)
    return redoing.note(files, written, kept, {})


def _with_new_rows(attempt: Attempt, plan: ChangePlan, inserts: NewPlaces, changes: Rows) -> tuple[WriteStat, ...]:
    files, redoing = plan.files, Redoing.of(attempt, plan.context.schema)
    packed, report = _packed(attempt, plan, changes)
    if not report.counts:
        return ()
    if report.unsure:
        require_new_keys(attempt, plan, packed)
    numbered = inserts.numbered()
    joined: dict[int, object] = {numbered[target]: rows for target, rows in report.new.sums.items() if target in numbered}
    new: dict[Target, object] = {target: rows for target, rows in report.new.sums.items() if target not in numbered}
    buckets = [bucket_group(partition, bucket) for partition, bucket in sorted(new) if bucket is not None]
    found = {route for _, route in report.counts if route < len(files)}
    # A task rewrites what new rows join, and never appends to it.
    counts = _by_file(report) | dict.fromkeys(joined, ALL_ROWS)
    kept = redoing.claimed_and_kept(files, found, new, buckets, joined, counts=counts)
    plan = replace(plan, context=redoing.context)
    work = _left_over(inserts, report.counts, new, kept)
    if not work:
        return redoing.note(files, (), kept, new, joined=joined)
    routes = _routes(attempt, files, work, report.row_bytes)
    if kept.stats:
        packed = packed.on_routes({route for _, route in work})
    plan = replace(plan, inserts=replace(inserts, routes=routes, settled=frozenset(kept.new)))
    return redoing.note(files, _rewritten(attempt, plan, packed, routes, work), kept, new, routes.adopted, joined)


def _by_file(report: ChangeReport) -> dict[int, int]:
    return {number: count for (_, number), count in report.counts.items()}


def _left_over(
    inserts: NewPlaces, counts: Mapping[tuple[str, int], int], new: Mapping[Target, object], kept: KeptFiles
) -> Counter[tuple[str, int]]:
    """The changes that are not in files that were kept."""
    files, open_targets = len(inserts.files), new.keys() - kept.new.keys()
    slots = inserts.slots(open_targets) if inserts.in_buckets else frozenset()
    left = Counter[tuple[str, int]]()
    for (partition, route), count in counts.items():
        if route < files:
            wanted = route not in kept.files
        else:
            wanted = (partition, route) in slots if inserts.in_buckets else (partition, None) in open_targets
        if wanted:
            left[partition, route] = count
    return left


def _packed(attempt: Attempt, plan: ChangePlan, changes: Rows) -> tuple[Rows, ChangeReport]:
    packed = changes.through(partial(pack_stage, plan), PARCELS)
    attempt.keep(packed)
    reports = [report for report in attempt.reports(packed, "finding the rows") if isinstance(report, ChangeReport)]
    return packed, sum(reports, ChangeReport())


def _routes(attempt: Attempt, files: Sequence[DataFile], counts: Counter[tuple[str, int]], row_bytes: int) -> Routes:
    settings = attempt.settings
    return plan_routes(
        counts, _targets(attempt, files), tasks=tasks_for(counts.total(), attempt.tasks),
        target_rows=settings.target_file_rows, target_bytes=settings.target_file_bytes, row_bytes=row_bytes,
        in_buckets=attempt.properties.bucket_index is not None, adopts=not attempt.appends,
    )  # fmt: skip


def _targets(attempt: Attempt, files: Sequence[DataFile]) -> list[FileTarget]:
    """A file whose number of rows is unknown counts as full, so that new rows do not join it."""
    stats_of, full = attempt.tx.current().stats_of, attempt.settings.target_file_rows
    known = [(file, stats_of(file).rows) for file in files]
    return [FileTarget(file.partition, file.size_bytes, full if rows is None else rows) for file, rows in known]


def _rewritten(
    attempt: Attempt, plan: ChangePlan, packed: Rows, routes: Routes, counts: Counter[tuple[str, int]]
) -> tuple[WriteStat, ...]:
    rows = _gathered(packed.without_reports(), routes, plan.files, counts)
    what = _rewriting(routes)
    return attempt.written(rows.through(partial(change_stage, plan), REPORT_SCHEMA), what, count=counts.total())


_STORED, TIE = "_lakelock_stored_", "_lakelock_tie"
_NEWER, _IN_PLACE, _NTH = "_lakelock_newer", "_lakelock_in_place", "_lakelock_nth"
_SHOWN = 5


def upsert(attempt: Attempt, df: DataFrame) -> Written:
    """Insert or replace the rows of `df` by key."""
    if not attempt.properties.keys_span_partitions:
        return _upsert_in_place(attempt, df)
    missing = attempt.missing_in(df)
    frame, schema = prepared(attempt, df, missing=missing)
    columns = columns_of_upserts(schema, arrow_schema(frame.schema), missing)
    _require_whole(columns, schema)
    return Written(_Moving(attempt, schema).upsert(frame, columns), schema)


def delete_keys(attempt: Attempt, df: DataFrame) -> Written:
    """Delete the rows that have the keys in `df`; where keys are looked up in all partitions, it needs no partition columns."""
    if not attempt.properties.keys_span_partitions:
        return _delete_keys_in_place(attempt, df)
    frame, _ = prepared_keys(attempt, df, partition=False)
    return Written(_Moving(attempt, attempt.schema).delete(frame))


def _require_whole(columns: TableSchema, schema: TableSchema) -> None:
    """`SchemaError` if rows have columns of structs that lack fields: a row that moves has nothing to keep them from."""
    there = {field.name: field for field in schema.arrow}
    lacks = [lack.path for lack in lacking([there[name] for name in columns.names], columns.arrow)]
    if lacks:
        raise SchemaError(
            f"an upsert that may move rows to another partition needs whole columns, and the rows lack {', '.join(lacks)}",
            hint="write the column with all its fields, or leave out the whole column",
            columns=lacks,
        )


def newest(frame: DataFrame, keys: Sequence[Column], ordering: str | None, *, any_row: bool) -> DataFrame:
    """The newest row of each key; of several that are as new one, if `any_row` will do, or else all.

    The column `TIE` is true in all rows of a key but one.
    """
    in_order = Window.partitionBy(*keys).orderBy(F.lit(0) if ordering is None else column(ordering).desc_nulls_last())
    ranked = frame.withColumn(TIE, F.row_number().over(in_order)).withColumn(_NTH, F.rank().over(in_order))
    chosen = ranked.where((F.col(TIE) if any_row else F.col(_NTH)) == 1)
    return chosen.withColumn(TIE, F.col(TIE) > 1).drop(_NTH)


class _Moving:
    """One attempt of a write by keys that are looked up in all partitions."""

    def __init__(self, attempt: Attempt, schema: TableSchema) -> None:
        self._attempt, self._schema, self._context = attempt, schema, attempt.context(schema)
        self._properties = attempt.properties
        self._keys = [column(name) for name in self._properties.record_keys]
        # What an earlier attempt remembers is of another table if its schema or properties were others.
        attempt.memory.begin(attempt.tx.instant, attempt.tx.redo.earlier, schema, self._properties)

    def upsert(self, frame: DataFrame, columns: TableSchema) -> tuple[WriteStat, ...]:
        """Write the rows, which have these columns."""
        rows = self._attempt.memory.kept_rows(lambda: self._newest(frame))
        found = self._found(rows, columns, "the keys of the upsert")
        if found is None:
            return ()
        self._refuse_ties(rows, found)
        kept = [name for name in self._schema.names if name not in columns.names and name in self._attempt.schema.names]
        joined = rows.join(self._stored(found.files, kept), self._same_key(), "left")
        types = spark_schema(self._schema.arrow)
        values = [
            column(name) if name in frame.columns
            else (column(_STORED + name) if name in kept else F.lit(None)).cast(types[name].dataType).alias(name)
            for name in self._schema.names
        ]  # fmt: skip
        changes = self._actions(joined).select(FILE, ROW, ACTION, *values, F.lit(0).cast("long").alias(DRAWN))
        looked_up = None if found.keys is None else LookedUpKeys.of(found.keys.values())
        places = NewPlaces(self._context, found.files, looked_up=looked_up)
        return self._write(changes, ChangePlan(self._context, found.files, tuple(columns.names), places))

    def delete(self, frame: DataFrame) -> tuple[WriteStat, ...]:
        """Delete the rows with these keys."""
        rows = self._attempt.memory.kept_rows(lambda: frame.distinct())
        found = self._found(rows, TableSchema(arrow_schema(frame.schema)), "the keys of the delete")
        if found is None or not found.files:
            return ()
        joined = rows.join(self._stored(found.files, ()), self._same_key())
        changes = joined.select(FILE, ROW, F.lit(DELETE).alias(ACTION))
        return self._write(changes, ChangePlan(self._context, found.files, ()))

    def _write(self, changes: DataFrame, plan: ChangePlan) -> tuple[WriteStat, ...]:
        # The next attempt takes no file over: a row that moved has values of its old place, where they may be others by then.
        rows = self._attempt.rows(changes, little=is_few_bytes(plan.files))
        return write_changes(self._attempt.forgetful(), plan, plan.files, lambda _: rows)

    def _newest(self, frame: DataFrame) -> DataFrame:
        any_row = self._attempt.settings.duplicates == "any"
        return newest(frame, self._keys, self._properties.ordering_field, any_row=any_row)

    def _found(self, rows: DataFrame, columns: TableSchema, what: str) -> FoundAnywhere | None:
        """Look the keys up, and record that they were read, found or not, in every partition."""
        attempt = self._attempt
        context = replace(self._context, properties=self._properties.unpartitioned())
        keys = pa.schema([field for field in columns.arrow if field.name in context.properties.record_keys])
        plan = TagPlan(context, TableSchema(keys))
        found = look_up_anywhere(attempt, rows.select(*[column(name) for name in keys.names]), plan, attempt.memory)
        if found is not None:
            attempt.tx.reads(KeysRead(what, None, attempt, found.looked_up, found.keys))
        return found

    def _refuse_ties(self, rows: DataFrame, found: FoundAnywhere) -> None:
        """`DuplicateKeyError` if two rows of a key are equally new."""
        if found.keys is not None and found.count == len(found.keys[""].unique()):
            return
        with self._attempt.jobs("looking for rows of the same key"):
            ties = rows.where(TIE).select(*self._keys).limit(_SHOWN).collect()
        if not ties:
            return
        keys = pa.schema([field for field in self._schema.arrow if field.name in self._properties.record_keys])
        ties = pa.Table.from_pylist([tie.asDict() for tie in ties], keys)
        examples = Keyed.of(ties, self._properties).keys.to_pylist()
        ordering = self._properties.ordering_field
        equal = f" and equal values of {ordering}" if ordering else ""
        raise DuplicateKeyError(
            f"several rows have the same key{equal}, in one partition or several: {', '.join(examples)}",
            hint="remove the duplicates, give the table an ordering column, or set write.duplicates=any to keep any of them",
            keys=examples,
        )

    def _stored(self, files: Sequence[DataFile], kept: Sequence[str]) -> DataFrame:
        """The rows of these files and their places: the key, partition and ordering columns, and those that are kept."""
        properties, stored = self._properties, self._attempt.placed(files)
        ordering = [] if properties.ordering_field is None else [properties.ordering_field]
        names = dict.fromkeys((*properties.record_keys, *properties.partition_fields, *ordering, *kept))
        columns = [column(name).alias(_STORED + name) for name in names]
        rows = stored.select(*columns, FILE, ROW)
        # Without the hint Spark may collect the stored rows on the driver, to send all of them to every task.
        return rows.hint("merge") if files else rows

    def _same_key(self) -> Column:
        return _all_equal(self._properties.record_keys)

    def _actions(self, joined: DataFrame) -> DataFrame:
        """What becomes of each stored row, and whether its key's new version is inserted, once.

        A stored row that is newer stays where it is, and its key gets no other.
        """
        there, newer, ordering = F.col(FILE).isNotNull(), F.lit(False), self._properties.ordering_field
        if ordering is not None:
            stored, given = column(_STORED + ordering), column(ordering)
            newer = there & stored.isNotNull() & ~F.coalesce(given >= stored, F.lit(False))
        in_place = there & _all_equal(self._properties.partition_fields)
        by_key = Window.partitionBy(*self._keys)
        marked = joined.select(
            "*",
            F.max(newer).over(by_key).alias(_NEWER),
            F.max(in_place).over(by_key).alias(_IN_PLACE),
            F.row_number().over(by_key.orderBy(FILE, ROW)).alias(_NTH),
        )
        change = F.when(there & ~newer, F.when(in_place, F.lit(UPDATE)).otherwise(F.lit(DELETE)))
        insert = F.when((F.col(_NTH) == 1) & ~F.col(_NEWER) & ~F.col(_IN_PLACE), F.lit(INSERT))
        return marked.select("*", F.explode(F.array(change, insert)).alias(ACTION)).where(F.col(ACTION).isNotNull())


def _all_equal(names: Sequence[str]) -> Column:
    return reduce(Column.__and__, [column(name).eqNullSafe(column(_STORED + name)) for name in names])


def update_where(attempt: Attempt, values: Assignments, condition: Condition | None, alias: str = "") -> Written:
    """Give the rows that satisfy the condition new values, computed from the old ones.

    No other writer may add such a row meanwhile.
    """
    before = attempt.schema
    if attempt.settings.merge_schema:
        rows = attempt.read(())
        attempt = attempt.growing(grown_by_values(rows.alias(alias) if alias else rows, values, before))
    files = files_with(attempt, condition)
    if not files:
        return Written()
    same_rows = condition is None or condition.repeatable
    if not (same_rows and values_are_repeatable(attempt.spark, values, attempt.schema, alias)):
        attempt = attempt.forgetful()

    def changes(some: Sequence[DataFile]) -> Rows:
        rows = attempt.placed(some).alias(alias) if alias else attempt.placed(some)
        new = fitting_values(rows, values, attempt.schema)
        chosen = rows if condition is None else rows.where(condition.on(rows))
        changed = chosen.select(
            FILE, ROW, F.lit(UPDATE).alias(ACTION),
            *[new[name].alias(name) for name in attempt.schema.names if name in new],
        )  # fmt: skip
        return attempt.rows(changed, little=is_few_bytes(some))

    plan = ChangePlan(attempt.context(), files, tuple(values))
    return Written(write_changes(attempt, plan, files, changes), attempt.schema if attempt.schema != before else None)


def delete_where(attempt: Attempt, condition: Condition) -> Written:
    """Delete the rows that satisfy the condition. No other writer may add such a row meanwhile."""
    files = files_with(attempt, condition)
    attempt = attempt if condition.repeatable else attempt.forgetful()
    return Written(remove_rows(attempt, files, condition))


def remove_rows(attempt: Attempt, files: tuple[DataFile, ...], condition: Condition) -> tuple[WriteStat, ...]:
    """Delete the rows of these files that satisfy the condition, at their places: exact even where a key occurs twice."""

    def changes(some: Sequence[DataFile]) -> Rows:
        return attempt.rows(deletions(attempt, some, condition), little=is_few_bytes(some))

    return write_changes(attempt, ChangePlan(attempt.context(), files, ()), files, changes)


def deletions(attempt: Attempt, files: Sequence[DataFile], condition: Condition) -> DataFrame:
    """The changes that delete the rows of these files that satisfy the condition; null counts as not satisfied."""
    rows = attempt.placed(files)
    return rows.where(condition.on(rows)).select(FILE, ROW, F.lit(DELETE).alias(ACTION))
