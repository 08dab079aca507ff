"""The versions of Spark that the plugin works with; checked once on import, and when a table is opened.

The package imports this module first, also where PySpark is missing, so it imports no PySpark itself.
"""

from __future__ import annotations

import re

from lakelock.errors import UnsupportedSpark

OLDEST = (3, 5)
RANGE = "PySpark 3.5 or newer (tried: 3.5, 4.0, 4.1 and 4.3)"
_OLDEST_WITH_DATA_SOURCES = (4, 0)


def require_supported_pyspark() -> None:
    """`UnsupportedSpark`, which is an `ImportError`, unless this Python has a PySpark that lakelock works with."""
    found = _pyspark_version()
    if is_too_old(found):
        import pyspark

        raise UnsupportedSpark(
            f"lakelock.spark_plugin needs {RANGE}; found PySpark {found} in {pyspark.__path__[0]}",
            hint="use a cluster with a newer Spark, and pip install 'lakelock[spark]' in the Python of its driver and workers; "
            "with this one only the command `lakelock` and the engine without Spark work",
            found=found,
        )


def require_supported_spark(version: str) -> None:
    """`UnsupportedSpark` when the JVM behind a supported PySpark runs a Spark that is too old, or of another generation."""
    pyspark = _pyspark_version()
    if is_too_old(version) or has_data_sources(version) != has_data_sources(pyspark):
        raise UnsupportedSpark(
            f"lakelock.spark_plugin needs {RANGE}; this session's JVM runs Spark {version}, for PySpark {pyspark}",
            hint="let SPARK_HOME, or the cluster that the session connects to, be a Spark of the same version as PySpark",
            found=version,
        )


def no_data_sources() -> UnsupportedSpark:
    """Why there is no `format("lakelock")` with a PySpark that has no data sources in Python, and what there is."""
    found = _pyspark_version()
    return UnsupportedSpark(
        f'format("lakelock") needs PySpark 4.0 or newer; PySpark {found} has no data sources in Python',
        hint="LakeTable.for_path(spark, path) works here: table.read(), table.insert(df), and in a stream "
        "df.writeStream.foreachBatch(table.insert_batch)",
        found=found,
    )


def is_too_old(version: str) -> bool:
    """Whether a version such as `3.5.9` or `4.1.0.dev0` is known to be too old."""
    return _is_before(version, OLDEST)


def has_data_sources(version: str) -> bool:
    """Whether this version, which is not too old, can have data sources in Python: since 4.0."""
    return not _is_before(version, _OLDEST_WITH_DATA_SOURCES)


def _is_before(version: str, other: tuple[int, int]) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < other


def _pyspark_version() -> str:
    try:
        import pyspark
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        raise UnsupportedSpark(
            f"lakelock.spark_plugin needs {RANGE}, which this Python does not have",
            hint="pip install 'lakelock[spark]', or run the program by spark-submit",
        ) from error
    return str(pyspark.__version__)
