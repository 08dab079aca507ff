"""How far a reader walks to follow one call: the modules and functions of lakelock that it enters.

    python -m tests.packaging.walks
    python -m tests.packaging.walks --spark

Each call is the second of its kind, with one row, so that what happens once per process is not counted. Threads of the driver
are counted, Spark's Python workers are not. A function is a code object, so a comprehension is one where Python makes it one.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType

import pyarrow as pa

from lakelock.clock import SystemRuntime
from lakelock.engine.arrow import ArrowEngine
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.create import create_table
from lakelock.settings import Settings
from lakelock.storage.location import StorageLocation
from lakelock.storage.memory import MemoryStorage
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64()), ("month", pa.string())])
BY_ROOM = 4


@dataclass
class Walk:
    """The code that one call entered."""

    modules: dict[str, set[CodeType]] = field(default_factory=dict)
    calls: int = 0

    def enter(self, frame: FrameType, event: str, _: object) -> None:
        """The callback of `sys.setprofile`."""
        name = frame.f_globals.get("__name__", "")
        if event == "call" and (name == "lakelock" or name.startswith("lakelock.")):
            self.modules.setdefault(name, set()).add(frame.f_code)
            self.calls += 1

    @property
    def functions(self) -> int:
        return sum(map(len, self.modules.values()))

    @property
    def rooms(self) -> str:
        """The folders with the most modules."""
        counted = Counter(name.split(".")[1] if name.count(".") else name for name in self.modules)
        return ", ".join(f"{room} {modules}" for room, modules in counted.most_common(BY_ROOM))


@contextmanager
def walking() -> Iterator[Walk]:
    """Follow everything that this process does in the block."""
    walk = Walk()
    threading.setprofile(walk.enter)
    sys.setprofile(walk.enter)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def second(call: Callable[[int], object]) -> Walk:
    """The walk of the second call; it gets its number."""
    call(1)
    with walking() as walk:
        call(2)
    return walk


def rows_of(number: int) -> pa.Table:
    return pa.table({"id": [f"k{number}"], "v": [number], "month": ["1"]}, SCHEMA)


def arrow_walks() -> Iterator[tuple[str, Walk]]:
    """Small calls of the engine without Spark, in memory."""
    storage = MemoryStorage()
    schema = TableSchema.from_arrow(SCHEMA).to_avro_json("t")
    properties = TableProperties.new("t", record_keys=("id",), partition_fields=("month",), create_schema=schema)
    create_table(storage, properties, SystemRuntime())
    location = StorageLocation(storage.uri)
    engine = ArrowEngine(Coordinator.open(location, Settings(), runtime=SystemRuntime(), storage=storage))
    yield "ArrowEngine.insert", second(lambda n: engine.insert(rows_of(n)))
    yield "ArrowEngine.upsert", second(lambda n: engine.upsert(rows_of(n)))
    yield "ArrowEngine.delete", second(lambda n: engine.delete_keys(rows_of(n).select(["id", "month"])))
    yield "ArrowEngine.read", second(lambda n: engine.read())


def spark_walks() -> Iterator[tuple[str, Walk]]:
    """Small calls of the Spark plugin, in a temporary folder."""
    from pyspark.sql import DataFrame, SparkSession

    from lakelock.spark_plugin import LakeTable, sql

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/table"

        def rows(number: int) -> DataFrame:
            return spark.createDataFrame([(f"k{number}", number, "1")], "id string, v long, month string")

        table = LakeTable.create(spark, path, schema=rows(1).schema, key="id", partition_by="month")
        table.upsert(rows(0))
        frames = {number: rows(number) for number in (1, 2)}
        yield "LakeTable.upsert", second(lambda n: table.upsert(frames[n]))
        yield "LakeTable.read, collected", second(lambda n: table.read("month = '1'").collect())
        yield "LakeTable.update", second(lambda n: table.update({"v": f"v + {n}"}, "id = 'k1'"))
        update = f"UPDATE lakelock.`{path}` SET v = v + {{}} WHERE id = 'k1'"
        yield "sql UPDATE", second(lambda n: sql(spark, update.format(n)))
    spark.stop()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--spark", action="store_true", help="walk through the Spark plugin, too")
    arguments.add_argument("--modules", action="store_true", help="name the modules of each walk")
    asked = arguments.parse_args()
    print(f"{'call':26} {'modules':>7} {'functions':>9} {'calls':>6}  most modules")
    for walks in (arrow_walks, spark_walks) if asked.spark else (arrow_walks,):
        for name, walk in walks():
            print(f"{name:26} {len(walk.modules):7} {walk.functions:9} {walk.calls:6}  {walk.rooms}")
            for module in sorted(walk.modules) if asked.modules else ():
                print(f"    {module}: {len(walk.modules[module])}")


if __name__ == "__main__":
    main()
