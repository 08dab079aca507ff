"""What has changed in a `LakeTable`: the changed rows, or the feed of deletes, inserts and updates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelock.checked_calls import checked_calls
from lakelock.occ.change_feed import feed_between, position_at
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.reading import ReadView, ensure_in_order, ensure_not_future
from lakelock.spark_plugin.arguments import instant_of
from lakelock.spark_plugin.conditions import Condition
from lakelock.spark_plugin.frames import spark_schema
from lakelock.spark_plugin.scans.changed_rows import changed_rows
from lakelock.spark_plugin.session.lost_spark import needs_spark
from lakelock.table.change_feed import FeedMode, checked_mode, position_of, read_changes
from lakelock.table.eligibility import require_copy_on_write
from lakelock.table.partitions import PartitionValues
from lakelock.table.pruning import Pruning
from lakelock.table.schema import COMMIT_TIME
from lakelock.table.slice_differences import feed_schema
from lakelock.table.snapshot import Snapshot
from lakelock.table.timeline import Timeline


@checked_calls
class TableChanges:
    """The part of a `LakeTable` that tells what commits have changed."""

    _spark: SparkSession
    _coordinator: Coordinator
    _rows: Callable[..., DataFrame]

    @needs_spark
    def changes(
        self,
        since: str | datetime | int,
        *,
        until: str | datetime | int | None = None,
        where: str | Column | None = None,
        feed: FeedMode | None = None,
    ) -> DataFrame:
        """What commits changed that completed after `since`, and not after `until`: instants, times, or a `_commit_version`.

        By default the changed rows in their newest version, with Hudi's five columns in front: `_hoodie_commit_time` is the
        instant of the change. Deleted rows do not appear. `where` chooses among these rows, as in `read`.

        With `feed="commits"` what each commit did, as Delta's change data feed has it: the table's columns, `_change_type`
        (`insert`, `update_preimage`, `update_postimage`, `delete`), `_commit_version`, which grows from commit to commit, and
        `_commit_timestamp`. With `feed="net"` what the commits did together: at most one change for each key, none if it came
        and went, and all with the version and time of the last commit. In both a row that was written again counts as updated,
        whatever its values; optimize changes no row, and an overwrite deletes and inserts. `InputError` that says from when on
        the feed is whole, if old files that it needs were cleaned.
        """
        require_copy_on_write(self._coordinator.properties, "a frame of changed rows")
        table = self._coordinator.table
        timeline = table.timeline_of_one_moment()
        begin = self._position(timeline, since, "since")
        end = None if until is None else self._position(timeline, until, "until")
        ensure_in_order(begin, end)
        if feed is not None:
            return self._feed(begin, end, where, checked_mode(feed))
        changes = read_changes(table.storage, timeline, begin, end)
        shown = ReadView(Snapshot(changes.files), self._coordinator.schema(end, timeline=timeline))
        frame = self._rows(shown, where, include_meta=True)
        return frame.where(F.col(COMMIT_TIME).isin([instant.requested for instant in changes.instants]))

    def _feed(self, begin: str, end: str | None, where: str | Column | None, mode: FeedMode) -> DataFrame:
        table, properties, schema = self._coordinator.table, self._coordinator.properties, self._coordinator.schema()
        shown = spark_schema(feed_schema(schema))
        condition = None if where is None else Condition.of(self._spark, shown, where)
        units = feed_between(table, properties, schema, begin, end, mode).units
        if condition is not None:
            # Partition columns only: what a file says of other columns need not be true of its other slice.
            by = Pruning(condition.predicate, PartitionValues.of(properties, schema.arrow))
            units = tuple(unit for unit in units if by.concerns(unit.partition))
        frame = changed_rows(self._spark, table.location, schema, units, properties.timezone, mode)
        return frame if condition is None else frame.where(condition.on(frame))

    def _position(self, timeline: Timeline, moment: str | datetime | int, name: str) -> str:
        table, zone = self._coordinator.table, self._coordinator.properties.timezone
        if isinstance(moment, int):
            position = position_of(moment)
            return ensure_not_future(table, zone, position, name) if position else position
        return position_at(table, timeline, ensure_not_future(table, zone, instant_of(moment, zone), name))
