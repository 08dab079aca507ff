"""`spark.readStream.format("lakelock")`: the rows or changes of a table as they are committed, each commit exactly once.

Spark keeps one reader in one Python process as long as the query runs, and its offsets in the checkpoint. An offset names the
commits that were read, so what lies between two offsets stays the same, also after a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lakelock.errors import SchemaError
from lakelock.occ.change_feed import TableStream, ensure_columns_fit, ensure_comparable
from lakelock.occ.targets import resources_of, within
from lakelock.spark_plugin.data_source.asked import check_asked
from lakelock.spark_plugin.data_source.change_options import LATEST, position_of_text
from lakelock.spark_plugin.data_source.options import SourceOptions
from lakelock.spark_plugin.data_source.partitions import FilePartition, UnitPartition, unit_partitions
from lakelock.spark_plugin.data_source.reader import shown_columns
from lakelock.spark_plugin.data_source.told import plainly
from lakelock.spark_plugin.frames import arrow_schema, spark_schema
from lakelock.spark_plugin.peers.uses import Use
from lakelock.spark_plugin.session.conf import OF_READS
from lakelock.table.change_feed import Commit, StreamOffset
from lakelock.table.eligibility import require_copy_on_write
from lakelock.table.timeline import Timeline

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2 a source does not learn of limits and triggers
    ReadAllAvailable = ReadMaxFiles = None  # type: ignore[assignment, misc]
    SupportsTriggerAvailableNow = object  # type: ignore[assignment, misc]

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit


class LakelockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a table from offset to offset. It opens the table where it is first asked for an offset, never in a task."""

    def __init__(
        self, options: Mapping[str, str], schema: StructType, conf: Mapping[str, str], *, all_columns: bool = False
    ) -> None:
        """`all_columns`: the query has not named the columns of `schema`, they were those of the table."""
        self._all_columns = all_columns
        self._parsed = parsed = SourceOptions.parse(options, conf, (Use.STREAM_READ,))
        parsed.changes.check_stream(parsed.as_of)
        self._columns = arrow_schema(schema)
        self._opened: _Opened | None = None
        self._first: StreamOffset | None = None
        self._at: StreamOffset | None = None
        self._target: StreamOffset | None = None

    def __getstate__(self) -> dict[str, object]:
        """Tasks get the options and the columns, and no connection."""
        return {**self.__dict__, "_opened": None}

    @property
    def _table(self) -> _Opened:
        if self._opened is None:
            self._opened = _Opened(self._parsed, self._columns, self._all_columns)
        return self._opened

    @plainly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._at = self._beginning()
        return self._at.to_json()

    def _beginning(self) -> StreamOffset:
        """Where a new query begins: the same offset whenever it is asked for, so that an end that was told comes after it."""
        if self._first is None:
            since, stream = self._parsed.changes.since, self._table.stream
            if since == LATEST:
                self._first = stream.latest()
            else:
                table, zone = stream.table, self._table.coordinator.properties.timezone
                first = None if since is None else position_of_text(table, table.timeline(), since, zone, "since")
                self._first = stream.first(first)
        return self._first

    @plainly
    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """The end of the next batch. Before Spark 4.2 the beginning is what this reader was last asked to plan.

        Before it is asked that, nobody says whether the query is new or where its checkpoint is. Then the end is that of all
        there is, whatever the limit: the end of a part would be a place that the query may have passed.
        """
        self._at = self._at if start is None else StreamOffset.from_json(start)
        everything = self._at is None or (limit is not None and isinstance(limit, ReadAllAvailable))
        if self._at is None:
            self._at = self._beginning()
        end = self._table.stream.next(self._at, None if everything else self._parsed.changes.most_files, self._target)
        return start if start is not None and end == self._at else end.to_json()

    @plainly
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._parsed.changes.most_files
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._table.stream.latest()

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, self._at = StreamOffset.from_json(start), StreamOffset.from_json(end)
        return self._table.partitions(begin, self._at) if begin != self._at else []

    @plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._parsed.ensure_session_known(OF_READS)
        if isinstance(partition, FilePartition | UnitPartition):
            yield from partition.read(self._columns, self._parsed.location.open())

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.coordinator.close()


class _Opened:
    """The table of a running stream."""

    def __init__(self, parsed: SourceOptions, columns: pa.Schema, all_columns: bool) -> None:
        self._parsed, self._columns, self._all_columns = parsed, columns, all_columns
        self.coordinator = parsed.open()
        try:
            require_copy_on_write(self.coordinator.properties, "a stream")
            if parsed.changes.feed:
                ensure_comparable(self.coordinator.properties)
            if not all_columns:
                check_asked(self._shown(), columns)
            self._targets = resources_of(parsed.partition, self.coordinator.properties)
        except BaseException:
            self.coordinator.close()
            raise
        options = parsed.changes
        self.stream = TableStream(
            self.coordinator.table, options.feed, options.skip_change_commits, self._ensure_fits, self._is_wanted
        )

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        """What to read between two offsets. `SchemaError` if the table has other columns than the query."""
        self._check_columns()
        if self._parsed.changes.feed:
            units = [unit for unit in self.stream.units(start, end) if self._is_wanted(unit.partition)]
            return unit_partitions(units, self.coordinator.schema(), self._columns, self.coordinator.properties.timezone)
        found = [each for each in self.stream.appended(start, end) if self._is_wanted(each.file.partition)]
        return [FilePartition(each.file, each.commit_time, streamed=True) for each in found]

    def _ensure_fits(self, timeline: Timeline, commits: Sequence[Commit]) -> None:
        opened = self.coordinator
        ensure_columns_fit(opened.table, opened.properties, opened.schema(), timeline, commits)

    def _is_wanted(self, partition: str) -> bool:
        return not self._targets or within(partition, self._targets)

    def _shown(self) -> pa.Schema:
        return arrow_schema(spark_schema(shown_columns(self.coordinator.schema(), self._parsed)))

    def _check_columns(self) -> None:
        """A query that asked for all columns follows them; one that named some needs those, in types that hold the values."""
        now = self._shown()
        if not self._all_columns:
            check_asked(now, self._columns)
        elif now != self._columns:
            raise SchemaError(
                f"the columns of {self.coordinator.table.storage.uri} have changed since the query started: it has "
                f"{_listed(self._columns)}, the table now {_listed(now)}",
                hint="start the query again with the same checkpoint: it goes on where it was, with the columns as they are",
            )


def _listed(columns: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in columns)
