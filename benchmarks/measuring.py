"""What the benchmarks share: their rows, a Spark session, and the CPU time and memory of a whole process tree (Linux)."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def rows(ids: np.ndarray, seed: int = 0) -> pa.Table:
    """Ten columns of the usual kinds: few values, many values, numbers, times."""
    count, rng = len(ids), np.random.default_rng(seed)
    airports = np.array([f"A{i:03}" for i in range(300)])
    return pa.table(
        {
            "id": pa.array(np.char.add("k", ids.astype("U"))),
            "carrier": pa.array(np.array(["AA", "UA", "DL", "WN"])[rng.integers(0, 4, count)]),
            "origin": pa.array(airports[rng.integers(0, 300, count)]),
            "flight": pa.array(rng.integers(1, 5000, count).astype("i4")),
            "delay": pa.array(rng.normal(size=count)),
            "distance": pa.array(rng.integers(0, 3000, count)),
            "ts": pa.array(1_700_000_000_000_000 + np.arange(count) * 1000, pa.timestamp("us", tz="UTC")),
            "day": pa.array((19000 + np.arange(count) // 3000).astype("i4"), pa.date32()),
            "tail": pa.array(np.char.add("N", rng.integers(0, 20_000, count).astype("U"))),
            "fare": pa.array(rng.random(count) * 100),
        }
    )


def write_rows(folder: str, ids: np.ndarray, files: int, seed: int = 0) -> str:
    """The rows of these ids as plain Parquet files, which both sides of a comparison read."""
    Path(folder).mkdir(parents=True)
    for number, part in enumerate(np.array_split(ids, files)):
        pq.write_table(rows(part, seed + number), f"{folder}/part-{number:03}.parquet", row_group_size=250_000)
    return folder


@contextmanager
def spark_session(folder: str, **conf: str) -> Iterator[SparkSession]:
    """A session of two cores, quiet, with its scratch files in `folder`."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": f"{folder}/spark",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.log.level": "ERROR",
        **conf,
    }
    builder = SparkSession.builder.master("local[2]").appName("lakelock-benchmarks")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@dataclass(frozen=True)
class Cost:
    """What one run took."""

    wall_s: float
    cpu_s: float


def measured(action: Callable[[], object]) -> Cost:
    """Wall time, and the CPU time of this process and everything it started."""
    began_cpu_s, began_s = tree_cpu_s(), time.perf_counter()
    action()
    wall_s = time.perf_counter() - began_s
    return Cost(wall_s, tree_cpu_s() - began_cpu_s)


def timed(action: Callable[[], object]) -> float:
    """Seconds on the wall."""
    began_s = time.perf_counter()
    action()
    return time.perf_counter() - began_s


def alternating(variants: Mapping[str, Callable[[], object]], repeat: int, warm_up: int) -> dict[str, Cost]:
    """The median cost of each variant; they take turns, so that a slow minute of the machine hits all of them."""
    for _ in range(warm_up):
        for action in variants.values():
            action()
    found: dict[str, list[Cost]] = {name: [] for name in variants}
    for _ in range(repeat):
        for name, action in variants.items():
            found[name].append(measured(action))
    return {
        name: Cost(statistics.median(c.wall_s for c in costs), statistics.median(c.cpu_s for c in costs))
        for name, costs in found.items()
    }


def tree_cpu_s() -> float:
    """User and system time of this process and its descendants so far, those included that have ended."""
    total = 0.0
    for pid in tree():
        fields = _stat(pid)
        if fields is not None:
            # utime, stime, and both of the children that were waited for
            total += sum(int(value) for value in fields[11:15]) * _TICK_S
    return total


def tree() -> list[int]:
    """This process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))) is not None:
            children.setdefault(int(fields[1]), []).append(int(entry))
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return found


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat from the third (state) on; None when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


class WorkerMemory:
    """The most memory that any of Spark's Python workers had, by looking at each while the block runs."""

    def __init__(self, every_s: float = 0.05) -> None:
        self.peak_mb = 0.0
        self._every_s, self._stopped = every_s, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> WorkerMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._stopped.wait(self._every_s):
            self._look()

    def _look(self) -> None:
        own = os.getpid()
        for pid in tree():
            if pid != own and b"pyspark" in _read(f"/proc/{pid}/cmdline") and not _is_java(pid):
                self.peak_mb = max(self.peak_mb, _high_water_mb(pid))


def _is_java(pid: int) -> bool:
    return b"java" in _read(f"/proc/{pid}/cmdline").split(b"\0")[0]


def _high_water_mb(pid: int) -> float:
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def arguments(description: str | None, **numbers: int) -> argparse.Namespace:
    """The command line of a benchmark: whole numbers with their defaults, and `--json`."""
    parser = argparse.ArgumentParser(description=description)
    for name, default in numbers.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, help=f"default {default:,}")
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser.parse_args()


def show(found: Mapping[str, object], as_json: bool) -> None:
    if as_json:
        print(json.dumps(found, indent=2))
        return
    width = max(len(name) for name in found)
    for name, value in found.items():
        text = f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
        print(f"{name:{width}}  {text:>10}")


def verdict(value: float, target: float) -> str:
    return "reached" if value <= target else "MISSED"


@contextmanager
def scratch() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="lakelock-benchmark-") as folder:
        yield folder
