"""lakelock for PySpark: `from lakelock.spark_plugin import LakeTable`.

Everything is imported lazily: Spark imports the data source in every Python worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelock.spark_plugin.supported import require_supported_pyspark

if TYPE_CHECKING:
    from lakelock.spark_plugin.data_source.source_class import LakelockDataSource
    from lakelock.spark_plugin.locking import locked_together
    from lakelock.spark_plugin.registration import register
    from lakelock.spark_plugin.results import RunResult, WriteResult
    from lakelock.spark_plugin.session_sql.running import sql
    from lakelock.spark_plugin.tables.lake_table import LakeTable

__all__ = ["LakeTable", "LakelockDataSource", "RunResult", "WriteResult", "locked_together", "register", "sql"]

_HOMES = {
    "LakeTable": "tables.lake_table",
    "LakelockDataSource": "data_source.source_class",
    "RunResult": "results",
    "WriteResult": "results",
    "locked_together": "locking",
    "register": "registration",
    "sql": "session_sql.running",
}


require_supported_pyspark()


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
