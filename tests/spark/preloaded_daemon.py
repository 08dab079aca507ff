"""Spark's Python daemon with everything imported that its processes need: a fork spends no second on imports, over and over.

PySpark imports after the fork, because a library might start threads. Here nothing computes before it. Sessions on S3, on
clusters and on Spark Connect use PySpark's own daemon, as users do.
"""

from __future__ import annotations

import gc
from importlib import import_module
from sys import argv

from pyspark.daemon import manager
from tests.crashing import arm

PRELOADED = ("pandas", "pyarrow.parquet", "pyarrow.dataset", "lakelock.occ.coordinator", "lakelock.spark_plugin", *argv[1:])
"""The arguments name the module of the workers; Spark 3.5 gives none."""

if __name__ == "__main__":
    for module in PRELOADED:
        import_module(module)
    arm()  # a worker is a fork
    gc.freeze()  # PySpark collects after each task, and would look at all of these modules, over and over
    manager()
