"""`make bench`: runs every benchmark with default settings and writes what it found into the page, `benchmarks/README.md`.

`python -m benchmarks [--quick] [NAME ...]`: all, or some by name. `--quick` takes five minutes, on small tables, and prints
only. A program that fails, or lacks a service, is named with its error and leaves its line of the page as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

PAGE = Path(__file__).with_name("README.md")
WITHIN_S = 3600


@dataclass(frozen=True)
class Benchmark:
    """A program, what its line of the page says it compares, and how that line shows the figures that it prints."""

    name: str
    compares: str
    shown: str
    quick: str | None = None
    """Arguments of the quick form; None leaves the program out of it."""
    arguments: str = ""


SMALL = "--rows 200000 --repeat 1"
BENCHMARKS = (
    Benchmark(
        "peers", "The same writes by lakelock, plain Spark, Delta on Spark, delta-rs and Java Hudi", "see [Peers](#peers)",
        f"{SMALL} --small 3",
    ),
    Benchmark(
        "small_writes", "Inserts, upserts, deletes and merges of one or two rows from one Spark session",
        "an insert {insert[wall_s]:.2f} s ({insert[cpu_s]:.2f} of CPU), an upsert {upsert[wall_s]:.2f} ({upsert[cpu_s]:.2f}), "
        "a merge {merge[wall_s]:.2f} ({merge[cpu_s]:.2f}); the first {insert[first_s]:.1f}, {upsert[first_s]:.1f} and "
        "{merge[first_s]:.1f} s",
        "--repeat 5",
    ),
    Benchmark(
        "insert_cpu", "CPU of `insert` with Spark's own Parquet writer writing the same columns",
        "{ratio:.2f} ({insert_cpu_s:.1f} s; {native_cpu_s:.1f} s); {ratio_to_rows_without_meta:.2f} of one without Hudi's five "
        "columns, {ratio_to_zstd:.2f} of one with zstd",
        SMALL,
    ),
    Benchmark(
        "upsert", "Time of `upsert` of a tenth of the rows with a full outer join that writes the same columns",
        "{ratio:.2f} ({upsert_wall_s:.1f} s; {join_wall_s:.1f} s), {ratio_of_cpu:.2f} in CPU", SMALL,
    ),
    Benchmark(
        "small_writers", "Commits a second, waits and shares of 16 writers of one row at a time, at 30 ms a request",
        "{commits_a_second:.0f} a second; median {median_s:.1f} s, 99 % within {p99_s:.1f} s; the least {fewest} of {mean:.0f}",
        "--seconds 10",
    ),
    Benchmark(
        "different_rows", "Upserts a second by 16 writers of different rows of one file group, and 200 deletes by 100 "
        "clients, at 30 ms a request",
        "{copy_on_write_commits_a_second:.0f} a second, in a merge-on-read table {merge_on_read_commits_a_second:.0f}; "
        "{deletes_succeeded} deletes in {deletes_took_s:.0f} s",
        "--seconds 10 --clients 20",
    ),
    Benchmark(
        "growth", "Time of a one-row insert as the table's history grows; what a column costs in a wide table; delta-rs",
        "{disk_ratio:.2f} on this disk, {distant_ratio:.2f} with 30 ms a request; a column {ratio_by_column:.2f}",
        "--commits 300 --distant-commits 150 --columns 1000",
    ),
    Benchmark(
        "requests", "Storage requests of a transaction that writes one file, at 10 and at 2,000 earlier commits",
        "insert {insert_at_10_later} and {insert_at_2000_later}; one after the other {insert_round_trips}, an upsert "
        "{upsert_round_trips}",
    ),
    Benchmark(
        "metadata_table", "CPU that Hudi's metadata table adds to a commit of one row, without Spark",
        "{files_added_ms:.0f} ms with its list of files, {statistics_added_ms:.0f} ms with all statistics of 14 columns",
    ),
    Benchmark(
        "early_detection", "Storage requests per rewritten file group at 1 to 1,000 live writers",
        "{per_group_with_1_live:.0f} and {per_group_with_1000_live:.0f} per group", "",
    ),
    Benchmark(
        "planning", "Seconds from `table.read()` to the plan of a query of one partition, by files",
        "{hive_10000_plan_s:.2f} s at 10,000 files, {hive_100000_plan_s:.1f} s at 100,000",
    ),
    Benchmark("big_group", "Memory of a Python worker in an upsert into a group of 2 million rows", "{worker_peak_mb:.0f} MB"),
    Benchmark(
        "merge_on_read", "CPU of reading after upserts into log files, with reading the base files alone",
        "after ten of the same rows {0[ratio_10]:.1f}, of other rows {1[ratio_10]:.1f}, of random ones {2[ratio_10]:.1f}; of "
        "the same rows without positions {3[ratio_10]:.1f}, in 20 small groups {4[ratio_10]:.1f}",
    ),
    Benchmark(
        "merge_on_read_peers", "Upserts of few and of a tenth of random rows into merge-on-read tables of lakelock and Java "
        "Hudi, Delta with deletion vectors, and lakelock's copy-on-write: bytes, CPU, wall, and reading after 1, 5, 10",
        "see [Small changes](#small-changes)",
    ),
    Benchmark(
        "contention", "Groups written in vain by a collision; commits of 8 processes beside one hot group",
        "{wasted_groups_redone} group; redos bring {gain:.1f} times the commits, {cpu_gain:.1f} in CPU",
    ),
    Benchmark(
        "contention_peers", "The same hot group with delta-rs and Java Hudi",
        "lakelock {lakelock_commits} commits, delta-rs {delta_commits} and {delta_rejected} rejected; a small one: lakelock "
        "{lakelock_short_commits}, Java Hudi {java_commits} and {java_rejected} rejected",
    ),
    Benchmark("stores", "Commits a second on each kind of storage", "local disk: {local}; S3 with 20 ms: {s3_20ms}"),
    Benchmark("locks", "A lock taken and given back, with the bare client of each service", "{times}"),
    Benchmark(
        "false_conflicts", "Rejections that a serial order would have allowed, of the profile `strict`",
        "{strict Serializable[false]} of {strict Serializable[rejected]}",
    ),
)  # fmt: skip


def run(benchmark: Benchmark, arguments: str) -> tuple[list[dict[str, object]], float]:
    """The JSON objects that a program prints, and its seconds. Other lines, which say what it has set, are passed on."""
    command = [sys.executable, "-m", f"benchmarks.{benchmark.name}", *arguments.split(), "--json"]
    began_s = time.monotonic()
    done = subprocess.run(command, cwd=PAGE.parents[1], stdout=subprocess.PIPE, text=True, timeout=WITHIN_S, check=True)
    text, found, at = done.stdout, [], 0
    while (start := text.find("{\n", at)) >= 0:
        print(text[at:start], end="")
        value, at = json.JSONDecoder().raw_decode(text, start)
        found.append(value)
    return found, time.monotonic() - began_s


def figures(found: list[dict[str, object]]) -> dict[str, object]:
    """All figures together; a lock service has a line of its own."""
    merged = {name: value for part in found for name, value in part.items()}
    times = [f"{part['service']} {part['time_ratio']:.2f}" for part in found if "time_ratio" in part]
    return {**merged, "times": ", ".join(times)}


def targets(values: Mapping[str, object], prefix: str = "") -> Iterator[str]:
    """What a program says of its targets."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from targets(value, f"{name} ")
        elif "reached" in str(value) or "MISSED" in str(value):
            what = name.replace("target", "").strip("_").replace("_", " ")
            yield f"{prefix}{what + ' ' if what else ''}{value}"


def peers(values: Mapping[str, object]) -> str:
    """The table of the peers: seconds, and how many times those of lakelock's counterpart."""
    titles = {
        "lakelock_spark": "lakelock on Spark", "parquet_spark": "Spark, Parquet files", "delta_spark": "Delta on Spark",
        "java_hudi": "Java Hudi", "lakelock": "lakelock without Spark", "delta_rs": "delta-rs",
    }  # fmt: skip
    kinds = ("insert", "upsert", "insert_one", "upsert_two")
    lines = ["| | insert | upsert of a tenth | one row, insert | two rows, upsert |", "|---|---|---|---|---|"]
    for peer, title in titles.items():
        if f"{peer}_insert_s" not in values:
            continue
        ours = "lakelock" if peer in ("lakelock", "delta_rs") else "lakelock_spark"
        cells = [_cell(values, f"{peer}_{kind}", f"{ours}_{kind}") for kind in kinds]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def small_changes(values: Mapping[str, object]) -> str:
    """The table of merge-on-read tables and others: what small and large upserts cost, and reading after them."""
    titles = {
        "lakelock_spark": "lakelock on Spark", "lakelock_spark_rewriting": "the same, copy-on-write", "java_hudi": "Java Hudi",
        "delta_spark": "Delta on Spark", "lakelock": "lakelock without Spark", "lakelock_rewriting": "the same, copy-on-write",
    }  # fmt: skip
    lines = ["| | rows | KB | CPU, s | wall, s | reads: CPU, s | compacted |", "|---|---|---|---|---|---|---|"]
    for peer, title in titles.items():
        for kind, rows in (("few", "few"), ("many", "a tenth")):
            start = f"{peer}_{kind}_"
            if f"{start}bytes" not in values:
                continue
            found = {name.removeprefix(start): float(str(each)) for name, each in values.items() if name.startswith(start)}
            reads = [f"{found[name]:.2f}" for name in map("read_cpu_s_{}".format, (0, 1, 5, 10)) if name in found]
            costs = [f"{found['bytes'] / 1024:,.0f}", *(f"{found[name]:.2f}" for name in ("cpu_s", "wall_s"))]
            cells = [title, rows, *costs, ", ".join(reads), f"{found['read_cpu_s_compacted']:.2f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: Mapping[str, object], name: str, ours: str) -> str:
    if f"{name}_s" not in values:
        return ""
    wall_s, cpu_s = (float(str(values[f"{name}{unit}"])) for unit in ("_s", "_cpu_s"))
    own_s, own_cpu_s = (float(str(values[f"{ours}{unit}"])) for unit in ("_s", "_cpu_s"))
    ratios = f": {wall_s / own_s:.1f} and {cpu_s / own_cpu_s:.1f} times" if name != ours else ""
    return f"{wall_s:.2f} s, {cpu_s:.2f} of CPU{ratios}"


TABLES = {"peers": peers, "merge_on_read_peers": small_changes}
"""The benchmarks of which the page has a table."""


def replaced(page: str, name: str, text: str) -> str:
    """The page with this text between the markers of this name."""
    begin, end = f"<!-- {name}: written by make bench -->", f"<!-- end of {name} -->"
    found = re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: f"{begin}\n{text}\n{end}", page, flags=re.DOTALL)
    if begin not in page:
        raise SystemExit(f"{PAGE} has no line {begin}")
    return found


def line_of(benchmark: Benchmark, found: list[dict[str, object]]) -> str:
    values = figures(found)
    said = "; ".join(targets(values)) or "none"
    return f"| `{benchmark.name}` | {benchmark.compares} | {said} | {benchmark.shown.format(*found, **values)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="five minutes, on small tables; prints only")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(each.name for each in BENCHMARKS))
    given = parser.parse_args()
    chosen = [each for each in BENCHMARKS if not given.names or each.name in given.names]
    machine = (
        f"{datetime.now(UTC):%d %B %Y}, {os.cpu_count()} cores with a load of {os.getloadavg()[0]:.1f} before, Python "
        f"{sys.version.split()[0]}, PySpark {version('pyspark')}, PyArrow {version('pyarrow')}"
    )
    print(machine)
    page, failed = PAGE.read_text(), []
    for each in chosen:
        arguments = each.quick if given.quick else each.arguments
        if arguments is None:
            continue
        print(f"\n{each.name} {arguments}".rstrip(), flush=True)
        try:
            found, took_s = run(each, arguments)
            line = line_of(each, found)
        except (subprocess.SubprocessError, LookupError, ValueError) as error:
            failed.append(f"{each.name}: {error!r}")
            continue
        print(line, f"({took_s:.0f} s)", sep="\n", flush=True)
        if each.name in TABLES:
            table = TABLES[each.name](figures(found))
            print(table)
            page = replaced(page, each.name, f"{table}\n\n{machine}.")
        page = re.sub(rf"^\| `{each.name}` \|.*$", lambda _: line, page, flags=re.MULTILINE)  # noqa: B023 - called at once
        if not given.quick:
            PAGE.write_text(page)
    if failed:
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    main()
