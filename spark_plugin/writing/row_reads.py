"""The rows that a transaction selected by a condition, as a question about the files of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakelock.errors import StorageError
from lakelock.occ.footprint import ReadKind
from lakelock.spark_plugin.conditions import SHOWN_CHARACTERS, Condition
from lakelock.spark_plugin.reading import FILE_GONE
from lakelock.table.pruning import Pruning, StatisticsOf
from lakelock.table.snapshot import DataFile


class RowsRead:
    """The rows that satisfy a condition, as Spark understands it."""

    kind = ReadKind.ROWS

    def __init__(self, condition: Condition, pruning: Pruning, read_files: Callable[[Sequence[DataFile]], DataFrame]) -> None:
        self._condition, self._pruning, self._read_files = condition, pruning, read_files

    @property
    def description(self) -> str:
        return str(self._condition)

    def concerns(self, partition: str) -> bool:
        return self._pruning.concerns(partition)

    def candidates(self, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        return self._pruning.kept(files, statistics)

    def matches(self, files: Sequence[DataFile]) -> str | None:
        files = self._pruning.kept(files)
        if not files:
            return None
        try:
            frame = self._read_files(files)
            found = frame.where(self._condition.on(frame)).limit(1).select(F.to_json(F.struct("*"))).head()
        except StorageError as error:
            return error.message
        except (PySparkException, Py4JJavaError) as error:
            if not FILE_GONE.search(str(error)):
                raise
            return f"{files[0].key}, or another file that it has to look into, is gone"
        return None if found is None else str(found[0])[:SHOWN_CHARACTERS]
