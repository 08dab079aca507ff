"""What the kernels cost without Spark: CPU of writing, keys, filters, look-ups and merges, and the memory of a big merge.

`python -m benchmarks.kernels [--rows 2000000] [--json]`; ratios compare within one run, so they travel between machines.
"""

from __future__ import annotations

import io
import multiprocessing
import tempfile
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import arguments, rows, show
from lakelock.engine.file_tasks import FileTasks
from lakelock.identity import WriterIdentity
from lakelock.markers.data_files import TaskToken
from lakelock.occ.begin import WriteContext
from lakelock.settings import Settings, WriteSettings
from lakelock.storage.location import StorageLocation
from lakelock.table.base_files import BaseFileWriter, Stamp
from lakelock.table.key_search import tag
from lakelock.table.parquet_footers import BloomFilter
from lakelock.table.properties import TableProperties
from lakelock.table.record_keys import Keyed, record_keys
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile

FIRST, SECOND = "20260101000000000", "20260102000000000"
PROPERTIES = TableProperties.new("bench", ["id"], [], "ts")
TOKEN = TaskToken(0, 0, 0)


def cpu_s(action: Callable[[], object], repeat: int = 3) -> float:
    best = float("inf")
    for _ in range(repeat):
        began = time.process_time()
        action()
        best = min(best, time.process_time() - began)
    return best


def plain_write(table: pa.Table) -> None:
    """What pyarrow needs for the same rows without meta columns, keys and filter: the floor."""
    with pq.ParquetWriter(io.BytesIO(), table.schema, compression="zstd", compression_level=1) as writer:
        for start in range(0, table.num_rows, 250_000):
            writer.write_table(table.slice(start, 250_000))


def base_file_write(table: pa.Table, settings: WriteSettings) -> None:
    schema = TableSchema.from_arrow(table.schema)
    writer = BaseFileWriter(io.BytesIO(), schema, Stamp("bench", FIRST, "", f"f-0_0-0-0_{FIRST}.parquet"), settings)
    for batch in table.to_batches(max_chunksize=10_000):
        part = pa.Table.from_batches([batch])
        writer.add_new(part, record_keys(part, ["id"]))
    writer.close()


def context(root: str, instant: str, schema: TableSchema, target_file_rows: int) -> WriteContext:
    settings = Settings(write=WriteSettings(target_file_rows=target_file_rows))
    writer = WriterIdentity("bench", "bench", "localhost", 1, "bench")
    return WriteContext(StorageLocation.of(root), instant, "UPSERT", writer, PROPERTIES, schema, settings)


def upsert(root: str, paths: list[str], count: int, results: multiprocessing.Queue[dict[str, float]]) -> None:
    """Upsert a tenth of the rows over all files, in a process of its own, for its memory."""
    changes = rows(np.random.default_rng(7).permutation(count * 11 // 10)[: count // 10], 1)
    here = context(root, SECOND, TableSchema.from_arrow(changes.schema), count)
    storage, files = here.location.open(), [file for path in paths if (file := DataFile.parse(path))]
    before_mb = peak_mb()
    upserts, tasks = Keyed.of(changes, PROPERTIES), FileTasks.of(here, storage)
    began, began_s = time.process_time(), time.perf_counter()
    tags = tag(upserts.keys, files, here.io())
    tagged = time.process_time()
    for number, holding in enumerate(tags.holdings):
        positions = holding.positions if number else np.concatenate([holding.positions, tags.missing])
        tasks.rewrite_group(holding.file, TaskToken(0, 0, number), upserts=upserts.pick(positions))
    results.put(
        {
            "tag_cpu_s": tagged - began,
            "merge_cpu_s": time.process_time() - tagged,
            "wall_s": time.perf_counter() - began_s,
            "inputs_mb": before_mb,
            "peak_mb": peak_mb(),
        }
    )


def peak_mb() -> float:
    """The most memory this process has had (Linux). `getrusage` would answer for the parent as well."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


def measured_upsert(count: int, files: int) -> dict[str, float]:
    spawning = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="lakelock-kernels-") as root:
        schema = TableSchema.from_arrow(rows(np.arange(1)).schema)
        parts = (rows(np.arange(start, min(start + 100_000, count)), start) for start in range(0, count, 100_000))
        stats = FileTasks.of(context(root, FIRST, schema, -(-count // files))).write_new_files("", parts, TOKEN)
        results: multiprocessing.Queue[dict[str, float]] = spawning.Queue()
        process = spawning.Process(target=upsert, args=(root, [stat.path for stat in stats], count, results))
        process.start()
        found = results.get(timeout=600)
        process.join()
        return found


def measured(count: int) -> dict[str, dict[str, float]]:
    table = rows(np.random.default_rng(1).permutation(count))
    keys = record_keys(table, ["id"])
    floor = cpu_s(lambda: plain_write(table))
    write = cpu_s(lambda: base_file_write(table, WriteSettings()))
    java_filter = cpu_s(lambda: base_file_write(table, WriteSettings(bloom_entries=60_000, bloom_fpp=1e-9)), 1)
    return {
        "write": {
            "plain_pyarrow_cpu_s": floor,
            "base_file_cpu_s": write,
            "ratio": write / floor,
            "with_javas_filter_cpu_s": java_filter,
        },
        "keys": {
            "one_field_cpu_s": cpu_s(lambda: record_keys(table, ["id"])),
            "four_fields_cpu_s": cpu_s(lambda: record_keys(table, ["carrier", "flight", "origin", "day"])),
            "bloom_1_percent_cpu_s": cpu_s(lambda: BloomFilter.of(keys.chunks, entries=1000, fpp=0.01)),
            "bloom_1e-9_cpu_s": cpu_s(lambda: BloomFilter.of(keys.chunks, entries=1000, fpp=1e-9), 1),
        },
        "upsert of a tenth, 16 files": measured_upsert(count, 16),
        "upsert of a tenth, 1 file": measured_upsert(count, 1),
    }


def main() -> None:
    given = arguments(__doc__, rows=2_000_000)
    for part, numbers in measured(given.rows).items():
        show({"part": part, **numbers}, given.json)


if __name__ == "__main__":
    main()
