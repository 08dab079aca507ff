"""Small and large upserts, and the reads after them, in tables that take changes beside their files, and in one that does not.

`python -m benchmarks.merge_on_read_peers [--rows 2000000] [--few 100] [--many 200000] [--commits 10] [--json]`: lakelock's
merge-on-read and copy-on-write tables with and without Spark, Java Hudi's merge-on-read, Delta with deletion vectors. Into a
table of so many rows of ten columns go ten upserts of `few` random rows that are there, into another one of `many`: bytes
written, CPU and wall time, the mean of all but the first, as some compact on their way. After 1, 5 and 10 of them, and after a
compaction, all rows are read. Each peer runs in a process of its own with its defaults, local[2] where it has Spark; what
cannot be installed is left out.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.measuring import arguments, measured, scratch, show, spark_session, write_rows
from benchmarks.peer_writes import DeltaOnSpark, JavaHudi, Lakelock, LakelockOnSpark, OfSpark

READ_AFTER = (1, 5, 10)
READS = 3
"""Of so many reads the median counts, after one that does not."""
KINDS = ("few", "many")
HERE = Path(__file__).parents[1]


class Reads(OfSpark):
    """Reading by Spark: all rows, which are counted. Delta takes no `noop` sink."""

    def frame(self, path: str) -> Any:
        return self.spark.read.format(self.format).load(path)

    format = "parquet"

    def read_all(self, path: str) -> None:
        self.frame(path)._jdf.queryExecution().toRdd().count()


class LoggedLakelock(LakelockOnSpark, Reads):
    table_type = "MERGE_ON_READ"

    def create(self, path: str, source: str) -> None:
        from lakelock.spark_plugin import LakeTable

        frame = self.read(source)
        self.tables[path] = LakeTable.create(self.spark, path, schema=frame, key="id", table_type=self.table_type)
        self.tables[path].insert(frame)

    def frame(self, path: str) -> Any:
        return self.tables[path].read()

    def compact(self, path: str) -> None:
        self.tables[path].optimize().executeCompaction()


class RewritingLakelock(LoggedLakelock):
    table_type = "COPY_ON_WRITE"


class LoggedJava(JavaHudi, Reads):
    format = "hudi"

    def _write(self, path: str, frame: Any, operation: str) -> None:
        options = {
            "hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.operation": operation, "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        }  # fmt: skip
        frame.write.format("hudi").options(**options).mode("append").save(path)

    def compact(self, path: str) -> None:
        self.spark.sql(f"call run_compaction(op => 'scheduleAndExecute', path => '{path}')").collect()


class DeltaWithVectors(DeltaOnSpark, Reads):
    conf: ClassVar = {
        **DeltaOnSpark.conf,
        "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
    }
    format = "delta"

    def compact(self, path: str) -> None:
        self.spark.sql(f"REORG TABLE delta.`{path}` APPLY (PURGE)").collect()


class LoggedWithoutSpark(Lakelock):
    table_type = "mor"

    def create(self, path: str, source: str) -> None:
        import lakelock

        frame = self.read(source)
        self.tables[path] = lakelock.create(path, schema=frame.schema, key="id", table_type=self.table_type)
        self.tables[path].insert(frame)

    def read_all(self, path: str) -> None:
        self.tables[path].read()

    def compact(self, path: str) -> None:
        from lakelock.engine.arrow import ArrowEngine
        from lakelock.occ.coordinator import Coordinator
        from lakelock.storage.location import StorageLocation

        with Coordinator.open(StorageLocation.of(path)) as coordinator:
            ArrowEngine(coordinator).optimize()


class RewritingWithoutSpark(LoggedWithoutSpark):
    table_type = "cow"


ON_SPARK = {
    "lakelock_spark": LoggedLakelock, "lakelock_spark_rewriting": RewritingLakelock, "java_hudi": LoggedJava,
    "delta_spark": DeltaWithVectors,
}  # fmt: skip
WITHOUT = {"lakelock": LoggedWithoutSpark, "lakelock_rewriting": RewritingWithoutSpark}


def sizes(path: str) -> dict[str, int]:
    """The bytes of each file of a table, those of its log of commits among them."""
    return {str(file): file.stat().st_size for file in Path(path).rglob("*") if file.is_file() and file.suffix != ".crc"}


def written(peer: Any, folder: str, path: str, kind: str, commits: int) -> dict[str, float]:
    """What upserts of one kind cost, and reading after them."""
    found: dict[str, float] = {}
    costs, sizes_bytes = [], []
    peer.create(path, f"{folder}/source")
    found["read_cpu_s_0"] = read(peer, path)
    for number in range(1, commits + 1):
        before = sizes(path)
        costs.append(measured(lambda number=number: peer.upsert(path, f"{folder}/{kind}-{number}")))  # type: ignore[misc]
        after = sizes(path)
        sizes_bytes.append(sum(size for name, size in after.items() if before.get(name) != size))
        if number in (*READ_AFTER, commits):
            found[f"read_cpu_s_{number}"] = read(peer, path)
    later = costs[1:] or costs
    found["wall_s"] = statistics.mean(cost.wall_s for cost in later)
    found["cpu_s"] = statistics.mean(cost.cpu_s for cost in later)
    found["bytes"] = statistics.mean(sizes_bytes[1:] or sizes_bytes)
    found["compaction_cpu_s"] = measured(lambda: peer.compact(path)).cpu_s
    found["read_cpu_s_compacted"] = read(peer, path)
    return found


def read(peer: Any, path: str) -> float:
    """CPU seconds of reading all rows."""
    peer.read_all(path)
    return statistics.median(measured(lambda: peer.read_all(path)).cpu_s for _ in range(READS))


def run(name: str, folder: str, jars: str, commits: int) -> dict[str, float]:
    found: dict[str, float] = {}

    def both(peer: Any) -> None:
        for kind in KINDS:
            costs = written(peer, folder, f"{folder}/{name}-{kind}", kind, commits)
            found.update({f"{kind}_{what}": value for what, value in costs.items()})

    if name in WITHOUT:
        both(WITHOUT[name]())
        return found
    kind_of_peer = ON_SPARK[name]
    with spark_session(folder, **kind_of_peer.conf, **({"spark.jars": jars} if jars else {})) as spark:
        both(kind_of_peer(spark))
    return found


def parent() -> None:
    from benchmarks.peers import environments

    given = arguments(__doc__, rows=2_000_000, few=100, many=200_000, commits=max(READ_AFTER))
    found: dict[str, object] = {}
    with scratch() as folder:
        write_rows(f"{folder}/source", np.random.default_rng(1).permutation(given.rows), files=4)
        for kind, count in zip(KINDS, (given.few, given.many), strict=True):
            for number in range(1, given.commits + 1):
                chosen = np.random.default_rng(number).choice(given.rows, count, replace=False)
                write_rows(f"{folder}/{kind}-{number}", chosen, files=1, seed=100 + number)
        there = {name: (python, jars) for name, python, jars in environments()}
        for name in (*ON_SPARK, *WITHOUT):
            installed = there.get(name.removesuffix("_rewriting"))
            if installed is None:
                continue
            python, jars = installed
            command = [python, "-m", "benchmarks.merge_on_read_peers", "--peer", name, folder, jars, str(given.commits)]
            environment = {**os.environ, "PYTHONPATH": str(HERE)}
            done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True)
            if done.returncode:
                print(f"{name}: {done.stderr.strip()[-500:]}", file=sys.stderr)
                continue
            found |= {f"{name}_{what}": value for what, value in json.loads(done.stdout.splitlines()[-1]).items()}
    show(found, given.json)


def main() -> None:
    if sys.argv[1:2] != ["--peer"]:
        return parent()
    _, _, name, folder, jars, commits = sys.argv
    print(json.dumps(run(name, folder, jars, int(commits))))
    return None


if __name__ == "__main__":
    main()
