"""Tables written by Java Hudi 1.2, unpacked once per test session. `golden/README.md` says what is in each."""

from __future__ import annotations

import json
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakelock.engine.arrow import ArrowEngine
from lakelock.occ.coordinator import Coordinator
from lakelock.storage.location import StorageLocation

_FOLDER = Path(__file__).parent / "golden"
_UNPACKED = tempfile.TemporaryDirectory(prefix="lakelock-golden-")
Row = tuple[str, int, str]

ROWS: dict[str, set[Row]] = {
    "java12_ops": {("k1", 12, "eu"), ("k5", 5, "eu"), ("k8", 8, "ap"), ("k9", 9, "us")},
    "java12_services": {("k1", 4, "eu"), ("k2", 2, "eu")},
    "java12_pending_clustering": {("k1", 4, "eu"), ("k2", 2, "eu"), ("k3", 5, "us"), ("k8", 5, "us"), ("k9", 5, "us")},
    "java12_occ_conflict_left": {("k1", 1, "eu"), ("k2", 600, "eu"), ("k3", 3, "us")},
    "java12_rollback_of_python": {("k1", 55, "eu"), ("k2", 22, "eu"), ("k3", 3, "us")},
    "mixed_archived": {("k1", 106, "eu"), ("k2", 22, "eu"), ("k3", 3, "us")},
    "mixed_java_then_python": {
        ("k1", 1000, "eu"), ("k5", 5, "eu"), ("k9", 9, "us"), ("ow", 7, "ap"), ("p1", 1001, "eu"),
    },
}  # fmt: skip
"""The rows (id, v, region) of each table at its end; `java12_types` has other columns."""

NAMES = tuple(sorted(ROWS))
MERGE_ON_READ = tuple(
    f"java12_mor_{what}"
    for what in (
        "archived", "buckets", "compaction", "deletes", "events", "evolved", "parquet_logs", "partial", "partial_parquet",
        "types", "version_8",
    )
)  # fmt: skip
"""Merge-on-read tables."""
HAND_WRITTEN: dict[str, dict[str, Any]] = json.loads((_FOLDER / "hand_written_mor.json").read_text())
"""What Java Hudi read of each hand-written history of a merge-on-read table: `snapshot`, `read_optimized`, its `moments`."""
VERSION_6 = ("java12_version_6", "java12_version_6_archived", "java12_version_6_mor")
"""Tables of version 6; the last one is merge-on-read."""


def unpack(name: str, folder: Path) -> Path:
    """A copy of a golden table inside `folder`, for a test that changes it."""
    # The first releases of Python 3.10 and 3.11 know no filters.
    safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(_FOLDER / f"{name}.tar.gz") as archive:
        archive.extractall(folder, **safely)
    return folder / name


@cache
def golden_table(name: str) -> Path:
    """The folder of a golden table. Shared between tests: do not change it."""
    return unpack(name, Path(_UNPACKED.name))


def hand_written(name: str) -> Path:
    """The folder of a table with a hand-written history."""
    return golden_table("hand_written_mor") / name


@cache
def seen_by_java(name: str) -> dict[str, Any]:
    """What Java Hudi read of a table that is only read: `snapshot`, `read_optimized`, and as of each of its `moments`."""
    found: dict[str, dict[str, Any]] = json.loads((_FOLDER / "seen_by_java.json").read_text())
    return found[name]


@cache
def decoded(name: str) -> dict[str, dict[str, Any]]:
    """What an independent Avro reader found in each file under `.hoodie`, by the file's key."""
    lines = (_FOLDER / f"{name}.decoded.jsonl").read_text().splitlines()
    return {entry["file"]: entry for entry in map(json.loads, lines)}


@contextmanager
def opened(path: Path) -> Iterator[ArrowEngine]:
    """An engine on a table, without Spark."""
    with Coordinator.open(StorageLocation.of(str(path))) as coordinator:
        yield ArrowEngine(coordinator)


def rows(table: pa.Table) -> list[str]:
    """Rows as `seen_by_java` has them."""
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in table.to_pylist())
