"""lakelock for PySpark: `from lakelock.spark_plugin import LakeTable`.

Everything is imported lazily: Spark imports the data source in every Python worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelock.spark_plugin.supported import require_supported_pyspark

if TYPE_CHECKING:
    from lakelock.occ.committed import RunResult, WriteResult
    from lakelock.spark_plugin.lake_table import LakeTable
    from lakelock.spark_plugin.registration import register, unregister
    from lakelock.spark_plugin.session_sql import sql
    from lakelock.spark_plugin.several_tables import snapshot, tables_batch, transaction
    from lakelock.spark_plugin.source_class import LakelockDataSource
    from lakelock.spark_plugin.table_info import locked_together

__all__ = [
    "LakeTable",
    "LakelockDataSource",
    "RunResult",
    "WriteResult",
    "locked_together",
    "register",
    "snapshot",
    "sql",
    "tables_batch",
    "transaction",
    "unregister",
]

_HOMES = {
    "LakeTable": "lakelock.spark_plugin.lake_table",
    "LakelockDataSource": "lakelock.spark_plugin.source_class",
    "RunResult": "lakelock.occ.committed",
    "WriteResult": "lakelock.occ.committed",
    "locked_together": "lakelock.spark_plugin.table_info",
    "register": "lakelock.spark_plugin.registration",
    "snapshot": "lakelock.spark_plugin.several_tables",
    "sql": "lakelock.spark_plugin.session_sql",
    "tables_batch": "lakelock.spark_plugin.several_tables",
    "transaction": "lakelock.spark_plugin.several_tables",
    "unregister": "lakelock.spark_plugin.registration",
}


require_supported_pyspark()


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
