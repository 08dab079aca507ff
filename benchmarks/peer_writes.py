"""The writes that `peers` compares, by one of them: `python -m benchmarks.peer_writes NAME FOLDER JARS REPEAT SMALL`.

It runs in the environment that has the peer, so it imports nothing of lakelock before it is lakelock's turn.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import measured, rows, spark_session

SMALL_TABLE = 100_000


class Peer(Protocol):
    """Writes tables whose key is `id`. Rows come as the path of a folder with Parquet files, or, if few, as ids and a fare."""

    def create(self, path: str, source: str) -> None:
        """Make a table of these rows."""

    def upsert(self, path: str, source: str) -> None: ...

    def insert_few(self, path: str, ids: list[int]) -> None: ...

    def upsert_few(self, path: str, ids: list[int]) -> None: ...


class OfSpark:
    """What peers on Spark have in common."""

    conf: ClassVar[Mapping[str, str]] = {}

    def __init__(self, spark: Any) -> None:
        self.spark = spark

    def read(self, source: str) -> Any:
        return self.spark.read.parquet(source)

    def few(self, ids: list[int]) -> Any:
        values = rows(np.array(ids)).to_pylist()
        return self.spark.createDataFrame([tuple(value.values()) for value in values], self.columns)

    columns = (
        "id string, carrier string, origin string, flight int, delay double, distance bigint, ts timestamp, day date, "
        "tail string, fare double"
    )


class LakelockOnSpark(OfSpark):
    def __init__(self, spark: Any) -> None:
        super().__init__(spark)
        self.tables: dict[str, Any] = {}

    def create(self, path: str, source: str) -> None:
        from lakelock.spark_plugin import LakeTable

        frame = self.read(source)
        self.tables[path] = LakeTable.create(self.spark, path, schema=frame, key="id")
        self.tables[path].insert(frame)

    def upsert(self, path: str, source: str) -> None:
        self.tables[path].upsert(self.read(source))

    def insert_few(self, path: str, ids: list[int]) -> None:
        self.tables[path].insert(self.few(ids))

    def upsert_few(self, path: str, ids: list[int]) -> None:
        self.tables[path].upsert(self.few(ids))


class PlainSpark(OfSpark):
    """Parquet files without a table: an upsert joins and writes everything anew."""

    def create(self, path: str, source: str) -> None:
        self.read(source).write.parquet(f"{path}/0")

    def upsert(self, path: str, source: str) -> None:
        from benchmarks.upsert import joined

        joined(self.read(f"{path}/0"), self.read(source), "").write.parquet(f"{path}/{source.rpartition('-')[2]}")

    def insert_few(self, path: str, ids: list[int]) -> None:
        self.few(ids).write.mode("append").parquet(f"{path}/0")


class DeltaOnSpark(OfSpark):
    conf: ClassVar = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }

    def create(self, path: str, source: str) -> None:
        self.read(source).write.format("delta").save(path)

    def _merge(self, path: str, frame: Any) -> None:
        from delta.tables import DeltaTable

        table = DeltaTable.forPath(self.spark, path).alias("t")
        table.merge(frame.alias("s"), "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    def upsert(self, path: str, source: str) -> None:
        self._merge(path, self.read(source))

    def insert_few(self, path: str, ids: list[int]) -> None:
        self.few(ids).write.format("delta").mode("append").save(path)

    def upsert_few(self, path: str, ids: list[int]) -> None:
        self._merge(path, self.few(ids))


class JavaHudi(OfSpark):
    conf: ClassVar = {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    }

    def _write(self, path: str, frame: Any, operation: str) -> None:
        options = {
            "hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.operation": operation,
        }  # fmt: skip
        frame.write.format("hudi").options(**options).mode("append").save(path)

    def create(self, path: str, source: str) -> None:
        self._write(path, self.read(source), "bulk_insert")

    def upsert(self, path: str, source: str) -> None:
        self._write(path, self.read(source), "upsert")

    def insert_few(self, path: str, ids: list[int]) -> None:
        self._write(path, self.few(ids), "insert")

    def upsert_few(self, path: str, ids: list[int]) -> None:
        self._write(path, self.few(ids), "upsert")


class OfArrow:
    """What peers without Spark have in common: large inputs are in memory before they are measured."""

    def __init__(self) -> None:
        self._read: dict[str, pa.Table] = {}

    def read(self, source: str) -> pa.Table:
        return self._read[source] if source in self._read else self._read.setdefault(source, pq.read_table(source))


class Lakelock(OfArrow):
    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, Any] = {}

    def create(self, path: str, source: str) -> None:
        import lakelock

        frame = self.read(source)
        self.tables[path] = lakelock.create(path, schema=frame.schema, key="id")
        self.tables[path].insert(frame)

    def upsert(self, path: str, source: str) -> None:
        self.tables[path].upsert(self.read(source))

    def insert_few(self, path: str, ids: list[int]) -> None:
        self.tables[path].insert(rows(np.array(ids)))

    def upsert_few(self, path: str, ids: list[int]) -> None:
        self.tables[path].upsert(rows(np.array(ids)))


class DeltaRs(OfArrow):
    def create(self, path: str, source: str) -> None:
        from deltalake import write_deltalake

        write_deltalake(path, self.read(source))

    def _merge(self, path: str, changes: pa.Table) -> None:
        from deltalake import DeltaTable

        merge = DeltaTable(path).merge(changes, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def upsert(self, path: str, source: str) -> None:
        self._merge(path, self.read(source))

    def insert_few(self, path: str, ids: list[int]) -> None:
        from deltalake import write_deltalake

        write_deltalake(path, rows(np.array(ids)), mode="append")

    def upsert_few(self, path: str, ids: list[int]) -> None:
        self._merge(path, rows(np.array(ids)))


ON_SPARK = {"lakelock_spark": LakelockOnSpark, "parquet_spark": PlainSpark, "delta_spark": DeltaOnSpark, "java_hudi": JavaHudi}
WITHOUT = {"lakelock": Lakelock, "delta_rs": DeltaRs}


@contextmanager
def opened(name: str, folder: str, jars: str) -> Iterator[Any]:
    if name in WITHOUT:
        yield WITHOUT[name]()
        return
    kind = ON_SPARK[name]
    with spark_session(folder, **kind.conf, **({"spark.jars": jars} if jars else {})) as spark:
        yield kind(spark)


def run(name: str, folder: str, jars: str, repeat: int, small: int) -> dict[str, float]:
    """Seconds on the wall and of CPU of each kind of write."""
    found: dict[str, float] = {}
    numbers = count(10_000_000)
    with opened(name, f"{folder}/{name}", jars) as peer:

        def tell(what: str, actions: Iterator[Callable[[], object]]) -> None:
            first, *later = [measured(action) for action in actions]
            found[f"{what}_first_s"] = first.wall_s
            found[f"{what}_s"] = statistics.median(cost.wall_s for cost in later)
            found[f"{what}_cpu_s"] = statistics.median(cost.cpu_s for cost in later)

        if hasattr(peer, "_read"):
            for source in Path(folder).glob("source*"):
                peer.read(str(source))
        source, table = f"{folder}/source", f"{folder}/{name}/table-{{}}".format
        tell("insert", (lambda n=n: peer.create(table(n), source) for n in range(repeat + 1)))  # type: ignore[misc]
        tell("upsert", (lambda n=n: peer.upsert(table(0), f"{folder}/source-{n}") for n in range(1, repeat + 2)))  # type: ignore[misc]
        peer.create(table("few"), f"{folder}/source_few")
        few = table("few")
        tell("insert_one", (lambda: peer.insert_few(few, [next(numbers)]) for _ in range(small + 1)))
        if hasattr(peer, "upsert_few"):
            known = np.random.default_rng(5)
            both = (lambda: peer.upsert_few(few, [int(known.integers(SMALL_TABLE)), next(numbers)]) for _ in range(small + 1))
            tell("upsert_two", both)
    return found


def main() -> None:
    _, name, folder, jars, repeat, small = sys.argv
    print(json.dumps(run(name, folder, jars, int(repeat), int(small))))


if __name__ == "__main__":
    main()
