"""The versions of Spark that the plugin works with; checked once on import, and when a table is opened."""

from __future__ import annotations

import re

from lakelock.errors import UnsupportedSpark

OLDEST = (4, 0)
RANGE = "PySpark 4.0 or newer (tried up to 4.3)"


def require_supported_pyspark() -> None:
    """`UnsupportedSpark`, which is an `ImportError`, unless this Python has a PySpark that lakelock works with."""
    try:
        import pyspark
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        raise UnsupportedSpark(
            f"lakelock.spark_plugin needs {RANGE}, which this Python does not have",
            hint="pip install 'lakelock[spark]', or run the program by spark-submit",
        ) from error
    if is_too_old(pyspark.__version__):
        raise UnsupportedSpark(
            f"lakelock.spark_plugin needs {RANGE}; found PySpark {pyspark.__version__} in {pyspark.__path__[0]}",
            hint="use a cluster with Spark 4, and pip install 'lakelock[spark]' in the Python of its driver and workers; "
            "with Spark 3 only the command `lakelock` and the engine without Spark work",
            found=pyspark.__version__,
        )


def require_supported_spark(version: str) -> None:
    """`UnsupportedSpark` when the JVM behind a supported PySpark runs an older Spark."""
    if is_too_old(version):
        raise UnsupportedSpark(
            f"lakelock.spark_plugin needs {RANGE}; this session's JVM runs Spark {version}",
            hint="let SPARK_HOME, or the cluster that the session connects to, be a Spark of the same version as PySpark",
            found=version,
        )


def is_too_old(version: str) -> bool:
    """Whether a version such as `3.5.9` or `4.1.0.dev0` is known to be too old."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < OLDEST
