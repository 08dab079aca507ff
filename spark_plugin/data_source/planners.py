"""The processes in which Spark plans reads and commits writes of a data source, a new one for each micro-batch.

They run no code of the user's. PyArrow imports pandas when it converts Python values for the first time, to know pandas' values
from others; in such a process there are none, and the import is most of what the process would spend.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa

PLANNERS = ("pyspark.sql.worker.", "pyspark.sql.streaming.")
"""Where the modules are that these processes run: Spark names one when it starts the process."""


def spare_pandas() -> None:
    """In such a process: have PyArrow do without pandas from now on. Code that imports pandas itself still gets it."""
    if "pandas" in sys.modules or not any(argument.startswith(PLANNERS) for argument in sys.orig_argv):
        return
    refusal = _Refusal()
    sys.meta_path.insert(0, refusal)
    try:
        pa.array([])  # PyArrow looks for pandas once, and remembers
    finally:
        sys.meta_path.remove(refusal)


class _Refusal(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("not needed here", name=name)
        return None
