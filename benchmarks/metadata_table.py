"""CPU time that Hudi's metadata table adds to a commit of one row: with its list of files, all statistics, the record index.

`python -m benchmarks.metadata_table [--rows 40] [--repeat 3] [--json]`: `rows` commits of one row into a table of 14 columns
that Java Hudi 1.2 made, in one process and without Spark. The targets are 10 ms more with `files`, 25 ms more with statistics,
and 30 ms more with the record index as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
from tests.golden_tables import unpack

from benchmarks.measuring import alternating, arguments, scratch, show, verdict
from lakelock.admin.adopt import Wishes, adopt
from lakelock.engine.arrow import ArrowEngine
from lakelock.occ.coordinator import Coordinator
from lakelock.settings import Settings
from lakelock.storage.location import StorageLocation
from lakelock.table import layout
from lakelock.table.metadata_records import COLUMN_STATS, FILES, PARTITION_STATS, RECORD_INDEX
from lakelock.table.properties import METADATA_PARTITIONS

TARGETS_MS = {"files": 10.0, "statistics": 25.0, "record_index": 30.0}
_STATISTICS = f"{COLUMN_STATS},{FILES},{PARTITION_STATS}"
KEPT = {"files": FILES, "statistics": _STATISTICS, "record_index": f"{_STATISTICS},{RECORD_INDEX}"}


def opened(folder: Path, kept: str) -> ArrowEngine:
    """A table whose metadata table has these partitions; with none it has no metadata table."""
    table = unpack("java12_metadata", folder)
    options = {"concurrency.mode": "SINGLE_WRITER", "upkeep.auto": "false", "transaction.allow_foreign": "true"}
    coordinator = Coordinator.open(StorageLocation.of(table), Settings.resolve(options).settings)
    adopt(coordinator, Wishes(drop_metadata_table=not kept, remove_indexes=bool(kept)))
    properties = table / layout.PROPERTIES
    lines = [line for line in properties.read_text().splitlines() if not line.startswith(METADATA_PARTITIONS)]
    properties.write_text("\n".join([*lines, f"{METADATA_PARTITIONS}={kept}"]) + "\n")
    return ArrowEngine(Coordinator.open(StorageLocation.of(table), Settings.resolve(options).settings))


def commits(engine: ArrowEngine, row: pa.Table, count: int) -> None:
    for _ in range(count):
        engine.insert(row)


def compare(folder: Path, count: int, repeat: int) -> dict[str, object]:
    variants: dict[str, Callable[[], object]] = {}
    for name, kept in {"without": "", **KEPT}.items():
        place = folder / name
        place.mkdir()
        engine = opened(place, kept)
        row = engine.read().slice(0, 1)
        row = row.set_column(row.schema.get_field_index("id"), row.schema.field("id"), pa.array(["new"]))
        variants[name] = partial(commits, engine, row, count)
    costs = {name: cost.cpu_s * 1000 / count for name, cost in alternating(variants, repeat, warm_up=1).items()}
    added = {name: costs[name] - costs["without"] for name in KEPT}
    return {
        **{f"{name}_ms": cost for name, cost in costs.items()},
        **{f"{name}_added_ms": cost for name, cost in added.items()},
        **{f"{name}_target": f"at most {TARGETS_MS[name]:.0f} ms: {verdict(added[name], TARGETS_MS[name])}" for name in KEPT},
    }


def main() -> None:
    given = arguments(__doc__, rows=40, repeat=3)
    logging.disable(logging.WARNING)
    with scratch() as folder:
        show(compare(Path(folder), given.rows, given.repeat), given.json)


if __name__ == "__main__":
    main()
