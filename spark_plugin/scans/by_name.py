"""Reading exactly the files of a snapshot by naming them to `spark.read`: for a Spark with unexpected internal classes.

Spark lists the folders once more, and does not prune by partition columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakelock.errors import StorageError
from lakelock.spark_plugin.scans.relation import AS_STORED
from lakelock.spark_plugin.session.versions import condition_of
from lakelock.table.snapshot import DataFile

_FILTERS = ("stats", "dictionary", "bloom", "columnindex", "record-level")
NO_FILTERS = {f"parquet.filter.{kind}.enabled": "false" for kind in _FILTERS}
"""Options of a reader that leave filters to Spark alone: Parquet tells 0.0 from -0.0."""
FEW_FILES = 32
MANY_FILES = 4000
_GLOB = re.compile(r"([\\{}\[\]*?])")


def read_files(spark: SparkSession, root: str, files: Sequence[DataFile], schema: StructType) -> DataFrame:
    """A frame over these files and no others, with the columns of `schema`; a column that a file lacks is null there.

    `root` is the table's path as Spark knows it. `StorageError` when a file of the snapshot is already gone.
    Spark takes seconds to plan 2,000 explicit paths, but milliseconds for a name filter over the folder, so there are two ways.
    A name filter is one alternation that every file is matched against: for very many files explicit paths win again.
    """
    if not files:
        return spark.createDataFrame([], schema)
    try:
        frame = _frame(spark, root, files, schema)
    except AnalysisException as error:
        if condition_of(error) != "PATH_NOT_FOUND":
            raise
        raise _gone(files, [], str(error)) from error
    found = {path.rpartition("/")[2] for path in frame.inputFiles()}
    missing = [file.key for file in files if file.name not in found]
    if missing:
        raise _gone(files, missing)
    return frame


def _frame(spark: SparkSession, root: str, files: Sequence[DataFile], schema: StructType) -> DataFrame:
    reader = spark.read.schema(schema).options(recursiveFileLookup="true", **AS_STORED, **NO_FILTERS)
    if len(files) <= FEW_FILES or len(files) > MANY_FILES:
        return reader.parquet(*(_escaped(f"{root}/{file.key}") for file in files))
    names = "{" + ",".join(file.name for file in files) + "}"
    return reader.option("pathGlobFilter", names).parquet(*(_escaped(path) for path in _folders(root, files)))


def _folders(root: str, files: Sequence[DataFile]) -> list[str]:
    """The table's folder, and those inside it that Spark would skip because of how their names begin."""
    hidden = set()
    for partition in {file.partition for file in files}:
        segments = partition.split("/")
        for depth, segment in enumerate(segments):
            if segment.startswith(".") or (segment.startswith("_") and "=" not in segment):
                hidden.add("/".join([root, *segments[: depth + 1]]))
    return [root, *sorted(hidden)]


def _escaped(path: str) -> str:
    return _GLOB.sub(r"\\\1", path)


def _gone(files: Sequence[DataFile], missing: Sequence[str], problem: str = "") -> StorageError:
    """Spark skips files that it does not find, and a cleaner may have removed one: rows must never vanish like that."""
    what = f"{len(missing)} of the {len(files)} files of this snapshot are gone, the first is {missing[0]}" if missing else ""
    return StorageError(
        what or f"a file of this snapshot is gone: {problem.splitlines()[0]}",
        hint="read again; to read as of old times, let the cleaner keep more commits",
        missing=list(missing[:5]),
    )
