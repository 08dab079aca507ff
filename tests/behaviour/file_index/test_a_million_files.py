"""A table of a million files: how much memory a process needs that opens it, and writes to one partition."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.api import layout, open_storage, read_timeline
from tests.behaviour.tables import light_commits, new_table

from lakelock.table.checkpoint import ROWS, Checkpoint, LoadedRows
from lakelock.table.snapshot import Coverage

FILES, PARTITIONS = 1_000_000, 1_000
MOST_BYTES = 500_000_000

WRITE = """
import sys
from pathlib import Path
import pyarrow as pa
from lakelock.engine.arrow import ArrowEngine
from lakelock.occ.coordinator import Coordinator
from lakelock.settings import CheckpointSettings, Settings, UpkeepSettings
from lakelock.storage.location import StorageLocation

settings = Settings(checkpoint=CheckpointSettings(every_commits=5), upkeep=UpkeepSettings(auto=False))
with Coordinator.open(StorageLocation(sys.argv[1]), settings) as coordinator:
    files = coordinator.snapshot().in_partition("month=0007")
    done = ArrowEngine(coordinator).insert(pa.table({"id": ["new"], "v": [1], "month": ["0007"]}))
    status = Path("/proc/self/status").read_text().split()  # ru_maxrss would count the parent, too
    print(len(files), done.files, int(status[status.index("VmHWM:") + 1]) * 1024)
"""


@pytest.mark.in_ci
@pytest.mark.slow
def test_a_table_of_a_million_files_is_opened_and_written_in_half_a_gigabyte(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    new_table(storage)
    light_commits(storage, 0, 11)  # more than a process would read instead of the checkpoint
    storage.put_if_absent(layout.checkpoint(1), million(Coverage().with_all_of(read_timeline(storage))).to_bytes())
    ran = subprocess.run(
        [sys.executable, "-c", WRITE, str(tmp_path)], capture_output=True, text=True, timeout=300, check=True, cwd=tmp_path
    )
    files, written, most_bytes = map(int, ran.stdout.split())
    assert (files, written) == (FILES // PARTITIONS, 1)
    assert most_bytes < MOST_BYTES, f"{most_bytes / 1e6:.0f} MB"


def million(coverage: Coverage) -> Checkpoint:
    """A checkpoint of files as ten thousand commits might have left them, each with its key range."""
    numbers = range(FILES)
    columns = {
        "partition": [f"month={number * PARTITIONS // FILES:04}" for number in numbers],
        "file_id": [f"{number:08x}-0b9d-4c1f-9d43-2f1a{number:08x}-0" for number in numbers],
        "token": ["0-1-0"] * FILES,
        "instant": [f"20190101{number % 10_000:09}" for number in numbers],
        "size_bytes": [130_000_000 + number for number in numbers],
        "rows": [1_000_000] * FILES,
        "key_min": [f"k{number:012}" for number in numbers],
        "key_max": [f"k{number + 1:012}" for number in numbers],
        "columns": ['{"v":[0,1000000,0]}'] * FILES,
        "replaced_by": [None] * FILES,
        "logs": [None] * FILES,
    }
    return Checkpoint(coverage, LoadedRows(pa.table([pa.array(columns[each.name], each.type) for each in ROWS], schema=ROWS)))
