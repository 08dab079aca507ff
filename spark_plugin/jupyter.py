"""The cell magic `%%lakelock` of Jupyter and IPython: `%load_ext lakelock.spark_plugin.jupyter`, then SQL in a cell.

`%%lakelock` runs the cell with `lakelock.spark_plugin.sql` and shows the first rows; `%%lakelock df` also keeps the frame as
`df`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from lakelock.errors import InputError
from lakelock.spark_plugin.session_sql import sql

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

SHOWN_ROWS = 20


def load_ipython_extension(shell: InteractiveShell) -> None:
    """What `%load_ext` calls."""

    def lakelock(line: str, cell: str) -> None:
        name = line.strip()
        if name and not name.isidentifier():
            raise InputError(f"%%lakelock {name}: not the name of a variable", hint="write %%lakelock, or %%lakelock df")
        frame = sql(_session(shell.user_ns), cell)
        if name:
            shell.user_ns[name] = frame
        frame.show(SHOWN_ROWS, truncate=False)

    shell.magics_manager.register_function(lakelock, magic_kind="cell", magic_name="lakelock")


def _session(names: dict[str, Any]) -> SparkSession:
    """The notebook's `spark`, or the session of its thread."""
    found = names.get("spark")
    session = found if isinstance(found, SparkSession) else SparkSession.getActiveSession()
    if session is None:
        raise InputError("there is no Spark session", hint="make one first: spark = SparkSession.builder.getOrCreate()")
    return session
